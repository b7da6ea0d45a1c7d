//! Contexts, and the objects made in them.

use super::{Buffer, Event, Kind, Queue, Usm, owned};
use crate::fixture::Fixture;
use crate::outcome::Stop;
use std::ptr::{null, null_mut};
use ur::abi::*;

owned!(
    /// A context over the device under test.
    Context, ur_context_handle_t, urContextRetain, urContextRelease
);

impl Context {
    #[track_caller]
    pub fn new(fixture: &Fixture) -> Result<Self, Stop> {
        let mut raw = null_mut();
        fixture
            .ur
            .urContextCreate(1, &fixture.device, null(), &mut raw)
            .ok()?;
        Ok(Self::adopt(fixture.ur, raw))
    }

    /// An in-order queue on the context's device.
    #[track_caller]
    pub fn in_order(&self, fixture: &Fixture) -> Result<Queue, Stop> {
        Queue::new(self, fixture.device, ur_queue_flags_t(0))
    }

    #[track_caller]
    pub fn out_of_order(&self, fixture: &Fixture) -> Result<Queue, Stop> {
        Queue::new(
            self,
            fixture.device,
            UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE,
        )
    }

    /// An event made from one of the backend's, which stays the backend's.
    #[track_caller]
    pub fn adopt_event(&self, native: ur_native_handle_t) -> Result<Event, Stop> {
        let mut raw = null_mut();
        self.ur
            .urEventCreateWithNativeHandle(native, self.raw, null(), &mut raw)
            .ok()?;
        Ok(Event::adopt(self.ur, raw))
    }

    /// A synchronous allocation with default options.
    #[track_caller]
    pub fn usm(&self, fixture: &Fixture, kind: Kind, size: usize) -> Result<Usm, Stop> {
        Usm::new(self, fixture.device, kind, size, 0, null_mut())
    }

    #[track_caller]
    pub fn buffer(&self, size: usize) -> Result<Buffer, Stop> {
        Buffer::new(self, ur_mem_flags_t(0), size)
    }
}

//! Native commands of command buffers: what others record into a command buffer of OpenCL's, as one
//! command.
//!
//! Only the driver's part of a buffer's life is used here, which is the same in all versions of the
//! extension. A buffer cannot be copied, so what was recorded into it is fixed when it becomes a
//! command, and it is none of another buffer's.

use std::ptr::null_mut;
use std::sync::Arc;

use opencl_sys::*;
use ur::abi::ur_native_handle_t;
use ur::object::{Error, Object, Result};
use ur::stream::{Devices, NativeRecord, Work};

use crate::OpenCl;
use crate::cl::{Api, EventRef, Version, check, failure};
use crate::device::Device;
use crate::exec::{Lane, Native, Slot};
use crate::record::{self, Recorder};

/// A command buffer that others add commands to, and the queue that it was made for.
struct Record(Arc<Recorded>);

struct Recorded {
    buffer: Recorder,
    lane: Arc<Lane>,
}

/// A new one.
pub fn open(
    devices: &Devices<OpenCl>,
    device: &Object<Device>,
) -> Result<Arc<dyn NativeRecord<OpenCl>>> {
    if !record::has_buffers(device, Version::new(0, 9)) {
        return Err(Error::unsupported());
    }
    let context = &devices.state().context;
    let lane = Lane::open(context, device, Default::default())?;
    let buffer = Recorder::open(context.api(), lane.queue(), 0);
    let buffer = buffer.map_err(|code| failure(code, "clCreateCommandBufferKHR"))?;
    Ok(Arc::new(Record(Arc::new(Recorded { buffer, lane }))))
}

impl NativeRecord<OpenCl> for Record {
    fn handle(&self) -> ur_native_handle_t {
        self.0.buffer.raw().expose_provenance()
    }

    fn work(&self) -> Result<Work<OpenCl>> {
        let code = self.0.buffer.finalize();
        check(code, "clFinalizeCommandBufferKHR")?;
        let recorded = Arc::clone(&self.0);
        let run = move |api: &Api, slot: &Slot| recorded.enqueue(api, slot);
        Ok(Work::Native(Native::new(run)))
    }
}

impl Recorded {
    fn enqueue(&self, api: &Api, slot: &Slot) -> Result<()> {
        match self.buffer.enqueue(slot) {
            // The driver wants a queue with the properties of the buffer's own.
            CL_INCOMPATIBLE_COMMAND_QUEUE_KHR => self.enqueue_on_own_queue(api, slot),
            code => check(code, "clEnqueueCommandBufferKHR"),
        }
    }

    /// Has the buffer's own queue run it, between two markers on the queue where it belongs.
    fn enqueue_on_own_queue(&self, api: &Api, slot: &Slot) -> Result<()> {
        let own = self.lane.queue().raw();
        let before = self.event_of(|event| mark(api, &Slot { event, ..*slot }))?;
        flush(api, slot.queue)?;
        let done = self.event_of(|event| {
            let own_slot = Slot {
                queue: own,
                count: 1,
                waits: &before.raw(),
                event,
            };
            check(self.buffer.enqueue(&own_slot), "clEnqueueCommandBufferKHR")
        })?;
        flush(api, own)?;
        let behind = Slot {
            count: 1,
            waits: &done.raw(),
            ..*slot
        };
        mark(api, &behind)
    }

    /// Enqueues a command and returns its event.
    fn event_of(&self, enqueue: impl FnOnce(*mut cl_event) -> Result<()>) -> Result<EventRef> {
        let mut event = null_mut();
        enqueue(&mut event)?;
        // SAFETY: the call succeeded, so the event is there and ours.
        unsafe { EventRef::adopted(self.buffer.api(), event, true) }
    }
}

fn mark(api: &Api, slot: &Slot) -> Result<()> {
    let enqueue = api.core.clEnqueueMarkerWithWaitList;
    // SAFETY: a live queue and wait list.
    let code = unsafe { enqueue(slot.queue, slot.count, slot.waits, slot.event) };
    check(code, "clEnqueueMarkerWithWaitList")
}

/// The other queue waits for what this one has, which may be held back otherwise.
fn flush(api: &Api, queue: cl_command_queue) -> Result<()> {
    // SAFETY: a live queue.
    check(unsafe { (api.core.clFlush)(queue) }, "clFlush")
}

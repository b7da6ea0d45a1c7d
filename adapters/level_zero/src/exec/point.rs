//! What can be waited for, and the points of it that the host signals.

use std::sync::Arc;

use ur::object::{Object, Result};
use ur::stream;
use ur::sync::{Mutex, rank};

use super::event::{Event, Kind};
use super::lane::Stream;
use crate::context::NativeContext;
use crate::device::Device;

pub type Marker = stream::Marker<Stream>;

pub type Signal = stream::Signal<Stream>;

/// What lists wait for by themselves where foreign code may submit to them: an event, made when first needed.
pub struct Point {
    context: Arc<NativeContext>,
    device: Arc<Object<Device>>,
    state: Mutex<PointState, { rank::LEAF }>,
}

#[derive(Default)]
struct PointState {
    is_signalled: bool,
    event: Option<Arc<Event>>,
}

impl Point {
    /// The event that a list has to wait for. None if the point is signalled.
    pub fn event(&self) -> Result<Option<Arc<Event>>> {
        let known = |state: &PointState| match state.is_signalled {
            true => Some(None),
            false => state.event.clone().map(Some),
        };
        if let Some(known) = known(&self.state.lock()) {
            return Ok(known);
        }
        // An event is made and dropped without the lock: the cache of events has a lock of the same rank.
        let event = Arc::new(Event::new(&self.context, &self.device, Kind::Host)?);
        let mut state = self.state.lock();
        let known = known(&state).unwrap_or_else(|| {
            state.event = Some(Arc::clone(&event));
            Some(Arc::clone(&event))
        });
        drop(state);
        Ok(known)
    }

    /// An event that is signalled with the point, for foreign code.
    pub fn native(&self) -> Result<Arc<Event>> {
        if let Some(event) = self.event()? {
            return Ok(event);
        }
        let event = Arc::new(Event::new(&self.context, &self.device, Kind::Host)?);
        event.signal()?;
        let mut state = self.state.lock();
        let kept = Arc::clone(state.event.get_or_insert_with(|| Arc::clone(&event)));
        drop(state);
        Ok(kept)
    }

    pub fn signal(&self) {
        let mut state = self.state.lock();
        state.is_signalled = true;
        if let Some(event) = &state.event {
            event.release_list();
        }
    }
}

/// A new point, and the means to signal it.
pub fn host_point(
    context: &Arc<NativeContext>,
    device: &Object<Device>,
) -> Result<(Marker, Signal)> {
    Ok(Marker::host(Point {
        context: Arc::clone(context),
        device: device.arc(),
        state: Mutex::default(),
    }))
}

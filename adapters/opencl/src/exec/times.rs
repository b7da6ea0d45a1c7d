//! When commands ran: from a profiled queue's events, else from a clock that runs like the device's.
//!
//! All times of a device are of one clock: the driver's, or the host's where the driver does not tell it
//! (PoCL). What events tell is then counted from when they were queued, which the host saw too. An event
//! that others made keeps the times that the driver tells.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use opencl_sys::*;
use ur::object::{Object, Result};
use ur::stream::{Notice, Stamps};

use super::Marker;
use crate::cl::{self, EventRef};
use crate::device::Device;

/// The time at which a command is queued, where its events are timed by a clock that cannot be read.
pub fn queued(device: &Object<Device>) -> Result<Option<u64>> {
    match device.has_timers() {
        true => Ok(None),
        false => now(device).map(Some),
    }
}

/// Has `stamps` filled in from a profiled command's events.
pub fn times(stamps: &Stamps, first: Marker, last: Marker, queued: Option<u64>) {
    stamps.fill_from(Box::new(move |stamps| {
        let start = time(first.event(), CL_PROFILING_COMMAND_START);
        let end = time(last.event(), CL_PROFILING_COMMAND_END);
        let (Some(start), Some(end)) = (start, end) else {
            return;
        };
        let shift = match queued {
            None => Some(0),
            Some(queued) => time(first.event(), CL_PROFILING_COMMAND_QUEUED)
                .map(|theirs| queued.wrapping_sub(theirs)),
        };
        if let Some(shift) = shift {
            stamps
                .start
                .store(start.wrapping_add(shift), Ordering::Relaxed);
            stamps
                .end
                .store(end.max(start).wrapping_add(shift), Ordering::Release);
        }
    }));
}

/// A profiled event's time, once it is known.
pub fn time(event: &EventRef, what: cl_profiling_info) -> Option<u64> {
    // SAFETY: a live event.
    let ask = |size, value, ret| unsafe {
        (event.api().core.clGetEventProfilingInfo)(event.raw(), what, size, value, ret)
    };
    cl::value::<u64>(ask, "clGetEventProfilingInfo")
        .ok()
        .filter(|time| *time > 0)
}

/// Nanoseconds on the device's clock, or on the host's where the driver tells none.
pub fn now(device: &Object<Device>) -> Result<u64> {
    device.clocks().map(|(device, _)| device)
}

/// Has `stamps` filled in when a command without times of its own ends: with the time of the call
/// back, on a clock that runs like the device's.
pub fn observed(stamps: &Arc<Stamps>, marker: &Marker, device: &Object<Device>) -> Result<()> {
    let (base, since) = (now(device)?, Instant::now());
    let stamps = Arc::clone(stamps);
    let note: Notice = Box::new(move || {
        let at = base.saturating_add(since.elapsed().as_nanos() as u64);
        stamps.start.store(at, Ordering::Relaxed);
        stamps.end.store(at, Ordering::Release);
    });
    marker.notify(note);
    Ok(())
}

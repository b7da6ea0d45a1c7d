//! When commands ran: from a profiled queue's events, else from a clock that runs like the device's.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use opencl_sys::*;
use ur::object::{Object, Result};
use ur::stream::{Notice, Stamps};

use super::Marker;
use crate::cl::{self, EventRef};
use crate::device::Device;

/// Has `stamps` filled in from a profiled command's events.
pub fn times(stamps: &Stamps, first: Marker, last: Marker) {
    stamps.fill_from(Box::new(move |stamps| {
        let start = time(first.event(), CL_PROFILING_COMMAND_START);
        if let (Some(start), Some(end)) = (start, time(last.event(), CL_PROFILING_COMMAND_END)) {
            stamps.start.store(start, Ordering::Relaxed);
            stamps.end.store(end.max(start), Ordering::Release);
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

/// Nanoseconds on the device's clock, or on ours where it tells none.
pub fn now(device: &Object<Device>) -> Result<u64> {
    use std::sync::LazyLock;
    static BASE: LazyLock<Instant> = LazyLock::new(Instant::now);
    match device.timers() {
        Ok((device, _)) => Ok(device),
        Err(_) => Ok(BASE.elapsed().as_nanos() as u64 + 1),
    }
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

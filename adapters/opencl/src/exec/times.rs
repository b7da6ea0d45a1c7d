//! When commands ran: from a profiled queue's events, else from a clock that runs like the device's.
//!
//! All times of a device are of one clock: the driver's, or the host's where the driver does not tell it
//! (PoCL). Event times are then counted from the queued time, which the host knows too. A foreign event
//! keeps the driver's times.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use opencl_sys::*;
use ur::object::{Object, Result};
use ur::stream::Timestamps;
use ur::timeline::sync::Mutex;

use super::Position;
use crate::cl::{self, EventRef};
use crate::device::Device;

/// How far the host's clock is ahead of the one that events are timed by, where that cannot be read.
#[derive(Default)]
pub struct Ahead(Mutex<Option<(u64, i64)>>);

impl Ahead {
    /// Updates the offset by a command that the host enqueued at `queued` and the driver stamped `stamped`,
    /// in nanoseconds. A delayed thread makes the stamp late, so the largest offset is the most exact. It
    /// shrinks by the drift that two clocks may have.
    pub fn seen(&self, queued: u64, stamped: u64) -> u64 {
        const DRIFT: u64 = 10_000;
        let mut known = self.0.lock();
        let seen = queued.wrapping_sub(stamped).cast_signed();
        let (at, offset) = known.unwrap_or((queued, seen));
        let since = queued.saturating_sub(at);
        let offset = seen.max(offset.saturating_sub_unsigned(since / DRIFT));
        *known = Some((at.max(queued), offset));
        offset.cast_unsigned()
    }
}

/// The time at which a command is queued, where its events are timed by a clock that cannot be read.
pub fn queued(device: &Object<Device>) -> Result<Option<u64>> {
    match device.has_timers() {
        true => Ok(None),
        false => now(device).map(Some),
    }
}

/// Has `timestamps` filled in from a profiled command's events, which a device timed; with the time at which it
/// was queued where that device's clock cannot be read.
pub fn times(
    timestamps: &Timestamps,
    first: Position,
    last: Position,
    queued: Option<(Arc<Object<Device>>, u64)>,
) {
    timestamps.fill_from(Box::new(move |timestamps| {
        let start = time(first.event(), CL_PROFILING_COMMAND_START);
        let end = time(last.event(), CL_PROFILING_COMMAND_END);
        let (Some(start), Some(end)) = (start, end) else {
            return;
        };
        let shift = match &queued {
            None => Some(0),
            Some((device, queued)) => time(first.event(), CL_PROFILING_COMMAND_QUEUED)
                .map(|stamped| device.ahead.seen(*queued, stamped)),
        };
        if let Some(shift) = shift {
            timestamps
                .start
                .store(start.wrapping_add(shift), Ordering::Relaxed);
            timestamps
                .end
                .store(end.max(start).wrapping_add(shift), Ordering::Release);
        }
    }));
}

/// A profiled event's time, once it is known.
pub fn time(event: &EventRef, what: cl_profiling_info) -> Option<u64> {
    // SAFETY: a live event.
    let query = |size, value, ret| unsafe {
        (event.api().core.clGetEventProfilingInfo)(event.raw(), what, size, value, ret)
    };
    cl::value::<u64>(query, "clGetEventProfilingInfo")
        .ok()
        .filter(|time| *time > 0)
}

/// Nanoseconds on the device's clock, or on the host's where the driver reports none.
pub fn now(device: &Object<Device>) -> Result<u64> {
    device.clocks().map(|(device, _)| device)
}

/// Has `timestamps` filled in when a command without times of its own ends: with the time of the call
/// back, on a clock that runs like the device's. Drivers call back after a wait has returned, so a query
/// that comes first fills them in.
pub fn observed(
    timestamps: &Arc<Timestamps>,
    marker: &Position,
    device: &Object<Device>,
) -> Result<()> {
    let (base, since) = (now(device)?, Instant::now());
    let fill = move |timestamps: &Timestamps| {
        let at = base.saturating_add(since.elapsed().as_nanos() as u64);
        let (set, read) = (Ordering::AcqRel, Ordering::Acquire);
        // Whichever of the two comes first decides.
        let start = timestamps.start.compare_exchange(0, at, set, read);
        let start = start.map_or_else(|known| known, |_| at);
        timestamps.end.store(start, Ordering::Release);
    };
    let ended = marker.clone();
    timestamps.fill_from(Box::new(move |timestamps| {
        if matches!(ended.is_done(), Ok(true)) {
            fill(timestamps);
        }
    }));
    let called_back = Arc::clone(timestamps);
    marker.notify(Box::new(move || fill(&called_back)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_held_up_moves_no_command() {
        let (ahead, held_up) = (Ahead::default(), 3_000_000);
        let truth = 237_000_000;
        // The driver stamps a microsecond after the host has looked, but once three milliseconds.
        let known = ahead.seen(truth + 1_000, 2_000);
        assert_eq!(known, truth - 1_000);
        let late = ahead.seen(truth + 5_000, 5_000 + held_up);
        assert!(known - late < 2, "{known} became {late}");
        // Clocks that drift apart are followed either way.
        let far = 3_600_000_000_000;
        assert_eq!(ahead.seen(truth + far + 9_000, far), truth + 9_000);
        let slower = truth - 20_000_000;
        assert_eq!(ahead.seen(slower + 2 * far, 2 * far), slower);
        // A clock may as well be behind.
        let behind = Ahead::default().seen(1_000, 2_000);
        assert_eq!(behind.wrapping_add(2_000), 1_000);
    }
}

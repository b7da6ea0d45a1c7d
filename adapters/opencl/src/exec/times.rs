//! Timestamps of commands: those of a profiled queue's events, else of a clock with the device's rate.
//!
//! All timestamps of a device use one clock: the driver's, or the host's if the driver does not report
//! its own (PoCL). In the second case an event's times are shifted by the offset between its queued time
//! and the host's. A foreign event keeps the driver's times.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use opencl_sys::*;
use ur::object::{Object, Result};
use ur::stream::Timestamps;
use ur::sync::Mutex;

use super::Position;
use crate::cl::{self, EventRef};
use crate::device::Device;

/// The offset of the host's clock from the clock of event times, for a driver that does not report it.
#[derive(Default)]
pub struct Ahead(Mutex<Option<(u64, i64)>>);

impl Ahead {
    /// Updates the offset by a command that the host enqueued at `queued` and the driver stamped `stamped`,
    /// in nanoseconds. A delayed thread makes the stamp late, so the largest offset is the most exact. It
    /// shrinks by the drift that two clocks may have.
    pub fn seen(&self, queued: u64, stamped: u64) -> u64 {
        const MAX_DRIFT_SHARE: u64 = 10_000;
        let mut known = self.0.lock();
        let seen = queued.wrapping_sub(stamped).cast_signed();
        let (at, offset) = known.unwrap_or((queued, seen));
        let since = queued.saturating_sub(at);
        let offset = seen.max(offset.saturating_sub_unsigned(since / MAX_DRIFT_SHARE));
        *known = Some((at.max(queued), offset));
        offset.cast_unsigned()
    }
}

/// The host's time of queuing a command, if the driver does not report the clock of its events.
pub fn queued(device: &Object<Device>) -> Result<Option<u64>> {
    match device.has_timers() {
        true => Ok(None),
        false => now(device).map(Some),
    }
}

/// Fills `timestamps` later from a profiled command's first and last event. `queued`: the device and the
/// host's time of queuing, if the driver does not report its clock.
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

/// A time of a profiled event. None until the driver knows it.
pub fn time(event: &EventRef, what: cl_profiling_info) -> Option<u64> {
    // SAFETY: `EventRef` holds a reference to the event, and `cl` passes a buffer of that size.
    let query = |size, value, ret| unsafe {
        (event.api().core.clGetEventProfilingInfo)(event.raw(), what, size, value, ret)
    };
    cl::value::<u64>(query, "clGetEventProfilingInfo")
        .ok()
        .filter(|time| *time > 0)
}

/// Nanoseconds on the device's clock, or on the host's if the driver reports none.
pub fn now(device: &Object<Device>) -> Result<u64> {
    device.clocks().map(|(device, _)| device)
}

/// Fills `timestamps` when a command without event times ends, with the time of the driver's callback.
/// Drivers call back after a wait has returned. So a query that comes first fills them instead.
pub fn observed(
    timestamps: &Arc<Timestamps>,
    marker: &Position,
    device: &Object<Device>,
) -> Result<()> {
    let (base, since) = (now(device)?, Instant::now());
    let fill = move |timestamps: &Timestamps| {
        let at = base.saturating_add(since.elapsed().as_nanos() as u64);
        let (set, read) = (Ordering::AcqRel, Ordering::Acquire);
        // The query or the callback may come first, and the first time stays.
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
        // The driver stamps 1 µs after the host, and once 3 ms after it.
        let known = ahead.seen(truth + 1_000, 2_000);
        assert_eq!(known, truth - 1_000);
        let late = ahead.seen(truth + 5_000, 5_000 + held_up);
        assert!(known - late < 2, "{known} became {late}");
        // The offset follows a drift in both directions.
        let far = 3_600_000_000_000;
        assert_eq!(ahead.seen(truth + far + 9_000, far), truth + 9_000);
        let slower = truth - 20_000_000;
        assert_eq!(ahead.seen(slower + 2 * far, 2 * far), slower);
        // The host's clock may be behind.
        let behind = Ahead::default().seen(1_000, 2_000);
        assert_eq!(behind.wrapping_add(2_000), 1_000);
    }
}

//! Timestamps of commands, in nanoseconds since the start of the device's clock.
//!
//! The driver reports only the time between two events, as milliseconds in single precision. That is exact
//! to a nanosecond over 16 ms, and to a microsecond over 16 s. So timestamps count from a base event, which
//! is replaced after [`MAX_BASE_AGE`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ur::object::{Error, Result};
use ur::stream::Timestamps;
use ur::sync::{Mutex, rank};

use super::gpu::{Event, Gpu};
use crate::vendor::Api;

/// Longest time that commands count from one base.
const MAX_BASE_AGE: Duration = Duration::from_millis(200);

/// A device's clock.
#[derive(Default)]
pub struct Clock {
    base: Mutex<Option<Arc<Base>>, { rank::DRIVER }>,
    /// The latest time that [`Gpu::now`] returned.
    last: AtomicU64,
}

/// An event that was complete at a known time.
struct Base {
    event: usize,
    /// Holds the latest base, so a base does not keep it alive.
    gpu: Weak<Gpu>,
    /// The event's time on the device's clock, in nanoseconds.
    at: u64,
    /// The host's time of its completion.
    seen: Instant,
}

impl Drop for Base {
    fn drop(&mut self) {
        if let Some(gpu) = self.gpu.upgrade() {
            gpu.timed
                .release(std::ptr::with_exposed_provenance_mut(self.event));
        }
    }
}

impl Clock {
    /// Destroys the base. The context is current and ends.
    pub fn close(&mut self, api: &Api) {
        let base = self.base.get_mut();
        if let Some(base) = base.take() {
            // SAFETY: the clock owns the event, and commands that count from it keep the context.
            unsafe { (api.cuEventDestroy)(std::ptr::with_exposed_provenance_mut(base.event)) };
        }
    }
}

impl Gpu {
    /// Ensures a recent base. The context is current.
    pub(super) fn sync_clock(self: &Arc<Self>) -> Result<()> {
        self.base().map(drop)
    }

    fn base(self: &Arc<Self>) -> Result<Arc<Base>> {
        let mut base = self.clock.base.lock();
        if let Some(base) = &*base
            && base.seen.elapsed() < MAX_BASE_AGE
        {
            return Ok(Arc::clone(base));
        }
        let event = self.event(true)?;
        self.at_once(|stream| event.record(stream))?;
        let seen = Instant::now();
        let at = match &*base {
            Some(old) => old.at + self.between(old.event, &event)?,
            None => 1,
        };
        let new = Arc::new(Base {
            event: event.into_raw().expose_provenance(),
            gpu: Arc::downgrade(self),
            at,
            seen,
        });
        *base = Some(Arc::clone(&new));
        Ok(new)
    }

    /// Nanoseconds from a base to an event. An error while the event is not complete.
    fn between(&self, from: usize, to: &Event) -> Result<u64> {
        let mut milliseconds = 0.0;
        let from = std::ptr::with_exposed_provenance_mut(from);
        // SAFETY: both events are alive and timed; `milliseconds` has room for the result.
        let code = unsafe { (self.api.cuEventElapsedTime)(&mut milliseconds, from, to.raw()) };
        self.check(code, "cuEventElapsedTime")?;
        Ok((f64::from(milliseconds) * 1e6).max(0.0) as u64)
    }

    /// The device's time now, extrapolated from the base by the host's clock. Never decreases.
    pub fn now(self: &Arc<Self>) -> Result<u64> {
        let _current = self.enter()?;
        let base = self.base()?;
        let now = base.at + base.seen.elapsed().as_nanos() as u64;
        let last = self.clock.last.fetch_max(now, Ordering::Relaxed);
        Ok(now.max(last))
    }
}

/// Makes `timestamps` fill themselves from the events around a command.
pub fn fill(timestamps: &Timestamps, gpu: &Arc<Gpu>, start: Event, end: Event) {
    let base = gpu.clock.base.lock().clone();
    let Some(base) = base else { return };
    timestamps.fill_from(Box::new(move |timestamps| {
        let gpu = end.gpu();
        let query = || -> Result<(u64, u64)> {
            let _current = gpu.enter()?;
            if !end.is_done()? {
                return Err(Error::unsupported());
            }
            Ok((
                base.at + gpu.between(base.event, &start)?,
                base.at + gpu.between(base.event, &end)?,
            ))
        };
        if let Ok((start, end)) = query() {
            timestamps.record(start, end.max(start));
        }
    }));
}

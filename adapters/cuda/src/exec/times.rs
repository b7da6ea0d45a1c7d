//! When commands ran, in nanoseconds since the device's clock was started.
//!
//! The driver tells only the time between two events, in milliseconds of single precision: exact to a
//! nanosecond over 16 ms, to a microsecond over 16 s. So there is a base event from which to count,
//! and a newer one as soon as it is [`STALE`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ur::object::{Error, Result};
use ur::stream::Timestamps;
use ur::timeline::rank;
use ur::timeline::sync::Mutex;

use super::gpu::{Event, Gpu};
use crate::cu::Api;

/// How long a base serves.
const STALE: Duration = Duration::from_millis(200);

/// A device's clock.
#[derive(Default)]
pub struct Clock {
    base: Mutex<Option<Arc<Base>>, { rank::DRIVER }>,
    /// The last time that anybody was told.
    last: AtomicU64,
}

/// An event that was complete at a known time.
struct Base {
    event: usize,
    /// Which holds the newest of them.
    gpu: Weak<Gpu>,
    /// On the device's clock.
    at: u64,
    /// When the host knew.
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
    /// Ends with its context, which is current.
    pub fn close(&mut self, api: &Api) {
        let base = self.base.get_mut();
        if let Some(base) = base.take() {
            // SAFETY: an event of ours; commands that count from it hold the context.
            unsafe { (api.cuEventDestroy)(std::ptr::with_exposed_provenance_mut(base.event)) };
        }
    }
}

impl Gpu {
    /// Sees to it that there is a recent base. The context is current.
    pub(super) fn sync_clock(self: &Arc<Self>) -> Result<()> {
        self.base().map(drop)
    }

    fn base(self: &Arc<Self>) -> Result<Arc<Base>> {
        let mut base = self.clock.base.lock();
        if let Some(base) = &*base
            && base.seen.elapsed() < STALE
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

    /// Nanoseconds from a base to an event; an error until that is complete.
    fn between(&self, from: usize, to: &Event) -> Result<u64> {
        let mut milliseconds = 0.0;
        let from = std::ptr::with_exposed_provenance_mut(from);
        // SAFETY: two live events with times, and room for a number.
        let code = unsafe { (self.api.cuEventElapsedTime)(&mut milliseconds, from, to.raw()) };
        self.check(code, "cuEventElapsedTime")?;
        Ok((f64::from(milliseconds) * 1e6).max(0.0) as u64)
    }

    /// The device's time now, as well as the host knows it.
    pub fn now(self: &Arc<Self>) -> Result<u64> {
        let _current = self.enter()?;
        let base = self.base()?;
        let now = base.at + base.seen.elapsed().as_nanos() as u64;
        let last = self.clock.last.fetch_max(now, Ordering::Relaxed);
        Ok(now.max(last))
    }
}

/// Has `timestamps` filled in from the events around a command.
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
            timestamps.start.store(start, Ordering::Relaxed);
            timestamps.end.store(end.max(start), Ordering::Release);
        }
    }));
}

//! Failed commands of a lane: which they are, and what depends on them.
//!
//! On an in-order queue each command depends on the one before, so that a failure stops the lane: what
//! is submitted behind the failed command does not run, and fails too, until a wait has reported it. On
//! a lane of an out-of-order queue only what waits for the failed command depends on it.
//!
//! | a lane | until |
//! |---|---|
//! | runs what it is given | a command of it is known to have failed |
//! | is stopped, on an in-order queue | the failure is reported |

use super::{Driver, LaneCore, Reach, State};
use crate::object::Result;
use crate::stream::driver::{FAILED, is_failure};
use crate::stream::{Progress, Work};
use crate::timeline::Failure;
use std::sync::atomic::Ordering;

impl<D: Driver> LaneCore<D> {
    /// Whether what is submitted now depends on a failed command that the program was not told of.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) && self.is_still_stopped()
    }

    #[cold]
    fn is_still_stopped(&self) -> bool {
        let stopped = self.clock.unreported(u64::MAX).is_some();
        self.stopped.store(stopped, Ordering::Relaxed);
        stopped
    }

    /// Whether a command after `waits` would not run.
    pub fn drops(&self, waits: &Reach) -> bool {
        self.is_stopped() || waits.unreported().is_some()
    }

    /// The marker of the command with this epoch tells that it failed.
    pub fn record_failure(&self, epoch: u64) -> Result<()> {
        self.record_failure_here(&mut self.state.lock(), epoch)
    }

    /// As [`LaneCore::record_failure`], for whoever has the lane's lock.
    #[cold]
    pub(super) fn record_failure_here(&self, state: &mut State<D>, epoch: u64) -> Result<()> {
        if self.clock.completed() >= epoch {
            // Another thread has recorded it meanwhile.
            return Ok(());
        }
        D::settle(&self.native)?;
        self.record_untold();
        let why = Failure::new();
        // The end of the last command that did not fail, as far as markers tell commands apart.
        let mut right = self.clock.completed();
        for (at, marker) in &state.marks {
            if *at <= right || *at > epoch {
                continue;
            }
            match D::is_done(marker) {
                Err(error) if is_failure(error) => {
                    // On an in-order queue all that follows has failed with it.
                    if self.in_order {
                        break;
                    }
                    if self.clock.failure(*at).is_none() {
                        self.clock.fail(right, *at, &why);
                    }
                }
                _ if *at == epoch => break,
                _ => {}
            }
            right = *at;
        }
        let dropped = D::recover(&self.native);
        let last = state.order.epoch();
        let upto = if self.in_order || dropped {
            last
        } else {
            epoch
        };
        if right < upto && self.clock.failure(upto).is_none() {
            self.clock.fail(right, upto, &why);
        }
        if self.in_order {
            self.stop(state);
        }
        self.clock.raise(epoch);
        Ok(())
    }

    fn stop(&self, state: &mut State<D>) {
        self.stopped.store(true, Ordering::Relaxed);
        state.attention = true;
    }

    /// All up to this epoch has ended, its own command well.
    pub fn record_end(&self, epoch: u64) {
        self.record_untold();
        self.clock.raise(epoch);
    }

    fn record_untold(&self) {
        if D::TELLS_FAILURES && !self.in_order {
            for epoch in D::failed(&self.native) {
                if self.clock.failure(epoch).is_none() {
                    self.clock.fail(epoch - 1, epoch, &Failure::new());
                }
            }
        }
    }

    /// A command that does not run, as it depends on a failed one: a place in the lane, and no more.
    #[cold]
    pub(super) fn drop_command(&self, state: &mut State<D>) -> Result<bool> {
        let epoch = state.order.epoch() + 1;
        let given = D::submit(&self.native, epoch, Work::Marker, None);
        let watched = self.given(state, given.map(|()| Progress::Pending))?;
        let of_lane = self.clock.unreported(u64::MAX).filter(|_| self.in_order);
        self.clock
            .fail(epoch - 1, epoch, &of_lane.unwrap_or_default());
        if self.in_order {
            self.stop(state);
        }
        Ok(watched)
    }

    /// Whether all that failed at the lane's end was reported.
    #[cold]
    pub(super) fn ends_with_reported(&self, state: &State<D>) -> bool {
        state.tip().failure().is_some_and(|why| why.is_reported()) && !self.is_stopped()
    }

    /// A wait covers all of the lane: an error if a command failed that no wait has reported.
    pub fn report(&self) -> Result<()> {
        match self.clock.report(u64::MAX) {
            true => Err(FAILED),
            false => Ok(()),
        }
    }
}

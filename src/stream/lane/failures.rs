//! Failed commands of a lane, and the commands that depend on them.
//!
//! On an in-order queue each command depends on the command before it, so a failure stops the lane.
//! Later commands do not run and fail too, until a wait has reported the failure. On a lane of an
//! out-of-order queue, only commands that wait for the failed one depend on it.
//!
//! An event's wait reports its failure each time. A wait for a queue or a device reports the failures
//! that no wait has reported. An event that is known to have failed is refused in a wait list.
//!
//! | backend | a command fails | consequence |
//! |---|---|---|
//! | native_cpu | never: a wrong command is refused when it is enqueued | |
//! | OpenCL | its event ends with an error, or it waits for a foreign event that does | each event is asked once; work behind foreign events is deferred until they have ended, since drivers run what follows a failed wait |
//! | CUDA | it was deferred, and the driver refuses it later | the commands behind it are dropped |
//! | CUDA | the device faults | the context is lost: every wait and call reports that from then on |
//!
//! A native command's function is called when it is enqueued, since its work cannot be deferred. It is
//! not called if a failure that it depends on is known then. If one becomes known later, the native work
//! runs nevertheless, as does deferred work before it, which is submitted first; their events report the
//! failure, and the commands behind them do not run. After a queue's native handle was given out, the
//! driver runs the commands behind a host task that did not run. Their events report that on OpenCL and
//! on out-of-order queues; on an in-order queue of CUDA only the host task's event does. A driver may
//! also run a command that it receives before the previous one has failed.
//!
//! | state of a lane | left when |
//! |---|---|
//! | running | one of its commands is known to have failed |
//! | stopped (in-order queues only) | a wait has reported the failure |

use super::{Dependencies, Driver, LaneCore, LaneState};
use crate::object::Result;
use crate::stream::Work;
use crate::stream::driver::{FAILED, is_failure};
use crate::sync::{Mutex, rank};
use crate::timeline::{Failure, Point};
use std::borrow::Borrow;

/// Number of dependents from which ended ones are pruned before the list grows.
const MIN_DEPENDENTS_BEFORE_PRUNE: usize = 16;

/// Commands whose stream does not propagate a failure of their dependencies. The stream of an
/// out-of-order queue runs the next command after a failure. A stream that is open to foreign
/// submitters runs commands that wait for a failed host point.
#[derive(Default)]
pub(super) struct Dependents(Mutex<Vec<Dependent>, { rank::DEPENDENTS }>);

struct Dependent {
    epoch: u64,
    waits: Dependencies,
}

impl<D: Driver> LaneCore<D> {
    /// Whether the next command depends on a failure that no wait has reported.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.status.is_stopped(&self.clock)
    }

    /// Whether a command after `waits` is known not to run.
    pub fn drops(&self, waits: &Dependencies) -> bool {
        self.record_hidden_failures();
        self.is_stopped() || waits.unreported().is_some()
    }

    /// Records that the next command depends on `waits`, where the stream would not propagate their
    /// failure.
    #[inline]
    pub(super) fn depend(&self, state: &LaneState<D>, waits: &[impl Borrow<Dependencies>]) {
        // A host task may fail, and the lane may be opened to foreign submitters before that.
        let held = !self.engine.all_signalled();
        if !self.in_order && (D::REPORTS_FAILURES || held) {
            let waits = waits.iter().map(Borrow::borrow);
            waits.for_each(|waits| self.depend_on(state, waits, held));
        }
    }

    fn depend_on(&self, state: &LaneState<D>, waits: &Dependencies, held: bool) {
        let own = |point: &Point| point.lane() == self.clock.id();
        let hidden = |point: &Point| !point.is_done() && (held || own(point));
        if !waits.done.points().any(hidden) {
            return;
        }
        // Earlier failures must be recorded before the command is submitted.
        self.record_hidden_failures();
        let mut dependents = self.dependents.0.lock();
        if dependents.len() >= MIN_DEPENDENTS_BEFORE_PRUNE
            && dependents.len() == dependents.capacity()
        {
            let completed = self.clock.completed();
            dependents.retain(|dependent| dependent.epoch > completed);
        }
        debug_assert!(
            dependents
                .last()
                .is_none_or(|last| last.epoch <= state.order.epoch() + 1),
            "dependents in another order than their commands"
        );
        dependents.push(Dependent {
            epoch: state.order.epoch() + 1,
            waits: waits.clone(),
        });
    }

    /// Marks dependents of failed commands as failed.
    fn fail_dependents(&self, dependents: &[Dependent]) {
        if !Failure::any() {
            return;
        }
        // In submission order, so that a failure propagates through chains of dependents.
        for Dependent { epoch, waits } in dependents {
            if let Some(why) = waits.failure()
                && self.clock.failure(*epoch).is_none()
            {
                self.clock.fail(epoch - 1, *epoch, &why);
            }
        }
    }

    /// Records that the marker of the command with this epoch reported a failure.
    ///
    /// Blocks until earlier commands have ended. The lane is not locked meanwhile, since the thread
    /// that signals one of their dependencies may need that lock.
    #[cold]
    pub fn record_failure(&self, epoch: u64) -> Result<()> {
        D::settle(&self.native, epoch)?;
        let state = &mut self.state.lock();
        if self.clock.completed() >= epoch {
            // Another thread has recorded it meanwhile.
            return Ok(());
        }
        self.record_hidden_failures();
        let why = Failure::new();
        // Epoch of the last command that succeeded, as far as markers tell commands apart.
        let mut succeeded = self.clock.completed();
        for (at, marker) in &state.markers {
            if *at <= succeeded || *at > epoch {
                continue;
            }
            match D::is_done(marker) {
                Err(error) if is_failure(error) => {
                    // On an in-order queue all later commands have failed too.
                    if self.in_order {
                        break;
                    }
                    if self.clock.failure(*at).is_none() {
                        self.clock.fail(succeeded, *at, &why);
                    }
                }
                _ if *at == epoch => break,
                _ => {}
            }
            succeeded = *at;
        }
        let dropped = D::recover(&self.native);
        let last = state.order.epoch();
        let upto = if self.in_order || dropped {
            last
        } else {
            epoch
        };
        if succeeded < upto && self.clock.failure(upto).is_none() {
            self.clock.fail(succeeded, upto, &why);
        }
        if self.in_order {
            self.stop(state);
        }
        self.clock.raise(epoch);
        Ok(())
    }

    /// Makes the stream run commands again after a reported failure. This includes waits that it
    /// was told to make behind the failed commands.
    #[cold]
    fn recover(&self) {
        let state = self.state.lock();
        let (ended, last) = (self.clock.completed(), state.order.epoch());
        // Commands that another thread submitted since the wait began come after the failure.
        if D::recover(&self.native) && ended < last && self.clock.failure(last).is_none() {
            self.clock.fail(ended, last, &Failure::new());
        }
    }

    fn stop(&self, state: &mut LaneState<D>) {
        debug_assert!(self.in_order, "only a failure of an in-order lane stops it");
        self.status.stop();
        state.attention = true;
    }

    /// Records that all commands up to this epoch have ended and that the last one succeeded.
    pub fn record_end(&self, epoch: u64) {
        self.record_hidden_failures();
        self.clock.raise(epoch);
    }

    fn record_hidden_failures(&self) {
        if self.in_order {
            return;
        }
        // One lock covers both steps: no thread may see a command complete before its failure is
        // recorded.
        let dependents = self.dependents.0.lock();
        if D::REPORTS_FAILURES {
            for epoch in D::failed(&self.native) {
                if self.clock.failure(epoch).is_none() {
                    self.clock.fail(epoch - 1, epoch, &Failure::new());
                }
            }
        }
        self.fail_dependents(&dependents);
    }

    /// Submits a marker in place of a command that does not run because a dependency failed.
    #[cold]
    pub(super) fn drop_command(&self, state: &mut LaneState<D>) -> Result<bool> {
        let epoch = state.order.epoch() + 1;
        let submitted = D::submit(&self.native, epoch, Work::Marker, None);
        let watched = self.record_submission(state, submitted)?;
        let of_lane = self.clock.unreported(u64::MAX).filter(|_| self.in_order);
        self.clock
            .fail(epoch - 1, epoch, &of_lane.unwrap_or_default());
        if self.in_order {
            self.stop(state);
        }
        Ok(watched)
    }

    /// Whether every failure at the end of the lane was reported.
    #[cold]
    pub(super) fn ends_with_reported(&self, state: &LaneState<D>) -> bool {
        state.tip().failure().is_some_and(|why| why.is_reported()) && !self.is_stopped()
    }

    /// Reports the failures of the whole lane. An error if one of them was not reported before.
    pub fn report(&self) -> Result<()> {
        if self.in_order && Failure::any() {
            self.recover();
        }
        match self.clock.report(u64::MAX) {
            true => Err(FAILED),
            false => Ok(()),
        }
    }
}

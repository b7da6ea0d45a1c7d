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

use super::{Dependencies, Driver, LaneCore, State};
use crate::object::Result;
use crate::stream::driver::{FAILED, is_failure};
use crate::stream::{Progress, Work};
use crate::timeline::sync::Mutex;
use crate::timeline::{Failure, PointRef, rank};
use std::borrow::Borrow;
use std::sync::atomic::Ordering;

/// Dependents from which on those that have ended are forgotten, whenever there are twice as many.
const FEW: usize = 16;

/// Commands whose stream does not tell that what they wait for failed: on an out-of-order queue it runs
/// what comes behind on the same lane, and a lane that others put work on runs what waits for the host.
#[derive(Default)]
pub(super) struct Dependents(Mutex<Vec<Dependent>, { rank::DEPENDENTS }>);

struct Dependent {
    epoch: u64,
    waits: Dependencies,
}

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

    /// Whether a command after `waits` would not run, as far as is known.
    pub fn drops(&self, waits: &Dependencies) -> bool {
        self.record_hidden_failures();
        self.is_stopped() || waits.unreported().is_some()
    }

    /// The next command waits for these, some of which the stream would not tell of if they failed.
    #[inline]
    pub(super) fn depend(&self, state: &State<D>, waits: &[impl Borrow<Dependencies>]) {
        // A host task may fail, and the lane be given to others until then.
        let held = !self.engine.all_signalled();
        if !self.in_order && (D::TELLS_FAILURES || held) {
            let waits = waits.iter().map(Borrow::borrow);
            waits.for_each(|waits| self.depend_on(state, waits, held));
        }
    }

    fn depend_on(&self, state: &State<D>, waits: &Dependencies, held: bool) {
        let own = |point: &PointRef<'_>| point.lane() == self.clock.id();
        let untold = |point: PointRef<'_>| !point.is_done() && (held || own(&point));
        if !waits.done.points().any(untold) {
            return;
        }
        // What has failed by now is known before the command is given.
        self.record_hidden_failures();
        let mut dependents = self.dependents.0.lock();
        if dependents.len() >= FEW && dependents.len() == dependents.capacity() {
            let completed = self.clock.completed();
            dependents.retain(|dependent| dependent.epoch > completed);
        }
        dependents.push(Dependent {
            epoch: state.order.epoch() + 1,
            waits: waits.clone(),
        });
    }

    /// What depends on failed commands has failed, too.
    fn fail_dependents(&self, dependents: &[Dependent]) {
        if !Failure::any() {
            return;
        }
        // In the order of commands, so that it reaches what depends on those.
        for Dependent { epoch, waits } in dependents {
            if let Some(why) = waits.failure()
                && self.clock.failure(*epoch).is_none()
            {
                self.clock.fail(epoch - 1, *epoch, &why);
            }
        }
    }

    /// The marker of the command with this epoch tells that it failed.
    ///
    /// Blocks for the commands before it, without the lane's lock: what they wait for may be signalled
    /// by a thread that needs it.
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

    /// The stream drops nothing any more for the sake of what failed by now, since that is reported:
    /// commands of its own, and what it was told to wait for behind them.
    #[cold]
    fn recover(&self) {
        let state = self.state.lock();
        let (ended, last) = (self.clock.completed(), state.order.epoch());
        // What another thread has submitted since the wait began comes after the failure.
        if D::recover(&self.native) && ended < last && self.clock.failure(last).is_none() {
            self.clock.fail(ended, last, &Failure::new());
        }
    }

    fn stop(&self, state: &mut State<D>) {
        self.stopped.store(true, Ordering::Relaxed);
        state.attention = true;
    }

    /// All up to this epoch has ended, its own command well.
    pub fn record_end(&self, epoch: u64) {
        self.record_hidden_failures();
        self.clock.raise(epoch);
    }

    fn record_hidden_failures(&self) {
        if self.in_order {
            return;
        }
        // Under one lock, so that nobody takes for complete and right what another thread is recording.
        let dependents = self.dependents.0.lock();
        if D::TELLS_FAILURES {
            for epoch in D::failed(&self.native) {
                if self.clock.failure(epoch).is_none() {
                    self.clock.fail(epoch - 1, epoch, &Failure::new());
                }
            }
        }
        self.fail_dependents(&dependents);
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
        if self.in_order && Failure::any() {
            self.recover();
        }
        match self.clock.report(u64::MAX) {
            true => Err(FAILED),
            false => Ok(()),
        }
    }
}

//! The submission side of one in-order stream.

use super::{Clock, Frontier, LaneId, Point, PointRef};
use std::sync::Arc;

/// Commands until a lane looks again whether what it knows of so many lanes has completed. To look costs each
/// of them; what has completed costs each wait and each who waits for this lane its part, so that thousands
/// are not left to lie for long.
fn look_after_again(lanes: u64) -> u64 {
    (16 * lanes).max(256).min((lanes / 8).max(1024))
}

/// What a lane was given so far and what it was made to wait for. Owned behind its queue's lock.
///
/// The caller's side of the bargain: commands reach the stream in the order of their epochs, and
/// [`Lane::wait_for`] is called only when the stream really waits before any later command.
#[derive(Debug)]
pub struct Lane {
    clock: Arc<Clock>,
    epoch: u64,
    /// Foreign points that everything later on this lane comes after.
    waited: Frontier,
    /// While `fresh`, what the current point came after; else a table that may be used again.
    settled: Frontier,
    /// Whether something was waited for since the current point, hence is not implied by it.
    fresh: bool,
    /// The epoch from which on a command has to look after the roster: see [`Lane::look_after`].
    due: u64,
}

impl Default for Lane {
    fn default() -> Self {
        Self::new()
    }
}

impl Lane {
    pub fn new() -> Self {
        Self::with(Clock::new())
    }

    /// The lane of a fresh clock.
    pub fn with(clock: Arc<Clock>) -> Self {
        Self {
            clock,
            epoch: 0,
            waited: Frontier::new(),
            settled: Frontier::new(),
            fresh: false,
            due: u64::MAX,
        }
    }

    pub fn id(&self) -> LaneId {
        self.clock.id()
    }

    pub fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The point of the next command.
    pub fn advance(&mut self) -> Point {
        self.step();
        self.current()
    }

    /// One command more, whose point nobody wants.
    #[inline]
    pub fn step(&mut self) {
        self.epoch += 1;
        // What was waited for comes before the current point, too.
        self.fresh = false;
        if self.epoch >= self.due {
            self.look_after();
        }
    }

    /// So many commands, whose points nobody wants.
    #[cfg(all(test, not(loom)))]
    pub(super) fn leap(&mut self, commands: u64) {
        self.epoch += commands - 1;
        self.step();
    }

    /// Goes over to another roster if the lane is so far that those who wait for it want another, and
    /// forgets what is complete where that is most of what is kept. It keeps clocks alive and makes
    /// every wait longer; but to look for it each time would cost more than the wait.
    #[cold]
    fn look_after(&mut self) {
        let (sparse, nobody) = (self.waited.is_sparse(), Frontier::new());
        let end = |waited: &Frontier| waited.end_of(&self.clock).unwrap_or(u64::MAX);
        if sparse || self.epoch >= end(&self.waited) {
            let (mut left, mut known) = (self.waited.clone(), &self.waited);
            if sparse {
                left.prune();
                known = &nobody;
            }
            self.waited = left.seated(self.own(), [known, &nobody], false);
        }
        self.waited.reseat();
        if !self.waited.is_beside(&self.settled) {
            // No table to use again, and one that keeps clocks alive.
            self.settled = nobody;
        }
        let soon = match self.waited.seats() {
            0 => u64::MAX,
            seats => self.epoch + look_after_again(seats as u64),
        };
        self.due = soon.min(end(&self.waited));
    }

    /// The point of the last command; complete when there was none.
    pub fn current(&self) -> Point {
        Point::new(&self.clock, self.epoch)
    }

    /// Records that all later commands come after `frontier`.
    pub fn wait_for(&mut self, frontier: &Frontier) {
        let joined = match self.fresh {
            true => self.waited.join_here(frontier),
            false => self.waited.join_aside(frontier, &mut self.settled),
        };
        match joined {
            true => self.fresh = true,
            false => self.wait_for_others(frontier),
        }
    }

    /// As [`Lane::wait_for`], where what is waited for is no column beside what was.
    #[cold]
    fn wait_for_others(&mut self, frontier: &Frontier) {
        if frontier.is_empty() || self.waited.seats() > 0 && self.ordered(frontier) {
            return;
        }
        if !self.fresh {
            self.waited.move_aside(&mut self.settled);
            self.fresh = true;
        }
        if self.waited.absorb_here(frontier) {
            return;
        }
        // There may be another roster from here on.
        self.due = 0;
        if self.waited.join_like(frontier) {
            return;
        }
        let own = self.id();
        let mut all = self.waited.clone();
        // What is complete is forgotten whether or not anything is new.
        all.prune();
        all.join(&self.waited.missing(frontier, |point| {
            point.lane() != own && !point.is_complete()
        }));
        // Who keeps waiting for one lane does so faster with a table, and its events are handed out.
        let points = [self.waited.single(), all.single()];
        let again = matches!(points, [Some(was), Some(is)] if was.lane() == is.lane());
        self.waited = all.seated(self.own(), [frontier, &self.waited], again);
    }

    /// The first invariant that does not hold: what it waits for is other lanes', one point each, and is no
    /// less than what its last point came after.
    #[cfg(any(test, feature = "oracle"))]
    pub fn audit(&self) -> Result<(), String> {
        let lanes: Vec<LaneId> = self.waited.points().map(|point| point.lane()).collect();
        if !lanes.is_sorted_by(|a, b| a < b) {
            return Err(format!("lanes out of order in {:?}", self.waited));
        }
        if lanes.contains(&self.id()) {
            return Err("a lane waits for itself".into());
        }
        if self.fresh && !self.waited.covers(&self.settled) {
            return Err("a lane has forgotten what it waited for".into());
        }
        let (all, tip) = (self.frontier(), self.tip());
        match all.covers(&tip) && all.covers(&self.waited) {
            true => Ok(()),
            false => Err("a lane's frontier lacks what it waited for".into()),
        }
    }

    fn own(&self) -> PointRef<'_> {
        PointRef {
            clock: &self.clock,
            epoch: self.epoch,
        }
    }

    /// Everything known to come before the next command: the current point and all that was waited
    /// for. An event carries this.
    #[inline]
    pub fn frontier(&self) -> Frontier {
        self.waited.and_own(&self.clock, self.epoch)
    }

    /// Has an event tell of the last command: `done`, the point that proves it, and `order`, as of
    /// [`Lane::frontier`]. One made for this lane before is told anew at less cost than another is made.
    #[inline]
    pub fn tell(&self, done: &mut Frontier, order: &mut Frontier) {
        done.become_point(self.own());
        order.become_and_own(&self.waited, &self.clock, self.epoch);
    }

    /// The least frontier whose completion proves [`Lane::frontier`]: the current point and what was
    /// waited for since, for earlier waits are implied by it. A death is this, joined with the wait
    /// list's frontiers: a free may rest on a wait that no command of this lane follows yet.
    pub fn tip(&self) -> Frontier {
        let mut tip = self.recent();
        if self.epoch > 0 {
            tip.join_point(&self.current());
        }
        tip
    }

    /// The epoch of [`Lane::tip`], while that is a point of this lane alone.
    pub fn tip_epoch(&self) -> Option<u64> {
        self.recent().is_empty().then_some(self.epoch)
    }

    /// The epoch up to which a death on `lane` is ordered before this lane's next command.
    pub fn horizon(&self, lane: LaneId) -> Option<u64> {
        if lane == self.id() {
            Some(self.epoch)
        } else {
            self.waited.epoch_of(lane)
        }
    }

    /// The foreign points this lane comes after and that were not complete when last looked at.
    pub fn waited(&self) -> &Frontier {
        &self.waited
    }

    #[inline]
    pub fn orders_point<'a>(&self, point: impl Into<PointRef<'a>>) -> bool {
        let point = point.into();
        if Arc::ptr_eq(point.clock, &self.clock) {
            return point.epoch <= self.epoch;
        }
        self.waited.covers_point(point) || point.is_complete()
    }

    /// Whether the next command on this lane comes after all of `death`.
    #[inline]
    pub fn ordered(&self, death: &Frontier) -> bool {
        death.all(|point| self.orders_point(point))
    }

    /// The part of `waited` that is newer than the current point, hence not implied by it.
    fn recent(&self) -> Frontier {
        if !self.fresh {
            return Frontier::new();
        }
        self.settled
            .missing(&self.waited, |point| !point.is_complete())
    }
}

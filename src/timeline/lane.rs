//! The submission side of one in-order stream.

use super::{Clock, Frontier, LaneId, Point};
use std::sync::Arc;

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
    /// The part of `waited` that is newer than the current point, hence not implied by it.
    recent: Frontier,
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
            recent: Frontier::new(),
        }
    }

    pub fn id(&self) -> LaneId {
        self.clock.id()
    }

    pub fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The point of the next command.
    pub fn advance(&mut self) -> Point {
        self.step();
        self.current()
    }

    /// One command more, whose point nobody wants.
    pub fn step(&mut self) {
        self.epoch += 1;
        self.recent = Frontier::new();
    }

    /// The point of the last command; complete when there was none.
    pub fn current(&self) -> Point {
        Point::new(&self.clock, self.epoch)
    }

    /// Records that all later commands come after `frontier`.
    pub fn wait_for(&mut self, frontier: &Frontier) {
        if frontier.is_empty() {
            return;
        }
        let own = self.id();
        let news = self.waited.missing(frontier, |point| {
            point.lane() != own && !point.is_complete()
        });
        // What is complete is forgotten whether or not anything is new.
        self.waited.prune();
        self.recent.prune();
        self.recent.join(&news);
        self.waited.join(&news);
    }

    /// Everything known to come before the next command: the current point and all that was waited
    /// for. An event carries this.
    pub fn frontier(&self) -> Frontier {
        self.with_current(&self.waited)
    }

    /// The least frontier whose completion proves [`Lane::frontier`]: the current point and what was
    /// waited for since, for earlier waits are implied by it. A death is this, joined with the wait
    /// list's frontiers: a free may rest on a wait that no command of this lane follows yet.
    pub fn tip(&self) -> Frontier {
        self.with_current(&self.recent)
    }

    /// The epoch of [`Lane::tip`], while that is a point of this lane alone.
    pub fn tip_epoch(&self) -> Option<u64> {
        self.recent.is_empty().then_some(self.epoch)
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

    pub fn orders_point(&self, point: &Point) -> bool {
        if Arc::ptr_eq(&point.clock, &self.clock) {
            return point.epoch <= self.epoch;
        }
        self.waited.covers_point(point) || point.is_complete()
    }

    /// Whether the next command on this lane comes after all of `death`.
    pub fn ordered(&self, death: &Frontier) -> bool {
        death.points().all(|point| self.orders_point(point))
    }

    fn with_current(&self, foreign: &Frontier) -> Frontier {
        if self.epoch == 0 {
            return foreign.clone();
        }
        let mut out = Frontier::from(self.current());
        out.join(foreign);
        out
    }
}

//! The submission side of one in-order stream.

use super::{Clock, Frontier, LaneId, Point};
use std::sync::Arc;

/// Commands until a lane looks for completed points among so many. A look costs time for each point, and
/// each completed point lengthens every wait.
fn prune_interval(points: usize) -> u64 {
    let points = points as u64;
    (16 * points).clamp(256, (points / 8).max(1024))
}

/// The commands submitted to a stream and the points that it waits for. Its queue's lock guards it.
///
/// The caller submits commands to the stream in the order of their epochs. It calls [`Lane::wait_for`]
/// only when the stream really waits before any later command.
#[derive(Debug)]
pub struct Lane {
    clock: Arc<Clock>,
    epoch: u64,
    /// Points of other lanes that every later command comes after, and a point of this lane. The
    /// epoch of the latter is not kept current.
    known: Frontier,
    /// The place of this lane's point.
    own: usize,
    /// Whether something was waited for since the current point, hence is not implied by it.
    waited: bool,
    /// The command that drops completed points from `known`.
    prune_at: u64,
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
            known: Frontier::from(Point::new(&clock, 0)),
            clock,
            epoch: 0,
            own: 0,
            waited: false,
            prune_at: u64::MAX,
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

    /// Counts one more command.
    #[inline]
    pub fn step(&mut self) {
        self.epoch += 1;
        // The current point implies all earlier waits.
        self.waited = false;
        if self.epoch >= self.prune_at {
            self.prune();
        }
    }

    /// Counts so many more commands.
    #[cfg(all(test, not(loom)))]
    pub(super) fn leap(&mut self, commands: u64) {
        self.epoch += commands - 1;
        self.step();
    }

    /// Drops completed points. They keep clocks alive and make every wait longer.
    #[cold]
    fn prune(&mut self) {
        let own = &self.clock;
        self.known
            .retain(|point| Arc::ptr_eq(&point.clock, own) || !point.is_complete());
        self.placed();
    }

    /// Finds this lane's point again, and the time of the next prune.
    fn placed(&mut self) {
        let own = self.known.find(&self.clock);
        debug_assert!(own.is_some(), "a lane does not know itself");
        self.own = own.unwrap_or_default();
        self.prune_at = match self.known.len() {
            1 => u64::MAX,
            points => self.epoch + prune_interval(points),
        };
    }

    /// The point of the last command; complete when there was none.
    pub fn current(&self) -> Point {
        Point::new(&self.clock, self.epoch)
    }

    /// Records that all later commands come after `frontier`.
    #[inline]
    pub fn wait_for(&mut self, frontier: &Frontier) {
        debug_assert!(
            frontier.epoch_of(self.id()).unwrap_or(0) <= self.epoch,
            "a lane waits for a later command of its own"
        );
        self.known.set_epoch(self.own, self.epoch);
        match self.known.raise(frontier, Point::is_complete) {
            Some(rose) => self.waited |= rose,
            None => self.wait_for_others(frontier),
        }
    }

    /// Waits for points of lanes that are not known yet.
    #[cold]
    fn wait_for_others(&mut self, frontier: &Frontier) {
        self.waited = true;
        let mut pending = frontier.clone();
        pending.prune();
        self.prune();
        self.known.merge(&pending);
        self.placed();
    }

    /// Reports the first broken invariant: it knows one point of each lane, this one included.
    #[cfg(any(test, feature = "oracle"))]
    pub fn audit(&self) -> Result<(), String> {
        if !self.known.is_ordered() {
            return Err(format!("lanes out of order in {:?}", self.known));
        }
        if self.known.find(&self.clock) != Some(self.own) {
            return Err("a lane does not know itself".into());
        }
        let (all, tip) = (self.frontier(), self.tip());
        match all.covers(&tip) && self.waited().all(|point| all.covers_point(point)) {
            true => Ok(()),
            false => Err("a lane's frontier lacks what it waited for".into()),
        }
    }

    /// Everything known to come before the next command: the current point and all waits. An event
    /// carries it.
    #[inline]
    pub fn frontier(&self) -> Frontier {
        let mut order = Frontier::new();
        self.write_order(&mut order);
        order
    }

    /// Writes the last command's point to `done` and [`Lane::frontier`] to `order`. It costs less where
    /// they hold an earlier command of this lane.
    #[inline]
    pub fn record(&self, done: &mut Frontier, order: &mut Frontier) {
        done.become_point(&self.clock, self.epoch);
        self.write_order(order);
    }

    #[inline]
    fn write_order(&self, order: &mut Frontier) {
        if self.known.len() == 1 {
            order.become_point(&self.clock, self.epoch);
        } else {
            order.clone_from(&self.known);
            order.set_epoch(self.own, self.epoch);
            if self.epoch == 0 {
                order.retain(|point| point.epoch > 0);
            }
        }
    }

    /// A frontier whose completion proves [`Lane::frontier`]. It is the current point alone unless the
    /// lane waited since, as the point implies earlier waits. A death is this, joined with the wait list's
    /// frontiers.
    pub fn tip(&self) -> Frontier {
        let mut tip = Frontier::new();
        if self.waited {
            tip = self.frontier();
            tip.prune();
        }
        if self.epoch > 0 {
            tip.join_point(&self.current());
        }
        tip
    }

    /// The epoch of [`Lane::tip`], while that is a point of this lane alone.
    pub fn tip_epoch(&self) -> Option<u64> {
        let pending = self.waited && self.waited().any(|point| !point.is_complete());
        (!pending).then_some(self.epoch)
    }

    /// The epoch up to which a death on `lane` is ordered before this lane's next command.
    pub fn horizon(&self, lane: LaneId) -> Option<u64> {
        if lane == self.id() {
            Some(self.epoch)
        } else {
            self.known.epoch_of(lane)
        }
    }

    /// The points of other lanes this lane comes after and that were not complete when last looked at.
    pub fn waited(&self) -> impl Iterator<Item = &Point> {
        let other = |point: &&Point| !Arc::ptr_eq(&point.clock, &self.clock);
        self.known.points().filter(other)
    }

    #[inline]
    pub fn orders_point(&self, point: &Point) -> bool {
        if Arc::ptr_eq(&point.clock, &self.clock) {
            return point.epoch <= self.epoch;
        }
        self.known.covers_point(point) || point.is_complete()
    }

    /// Whether the next command on this lane comes after all of `death`.
    #[inline]
    pub fn ordered(&self, death: &Frontier) -> bool {
        death.points().all(|point| self.orders_point(point))
    }
}

//! Frontiers: sets of points, at most one a lane. They are vector clocks that keep only the lanes they
//! have something to say about (Fidge 1988, Mattern 1989).
//!
//! A frontier is a vector of points in the order of their lanes. A join is a merge and a comparison is
//! a walk. Nearly all frontiers have no point or one, and that one lies in place. Vectors of lanes that
//! keep waiting for each other name the same lanes, so that a join or a copy only writes epochs.

use super::{Clock, Failure, LaneId, Point};
use smallvec::SmallVec;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::slice;
use std::sync::Arc;

/// Everything up to each of its points.
#[derive(Default, PartialEq, Eq)]
pub struct Frontier(SmallVec<[Point; 1]>);

/// Up to so many points a search compares clocks; beyond, it halves by lanes.
const MAX_SCANNED_POINTS: usize = 16;

impl Frontier {
    pub const fn new() -> Self {
        Self(SmallVec::new_const())
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The points of the frontier, ascending by lane.
    #[inline]
    pub fn points(&self) -> slice::Iter<'_, Point> {
        self.0.iter()
    }

    /// The epoch up to which it reaches on `lane`.
    pub fn epoch_of(&self, lane: LaneId) -> Option<u64> {
        let at = self.place(lane).ok()?;
        Some(self.0[at].epoch)
    }

    /// The point, when there is exactly one.
    #[inline]
    pub fn single(&self) -> Option<&Point> {
        match &self.0[..] {
            [point] => Some(point),
            _ => None,
        }
    }

    /// Whether it reaches `point`'s lane at least that far. Completion is not asked.
    #[inline]
    pub fn covers_point(&self, point: &Point) -> bool {
        let own = self.find(&point.clock);
        own.is_some_and(|own| self.0[own].epoch >= point.epoch)
    }

    /// Whether every point of `other` is covered or complete.
    pub fn covers(&self, other: &Frontier) -> bool {
        let mut points = other.0.iter();
        points.all(|point| self.covers_point(point) || point.is_complete())
    }

    pub fn is_complete(&self) -> bool {
        self.0.iter().all(Point::is_complete)
    }

    /// Whether all of it was observed complete: see [`Point::is_done`].
    pub fn is_done(&self) -> bool {
        self.0.iter().all(Point::is_done)
    }

    /// Why one of its commands failed, if any is known to have.
    #[inline]
    pub fn failure(&self) -> Option<Arc<Failure>> {
        if !Failure::any() {
            return None;
        }
        let mut points = self.0.iter();
        points.find_map(|point| point.clock.failure(point.epoch))
    }

    /// Raises every lane to its point here, where the program itself awaited them.
    pub fn mark_awaited(&self) {
        for point in &self.0 {
            point.clock.raise_awaited(point.epoch);
        }
    }

    /// Raises every lane to its point here. For an observer of something that came after all of
    /// them: an event seen complete proves its whole frontier, not only its own lane.
    pub fn mark_complete(&self) {
        for point in &self.0 {
            point.clock.raise(point.epoch);
        }
    }

    /// Becomes that point alone; nothing, if it stands before the first command.
    #[inline]
    pub fn become_point(&mut self, clock: &Arc<Clock>, epoch: u64) {
        match &mut self.0[..] {
            [own] if epoch > 0 && Arc::ptr_eq(&own.clock, clock) => own.epoch = epoch,
            _ => self.replace(clock, epoch),
        }
    }

    #[inline(never)]
    fn replace(&mut self, clock: &Arc<Clock>, epoch: u64) {
        self.0.clear();
        if epoch > 0 {
            self.0.push(Point::new(clock, epoch));
        }
    }

    #[inline]
    pub fn join_point(&mut self, point: &Point) {
        match &mut self.0[..] {
            [own] if Arc::ptr_eq(&own.clock, &point.clock) => {
                own.epoch = own.epoch.max(point.epoch);
            }
            _ => self.join_among(point),
        }
    }

    #[inline(never)]
    fn join_among(&mut self, point: &Point) {
        match self.place(point.lane()) {
            Ok(at) => self.0[at].epoch = self.0[at].epoch.max(point.epoch),
            Err(at) => self.0.insert(at, point.clone()),
        }
        debug_assert!(self.is_ordered(), "two points of one lane");
    }

    pub fn join(&mut self, other: &Frontier) {
        if self.raise(other, |_| false).is_none() {
            self.merge(other);
        }
    }

    /// Raises its points to those of `other` on the same lanes, and returns whether an epoch rose. None if
    /// `other` has a point on another lane that is not to `skip`; then some epochs may have risen.
    #[inline]
    pub(super) fn raise(
        &mut self,
        other: &Frontier,
        skip: impl Fn(&Point) -> bool,
    ) -> Option<bool> {
        let own = &mut self.0[..];
        let (mut at, mut rose) = (0, false);
        for point in &other.0 {
            loop {
                match own.get_mut(at) {
                    Some(own) if Arc::ptr_eq(&own.clock, &point.clock) => {
                        rose |= point.epoch > own.epoch;
                        own.epoch = own.epoch.max(point.epoch);
                        at += 1;
                        break;
                    }
                    Some(own) if own.lane() < point.lane() => at += 1,
                    _ if skip(point) => break,
                    _ => return None,
                }
            }
        }
        Some(rose)
    }

    /// As [`Frontier::join`], with lanes that it has no point on.
    #[inline(never)]
    pub(super) fn merge(&mut self, other: &Frontier) {
        let mut own = std::mem::take(&mut self.0).into_iter().peekable();
        let mut other = &other.0[..];
        self.0.reserve(own.len() + other.len());
        while let Some((first, rest)) = other.split_first() {
            let order = own
                .peek()
                .map_or(Ordering::Greater, |own| own.lane().cmp(&first.lane()));
            match order {
                Ordering::Less => self.0.extend(own.next()),
                Ordering::Equal => {
                    let epoch = own.next().map_or(0, |own| own.epoch);
                    self.0
                        .push(Point::new(&first.clock, epoch.max(first.epoch)));
                    other = rest;
                }
                Ordering::Greater => {
                    self.0.push(first.clone());
                    other = rest;
                }
            }
        }
        self.0.extend(own);
        debug_assert!(self.is_ordered(), "two points of one lane");
    }

    /// The points of `other` that this frontier does not reach and that `wanted` wants.
    pub fn missing(&self, other: &Frontier, wanted: impl Fn(&Point) -> bool) -> Frontier {
        let missing = |point: &&Point| !self.covers_point(point) && wanted(point);
        Self(other.0.iter().filter(missing).cloned().collect())
    }

    /// The points that may wait for the program: see [`Point::is_held`].
    pub fn held(&self) -> Frontier {
        self.points().filter(|point| point.is_held()).collect()
    }

    /// Drops the points that were observed complete.
    pub fn prune(&mut self) {
        self.retain(|point| !point.is_complete());
    }

    /// Keeps the points that `keep` wants.
    pub fn retain(&mut self, mut keep: impl FnMut(&Point) -> bool) {
        self.0.retain(|point| keep(point));
    }

    /// Where a lane stands, or where it would.
    fn place(&self, lane: LaneId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&lane, Point::lane)
    }

    /// Where a clock's lane stands.
    #[inline]
    pub(super) fn find(&self, clock: &Arc<Clock>) -> Option<usize> {
        match self.0.len() <= MAX_SCANNED_POINTS {
            true => self.0.iter().position(|own| Arc::ptr_eq(&own.clock, clock)),
            false => self.place(clock.id()).ok(),
        }
    }

    /// Whether its points ascend strictly by lane.
    pub(super) fn is_ordered(&self) -> bool {
        self.0.is_sorted_by(|a, b| a.lane() < b.lane())
    }

    pub(super) fn set_epoch(&mut self, at: usize, epoch: u64) {
        debug_assert!(self.0[at].epoch <= epoch, "a lane goes back");
        self.0[at].epoch = epoch;
    }
}

impl Clone for Frontier {
    #[inline]
    fn clone(&self) -> Self {
        match &self.0[..] {
            [point] => Self::from(point.clone()),
            points => Self(points.iter().cloned().collect()),
        }
    }

    /// Writes only epochs where both have the same lanes.
    #[inline]
    fn clone_from(&mut self, source: &Self) {
        if self.0.len() != source.0.len() {
            self.0.clone_from(&source.0);
            return;
        }
        for (own, point) in self.0.iter_mut().zip(&source.0) {
            own.clone_from(point);
        }
    }
}

impl fmt::Debug for Frontier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.points()).finish()
    }
}

impl From<Point> for Frontier {
    fn from(point: Point) -> Self {
        Self(SmallVec::from_buf([point]))
    }
}

impl<P: Borrow<Point>> FromIterator<P> for Frontier {
    fn from_iter<I: IntoIterator<Item = P>>(points: I) -> Self {
        let mut out = Self::new();
        for point in points {
            out.join_point(point.borrow());
        }
        out
    }
}

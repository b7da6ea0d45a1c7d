//! Sets of points, at most one a lane.
//!
//! Empty and single-point frontiers, which are nearly all of them, live in place. Larger ones share
//! a table and copy it when written, so that handing one to a new event costs a count; to one that was
//! told before, a copy. Tables over the same roster, as those of queues that keep waiting for each other
//! are, join as columns do.

use super::clock::PointRef;
use super::roster::{Roster, newest};
use super::table::{Many, Part};
use super::{Clock, Failure, LaneId, Point};
use std::fmt;
use std::sync::Arc;

/// Everything up to each of its points.
#[derive(Clone, Default)]
pub struct Frontier(Repr);

#[derive(Clone, Default)]
enum Repr {
    #[default]
    Empty,
    One(Point),
    /// Mostly two points or more.
    Many(Many),
}

impl Frontier {
    pub const fn new() -> Self {
        Self(Repr::Empty)
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        match &self.0 {
            Repr::Empty => true,
            Repr::One(_) => false,
            Repr::Many(_) => self.names_nothing(),
        }
    }

    #[inline(never)]
    fn names_nothing(&self) -> bool {
        self.points().next().is_none()
    }

    /// Its points, ascending by lane.
    #[inline]
    pub fn points(&self) -> Points<'_> {
        match &self.0 {
            Repr::Empty => Points::default(),
            Repr::One(point) => Points {
                one: Some(point.by_ref()),
                many: None,
            },
            Repr::Many(many) => Points {
                one: None,
                many: Some((many, 0)),
            },
        }
    }

    pub fn len(&self) -> usize {
        self.points().count()
    }

    /// The epoch up to which it reaches on `lane`.
    pub fn epoch_of(&self, lane: LaneId) -> Option<u64> {
        match &self.0 {
            Repr::Empty => None,
            Repr::One(point) => (point.lane() == lane).then_some(point.epoch),
            Repr::Many(many) => {
                let at = many.roster().place(lane).ok()?;
                many.point(at).map(|point| point.epoch)
            }
        }
    }

    /// The point, when there is exactly one.
    #[inline]
    pub fn single(&self) -> Option<PointRef<'_>> {
        match &self.0 {
            Repr::Empty => None,
            Repr::One(point) => Some(point.by_ref()),
            Repr::Many(_) => {
                let mut points = self.points();
                points.next().filter(|_| points.next().is_none())
            }
        }
    }

    /// Whether all of its points are as `test` says.
    #[inline]
    pub(crate) fn all(&self, test: impl Fn(PointRef<'_>) -> bool) -> bool {
        match &self.0 {
            Repr::One(point) => test(point.by_ref()),
            _ => self.all_of_many(test),
        }
    }

    #[inline(never)]
    fn all_of_many(&self, test: impl Fn(PointRef<'_>) -> bool) -> bool {
        self.points().all(test)
    }

    /// Whether it reaches `point`'s lane at least that far. Completion is not asked.
    #[inline]
    pub fn covers_point<'a>(&self, point: impl Into<PointRef<'a>>) -> bool {
        let point = point.into();
        match &self.0 {
            Repr::Empty => false,
            Repr::One(own) => own.lane() == point.lane() && own.epoch >= point.epoch,
            Repr::Many(many) => many.covers(point),
        }
    }

    /// Whether every point of `other` is covered or complete.
    pub fn covers(&self, other: &Frontier) -> bool {
        other
            .points()
            .all(|point| self.covers_point(point) || point.is_complete())
    }

    pub fn is_complete(&self) -> bool {
        self.points().all(|point| point.is_complete())
    }

    /// Whether all of it was observed complete: see [`Point::is_done`].
    pub fn is_done(&self) -> bool {
        self.points().all(|point| point.is_done())
    }

    /// Why one of its commands failed, if any is known to have.
    #[inline]
    pub fn failure(&self) -> Option<Arc<Failure>> {
        if !Failure::any() {
            return None;
        }
        self.points()
            .find_map(|point| point.clock.failure(point.epoch))
    }

    /// As [`Frontier::mark_complete`], where the program itself awaited it.
    pub fn mark_awaited(&self) {
        for point in self.points() {
            point.clock.raise_awaited(point.epoch);
        }
    }

    /// Raises every lane to its point here. For an observer of something that came after all of
    /// them: an event seen complete proves its whole frontier, not only its own lane.
    pub fn mark_complete(&self) {
        for point in self.points() {
            point.clock.raise(point.epoch);
        }
    }

    /// Becomes that point alone; nothing, if it stands before the first command.
    #[inline]
    pub fn become_point<'a>(&mut self, point: impl Into<PointRef<'a>>) {
        let point = point.into();
        match &mut self.0 {
            _ if point.epoch == 0 => self.0 = Repr::Empty,
            Repr::One(own) if Arc::ptr_eq(&own.clock, point.clock) => own.epoch = point.epoch,
            _ => self.0 = Repr::One(point.to_point()),
        }
    }

    #[inline]
    pub fn join_point<'a>(&mut self, point: impl Into<PointRef<'a>>) {
        let point = point.into();
        match &mut self.0 {
            Repr::One(own) if Arc::ptr_eq(&own.clock, point.clock) => {
                own.epoch = own.epoch.max(point.epoch);
            }
            _ => self.join_other(point),
        }
    }

    /// As [`Frontier::join_point`], where it is not all of one lane.
    #[inline(never)]
    fn join_other(&mut self, point: PointRef<'_>) {
        match &mut self.0 {
            Repr::Empty => self.0 = Repr::One(point.to_point()),
            Repr::One(own) if own.lane() == point.lane() => own.epoch = own.epoch.max(point.epoch),
            Repr::One(own) => {
                let mut both = [own.by_ref(), point];
                both.sort_by_key(PointRef::lane);
                self.0 = Repr::Many(Many::of(&both));
            }
            Repr::Many(many) => {
                if !many.absorb(std::iter::once(point)) {
                    many.insert(point);
                }
            }
        }
    }

    pub fn join(&mut self, other: &Frontier) {
        match (&mut self.0, &other.0) {
            (_, Repr::Empty) => {}
            (Repr::Empty, _) => *self = other.clone(),
            (_, Repr::One(point)) => self.join_point(point),
            (Repr::One(own), Repr::Many(_)) => {
                let mut out = other.clone();
                out.join_point(&*own);
                *self = out;
            }
            (Repr::Many(own), Repr::Many(many)) => {
                if own.is_like(many) {
                    own.join(many);
                } else if !own.absorb(other.points()) {
                    let mut all = many.clone();
                    if !all.absorb(self.points()) {
                        all = Many::of(&newest(self.points().chain(other.points())));
                    }
                    self.0 = Repr::Many(all);
                }
            }
        }
    }

    /// Those points of `other` that this does not reach and that `wanted` wants.
    pub fn missing(&self, other: &Frontier, wanted: impl Fn(PointRef<'_>) -> bool) -> Frontier {
        let mut out = other.clone();
        out.retain(|point| !self.covers_point(point) && wanted(point));
        out
    }

    /// Drops the points that were observed complete.
    pub fn prune(&mut self) {
        self.retain(|point| !point.is_complete());
    }

    /// Keeps the points that `keep` wants.
    pub fn retain(&mut self, mut keep: impl FnMut(PointRef<'_>) -> bool) {
        match &mut self.0 {
            Repr::Empty => {}
            Repr::One(point) => {
                if !keep(point.by_ref()) {
                    self.0 = Repr::Empty;
                }
            }
            Repr::Many(many) => {
                let (mut left, mut dropped) = (0, false);
                for at in 0..many.seats() {
                    let Some(point) = many.point(at) else {
                        continue;
                    };
                    if keep(point) {
                        left += 1;
                    } else {
                        many.clear(at);
                        dropped = true;
                    }
                }
                // Mostly all are kept, and nothing is to be done.
                if dropped {
                    self.settle(left);
                }
            }
        }
    }

    /// The smallest form that suits so many points.
    fn settle(&mut self, points: usize) {
        let Repr::Many(many) = &self.0 else { return };
        if points < 2 {
            let point = self.points().next();
            self.0 = point.map_or(Repr::Empty, |point| Repr::One(point.to_point()));
        } else if !many.roster().is_worth(points) {
            self.0 = Repr::Many(Many::of(&self.points().collect::<Vec<_>>()));
        }
    }
}

/// What a lane does with what it waits for. Where that has a table, its head is the lane's own seat,
/// and hidden.
impl Frontier {
    /// All of it and the lane's own point `epoch`.
    #[inline]
    pub(super) fn and_own(&self, own: &Arc<Clock>, epoch: u64) -> Frontier {
        if let Repr::Many(many) = &self.0 {
            return Self(Repr::Many(many.with_head(epoch)));
        }
        if epoch == 0 {
            return self.clone();
        }
        let mut out = self.clone();
        out.join_point(PointRef { clock: own, epoch });
        out
    }

    /// Becomes what [`Frontier::and_own`] gives of `waited`, in the table that it has, if it can.
    #[inline]
    pub(super) fn become_and_own(&mut self, waited: &Frontier, own: &Arc<Clock>, epoch: u64) {
        match (&mut self.0, &waited.0) {
            (Repr::Many(table), Repr::Many(waited)) => table.become_with_head(waited, epoch),
            _ => *self = waited.and_own(own, epoch),
        }
    }

    /// Takes in `other` and makes `spare` what this was before, if they are over one roster, or `other`
    /// is a point that is told over this one's: in the spare's table if nobody else holds that. The head
    /// stays hidden.
    #[inline]
    pub(super) fn join_aside(&mut self, other: &Frontier, spare: &mut Frontier) -> bool {
        let Repr::Many(own) = &mut self.0 else {
            return false;
        };
        let Some(part) = other.part_for(own) else {
            return false;
        };
        if let Repr::Many(spare) = &mut spare.0
            && own.join_aside(part, spare)
        {
            return true;
        }
        let both = Repr::Many(own.joined(part));
        spare.0 = std::mem::replace(&mut self.0, both);
        true
    }

    /// As [`Frontier::join_aside`], in place where nobody shares the table.
    #[inline]
    pub(super) fn join_here(&mut self, other: &Frontier) -> bool {
        let Repr::Many(own) = &mut self.0 else {
            return false;
        };
        let Some(part) = other.part_for(own) else {
            return false;
        };
        if !own.take_in(part) {
            *own = own.joined(part);
        }
        true
    }

    #[inline]
    fn part_for(&self, own: &Many) -> Option<Part<'_>> {
        match &self.0 {
            Repr::Many(many) => own.part_of(many),
            Repr::One(point) => own.part_at(point.by_ref()),
            Repr::Empty => None,
        }
    }

    /// As [`Frontier::join_here`], if the rosters are alike.
    pub(super) fn join_like(&mut self, other: &Frontier) -> bool {
        match (&mut self.0, &other.0) {
            (Repr::Many(own), Repr::Many(many)) => own.is_like(many) && own.become_joined(many),
            _ => false,
        }
    }

    /// Makes `spare` the same as this, which is left in a table of its own if there is one at hand.
    pub(super) fn move_aside(&mut self, spare: &mut Frontier) {
        if let (Repr::Many(own), Repr::Many(spare)) = (&mut self.0, &mut spare.0)
            && own.move_aside(spare)
        {
            return;
        }
        *spare = self.clone();
    }

    /// Whether both join as columns do.
    pub(super) fn is_beside(&self, other: &Frontier) -> bool {
        match (&self.0, &other.0) {
            (Repr::Many(own), Repr::Many(many)) => own.is_beside(many),
            _ => false,
        }
    }

    /// Takes in the points of `other`, but for that of the head, if its roster names all lanes that
    /// `other` knows of and that have not ended, and they can be told over it. It would do for it to
    /// name those of the points, but then lanes that meet would keep rosters of their own. If not, some
    /// may have been taken in.
    pub(super) fn absorb_here(&mut self, other: &Frontier) -> bool {
        let named = self.names_all(other);
        match (&mut self.0, &other.0) {
            (Repr::Many(own), Repr::Many(many)) if own.roster().names_those_of(many.roster()) => {
                named && own.raise_like(many)
            }
            (Repr::Many(own), _) => named && own.raise_within(other.points()),
            _ => false,
        }
    }

    fn names_all(&self, other: &Frontier) -> bool {
        let Some(roster) = self.roster() else {
            return false;
        };
        let named = |clock: &Arc<Clock>| roster.find(clock).is_some() || clock.has_ended();
        match other.roster() {
            // All who meet choose the later one.
            Some(theirs) if roster.names_those_of(theirs) => roster.is_after(theirs),
            Some(theirs) => theirs.clocks().iter().all(named),
            None => other.points().all(|point| named(point.clock)),
        }
    }

    /// The form in which the lane of `own` keeps it: over a roster of all lanes that `others` know
    /// of and that have not ended, so that lanes which meet come to share one. A single point only if
    /// it is waited for `again`.
    pub(super) fn seated(self, own: PointRef<'_>, others: [&Frontier; 2], again: bool) -> Frontier {
        match self.0 {
            Repr::Many(_) => {}
            Repr::One(_) if again => {}
            _ => return self,
        }
        let known: Vec<&Arc<Roster>> = others.iter().filter_map(|f| f.roster()).collect();
        let needed = || self.points().chain([own]);
        let lasting = known.iter().flat_map(|roster| roster.clocks());
        let lasting = lasting.filter(|clock| !clock.has_ended());
        let lasting = lasting.map(|clock| PointRef { clock, epoch: 0 });
        let mut roster = Roster::naming(lasting.chain(needed()), &known);
        if !roster.is_worth(needed().count()) {
            roster = Roster::naming(needed(), &known);
        }
        let many = Many::seated(self.points(), own.clock, &roster);
        many.map_or_else(|| self.clone(), |many| Self(Repr::Many(many)))
    }

    /// The epoch from which on the lane of `own` should keep it over another roster.
    pub(super) fn end_of(&self, own: &Clock) -> Option<u64> {
        self.roster()?.end_of(own)
    }

    /// Whether the table, if there is one, has much room for lanes of which nothing is to be said.
    pub(super) fn is_sparse(&self) -> bool {
        let running = || self.points().filter(|point| !point.is_complete()).count();
        self.roster()
            .is_some_and(|all| !all.is_worth(running() + 1))
    }

    /// See [`Roster::reseat`].
    pub(super) fn reseat(&self) {
        if let Some(roster) = self.roster() {
            roster.reseat();
        }
    }

    pub(super) fn seats(&self) -> usize {
        self.roster().map_or(0, |roster| roster.len())
    }

    fn roster(&self) -> Option<&Arc<Roster>> {
        match &self.0 {
            Repr::Many(many) => Some(many.roster()),
            _ => None,
        }
    }
}

/// The points of a frontier, ascending by lane.
#[derive(Clone, Default)]
pub struct Points<'a> {
    one: Option<PointRef<'a>>,
    /// The table, and its seat to look at next.
    many: Option<(&'a Many, usize)>,
}

impl<'a> Iterator for Points<'a> {
    type Item = PointRef<'a>;

    #[inline]
    fn next(&mut self) -> Option<PointRef<'a>> {
        let Some((many, at)) = &mut self.many else {
            return self.one.take();
        };
        while *at < many.seats() {
            *at += 1;
            if let Some(point) = many.point(*at - 1) {
                return Some(point);
            }
        }
        None
    }
}

impl fmt::Debug for Frontier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.points()).finish()
    }
}

impl From<Point> for Frontier {
    fn from(point: Point) -> Self {
        Self(Repr::One(point))
    }
}

impl FromIterator<Point> for Frontier {
    fn from_iter<I: IntoIterator<Item = Point>>(points: I) -> Self {
        let mut out = Self::new();
        for point in points {
            out.join_point(&point);
        }
        out
    }
}

impl<'a> FromIterator<PointRef<'a>> for Frontier {
    fn from_iter<I: IntoIterator<Item = PointRef<'a>>>(points: I) -> Self {
        let mut out = Self::new();
        for point in points {
            out.join_point(point);
        }
        out
    }
}

impl PartialEq for Frontier {
    fn eq(&self, other: &Self) -> bool {
        self.points().eq(other.points())
    }
}

impl Eq for Frontier {}

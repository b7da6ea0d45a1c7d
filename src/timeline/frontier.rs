//! Sets of points, at most one a lane.
//!
//! Empty and single-point frontiers, which are nearly all of them, live in place. Larger ones share
//! a table and copy it when written, so that handing one to an event costs a count. Tables over the
//! same roster, as those of queues that keep waiting for each other are, join as columns do.

use super::clock::PointRef;
use super::table::{Many, Roster};
use super::{Clock, LaneId, Point};
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
            Repr::Empty => true,
            Repr::One(point) => test(point.by_ref()),
            Repr::Many(_) => self.points().all(test),
        }
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
                self.0 = Repr::Many(Many::of(both.into_iter()));
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
                        all = Many::of(merged(self.points(), other.points()));
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
            self.0 = Repr::Many(Many::of(self.points()));
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

    /// Makes `spare` both of this and `other`, if their rosters are alike: in its own table if nobody
    /// else holds that. The head stays hidden.
    #[inline]
    pub(super) fn join_to(&self, other: &Frontier, spare: &mut Frontier) -> bool {
        let Some((own, many)) = self.alike(other) else {
            return false;
        };
        if let Repr::Many(spare) = &mut spare.0
            && spare.become_both(own, many)
        {
            return true;
        }
        let mut out = own.joined(many);
        out.hide_head();
        spare.0 = Repr::Many(out);
        true
    }

    /// As [`Frontier::join_to`], in place where nobody shares the table.
    #[inline]
    pub(super) fn join_here(&mut self, other: &Frontier) -> bool {
        let (Repr::Many(own), Repr::Many(many)) = (&mut self.0, &other.0) else {
            return false;
        };
        let alike = own.is_like(many);
        if alike && !own.take_in(many) {
            *own = own.joined(many);
            own.hide_head();
        }
        alike
    }

    /// Both tables, if their rosters are alike.
    #[inline]
    fn alike<'a>(&'a self, other: &'a Frontier) -> Option<(&'a Many, &'a Many)> {
        match (&self.0, &other.0) {
            (Repr::Many(own), Repr::Many(many)) => own.is_like(many).then_some((own, many)),
            _ => None,
        }
    }

    /// Takes in the points of `other`, but for that of `own`, if its roster names all lanes that
    /// `other` knows of and that have not ended. It would do for it to name those of the points, but
    /// then lanes that meet would keep rosters of their own.
    pub(super) fn absorb_here(&mut self, other: &Frontier, own: LaneId) -> bool {
        let named = self.names_all(other);
        if let Repr::Many(many) = &mut self.0
            && named
        {
            many.raise_to(other.points().filter(|point| point.lane() != own));
        }
        named
    }

    /// As [`Frontier::absorb_here`], but makes `spare` that.
    pub(super) fn absorb_to(&self, other: &Frontier, own: LaneId, spare: &mut Frontier) -> bool {
        self.names_all(other) && self.join_to(self, spare) && spare.absorb_here(other, own)
    }

    fn names_all(&self, other: &Frontier) -> bool {
        let Some(roster) = self.roster() else {
            return false;
        };
        let named = |clock: &Arc<Clock>| roster.find(clock).is_some() || clock.has_ended();
        match other.roster() {
            Some(theirs) => theirs.clocks().iter().all(named),
            None => other.points().all(|point| named(point.clock)),
        }
    }

    /// The form in which the lane of `own` keeps it: over a roster of all lanes that `others` know
    /// of and that have not ended, so that lanes which meet come to share one.
    pub(super) fn seated(self, own: &Arc<Clock>, others: [&Frontier; 2]) -> Frontier {
        if !matches!(self.0, Repr::Many(_)) {
            return self;
        }
        let known: Vec<&Arc<Roster>> = others.iter().filter_map(|f| f.roster()).collect();
        let needed = || self.points().map(|point| point.clock).chain([own]);
        let lasting = known.iter().flat_map(|roster| roster.clocks());
        let mut lanes: Vec<_> = lasting.filter(|clock| !clock.has_ended()).collect();
        lanes.extend(needed());
        let mut roster = Roster::naming(lanes, &known);
        let count = needed().count();
        if !roster.is_worth(count) {
            roster = Roster::naming(needed().collect(), &known);
        }
        let many = Many::seated(self.points(), own, &roster);
        many.map_or_else(|| self.clone(), |many| Self(Repr::Many(many)))
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

    pub(super) fn shares_roster(&self, other: &Frontier) -> bool {
        match (self.roster(), other.roster()) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            _ => false,
        }
    }

    fn roster(&self) -> Option<&Arc<Roster>> {
        match &self.0 {
            Repr::Many(many) => Some(many.roster()),
            _ => None,
        }
    }
}

/// Both in one, ascending by lane.
fn merged<'a>(
    one: impl Iterator<Item = PointRef<'a>>,
    other: impl Iterator<Item = PointRef<'a>>,
) -> impl Iterator<Item = PointRef<'a>> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || {
        let (Some(a), Some(b)) = (one.peek().copied(), other.peek().copied()) else {
            return one.next().or_else(|| other.next());
        };
        let first = (a.lane() <= b.lane()).then(|| one.next()).flatten();
        let second = (b.lane() <= a.lane()).then(|| other.next()).flatten();
        let both = first.into_iter().chain(second);
        both.max_by_key(|point| point.epoch)
    })
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

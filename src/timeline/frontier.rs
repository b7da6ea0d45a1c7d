//! Sets of points, at most one a lane.
//!
//! Empty and single-point frontiers, which are nearly all of them, live in place. Larger ones share
//! a sorted vector and copy it when written, so that handing one to an event costs a count.

use super::{LaneId, Point};
use std::cmp::Ordering;
use std::sync::Arc;

/// Everything up to each of its points.
#[derive(Clone, Debug, Default)]
pub struct Frontier(Repr);

#[derive(Clone, Debug, Default)]
enum Repr {
    #[default]
    Empty,
    One(Point),
    /// Two or more points, ascending by lane.
    Many(Arc<Vec<Point>>),
}

impl Frontier {
    pub const fn new() -> Self {
        Self(Repr::Empty)
    }

    pub fn is_empty(&self) -> bool {
        matches!(self.0, Repr::Empty)
    }

    /// Its points, ascending by lane.
    pub fn points(&self) -> std::slice::Iter<'_, Point> {
        self.as_slice().iter()
    }

    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// The epoch up to which it reaches on `lane`.
    pub fn epoch_of(&self, lane: LaneId) -> Option<u64> {
        let points = self.as_slice();
        let at = points.binary_search_by_key(&lane, Point::lane).ok()?;
        Some(points[at].epoch)
    }

    /// The point, when there is exactly one.
    pub fn single(&self) -> Option<&Point> {
        match &self.0 {
            Repr::One(point) => Some(point),
            _ => None,
        }
    }

    /// Whether it reaches `point`'s lane at least that far. Completion is not asked.
    pub fn covers_point(&self, point: &Point) -> bool {
        self.epoch_of(point.lane())
            .is_some_and(|epoch| epoch >= point.epoch)
    }

    /// Whether every point of `other` is covered or complete.
    pub fn covers(&self, other: &Frontier) -> bool {
        other
            .points()
            .all(|point| self.covers_point(point) || point.is_complete())
    }

    pub fn is_complete(&self) -> bool {
        self.points().all(Point::is_complete)
    }

    /// Whether all of it was observed complete: see [`Point::is_done`].
    pub fn is_done(&self) -> bool {
        self.points().all(Point::is_done)
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

    pub fn join_point(&mut self, point: &Point) {
        match &mut self.0 {
            Repr::Empty => self.0 = Repr::One(point.clone()),
            Repr::One(own) if own.lane() == point.lane() => own.epoch = own.epoch.max(point.epoch),
            Repr::One(own) => {
                let mut both = vec![own.clone(), point.clone()];
                both.sort_by_key(Point::lane);
                self.0 = Repr::Many(Arc::new(both));
            }
            Repr::Many(points) => match points.binary_search_by_key(&point.lane(), Point::lane) {
                Ok(at) if points[at].epoch >= point.epoch => {}
                Ok(at) => Arc::make_mut(points)[at].epoch = point.epoch,
                Err(at) => Arc::make_mut(points).insert(at, point.clone()),
            },
        }
    }

    pub fn join(&mut self, other: &Frontier) {
        match (&self.0, &other.0) {
            (_, Repr::Empty) => {}
            (Repr::Empty, _) => *self = other.clone(),
            (_, Repr::One(point)) => self.join_point(point),
            (Repr::One(own), Repr::Many(points)) => {
                *self = match other.covers_point(own) {
                    true => other.clone(),
                    false => Self(Repr::Many(Arc::new(merged(
                        std::slice::from_ref(own),
                        points,
                    )))),
                };
            }
            (Repr::Many(a), Repr::Many(b)) => {
                if !Arc::ptr_eq(a, b) {
                    self.join_many(b);
                }
            }
        }
    }

    /// Joins a sorted list: in place where that needs no other lane and nobody shares this.
    fn join_many(&mut self, other: &[Point]) {
        let Repr::Many(points) = &mut self.0 else {
            return;
        };
        let Some(own) = Arc::get_mut(points) else {
            if !covers_all(points, other) {
                *points = Arc::new(merged(points, other));
            }
            return;
        };
        let mut at = 0;
        for point in other {
            while own.get(at).is_some_and(|own| own.lane() < point.lane()) {
                at += 1;
            }
            match own.get_mut(at) {
                Some(own) if own.lane() == point.lane() => own.epoch = own.epoch.max(point.epoch),
                _ => {
                    *own = merged(own, other);
                    return;
                }
            }
        }
    }

    /// Those points of `other` that this does not reach and that `wanted` wants.
    pub fn missing(&self, other: &Frontier, wanted: impl Fn(&Point) -> bool) -> Frontier {
        let mut own = self.points().peekable();
        let mut found = Vec::new();
        for point in other.points() {
            while own.next_if(|own| own.lane() < point.lane()).is_some() {}
            let reached = own
                .peek()
                .is_some_and(|own| own.lane() == point.lane() && own.epoch >= point.epoch);
            if !reached && wanted(point) {
                if found.is_empty() {
                    found.reserve_exact(other.len());
                }
                found.push(point.clone());
            }
        }
        Self(listed(found))
    }

    /// Drops the points that were observed complete.
    pub fn prune(&mut self) {
        self.retain(|point| !point.is_complete());
    }

    /// Keeps the points that `keep` wants.
    pub fn retain(&mut self, mut keep: impl FnMut(&Point) -> bool) {
        match &mut self.0 {
            Repr::Empty => {}
            Repr::One(point) => {
                if !keep(point) {
                    self.0 = Repr::Empty;
                }
            }
            Repr::Many(points) => {
                // Mostly all are kept, and nothing is to be done.
                let Some(first) = points.iter().position(|point| !keep(point)) else {
                    return;
                };
                let rest = points[first + 1..].iter().filter(|point| keep(point));
                let left = points[..first].iter().chain(rest).cloned().collect();
                self.0 = listed(left);
            }
        }
    }

    fn as_slice(&self) -> &[Point] {
        match &self.0 {
            Repr::Empty => &[],
            Repr::One(point) => std::slice::from_ref(point),
            Repr::Many(points) => points,
        }
    }
}

/// Of a list ascending by lane.
fn listed(mut points: Vec<Point>) -> Repr {
    match points.len() {
        0 | 1 => points.pop().map_or(Repr::Empty, Repr::One),
        _ => Repr::Many(Arc::new(points)),
    }
}

/// Whether the first list reaches all points of the second; both ascend by lane.
fn covers_all(a: &[Point], b: &[Point]) -> bool {
    let mut own = a.iter();
    b.iter().all(|point| {
        let found = own.find(|own| own.lane() >= point.lane());
        found.is_some_and(|own| own.lane() == point.lane() && own.epoch >= point.epoch)
    })
}

fn merged(a: &[Point], b: &[Point]) -> Vec<Point> {
    let mut out = Vec::with_capacity(a.len() + b.len());
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        match a[i].lane().cmp(&b[j].lane()) {
            Ordering::Less => {
                out.push(a[i].clone());
                i += 1;
            }
            Ordering::Greater => {
                out.push(b[j].clone());
                j += 1;
            }
            Ordering::Equal => {
                let newer = if a[i].epoch >= b[j].epoch {
                    &a[i]
                } else {
                    &b[j]
                };
                out.push(newer.clone());
                i += 1;
                j += 1;
            }
        }
    }
    out.extend_from_slice(&a[i..]);
    out.extend_from_slice(&b[j..]);
    out
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

impl PartialEq for Frontier {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Frontier {}

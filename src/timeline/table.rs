//! What frontiers of several lanes are made of: a roster of lanes, which many share, and the epochs.
//!
//! Epochs stand as doubles, which are exact up to 2^53: of all types of 64 bits only of these does
//! every x86-64 take the larger of two pairs in one instruction.

use super::clock::PointRef;
use super::{Clock, LaneId};
use std::sync::Arc;

/// Lanes, ascending.
#[derive(Debug, Clone)]
pub(super) struct Roster {
    ids: Vec<LaneId>,
    clocks: Vec<Arc<Clock>>,
}

impl Roster {
    pub fn new(clocks: Vec<Arc<Clock>>) -> Arc<Self> {
        for (seat, clock) in clocks.iter().enumerate() {
            clock.sit(seat);
        }
        let ids = clocks.iter().map(|clock| clock.id()).collect();
        Arc::new(Self { ids, clocks })
    }

    /// A roster of these lanes: one of the known ones, if one is that.
    pub fn naming(mut lanes: Vec<&Arc<Clock>>, known: &[&Arc<Self>]) -> Arc<Self> {
        lanes.sort_unstable_by_key(|clock| clock.id());
        lanes.dedup_by_key(|clock| clock.id());
        let is_that =
            |roster: &&&Arc<Self>| lanes.iter().map(|c| c.id()).eq(roster.ids.iter().copied());
        match known.iter().find(is_that) {
            Some(roster) => Arc::clone(roster),
            None => Self::new(lanes.into_iter().cloned().collect()),
        }
    }

    pub fn clocks(&self) -> &[Arc<Clock>] {
        &self.clocks
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Where a lane stands, or where it would.
    pub fn place(&self, lane: LaneId) -> Result<usize, usize> {
        self.ids.binary_search(&lane)
    }

    /// Where a clock's lane stands: mostly where the clock was seated last.
    #[inline]
    pub fn find(&self, clock: &Clock) -> Option<usize> {
        let seat = clock.seat();
        if self.ids.get(seat) == Some(&clock.id()) {
            return Some(seat);
        }
        self.place(clock.id()).ok()
    }

    /// Whether it names the same lanes.
    #[inline]
    pub fn is_like(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other) || self.ids == other.ids
    }

    /// Of two that are alike the one that all who meet both choose.
    pub fn chosen<'a>(self: &'a Arc<Self>, other: &'a Arc<Self>) -> &'a Arc<Self> {
        match Arc::as_ptr(self) <= Arc::as_ptr(other) {
            true => self,
            false => other,
        }
    }

    /// Whether it is worth its length for so many points that are wanted of it: it keeps the clocks
    /// of the others alive, and each costs its part of every join.
    pub fn is_worth(&self, points: usize) -> bool {
        self.len() <= 8 * points + SLACK
    }

    fn insert(&mut self, at: usize, clock: &Arc<Clock>) {
        self.ids.insert(at, clock.id());
        self.clocks.insert(at, Arc::clone(clock));
        clock.sit(at);
    }
}

/// Lanes that a roster may name in vain however few there are.
const SLACK: usize = 64;

/// An epoch for each lane of a roster; 0 where it says nothing about the lane.
#[derive(Debug, Clone)]
pub(super) struct Table {
    roster: Arc<Roster>,
    epochs: Vec<f64>,
    /// The lane whose epoch each [`Many`] over the table keeps itself.
    at: usize,
}

/// A table, and the epoch that stands for the one at its [`Table::at`]. So each command of a lane
/// that others are waited for on has a frontier of its own, and all share the table.
#[derive(Clone)]
pub(super) struct Many {
    table: Arc<Table>,
    head: u64,
}

fn stored(epoch: u64) -> f64 {
    debug_assert!(epoch <= 1 << f64::MANTISSA_DIGITS, "epochs are exact");
    epoch.cast_signed() as f64
}

fn epoch(stored: f64) -> u64 {
    (stored as i64).cast_unsigned()
}

/// No numbers here are NaN, and so this is one instruction.
#[inline]
fn larger(one: f64, other: f64) -> f64 {
    if one > other { one } else { other }
}

impl Many {
    /// Of points ascending by lane.
    pub fn of<'a>(points: impl Iterator<Item = PointRef<'a>>) -> Self {
        let (clocks, epochs) = points
            .map(|point| (Arc::clone(point.clock), stored(point.epoch)))
            .unzip();
        Self::over(Roster::new(clocks), epochs, 0)
    }

    fn over(roster: Arc<Roster>, epochs: Vec<f64>, at: usize) -> Self {
        let head = epochs.get(at).map_or(0, |head| epoch(*head));
        let table = Table { roster, epochs, at };
        Self {
            table: Arc::new(table),
            head,
        }
    }

    pub fn roster(&self) -> &Arc<Roster> {
        &self.table.roster
    }

    /// How many lanes its roster names.
    pub fn seats(&self) -> usize {
        self.table.epochs.len()
    }

    #[inline]
    pub fn epoch(&self, at: usize) -> u64 {
        match at == self.table.at {
            true => self.head,
            false => epoch(self.table.epochs[at]),
        }
    }

    /// The point of a seat, if there is one.
    #[inline]
    pub fn point(&self, at: usize) -> Option<PointRef<'_>> {
        let epoch = self.epoch(at);
        let clock = &self.table.roster.clocks[at];
        (epoch > 0).then_some(PointRef { clock, epoch })
    }

    /// Whether it says that much about the point's lane.
    #[inline]
    pub fn covers(&self, point: PointRef<'_>) -> bool {
        let table = &*self.table;
        let Some(at) = table.roster.find(point.clock) else {
            return false;
        };
        match at == table.at {
            true => self.head >= point.epoch.max(1),
            false => table.epochs[at] >= stored(point.epoch.max(1)),
        }
    }

    /// As this, with another epoch at [`Table::at`].
    #[inline]
    pub fn with_head(&self, head: u64) -> Self {
        Self {
            table: Arc::clone(&self.table),
            head,
        }
    }

    /// Leaves out what it says about its head's lane.
    pub fn hide_head(&mut self) {
        self.head = 0;
    }

    pub fn shares_table(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.table, &other.table)
    }

    pub fn set(&mut self, at: usize, epoch: u64) {
        match at == self.table.at {
            true => self.head = epoch,
            false => Arc::make_mut(&mut self.table).epochs[at] = stored(epoch),
        }
    }

    /// A point of a lane that its roster does not name.
    pub fn insert(&mut self, point: PointRef<'_>) {
        let Err(at) = self.table.roster.place(point.lane()) else {
            return;
        };
        let table = Arc::make_mut(&mut self.table);
        Arc::make_mut(&mut table.roster).insert(at, point.clock);
        table.epochs.insert(at, stored(point.epoch));
        table.at += usize::from(at <= table.at);
    }

    /// Takes in all points, if its roster names their lanes.
    pub fn absorb<'a>(&mut self, points: impl Iterator<Item = PointRef<'a>> + Clone) -> bool {
        let roster = &self.table.roster;
        let named = points.clone().all(|p| roster.find(p.clock).is_some());
        if named {
            self.raise_to(points);
        }
        named
    }

    /// Takes in the points of lanes that its roster names.
    pub fn raise_to<'a>(&mut self, points: impl Iterator<Item = PointRef<'a>>) {
        for point in points {
            if let Some(at) = self.table.roster.find(point.clock)
                && self.epoch(at) < point.epoch
            {
                self.set(at, point.epoch);
            }
        }
    }

    /// Takes in all of `other`, whose roster is like its own, if nobody shares its table.
    #[inline]
    pub fn take_in(&mut self, other: &Self) -> bool {
        let Some(own) = Arc::get_mut(&mut self.table) else {
            return false;
        };
        let theirs = &*other.table;
        let before = own.epochs[theirs.at];
        for (own, their) in own.epochs.iter_mut().zip(&theirs.epochs) {
            *own = larger(*own, *their);
        }
        own.epochs[theirs.at] = larger(before, stored(other.head));
        own.choose(&theirs.roster);
        self.head = self.head.max(other.epoch(self.table.at));
        true
    }

    /// Becomes both of two whose rosters are alike, if nobody shares its table, and that fits. The
    /// head is hidden, and stands where that of the first does.
    #[inline]
    pub fn become_both(&mut self, one: &Self, other: &Self) -> bool {
        let Some(own) = Arc::get_mut(&mut self.table) else {
            return false;
        };
        let (ours, theirs) = (&*one.table, &*other.table);
        if own.epochs.len() != ours.epochs.len() {
            return false;
        }
        let both = ours.epochs.iter().zip(&theirs.epochs);
        for (into, (one, other)) in own.epochs.iter_mut().zip(both) {
            *into = larger(*one, *other);
        }
        own.epochs[theirs.at] = larger(ours.epochs[theirs.at], stored(other.head));
        own.at = ours.at;
        if !Arc::ptr_eq(&own.roster, &ours.roster) {
            own.roster = Arc::clone(&ours.roster);
        }
        own.choose(&theirs.roster);
        self.head = 0;
        true
    }

    /// Both in one. Their rosters are alike.
    pub fn joined(&self, other: &Self) -> Self {
        let (ours, theirs) = (&*self.table, &*other.table);
        let both = ours.epochs.iter().zip(&theirs.epochs);
        let mut epochs: Vec<f64> = both.map(|(own, their)| larger(*own, *their)).collect();
        epochs[theirs.at] = larger(ours.epochs[theirs.at], stored(other.head));
        let roster = Arc::clone(ours.roster.chosen(&theirs.roster));
        let mut out = Self::over(roster, epochs, ours.at);
        out.head = self.head.max(other.epoch(ours.at));
        out
    }

    /// Whether it reaches all points of `other`, whose roster is like its own.
    pub fn reaches(&self, other: &Self) -> bool {
        (0..self.seats()).all(|at| self.epoch(at) >= other.epoch(at))
    }

    /// The points given, which are so many, over a roster that names their lanes and that of `own`,
    /// whose epoch is left out.
    pub fn seated<'a>(
        points: impl Iterator<Item = PointRef<'a>>,
        own: &Clock,
        roster: &Arc<Roster>,
    ) -> Option<Self> {
        let at = roster.find(own)?;
        let mut epochs = vec![0.0; roster.len()];
        for point in points {
            epochs[roster.find(point.clock)?] = stored(point.epoch);
        }
        let mut out = Self::over(Arc::clone(roster), epochs, at);
        out.hide_head();
        Some(out)
    }
}

impl Table {
    /// Goes over to another roster that is like its own, if that is the one to choose.
    #[inline]
    fn choose(&mut self, other: &Arc<Roster>) {
        if !Arc::ptr_eq(&self.roster, other) {
            self.roster = Arc::clone(self.roster.chosen(other));
        }
    }
}

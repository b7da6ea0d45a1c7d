//! What frontiers of several lanes are made of: a roster of lanes, which many share, and the epochs.
//!
//! Epochs stand as doubles, which are exact up to 2^53: of all types of 64 bits only of these does
//! every x86-64 take the larger of two pairs in one instruction.

use super::clock::{NOWHERE, PointRef};
use super::columns::{self, larger};
use super::{Clock, LaneId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use triomphe::Arc as Shared;

/// Lanes, ascending.
#[derive(Debug, Clone)]
pub(super) struct Roster {
    /// Of all that were ever made its own, or [`NAMELESS`]: a clock's seat is this and its place.
    key: u64,
    ids: Vec<LaneId>,
    clocks: Vec<Arc<Clock>>,
}

/// The places of a roster are below this, and keys multiples of it.
const PLACES: u64 = 1 << 24;

/// The key of a roster that no clock sits in: that of no clock's seat.
const NAMELESS: u64 = 0;

impl Roster {
    /// Of lanes in a row. No clock sits in it: it may not be met again.
    fn passing(clocks: Vec<Arc<Clock>>) -> Self {
        let ids = clocks.iter().map(|clock| clock.id()).collect();
        Self {
            key: NAMELESS,
            ids,
            clocks,
        }
    }

    /// One that lanes keep.
    fn lasting(clocks: Vec<Arc<Clock>>) -> Self {
        // Identity only, so no ordering is needed.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut roster = Self::passing(clocks);
        if number < NOWHERE / PLACES && (roster.len() as u64) < PLACES {
            roster.key = number * PLACES;
            let seats = (roster.key..).zip(&roster.clocks);
            seats.for_each(|(seat, clock)| clock.sit(seat));
        }
        roster
    }

    /// A roster of these lanes: one of the known ones, if one is that.
    pub fn naming(mut lanes: Vec<&Arc<Clock>>, known: &[&Arc<Self>]) -> Arc<Self> {
        lanes.sort_unstable_by_key(|clock| clock.id());
        lanes.dedup_by_key(|clock| clock.id());
        let ids = || lanes.iter().map(|clock| clock.id());
        let is_that =
            |roster: &&&Arc<Self>| roster.key != NAMELESS && ids().eq(roster.ids.iter().copied());
        match known.iter().find(is_that) {
            Some(roster) => Arc::clone(roster),
            None => Arc::new(Self::lasting(lanes.into_iter().cloned().collect())),
        }
    }

    /// Has all its clocks sit in it. Another roster of the same lanes may have been made later, and met
    /// nobody since: then each look-up would be a search.
    pub fn reseat(&self) {
        if self.key != NAMELESS {
            let seats = (self.key..).zip(&self.clocks);
            let elsewhere = seats.filter(|(seat, clock)| clock.seat() != *seat);
            elsewhere.for_each(|(seat, clock)| clock.sit(seat));
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
        seat_in(self.key, clock).or_else(|| self.place(clock.id()).ok())
    }

    /// Whether it names the same lanes.
    #[inline]
    pub fn is_like(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other) || self.ids == other.ids
    }

    /// Whether it is worth its length for so many points that are wanted of it: it keeps the clocks
    /// of the others alive, and each costs its part of every join.
    pub fn is_worth(&self, points: usize) -> bool {
        self.len() <= 8 * points + SLACK
    }

    fn insert(&mut self, at: usize, clock: &Arc<Clock>) {
        self.key = NAMELESS;
        self.ids.insert(at, clock.id());
        self.clocks.insert(at, Arc::clone(clock));
    }
}

/// The place of a clock in the roster of that key, if that was the last to seat it.
#[inline]
fn seat_in(key: u64, clock: &Clock) -> Option<usize> {
    let place = clock.seat() ^ key;
    (place < PLACES).then_some(place as usize)
}

/// Lanes that a roster may name in vain however few there are.
const SLACK: usize = 64;

/// An epoch for each lane of a roster; 0 where it says nothing about the lane.
#[derive(Debug, Clone)]
pub(super) struct Table {
    roster: Arc<Roster>,
    /// The roster's.
    key: u64,
    /// In fours, so that no rest is left where columns join.
    epochs: Vec<[f64; 4]>,
    /// The lane whose epoch each [`Many`] over the table keeps itself.
    at: usize,
}

/// A table, and the epoch that stands for the one at its [`Table::at`]. So each command of a lane
/// that others are waited for on has a frontier of its own, and all share the table.
#[derive(Clone)]
pub(super) struct Many {
    /// Counted without weak references: whether it is shared is then a look, not an atomic step.
    table: Shared<Table>,
    head: u64,
}

fn stored(epoch: u64) -> f64 {
    debug_assert!(epoch <= 1 << f64::MANTISSA_DIGITS, "epochs are exact");
    epoch.cast_signed() as f64
}

fn epoch(stored: f64) -> u64 {
    (stored as i64).cast_unsigned()
}

impl Table {
    #[inline]
    fn entry(&self, at: usize) -> f64 {
        self.epochs.as_flattened()[at]
    }

    #[inline]
    fn put(&mut self, at: usize, epoch: f64) {
        self.epochs.as_flattened_mut()[at] = epoch;
    }

    #[inline]
    fn find(&self, clock: &Clock) -> Option<usize> {
        seat_in(self.key, clock).or_else(|| self.roster.place(clock.id()).ok())
    }

    #[inline]
    fn is_like(&self, other: &Self) -> bool {
        self.key == other.key && self.key != NAMELESS || self.roster.is_like(&other.roster)
    }

    /// Goes over to another roster that is like its own.
    #[inline]
    fn choose(&mut self, roster: &Arc<Roster>, key: u64) {
        if self.key != key || key == NAMELESS {
            self.roster = Arc::clone(roster);
            self.key = key;
        }
    }
}

impl Many {
    /// Of points ascending by lane.
    pub fn of<'a>(points: impl Iterator<Item = PointRef<'a>>) -> Self {
        let (clocks, epochs): (_, Vec<f64>) = points
            .map(|point| (Arc::clone(point.clock), stored(point.epoch)))
            .unzip();
        let mut out = Self::over(Arc::new(Roster::passing(clocks)), 0);
        if let Some(table) = Shared::get_mut(&mut out.table) {
            table.epochs.as_flattened_mut()[..epochs.len()].copy_from_slice(&epochs);
            out.head = epoch(table.entry(0));
        }
        out
    }

    /// Without any points.
    fn over(roster: Arc<Roster>, at: usize) -> Self {
        let table = Table {
            key: roster.key,
            epochs: vec![[0.0; 4]; roster.len().div_ceil(4)],
            roster,
            at,
        };
        Self {
            table: Shared::new(table),
            head: 0,
        }
    }

    pub fn roster(&self) -> &Arc<Roster> {
        &self.table.roster
    }

    #[inline]
    pub fn is_like(&self, other: &Self) -> bool {
        self.table.is_like(&other.table)
    }

    /// How many lanes its roster names.
    pub fn seats(&self) -> usize {
        self.table.roster.len()
    }

    #[inline]
    pub fn epoch(&self, at: usize) -> u64 {
        match at == self.table.at {
            true => self.head,
            false => epoch(self.table.entry(at)),
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
        let (table, least) = (&*self.table, point.epoch.max(1));
        match table.find(point.clock) {
            None => false,
            Some(at) if at == table.at => self.head >= least,
            Some(at) => table.entry(at) >= stored(least),
        }
    }

    /// As this, with another epoch at [`Table::at`].
    #[inline]
    pub fn with_head(&self, head: u64) -> Self {
        Self {
            table: Shared::clone(&self.table),
            head,
        }
    }

    /// Leaves out what it says about its head's lane.
    pub fn hide_head(&mut self) {
        self.head = 0;
    }

    fn set(&mut self, at: usize, epoch: u64) {
        match at == self.table.at {
            true => self.head = epoch,
            false => Shared::make_mut(&mut self.table).put(at, stored(epoch)),
        }
    }

    /// Drops a point.
    pub fn clear(&mut self, at: usize) {
        self.set(at, 0);
    }

    /// A point of a lane that its roster does not name.
    pub fn insert(&mut self, point: PointRef<'_>) {
        let Err(at) = self.table.roster.place(point.lane()) else {
            return;
        };
        let table = Shared::make_mut(&mut self.table);
        let count = table.roster.len();
        Arc::make_mut(&mut table.roster).insert(at, point.clock);
        table.key = NAMELESS;
        if count.is_multiple_of(4) {
            table.epochs.push([0.0; 4]);
        }
        let epochs = table.epochs.as_flattened_mut();
        epochs.copy_within(at..count, at + 1);
        epochs[at] = stored(point.epoch);
        table.at += usize::from(at <= table.at);
    }

    /// Takes in all points, if its roster names their lanes.
    pub fn absorb<'a>(&mut self, points: impl Iterator<Item = PointRef<'a>> + Clone) -> bool {
        let table = &self.table;
        let named = points.clone().all(|p| table.find(p.clock).is_some());
        if named {
            self.raise_to(points);
        }
        named
    }

    /// Takes in the points of lanes that its roster names.
    pub fn raise_to<'a>(&mut self, points: impl Iterator<Item = PointRef<'a>>) {
        for point in points {
            if let Some(at) = self.table.find(point.clock)
                && self.epoch(at) < point.epoch
            {
                self.set(at, point.epoch);
            }
        }
    }

    /// Takes in all of `other` but what that says about the lane of this one's head. Their rosters
    /// are alike. False if somebody shares the table.
    #[inline]
    pub fn take_in(&mut self, other: &Self) -> bool {
        let Some(own) = Shared::get_mut(&mut self.table) else {
            return false;
        };
        let theirs = &*other.table;
        let head = larger(own.entry(theirs.at), stored(other.head));
        columns::raise(&mut own.epochs, &theirs.epochs);
        own.put(theirs.at, head);
        let (roster, key) = chosen(own, theirs);
        if own.key != key {
            (own.roster, own.key) = (Arc::clone(roster), key);
        }
        true
    }

    /// Becomes both of two whose rosters are alike, if nobody shares its table, and that fits. The
    /// head is hidden, and stands where that of the first does.
    #[inline]
    pub fn become_both(&mut self, one: &Self, other: &Self) -> bool {
        let Some(own) = Shared::get_mut(&mut self.table) else {
            return false;
        };
        let (ours, theirs) = (&*one.table, &*other.table);
        if own.epochs.len() != ours.epochs.len() {
            return false;
        }
        columns::join(&mut own.epochs, &ours.epochs, &theirs.epochs);
        own.put(theirs.at, larger(ours.entry(theirs.at), stored(other.head)));
        own.at = ours.at;
        let (roster, key) = chosen(ours, theirs);
        own.choose(roster, key);
        self.head = 0;
        true
    }

    /// Both in one. Their rosters are alike.
    pub fn joined(&self, other: &Self) -> Self {
        let (ours, theirs) = (&*self.table, &*other.table);
        let (roster, key) = chosen(ours, theirs);
        let mut table = Table {
            roster: Arc::clone(roster),
            key,
            epochs: columns::joined(&ours.epochs, &theirs.epochs),
            at: ours.at,
        };
        table.put(theirs.at, larger(ours.entry(theirs.at), stored(other.head)));
        Self {
            table: Shared::new(table),
            head: self.head.max(other.epoch(ours.at)),
        }
    }

    /// As [`Many::joined`], in place where nobody shares the table and without a copy where one
    /// holds all of the other.
    pub fn join(&mut self, other: &Self) {
        let shared = Shared::ptr_eq(&self.table, &other.table);
        let head = self.head.max(other.epoch(self.table.at));
        if !shared && self.take_in(other) {
            self.head = head;
        } else if !self.reaches(other) {
            *self = match other.reaches(self) {
                true => other.clone(),
                false => self.joined(other),
            };
        }
    }

    /// Whether it reaches all points of `other`, whose roster is like its own.
    fn reaches(&self, other: &Self) -> bool {
        (0..self.seats()).all(|at| self.epoch(at) >= other.epoch(at))
    }

    /// The points given over a roster that names their lanes and that of `own`, whose epoch is left
    /// out.
    pub fn seated<'a>(
        points: impl Iterator<Item = PointRef<'a>>,
        own: &Clock,
        roster: &Arc<Roster>,
    ) -> Option<Self> {
        let at = roster.find(own)?;
        let mut out = Self::over(Arc::clone(roster), at);
        let table = Shared::get_mut(&mut out.table)?;
        for point in points {
            table.put(roster.find(point.clock)?, stored(point.epoch));
        }
        Some(out)
    }
}

/// Of two rosters that are alike the later one, with its key: all who meet choose that, and there the
/// clocks sit.
#[inline]
fn chosen<'a>(one: &'a Table, other: &'a Table) -> (&'a Arc<Roster>, u64) {
    match one.key >= other.key {
        true => (&one.roster, one.key),
        false => (&other.roster, other.key),
    }
}

//! Rosters: the lanes that frontiers of several lanes are told over, and the middles of their epochs.
//!
//! A column has an epoch as how far it lies from a middle (`columns.rs`), which the roster has for each
//! of its lanes. Where an epoch lies too far from there, a table goes over to a roster of its own; the
//! lane that keeps it then finds or makes one to share again: every 40,000 commands or more of the
//! busiest lane. Who comes to a roster by a join with those who are there knows of each lane what its
//! middle was made for; so what lies too far below is hardly asked for there.

use super::clock::{NOWHERE, PointRef};
use super::{Clock, LaneId, columns};
use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lanes, ascending.
#[derive(Debug, Clone)]
pub(super) struct Roster {
    /// Of all that were ever made its own, or [`NAMELESS`]: a clock's seat is this and its place.
    key: u64,
    seats: Vec<Seat>,
    clocks: Vec<Arc<Clock>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seat {
    lane: LaneId,
    /// Around this lie the epochs.
    middle: u64,
}

impl Seat {
    fn fits(&self, point: &PointRef<'_>) -> bool {
        self.lane == point.lane() && columns::stored(point.epoch, self.middle).is_some()
    }
}

/// The last point of each lane, ascending by lane.
pub(super) fn newest<'a>(points: impl Iterator<Item = PointRef<'a>>) -> Vec<PointRef<'a>> {
    let mut points: Vec<_> = points.collect();
    points.sort_unstable_by_key(|point| (point.lane(), Reverse(point.epoch)));
    points.dedup_by_key(|point| point.lane());
    points
}

/// The places of a roster are below this, and keys multiples of it.
const PLACES: u64 = 1 << 24;

/// The key of a roster that no clock sits in: that of no clock's seat.
pub(super) const NAMELESS: u64 = 0;

impl Roster {
    /// Of points in a row, with a middle for the epoch of each. No clock sits in it: it may not be met
    /// again.
    pub fn passing(points: &[PointRef<'_>]) -> Self {
        let ascend = |a: &PointRef<'_>, b: &PointRef<'_>| a.lane() < b.lane();
        debug_assert!(points.is_sorted_by(ascend), "lanes out of order");
        let seat = |point: &PointRef<'_>| Seat {
            lane: point.lane(),
            middle: columns::middle_for(point.epoch),
        };
        let clock = |point: &PointRef<'_>| Arc::clone(point.clock);
        Self {
            key: NAMELESS,
            seats: points.iter().map(seat).collect(),
            clocks: points.iter().map(clock).collect(),
        }
    }

    /// As one that lanes keep.
    fn lasting(mut self) -> Self {
        // Identity only, so no ordering is needed.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        if number < NOWHERE / PLACES && (self.len() as u64) < PLACES {
            self.key = number * PLACES;
            let seats = (self.key..).zip(&self.clocks);
            seats.for_each(|(seat, clock)| clock.sit(seat));
        }
        self
    }

    /// A roster of the lanes of these points, in which they all can be told: the latest of the known
    /// ones, if one is that. An epoch of 0 says nothing of its lane.
    pub fn naming<'a>(
        points: impl Iterator<Item = PointRef<'a>>,
        known: &[&Arc<Self>],
    ) -> Arc<Self> {
        let points = newest(points);
        let fits = |roster: &&&Arc<Self>| {
            let mut pairs = roster.seats.iter().zip(&points);
            let lasts = roster.key != NAMELESS && roster.len() == points.len();
            lasts && pairs.all(|(seat, point)| seat.fits(point))
        };
        if let Some(roster) = known.iter().filter(fits).max_by_key(|roster| roster.key) {
            return Arc::clone(roster);
        }
        let mut roster = Self::passing(&points);
        for (seat, point) in roster.seats.iter_mut().zip(&points) {
            if point.epoch == 0 {
                // What is known of it once more will hardly lie before what was, or what is complete. That
                // may be far ahead of what was: who tells the next commands of it wants this roster, too.
                let middles = known
                    .iter()
                    .filter_map(|roster| roster.middle_of(seat.lane));
                let complete = columns::middle_for(point.clock.reliable());
                seat.middle = middles.fold(complete, u64::max);
            }
        }
        Arc::new(roster.lasting())
    }

    fn middle_of(&self, lane: LaneId) -> Option<u64> {
        self.place(lane).ok().map(|at| self.middle(at))
    }

    #[inline]
    pub fn middle(&self, at: usize) -> u64 {
        self.seats[at].middle
    }

    /// Has columns tell an epoch that they could not. Then it is nobody else's any more.
    pub fn make_room(&mut self, at: usize, epoch: u64) {
        self.key = NAMELESS;
        self.seats[at].middle = columns::middle_for(epoch);
    }

    pub fn key(&self) -> u64 {
        self.key
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
        self.seats.len()
    }

    /// Where a lane stands, or where it would.
    pub fn place(&self, lane: LaneId) -> Result<usize, usize> {
        self.seats.binary_search_by_key(&lane, |seat| seat.lane)
    }

    /// Where a clock's lane stands: mostly where the clock was seated last.
    #[inline]
    pub fn find(&self, clock: &Clock) -> Option<usize> {
        match seat_in(self.key, clock) {
            Some(at) => Some(at),
            None => self.search(clock),
        }
    }

    #[inline(never)]
    pub fn search(&self, clock: &Clock) -> Option<usize> {
        self.place(clock.id()).ok()
    }

    /// Whether columns over it say the same.
    pub fn is_like(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other) || self.seats == other.seats
    }

    /// The epoch of a lane from which on its columns will not do for those who wait for it.
    pub fn end_of(&self, clock: &Clock) -> Option<u64> {
        self.find(clock).map(|at| columns::end_of(self.middle(at)))
    }

    /// Whether it names the same lanes.
    pub fn names_those_of(&self, other: &Self) -> bool {
        let mut pairs = self.seats.iter().zip(&other.seats);
        self.len() == other.len() && pairs.all(|(own, their)| own.lane == their.lane)
    }

    /// Whether it is the later of two that lanes keep.
    pub fn is_after(&self, other: &Self) -> bool {
        self.key > other.key
    }

    /// Whether it is worth its length for so many points that are wanted of it: it keeps the clocks
    /// of the others alive, and those beyond what lies in place cost their part of every join.
    pub fn is_worth(&self, points: usize) -> bool {
        self.len() <= 8 * points + SLACK
    }

    pub fn insert(&mut self, at: usize, point: PointRef<'_>) {
        debug_assert!(
            self.place(point.lane()) == Err(at),
            "a lane at another's place"
        );
        self.key = NAMELESS;
        let (lane, middle) = (point.lane(), columns::middle_for(point.epoch));
        self.seats.insert(at, Seat { lane, middle });
        self.clocks.insert(at, Arc::clone(point.clock));
    }
}

/// The place of a clock in the roster of that key, if that was the last to seat it.
#[inline]
pub(super) fn seat_in(key: u64, clock: &Clock) -> Option<usize> {
    let place = clock.seat() ^ key;
    (place < PLACES).then_some(place as usize)
}

/// Lanes that a roster may name in vain however few there are.
const SLACK: usize = 64;

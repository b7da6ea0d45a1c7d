//! What frontiers of several lanes are made of: a roster of lanes, which many share, and their epochs.

use super::Clock;
use super::clock::PointRef;
use super::columns::{self, Column};
use super::roster::{NAMELESS, Roster, seat_in};
use std::sync::Arc;
use triomphe::Arc as Shared;

/// An epoch for each lane of a roster, or nothing.
#[derive(Debug, Clone)]
pub(super) struct Table {
    roster: Arc<Roster>,
    /// The roster's.
    key: u64,
    /// The lane whose epoch each [`Many`] over the table keeps itself, and the middle of that.
    at: usize,
    middle: u64,
    epochs: Column,
}

/// A table, and the epoch that stands for the one at its [`Table::at`]. So each command of a lane
/// that others are waited for on has a frontier of its own, and all share the table.
#[derive(Clone)]
pub(super) struct Many {
    /// Counted without weak references: whether it is shared is then a look, not an atomic step.
    table: Shared<Table>,
    head: u64,
}

/// What a column takes in: all of another over a roster like its own, but for its number `at` a place,
/// which is told beside it; or that alone.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    theirs: Option<&'a Column>,
    at: usize,
    told: i16,
}

impl Part<'_> {
    #[inline]
    fn raise(self, own: &mut Column) {
        match self.theirs {
            Some(theirs) => own.raise(theirs, self.at, self.told),
            None => own.put(self.at, self.told.max(own.get(self.at))),
        }
    }
}

impl Table {
    #[inline]
    fn find(&self, clock: &Clock) -> Option<usize> {
        match seat_in(self.key, clock) {
            Some(at) => Some(at),
            None => self.roster.search(clock),
        }
    }

    /// The epoch at a place, 0 where it says nothing.
    #[inline]
    fn epoch(&self, at: usize) -> u64 {
        columns::epoch(self.epochs.get(at), self.roster.middle(at))
    }

    /// False if it cannot be told over the roster.
    fn put(&mut self, at: usize, epoch: u64) -> bool {
        let told = columns::stored(epoch, self.roster.middle(at));
        told.map(|told| self.epochs.put(at, told)).is_some()
    }

    /// As [`Table::put`], whatever it takes.
    fn force(&mut self, at: usize, epoch: u64) {
        if !self.put(at, epoch) {
            let roster = Arc::make_mut(&mut self.roster);
            roster.make_room(at, epoch);
            self.key = NAMELESS;
            self.put(at, epoch);
        }
    }

    /// Becomes another, which is beside it.
    #[inline]
    fn copy(&mut self, other: &Self) {
        self.epochs.copy(&other.epochs);
        (self.at, self.middle) = (other.at, other.middle);
    }

    /// Whether it is over the same roster, which lanes keep.
    #[inline]
    fn is_beside(&self, other: &Self) -> bool {
        self.key == other.key && self.key != NAMELESS
    }

    fn is_like(&self, other: &Self) -> bool {
        self.is_beside(other) || self.roster.is_like(&other.roster)
    }

    /// Of two rosters that are alike takes the later one: all who meet choose that, and there the
    /// clocks sit.
    fn choose(&mut self, other: &Self) {
        if self.key < other.key {
            (self.roster, self.key) = (Arc::clone(&other.roster), other.key);
        }
    }
}

impl Many {
    /// Of points ascending by lane.
    pub fn of(points: &[PointRef<'_>]) -> Self {
        let mut out = Self::over(Arc::new(Roster::passing(points)), 0);
        if let Some(table) = Shared::get_mut(&mut out.table) {
            for (at, point) in points.iter().enumerate() {
                table.put(at, point.epoch);
            }
            out.head = table.epoch(0);
        }
        out
    }

    /// Without any points.
    fn over(roster: Arc<Roster>, at: usize) -> Self {
        let table = Table {
            key: roster.key(),
            at,
            middle: roster.middle(at),
            epochs: Column::new(roster.len()),
            roster,
        };
        Self {
            table: Shared::new(table),
            head: 0,
        }
    }

    pub fn roster(&self) -> &Arc<Roster> {
        &self.table.roster
    }

    pub fn is_like(&self, other: &Self) -> bool {
        self.table.is_like(&other.table)
    }

    /// Whether it is over the same roster, which lanes keep: columns join in no time.
    #[inline]
    pub fn is_beside(&self, other: &Self) -> bool {
        self.table.is_beside(&other.table)
    }

    /// How many lanes its roster names.
    pub fn seats(&self) -> usize {
        self.table.roster.len()
    }

    #[inline]
    pub fn epoch(&self, at: usize) -> u64 {
        match at == self.table.at {
            true => self.head,
            false => self.table.epoch(at),
        }
    }

    /// The point of a seat, if there is one.
    #[inline]
    pub fn point(&self, at: usize) -> Option<PointRef<'_>> {
        let epoch = self.epoch(at);
        let clock = &self.table.roster.clocks()[at];
        (epoch > 0).then_some(PointRef { clock, epoch })
    }

    pub fn points(&self) -> impl Iterator<Item = PointRef<'_>> + Clone {
        (0..self.seats()).filter_map(|at| self.point(at))
    }

    /// Whether it says that much about the point's lane.
    #[inline]
    pub fn covers(&self, point: PointRef<'_>) -> bool {
        match seat_in(self.table.key, point.clock) {
            Some(at) => self.reaches(at, point.epoch),
            None => self.covers_elsewhere(point),
        }
    }

    /// As [`Many::covers`], where the clock was seated in another roster since.
    #[inline(never)]
    fn covers_elsewhere(&self, point: PointRef<'_>) -> bool {
        let at = self.table.roster.search(point.clock);
        at.is_some_and(|at| self.reaches(at, point.epoch))
    }

    #[inline]
    fn reaches(&self, at: usize, epoch: u64) -> bool {
        let table = &*self.table;
        if at == table.at {
            return self.head >= epoch.max(1);
        }
        let middle = table.roster.middle(at);
        columns::reaches(table.epochs.get(at), epoch, middle)
    }

    /// As this, with another epoch at [`Table::at`].
    #[inline]
    pub fn with_head(&self, head: u64) -> Self {
        Self {
            table: Shared::clone(&self.table),
            head,
        }
    }

    /// Becomes another with another epoch at [`Table::at`]: as a copy in a table of its own where both
    /// are over the same roster, since to copy takes less than the two atomic steps of sharing.
    #[inline]
    pub fn become_with_head(&mut self, other: &Self, head: u64) {
        if !self.is_beside(other) {
            *self = other.with_head(head);
            return;
        }
        if !Shared::ptr_eq(&self.table, &other.table) {
            match Shared::get_mut(&mut self.table) {
                Some(own) => own.copy(&other.table),
                None => self.table = Shared::new(Table::clone(&other.table)),
            }
        }
        self.head = head;
    }

    fn set(&mut self, at: usize, epoch: u64) {
        match at == self.table.at {
            true => self.head = epoch,
            false => Shared::make_mut(&mut self.table).force(at, epoch),
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
        let lanes = table.roster.len();
        Arc::make_mut(&mut table.roster).insert(at, point);
        table.key = NAMELESS;
        table.epochs.insert(at, lanes, columns::NOTHING);
        table.put(at, point.epoch);
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
    fn raise_to<'a>(&mut self, points: impl Iterator<Item = PointRef<'a>>) {
        for point in points {
            if let Some(at) = self.table.find(point.clock)
                && self.epoch(at) < point.epoch
            {
                self.set(at, point.epoch);
            }
        }
    }

    /// Takes in the points of lanes that its roster names, but for that of its head, as far as they
    /// can be told over it: false if one cannot.
    pub fn raise_within<'a>(&mut self, points: impl Iterator<Item = PointRef<'a>>) -> bool {
        let roster = Arc::clone(self.roster());
        let each = points.filter_map(|point| Some((roster.find(point.clock)?, point.epoch)));
        self.raise_each(each)
    }

    /// As [`Many::raise_within`], with all of `other`, whose roster names the same lanes.
    pub fn raise_like(&mut self, other: &Self) -> bool {
        self.raise_each((0..other.seats()).map(|at| (at, other.epoch(at))))
    }

    fn raise_each(&mut self, epochs: impl Iterator<Item = (usize, u64)>) -> bool {
        let table = Shared::make_mut(&mut self.table);
        let own = table.at;
        let mut epochs = epochs.filter(|(at, _)| *at != own);
        epochs.all(|(at, epoch)| table.epoch(at) >= epoch || table.put(at, epoch))
    }

    /// All of it, for a column over a roster like its own, if its head lies near enough.
    #[inline]
    fn part(&self) -> Option<Part<'_>> {
        Some(Part {
            theirs: Some(&self.table.epochs),
            at: self.table.at,
            told: columns::stored(self.head, self.table.middle)?,
        })
    }

    /// `other` for a column beside its own, if it is that.
    #[inline]
    pub fn part_of<'a>(&self, other: &'a Self) -> Option<Part<'a>> {
        match self.is_beside(other) {
            true => other.part(),
            false => None,
        }
    }

    /// As [`Many::part_of`], of a point.
    #[inline]
    pub fn part_at(&self, point: PointRef<'_>) -> Option<Part<'static>> {
        let at = seat_in(self.table.key, point.clock)?;
        Some(Part {
            theirs: None,
            at,
            told: columns::stored(point.epoch, self.table.roster.middle(at))?,
        })
    }

    /// Takes in all of another but what that says about the lane of this one's head. False if somebody
    /// shares the table.
    #[inline]
    pub fn take_in(&mut self, part: Part<'_>) -> bool {
        let own = Shared::get_mut(&mut self.table);
        own.map(|own| part.raise(&mut own.epochs)).is_some()
    }

    /// Goes over to the table of `spare`, and leaves it its own, with all of both itself and another,
    /// if nobody shares that table, and it is over the same roster. False if not, and nothing has
    /// changed.
    #[inline]
    pub fn join_aside(&mut self, part: Part<'_>, spare: &mut Self) -> bool {
        let Some(free) = Shared::get_mut(&mut spare.table) else {
            return false;
        };
        let ours = &*self.table;
        if free.key != ours.key {
            return false;
        }
        let theirs = part.theirs.unwrap_or(&ours.epochs);
        free.epochs.join(&ours.epochs, theirs, part.at, part.told);
        (free.at, free.middle) = (ours.at, ours.middle);
        std::mem::swap(&mut self.table, &mut spare.table);
        true
    }

    /// Goes over to the table of `spare` with all that it says and leaves it its own, if that is at hand.
    pub fn move_aside(&mut self, spare: &mut Self) -> bool {
        let Some(free) = Shared::get_mut(&mut spare.table) else {
            return false;
        };
        free.clone_from(&self.table);
        std::mem::swap(&mut self.table, &mut spare.table);
        true
    }

    /// This with another in a table of its own, the head hidden.
    #[inline(never)]
    pub fn joined(&self, part: Part<'_>) -> Self {
        let mut table = Table::clone(&self.table);
        part.raise(&mut table.epochs);
        Self {
            table: Shared::new(table),
            head: 0,
        }
    }

    /// As [`Many::joined`], in place of this, with all of another whose roster is like its own. False if
    /// that's head lies too far.
    #[inline(never)]
    pub fn become_joined(&mut self, other: &Self) -> bool {
        let Some(part) = other.part() else {
            return false;
        };
        let mut both = self.joined(part);
        if let Some(table) = Shared::get_mut(&mut both.table) {
            table.choose(&other.table);
        }
        *self = both;
        true
    }

    /// All of both, whose rosters are alike: in place where nobody shares the table, and without a
    /// copy where one holds all of the other.
    pub fn join(&mut self, other: &Self) {
        let shared = Shared::ptr_eq(&self.table, &other.table);
        let head = self.head.max(other.epoch(self.table.at));
        if !shared && other.part().is_some_and(|part| self.take_in(part)) {
            self.head = head;
            return;
        }
        match (self.holds(other), other.holds(self)) {
            (true, _) => {}
            (_, true) => *self = other.clone(),
            _ if self.become_joined(other) => self.head = head,
            _ => self.raise_to(other.points()),
        }
    }

    /// Whether it reaches all points of `other`, whose roster is like its own.
    fn holds(&self, other: &Self) -> bool {
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
            let at = roster.find(point.clock)?;
            table.put(at, point.epoch).then_some(())?;
        }
        Some(out)
    }
}

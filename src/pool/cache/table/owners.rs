//! The lanes that have, or had, something of a pool, each under a number that segments name it by.

use crate::pool::cache::Stash;
use crate::timeline::LaneId;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A lane that has, or had, something of the pool.
#[derive(Debug)]
pub(crate) struct Borrower {
    pub stash: Arc<Stash>,
    /// Whether it made a request that its stash did not serve since it was last looked at, and what its
    /// stash had served by then.
    pub asked: bool,
    pub served: u64,
}

impl Borrower {
    pub fn new(stash: &Arc<Stash>) -> Self {
        Self {
            stash: Arc::clone(stash),
            asked: true,
            served: 0,
        }
    }
}

/// Costs what there are now, however many there were.
#[derive(Debug, Default)]
pub(crate) struct Borrowers {
    slots: Vec<Option<Borrower>>,
    /// Those with somebody, ascending, and those without.
    taken: Vec<usize>,
    vacant: BTreeSet<usize>,
}

impl Borrowers {
    pub fn len(&self) -> usize {
        self.taken.len()
    }

    pub fn get(&self, slot: usize) -> Option<&Borrower> {
        self.slots.get(slot)?.as_ref()
    }

    pub fn get_mut(&mut self, slot: usize) -> Option<&mut Borrower> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// By their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Borrower> {
        self.taken.iter().filter_map(|slot| self.get(*slot))
    }

    /// The first number from this one on, for who changes them in between.
    pub fn from(&self, slot: usize) -> Option<usize> {
        match self.taken.get(slot) {
            // As while none has gone.
            Some(same) if *same == slot => Some(slot),
            _ => {
                let at = self.taken.partition_point(|taken| *taken < slot);
                self.taken.get(at).copied()
            }
        }
    }

    /// The number of a lane's stash.
    pub fn find(&self, lane: LaneId) -> Option<usize> {
        let mut taken = self.taken.iter().copied();
        taken.find(|slot| self.get(*slot).is_some_and(|own| own.stash.lane() == lane))
    }

    /// Adds one under the least number that is nobody's.
    pub fn insert(&mut self, borrower: Borrower) -> usize {
        let slot = self.vacant.pop_first().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(borrower);
        let at = self.taken.partition_point(|taken| *taken < slot);
        self.taken.insert(at, slot);
        slot
    }

    pub fn remove(&mut self, slot: usize) -> Option<Borrower> {
        let gone = self.slots.get_mut(slot)?.take()?;
        if let Ok(at) = self.taken.binary_search(&slot) {
            self.taken.remove(at);
        }
        self.vacant.insert(slot);
        Some(gone)
    }
}

//! The stream caches that have, or had, blocks of a pool, each under a number that segments name it by.

use crate::pool::cache::StreamCache;
use crate::timeline::LaneId;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A stream cache that has, or had, blocks of the pool.
#[derive(Debug)]
pub(crate) struct Owner {
    pub cache: Arc<StreamCache>,
    /// Whether its lane made a request that the cache did not serve since the last look for idle caches, and
    /// what the cache had served by then.
    pub asked: bool,
    pub served: u64,
}

impl Owner {
    pub fn new(cache: &Arc<StreamCache>) -> Self {
        Self {
            cache: Arc::clone(cache),
            asked: true,
            served: 0,
        }
    }
}

/// The owners by their numbers. A walk costs what there are now, however many there were.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    slots: Vec<Option<Owner>>,
    /// Numbers in use, ascending, and numbers below their last that are not.
    taken: Vec<usize>,
    vacant: BTreeSet<usize>,
}

impl Owners {
    pub fn len(&self) -> usize {
        self.taken.len()
    }

    pub fn get(&self, slot: usize) -> Option<&Owner> {
        self.slots.get(slot)?.as_ref()
    }

    pub fn get_mut(&mut self, slot: usize) -> Option<&mut Owner> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Ascending by number.
    pub fn iter(&self) -> impl Iterator<Item = &Owner> {
        self.taken.iter().filter_map(|slot| self.get(*slot))
    }

    /// The first number from this one on, for a walk that removes some.
    pub fn next_from(&self, slot: usize) -> Option<usize> {
        match self.taken.get(slot) {
            // While none has gone.
            Some(same) if *same == slot => Some(slot),
            _ => {
                let at = self.taken.partition_point(|taken| *taken < slot);
                self.taken.get(at).copied()
            }
        }
    }

    /// The number of a lane's cache.
    pub fn find(&self, lane: LaneId) -> Option<usize> {
        let mut taken = self.taken.iter().copied();
        taken.find(|slot| self.get(*slot).is_some_and(|own| own.cache.lane() == lane))
    }

    /// Inserts an owner under the least free number.
    pub fn insert(&mut self, owner: Owner) -> usize {
        let slot = self.vacant.pop_first().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(owner);
        let at = self.taken.partition_point(|taken| *taken < slot);
        self.taken.insert(at, slot);
        slot
    }

    pub fn remove(&mut self, slot: usize) -> Option<Owner> {
        let gone = self.slots.get_mut(slot)?.take()?;
        if let Ok(at) = self.taken.binary_search(&slot) {
            self.taken.remove(at);
        }
        self.vacant.insert(slot);
        Some(gone)
    }
}

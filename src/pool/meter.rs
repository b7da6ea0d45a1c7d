//! Bytes used, now and at most, exactly, without a counter that all threads write.
//!
//! Owns `base`, what is used directly, and how much credit each stash has: what may be live through
//! it. `base` and all credit together never exceed the high, so a stash that stays within its credit
//! cannot raise it, and asks nobody. Who needs more takes it from what is left below the high; is
//! there too little, all idle credit is called back first, under all the stashes' locks at once, and
//! only what is really used then raises the high.

use super::request::Block;
use super::stash::{Cache, Inner, Lent, Miss, PoolKey, Stash};
use crate::timeline::sync::{BriefGuard, Mutex};
use smallvec::SmallVec;
use std::sync::Arc;

/// Counts the bytes used in one pool, or in several together.
#[derive(Debug)]
pub struct Meter {
    key: PoolKey,
    level: Mutex<Level>,
}

#[derive(Debug, Default)]
pub(crate) struct Level {
    high: u64,
    base: u64,
    /// The sum of all stashes' credit.
    granted: u64,
    /// Ascending by lane, each with how many pools of this meter use it.
    stashes: Vec<(Arc<Stash>, usize)>,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            key: PoolKey::fresh(),
            level: Mutex::new(Level::default()),
        }
    }
}

impl Meter {
    /// Bytes used now, and at most since [`Meter::reset_high`].
    pub fn read(&self) -> (u64, u64) {
        let level = self.level.lock();
        (self.used(&level), level.high)
    }

    /// Sets the high to what is used now.
    pub fn reset_high(&self) {
        let mut level = self.level.lock();
        let level = &mut *level;
        let mut stashes = lock_all(&level.stashes);
        level.high = level.base + self.call_in(&mut stashes, &mut level.granted);
    }

    pub(crate) fn key(&self) -> PoolKey {
        self.key
    }

    pub(crate) fn attach(&self, stash: &Arc<Stash>) {
        let stashes = &mut self.level.lock().stashes;
        match stashes.binary_search_by_key(&stash.lane(), |(own, _)| own.lane()) {
            Ok(at) => stashes[at].1 += 1,
            Err(at) => stashes.insert(at, (Arc::clone(stash), 1)),
        }
    }

    /// Takes back all that a pool lent to a stash: what is live is used directly from now on.
    pub(crate) fn detach(&self, stash: &Stash, key: PoolKey) -> Option<(Cache, Vec<Lent>)> {
        let mut level = self.level.lock();
        let (cache, lent) = stash.lock().close(key)?;
        level.granted -= cache.credit;
        level.base += cache.live;
        let stashes = &mut level.stashes;
        if let Ok(at) = stashes.binary_search_by_key(&stash.lane(), |(own, _)| own.lane()) {
            stashes[at].1 -= 1;
            if stashes[at].1 == 0 {
                stashes.remove(at);
            }
        }
        Some((cache, lent))
    }

    /// A block becomes live; lent to a stash, with what the store calls it, or not.
    pub(crate) fn take(&self, block: &Block, lend: Option<(&Stash, PoolKey, u32)>) -> bool {
        let mut level = self.level.lock();
        let level = &mut *level;
        if level.base + level.granted + block.bytes > level.high {
            let mut stashes = lock_all(&level.stashes);
            let live = self.call_in(&mut stashes, &mut level.granted);
            level.high = level.high.max(level.base + live + block.bytes);
        }
        // Between two locks others may only use less, which is no other answer than their using
        // less a moment later.
        if let Some((stash, key, seg)) = lend
            && stash.lock().lend(key, block, seg)
        {
            level.granted += block.bytes;
            return true;
        }
        level.base += block.bytes;
        false
    }

    /// Bytes that are live through a stash are used directly from now on; `then` takes them from it.
    pub(crate) fn part(&self, stash: &Stash, bytes: u64, then: impl FnOnce(&mut Inner)) {
        let mut level = self.level.lock();
        then(&mut stash.lock());
        level.granted -= bytes;
        level.base += bytes;
    }

    /// A block that was not lent is live no more.
    pub(crate) fn put(&self, bytes: u64) {
        self.level.lock().base -= bytes;
    }

    /// As [`Stash::alloc`] for want of credit: finds credit for a block that is there.
    pub(crate) fn take_cached(
        &self,
        stash: &Arc<Stash>,
        key: PoolKey,
        bytes: u64,
    ) -> Result<Block, Miss> {
        let mut level = self.level.lock();
        let level = &mut *level;
        let mine = level.stashes.iter();
        let mine = mine
            .take_while(|(own, _)| own.lane() != stash.lane())
            .count();
        let mut stashes = lock_all(&level.stashes);
        let need = match take_from(&mut stashes, mine, key, bytes) {
            Err(Miss::NoCredit(need)) => need,
            answer => return answer,
        };
        if level.base + level.granted + need > level.high {
            let live = self.call_in(&mut stashes, &mut level.granted);
            level.high = level.high.max(level.base + live + need);
        }
        let spare = level.high - level.base - level.granted;
        if let Some(cache) = stashes.get_mut(mine).and_then(|own| own.cache_mut(key)) {
            // Enough for all that is cached here, if there is that much.
            let grant = spare.min((cache.live + cache.cached).saturating_sub(cache.credit));
            cache.credit += grant;
            level.granted += grant;
        }
        take_from(&mut stashes, mine, key, bytes)
    }

    fn used(&self, level: &Level) -> u64 {
        let mut stashes = lock_all(&level.stashes);
        let caches = stashes.iter_mut().flat_map(|inner| inner.caches_mut());
        let own = caches.filter(|cache| cache.meter == self.key);
        level.base + own.map(|cache| cache.live).sum::<u64>()
    }

    /// Takes back all idle credit. What remains: the bytes live through stashes.
    fn call_in(&self, stashes: &mut [BriefGuard<'_, Inner>], granted: &mut u64) -> u64 {
        let mut live = 0;
        for cache in stashes.iter_mut().flat_map(|inner| inner.caches_mut()) {
            if cache.meter == self.key {
                *granted -= cache.credit - cache.live;
                cache.credit = cache.live;
                live += cache.live;
            }
        }
        live
    }
}

fn take_from(
    stashes: &mut [BriefGuard<'_, Inner>],
    mine: usize,
    key: PoolKey,
    bytes: u64,
) -> Result<Block, Miss> {
    match stashes.get_mut(mine) {
        Some(own) => own.take(key, bytes),
        None => Err(Miss::NoBlock),
    }
}

/// Room for as many queues as programs have; more take a call for memory.
type Locked<'a> = SmallVec<[BriefGuard<'a, Inner>; 8]>;

fn lock_all(stashes: &[(Arc<Stash>, usize)]) -> Locked<'_> {
    stashes.iter().map(|(stash, _)| stash.lock()).collect()
}

//! Usage accounting: bytes used, now and at most, exactly, without a counter that all threads write.
//!
//! Owns `base`, the bytes live outside of caches and plans, and the quota of each stream cache and replay plan:
//! what may be live through it. `base` and all quotas together never exceed the high. So a cache that stays
//! within its quota cannot raise the high, and asks nobody. A cache that lacks quota takes it from what is left
//! below the high, then from what others do not use, one after the other. If that is not enough, all unused
//! quota is returned under all the caches' locks at once, and only what is really live then raises the high.

use crate::pool::cache::{Cache, CacheResult, Entry, Inner, Miss, PoolKey, StreamCache};
use crate::pool::replay::{Plan, SharedPlan};
use crate::pool::request::Block;
use crate::sync::{BriefGuard, Mutex, rank};
use smallvec::SmallVec;
use std::sync::Arc;

/// Counts the bytes used in one pool, or in several together.
#[derive(Debug)]
pub struct Usage {
    key: PoolKey,
    level: Mutex<Level, { rank::USAGE }>,
}

#[derive(Debug, Default)]
pub(crate) struct Level {
    high: u64,
    base: u64,
    /// The sum of all quotas.
    granted: u64,
    /// Ascending by lane.
    members: Vec<Member>,
    plans: Vec<SharedPlan>,
}

/// A stream cache that pools of this accounting use.
#[derive(Debug)]
struct Member {
    cache: Arc<StreamCache>,
    pools: usize,
    /// The quota of the cache for all these pools.
    quota: u64,
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            key: PoolKey::fresh(),
            level: Mutex::new(Level::default()),
        }
    }
}

impl Usage {
    /// Bytes used now, and at most since [`Usage::reset_high`].
    pub fn read(&self) -> (u64, u64) {
        let mut level = self.level.lock();
        let level = &mut *level;
        let mut all = All::lock(&mut level.members, &level.plans);
        let inner = all.caches.iter_mut().map(|own| &mut own.inner);
        let caches = inner.flat_map(|inner| inner.caches_mut());
        let caches = caches.filter(|cache| cache.usage == self.key);
        let live = caches.map(|cache| cache.live).sum::<u64>();
        let replayed = all.plans.iter().map(|plan| plan.live).sum::<u64>();
        (level.base + live + replayed, level.high)
    }

    /// Sets the high to what is used now.
    pub fn reset_high(&self) {
        let mut level = self.level.lock();
        let level = &mut *level;
        let mut all = All::lock(&mut level.members, &level.plans);
        level.granted = self.return_all(&mut all);
        level.high = level.base + level.granted;
    }

    /// Whether quotas add up, and no high could rise unseen.
    #[cfg(any(test, feature = "oracle"))]
    pub(crate) fn audit(&self) -> Result<(), String> {
        let level = self.level.lock();
        let (base, granted, high) = (level.base, level.granted, level.high);
        if base + granted > high {
            return Err(format!("{base} used and {granted} granted, above {high}"));
        }
        let mut sum = 0;
        for member in &level.members {
            let mut inner = member.cache.lock();
            let own = inner.caches_mut().filter(|cache| cache.usage == self.key);
            let own: u64 = own.map(|cache| cache.quota).sum();
            if own != member.quota {
                return Err(format!("{own} granted to a cache, not {}", member.quota));
            }
            sum += own;
        }
        sum += level
            .plans
            .iter()
            .map(|plan| plan.lock().quota)
            .sum::<u64>();
        match sum == granted {
            true => Ok(()),
            false => Err(format!("{sum} granted, not {granted}")),
        }
    }

    pub(crate) fn key(&self) -> PoolKey {
        self.key
    }

    /// A pool begins to use a cache.
    pub(crate) fn attach(&self, cache: &Arc<StreamCache>) {
        let mut level = self.level.lock();
        match level.find(cache) {
            Ok(at) => level.members[at].pools += 1,
            Err(at) => {
                let member = Member {
                    cache: Arc::clone(cache),
                    pools: 1,
                    quota: 0,
                };
                level.members.insert(at, member);
            }
        }
    }

    /// Takes all blocks of a pool out of a cache: what is live counts as `base` from now on.
    pub(crate) fn detach(&self, cache: &StreamCache, key: PoolKey) -> Option<(Cache, Vec<Entry>)> {
        let mut level = self.level.lock();
        let (own, blocks) = cache.lock().close(key)?;
        level.granted -= own.quota;
        level.base += own.live;
        if let Ok(at) = level.find(cache) {
            let member = &mut level.members[at];
            member.quota -= own.quota;
            member.pools -= 1;
            if member.pools == 0 {
                level.members.remove(at);
            }
        }
        Some((own, blocks))
    }

    /// A block outside of caches becomes live.
    pub(crate) fn alloc(&self, block: &Block) {
        let mut level = self.level.lock();
        self.make_room(&mut level, block.bytes);
        level.base += block.bytes;
        debug_assert!(level.is_within_high(), "used beyond the high");
    }

    /// A block becomes live in a cache, into which `insert` puts it with a quota of its size. False, and the
    /// block counts as `base`, if that did not.
    pub(crate) fn alloc_in(
        &self,
        cache: &StreamCache,
        block: &Block,
        insert: impl FnOnce(&mut Inner) -> bool,
    ) -> bool {
        let mut level = self.level.lock();
        self.make_room(&mut level, block.bytes);
        // Other threads may free meanwhile, as they might a moment later.
        if let Ok(at) = level.find(cache)
            && insert(&mut cache.lock())
        {
            level.members[at].quota += block.bytes;
            level.granted += block.bytes;
            debug_assert!(level.is_within_high(), "granted beyond the high");
            return true;
        }
        level.base += block.bytes;
        false
    }

    /// A block outside of caches is freed.
    pub(crate) fn free(&self, bytes: u64) {
        self.level.lock().base -= bytes;
    }

    /// Grants a cache so many bytes more, if the high need not rise for that. True if it did.
    pub fn find_quota(&self, cache: &StreamCache, key: PoolKey, lack: u64) -> bool {
        let mut level = self.level.lock();
        let level = &mut *level;
        let Ok(at) = level.find(cache) else {
            return false;
        };
        self.collect(level, at, lack);
        let spare = level.spare();
        if spare < lack {
            return false;
        }
        let granted = self.grant(&mut level.members[at].lock(), key, spare);
        level.granted += granted;
        granted >= lack
    }

    /// Allocates as [`StreamCache::alloc`] does after a miss for want of quota; raises the high if it must.
    pub(crate) fn alloc_cached(
        &self,
        cache: &StreamCache,
        key: PoolKey,
        requested: u64,
    ) -> CacheResult<Block> {
        let mut level = self.level.lock();
        let level = &mut *level;
        let at = level.find(cache).map_err(|_| Miss::NoBlock)?;
        let mut all = All::lock(&mut level.members, &level.plans);
        level.granted = self.return_all(&mut all);
        let own = &mut all.caches[at];
        match own.inner.alloc(key, requested, |block| block) {
            Err(Miss::NoQuota(lack)) => {
                let used = level.base + level.granted;
                level.high = level.high.max(used + lack);
                level.granted += self.grant(own, key, level.high - used);
                own.inner.alloc(key, requested, |block| block)
            }
            answer => answer,
        }
    }

    /// A plan begins with a quota for its peak, or less if the high would have to rise for that.
    pub(crate) fn attach_plan(&self, plan: &SharedPlan) {
        let mut level = self.level.lock();
        let level = &mut *level;
        let peak = plan.lock().peak;
        if level.spare() < peak {
            let mut all = All::lock(&mut level.members, &level.plans);
            level.granted = self.return_all(&mut all);
        }
        let grant = level.spare().min(peak);
        plan.lock().quota = grant;
        level.granted += grant;
        level.plans.push(Arc::clone(plan));
    }

    /// Grants a plan the quota for its next block at least; raises the high if it must.
    pub(crate) fn raise_plan(&self, plan: &SharedPlan) {
        let mut level = self.level.lock();
        let level = &mut *level;
        let is_it = |own: &SharedPlan| Arc::ptr_eq(own, plan);
        let Some(at) = level.plans.iter().position(is_it) else {
            return;
        };
        let mut all = All::lock(&mut level.members, &level.plans);
        level.granted = self.return_all(&mut all);
        let used = level.base + level.granted;
        let own = &mut all.plans[at];
        let bytes = own.next_bytes();
        level.high = level.high.max(used + bytes);
        let grant = own.peak.saturating_sub(own.live).max(bytes);
        let grant = grant.min(level.high - used);
        own.quota += grant;
        level.granted += grant;
        debug_assert!(
            level.base + level.granted <= level.high,
            "granted beyond the high"
        );
    }

    /// A plan ends: what is live of it counts as `base` from now on.
    pub(crate) fn detach_plan(&self, plan: &SharedPlan) {
        let mut level = self.level.lock();
        level.plans.retain(|own| !Arc::ptr_eq(own, plan));
        let own = plan.lock();
        level.granted -= own.quota;
        level.base += own.live;
    }

    /// Makes room below the high for so many bytes; raises the high if it must.
    fn make_room(&self, level: &mut Level, bytes: u64) {
        if level.spare() < bytes {
            let mut all = All::lock(&mut level.members, &level.plans);
            level.granted = self.return_all(&mut all);
            level.high = level.high.max(level.base + level.granted + bytes);
        }
    }

    /// Has others than the member at `mine` return unused quota until there is `enough`: caches with the largest
    /// quotas first, then plans. Locks one after the other, so that most of them go on meanwhile.
    fn collect(&self, level: &mut Level, mine: usize, enough: u64) {
        let others = 0..level.members.len();
        let others = others.filter(|at| *at != mine && level.members[*at].quota > 0);
        let mut others: SmallVec<[usize; 16]> = others.collect();
        others.sort_unstable_by_key(|at| level.members[*at].quota);
        while level.spare() < enough
            && let Some(at) = others.pop()
        {
            let member = &mut level.members[at];
            level.granted -= member.quota;
            level.granted += self.return_quota(&mut member.lock());
        }
        if level.spare() < enough {
            for plan in &level.plans {
                level.granted -= plan.lock().return_quota();
            }
        }
    }

    /// Has all caches and plans return unused quota. What remains: the bytes live through them.
    fn return_all(&self, all: &mut All<'_>) -> u64 {
        let caches = all.caches.iter_mut();
        let mut live: u64 = caches.map(|own| self.return_quota(own)).sum();
        for plan in &mut all.plans {
            plan.return_quota();
            live += plan.live;
        }
        live
    }

    /// Has a cache return unused quota. What remains: the bytes live through it.
    fn return_quota(&self, own: &mut Locked<'_>) -> u64 {
        *own.quota = 0;
        let caches = own.inner.caches_mut();
        for cache in caches.filter(|cache| cache.usage == self.key) {
            cache.quota = cache.live;
            *own.quota += cache.live;
        }
        *own.quota
    }

    /// Grants a cache a quota for all that is cached there, out of `spare` bytes; how much it was.
    fn grant(&self, own: &mut Locked<'_>, key: PoolKey, spare: u64) -> u64 {
        let cache = own.inner.cache_mut(key);
        let Some(cache) = cache.filter(|cache| cache.usage == self.key) else {
            return 0;
        };
        let grant = spare.min((cache.live + cache.cached).saturating_sub(cache.quota));
        cache.quota += grant;
        debug_assert!(cache.live <= cache.quota, "live beyond the quota");
        *own.quota += grant;
        grant
    }
}

impl Level {
    /// What may be granted without a rise of the high.
    fn spare(&self) -> u64 {
        debug_assert!(self.is_within_high(), "granted beyond the high");
        self.high - self.base - self.granted
    }

    fn is_within_high(&self) -> bool {
        self.base + self.granted <= self.high
    }

    /// The place of a cache, or where it would be.
    fn find(&self, cache: &StreamCache) -> Result<usize, usize> {
        let lane = |own: &Member| own.cache.lane();
        self.members.binary_search_by_key(&cache.lane(), lane)
    }
}

impl Member {
    fn lock(&mut self) -> Locked<'_> {
        Locked {
            inner: self.cache.lock(),
            quota: &mut self.quota,
        }
    }
}

/// A locked cache with its quota.
struct Locked<'a> {
    inner: BriefGuard<'a, Inner>,
    quota: &'a mut u64,
}

/// All caches and plans, locked. In place for as many queues as programs have.
struct All<'a> {
    caches: SmallVec<[Locked<'a>; 8]>,
    plans: SmallVec<[BriefGuard<'a, Plan>; 2]>,
}

impl<'a> All<'a> {
    fn lock(members: &'a mut [Member], plans: &'a [SharedPlan]) -> Self {
        Self {
            caches: members.iter_mut().map(Member::lock).collect(),
            plans: plans.iter().map(|plan| plan.lock()).collect(),
        }
    }
}

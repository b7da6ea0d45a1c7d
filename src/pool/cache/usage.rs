//! Bytes used, now and at most, exactly, without a counter that all threads write.
//!
//! Owns `base`, what is used directly, and how much credit each stash and joint plan has: what may be live
//! through it. `base` and all credit together never exceed the high, so a stash that stays within its credit
//! cannot raise it, and asks nobody. Who needs more takes it from what is left below the high, and from
//! what others have idle: of one after the other, until it is enough. If it never is, all idle credit is
//! called back under all the stashes' locks at once, and only what is really used then raises the high.

use crate::pool::cache::{Cache, Inner, Lent, Miss, PoolKey, Stash, Taken};
use crate::pool::replay::{Joint, Shared};
use crate::pool::request::Block;
use crate::timeline::rank;
use crate::timeline::sync::{BriefGuard, Mutex};
use smallvec::SmallVec;
use std::sync::Arc;

/// Counts the bytes used in one pool, or in several together.
#[derive(Debug)]
pub struct Meter {
    key: PoolKey,
    level: Mutex<Level, { rank::USAGE }>,
}

#[derive(Debug, Default)]
pub(crate) struct Level {
    high: u64,
    base: u64,
    /// The sum of all credit.
    granted: u64,
    /// Ascending by lane.
    members: Vec<Member>,
    joints: Vec<Shared>,
    /// How often idle credit was looked for.
    searches: u64,
}

/// A stash that pools of the meter use.
#[derive(Debug)]
struct Member {
    stash: Arc<Stash>,
    pools: usize,
    /// From all of them.
    credit: u64,
    /// The search that looked here last.
    searched: u64,
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
        let mut level = self.level.lock();
        let level = &mut *level;
        let mut all = All::lock(&mut level.members, &level.joints);
        let caches = all
            .stashes
            .iter_mut()
            .flat_map(|own| own.inner.caches_mut());
        let caches = caches.filter(|cache| cache.meter == self.key);
        let live = caches.map(|cache| cache.live).sum::<u64>();
        let jointly = all.joints.iter().map(|joint| joint.live).sum::<u64>();
        (level.base + live + jointly, level.high)
    }

    /// Sets the high to what is used now.
    pub fn reset_high(&self) {
        let mut level = self.level.lock();
        let level = &mut *level;
        let mut all = All::lock(&mut level.members, &level.joints);
        level.granted = self.call_all_in(&mut all);
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
            let mut inner = member.stash.lock();
            let own = inner.caches_mut().filter(|cache| cache.meter == self.key);
            let own: u64 = own.map(|cache| cache.credit).sum();
            if own != member.credit {
                return Err(format!("{own} granted to a cache, not {}", member.credit));
            }
            sum += own;
        }
        sum += level
            .joints
            .iter()
            .map(|joint| joint.lock().credit)
            .sum::<u64>();
        match sum == granted {
            true => Ok(()),
            false => Err(format!("{sum} granted, not {granted}")),
        }
    }

    pub(crate) fn key(&self) -> PoolKey {
        self.key
    }

    pub(crate) fn attach(&self, stash: &Arc<Stash>) {
        let mut level = self.level.lock();
        match level.find(stash) {
            Ok(at) => level.members[at].pools += 1,
            Err(at) => {
                let member = Member {
                    stash: Arc::clone(stash),
                    pools: 1,
                    credit: 0,
                    searched: 0,
                };
                level.members.insert(at, member);
            }
        }
    }

    /// Takes back all that a pool lent to a stash: what is live is used directly from now on.
    pub(crate) fn detach(&self, stash: &Stash, key: PoolKey) -> Option<(Cache, Vec<Lent>)> {
        let mut level = self.level.lock();
        let (cache, lent) = stash.lock().close(key)?;
        level.granted -= cache.credit;
        level.base += cache.live;
        if let Ok(at) = level.find(stash) {
            let member = &mut level.members[at];
            member.credit -= cache.credit;
            member.pools -= 1;
            if member.pools == 0 {
                level.members.remove(at);
            }
        }
        Some((cache, lent))
    }

    /// A block becomes live; lent to a stash, with what the store calls it, or not.
    pub(crate) fn take(&self, block: &Block, lend: Option<(&Stash, PoolKey, u32)>) -> bool {
        let mut level = self.level.lock();
        let level = &mut *level;
        if level.spare() < block.bytes {
            let mut all = All::lock(&mut level.members, &level.joints);
            level.granted = self.call_all_in(&mut all);
            let used = level.base + level.granted;
            level.high = level.high.max(used + block.bytes);
        }
        // Between two locks others may only use less, which is no other answer than their using
        // less a moment later.
        if let Some((stash, key, seg)) = lend
            && let Ok(at) = level.find(stash)
            && stash.lock().lend(key, block, seg)
        {
            level.members[at].credit += block.bytes;
            level.granted += block.bytes;
            return true;
        }
        level.base += block.bytes;
        false
    }

    /// Bytes that are live through a stash are used directly from now on; `then` takes them from it.
    pub(crate) fn part(&self, stash: &Stash, bytes: u64, then: impl FnOnce(&mut Inner)) {
        let mut level = self.level.lock();
        let Ok(at) = level.find(stash) else { return };
        then(&mut stash.lock());
        level.members[at].credit -= bytes;
        level.granted -= bytes;
        level.base += bytes;
    }

    /// A block that was not lent is live no more.
    pub(crate) fn put(&self, bytes: u64) {
        self.level.lock().base -= bytes;
    }

    /// Grants a stash so many bytes more, if the high need not rise for that. True if it did.
    pub fn find_credit(&self, stash: &Stash, key: PoolKey, lack: u64) -> bool {
        let mut level = self.level.lock();
        let level = &mut *level;
        let Ok(mine) = level.find(stash) else {
            return false;
        };
        self.search(level, mine, lack);
        let spare = level.spare();
        if spare < lack {
            return false;
        }
        let granted = self.grant(&mut level.members[mine].lock(), key, spare);
        level.granted += granted;
        granted >= lack
    }

    /// As [`Stash::alloc`] for want of credit, which may come from a rise of the high.
    pub(crate) fn take_cached(&self, stash: &Stash, key: PoolKey, requested: u64) -> Taken<Block> {
        let mut level = self.level.lock();
        let level = &mut *level;
        let mine = level.find(stash).map_err(|_| Miss::NoBlock)?;
        let mut all = All::lock(&mut level.members, &level.joints);
        level.granted = self.call_all_in(&mut all);
        let own = &mut all.stashes[mine];
        match own.inner.take(key, requested, |block| block) {
            Err(Miss::NoCredit(lack)) => {
                let used = level.base + level.granted;
                level.high = level.high.max(used + lack);
                level.granted += self.grant(own, key, level.high - used);
                own.inner.take(key, requested, |block| block)
            }
            answer => answer,
        }
    }

    /// A joint plan has credit of its own from now on: enough for all of it, unless the high would have to
    /// rise for that.
    pub(crate) fn join(&self, joint: &Shared) {
        let mut level = self.level.lock();
        let level = &mut *level;
        let peak = joint.lock().peak;
        if level.spare() < peak {
            let mut all = All::lock(&mut level.members, &level.joints);
            level.granted = self.call_all_in(&mut all);
        }
        let grant = level.spare().min(peak);
        joint.lock().credit = grant;
        level.granted += grant;
        level.joints.push(Arc::clone(joint));
    }

    /// A joint plan's next block may become live, also if the high rises for that.
    pub(crate) fn raise(&self, joint: &Shared) {
        let mut level = self.level.lock();
        let level = &mut *level;
        let is = |own: &Shared| Arc::ptr_eq(own, joint);
        let Some(at) = level.joints.iter().position(is) else {
            return;
        };
        let mut all = All::lock(&mut level.members, &level.joints);
        level.granted = self.call_all_in(&mut all);
        let used = level.base + level.granted;
        let own = &mut all.joints[at];
        let bytes = own.next_bytes();
        level.high = level.high.max(used + bytes);
        let grant = own.peak.saturating_sub(own.live).max(bytes);
        let grant = grant.min(level.high - used);
        own.credit += grant;
        level.granted += grant;
    }

    /// Bytes that are live in a joint plan are used directly from now on.
    pub(crate) fn leave(&self, joint: &Shared) {
        let mut level = self.level.lock();
        level.joints.retain(|own| !Arc::ptr_eq(own, joint));
        let own = joint.lock();
        level.granted -= own.credit;
        level.base += own.live;
    }

    /// Calls in what others than `mine` have idle until there is so much: first of those that were
    /// granted most.
    fn search(&self, level: &mut Level, mine: usize, enough: u64) {
        level.searches += 1;
        level.members[mine].searched = level.searches;
        while level.spare() < enough {
            let others = level.members.iter_mut();
            let others = others.filter(|own| own.searched != level.searches);
            let Some(richest) = others.max_by_key(|own| own.credit) else {
                for joint in &level.joints {
                    level.granted -= joint.lock().call_in();
                }
                return;
            };
            richest.searched = level.searches;
            level.granted -= richest.credit;
            level.granted += self.call_in(&mut [richest.lock()]);
        }
    }

    /// Takes back all idle credit. What remains: the bytes live through stashes and joint plans.
    fn call_all_in(&self, all: &mut All<'_>) -> u64 {
        let mut live = self.call_in(&mut all.stashes);
        for joint in &mut all.joints {
            joint.call_in();
            live += joint.live;
        }
        live
    }

    /// The same of stashes.
    fn call_in(&self, stashes: &mut [Locked<'_>]) -> u64 {
        let mut live = 0;
        for own in stashes {
            *own.credit = 0;
            let caches = own.inner.caches_mut();
            for cache in caches.filter(|cache| cache.meter == self.key) {
                cache.credit = cache.live;
                *own.credit += cache.live;
            }
            live += *own.credit;
        }
        live
    }

    /// Enough for all that is cached there, if there is that much; how much it was.
    fn grant(&self, own: &mut Locked<'_>, key: PoolKey, spare: u64) -> u64 {
        let cache = own.inner.cache_mut(key);
        let Some(cache) = cache.filter(|cache| cache.meter == self.key) else {
            return 0;
        };
        let grant = spare.min((cache.live + cache.cached).saturating_sub(cache.credit));
        cache.credit += grant;
        *own.credit += grant;
        grant
    }
}

impl Level {
    /// What may be granted without a rise of the high.
    fn spare(&self) -> u64 {
        debug_assert!(
            self.base + self.granted <= self.high,
            "granted beyond the high"
        );
        self.high - self.base - self.granted
    }

    /// Where the stash is, or would be.
    fn find(&self, stash: &Stash) -> Result<usize, usize> {
        let lane = |own: &Member| own.stash.lane();
        self.members.binary_search_by_key(&stash.lane(), lane)
    }
}

impl Member {
    fn lock(&mut self) -> Locked<'_> {
        Locked {
            inner: self.stash.lock(),
            credit: &mut self.credit,
        }
    }
}

/// A stash that nobody else changes, with its credit.
struct Locked<'a> {
    inner: BriefGuard<'a, Inner>,
    credit: &'a mut u64,
}

/// All who have credit, whom nobody else changes. Room for as many queues as programs have; more take a call
/// for memory.
struct All<'a> {
    stashes: SmallVec<[Locked<'a>; 8]>,
    joints: SmallVec<[BriefGuard<'a, Joint>; 2]>,
}

impl<'a> All<'a> {
    fn lock(members: &'a mut [Member], joints: &'a [Shared]) -> Self {
        Self {
            stashes: members.iter_mut().map(Member::lock).collect(),
            joints: joints.iter().map(|joint| joint.lock()).collect(),
        }
    }
}

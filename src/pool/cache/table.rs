//! The cache table: which stream cache has which block of a pool.
//!
//! Owns the list of stream caches that have blocks of the pool, its replay plans and its relocated blocks. To
//! the heap a block of a cache is live, whatever the cache does with it. Guarded by the pool's lock.

mod owners;
mod replay;

use crate::pool::cache::usage::Usage;
use crate::pool::cache::{Inner, Lent, PoolKey, StreamCache};
use crate::pool::heap::Store;
use crate::pool::heap::aliases::AddressAliases;
use crate::pool::heap::segments::{NIL, SegId};
use crate::pool::options::MAX_IDLE_STREAMS;
use crate::pool::options::Options;
use crate::pool::provider::Slab;
use crate::pool::replay::{Backoff, LiveTraces};
use crate::pool::request::{Block, Config};
use crate::pool::stats::Counters;
use crate::timeline::{Frontier, Lane, LaneId};
pub(crate) use owners::{Owner, Owners};
use replay::{ActivePlan, PreparedPlan, Relocated, Sharing};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct CacheTable {
    options: Options,
    min_align: u64,
    key: PoolKey,
    usage: Arc<Usage>,
    /// Segments name them by their numbers.
    owners: Owners,
    /// The owner that got a block last.
    recent: usize,
    /// Requests since the last look for idle caches.
    asked: usize,
    /// Blocks on their way back; empty between calls.
    recalled: Vec<Lent>,
    plans: Vec<ActivePlan>,
    /// The shared plan that begins with its first request.
    prepared: Option<PreparedPlan>,
    traces: LiveTraces,
    backoff: Backoff,
    sharing: Sharing,
    /// Live blocks that lie elsewhere than their addresses say, by address.
    relocated: BTreeMap<u64, Relocated>,
    /// Addresses that memory has left.
    pub aliases: AddressAliases,
    /// Counted by caches and plans that are gone.
    served: Counters,
}

impl CacheTable {
    pub fn new(key: PoolKey, usage: Arc<Usage>, config: &Config) -> Self {
        Self {
            options: config.options,
            min_align: config.min_align,
            key,
            usage,
            owners: Owners::default(),
            recent: 0,
            asked: 0,
            recalled: Vec::new(),
            plans: Vec::new(),
            prepared: None,
            traces: LiveTraces::default(),
            backoff: Backoff::default(),
            sharing: Sharing::default(),
            relocated: BTreeMap::new(),
            aliases: AddressAliases::default(),
            served: Counters::default(),
        }
    }

    /// Counts a block of the heap that becomes live, and gives it to `cache`.
    pub fn insert(
        &mut self,
        store: &mut Store,
        (seg, block): (SegId, &Block),
        cache: Option<&Arc<StreamCache>>,
    ) {
        let Some(cache) = cache else {
            self.usage.alloc(block);
            return;
        };
        let slot = self.slot(store, cache);
        let insert = |inner: &mut Inner| inner.insert(self.key, block, seg, &mut self.backoff);
        if self.usage.alloc_in(cache, block, insert) {
            store.segments.set_live(seg, block.requested, slot);
        }
    }

    /// Memory is at `to` now; work that was submitted before `death` still uses its old address.
    pub fn moved(&mut self, from: Slab, to: u64, death: Frontier) {
        self.prepared = None;
        self.sharing.mix();
        self.aliases.add(from, to, death);
    }

    /// Frees the live block that starts at `addr`, if there is one.
    pub fn release(&mut self, store: &mut Store, addr: u64, death: Frontier) -> Option<Block> {
        let Some((block, slot)) = store.live_around(addr) else {
            return self.release_elsewhere(store, addr, &death);
        };
        if block.addr != addr {
            return None;
        }
        let (mut requested, mut ends_all) = (block.requested, false);
        match self.cache(slot) {
            Some(cache) => {
                let lent;
                (lent, ends_all) = cache.lock().remove_live(addr)?;
                requested = lent.requested;
            }
            None => self.usage.free(block.bytes),
        }
        store.free(addr, death);
        if ends_all {
            self.end_iteration();
        }
        Some(Block { requested, ..block })
    }

    /// The live block that holds `addr`.
    pub fn find(&self, store: &Store, addr: u64) -> Option<Block> {
        let Some((block, slot)) = store.live_around(addr) else {
            return self.find_elsewhere(addr);
        };
        let Some(cache) = self.cache(slot) else {
            return Some(block);
        };
        let lent = cache.lock().find(block.addr);
        let lent = lent.filter(|lent| lent.died.is_none())?;
        Some(Block {
            requested: lent.requested,
            ..block
        })
    }

    /// Takes back what is cached by the lanes that `of` names, if `wanted` wants it given its oldest death: in
    /// blocks of at least `least` bytes, where all together are at least `all`. True if there was any.
    pub fn recall(
        &mut self,
        store: &mut Store,
        (all, least): (u64, u64),
        of: impl Fn(LaneId) -> bool,
        wanted: impl Fn(&StreamCache, u64) -> bool,
    ) -> bool {
        let mut found = false;
        let mut next = 0;
        while let Some(slot) = self.owners.next_from(next) {
            next = slot + 1;
            let named = self.owners.get(slot);
            let named = named.filter(|own| of(own.cache.lane()));
            let Some(Owner { cache, .. }) = named else {
                continue;
            };
            let mut inner = cache.lock();
            if inner.is_retired() {
                drop(inner);
                found |= self.forget(store, slot);
                continue;
            }
            let own = inner.cache(self.key);
            if own.is_some_and(|own| own.cached >= all && wanted(cache, own.oldest)) {
                inner.recall(self.key, least, &mut self.recalled);
                drop(inner);
                found |= !self.recalled.is_empty();
                put_back(store, cache, self.recalled.drain(..));
            }
        }
        found
    }

    /// Takes back one block that a lane caches and that suits a request for so many bytes.
    pub fn recall_one(&mut self, store: &mut Store, lane: LaneId, bytes: u64) {
        let slot = self.owners.find(lane);
        let Some(Owner { cache, .. }) = slot.and_then(|slot| self.owners.get(slot)) else {
            return;
        };
        let found = cache.lock().recall_one(self.key, bytes);
        if let Some(lent) = found {
            put_back(store, cache, [lent]);
        }
    }

    /// How many streams it remembers.
    #[cfg(all(test, not(loom)))]
    pub fn streams(&self) -> usize {
        self.owners.len()
    }

    /// Reports that a lane makes a request that its cache did not serve.
    pub fn asks(&mut self, lane: &Lane) {
        let slot = self.owners.find(lane.id());
        if let Some(own) = slot.and_then(|slot| self.owners.get_mut(slot)) {
            own.asked = true;
        }
    }

    /// Whether each block that is lent is one of its cache's.
    #[cfg(any(test, feature = "oracle"))]
    pub fn audit(&self, store: &Store) -> Result<(), String> {
        for (seg, addr, slot) in store.lent() {
            let owner = self.cache(slot);
            let owner = owner.ok_or_else(|| format!("{addr:#x} is in no cache"))?;
            let own = owner.lock().find(addr).is_some_and(|lent| lent.seg == seg);
            if !own {
                return Err(format!("{addr:#x} is unknown to the cache that has it"));
            }
        }
        for own in self.owners.iter() {
            own.cache.lock().audit(self.key)?;
        }
        Ok(())
    }

    /// Takes everything back: the pool lends no more.
    pub fn end(&mut self, store: &mut Store) {
        while let Some(slot) = self.owners.next_from(0) {
            self.forget(store, slot);
        }
    }

    /// Forgets lanes that do nothing, once there are many: their cached blocks are free for all, and their live
    /// blocks the pool's own. A lane that comes back begins anew.
    pub fn forget_idle(&mut self, store: &mut Store) {
        if self.owners.len() <= MAX_IDLE_STREAMS {
            return;
        }
        self.asked += 1;
        if self.asked < MAX_IDLE_STREAMS {
            return;
        }
        self.asked = 0;
        let mut next = 0;
        while let Some(slot) = self.owners.next_from(next) {
            next = slot + 1;
            let Some(own) = self.owners.get(slot) else {
                continue;
            };
            let inner = own.cache.lock();
            let (retired, served) = (inner.is_retired(), inner.served(self.key));
            drop(inner);
            let idle = !own.asked && own.served == served;
            if retired || idle {
                self.forget(store, slot);
            } else if let Some(own) = self.owners.get_mut(slot) {
                (own.asked, own.served) = (false, served);
            }
        }
    }

    /// The counters with what caches and plans have counted.
    pub fn add_to(&self, mut counters: Counters) -> Counters {
        counters += self.served;
        for own in &self.plans {
            counters += own.plan.lock().served;
        }
        for Owner { cache, .. } in self.owners.iter() {
            if let Some(cache) = cache.lock().cache(self.key) {
                counters.own_lane += cache.hits;
                counters.releases += cache.frees;
            }
        }
        counters
    }

    fn cache(&self, slot: u32) -> Option<&Arc<StreamCache>> {
        if slot == NIL {
            return None;
        }
        let owner = self.owners.get(slot as usize)?;
        Some(&owner.cache)
    }

    /// The number of a cache; from now on if it had none.
    fn slot(&mut self, store: &mut Store, cache: &Arc<StreamCache>) -> u32 {
        let recent = self.owners.get(self.recent);
        if recent.is_some_and(|recent| Arc::ptr_eq(&recent.cache, cache)) {
            return self.recent as u32;
        }
        if let Some(own) = cache.lock().cache(self.key) {
            self.recent = own.slot as usize;
            return own.slot;
        }
        let mut next = 0;
        while let Some(slot) = self.owners.next_from(next) {
            next = slot + 1;
            let own = self.owners.get(slot);
            if own.is_some_and(|own| own.cache.lock().is_retired()) {
                self.forget(store, slot);
            }
        }
        let slot = self.owners.insert(Owner::new(cache));
        self.usage.attach(cache);
        let keys = (self.key, self.usage.key());
        let traces = self.options.replay.then_some(&self.traces);
        cache.lock().open(keys, self.min_align, slot as u32, traces);
        slot as u32
    }

    /// Forgets a cache. True if it had something that is free now.
    fn forget(&mut self, store: &mut Store, slot: usize) -> bool {
        let Some(Owner { cache, .. }) = self.owners.remove(slot) else {
            return false;
        };
        let replayed = self.end_plan_of(store, &cache);
        let Some((own, blocks)) = self.usage.detach(&cache, self.key) else {
            return false;
        };
        self.served.own_lane += own.hits;
        self.served.releases += own.frees;
        let cached = blocks.iter().any(|lent| lent.died.is_some());
        put_back(store, &cache, blocks);
        cached || replayed
    }
}

/// Cached blocks are free again for all; live ones are the pool's own.
fn put_back(store: &mut Store, cache: &StreamCache, blocks: impl IntoIterator<Item = Lent>) {
    for lent in blocks {
        match lent.died {
            Some(epoch) => store.free_at(lent.seg, cache.death(epoch)),
            None => store.segments.set_live(lent.seg, lent.requested, NIL),
        }
    }
}

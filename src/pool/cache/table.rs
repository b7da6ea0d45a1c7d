//! The cache table: which stream cache has which block of a pool.
//!
//! Owns the list of stream caches that have blocks of the pool, its replay plans and its relocated blocks. To
//! the heap a block of a cache is live, whatever the cache does with it. Guarded by the pool's lock.

mod replay;

use crate::pool::cache::usage::Usage;
use crate::pool::cache::{Entry, Inner, PoolKey, StreamCache};
use crate::pool::heap::Heap;
use crate::pool::heap::aliases::AddressAliases;
use crate::pool::heap::segments::{Holder, NIL, SegmentId};
use crate::pool::options::{COALESCING_AFTER_MISSES, MAX_IDLE_STREAMS, Options};
use crate::pool::provider::Slab;
use crate::pool::replay::Backoff;
#[cfg(any(test, feature = "oracle"))]
use crate::pool::replay::union;
use crate::pool::request::{Block, Config};
use crate::pool::rounding::Rounding;
use crate::pool::stats::Counters;
use crate::timeline::{Frontier, Lane, LaneId};
use replay::{ActivePlan, PreparedPlan, Relocated, Sharing};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A stream cache that has, or had, blocks of the pool.
#[derive(Debug)]
struct Owner {
    cache: Arc<StreamCache>,
    /// Whether its lane made a request that the cache did not serve since the last look for idle caches, and
    /// what the cache had served by then.
    missed: bool,
    served: u64,
}

#[derive(Debug)]
pub(crate) struct CacheTable {
    options: Options,
    rounding: Rounding,
    /// Whether a stream that is the pool's only one coalesces what dies there.
    may_coalesce: bool,
    key: PoolKey,
    usage: Arc<Usage>,
    owners: BTreeMap<LaneId, Owner>,
    /// Requests that no cache served since the last look for idle caches.
    misses: usize,
    /// Blocks on their way back; empty between calls.
    recalled: Vec<Entry>,
    plans: Vec<ActivePlan>,
    /// The shared plan that begins with its first request.
    prepared: Option<PreparedPlan>,
    /// Referred to by the traces that have live blocks.
    traces: Arc<()>,
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
    pub fn new(key: PoolKey, usage: Arc<Usage>, config: &Config, paged: bool) -> Self {
        Self {
            options: config.options,
            rounding: config.rounding(),
            may_coalesce: paged && config.options.coalescing && !config.options.replay,
            key,
            usage,
            owners: BTreeMap::new(),
            misses: 0,
            recalled: Vec::new(),
            plans: Vec::new(),
            prepared: None,
            traces: Arc::default(),
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
        heap: &mut Heap,
        (seg, block): (SegmentId, &Block),
        cache: Option<&Arc<StreamCache>>,
    ) {
        let Some(cache) = cache else {
            self.usage.alloc(block);
            return;
        };
        self.attach(heap, cache);
        let insert = |inner: &mut Inner| inner.insert(self.key, block, seg, &mut self.backoff);
        if !self.usage.alloc_in(cache, block, insert) {
            return;
        }
        let holder = Holder::Cache(cache.lane());
        heap.segments.set_live(seg, block.requested, holder);
        if self.coalesces() {
            let mut inner = cache.lock();
            for (seg, rest, epoch) in heap.take_own(cache.lane()) {
                heap.segments.set_live(seg, 0, holder);
                inner.insert_coalesced(self.key, &rest, epoch, seg);
            }
        }
    }

    /// Memory is at `to` now; work that was submitted before `death` still uses its old address.
    pub fn moved(&mut self, from: Slab, to: u64, death: Frontier) {
        self.prepared = None;
        self.sharing.mix();
        self.aliases.add(from, to, death);
    }

    /// Frees the live block that starts at `addr`, if there is one.
    pub fn release(&mut self, heap: &mut Heap, addr: u64, death: Frontier) -> Option<Block> {
        let Some((mut id, mut block, holder)) = heap.block_around(addr) else {
            return self.release_elsewhere(heap, addr, &death);
        };
        let mut ends_all = false;
        match self.cache(holder) {
            Some(cache) => {
                let own;
                (own, ends_all) = cache.lock().remove_live(addr)?;
                block = own.block;
                id = heap.segments.live_as_one(own.seg, own.block.range());
            }
            None if block.addr != addr => return None,
            None => self.usage.free(block.bytes),
        }
        heap.free(id, death);
        if ends_all {
            self.end_iteration();
        }
        Some(block)
    }

    /// The live block that holds `addr`.
    pub fn find(&self, heap: &Heap, addr: u64) -> Option<Block> {
        let Some((mut id, block, holder)) = heap.block_around(addr) else {
            return self.find_elsewhere(addr);
        };
        let Some(cache) = self.cache(holder) else {
            return Some(block);
        };
        let inner = cache.lock();
        let mut own = inner.find(addr);
        // A cache that coalesced has other bounds than the heap. The first of adjacent segments begins a block in both.
        while own.is_none() && id != NIL {
            let seg = heap.segments.seg(id);
            own = inner.find_behind(seg.addr, addr);
            id = seg.prev;
        }
        own.filter(|own| own.died().is_none()).map(|own| own.block)
    }

    /// Takes back what is cached by the lanes that `of` names, if `wanted` wants it given its oldest death: in
    /// blocks of at least `least` bytes, where all together are at least `all`. True if there was any.
    pub fn recall(
        &mut self,
        heap: &mut Heap,
        (all, least): (u64, u64),
        of: impl Fn(LaneId) -> bool,
        wanted: impl Fn(&StreamCache, u64) -> bool,
    ) -> bool {
        debug_assert!(self.recalled.is_empty(), "blocks that were not returned");
        let (mut found, mut retired) = (false, Vec::new());
        for (lane, Owner { cache, .. }) in self.owners.iter().filter(|(lane, _)| of(**lane)) {
            let mut inner = cache.lock();
            if inner.is_retired() {
                retired.push(*lane);
                continue;
            }
            let own = inner.cache(self.key);
            if own.is_some_and(|own| own.cached >= all && wanted(cache, own.oldest)) {
                inner.recall(self.key, least, &mut self.recalled);
                drop(inner);
                found |= !self.recalled.is_empty();
                return_blocks(heap, cache, self.recalled.drain(..));
            }
        }
        for lane in retired {
            found |= self.forget(heap, lane);
        }
        found
    }

    /// Takes back one block that a lane caches and that suits a request for so many bytes.
    pub fn recall_one(&mut self, heap: &mut Heap, lane: LaneId, bytes: u64) {
        if let Some(Owner { cache, .. }) = self.owners.get(&lane) {
            let found = cache.lock().recall_one(self.key, bytes);
            return_blocks(heap, cache, found);
        }
    }

    /// How many streams it remembers.
    #[cfg(all(test, not(loom)))]
    pub fn streams(&self) -> usize {
        self.owners.len()
    }

    /// Reports that a lane makes a request that its cache did not serve.
    pub fn record_miss(&mut self, lane: &Lane) {
        if let Some(own) = self.owners.get_mut(&lane.id()) {
            own.missed = true;
        }
    }

    /// Whether each block that the heap has as a cache's is there.
    #[cfg(any(test, feature = "oracle"))]
    pub fn audit(&self, heap: &Heap) -> Result<(), String> {
        let mut held: BTreeMap<LaneId, Vec<Slab>> = BTreeMap::new();
        for (seg, range, lane) in heap.cached() {
            let owner = self.cache(Holder::Cache(lane));
            let owner = owner.ok_or_else(|| format!("{range:?} is in no cache"))?;
            let own = owner.lock().find(range.base);
            if !self.may_coalesce && own.is_none_or(|own| own.seg != seg) {
                return Err(format!("{range:?} is unknown to the cache that has it"));
            }
            held.entry(lane).or_default().push(range);
        }
        for (lane, own) in &self.owners {
            let of_heap = union(held.remove(lane).unwrap_or_default());
            let of_cache = union(own.cache.lock().ranges(self.key));
            if of_heap != of_cache {
                return Err(format!("{of_heap:?} is a cache's, which has {of_cache:?}"));
            }
        }
        for own in self.owners.values() {
            own.cache.lock().audit(self.key)?;
        }
        Ok(())
    }

    /// Takes everything back: the pool lends no more.
    pub fn end(&mut self, heap: &mut Heap) {
        while let Some((lane, _)) = self.owners.first_key_value() {
            self.forget(heap, *lane);
        }
    }

    /// Forgets lanes that do nothing, once there are many, or once there are two where one could coalesce: their
    /// cached blocks are free for all, and their live blocks the pool's own. A lane that comes back begins anew.
    pub fn forget_idle(&mut self, heap: &mut Heap) {
        let (streams, misses) = match self.may_coalesce {
            true => (1, COALESCING_AFTER_MISSES),
            false => (MAX_IDLE_STREAMS, MAX_IDLE_STREAMS),
        };
        if self.owners.len() <= streams {
            return;
        }
        self.misses += 1;
        if self.misses < misses {
            return;
        }
        self.misses = 0;
        let mut idle = Vec::new();
        for (lane, own) in &mut self.owners {
            let inner = own.cache.lock();
            let served = inner.served(self.key);
            let busy = std::mem::take(&mut own.missed) | (own.served != served);
            own.served = served;
            if inner.is_retired() || !busy {
                idle.push(*lane);
            }
        }
        for lane in idle {
            self.forget(heap, lane);
        }
    }

    /// The counters with what caches and plans have counted.
    pub fn add_to(&self, mut counters: Counters) -> Counters {
        counters += self.served;
        for own in &self.plans {
            counters += own.plan.lock().served;
        }
        for Owner { cache, .. } in self.owners.values() {
            if let Some(cache) = cache.lock().cache(self.key) {
                counters.own_lane += cache.hits;
                counters.releases += cache.frees;
            }
        }
        counters
    }

    fn cache(&self, holder: Holder) -> Option<&Arc<StreamCache>> {
        match holder {
            Holder::Cache(lane) => Some(&self.owners.get(&lane)?.cache),
            Holder::Program | Holder::Plan => None,
        }
    }

    /// Whether the pool's stream coalesces.
    pub fn coalesces(&self) -> bool {
        self.may_coalesce && self.owners.len() == 1
    }

    /// Has streams coalesce or not, after one more or less uses the pool.
    fn set_coalescing(&mut self, heap: &mut Heap) {
        if !self.may_coalesce {
            return;
        }
        let coalesces = self.coalesces();
        for Owner { cache, .. } in self.owners.values() {
            let mut inner = cache.lock();
            inner.recall(self.key, 0, &mut self.recalled);
            inner.set_coalescing(self.key, coalesces);
            drop(inner);
            return_blocks(heap, cache, self.recalled.drain(..));
        }
    }

    /// Makes a stream cache one of the pool's, if it is not.
    fn attach(&mut self, heap: &mut Heap, cache: &Arc<StreamCache>) {
        if let Some(own) = self.owners.get(&cache.lane()) {
            debug_assert!(Arc::ptr_eq(&own.cache, cache), "a lane with two caches");
            return;
        }
        // Takes no block back, and forgets the caches of lanes that ended.
        self.recall(heap, (u64::MAX, 0), |_| true, |_, _| false);
        let owner = Owner {
            cache: Arc::clone(cache),
            missed: true,
            served: 0,
        };
        self.owners.insert(cache.lane(), owner);
        self.usage.attach(cache);
        let keys = (self.key, self.usage.key());
        let traces = self.options.replay.then(|| Arc::downgrade(&self.traces));
        cache.lock().open(keys, self.rounding, traces);
        self.set_coalescing(heap);
    }

    /// Forgets a cache. True if it had something that is free now.
    fn forget(&mut self, heap: &mut Heap, lane: LaneId) -> bool {
        let Some(Owner { cache, .. }) = self.owners.remove(&lane) else {
            return false;
        };
        let replayed = self.end_plan_of(heap, &cache);
        let Some((own, blocks)) = self.usage.detach(&cache, self.key) else {
            return false;
        };
        self.served.own_lane += own.hits;
        self.served.releases += own.frees;
        let cached = blocks.iter().any(|own| own.died().is_some());
        return_blocks(heap, &cache, blocks);
        self.set_coalescing(heap);
        cached || replayed
    }
}

/// Cached blocks are free again for all; live ones are the pool's own.
fn return_blocks(heap: &mut Heap, cache: &StreamCache, blocks: impl IntoIterator<Item = Entry>) {
    for own in blocks {
        let seg = heap.segments.live_as_one(own.seg, own.block.range());
        match own.died() {
            Some(epoch) => heap.free(seg, cache.death(epoch)),
            None => {
                let holder = Holder::Program;
                heap.segments.set_live(seg, own.block.requested, holder);
            }
        }
    }
}

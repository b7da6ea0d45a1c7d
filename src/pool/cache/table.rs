//! Who of the lanes has what of a pool: its side of the stashes.
//!
//! Owns the list of stashes that the pool lent to. To the store a lent block is live, whatever the
//! stash does with it. Kept under the pool's lock.

mod owners;
mod replay;
mod shared_replay;

use crate::pool::cache::usage::Meter;
use crate::pool::cache::{Cache, Lent, PoolKey, Stash};
use crate::pool::heap::Store;
use crate::pool::heap::aliases::AddressAliases;
use crate::pool::heap::segments::{NIL, SegId};
use crate::pool::options::MAX_IDLE_STREAMS;
use crate::pool::options::Options;
use crate::pool::replay::{Busy, Patience};
use crate::pool::request::Block;
use crate::pool::source::Slab;
use crate::pool::stats::Counters;
use crate::timeline::{Frontier, Lane, LaneId};
pub(crate) use owners::{Borrower, Borrowers};
use replay::Stray;
use shared_replay::{Ensemble, Prepared, Turns};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Lending {
    options: Options,
    key: PoolKey,
    meter: Arc<Meter>,
    /// Segments name them by place.
    stashes: Borrowers,
    /// The one lent to last.
    recent: usize,
    /// Requests since idle ones were looked for.
    asked: usize,
    /// Blocks on their way back; empty in between.
    back: Vec<Lent>,
    /// How many stashes have a plan.
    plans: usize,
    /// The plan that some may have together, and the one that they have.
    prepared: Option<Prepared>,
    ensemble: Option<Ensemble>,
    /// How many lanes have something live of what they did of late.
    busy: Busy,
    /// How they are to prove themselves before the next.
    patience: Patience,
    turns: Turns,
    /// Live blocks that lie elsewhere than their addresses say.
    strays: BTreeMap<u64, Stray>,
    /// Addresses that memory has left.
    pub aliases: AddressAliases,
    /// Counted by stashes that are gone.
    hits: u64,
    frees: u64,
    planned: u64,
    /// The same by joint plans that are gone.
    served: Counters,
    /// Plans that were made, of one lane and of several.
    made: u64,
    joined: u64,
}

impl Lending {
    pub fn new(key: PoolKey, meter: Arc<Meter>, options: Options) -> Self {
        Self {
            options,
            key,
            meter,
            stashes: Borrowers::default(),
            recent: 0,
            asked: 0,
            back: Vec::new(),
            plans: 0,
            prepared: None,
            ensemble: None,
            busy: Busy::default(),
            patience: Patience::default(),
            turns: Turns::default(),
            strays: BTreeMap::new(),
            aliases: AddressAliases::default(),
            hits: 0,
            frees: 0,
            planned: 0,
            served: Counters::default(),
            made: 0,
            joined: 0,
        }
    }

    /// Counts a block that becomes live, and lends it to `stash`.
    pub fn take(
        &mut self,
        store: &mut Store,
        (seg, block): (SegId, &Block),
        stash: Option<&Arc<Stash>>,
        min_align: u64,
    ) {
        let Some(stash) = stash else {
            self.meter.take(block, None);
            return;
        };
        let slot = self.slot(store, stash, min_align);
        if self.meter.take(block, Some((stash, self.key, seg))) {
            store.segments.set_live(seg, block.requested, slot);
        }
    }

    /// Memory is at `to` now; what was enqueued before `death` still uses its old address.
    pub fn moved(&mut self, from: Slab, to: u64, death: Frontier) {
        self.prepared = None;
        self.turns.meet();
        self.aliases.add(from, to, death);
    }

    /// Frees the live block that starts at `addr`, if there is one.
    pub fn release(&mut self, store: &mut Store, addr: u64, death: Frontier) -> Option<Block> {
        let Some((block, slot)) = store.live_around(addr) else {
            return self.release_far(store, addr, &death);
        };
        if block.addr != addr {
            return None;
        }
        let (mut requested, mut ends_all) = (block.requested, false);
        match self.stash(slot) {
            Some(stash) => {
                let lent;
                (lent, ends_all) = stash.lock().drop_live(addr)?;
                requested = lent.requested;
            }
            None => self.meter.put(block.bytes),
        }
        store.free(addr, death);
        if ends_all {
            self.end_lap();
        }
        Some(Block { requested, ..block })
    }

    /// The live block that holds `addr`.
    pub fn look(&self, store: &Store, addr: u64) -> Option<Block> {
        let Some((block, slot)) = store.live_around(addr) else {
            return self.look_far(addr);
        };
        let Some(stash) = self.stash(slot) else {
            return Some(block);
        };
        let lent = stash.lock().look(block.addr);
        let lent = lent.filter(|lent| lent.died.is_none())?;
        Some(Block {
            requested: lent.requested,
            ..block
        })
    }

    /// Takes back what is cached by the lanes that `of` names, if `wanted` wants it given its oldest
    /// death: in blocks of at least `least` bytes, where all together are at least so many. True if
    /// there was any.
    pub fn recall(
        &mut self,
        store: &mut Store,
        (all, least): (u64, u64),
        of: impl Fn(LaneId) -> bool,
        wanted: impl Fn(&Stash, u64) -> bool,
    ) -> bool {
        let mut found = false;
        let mut next = 0;
        while let Some(slot) = self.stashes.from(next) {
            next = slot + 1;
            let named = self.stashes.get(slot);
            let named = named.filter(|own| of(own.stash.lane()));
            let Some(Borrower { stash, .. }) = named else {
                continue;
            };
            let mut inner = stash.lock();
            if inner.is_retired() {
                drop(inner);
                found |= self.forget(store, slot);
                continue;
            }
            let worth = |own: &Cache| own.cached >= all && wanted(stash, own.oldest);
            if !inner.cache(self.key).is_some_and(worth) {
                continue;
            }
            inner.recall(self.key, least, &mut self.back);
            let planned = inner.has_plan(self.key);
            drop(inner);
            found |= !self.back.is_empty() || planned;
            put_back(store, stash, self.back.drain(..));
            if planned {
                self.turns.meet();
                self.end_plan(store, slot);
            }
        }
        found
    }

    /// Takes back one block that a lane caches and that suits a request for so many bytes.
    pub fn recall_one(&mut self, store: &mut Store, lane: LaneId, bytes: u64) {
        let slot = self.stashes.find(lane);
        let Some(Borrower { stash, .. }) = slot.and_then(|slot| self.stashes.get(slot)) else {
            return;
        };
        let found = stash.lock().recall_one(self.key, bytes);
        if let Some(lent) = found {
            put_back(store, stash, [lent]);
        }
    }

    /// How many streams it remembers.
    #[cfg(all(test, not(loom)))]
    pub fn streams(&self) -> usize {
        self.stashes.len()
    }

    /// Notes that a lane makes a request.
    pub fn saw(&mut self, lane: &Lane) {
        let slot = self.stashes.find(lane.id());
        if let Some(own) = slot.and_then(|slot| self.stashes.get_mut(slot)) {
            own.asked = true;
        }
    }

    /// Whether each block that is lent is one of its cache's.
    #[cfg(any(test, feature = "oracle"))]
    pub fn audit(&self, store: &Store) -> Result<(), String> {
        for (seg, addr, slot) in store.lent() {
            let owner = self.stash(slot);
            let owner = owner.ok_or_else(|| format!("{addr:#x} is lent to nobody"))?;
            let own = owner.lock().look(addr).is_some_and(|lent| lent.seg == seg);
            if !own {
                return Err(format!("{addr:#x} is unknown to the cache that has it"));
            }
        }
        for own in self.stashes.iter() {
            own.stash.lock().audit(self.key)?;
        }
        Ok(())
    }

    /// Takes everything back: the pool lends no more.
    pub fn end(&mut self, store: &mut Store) {
        while let Some(slot) = self.stashes.from(0) {
            self.forget(store, slot);
        }
    }

    /// Forgets lanes that do nothing, once there are many: what they cached is free for all, and their live
    /// blocks are no longer lent. A lane that comes back is lent to anew.
    pub fn tidy(&mut self, store: &mut Store) {
        if self.stashes.len() <= MAX_IDLE_STREAMS {
            return;
        }
        self.asked += 1;
        if self.asked < MAX_IDLE_STREAMS {
            return;
        }
        self.asked = 0;
        let mut next = 0;
        while let Some(slot) = self.stashes.from(next) {
            next = slot + 1;
            let Some(own) = self.stashes.get(slot) else {
                continue;
            };
            let inner = own.stash.lock();
            let retired = inner.is_retired();
            let served = inner.cache(self.key).map_or(0, |own| own.hits + own.frees);
            drop(inner);
            let idle = !own.asked && own.served == served && !self.is_joined(&own.stash);
            if retired || idle {
                self.forget(store, slot);
            } else if let Some(own) = self.stashes.get_mut(slot) {
                (own.asked, own.served) = (false, served);
            }
        }
    }

    /// The counters with what stashes have counted.
    pub fn add_to(&self, mut counters: Counters) -> Counters {
        counters += self.served;
        counters += self.served_jointly();
        counters.own_lane += self.hits;
        counters.releases += self.frees;
        counters.planned += self.planned;
        counters.plans += self.made + self.joined;
        counters.joint_plans += self.joined;
        for Borrower { stash, .. } in self.stashes.iter() {
            if let Some(cache) = stash.lock().cache(self.key) {
                counters.own_lane += cache.hits;
                counters.releases += cache.frees;
                counters.planned += cache.planned;
            }
        }
        counters
    }

    fn stash(&self, slot: u32) -> Option<&Arc<Stash>> {
        if slot == NIL {
            return None;
        }
        let borrower = self.stashes.get(slot as usize)?;
        Some(&borrower.stash)
    }

    /// Where the stash is kept; from now on if it was not.
    fn slot(&mut self, store: &mut Store, stash: &Arc<Stash>, min_align: u64) -> u32 {
        let recent = self.stashes.get(self.recent);
        if recent.is_some_and(|recent| Arc::ptr_eq(&recent.stash, stash)) {
            return self.recent as u32;
        }
        if let Some(cache) = stash.lock().cache(self.key) {
            self.recent = cache.slot as usize;
            return cache.slot;
        }
        let mut next = 0;
        while let Some(slot) = self.stashes.from(next) {
            next = slot + 1;
            let own = self.stashes.get(slot);
            if own.is_some_and(|own| own.stash.lock().is_retired()) {
                self.forget(store, slot);
            }
        }
        let slot = self.stashes.insert(Borrower::new(stash));
        self.meter.attach(stash);
        let keys = (self.key, self.meter.key());
        let busy = self.options.replay.then_some(&self.busy);
        stash.lock().open(keys, min_align, slot as u32, busy);
        slot as u32
    }

    /// True if something was cached there.
    fn forget(&mut self, store: &mut Store, slot: usize) -> bool {
        let mut planned = self.end_plan(store, slot);
        let Some(Borrower { stash, .. }) = self.stashes.remove(slot) else {
            return false;
        };
        if self.is_joined(&stash) {
            planned |= self.end_joint(store);
        }
        let Some((cache, blocks)) = self.meter.detach(&stash, self.key) else {
            return false;
        };
        self.hits += cache.hits;
        self.frees += cache.frees;
        self.planned += cache.planned;
        let cached = blocks.iter().any(|lent| lent.died.is_some());
        put_back(store, &stash, blocks);
        cached || planned
    }
}

/// Cached blocks are free again for all; live ones are no longer lent.
fn put_back(store: &mut Store, stash: &Stash, blocks: impl IntoIterator<Item = Lent>) {
    for lent in blocks {
        match lent.died {
            Some(epoch) => store.free_at(lent.seg, stash.death(epoch)),
            None => store.segments.set_live(lent.seg, lent.requested, NIL),
        }
    }
}

//! How replay plans get their memory, and what becomes of it when they end.
//!
//! The memory of a plan is some ranges, at their present addresses, which the heap holds as if they were
//! live. When the plan ends, each part is free with the death of its last use, or live as the block that is
//! there now. A live block whose memory has left its address is relocated: no stream cache has it, and its
//! memory stays where it is until it is freed.

use crate::pool::cache::table::{CacheTable, Owner, return_blocks};
use crate::pool::cache::{Miss, StreamCache};
use crate::pool::heap::Heap;
use crate::pool::heap::aliases::AddressAliases;
use crate::pool::heap::range_map::RangeMap;
use crate::pool::heap::search;
use crate::pool::heap::segments::{Holder, SegmentId};
use crate::pool::options::LONG_ITERATION_ALLOCATIONS;
use crate::pool::provider::Slab;
use crate::pool::replay::{
    Held, Iteration, NEVER, Participant, Plan, SharedPlan, is_shared, ranges, union,
};
use crate::pool::request::{Block, Order, Request, Reuse};
use crate::sync::Brief;
use crate::timeline::{Frontier, LaneId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A plan that serves, and the caches of its participants.
#[derive(Debug)]
pub(super) struct ActivePlan {
    pub plan: SharedPlan,
    caches: Vec<Arc<StreamCache>>,
}

impl ActivePlan {
    fn participant(&self, lane: LaneId) -> Option<u32> {
        let at = self.caches.iter().position(|own| own.lane() == lane)?;
        Some(at as u32)
    }
}

/// A plan without memory: it begins when its first request comes.
#[derive(Debug)]
pub(super) struct PreparedPlan {
    caches: Vec<Arc<StreamCache>>,
    iterations: Vec<Iteration>,
    memory: Vec<Slab>,
    /// Made while the host waits, or when the plan begins: a program that does not repeat itself never pays for it.
    plan: Option<Plan>,
}

impl PreparedPlan {
    /// Whether the plan's first request is for so many bytes on the cache's lane.
    fn begins(&self, cache: &StreamCache, requested: u64) -> bool {
        let starts = self.iterations.iter().map(Iteration::start);
        let first = starts.zip(&self.caches).min_by_key(|(start, _)| *start);
        first.is_some_and(|(start, own)| own.lane() == cache.lane() && start.requested == requested)
    }

    fn allocations(&self) -> u64 {
        let blocks = self.iterations.iter().map(|own| own.blocks.len() as u64);
        blocks.sum()
    }

    /// Makes the plan, unless it was made before.
    fn make(&mut self, aliases: &AddressAliases) -> Plan {
        let find = |block: &Block, slabs: &mut Vec<Slab>| aliases.resolve(block.range(), slabs);
        self.plan.take().unwrap_or_else(|| {
            let clocks = self.caches.iter().map(|own| Arc::clone(own.clock()));
            Plan::new(clocks.collect(), &self.iterations, find)
        })
    }
}

/// A live block that lies elsewhere than its address says.
#[derive(Debug)]
pub(super) struct Relocated {
    pub block: Block,
    pub segs: Vec<SegmentId>,
}

/// Whether streams may have the same memory in turn. Memory that has completed is anybody's, and its last
/// owner is not known.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// The last lane that got what its cache did not have, and whether others did in this iteration.
    last: Option<LaneId>,
    several: bool,
    /// In the iteration before, each lane had memory of its own.
    apart: bool,
}

impl Sharing {
    /// A lane gets what its cache did not have. True if another lane may have had it, if it has completed.
    fn allocate(&mut self, lane: LaneId) -> bool {
        self.several |= self.last.replace(lane).is_some_and(|last| last != lane);
        self.several && !self.apart
    }

    fn end_iteration(&mut self) {
        (self.last, self.several) = (None, false);
    }

    /// Memory of one lane becomes another's.
    pub fn mix(&mut self) {
        self.apart = false;
    }
}

impl CacheTable {
    /// Serves a request that the lane's cache did not serve from its plan, or from one that begins with it.
    pub fn replay(
        &mut self,
        heap: &mut Heap,
        cache: &Arc<StreamCache>,
        request: &Request<'_>,
    ) -> Option<(Block, Reuse)> {
        let served = self.replay_next(heap, cache, request);
        if served.is_none() && self.begin_plan(heap, cache, &request.order, Some(request.bytes)) {
            return self.replay_next(heap, cache, request);
        }
        served
    }

    /// Serves the next request of a lane's plan. If it is another, the plan ends.
    fn replay_next(
        &mut self,
        heap: &mut Heap,
        cache: &Arc<StreamCache>,
        request: &Request<'_>,
    ) -> Option<(Block, Reuse)> {
        let (at, index) = self.plan_of(cache)?;
        let order = &request.order;
        let plan = &self.plans[at].plan;
        let alloc = || plan.lock().allocate(index, request.bytes, Some(order));
        let is_own = request.align <= 1 && order.own_lane() == Some(cache.lane());
        let mut served = if is_own { alloc() } else { Err(Miss::NoBlock) };
        if let Err(Miss::NoQuota(_)) = served {
            self.usage.raise_plan(plan);
            served = alloc();
        }
        match served {
            Ok((block, _, reuse)) => Some((block, reuse)),
            Err(_) => {
                self.end_plan(heap, at);
                None
            }
        }
    }

    /// Begins a plan, if a request that the lane's cache did not serve, or the absence of one while the host
    /// waits, allows it. True if the cache may serve the request now.
    pub fn begin_plan(
        &mut self,
        heap: &mut Heap,
        cache: &Arc<StreamCache>,
        order: &Order<'_>,
        requested: Option<u64>,
    ) -> bool {
        if order.own_lane() != Some(cache.lane()) || !cache.lock().is_traced(self.key) {
            return false;
        }
        if let Some(bytes) = requested
            && let Some(prepared) = self.prepared.take()
        {
            let begins = prepared.begins(cache, bytes);
            if !begins {
                self.abandon(&prepared);
            }
            // Once all its memory has completed, no participant has to wait, whoever is first.
            return begins && self.activate(heap, prepared, &Order::Sync);
        }
        if requested.is_none() && self.end_iteration() {
            if let Some(prepared) = &mut self.prepared {
                prepared.plan = Some(prepared.make(&self.aliases));
            }
            return false;
        }
        let Some(iteration) = cache.lock().repeated(self.key) else {
            return false;
        };
        let memory = self.memory_of(&iteration.blocks);
        let prepared = PreparedPlan {
            caches: vec![Arc::clone(cache)],
            iterations: vec![iteration],
            memory,
            plan: None,
        };
        self.activate(heap, prepared, order)
    }

    /// Whether a prepared plan begins with such a request.
    pub fn may_begin_shared(&self, cache: &StreamCache, requested: u64) -> bool {
        let prepared = self.prepared.as_ref();
        prepared.is_some_and(|prepared| prepared.begins(cache, requested))
    }

    /// Whether the shared plan that waits for its first request is made; none without one.
    #[cfg(all(test, not(loom)))]
    pub fn prepared_plan(&self) -> Option<bool> {
        Some(self.prepared.as_ref()?.plan.is_some())
    }

    /// Reports that a lane got what its cache did not have.
    pub fn record_served(&mut self, cache: &StreamCache, reuse: Reuse) {
        if self.options.shared_replay
            && self.sharing.allocate(cache.lane())
            && reuse == Reuse::Completed
            && let Some(trace) = cache.lock().trace_mut(self.key)
        {
            trace.share();
        }
    }

    /// Ends the iteration of all traced streams, if nothing is live of it, and prepares a plan of it. True if
    /// they had the same memory in turn, which no plan of one stream can give them again.
    pub(super) fn end_iteration(&mut self) -> bool {
        if self.plans.iter().any(|own| own.caches.len() > 1) {
            return false;
        }
        let (mut shared, mut ops, mut ended) = (0, 0, true);
        let mut caches = self.owners.values().map(|own| own.cache.lock());
        let at_rest = caches.all(|own| {
            own.trace(self.key).is_none_or(|trace| {
                shared += trace.shared();
                ops += trace.iteration_ops();
                ended &= trace.is_ended();
                trace.is_at_rest()
            })
        });
        drop(caches);
        if !at_rest || ended {
            return at_rest && self.prepared.is_some();
        }
        self.prepared = None;
        self.sharing.end_iteration();
        let (mut caches, mut iterations) = (Vec::new(), Vec::new());
        for own in self.owners.values() {
            let mut inner = own.cache.lock();
            let Some(trace) = inner.trace_mut(self.key) else {
                continue;
            };
            trace.end_iteration();
            if is_shared(shared, ops)
                && let Some(iteration) = trace.ended()
            {
                caches.push(Arc::clone(&own.cache));
                iterations.push(iteration);
            }
        }
        if iterations.len() < 2 {
            return false;
        }
        let mut memory = Vec::new();
        for own in &iterations {
            memory.append(&mut self.memory_of(&own.blocks));
        }
        let bytes = |slabs: &[Slab]| slabs.iter().map(|slab| slab.bytes).sum::<u64>();
        let of_each = bytes(&memory);
        let memory = union(memory);
        if bytes(&memory) == of_each {
            self.sharing.apart = true;
            return false;
        }
        self.prepared = Some(PreparedPlan {
            caches,
            iterations,
            memory,
            plan: None,
        });
        true
    }

    /// Gives a plan its memory, if all of it is free and `order` admits that, and no participant did anything
    /// since. True if the plan serves now. The caches are locked as briefly as can be: other threads may ask
    /// for their blocks.
    fn activate(&mut self, heap: &mut Heap, mut prepared: PreparedPlan, order: &Order<'_>) -> bool {
        let (mut ready, mut plan) = (true, prepared.make(&self.aliases));
        for (own, iteration) in prepared.caches.iter().zip(&prepared.iterations) {
            let mut inner = own.lock();
            ready &= inner.may_replay(self.key, iteration.start());
            inner.recall(self.key, 0, &mut self.recalled);
            drop(inner);
            return_blocks(heap, own, self.recalled.drain(..));
        }
        let free = ready.then(|| search::all_free(heap, &prepared.memory, order));
        let Some(places) = free.flatten() else {
            self.abandon(&prepared);
            return false;
        };
        // Last first: to take a place renames those behind it.
        for (place, slab, parts) in places.into_iter().rev() {
            let seg = heap.hold(place, slab.bytes);
            plan.held.push(Held { slab, seg, parts });
        }
        let shared = u64::from(plan.is_shared());
        let caches = prepared.caches;
        let plan = Arc::new(Brief::new(plan));
        self.usage.attach_plan(&plan);
        for ((index, own), iteration) in (0..).zip(&caches).zip(&prepared.iterations) {
            let plan = Arc::clone(&plan);
            let participant = Participant { plan, index };
            let start = iteration.start();
            ready &= own.lock().begin_replay(self.key, start, participant);
        }
        self.served.replay_plans += 1;
        self.served.shared_plans += shared;
        self.plans.push(ActivePlan { plan, caches });
        if !ready {
            self.end_plan(heap, self.plans.len() - 1);
        }
        ready
    }

    /// A plan did not come to serve: its participants are not traced for a while.
    fn abandon(&mut self, prepared: &PreparedPlan) {
        for own in &prepared.caches {
            own.lock().end_replay(self.key);
        }
        self.backoff.failed(prepared.allocations());
    }

    /// Where the memory of some blocks is now, ascending and without overlap.
    fn memory_of(&self, blocks: &[Block]) -> Vec<Slab> {
        let mut now = Vec::new();
        for slab in ranges(blocks) {
            self.aliases.resolve(slab, &mut now);
        }
        // Several addresses may lead to the same memory.
        union(now)
    }

    /// The plan that a lane replays, and its participant there.
    fn plan_of(&self, cache: &StreamCache) -> Option<(usize, u32)> {
        let mut plans = self.plans.iter().enumerate();
        plans.find_map(|(at, own)| Some((at, own.participant(cache.lane())?)))
    }

    /// Ends the plan that a lane replays. False if there is none.
    pub(super) fn end_plan_of(&mut self, heap: &mut Heap, cache: &StreamCache) -> bool {
        let found = self.plan_of(cache);
        if let Some((at, _)) = found {
            self.end_plan(heap, at);
        }
        found.is_some()
    }

    /// Ends all plans. False if there was none.
    pub fn end_plans(&mut self, heap: &mut Heap) -> bool {
        let found = !self.plans.is_empty();
        self.sharing.mix();
        while !self.plans.is_empty() {
            self.end_plan(heap, self.plans.len() - 1);
        }
        found
    }

    /// Gives the memory of a plan, as it is now, back to the heap.
    fn end_plan(&mut self, heap: &mut Heap, at: usize) {
        let ActivePlan { plan, caches } = self.plans.swap_remove(at);
        for own in &caches {
            own.lock().end_replay(self.key);
        }
        self.usage.detach_plan(&plan);
        let plan = plan.lock();
        if !plan.has_served() {
            self.backoff.failed(plan.blocks.len() as u64);
        } else if plan.served.replayed >= LONG_ITERATION_ALLOCATIONS as u64 {
            self.backoff.succeeded();
        }
        self.served += plan.served;
        let map = self.last_uses(&plan);
        let mut live: BTreeMap<u32, Vec<SegmentId>> = BTreeMap::new();
        for held in &plan.held {
            let (mut parts, mut blocks) = (Vec::<(u64, Option<Frontier>)>::new(), Vec::new());
            for (part, content) in map.parts(held.slab) {
                debug_assert!(content.is_some(), "unknown contents");
                let (death, block) = match content {
                    Some(Content::Dead(nth)) => (Some(plan.death(nth)), None),
                    Some(Content::Live(nth)) => (None, Some(nth)),
                    Some(Content::Before(at, nth)) => {
                        (Some(plan.held[at].parts[nth].1.clone()), None)
                    }
                    None => continue,
                };
                match parts.last_mut() {
                    Some((bytes, last)) if block.is_none() && *last == death => {
                        *bytes += part.bytes
                    }
                    _ => {
                        parts.push((part.bytes, death));
                        blocks.push(block);
                    }
                }
            }
            for (nth, id) in blocks.iter().zip(heap.divide(held.seg, parts)) {
                if let Some(nth) = nth {
                    live.entry(*nth).or_default().push(id);
                }
            }
        }
        for (nth, segs) in live {
            let block = plan.blocks[nth as usize].block;
            match &segs[..] {
                [seg] if heap.segments.seg(*seg).addr == block.addr => {
                    let holder = Holder::Program;
                    heap.segments.set_live(*seg, block.requested, holder);
                }
                _ => {
                    self.relocated.insert(block.addr, Relocated { block, segs });
                }
            }
        }
        // Blocks of the plan used addresses that memory has left.
        let last = plan.last_death();
        if !last.is_empty() {
            let everywhere = Slab::new(0, u64::MAX);
            self.aliases.extend_use(everywhere, &last);
        }
    }

    /// What each part of a plan's memory holds: what it was before, unless a block of the plan used it since,
    /// the last one that did.
    fn last_uses(&self, plan: &Plan) -> RangeMap<Content> {
        let mut map = RangeMap::default();
        for (at, held) in plan.held.iter().enumerate() {
            let mut base = held.slab.base;
            for (part, (bytes, _)) in held.parts.iter().enumerate() {
                map.insert(Slab::new(base, *bytes), Content::Before(at, part));
                base += bytes;
            }
        }
        let used = (0..).zip(&plan.blocks);
        let mut used: Vec<_> = used
            .filter(|(_, own)| own.live || own.freed != NEVER)
            .collect();
        // Live ones last, whenever they were freed before.
        used.sort_unstable_by_key(|(_, own)| (own.live, own.freed));
        let mut parts = Vec::new();
        for (nth, own) in used {
            let content = match own.live {
                true => Content::Live(nth),
                false => Content::Dead(nth),
            };
            parts.clear();
            self.aliases.resolve(own.block.range(), &mut parts);
            parts.iter().for_each(|part| map.insert(*part, content));
        }
        map
    }

    /// Frees the relocated block, or the plan's, that starts at an address.
    pub(super) fn release_elsewhere(
        &mut self,
        heap: &mut Heap,
        addr: u64,
        death: &Frontier,
    ) -> Option<Block> {
        if let Some(Relocated { block, segs }) = self.relocated.remove(&addr) {
            self.usage.free(block.bytes);
            self.aliases.extend_use(block.range(), death);
            for seg in segs {
                heap.free(seg, death.clone());
            }
            return Some(block);
        }
        let mut plans = self.plans.iter();
        plans.find_map(|own| own.plan.lock().free_elsewhere(addr, death))
    }

    /// The relocated block, or the plan's, that holds an address.
    pub(super) fn find_elsewhere(&self, addr: u64) -> Option<Block> {
        let before = self.relocated.range(..=addr).next_back();
        let relocated = before.map(|(_, own)| own.block);
        if let Some(block) = relocated.filter(|block| addr - block.addr < block.bytes) {
            return Some(block);
        }
        let mut plans = self.plans.iter();
        plans.find_map(|own| own.plan.lock().live_in(Slab::new(addr, 1)))
    }

    /// Address aliases that can be given back. Those that traces and plans name stay while there are any, up
    /// to `max_bytes` of them.
    pub fn expired(&mut self, heap: &mut Heap, max_bytes: u64) -> Vec<Slab> {
        self.aliases.expire();
        let is_traced = |own: &Owner| own.cache.lock().is_traced(self.key);
        if self.aliases.kept_bytes() <= max_bytes && self.owners.values().any(is_traced) {
            return Vec::new();
        }
        self.forget_replay(heap);
        self.aliases.expire();
        let relocated = &self.relocated;
        self.aliases.take_unused(|slab| {
            let before = relocated.range(..slab.end()).next_back();
            before.is_some_and(|(_, own)| own.block.range().end() > slab.base)
        })
    }

    /// Ends all plans and traces, and the backoff: addresses are no longer what they were, and a program that
    /// gives memory back is about to do something else.
    pub fn forget_replay(&mut self, heap: &mut Heap) {
        self.end_plans(heap);
        self.prepared = None;
        self.sharing = Sharing::default();
        for own in self.owners.values() {
            own.cache.lock().end_replay(self.key);
        }
        self.backoff.succeeded();
    }
}

/// What a part of a plan's memory holds.
#[derive(Clone, Copy)]
enum Content {
    /// What it was before the plan: a part of what is held.
    Before(usize, usize),
    /// The block of the plan with this number, dead or live.
    Dead(u32),
    Live(u32),
}

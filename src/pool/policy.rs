//! The order of choice: what serves a request, and what is tried before what.
//!
//! [`PoolState::step`] reads top to bottom. It decides under the pool's lock; `alloc` executes the step outside the
//! lock, and asks again.

use crate::pool::cache::StreamCache;
use crate::pool::compaction::{self, Collection, Pressure};
use crate::pool::growth::Growth;
use crate::pool::heap::Piece;
use crate::pool::heap::search::{self, Need};
use crate::pool::heap::segments::Place;
use crate::pool::options::{Compaction, USEFUL_SHARE};
use crate::pool::provider::{ProviderError, Slab};
use crate::pool::release::Releasing;
use crate::pool::request::{Acquired, Block, Order, PoolError, Request, Reuse, WaitPolicy};
use crate::pool::state::{Attempt, PoolState};
use crate::timeline::Frontier;

/// What to do next for a request.
pub(crate) enum Step {
    Done(Result<Acquired, PoolError>),
    /// Have the provider look for what has completed.
    Observe,
    /// Ask the provider for new memory.
    Grow(Growth),
    /// Ask it to remap these.
    Compact(Remap),
    /// Give these back and try again.
    Release(Releasing),
    /// Wait for another thread's call to the provider.
    Pause,
}

/// Free pages on their way to another address, and how many new bytes go with them.
pub(crate) struct Remap {
    pub pieces: Vec<Piece>,
    pub pages: u64,
    pub fresh: Growth,
    /// Whether the request comes after all that died there.
    pub ready: bool,
}

impl Remap {
    pub fn slabs(&self) -> Vec<Slab> {
        self.pieces.iter().map(|piece| piece.slab).collect()
    }

    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.slab.bytes).sum()
    }
}

impl PoolState {
    /// Decides the next step of a request: the first of these that there is.
    pub fn step(&mut self, need: &Need, request: &Request<'_>, attempt: &mut Attempt<'_>) -> Step {
        let closed = self.closed.then_some(Step::Done(Err(PoolError::Closed)));
        closed
            // 1. What needs no wait.
            .or_else(|| self.serve_ready(need, request, attempt))
            // 2. What has completed unseen. All that caches hold was taken back, so nothing else is pending.
            .or_else(|| self.observe(need, request, attempt))
            .unwrap_or_else(|| self.step_after_miss(need, request, attempt))
    }

    /// As [`PoolState::step`], where no memory is ready.
    fn step_after_miss(
        &mut self,
        need: &Need,
        request: &Request<'_>,
        attempt: &mut Attempt<'_>,
    ) -> Step {
        self.record_miss(need, request, attempt);
        let (always, bounded) = (WaitPolicy::Always, WaitPolicy::Bounded);
        let growth = self.growth(need, &request.order, attempt);
        let grows = growth.ok().filter(|_| attempt.refused.is_none());
        // Without a lack of memory neither waiting nor giving back would mend the provider's error.
        let error = attempt.refused.filter(|e| *e != ProviderError::OutOfMemory);
        let failed = error.map(|error| Step::Done(Err(PoolError::Provider(error))));
        failed
            // 3. A wait, where the user prefers waits to growth.
            .or_else(|| self.serve_after(always, need, request, attempt))
            // 4. Free pages under one new address, where that is better than growth.
            .or_else(|| self.compact(need, request, attempt, grows))
            .or_else(|| self.compact_after(always, need, request, attempt))
            // 5. Growth.
            .or_else(|| self.grow(grows))
            // 6. A wait rather than failing.
            .or_else(|| self.serve_after(bounded, need, request, attempt))
            .or_else(|| self.compact_after(bounded, need, request, attempt))
            // 7. Growth in the place of what is idle.
            .or_else(|| self.make_room(growth.err(), attempt))
            .unwrap_or_else(|| {
                let exhausted = PoolError::Exhausted { need: need.bytes };
                Step::Done(Err(attempt.refused.map_or(exhausted, PoolError::Provider)))
            })
    }

    /// Serves a request from memory that needs no wait.
    fn serve_ready(
        &mut self,
        need: &Need,
        request: &Request<'_>,
        attempt: &Attempt<'_>,
    ) -> Option<Step> {
        let (place, reuse) = self.ready(need, request)?;
        let missing = || self.heap.missing(place, need.bytes, &request.order);
        debug_assert!(missing().is_empty(), "memory that is in use");
        let block = self.alloc(place, need, attempt);
        let reuse = if attempt.grew { Reuse::Grown } else { reuse };
        self.stats.counters.count(reuse);
        if let Some(cache) = attempt.cache {
            self.table.record_served(cache, reuse);
        }
        request.record(|decision| decision.reuse = Some(reuse));
        Some(Step::Done(Ok(Acquired::Ready(block))))
    }

    /// Has the provider look for completion, if anything is pending: once, or more often where that may save
    /// growth that has a price. What the looks take is lost once, and growth holds its memory until a trim.
    fn observe(
        &self,
        need: &Need,
        request: &Request<'_>,
        attempt: &mut Attempt<'_>,
    ) -> Option<Step> {
        if !self.limits.observes || !self.heap.index.is_pending() {
            return None;
        }
        let more = attempt.looks == 0
            || attempt.looks < self.config.options.looks
                && *attempt.is_patient.get_or_insert_with(|| {
                    let paid = self.limits.largest_page.is_some() && !self.config.is_bound();
                    paid && search::least_wait(&self.heap, need, &request.order).is_some()
                });
        attempt.looks += 1;
        more.then_some(Step::Observe)
    }

    fn grow(&mut self, growth: Option<Growth>) -> Option<Step> {
        self.growing += growth.map_or(0, |growth| growth.bytes);
        growth.map(Step::Grow)
    }

    /// Releases what is idle, or waits for another thread's call to the provider. `short` is as in
    /// [`PoolState::release_idle`].
    fn make_room(&mut self, short: Option<u64>, attempt: &mut Attempt<'_>) -> Option<Step> {
        let releasing = self.release_idle(short);
        let step = match self.growing + self.releasing + self.moving {
            _ if !releasing.is_empty() => Some(Step::Release(releasing)),
            0 => None,
            _ => Some(Step::Pause),
        };
        // The provider may have memory then.
        attempt.refused = attempt.refused.filter(|_| step.is_none());
        step
    }

    /// A place without a wait. Cached blocks are recalled step by step: the request's own stream's, those that
    /// its dependencies order, completed ones, and all before growth. A small request recalls at most one block
    /// of its own stream's cache before growth: an empty cache slows the next requests, and good placement
    /// of small blocks saves little. Where the stream coalesces, no part of its cache is large enough, and a request of
    /// any size recalls what may serve together with the pool's memory.
    fn ready(&mut self, need: &Need, request: &Request<'_>) -> Option<(Place, Reuse)> {
        let (order, heap, table) = (&request.order, &mut self.heap, &mut self.table);
        let small = need.bytes <= self.config.options.small_kib << 10;
        if let Order::Lane(lane) = order {
            table.record_miss(lane);
        }
        if let Some(own) = order.own_lane() {
            if !small || table.coalesces() {
                let enough = (need.bytes, need.bytes / USEFUL_SHARE);
                table.recall(heap, enough, |lane| lane == own, |_, _| true);
            } else if search::own(heap, need, order).is_none() {
                table.recall_one(heap, own, need.bytes);
            }
        }
        let other = |lane| order.own_lane() != Some(lane);
        let enough = (need.bytes, 0);
        // A block that died later than the order reaches does not serve, and may serve its own stream.
        let reached = |cache: &StreamCache, oldest| {
            let horizon = order.horizon(cache.lane());
            horizon.is_some_and(|horizon| horizon >= oldest)
        };
        // Blocks that the dependencies order are recalled before completed memory is taken.
        let found = match order.foreign().next() {
            None => search::ready(heap, need, order),
            Some(_) => None,
        };
        found
            .or_else(|| {
                table.recall(heap, enough, other, reached);
                search::ready(heap, need, order)
            })
            // After memory that is free for all: a stream that loses blocks misses them next, and would take
            // others' in turn.
            .or_else(|| {
                let some = table.recall(heap, enough, other, StreamCache::is_complete);
                some.then(|| search::ready(heap, need, order)).flatten()
            })
            .or_else(|| {
                let replayed = table.end_plans(heap);
                let recalled = table.recall(heap, (1, 0), |_| true, |_, _| true);
                let some = replayed || recalled;
                some.then(|| search::ready(heap, need, order)).flatten()
            })
    }

    /// Records, once, that nothing is ready. Later there may be memory that came for this very request.
    fn record_miss(&mut self, need: &Need, request: &Request<'_>, attempt: &mut Attempt<'_>) {
        if !std::mem::replace(&mut attempt.missed, true) {
            let used = self.stats.figures.reserved;
            let used = used.saturating_sub(self.heap.free_bytes());
            self.pressure.record_miss(used, need.bytes);
            request.record(|decision| {
                let options = &self.config.options;
                let orders = (&request.order, self.order_of_pages(&request.order));
                decision.missing = compaction::lack(&self.heap, need, orders, options);
            });
        }
        let grew = std::mem::take(&mut attempt.grew);
        if std::mem::take(&mut attempt.continues) {
            // The slab lies elsewhere than was asked, or another thread took the memory before it.
            attempt.grows_separately = true;
        } else if grew && std::mem::replace(&mut attempt.padded, true) {
            // It grew twice and still nothing fits: slabs are misaligned.
            attempt.refused = Some(ProviderError::OutOfMemory);
        }
    }

    fn waits(&self, request: &Request<'_>) -> WaitPolicy {
        match request.may_wait {
            true => self.config.waits,
            false => WaitPolicy::Never,
        }
    }

    /// Removes pages that are ready and together will serve the request; with `grows`, only if that is better.
    fn compact(
        &mut self,
        need: &Need,
        request: &Request<'_>,
        attempt: &Attempt<'_>,
        grows: Option<Growth>,
    ) -> Option<Step> {
        let options = self.config.options;
        let always = self.waits(request) == WaitPolicy::Always;
        let (held, budget) = (self.held(), self.room_for_pages(attempt)?);
        let (aliases, served) = (self.limits.leaves_mapped, self.stats.counters.served());
        let better = |pressure: &Pressure, pages| match grows.filter(|_| !always) {
            Some(growth) => {
                let held = held + growth.bytes;
                pressure.prefers_compaction(&options, aliases, need.bytes, pages, held, served)
            }
            None => true,
        };
        if !better(&self.pressure, 0) {
            return None;
        }
        let room = match always && !self.limits.maps_once {
            // Pages that have to be waited for come before new memory.
            true => 0,
            false => budget,
        };
        let order = self.order_of_pages(&request.order);
        let tail = self.tail(need, order, attempt);
        let found = compaction::collect(&self.heap, need, order, room, tail)?;
        let pages = found.pages(&self.heap);
        better(&self.pressure, pages).then(|| self.remap(&found, pages, tail.end, true))
    }

    /// As [`PoolState::compact`], where that is the policy, with pages that have to be waited for.
    fn compact_after(
        &mut self,
        policy: WaitPolicy,
        need: &Need,
        request: &Request<'_>,
        attempt: &Attempt<'_>,
    ) -> Option<Step> {
        if self.limits.maps_once {
            // The host waits for these: `host_wait`.
            return None;
        }
        let room = self.room_for_pages(attempt);
        let room = room.filter(|_| self.waits(request) == policy)?;
        let found = compaction::collect_pending(&self.heap, need, &request.order, room)?;
        let pages = found.pages(&self.heap);
        Some(self.remap(&found, pages, None, false))
    }

    /// What pages must have been used before, to be remapped for a request of this order.
    pub fn order_of_pages<'a>(&self, order: &'a Order<'a>) -> &'a Order<'a> {
        match self.limits.maps_once {
            true => &Order::Sync,
            false => order,
        }
    }

    /// Bytes reserved, or about to be.
    fn held(&self) -> u64 {
        self.stats.figures.reserved + self.growing
    }

    /// The bytes of new memory that remapped pages may have with them. None where none may be remapped, or,
    /// as mostly where a program only grows, nothing is free.
    fn room_for_pages(&self, attempt: &Attempt<'_>) -> Option<u64> {
        let never = self.config.options.compaction == Compaction::Never;
        let max = self.config.max_bytes.unwrap_or(u64::MAX);
        let room = match attempt.refused {
            Some(_) => 0,
            None => max.saturating_sub(self.held()),
        };
        (!never && !attempt.cannot_remap && self.heap.free_bytes() > 0).then_some(room)
    }

    fn remap(&mut self, found: &Collection, pages: u64, after: Option<u64>, ready: bool) -> Step {
        let pieces = self.heap.detach_all(&found.pieces);
        self.growing += found.fresh;
        let fresh = Growth {
            bytes: found.fresh,
            page: self.page_for(found.fresh),
            after,
        };
        let remap = Remap {
            pieces,
            pages,
            fresh,
            ready,
        };
        self.moving += remap.bytes();
        Step::Compact(remap)
    }

    /// Takes in the provider's answer to [`Step::Compact`]. Also if the pool was closed meanwhile: what
    /// has died but not completed stays until it has.
    pub fn remapped(
        &mut self,
        remap: Remap,
        answer: Result<Slab, ProviderError>,
        attempt: &mut Attempt<'_>,
    ) {
        let moved = remap.bytes();
        let fresh = remap.fresh.bytes;
        debug_assert!(
            self.growing >= fresh && self.moving >= moved,
            "a move that was not counted"
        );
        self.growing -= fresh;
        self.moving -= moved;
        let unit = self.config.min_align;
        let slab = answer.map_err(|error| match fresh {
            // The pieces may be elsewhere.
            _ if remap.fresh.after.is_some() => attempt.grows_separately = true,
            0 => attempt.cannot_remap = true,
            _ => attempt.refused = Some(error),
        });
        let Ok(slab) = slab else {
            for piece in &remap.pieces {
                self.heap
                    .add_slab(piece.slab, &piece.runs, unit, &piece.parts);
            }
            return;
        };
        if fresh > 0 {
            self.stats.reserve(fresh);
            self.record_pages(remap.fresh.pages());
            attempt.grew = remap.ready;
        }
        attempt.continues = remap.fresh.after.is_some();
        self.stats.counters.compactions += 1;
        self.stats.counters.compacted_bytes += moved;
        self.pressure.remapped += remap.pages;
        let (mut runs, mut parts, mut to) = (Vec::new(), Vec::new(), slab.base);
        for mut piece in remap.pieces {
            let mut all = Frontier::new();
            piece.parts.iter().for_each(|(_, death)| all.join(death));
            if self.limits.maps_once {
                debug_assert!(all.is_complete(), "a page moved while it may be in use");
            } else {
                self.table.moved(piece.slab, to, all);
            }
            to += piece.slab.bytes;
            runs.append(&mut piece.runs);
            parts.append(&mut piece.parts);
        }
        runs.extend(remap.fresh.runs());
        self.heap.add_slab(slab, &runs, unit, &parts);
    }

    /// Allocates at a place of the heap, for the stream of the request.
    fn alloc(&mut self, place: Place, need: &Need, attempt: &Attempt<'_>) -> Block {
        debug_assert!(place.start.is_multiple_of(need.align), "a misaligned block");
        let (seg, block) = self.heap.take(place, need.bytes, need.requested);
        let entry = (seg, &block);
        self.table.insert(&mut self.heap, entry, attempt.cache);
        block
    }

    /// Serves a request from memory with the least wait, where that is the policy.
    fn serve_after(
        &mut self,
        policy: WaitPolicy,
        need: &Need,
        request: &Request<'_>,
        attempt: &Attempt<'_>,
    ) -> Option<Step> {
        let place = match self.waits(request) == policy {
            true => search::least_wait(&self.heap, need, &request.order)?,
            false => return None,
        };
        let wait = self.heap.missing(place, need.bytes, &request.order);
        let block = self.alloc(place, need, attempt);
        // Without points it completed since it was last looked at.
        let (reuse, acquired) = match wait.len() as u64 {
            0 => (Reuse::Completed, Acquired::Ready(block)),
            points => {
                self.stats.counters.waits += points;
                (Reuse::Waited, Acquired::After(block, wait))
            }
        };
        self.stats.counters.count(reuse);
        request.record(|decision| decision.reuse = Some(reuse));
        Some(Step::Done(Ok(acquired)))
    }
}

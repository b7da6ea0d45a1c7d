//! The order of choice: what serves a request, and what is tried before what.
//!
//! [`State::step`] reads top to bottom. It decides under the pool's lock; `alloc` executes the step outside the
//! lock, and asks again.

use crate::pool::cache::StreamCache;
use crate::pool::compaction;
use crate::pool::growth::Growth;
use crate::pool::heap::Piece;
use crate::pool::heap::search::{self, Need};
use crate::pool::heap::segments::Place;
use crate::pool::options::{Compaction, SMALL_BYTES, SMALL_SHARE, USEFUL_SHARE};
use crate::pool::provider::{ProviderError, Slab};
use crate::pool::release::Leaving;
use crate::pool::request::{Acquired, Block, Order, PoolError, Request, Reuse, WaitPolicy};
use crate::pool::state::{Attempt, State};
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
    Release(Leaving),
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

impl State {
    /// Decides the next step of a request.
    pub fn step(&mut self, need: &Need, request: &Request<'_>, attempt: &mut Attempt<'_>) -> Step {
        if self.closed {
            return Step::Done(Err(PoolError::Closed));
        }
        // 1. What needs no wait.
        if let Some((place, reuse)) = self.ready(need, request) {
            let block = self.alloc(place, need, attempt);
            let reuse = if attempt.grew { Reuse::Grown } else { reuse };
            self.serves(reuse, request, attempt);
            return Step::Done(Ok(Acquired::Ready(block)));
        }
        // 2. What has completed unseen. All that caches hold was taken back, so nothing else is pending.
        if self.limits.observes
            && self.store.index.is_pending()
            && !std::mem::replace(&mut attempt.observed, true)
        {
            return Step::Observe;
        }
        self.missed(need, request, attempt);
        if let Some(error) = attempt.refused.filter(|e| *e != ProviderError::OutOfMemory) {
            // Not a lack of memory, so neither waiting nor giving back would mend it.
            return Step::Done(Err(PoolError::Provider(error)));
        }
        // 3. A wait, where the user prefers waits to growth.
        let waits = self.waits(request);
        let always = waits == WaitPolicy::Always;
        if always && let Some(acquired) = self.take_after(need, request, attempt) {
            return Step::Done(Ok(acquired));
        }
        // 4. Free pages under one new address, where that is better than growth.
        let growth = self.growth(need, &request.order, attempt);
        let grows = growth.ok().filter(|_| attempt.refused.is_none());
        if let Some(remap) = self.remap(need, request, attempt, grows, true) {
            return Step::Compact(remap);
        }
        if always && let Some(remap) = self.remap(need, request, attempt, None, false) {
            return Step::Compact(remap);
        }
        // 5. Growth.
        if let Some(growth) = grows {
            self.growing += growth.bytes;
            return Step::Grow(growth);
        }
        // 6. A wait rather than failing.
        let bounded = waits == WaitPolicy::Bounded;
        if bounded && let Some(acquired) = self.take_after(need, request, attempt) {
            return Step::Done(Ok(acquired));
        }
        if bounded && let Some(remap) = self.remap(need, request, attempt, None, false) {
            return Step::Compact(remap);
        }
        // 7. Growth in the place of what is idle.
        let leaving = self.release_idle(growth.err());
        if !leaving.is_empty() {
            attempt.refused = None;
            return Step::Release(leaving);
        }
        if self.growing + self.leaving + self.moving > 0 {
            attempt.refused = None;
            return Step::Pause;
        }
        Step::Done(Err(match attempt.refused {
            Some(error) => PoolError::Provider(error),
            None => PoolError::Exhausted { need: need.bytes },
        }))
    }

    /// A place without a wait. Cached blocks are recalled step by step: the request's own stream's, those that
    /// its dependencies order, completed ones, and all before growth. A small request recalls at most one block
    /// of its own stream's cache before growth: an empty cache slows the next requests, and good placement
    /// of small blocks saves little.
    fn ready(&mut self, need: &Need, request: &Request<'_>) -> Option<(Place, Reuse)> {
        let (order, store, table) = (&request.order, &mut self.store, &mut self.table);
        let small = need.bytes <= SMALL_BYTES.max(self.stats.figures.reserved / SMALL_SHARE);
        if let Order::Lane(lane) = order {
            table.asks(lane);
        }
        if let Some(own) = order.own_lane() {
            if !small {
                let enough = (need.bytes, need.bytes / USEFUL_SHARE);
                table.recall(store, enough, |lane| lane == own, |_, _| true);
            } else if !search::has_own(store, need, order) {
                table.recall_one(store, own, need.bytes);
            }
        }
        // Blocks that the dependencies order are recalled before completed memory is taken.
        if order.foreign().next().is_none()
            && let Some(found) = search::ready(store, need, order)
        {
            return Some(found);
        }
        let other = |lane| order.own_lane() != Some(lane);
        let enough = (need.bytes, 0);
        // A block that died later than the order reaches does not serve, and may serve its own stream.
        let reached = |cache: &StreamCache, oldest| {
            let horizon = order.horizon(cache.lane());
            horizon.is_some_and(|horizon| horizon >= oldest)
        };
        table.recall(store, enough, other, reached);
        if let Some(found) = search::ready(store, need, order) {
            return Some(found);
        }
        // After memory that is free for all: a stream that loses blocks misses them next, and would take
        // others' in turn.
        if table.recall(store, enough, other, StreamCache::is_complete)
            && let Some(found) = search::ready(store, need, order)
        {
            return Some(found);
        }
        let replayed = table.end_plans(store);
        if !table.recall(store, (1, 0), |_| true, |_, _| true) && !replayed {
            return None;
        }
        search::ready(store, need, order)
    }

    /// Notes, once, that nothing is ready. Later there may be memory that came for this very request.
    fn missed(&mut self, need: &Need, request: &Request<'_>, attempt: &mut Attempt<'_>) {
        if !std::mem::replace(&mut attempt.missed, true) {
            let used = self.stats.figures.reserved;
            let used = used.saturating_sub(self.store.free_bytes());
            self.pressure.record_miss(used, need.bytes);
            request.record(|decision| {
                let options = &self.config.options;
                decision.missing = compaction::lack(&self.store, need, &request.order, options);
            });
        }
        if std::mem::take(&mut attempt.grew) {
            // It grew and still nothing fits: the slab is misaligned, unless it lies elsewhere than was
            // asked, which is so once.
            if std::mem::take(&mut attempt.elsewhere) {
                attempt.apart = true;
            } else if std::mem::replace(&mut attempt.padded, true) {
                attempt.refused = Some(ProviderError::OutOfMemory);
            }
        }
    }

    fn waits(&self, request: &Request<'_>) -> WaitPolicy {
        if request.may_wait {
            self.config.waits
        } else {
            WaitPolicy::Never
        }
    }

    /// Takes pages out that together will serve the request; with `grows`, only if that is better.
    fn remap(
        &mut self,
        need: &Need,
        request: &Request<'_>,
        attempt: &Attempt<'_>,
        grows: Option<Growth>,
        ready: bool,
    ) -> Option<Remap> {
        let options = self.config.options;
        let never = options.compaction == Compaction::Never;
        // As mostly where a program only grows, nothing is free.
        if never || attempt.scattered || self.store.free_bytes() == 0 {
            return None;
        }
        let always = self.waits(request) == WaitPolicy::Always;
        let held = self.stats.figures.reserved + self.growing;
        let aliases = self.limits.leaves_mapped;
        let better = |pages| match grows.filter(|_| !always) {
            Some(growth) => {
                let held = held + growth.bytes;
                let pressure = &self.pressure;
                pressure.prefers_compaction(&options, aliases, need.bytes, pages, held)
            }
            None => true,
        };
        if !better(0) {
            return None;
        }
        let room = match attempt.refused {
            Some(_) => 0,
            None if ready && always => 0,
            None => self
                .config
                .max_bytes
                .unwrap_or(u64::MAX)
                .saturating_sub(held),
        };
        let (store, order) = (&self.store, &request.order);
        let found = match ready {
            true => compaction::collect(store, need, order, room),
            false => compaction::collect_pending(store, need, order, room),
        }?;
        let pages = found.pages(&self.store);
        if !better(pages) {
            return None;
        }
        let pieces = self.store.detach_all(&found.pieces);
        self.growing += found.fresh;
        let fresh = Growth {
            bytes: found.fresh,
            page: self.page_for(found.fresh),
            after: None,
        };
        let remap = Remap {
            pieces,
            pages,
            fresh,
            ready,
        };
        self.moving += remap.bytes();
        Some(remap)
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
            0 => attempt.scattered = true,
            _ => attempt.refused = Some(error),
        });
        let Ok(slab) = slab else {
            for piece in &remap.pieces {
                self.store
                    .add_slab(piece.slab, &piece.runs, unit, &piece.parts);
            }
            return;
        };
        if fresh > 0 {
            self.stats.reserve(fresh);
            attempt.grew = remap.ready;
        }
        self.stats.counters.compactions += 1;
        self.stats.counters.compacted_bytes += moved;
        self.pressure.record_compaction(remap.pages);
        let (mut runs, mut parts, mut to) = (Vec::new(), Vec::new(), slab.base);
        for mut piece in remap.pieces {
            let mut all = Frontier::new();
            piece.parts.iter().for_each(|(_, death)| all.join(death));
            self.table.moved(piece.slab, to, all);
            to += piece.slab.bytes;
            runs.append(&mut piece.runs);
            parts.append(&mut piece.parts);
        }
        runs.extend(remap.fresh.runs());
        self.store.add_slab(slab, &runs, unit, &parts);
    }

    /// Allocates at a place of the heap, for the stream of the request.
    fn alloc(&mut self, place: Place, need: &Need, attempt: &Attempt<'_>) -> Block {
        let (seg, block) = self.store.take(place, need.bytes, need.requested);
        let entry = (seg, &block);
        self.table.insert(&mut self.store, entry, attempt.cache);
        block
    }

    /// Counts a block that was ready without a wait.
    pub(super) fn serves(&mut self, reuse: Reuse, request: &Request<'_>, attempt: &Attempt<'_>) {
        self.stats.counters.count(reuse);
        if let Some(cache) = attempt.cache {
            self.table.missed(cache, reuse);
        }
        request.record(|decision| decision.reuse = Some(reuse));
    }

    fn take_after(
        &mut self,
        need: &Need,
        request: &Request<'_>,
        attempt: &Attempt<'_>,
    ) -> Option<Acquired> {
        let place = search::least_wait(&self.store, need, &request.order)?;
        let wait = self.store.missing(place, need.bytes, &request.order);
        let block = self.alloc(place, need, attempt);
        let reuse = match wait.is_empty() {
            // It completed since it was last looked at.
            true => Reuse::Completed,
            false => Reuse::Waited,
        };
        self.stats.counters.count(reuse);
        request.record(|decision| decision.reuse = Some(reuse));
        if wait.is_empty() {
            return Some(Acquired::Ready(block));
        }
        self.stats.counters.waits += wait.len() as u64;
        Some(Acquired::After(block, wait))
    }
}

//! The path of an allocation that a stream's cache did not serve alone: quota for a cached block, replay, then
//! the order of choice of `policy`. Each of its steps is made here, outside of the pool's lock.

use crate::pool::Pool;
use crate::pool::cache::{Miss, StreamCache};
use crate::pool::growth::Growth;
use crate::pool::policy::{self, Step};
use crate::pool::provider::{ProviderError, Slab, SlabProvider};
use crate::pool::request::{Acquired, Block, DecisionTrace, Order, PoolError, Request, Reuse};
use crate::pool::state::{Attempt, PoolState};
use crate::timeline::Lane;
use std::sync::Arc;

impl<S: SlabProvider> Pool<S> {
    /// Finds memory for a request that no stream cache is for. `policy` has the order of choice.
    pub fn acquire(&self, request: &Request<'_>) -> Result<Acquired, PoolError> {
        self.serve(request, None)
    }

    /// Finds memory for a request of the lane that `cache` belongs to: in the cache, else in the pool, which
    /// then inserts the block there.
    pub fn acquire_on(
        &self,
        cache: &Arc<StreamCache>,
        request: &Request<'_>,
    ) -> Result<Acquired, PoolError> {
        self.serve(request, Some(cache))
    }

    /// Makes a replay plan, if the lane may repeat itself: for a lane of which [`StreamCache::replayable`] named
    /// this pool, before the host waits.
    pub fn plan(&self, cache: &Arc<StreamCache>, lane: &Lane) {
        let mut state = self.state.lock();
        let state = &mut *state;
        if !state.closed {
            let (table, heap) = (&mut state.table, &mut state.heap);
            table.begin_plan(heap, cache, &Order::Lane(lane), None);
        }
    }

    /// A cached block, with quota from others if the cache has too little.
    fn cached(&self, cache: &Arc<StreamCache>, request: &Request<'_>) -> Option<Block> {
        if request.align > 1 || request.order.own_lane() != Some(cache.lane()) {
            return None;
        }
        let alloc = || {
            let mut inner = cache.lock();
            match inner.is_replaying(self.key) {
                // Only the pool can report what allows the reuse.
                true => Err(Miss::NoBlock),
                false => inner.alloc(self.key, request.bytes, |block| block),
            }
        };
        let mut cached = alloc();
        if let Err(Miss::NoQuota(lack)) = cached
            && self.usage.find_quota(cache, self.key, lack)
        {
            cached = alloc();
        }
        if let Err(Miss::NoQuota(_)) = cached {
            cached = self.usage.alloc_cached(cache, self.key, request.bytes);
        }
        cached.ok()
    }

    /// Serves a request from the cache or the pool, and traces the decision.
    fn serve(
        &self,
        request: &Request<'_>,
        cache: Option<&Arc<StreamCache>>,
    ) -> Result<Acquired, PoolError> {
        let mut attempt = Attempt {
            cache,
            traces: request.decision.is_some(),
            ..Attempt::default()
        };
        let served = match cache.and_then(|cache| self.cached(cache, request)) {
            Some(block) => Ok((Acquired::Ready(block), Reuse::OwnLane)),
            None => self.find(request, &mut attempt),
        };
        request.record(|decision| {
            *decision = DecisionTrace {
                order: request.order.frontier(),
                reuse: served.as_ref().ok().map(|(_, reuse)| *reuse),
                missing: attempt.missing.take(),
            };
        });
        served.map(|(acquired, _)| acquired)
    }

    /// Serves a request from a replay plan, or by the steps of `policy`.
    fn find(
        &self,
        request: &Request<'_>,
        attempt: &mut Attempt<'_>,
    ) -> Result<(Acquired, Reuse), PoolError> {
        let mut state = self.state.lock();
        let PoolState { table, heap, .. } = &mut *state;
        table.forget_idle(heap);
        if let Some(cache) = attempt.cache {
            // Once all has completed, streams that begin again with this request have a plan together.
            if state.limits.observes && state.table.may_begin_shared(cache, request.bytes) {
                drop(state);
                self.provider.observe();
                state = self.state.lock();
            }
            let PoolState { table, heap, .. } = &mut *state;
            if let Some((block, reuse)) = table.replay(heap, cache, request) {
                return Ok((Acquired::Ready(block), reuse));
            }
        }
        let need = policy::need(request, &state.config)?;
        loop {
            match state.step(&need, attempt) {
                Step::Take(place, reuse, wait) => {
                    debug_assert!(place.start.is_multiple_of(need.align), "a misaligned block");
                    let PoolState {
                        table, heap, stats, ..
                    } = &mut *state;
                    let (seg, block) = heap.take(place, need.bytes, need.requested);
                    table.insert(heap, (seg, &block), attempt.cache);
                    if let Some(cache) = attempt.cache {
                        table.record_served(cache, reuse);
                    }
                    stats.counters.count(reuse);
                    stats.counters.waits += wait.len() as u64;
                    let acquired = match wait.is_empty() {
                        true => Acquired::Ready(block),
                        false => Acquired::After(block, wait),
                    };
                    return Ok((acquired, reuse));
                }
                Step::Fail(error) => return Err(error),
                Step::Grow(growth) => {
                    drop(state);
                    let answer = self.map(&[], growth);
                    state = self.state.lock();
                    let unfit = state.grown(growth, answer, attempt);
                    self.settled.notify_all();
                    if let Some(slab) = unfit {
                        drop(state);
                        self.provider.release(slab);
                        state = self.state.lock();
                    }
                }
                Step::Observe => {
                    drop(state);
                    self.provider.observe();
                    state = self.state.lock();
                }
                Step::Compact(remap) => {
                    let expired = state.expired();
                    self.publish(&state);
                    drop(state);
                    expired.iter().for_each(|old| self.provider.retire(*old));
                    let answer = self.map(&remap.slabs(), remap.fresh);
                    state = self.state.lock();
                    state.remapped(remap, answer, attempt);
                    self.publish(&state);
                    self.settled.notify_all();
                }
                Step::Release(releasing) => {
                    drop(state);
                    state = self.return_to_provider(&releasing);
                }
                // Another thread calls the provider: what it gets or gives back may serve.
                Step::Pause => state = self.settled.wait(state),
            }
        }
    }

    /// Asks the provider; if it refuses, once more without the address aliases that are kept for replay: it may
    /// be short of what maps them, too. Pieces that cannot be where they are wanted may be elsewhere.
    fn map(&self, pieces: &[Slab], fresh: Growth) -> Result<Slab, ProviderError> {
        let Growth { bytes, page, after } = fresh;
        let ask = || self.provider.map(pieces, bytes, page, after);
        ask().or_else(|error| {
            if after.is_some() && !pieces.is_empty() {
                return Err(error);
            }
            let aliases = self.state.lock().drop_kept_aliases();
            aliases.iter().for_each(|old| self.provider.retire(*old));
            match aliases.is_empty() {
                true => Err(error),
                false => ask(),
            }
        })
    }
}

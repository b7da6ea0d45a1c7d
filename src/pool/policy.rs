//! The order of choice: what serves a request, and what is tried before what.
//!
//! [`PoolState::step`] reads top to bottom. It decides under the pool's lock; `alloc` executes the step, calls the
//! provider outside of the lock, and asks again.

use crate::pool::cache::StreamCache;
use crate::pool::compaction::Remap;
use crate::pool::growth::Growth;
use crate::pool::heap::Heap;
use crate::pool::heap::search::{self, Need};
use crate::pool::heap::segments::Place;
use crate::pool::options::USEFUL_SHARE;
use crate::pool::provider::ProviderError;
use crate::pool::release::Releasing;
use crate::pool::request::{Config, Order, PoolError, Request, Reuse, WaitPolicy};
use crate::pool::state::{Attempt, PoolState};
use crate::timeline::Frontier;

/// What to do next for a request.
pub(crate) enum Step {
    /// Take this memory, which may be used once the frontier has completed.
    Take(Place, Reuse, Frontier),
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
    Fail(PoolError),
}

/// What a request needs from a pool of this configuration.
pub(crate) fn need<'a>(request: &Request<'a>, config: &Config) -> Result<Need<'a>, PoolError> {
    let (rounding, align) = (config.rounding(), request.align.max(1));
    if !align.is_power_of_two() {
        return Err(PoolError::InvalidAlignment);
    }
    let bytes = rounding.apply(request.bytes);
    let bytes = bytes.ok_or(PoolError::InvalidSize)?;
    if bytes.checked_add(align).is_none() {
        return Err(PoolError::InvalidAlignment);
    }
    let waits = match request.may_wait {
        true => config.waits,
        false => WaitPolicy::Never,
    };
    Ok(Need {
        bytes,
        align: align.max(rounding.min_align),
        requested: request.bytes,
        order: request.order,
        waits,
    })
}

impl PoolState {
    /// Decides the next step of a request: the first of these that there is.
    pub fn step(&mut self, need: &Need<'_>, attempt: &mut Attempt<'_>) -> Step {
        if self.closed {
            return Step::Fail(PoolError::Closed);
        }
        // 1. What needs no wait.
        if let Some((place, reuse)) = self.ready(need) {
            let missing = || search::missing(&self.heap, place, need);
            debug_assert!(missing().is_empty(), "memory that is in use");
            let reuse = if attempt.grew { Reuse::Grown } else { reuse };
            return Step::Take(place, reuse, Frontier::new());
        }
        // 2. What has completed unseen. All that caches hold was taken back, so nothing else is pending.
        let least = |heap: &Heap| search::least_wait(heap, need);
        if self.observes(attempt, || least(&self.heap).is_some()) {
            return Step::Observe;
        }
        attempt.record_misfit();
        let tail = self.tail(need, attempt);
        let growth = self.growth(need, tail, attempt);
        let grows = growth.ok().filter(|_| attempt.refused.is_none());
        self.record_miss(need, least, attempt);
        // Without a lack of memory neither waiting nor giving back would mend the provider's error.
        let error = attempt.refused.filter(|e| *e != ProviderError::OutOfMemory);
        if let Some(error) = error {
            return Step::Fail(PoolError::Provider(error));
        }
        let after = |policy: WaitPolicy, heap: &Heap| {
            let (place, wait) = match need.waits == policy {
                true => least(heap)?,
                false => return None,
            };
            // Without points it completed since it was last looked at.
            let reuse = match wait.is_empty() {
                true => Reuse::Completed,
                false => Reuse::Waited,
            };
            Some(Step::Take(place, reuse, wait))
        };
        let (always, bounded) = (WaitPolicy::Always, WaitPolicy::Bounded);
        // 3. A wait, where the user prefers waits to growth.
        after(always, &self.heap)
            // 4. Free pages under one new address, where that is better than growth.
            .or_else(|| self.compact(need, tail, attempt, grows).map(Step::Compact))
            .or_else(|| self.compact_after(always, need, attempt).map(Step::Compact))
            // 5. Growth.
            .or_else(|| self.grow(grows))
            // 6. A wait rather than failing.
            .or_else(|| after(bounded, &self.heap))
            .or_else(|| {
                self.compact_after(bounded, need, attempt)
                    .map(Step::Compact)
            })
            // 7. Growth in the place of what is idle.
            .or_else(|| self.make_room(growth.err(), attempt))
            .unwrap_or_else(|| {
                let exhausted = PoolError::Exhausted { need: need.bytes };
                Step::Fail(attempt.refused.map_or(exhausted, PoolError::Provider))
            })
    }

    /// A place without a wait. Cached blocks are recalled step by step: the request's own stream's, those that
    /// its dependencies order, completed ones, and all before growth. A small request recalls at most one block
    /// of its own stream's cache before growth: an empty cache slows the next requests, and good placement
    /// of small blocks saves little. Where the stream coalesces, no part of its cache is large enough, and a request of
    /// any size recalls what may serve together with the pool's memory.
    fn ready(&mut self, need: &Need<'_>) -> Option<(Place, Reuse)> {
        let (order, heap, table) = (&need.order, &mut self.heap, &mut self.table);
        let small = need.bytes <= self.config.options.small_kib << 10;
        if let Order::Lane(lane) = order {
            table.record_miss(lane);
        }
        if let Some(own) = order.own_lane() {
            if !small || table.coalesces() {
                let enough = (need.bytes, need.bytes / USEFUL_SHARE);
                table.recall(heap, enough, |lane| lane == own, |_, _| true);
            } else if search::own(heap, need).is_none() {
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
            None => search::ready(heap, need),
            Some(_) => None,
        };
        found
            .or_else(|| {
                table.recall(heap, enough, other, reached);
                search::ready(heap, need)
            })
            // After memory that is free for all: a stream that loses blocks misses them next, and would take
            // others' in turn.
            .or_else(|| {
                let some = table.recall(heap, enough, other, StreamCache::is_complete);
                some.then(|| search::ready(heap, need)).flatten()
            })
            .or_else(|| {
                let replayed = table.end_plans(heap);
                let recalled = table.recall(heap, (1, 0), |_| true, |_, _| true);
                let some = replayed || recalled;
                some.then(|| search::ready(heap, need)).flatten()
            })
    }

    /// Whether the provider should look for completion, if anything is pending: once, or more often where that may save
    /// growth that has a price. What the looks take is lost once, and growth holds its memory until a trim.
    fn observes(&self, attempt: &mut Attempt<'_>, would_serve: impl FnOnce() -> bool) -> bool {
        if !self.limits.observes || !self.heap.index.is_pending() {
            return false;
        }
        let paid = self.limits.largest_page.is_some() && !self.config.is_bound();
        let more = attempt.looks == 0
            || attempt.looks < self.config.options.looks
                && *attempt
                    .is_patient
                    .get_or_insert_with(|| paid && would_serve());
        attempt.looks += 1;
        more
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
}

//! A stream cache while its lane is traced or replayed.
//!
//! A lane without a replay state comes by none of this: its functions are marked as cold, and the cache's own
//! path only asks whether there is such a state.

use crate::pool::cache::{
    Cache, CacheResult, Entry, FREE_TRACED, Inner, Miss, PoolKey, StreamCache, UNTRACED, Use,
    alloc_cached, cache_block,
};
use crate::pool::replay::{Iteration, Participant, Replay, Start, Trace};
use crate::pool::request::Block;

impl StreamCache {
    /// The pools that could make a replay plan of what the lane did.
    pub fn replayable(&self) -> Vec<PoolKey> {
        let inner = self.inner.lock();
        let is_due = |cache: &&Cache| match cache.replay.as_ref() {
            Some(Replay::Tracing(trace)) => {
                trace.is_repeated() || trace.shared() > 0 && trace.is_at_rest()
            }
            _ => false,
        };
        let due = inner.caches.iter().filter(is_due);
        due.map(|cache| cache.key).collect()
    }
}

impl Cache {
    pub(super) fn set_replay(&mut self, replay: Option<Replay>) {
        self.plain = match replay {
            Some(_) => PoolKey::NONE,
            None => self.key,
        };
        self.replay = replay;
    }

    /// Adds to the trace, if there is one, that a block is live now.
    #[cold]
    #[inline(never)]
    pub(super) fn trace(&mut self, entry: &mut Entry, block: &Block, missed: bool) {
        let Some(Replay::Tracing(trace)) = self.replay.as_mut() else {
            return;
        };
        entry.nth = trace.allocate(block, missed);
        (entry.trace, entry.state) = (trace.number, Use::Traced);
        if trace.is_spent() {
            self.failed_misses += trace.misses as u64;
            self.set_replay(None);
        }
    }

    fn participant(&self) -> Option<&Participant> {
        match self.replay.as_ref()? {
            Replay::Replaying(participant) => Some(participant),
            Replay::Tracing(_) => None,
        }
    }
}

impl Inner {
    /// Allocates as [`Inner::alloc`] does, with a replay state.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_replayed(&mut self, key: PoolKey, requested: u64) -> CacheResult<Block> {
        let at = self.at(key).ok_or(Miss::NoBlock)?;
        let cache = &mut self.caches[at];
        // Where the lane begins again, the pool makes a plan of what it did, or of what all streams did.
        let is_pools = match cache.replay.as_mut() {
            Some(Replay::Replaying(own)) => {
                let served = own.plan.lock().allocate(own.index, requested, None);
                // The pool asks again, with the request's order.
                let (block, ends_first, _) = served.map_err(|_| Miss::NoBlock)?;
                if ends_first {
                    self.version.change();
                }
                return Ok(block);
            }
            Some(Replay::Tracing(trace)) => trace.begins_again(requested) || trace.is_ended(),
            None => false,
        };
        if is_pools {
            return Err(Miss::NoBlock);
        }
        let bytes = cache.rounding.apply(requested).ok_or(Miss::NoBlock)?;
        let sizes = (bytes, requested);
        let block = alloc_cached(cache, &mut self.entries, &mut self.version, sizes)?;
        if let Some(id) = self.by_address.get(block.addr) {
            cache.trace(&mut self.entries[id as usize], &block, false);
        }
        Ok(block)
    }

    /// Frees as [`Inner::free`] does a block that was allocated with a replay state.
    #[cold]
    #[inline(never)]
    pub(super) fn free_traced(&mut self, id: u32, epoch: u64) -> Option<Block> {
        let entry = self.entries.get_mut(id as usize)?;
        if entry.died().is_some() {
            return None;
        }
        let cache = &mut self.caches[entry.cache as usize];
        if entry.trace != FREE_TRACED {
            match cache.replay.as_mut() {
                Some(Replay::Tracing(trace)) => {
                    let own = entry.trace == trace.number;
                    if own && trace.ends_all() {
                        // The pool has to know.
                        return None;
                    }
                    trace.free(own.then_some(entry.nth));
                    entry.trace = UNTRACED;
                }
                Some(Replay::Replaying(_)) | None => {}
            }
        }
        let block = cache_block(cache, entry, id, epoch);
        if block.is_none() {
            entry.trace = FREE_TRACED;
        }
        block
    }

    /// Frees a live block of a plan.
    #[cold]
    #[inline(never)]
    pub(super) fn free_planned(&mut self, addr: u64, epoch: u64) -> Option<Block> {
        let mut own = self.caches.iter().filter_map(Cache::participant);
        own.find_map(|own| own.plan.lock().free(own.index, addr, epoch))
    }

    /// Whether the lane has a replay state in a pool.
    pub fn is_traced(&self, key: PoolKey) -> bool {
        self.cache(key).is_some_and(|cache| cache.replay.is_some())
    }

    /// Whether the lane replays in a pool.
    pub fn is_replaying(&self, key: PoolKey) -> bool {
        let cache = self.cache(key);
        cache.is_some_and(|cache| cache.participant().is_some())
    }

    /// Requests and frees that a pool's cache or plan served.
    pub fn served(&self, key: PoolKey) -> u64 {
        self.cache(key).map_or(0, |cache| {
            let replaying = cache.participant();
            let replayed = replaying.map_or(0, |own| own.plan.lock().served.replayed);
            cache.hits + cache.frees + replayed
        })
    }

    pub fn trace(&self, key: PoolKey) -> Option<&Trace> {
        match self.cache(key)?.replay.as_ref()? {
            Replay::Tracing(trace) => Some(trace),
            Replay::Replaying(_) => None,
        }
    }

    pub fn trace_mut(&mut self, key: PoolKey) -> Option<&mut Trace> {
        match self.cache_mut(key)?.replay.as_mut()? {
            Replay::Tracing(trace) => Some(trace),
            Replay::Replaying(_) => None,
        }
    }

    /// The iteration that the lane has come back to the start of.
    pub fn repeated(&self, key: PoolKey) -> Option<Iteration> {
        self.trace(key)?.repeated()
    }

    /// Whether a plan of the iteration with this start may begin: the lane did nothing since.
    pub fn may_replay(&self, key: PoolKey, start: Start) -> bool {
        self.trace(key).is_some_and(|trace| trace.may_replay(start))
    }

    /// Begins to replay, if the lane did nothing while the plan was made.
    pub fn begin_replay(&mut self, key: PoolKey, start: Start, participant: Participant) -> bool {
        let may = self.may_replay(key, start);
        if may && let Some(cache) = self.cache_mut(key) {
            cache.set_replay(Some(Replay::Replaying(participant)));
            self.plans += 1;
            // Blocks that were at these addresses before may have ended later.
            self.version.change();
        }
        may
    }

    /// Ends the replay state of the lane in a pool.
    pub fn end_replay(&mut self, key: PoolKey) {
        if let Some(cache) = self.cache_mut(key) {
            let was = u32::from(cache.participant().is_some());
            cache.set_replay(None);
            cache.failed_misses = 0;
            self.plans -= was;
        }
    }
}

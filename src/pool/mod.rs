//! The stream-ordered allocator.
//!
//! Owns which addresses are live, which are free, and after which frontier each free one may be used (its
//! death). Uses `timeline` for order, `sync` for locks and a [`SlabProvider`] for memory. Must never know a C type, a
//! driver, a queue or an event. Calls its provider only while it holds no lock; `sync::rank` has the order of locks.
//!
//! An allocation takes the first of these that serves it:
//!
//! | step | what serves | file |
//! |---|---|---|
//! | 1. cache hit | a block of that size that died on the stream itself: one lock, no look at the pool. In a tight pool's only stream also a part of what was coalesced there | `cache`, `cache::coalesced` |
//! | 2. replay | the address that the stream had for the same request in the iteration before | `replay`, `cache::table::replay` |
//! | 3. policy | the best fit of the stream's own dead memory, of what its dependencies order, and of what has completed | `policy`, `heap::search` |
//! | 4. compaction | free pages that are remapped into one range, under pressure | `compaction` |
//! | 5. growth | a new slab, in few and large steps | `growth` |
//! | 6. a wait on the stream | free memory with the least wait, which the caller inserts: [`Acquired::After`] | `policy`, `heap::search` |
//! | 7. release | slabs that are idle go back to the provider, and growth takes their place | `release` |
//! | 8. host wait | nothing serves: [`Pool::awaited`] names the least that the host may wait for | `host_wait` |
//!
//! `alloc` walks these steps and calls the provider between them; `state` is what it locks. `heap` has segments,
//! indexes and search, `options` every tuning constant, `rounding` the sizes of blocks and their classes, `request` and
//! `provider` the values and the trait, `stats` the counters. This file has the pool's other calls: frees, limits,
//! trims, figures.
//!
//! | state of a range | entered by | may be allocated to |
//! |---|---|---|
//! | live | [`Pool::acquire`] | nobody |
//! | free with a death | [`Pool::release`] | a request that comes after the death, or waits for it |
//! | clear: never used, or its death was observed complete | growth; a later look | anybody |
//! | cached by a stream | [`StreamCache::free`] | that stream; anybody after a recall |
//! | held for a replay plan | a stream that repeats itself | its participants; anybody after the plan's end |
//! | remapped: its pages have another address now | compaction | as its new address |
//! | given back | [`Pool::settle`], [`Pool::trim`], [`Pool::shrink`], [`Pool::close`], want of room | the provider |

#![forbid(unsafe_code)]

mod alloc;
#[cfg(any(test, feature = "oracle"))]
mod audit;
mod cache;
mod compaction;
mod growth;
mod heap;
mod host_wait;
mod options;
#[cfg(any(test, feature = "oracle"))]
#[doc(hidden)]
pub mod oracle;
mod policy;
mod provider;
mod release;
mod replay;
mod request;
mod rounding;
mod state;
mod stats;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub use cache::extent_version::ExtentVersion;
pub use cache::usage::Usage;
pub use cache::{PoolKey, StreamCache};
pub use host_wait::Releasable;
pub use options::{Compaction, Options};
pub use provider::{ProviderError, Slab, SlabProvider};
pub use request::{
    Acquired, Block, Config, DecisionTrace, MissingDependency, Order, PoolError, Request, Reuse,
    WaitPolicy,
};
pub use stats::{Counters, Figures};

use crate::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering, rank};
use crate::timeline::Frontier;
use cache::table::CacheTable;
pub(crate) use cache::{CacheResult, Miss};
use growth::Limits;
use release::Releasing;
use state::PoolState;
use std::sync::Arc;

/// A pool of memory of one kind from one provider. All methods may be called from any thread; none waits for
/// the device.
#[derive(Debug)]
pub struct Pool<S: SlabProvider> {
    provider: S,
    key: PoolKey,
    usage: Arc<Usage>,
    state: Mutex<PoolState, { rank::POOL }>,
    /// Address aliases that may still be used.
    aliases: AtomicU64,
    /// Signalled when a call to the provider has ended.
    settled: Condvar,
}

impl<S: SlabProvider> Pool<S> {
    pub fn new(provider: S, config: Config) -> Self {
        Self::with_usage(provider, config, Arc::default())
    }

    /// A pool whose used bytes are counted together with those of all others of `usage`.
    pub fn with_usage(provider: S, config: Config, usage: Arc<Usage>) -> Self {
        let page = provider.page();
        let granularity = page.unwrap_or_else(|| provider.granularity());
        let limits = Limits {
            granularity,
            alignment: provider.alignment(),
            largest_page: provider.largest_page(),
            observes: provider.observes(),
            leaves_mapped: provider.leaves_mapped(),
            maps_once: provider.maps_once(),
            paged: page.is_some(),
        };
        let key = PoolKey::fresh();
        let min_align = config.min_align.clamp(1, 1 << 20).next_power_of_two();
        let config = Config {
            min_align,
            ..config
        };
        let table = CacheTable::new(key, Arc::clone(&usage), &config, page.is_some());
        Self {
            provider,
            key,
            usage,
            state: Mutex::new(PoolState::new(config, limits, page, table)),
            aliases: AtomicU64::new(0),
            settled: Condvar::new(),
        }
    }

    /// Identifies this pool in [`StreamCache::alloc`].
    pub fn key(&self) -> PoolKey {
        self.key
    }

    pub fn provider(&self) -> &S {
        &self.provider
    }

    /// Ends the allocation that starts at `addr`; its memory may be reused after `death`. None if there is no such
    /// allocation.
    pub fn release(&self, addr: u64, death: Frontier) -> Option<Block> {
        let mut state = self.state.lock();
        let block = state.release(addr, death)?;
        if state.closed {
            let releasing = state.release_down_to(0);
            drop(state);
            drop(self.return_to_provider(&releasing));
        }
        Some(block)
    }

    /// The live allocation among whose requested bytes `addr` is.
    pub fn lookup(&self, addr: u64) -> Option<Block> {
        self.state.lock().lookup(addr)
    }

    /// Gives back what exceeds the release threshold, as far as it is free and observed complete. To be called
    /// after completion was observed. Cheap without a threshold.
    pub fn settle(&self) {
        self.remove(|state| match state.closed {
            true => state.release_down_to(0),
            false => state.release_down_to(state.config.release_threshold),
        });
    }

    /// Gives back the address aliases of remapped memory that nothing uses any more. To be called after
    /// completion was observed.
    pub fn expire(&self) {
        let mut state = self.state.lock();
        let expired = state.expired();
        self.publish(&state);
        drop(state);
        expired.iter().for_each(|old| self.provider.retire(*old));
    }

    /// Whether [`Pool::expire`] may find something.
    pub fn has_aliases(&self) -> bool {
        self.aliases.load(Ordering::Relaxed) > 0
    }

    /// Relaxed: a caller that misses a change asks again after the next completion.
    fn publish(&self, state: &PoolState) {
        self.aliases.store(state.aliases(), Ordering::Relaxed);
    }

    /// Releases memory that is free and observed complete as long as at least `keep_bytes` stay reserved.
    /// Pages and slabs are released whole.
    pub fn trim(&self, keep_bytes: u64) {
        self.remove(|state| state.trim(keep_bytes));
    }

    /// Releases memory that is free and observed complete until at most `keep_bytes` are reserved or no more can
    /// be released.
    pub fn shrink(&self, keep_bytes: u64) {
        self.remove(|state| state.release_down_to(keep_bytes));
    }

    /// The least frontier after which a request that found no memory can be served. The caller waits for it on
    /// the host and repeats the request. Empty if the request may be repeated at once, after [`Pool::trim`];
    /// none if no wait suffices or the policy allows none.
    ///
    /// `room` is how many bytes may still be reserved, none where the provider has no memory left; `elsewhere`
    /// is what other pools could give back.
    pub fn awaited(
        &self,
        request: &Request<'_>,
        room: Option<u64>,
        elsewhere: Vec<Releasable>,
    ) -> Option<Frontier> {
        let mut state = self.state.lock();
        let need = policy::need(request, &state.config).ok()?;
        state.awaited(&need, room, elsewhere)
    }

    /// Counts a request as failed. Its caller decides that it is not repeated.
    pub fn record_failure(&self) {
        self.state.lock().stats.counters.failed += 1;
    }

    /// Memory that could go back to the provider, at once or after a wait.
    pub fn releasable(&self) -> Vec<Releasable> {
        let mut state = self.state.lock();
        state.recall();
        state.heap.releasable()
    }

    /// Bytes reserved and used, and their highs. With a shared [`Usage`], used bytes are those of all its pools.
    pub fn figures(&self) -> Figures {
        let state = self.state.lock();
        let (used, used_high) = self.usage.read();
        Figures {
            used,
            used_high,
            ..state.stats.figures
        }
    }

    pub fn counters(&self) -> Counters {
        let state = self.state.lock();
        state.table.add_to(state.stats.counters)
    }

    /// Sets the high of `reserved` to its current value.
    pub fn reset_reserved_high(&self) {
        let figures = &mut self.state.lock().stats.figures;
        figures.reserved_high = figures.reserved;
    }

    /// Sets the high of `used` to its current value.
    pub fn reset_used_high(&self) {
        self.usage.reset_high();
    }

    /// Takes effect at the next [`Pool::settle`].
    pub fn set_release_threshold(&self, bytes: u64) {
        self.state.lock().config.release_threshold = bytes;
    }

    /// The pool's configuration, with the present release threshold.
    pub fn config(&self) -> Config {
        self.state.lock().config
    }

    /// Ends the pool's handle: no request is served from now on. Live blocks stay valid and can be released.
    /// Each slab goes back once its last death is observed complete, at a later release or [`Pool::settle`], or
    /// when the pool is dropped. The pool must be kept until [`Pool::is_drained`].
    pub fn close(&self) {
        self.remove(|state| {
            state.close();
            state.release_down_to(0)
        });
    }

    /// Whether it is closed and everything has gone back to the provider.
    pub fn is_drained(&self) -> bool {
        self.state.lock().is_drained()
    }

    /// Has memory leave the heap, and gives it back to the provider.
    fn remove(&self, choose: impl FnOnce(&mut PoolState) -> Releasing) {
        let releasing = choose(&mut self.state.lock());
        drop(self.return_to_provider(&releasing));
    }

    /// Gives memory that left the heap back to the provider, then subtracts it from the figures.
    fn return_to_provider(&self, releasing: &Releasing) -> MutexGuard<'_, PoolState> {
        for old in &releasing.addresses {
            self.provider.retire(*old);
        }
        for slab in &releasing.slabs {
            self.provider.release(*slab);
        }
        let mut state = self.state.lock();
        self.publish(&state);
        if !releasing.slabs.is_empty() {
            state.released(&releasing.slabs);
            self.settled.notify_all();
        }
        state
    }
}

impl<S: SlabProvider> Drop for Pool<S> {
    /// Gives back what is observed complete. Live and pending memory is leaked and logged, since a command may
    /// still use it. Not as a warning: libsycl prints those unasked, and many programs leave memory to the end
    /// of the process.
    fn drop(&mut self) {
        self.close();
        let reserved = self.figures().reserved;
        if reserved > 0 {
            log::info!("a pool was dropped with {reserved} bytes in use; they are leaked");
        }
    }
}

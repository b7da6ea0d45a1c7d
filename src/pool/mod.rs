//! The stream-ordered allocator.
//!
//! Owns which addresses are live, which are free and what their death was. Uses `timeline` for order
//! and a [`Source`] for memory. Must never know a C type, a driver, a queue or an event, and calls
//! its source only while holding no lock.
//!
//! | state of a range | entered by | may be handed to |
//! |---|---|---|
//! | live | [`Pool::acquire`] | nobody |
//! | free, dying at a frontier | [`Pool::release`] | who comes after that frontier, or waits for it |
//! | clear: never used, or death observed complete | growth; any later look | anybody |
//! | cached: freed by a lane and still lent to it | [`Stash::free`] | that lane; anybody, after recall |
//! | held for a plan: what a lane had, kept for it to have again | a lane that is where it was before | that lane; anybody, after recall |
//! | gathered: pages of it lead a second life at another address | want of one stretch long enough | as its new address's |
//! | given back | [`Pool::settle`], [`Pool::trim`], [`Pool::close`], want of room | the source |
//!
//! An allocation walks `alloc` (the path), `cache` (a stream's own blocks), `replay` (the addresses it had),
//! `policy` (the order of choice), `heap` (segments, indexes, search), `growth` and `compaction`. `options` has
//! all tuning constants, `request` and `source` the values and the provider, `stats` the counters, `host_wait`
//! and `release` what happens for want of memory. This file frees, keeps limits and gives back. Nothing is
//! called under its locks, whose order `timeline::rank` has.

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
mod release;
mod replay;
mod request;
mod source;
mod state;
mod stats;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub use cache::extent_version::Ends;
pub use cache::usage::Meter;
pub use cache::{PoolKey, Stash};
pub use host_wait::Leavable;
pub use options::{Compaction, Options};
pub use request::{
    Acquired, Block, Config, Lack, Order, PoolError, Request, Reuse, Story, UnknownPointer,
    WaitPolicy,
};
pub use source::{Slab, Source, SourceError};
pub use stats::{Counters, Figures};

use crate::timeline::Frontier;
use crate::timeline::rank;
use crate::timeline::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering};
use cache::table::Lending;
pub(crate) use cache::{Miss, Taken};
use growth::Limits;
use heap::search::Need;
use release::Leaving;
use state::State;
use std::sync::Arc;

/// A pool of memory of one kind from one source. All methods may be called from any thread, and
/// none of them waits for the device.
#[derive(Debug)]
pub struct Pool<S: Source> {
    source: S,
    key: PoolKey,
    meter: Arc<Meter>,
    state: Mutex<State, { rank::POOL }>,
    /// Old addresses that may still be used.
    lingering: AtomicU64,
    /// Signalled when a call to the source has ended.
    settled: Condvar,
}

impl<S: Source> Pool<S> {
    pub fn new(source: S, config: Config) -> Self {
        Self::with_meter(source, config, Arc::default())
    }

    /// A pool whose `used` is counted together with that of all others of the meter.
    pub fn with_meter(source: S, config: Config, meter: Arc<Meter>) -> Self {
        let page = source.page();
        let granularity = page.unwrap_or_else(|| source.granularity());
        let limits = Limits {
            granularity,
            alignment: source.alignment(),
            largest_page: source.largest_page(),
            observes: source.observes(),
            leaves_mapped: source.leaves_mapped(),
            paged: page.is_some(),
        };
        let key = PoolKey::fresh();
        let lending = Lending::new(key, Arc::clone(&meter), config.options);
        Self {
            source,
            key,
            meter,
            state: Mutex::new(State::new(config, limits, page, lending)),
            lingering: AtomicU64::new(0),
            settled: Condvar::new(),
        }
    }

    /// What [`Stash::alloc`] knows this pool by.
    pub fn key(&self) -> PoolKey {
        self.key
    }

    pub fn source(&self) -> &S {
        &self.source
    }

    /// Ends the allocation that starts at `addr`; its memory may be reused after `death`.
    pub fn release(&self, addr: u64, death: Frontier) -> Result<Block, UnknownPointer> {
        let mut state = self.state.lock();
        let block = state.release(addr, death).ok_or(UnknownPointer { addr })?;
        if state.is_closed() {
            let leaving = state.leave(0);
            drop(state);
            drop(self.give_back(&leaving));
        }
        Ok(block)
    }

    /// The live allocation among whose requested bytes `addr` is.
    pub fn lookup(&self, addr: u64) -> Option<Block> {
        self.state.lock().lookup(addr)
    }

    /// Gives back what exceeds the release threshold, as far as it is free and observed complete.
    /// For whoever has just observed completion. Cheap when there is no threshold.
    pub fn settle(&self) {
        let mut state = self.state.lock();
        let keep = state.keep();
        let leaving = state.leave(keep);
        drop(state);
        drop(self.give_back(&leaving));
    }

    /// Gives back the addresses that gathered memory has left, as far as nothing uses them any more.
    /// For whoever has just observed completion.
    pub fn expire(&self) {
        let mut state = self.state.lock();
        let expired = state.expired();
        self.note(&state);
        drop(state);
        expired.iter().for_each(|old| self.source.retire(*old));
    }

    /// Whether [`Pool::expire`] may find something.
    pub fn lingers(&self) -> bool {
        self.lingering.load(Ordering::Relaxed) > 0
    }

    /// Relaxed: who asks in between asks again.
    fn note(&self, state: &State) {
        self.lingering.store(state.lingering(), Ordering::Relaxed);
    }

    /// Gives back slabs that are free and observed complete until no more than `keep_bytes` are
    /// reserved or nothing more can go.
    pub fn trim(&self, keep_bytes: u64) {
        let leaving = self.state.lock().leave(keep_bytes);
        drop(self.give_back(&leaving));
    }

    /// The least that has to be observed complete before a request that found no memory can be served,
    /// for a caller who may block the host for it and then repeats the request.
    /// Empty if it may be repeated at once, after [`Pool::trim`]; none if no wait suffices or the policy
    /// allows none.
    ///
    /// Counts with `room` bytes that may still be reserved, none where the source has no memory left, and
    /// with what `elsewhere` could make room.
    pub fn awaited(
        &self,
        request: &Request<'_>,
        room: Option<u64>,
        elsewhere: Vec<Leavable>,
    ) -> Option<Frontier> {
        let mut state = self.state.lock();
        let need = Need::new(request, state.config().min_align).ok()?;
        state.awaited(&need, request, room, elsewhere)
    }

    /// Counts a request as failed: only its caller knows that it will not be repeated.
    pub fn give_up(&self) {
        self.state.lock().stats.counters.failed += 1;
    }

    /// What could go back to the source, at once or after a wait.
    pub fn leavable(&self) -> Vec<Leavable> {
        let mut state = self.state.lock();
        state.recall();
        state.leavable()
    }

    /// With a shared meter, `used` and its high are those of all its pools.
    pub fn figures(&self) -> Figures {
        let state = self.state.lock();
        let (used, used_high) = self.meter.read();
        Figures {
            used,
            used_high,
            ..state.stats.figures
        }
    }

    pub fn counters(&self) -> Counters {
        let state = self.state.lock();
        state.lending.add_to(state.stats.counters)
    }

    /// Sets the high of `reserved` to its current value.
    pub fn reset_reserved_high(&self) {
        let figures = &mut self.state.lock().stats.figures;
        figures.reserved_high = figures.reserved;
    }

    /// Sets the high of `used` to its current value.
    pub fn reset_used_high(&self) {
        self.meter.reset_high();
    }

    /// Takes effect at the next [`Pool::settle`].
    pub fn set_release_threshold(&self, bytes: u64) {
        self.state.lock().set_release_threshold(bytes);
    }

    pub fn release_threshold(&self) -> u64 {
        self.state.lock().config().release_threshold
    }

    pub fn max_bytes(&self) -> Option<u64> {
        self.state.lock().config().max_bytes
    }

    /// The pool as it was configured, with the present release threshold.
    pub fn config(&self) -> Config {
        *self.state.lock().config()
    }

    /// Ends the pool's handle: no request is served from now on. Live blocks stay valid and can be
    /// released; each slab goes back once its last death is observed complete, at a later release
    /// or [`Pool::settle`], or when the pool is dropped. Keep the pool until [`Pool::is_drained`].
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.close();
        let leaving = state.leave(0);
        drop(state);
        drop(self.give_back(&leaving));
    }

    /// Whether it is closed and everything has gone back to the source.
    pub fn is_drained(&self) -> bool {
        self.state.lock().is_drained()
    }

    /// Hands what has left the store to the source, then lets it leave the figures.
    fn give_back(&self, leaving: &Leaving) -> MutexGuard<'_, State> {
        for old in &leaving.addresses {
            self.source.retire(*old);
        }
        for slab in &leaving.slabs {
            self.source.release(*slab);
        }
        let mut state = self.state.lock();
        self.note(&state);
        if !leaving.slabs.is_empty() {
            state.left(&leaving.slabs);
            self.settled.notify_all();
        }
        state
    }
}

impl<S: Source> Drop for Pool<S> {
    /// Gives back what is observed complete. What is live or pending is leaked and logged, since a
    /// command may still use it. No warning: libsycl prints those on its own, and programs that leave
    /// memory to the end of the process are many.
    fn drop(&mut self) {
        self.close();
        let reserved = self.figures().reserved;
        if reserved > 0 {
            log::info!("a pool was dropped with {reserved} bytes in use; they are leaked");
        }
    }
}

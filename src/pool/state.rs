//! What a pool keeps under its lock, and the steps of an attempt to serve a request.
//!
//! Every call to the source happens between two steps, outside the lock. Bytes asked for count
//! against the maximum before the call (`growing`), bytes handed back until after it (`leaving`), so
//! that threads together never exceed it.

use crate::pool::cache::Stash;
use crate::pool::cache::table::Lending;
use crate::pool::compaction::Pressure;
use crate::pool::growth::Limits;
use crate::pool::heap::Store;
use crate::pool::heap::search::Need;
use crate::pool::heap::segments::{Place, SegId};
use crate::pool::request::{Block, Config, Order, Request, Reuse};
use crate::pool::source::SourceError;
use crate::pool::stats::Stats;
use crate::timeline::Frontier;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct State {
    pub store: Store,
    pub stats: Stats,
    pub lending: Lending,
    pub(super) config: Config,
    pub(super) limits: Limits,
    pub(super) closed: bool,
    pub(super) growing: u64,
    pub(super) leaving: u64,
    /// Bytes that are being remapped.
    pub(super) moving: u64,
    pub(super) pressure: Pressure,
}

/// What one request has been through.
#[derive(Debug, Default)]
pub(crate) struct Attempt<'a> {
    /// Whom the block is lent to.
    pub stash: Option<&'a Arc<Stash>>,
    /// Completion was looked for.
    pub observed: bool,
    /// Nothing was ready when it was first looked for.
    pub missed: bool,
    /// The provider refused more than is needed; ask for what is.
    pub tight: bool,
    /// A slab was not aligned as promised.
    pub padded: bool,
    /// This request made the pool grow.
    pub grew: bool,
    /// New memory lies elsewhere than after the pool's last slab.
    pub elsewhere: bool,
    /// That is not asked for any more.
    pub apart: bool,
    /// The provider's last word; no more growth until something is given back to it.
    pub refused: Option<SourceError>,
    /// The provider could not remap.
    pub scattered: bool,
}

impl<'a> Attempt<'a> {
    pub fn new(stash: Option<&'a Arc<Stash>>) -> Self {
        Self {
            stash,
            ..Self::default()
        }
    }
}

impl State {
    pub fn new(config: Config, limits: Limits, page: Option<u64>, lending: Lending) -> Self {
        let min_align = config.min_align.clamp(1, 1 << 20).next_power_of_two();
        Self {
            store: Store::new(page),
            stats: Stats::default(),
            lending,
            config: Config {
                min_align,
                // Pages need not be asked for in advance: later ones can join them.
                chunk_bytes: page.map_or(config.chunk_bytes, |_| 0),
                ..config
            },
            limits,
            closed: false,
            growing: 0,
            leaving: 0,
            moving: 0,
            pressure: Pressure::default(),
        }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn set_release_threshold(&mut self, bytes: u64) {
        self.config.release_threshold = bytes;
    }

    pub fn is_closed(&self) -> bool {
        self.closed
    }

    pub fn close(&mut self) {
        self.closed = true;
        self.lending.end(&mut self.store);
    }

    pub fn is_drained(&self) -> bool {
        self.closed
            && self.stats.figures.reserved == 0
            && self.growing == 0
            && self.lending.aliases.is_empty()
    }

    /// See [`Lending::tidy`].
    pub fn tidy(&mut self) {
        self.lending.tidy(&mut self.store);
    }

    /// Before a request that the stash did not serve. True if it may now.
    pub fn turn(&mut self, stash: &Arc<Stash>, request: &Request<'_>) -> bool {
        self.lending.turn(&mut self.store, stash, request)
    }

    /// Whether it is worth to have the source look for what has completed: if all has, lanes that begin
    /// again with this request have a plan together.
    pub fn may_join(&self, stash: &Stash, request: &Request<'_>) -> bool {
        self.limits.observes && self.lending.may_join(stash, request.bytes)
    }

    /// What a joint plan has for the request.
    pub fn take_joint(&mut self, stash: &Arc<Stash>, request: &Request<'_>) -> Option<Block> {
        let (block, reuse) = self.lending.take_joint(&mut self.store, stash, request)?;
        request.tell(|story| story.reuse = Some(reuse));
        Some(block)
    }

    pub fn plan(&mut self, stash: &Arc<Stash>, order: &Order<'_>) {
        self.lending.plan(&mut self.store, stash, order, None);
    }

    /// How many old addresses may still be used, or will be left.
    pub fn lingering(&self) -> u64 {
        self.lending.aliases.pending() + u64::from(self.moving > 0)
    }

    /// A block is ready without a wait.
    pub(super) fn serves(&mut self, reuse: Reuse, request: &Request<'_>, attempt: &Attempt<'_>) {
        self.count(reuse);
        if let Some(stash) = attempt.stash {
            self.lending.got(stash, reuse);
        }
        request.tell(|story| story.reuse = Some(reuse));
    }

    pub fn release(&mut self, addr: u64, death: Frontier) -> Option<Block> {
        let block = self.lending.release(&mut self.store, addr, death)?;
        self.stats.counters.releases += 1;
        Some(block)
    }

    /// The live allocation among whose requested bytes `addr` is.
    pub fn lookup(&self, addr: u64) -> Option<Block> {
        let block = self.lending.look(&self.store, addr)?;
        (addr - block.addr < block.requested).then_some(block)
    }

    /// What has to be seen before anything is counted or given back: what stashes cache is free.
    pub fn recall(&mut self) {
        self.lending.end_joint(&mut self.store);
        self.lending
            .recall(&mut self.store, (1, 0), |_| true, |_, _| true);
    }

    pub(super) fn take(&mut self, place: Place, need: &Need, attempt: &Attempt<'_>) -> Block {
        let taken = self.store.take(place, need.bytes, need.requested);
        self.lend(taken, attempt)
    }

    /// A block of the store's is live from now on.
    pub(super) fn lend(&mut self, (seg, block): (SegId, Block), attempt: &Attempt<'_>) -> Block {
        self.lending.take(
            &mut self.store,
            (seg, &block),
            attempt.stash,
            self.config.min_align,
        );
        block
    }

    pub(super) fn count(&mut self, reuse: Reuse) {
        let counters = &mut self.stats.counters;
        *match reuse {
            Reuse::OwnLane => &mut counters.own_lane,
            Reuse::Ordered => &mut counters.ordered,
            Reuse::Completed => &mut counters.completed,
            Reuse::Waited => &mut counters.waited,
            Reuse::Grown => &mut counters.grown,
        } += 1;
    }
}

//! What a pool has under its lock, and what an attempt to serve a request has been through.
//!
//! Every call to the provider happens between two steps, outside of the lock. Bytes that are asked for count
//! against the maximum before the call (`growing`), bytes that are given back until after it (`releasing`): so
//! threads together never exceed it.

use crate::pool::cache::StreamCache;
use crate::pool::cache::table::CacheTable;
use crate::pool::compaction::Pressure;
use crate::pool::growth::Limits;
use crate::pool::heap::Heap;
use crate::pool::provider::ProviderError;
use crate::pool::request::{Block, Config, MissingDependency};
use crate::pool::stats::Stats;
use crate::timeline::Frontier;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct PoolState {
    pub heap: Heap,
    pub stats: Stats,
    pub table: CacheTable,
    pub(super) config: Config,
    pub(super) limits: Limits,
    pub(super) closed: bool,
    pub(super) growing: u64,
    pub(super) releasing: u64,
    /// Bytes that are being remapped.
    pub(super) moving: u64,
    pub(super) pressure: Pressure,
    /// Requests served, as far as they earn no page any more (`growth`).
    pub(super) requests_spent: u64,
}

/// What one request has been through.
#[derive(Debug, Default)]
pub(crate) struct Attempt<'a> {
    /// The cache that the block goes to.
    pub cache: Option<&'a Arc<StreamCache>>,
    /// Number of times completion was looked for.
    pub looks: u64,
    /// Whether more looks may be worth their time. None before the first.
    pub is_patient: Option<bool>,
    /// Nothing was ready when it was first looked for.
    pub missed: bool,
    /// Whether `missing` is wanted, for the decision trace.
    pub traces: bool,
    pub missing: Option<MissingDependency>,
    /// The provider refused more than is needed; ask for what is.
    pub tight: bool,
    /// A slab was not aligned as promised.
    pub padded: bool,
    /// This request made the pool grow.
    pub grew: bool,
    /// The last growth or move counted on the free memory at the end of the pool's last slab.
    pub continues: bool,
    /// Neither growth nor remapped pages count on the free memory at the end of the pool's last slab any more.
    pub grows_separately: bool,
    /// The provider's last word; no more growth until something is given back to it.
    pub refused: Option<ProviderError>,
    /// The provider could not remap.
    pub cannot_remap: bool,
}

impl Attempt<'_> {
    /// Nothing is ready, though there may be memory that came for this very request.
    pub fn record_misfit(&mut self) {
        let grew = std::mem::take(&mut self.grew);
        if std::mem::take(&mut self.continues) {
            // The slab lies elsewhere than was asked, or another thread took the memory before it.
            self.grows_separately = true;
        } else if grew && std::mem::replace(&mut self.padded, true) {
            // It grew twice and still nothing fits: slabs are misaligned.
            self.refused = Some(ProviderError::OutOfMemory);
        }
    }
}

impl PoolState {
    pub fn new(config: Config, limits: Limits, page: Option<u64>, table: CacheTable) -> Self {
        Self {
            heap: Heap::new(page),
            stats: Stats::default(),
            table,
            config: Config {
                // Pages need not be asked for in advance: later ones can join them.
                chunk_bytes: page.map_or(config.chunk_bytes, |_| 0),
                ..config
            },
            limits,
            closed: false,
            growing: 0,
            releasing: 0,
            moving: 0,
            pressure: Pressure::default(),
            requests_spent: 0,
        }
    }

    pub fn close(&mut self) {
        self.closed = true;
        self.table.end(&mut self.heap);
    }

    pub fn is_drained(&self) -> bool {
        self.closed
            && self.stats.figures.reserved == 0
            && self.growing == 0
            && self.table.aliases.is_empty()
    }

    /// How many address aliases may still be used, or will be made.
    pub fn aliases(&self) -> u64 {
        self.table.aliases.pending() + u64::from(self.moving > 0)
    }

    pub fn release(&mut self, addr: u64, death: Frontier) -> Option<Block> {
        let block = self.table.release(&mut self.heap, addr, death)?;
        self.stats.counters.releases += 1;
        Some(block)
    }

    /// The live allocation among whose requested bytes `addr` is.
    pub fn lookup(&self, addr: u64) -> Option<Block> {
        let block = self.table.find(&self.heap, addr)?;
        (addr - block.addr < block.requested).then_some(block)
    }

    /// Ends all plans and recalls all cached blocks: before anything is counted or given back.
    pub fn recall(&mut self) {
        self.table.end_plans(&mut self.heap);
        self.table
            .recall(&mut self.heap, (1, 0), |_| true, |_, _| true);
    }
}

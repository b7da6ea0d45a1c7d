//! Every tuning constant of the pool, and the switches of its mechanisms.
//!
//! A mechanism that buys speed or memory has a variable of the environment (`src/stream/settings` reads them). Its row
//! is in `cargo xtask bench pool --ablation`, and where pages have a price in `docs/src/benchmarks/cuda.md`. The cache of
//! extents is the engine's (`stream/context`) and has its rows in `cargo xtask bench submit`: it makes copies and fills
//! cheaper, no allocation.

/// The least share of a larger request for which a cached block is taken back: smaller ones seldom help.
pub(crate) const USEFUL_SHARE: u64 = 16;

/// Requests of at least this share of the reserved bytes have free pages remapped though the pool could grow.
/// Remapping for smaller requests scatters adjacent memory.
pub(crate) const LARGE_SHARE: u64 = 16;

/// The addresses that remapped memory has left and that replay may use, as a multiple of what the pool
/// holds. More would only cost the driver's tables.
pub(crate) const ALIAS_RATIO: u64 = 8;

/// Sizes that a stream's cache has at once of one pool, and bins that a size may be in.
pub(crate) const CACHE_BINS: usize = 64;
pub(crate) const BIN_PROBES: usize = 4;

/// Where a stream coalesces what dies there, blocks of at most so many of the pool's least ones wait in bins of their
/// sizes as elsewhere. With larger ones in bins a GPT reserves more, with none a decoder does.
pub(crate) const LARGEST_BIN_UNITS: u64 = 64;

/// How many times too large a cached block may be that is taken out alone to be cut.
pub(crate) const MAX_CUT_RATIO: u64 = 4;

/// Streams that a pool remembers though they do nothing, and requests after which it looks for more of them:
/// each that it remembers is looked at for each request that its cache does not serve.
pub(crate) const MAX_IDLE_STREAMS: usize = 32;

/// Misses without a request of another stream after which a stream coalesces again. To begin and to end it takes all
/// that is cached back, and streams take turns within an iteration.
pub(crate) const COALESCING_AFTER_MISSES: usize = 1024;

/// Misses of an iteration for which a replay plan is made, and operations for each of them: with fewer
/// misses a cache serves as well.
pub(crate) const MIN_REPLAY_MISSES: usize = 8;
pub(crate) const MAX_OPS_PER_MISS: usize = 64;

/// Allocations of an iteration that got what other streams had, for a shared plan: with fewer, streams serve
/// themselves as well.
pub(crate) const MIN_SHARED_ALLOCATIONS: usize = if cfg!(loom) { 2 } else { 8 };

/// Allocations that an allocation trace may have beside those for its misses.
pub(crate) const MIN_TRACE_ALLOCATIONS: usize = 1 << 10;

/// Operations of an allocation trace: its memory is bounded.
pub(crate) const MAX_TRACE_OPS: usize = 1 << 17;

/// Allocations of a long iteration. One that is not begun again ends its trace, and as many that a plan served
/// end the backoff: shorter iterations come again by chance, and cost little.
pub(crate) const LONG_ITERATION_ALLOCATIONS: usize = 256;

/// Misses that pass untraced after a failure, for each allocation that it cost: 8, and eight times as many with
/// each failure in a row, up to this many times.
pub(crate) const BACKOFF_FACTOR_LOG2: u32 = 3;
pub(crate) const MAX_BACKOFF_LEVEL: u32 = 10;

/// The smallest share of what a pool holds that a new page is, however many pages it has earned: the pages of a pool
/// that doubles are at most as many. With 128 a GPT over four streams, which grows by 1.6 GB at once, took 1.8 times as
/// long in its later iterations.
pub(crate) const FINE_PAGE_SHARE: u64 = 64;

/// When free pages are remapped into one range of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compaction {
    /// Never, even if a request fails for it.
    Never,
    /// Where the pool cannot grow, or would hold much more than was ever in use.
    #[default]
    Pressure,
    /// Before the pool grows.
    Always,
}

/// The switches of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `UR_POOL_COMPACTION`: `never`, `pressure`, `always`.
    pub compaction: Compaction,
    /// `UR_POOL_SLACK_SHARE`: growth that exceeds the peak in use by more than this share of the peak is
    /// pressure; 0: no growth is. A larger number holds less and remaps more.
    pub slack_share: u64,
    /// `UR_POOL_REMAP_REQUESTS`: under pressure a pool remaps no more pages than it has mapped anew, and one more for so
    /// many requests served; 0: none more.
    pub remap_requests: u64,
    /// `UR_POOL_GROWTH_SHARE`: the least share of what a pool holds by which it grows, where memory comes
    /// in pages; 0: by what is needed. Each call to the provider has its price.
    pub growth_share: u64,
    /// `UR_POOL_PAGE_SHARE`: the largest share of what a pool holds that a page may be; 0: pages are the
    /// least. Fewer pages map faster, and can be remapped and given back less often.
    pub page_share: u64,
    /// `UR_POOL_GROWTH_MIB`: the least growth in MiB, but no more than the pool holds, where each page has its
    /// price; 0: what is needed. Each call to the provider costs 10 to 50 µs on a GPU.
    pub growth_mib: u64,
    /// `UR_POOL_PAGE_MIB`: the least page in MiB, but no more than the growth, where each page has its price;
    /// 0: the provider's least. Each page costs 20 to 28 µs on a GPU.
    pub page_mib: u64,
    /// `UR_POOL_PAGE_REQUESTS`: requests served for which a pool earns a page, where each page has its price; 0: it earns
    /// none. A pool grows in as many pages as it has earned, but in none below 1/64 of what it holds. Small pages are
    /// free as a whole more often.
    pub page_requests: u64,
    /// `UR_POOL_EXACT_PAGES`: pages that a pool must have earned to grow by what is needed; 0: no number suffices.
    pub exact_pages: u64,
    /// `UR_POOL_LOOKS`: how often completion is looked for before a pool grows, where growth has its price and
    /// pending memory would serve the request; 1: once. A look costs some 3 µs on a GPU. Where a command takes
    /// four times as long as its submission, a first run over four streams takes 11 % longer with 128 looks than with 8,
    /// and holds 28 % less (`tests/pool_model.rs`).
    pub looks: u64,
    /// `UR_POOL_SMALL_KIB`: requests up to this size in KiB take back at most one block of their stream's cache; 0: each
    /// takes back what serves it. An emptied cache slows the next requests by more than the placement of small blocks saves.
    pub small_kib: u64,
    /// `UR_POOL_ROUNDING_KIB`: the largest step in KiB of the sizes of blocks; 0: the least alignment is the step of
    /// all. Sizes that differ by less than a step share their cached blocks. A program may have blocks that grow by
    /// 64 KiB each turn, as a decoder's caches do: with larger steps they grow unevenly and leave holes that fit none.
    /// The decoder of `tests/pool_model.rs` reserves 1.20 times what it needs with steps of up to 1 MiB, and 1.02 with
    /// steps of up to 64 KiB.
    pub rounding_kib: u64,
    /// `UR_POOL_COALESCING`: a stream that is alone in its pool coalesces what dies there, and its requests are cut from
    /// that (`cache/coalesced.rs`). Only without replay, where memory comes in pages. A coalesced block that is taken
    /// back counts as in use until all that was joined in it is complete.
    pub coalescing: bool,
    /// `UR_POOL_REPLAY`: a stream that repeats its requests gets the addresses it had.
    pub replay: bool,
    /// `UR_POOL_SHARED_REPLAY`: the same of several streams together.
    pub shared_replay: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            compaction: Compaction::default(),
            slack_share: 32,
            remap_requests: 64,
            growth_share: 32,
            page_share: 16,
            growth_mib: 16,
            page_mib: 16,
            page_requests: 8,
            exact_pages: 128,
            looks: 128,
            small_kib: 1024,
            rounding_kib: 64,
            coalescing: false,
            replay: true,
            shared_replay: true,
        }
    }
}

impl Options {
    /// For a program that counts its memory and not the time of its first iteration, as one that trains for hours: a
    /// pool grows by what is needed, and often. Its slack is 1/8: with 1/32 a decoder reserves 1806 MiB, else 1758.
    /// Such a program frees in one step what the step before has made, so that nothing of it can be replayed. Its stream
    /// coalesces instead: an operation of a GPT takes 700 instructions rather than 2,360.
    /// The pool earns no small pages: the figures of PyTorch were measured without them.
    /// `docs/src/guides/pytorch.md` has what each part saves, `integrations/pytorch/tests/recorded.rs` checks it.
    pub const fn tight(self) -> Self {
        Self {
            slack_share: 8,
            growth_share: 0,
            growth_mib: 0,
            page_requests: 0,
            coalescing: true,
            replay: false,
            shared_replay: false,
            ..self
        }
    }
}

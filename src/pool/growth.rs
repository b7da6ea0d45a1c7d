//! Growth: how much new memory to ask the provider for, in which pages, and what becomes of it.
//!
//! Where a driver has virtual memory (`Driver::page`, `stream/usm/paged.rs`), slabs are made of pages that can
//! be remapped: 2 MiB on native_cpu, on CUDA any multiple of that up to 128 MiB.
//!
//! Each call to the driver costs some 50 µs and each page some 20 µs on an H100, 10 µs and 28 µs on an H200, whatever
//! the size. So a pool without limits grows by at least 1/32 of what it holds, in pages of up to 1/16 of it. It grows
//! by at least 16 MiB in one page, or by as much as it holds if that is less. With pages of 2 MiB and growth by need,
//! the first run of a program of four streams takes three times as long (`tests/pool_model.rs`).
//!
//! A pool that seldom grows can afford more pages, and small ones are free as a whole more often. So a pool earns a page
//! with every eight requests that it serves, and grows in as many as it has earned, of 1/64 of what it holds at least.
//! With 128 earned it can afford the calls too, and grows by what is needed.
//! Decoders over four and eight streams, which ask for a large block now and then, reserve 1.22 and 1.25 times what they
//! need rather than 1.32 and 1.57 (`docs/src/benchmarks/cuda.md`).
//!
//! Growth continues the pool's last slab where the addresses are free. Free memory at the slab's end then is
//! part of what serves the request.
//!
//! A pool with a maximum size or a release threshold grows by what it needs, in the least pages: both are
//! exact. Where the provider does not report completion (`SlabProvider::observes`), the pool has it look for completion
//! before it grows, if anything is pending. A pool without limits has it look up to 128 times if pages have a price
//! and pending memory would serve. On a GPU that takes up to 0.4 ms, and the short commands that are pending end
//! meanwhile.
//!
//! Example, pages of 2 MiB that have no price. A request of 3 MiB on an empty pool maps two pages; 1 MiB at the
//! end stays free. A request of 2 MiB then needs 1 MiB more: one page is mapped behind the others, all three
//! are one slab, and the block begins in the second page.

use crate::pool::heap::search::Need;
use crate::pool::heap::segments::{NIL, Run};
use crate::pool::options::FINE_PAGE_SHARE;
use crate::pool::provider::{ProviderError, Slab};
use crate::pool::request::Config;
use crate::pool::state::{Attempt, PoolState};

/// What a provider promises about its slabs, read once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub granularity: u64,
    pub alignment: u64,
    /// The largest page, where the number of pages costs time.
    pub largest_page: Option<u64>,
    /// Whether completion is seen only by looking for it.
    pub observes: bool,
    /// Whether addresses that memory has left stay mapped at no cost.
    pub leaves_mapped: bool,
    /// Whether a page has one address at a time.
    pub maps_once: bool,
    /// Whether memory comes in whole pages.
    pub paged: bool,
}

/// New memory to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    pub bytes: u64,
    /// In pages of this size, the last one smaller.
    pub page: u64,
    /// The end of the pool's last slab, which it should continue: free memory there may be part of what
    /// serves the request.
    pub after: Option<u64>,
}

impl Growth {
    /// Number of pages that it makes.
    pub fn pages(&self) -> u64 {
        self.bytes.div_ceil(self.page)
    }

    /// The pages that it makes.
    pub fn runs(&self) -> Vec<Run> {
        let rest = self.bytes % self.page;
        let runs = [(self.bytes - rest, self.page), (rest, rest)];
        runs.into_iter().filter(|(bytes, _)| *bytes > 0).collect()
    }
}

/// What of a request a pool already has at the end of its last slab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tail {
    pub bytes: u64,
    /// Where that slab ends; none without one.
    pub end: Option<u64>,
}

/// The least that holds the request wherever a slab starts.
fn floor(need: &Need<'_>, limits: Limits, padded: bool) -> u64 {
    let promised = if padded { 1 } else { limits.alignment.max(1) };
    let slack = match promised.is_multiple_of(need.align) {
        true => 0,
        false => need.align - 1,
    };
    need.bytes.saturating_add(slack)
}

/// The fewest bytes that growth for a request may add. None if they cannot be represented.
pub(crate) fn least_growth(need: &Need<'_>, limits: Limits) -> Option<u64> {
    let floor = floor(need, limits, false);
    match limits.paged {
        true => floor.checked_next_multiple_of(limits.granularity.max(1)),
        false => Some(floor),
    }
}

/// How much to ask a provider for, with `committed` bytes reserved or about to be. `tight` asks for no
/// more than needed; `padded` distrusts the promised alignment; `credit` is how many pages the pool has earned.
/// `Err` with the bytes that would be needed if the maximum leaves too little.
pub(crate) fn growth(
    need: &Need<'_>,
    config: &Config,
    limits: Limits,
    tail: Tail,
    committed: u64,
    credit: u64,
    (tight, padded): (bool, bool),
) -> Result<Growth, u64> {
    // What is given back to make room may be the tail, too.
    let alone = floor(need, limits, padded);
    let floor = match tail.bytes {
        0 => alone,
        bytes => need.bytes.saturating_sub(bytes).max(1),
    };
    let room = config.max_bytes.unwrap_or(u64::MAX);
    let room = room.saturating_sub(committed);
    if floor > room {
        return Err(alone);
    }
    let unit = limits.granularity.max(1);
    let of = |bytes| Growth {
        bytes,
        page: unit,
        after: tail.end,
    };
    let least = match floor.checked_next_multiple_of(unit) {
        Some(least) if least <= room => least,
        _ if limits.paged => return Err(alone),
        // The maximum leaves less than a unit: the provider may still manage what is needed.
        _ => return Ok(of(floor)),
    };
    if tight {
        return Ok(of(least));
    }
    let share = committed.checked_div(config.options.growth_share);
    // A small pool at most doubles.
    let least_ahead = paid(config, limits, config.options.growth_mib).min(committed);
    let ahead = share.unwrap_or(0).max(least_ahead);
    let exact = config.options.exact_pages;
    let is_exact = exact > 0 && credit >= exact;
    let may_exceed = limits.paged && !config.is_bound() && !is_exact;
    let ahead = if may_exceed { ahead } else { 0 };
    let wish = floor.max(config.chunk_bytes).max(ahead);
    let wish = wish.checked_next_multiple_of(unit).unwrap_or(least);
    let bytes = wish.min(room / unit * unit).max(least);
    debug_assert!((floor..=room).contains(&bytes), "growth out of bounds");
    let page = page(config, limits, committed + bytes, bytes, credit).min(bytes);
    Ok(Growth { page, ..of(bytes) })
}

/// `mib` in bytes for a pool without limits where each page has its price; else 0.
fn paid(config: &Config, limits: Limits, mib: u64) -> u64 {
    match limits.largest_page.is_some() && !config.is_bound() {
        true => mib << 20,
        false => 0,
    }
}

/// The size of new pages, a power of two times the least page: `held` is what the pool will hold, `bytes` of it new,
/// `credit` the pages that it has earned.
fn page(config: &Config, limits: Limits, held: u64, bytes: u64, credit: u64) -> u64 {
    let least = limits.granularity.max(1);
    let largest = limits.largest_page.filter(|_| !config.is_bound());
    let share = held.checked_div(config.options.page_share).unwrap_or(0);
    let share = share.max(paid(config, limits, config.options.page_mib));
    let coarse = share.min(largest.unwrap_or(least)) / least;
    let fine = (bytes / credit.max(1)).max(held / FINE_PAGE_SHARE);
    let fine = fine.div_ceil(least).checked_next_power_of_two();
    let coarse = 1 << coarse.max(1).ilog2();
    least * fine.map_or(coarse, |fine| fine.min(coarse))
}

impl PoolState {
    /// The size of pages for so much new memory.
    pub(super) fn page_for(&self, bytes: u64) -> u64 {
        let held = self.stats.figures.reserved + self.growing + bytes;
        page(&self.config, self.limits, held, bytes, self.page_credit())
    }

    /// The pages that the pool has earned by requests served, less those made; 0 where pages have no price.
    ///
    /// The count begins anew when memory goes back to the provider: a program that begins in the pool of another one
    /// pays for its first pages as in a new pool.
    fn page_credit(&self) -> u64 {
        let served = self.stats.counters.served();
        let unspent = served.saturating_sub(self.requests_spent);
        let earned = unspent.checked_div(self.config.options.page_requests);
        let paid = self.limits.largest_page.is_some();
        earned.filter(|_| paid).unwrap_or(0)
    }

    /// Counts so many new pages, against those earned too.
    pub(super) fn record_pages(&mut self, pages: u64) {
        self.pressure.mapped += pages;
        self.requests_spent += pages * self.config.options.page_requests;
    }

    /// How a pool would grow for a request.
    pub(super) fn growth(
        &self,
        need: &Need<'_>,
        tail: Tail,
        attempt: &Attempt<'_>,
    ) -> Result<Growth, u64> {
        let committed = self.stats.figures.reserved + self.growing;
        let (config, limits, credit) = (&self.config, self.limits, self.page_credit());
        let how = (attempt.tight, attempt.padded);
        growth(need, config, limits, tail, committed, credit, how)
    }

    /// The free memory at the end of the last slab as far as the request admits it, where new memory or remapped pages
    /// can continue that.
    pub(super) fn tail(&self, need: &Need<'_>, attempt: &Attempt<'_>) -> Tail {
        let segments = &self.heap.segments;
        let continues = self.limits.paged && !attempt.grows_separately;
        let Some(entry) = segments.slabs().next_back().filter(|_| continues) else {
            return Tail::default();
        };
        let (end, mut from) = (entry.slab.end(), entry.slab.end());
        let mut last = segments.last_seg(entry);
        while last != NIL {
            let seg = segments.seg(last);
            if !need.admits(seg) {
                break;
            }
            (from, last) = (seg.addr, seg.prev);
        }
        let start = from.checked_next_multiple_of(need.align).unwrap_or(end);
        let bytes = end.saturating_sub(start);
        let end = Some(end);
        Tail { bytes, end }
    }

    /// Takes in the provider's answer to [`Step::Grow`](crate::pool::policy::Step::Grow). Returns a slab that
    /// does not fit, for the provider.
    pub fn grown(
        &mut self,
        asked: Growth,
        answer: Result<Slab, ProviderError>,
        attempt: &mut Attempt<'_>,
    ) -> Option<Slab> {
        debug_assert!(self.growing >= asked.bytes, "growth that was not counted");
        self.growing -= asked.bytes;
        let (error, unfit) = match answer {
            Ok(slab) if self.accept(asked, slab) => {
                attempt.grew = true;
                attempt.continues = asked.after.is_some();
                return None;
            }
            Ok(slab) => (ProviderError::OutOfMemory, Some(slab)),
            Err(error) => (error, None),
        };
        if error == ProviderError::OutOfMemory && !attempt.tight {
            attempt.tight = true;
        } else {
            attempt.refused = Some(error);
        }
        unfit
    }

    /// Adds a new slab to the heap, if it is as large as was asked for and within the maximum.
    fn accept(&mut self, asked: Growth, slab: Slab) -> bool {
        let max = self.config.max_bytes.unwrap_or(u64::MAX);
        let room = max.saturating_sub(self.stats.figures.reserved + self.growing);
        let runs = match self.limits.paged {
            true => asked.runs(),
            false => Vec::new(),
        };
        let unit = self.config.min_align;
        let fits = !self.closed && (asked.bytes..=room).contains(&slab.bytes);
        if !fits || !self.heap.add_slab(slab, &runs, unit, &[]) {
            return false;
        }
        self.stats.reserve(slab.bytes);
        self.record_pages(asked.pages());
        true
    }
}

//! Compaction: free pages are remapped into one new range of addresses.
//!
//! Chooses the pages, and whether remapping them is better than growth. It reads a [`Store`] and answers
//! with pages; `alloc` has them remapped.

use crate::pool::heap::Store;
use crate::pool::heap::search::{self, Need, place_at};
use crate::pool::heap::segments::SegId;
use crate::pool::options::{Compaction, LARGE_SHARE, Options};
use crate::pool::provider::Slab;
use crate::pool::request::{MissingDependency, Order};
use crate::timeline::Frontier;

/// Whole free pages, to become one slab with `fresh` new bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Collection {
    /// Each lies within one stretch of free segments, of which one that begins no later is named.
    pub pieces: Vec<(SegId, Slab)>,
    pub fresh: u64,
}

impl Collection {
    /// How many pages get another address.
    pub fn pages(&self, store: &Store) -> u64 {
        let pieces = self.pieces.iter();
        let pages = pieces.map(|(_, slab)| store.offsets.pages_in(*slab).count() as u64);
        pages.sum()
    }

    /// What the order lacks for these pages.
    pub fn missing(&self, store: &Store, order: &Order<'_>) -> Frontier {
        let mut wait = Frontier::new();
        for (first, slab) in &self.pieces {
            let place = place_at(store, *first, slab.base);
            wait.join(&store.missing(place, slab.bytes, order));
        }
        wait
    }
}

/// The free pages that together make room for a request under its order, the largest stretches first;
/// where they do not suffice, with up to `room` bytes of new memory. None if pages cannot help: their
/// addresses do not, in what fits into one, and larger alignments are not theirs to give.
pub(crate) fn collect(
    store: &Store,
    need: &Need,
    order: &Order<'_>,
    room: u64,
) -> Option<Collection> {
    let whole = in_pages(store, need)?;
    let least = store.offsets.page()?;
    let mut stretches: Vec<(u64, u64, SegId)> = Vec::new();
    for entry in store
        .offsets
        .slabs()
        .filter(|entry| entry.free_bytes >= least)
    {
        let mut stretch: Option<(SegId, u64, u64)> = None;
        let mut end = |stretch: Option<(SegId, u64, u64)>| {
            let whole = stretch
                .and_then(|(head, from, to)| Some((head, store.offsets.whole_pages(from, to)?)));
            stretches.extend(whole.map(|(head, slab)| (slab.bytes, slab.base, head)));
        };
        for (id, seg) in store.offsets.segs_from(entry.first) {
            match seg.death().is_some_and(|death| order.admits(death)) {
                true => {
                    let (head, from, _) = stretch.unwrap_or((id, seg.addr, 0));
                    stretch = Some((head, from, seg.end()));
                }
                false => end(stretch.take()),
            }
        }
        end(stretch);
    }
    stretches.sort_unstable_by(|a, b| b.cmp(a));
    let (mut pieces, mut lacking) = (Vec::new(), whole);
    for (bytes, base, head) in stretches {
        if lacking == 0 {
            break;
        }
        // As many pages as suffice.
        let end = store.offsets.page_ceil(base + bytes.min(lacking));
        let slab = Slab {
            base,
            bytes: end - base,
        };
        lacking = lacking.saturating_sub(slab.bytes);
        pieces.push((place_at(store, head, base).first, slab));
    }
    let useful = !pieces.is_empty() && lacking <= room;
    useful.then_some(Collection {
        pieces: adjacent_as_one(pieces),
        fresh: lacking,
    })
}

/// Neighbours become one piece: their order in the new slab is of no importance.
pub(super) fn adjacent_as_one(mut pieces: Vec<(SegId, Slab)>) -> Vec<(SegId, Slab)> {
    pieces.sort_unstable_by_key(|(_, slab)| slab.base);
    let mut out: Vec<(SegId, Slab)> = Vec::new();
    for (first, slab) in pieces {
        match out.last_mut() {
            Some((_, last)) if last.end() == slab.base => last.bytes += slab.bytes,
            _ => out.push((first, slab)),
        }
    }
    out
}

/// As [`collect`], with pages that have to be waited for, those of the least wait first.
pub(crate) fn collect_pending(
    store: &Store,
    need: &Need,
    order: &Order<'_>,
    room: u64,
) -> Option<Collection> {
    let whole = in_pages(store, need)?;
    let mut free = Vec::new();
    for entry in store.offsets.slabs() {
        for slab in store.offsets.pages_in(entry.slab) {
            let page = Need {
                bytes: slab.bytes,
                align: 1,
                ..*need
            };
            let place = place_at(store, entry.first, slab.base);
            if let Some((streams, outstanding, _)) = search::cost(store, place, &page, order) {
                free.push((streams, outstanding, slab.base, slab.bytes, place.first));
            }
        }
    }
    free.sort_unstable();
    let (mut pieces, mut lacking) = (Vec::new(), whole);
    for (.., base, bytes, first) in free {
        if lacking == 0 {
            break;
        }
        lacking = lacking.saturating_sub(bytes);
        pieces.push((first, Slab { base, bytes }));
    }
    let pieces = adjacent_as_one(pieces);
    let useful = !pieces.is_empty() && lacking <= room;
    let fresh = lacking;
    useful.then_some(Collection { pieces, fresh })
}

/// The request in whole pages, where collecting them can help.
fn in_pages(store: &Store, need: &Need) -> Option<u64> {
    let page = store.offsets.page()?;
    let whole = need.bytes.checked_next_multiple_of(page)?;
    (need.bytes > page && need.align <= page).then_some(whole)
}

/// Which free memory would have served, and what the order lacks for it: the least.
pub(crate) fn lack(
    store: &Store,
    need: &Need,
    order: &Order<'_>,
    options: &Options,
) -> Option<MissingDependency> {
    let (pieces, wait) = match search::least_wait(store, need, order) {
        Some(place) => {
            let range = Slab {
                base: place.start,
                bytes: need.bytes,
            };
            (vec![range], store.missing(place, need.bytes, order))
        }
        None if options.compaction == Compaction::Never => return None,
        None => {
            let found = collect_pending(store, need, order, 0)?;
            let wait = found.missing(store, order);
            let pieces = found.pieces.into_iter().map(|(_, slab)| slab);
            (pieces.collect(), wait)
        }
    };
    (!wait.is_empty()).then_some(MissingDependency { pieces, wait })
}

/// Whether free pages are remapped where the pool could also grow.
///
/// Each page has its price, so a program that only ran short of the right sizes grows. Two things count as
/// pressure nevertheless: a pool that would hold much more than was ever in use, as long as it has remapped
/// no more pages than growth has mapped.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// Pages mapped by growth, less those remapped since.
    pages: u64,
    /// Most bytes that were in use when a request found nothing, its own among them.
    peak: u64,
}

impl Budget {
    /// Nothing that the pool holds serves a request of so many bytes.
    pub fn miss(&mut self, used: u64, bytes: u64) {
        self.peak = self.peak.max(used.saturating_add(bytes));
    }

    /// Growth mapped so many pages.
    pub fn grew(&mut self, pages: u64) {
        self.pages += pages;
    }

    /// So many pages were remapped.
    pub fn remapped(&mut self, pages: u64) {
        self.pages = self.pages.saturating_sub(pages);
    }

    /// Memory went back to the provider: what was in use before counts no more.
    pub fn shrank(&mut self) {
        self.peak = 0;
    }

    /// Whether to remap so many pages rather than hold `held` bytes. `aliases` says whether the addresses
    /// that memory has left stay mapped, so that replay plans survive.
    pub fn prefers(
        &self,
        options: &Options,
        aliases: bool,
        bytes: u64,
        pages: u64,
        held: u64,
    ) -> bool {
        match options.compaction {
            Compaction::Never => false,
            Compaction::Always => true,
            Compaction::Pressure => {
                let slack = self.peak.checked_div(options.slack_share);
                let most = slack.map_or(u64::MAX, |slack| self.peak.saturating_add(slack));
                let large = bytes >= held / LARGE_SHARE;
                aliases && large && held > most && pages <= self.pages
            }
        }
    }
}

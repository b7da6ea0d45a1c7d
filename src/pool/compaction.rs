//! Compaction: free pages are remapped so that they are adjacent.
//!
//! Chooses the pages, and whether remapping them is better than growth. Reads a [`Heap`] and returns pages;
//! `alloc` has the provider remap them.
//!
//! Pages are remapped under pressure only:
//! - at the maximum size, or where the provider has no memory left;
//! - where the user prefers waits to growth;
//! - where growth would exceed the peak in use by 1/32 ([`Pressure`]). Then the request must be large, and the provider
//!   must leave old addresses mapped at no cost (CUDA). No more pages may be remapped than were mapped anew, and one
//!   more for every 64 requests that the pool has served.
//!
//! Remapped pages continue the pool's last slab, as growth does: what is free at its end is part of what serves the
//! request, and what was apart is adjacent then. Pages of slabs that are free as a whole go first. With the largest
//! stretches first, and addresses apart from all others, a steady mix of sizes held up to a third more than if no page
//! was remapped (`tests/pool_pages.rs`).
//!
//! Pages whose last use is ordered but not complete may move too. Their old addresses keep leading to them
//! for the commands that were submitted with those addresses, and are retired once those commands were seen
//! complete (`heap/aliases.rs`).
//!
//! Where a page has one address at a time (Level Zero), only pages move of which every use was seen complete, and
//! their old addresses end with the move. A replay plan that names these finds nothing there to hold, and is given up.
//!
//! Example, pages of 2 MiB, a maximum of 12 MiB, all of it reserved. Blocks of 3 MiB and 2 MiB are free on
//! queue `q0`, a live block of 1 MiB lies between them. A request of 4 MiB on `q0` fits neither. Each free block
//! has one whole page. Both pages are remapped side by side, the request takes them, and nothing grows.

use crate::pool::growth::Tail;
use crate::pool::heap::Heap;
use crate::pool::heap::search::{self, Need, place_at};
use crate::pool::heap::segments::{Segment, SegmentId, Stretch, stretches};
use crate::pool::options::{Compaction, LARGE_SHARE, Options};
use crate::pool::provider::Slab;
use crate::pool::request::{MissingDependency, Order};
use crate::timeline::Frontier;

/// Whole free pages, to become one slab with `fresh` new bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Collection {
    /// Each lies within one stretch of free segments, of which one that begins no later is named.
    pub pieces: Vec<(SegmentId, Slab)>,
    pub fresh: u64,
}

impl Collection {
    /// Number of pages that are remapped.
    pub fn pages(&self, heap: &Heap) -> u64 {
        let pages = |(_, slab): &(_, Slab)| heap.segments.pages_in(*slab).count() as u64;
        self.pieces.iter().map(pages).sum()
    }

    /// What the order lacks for these pages.
    pub fn missing(&self, heap: &Heap, order: &Order<'_>) -> Frontier {
        let mut wait = Frontier::new();
        for (first, slab) in &self.pieces {
            let place = place_at(heap, *first, slab.base);
            wait.join(&heap.missing(place, slab.bytes, order));
        }
        wait
    }
}

/// The free pages that make room for a request under its order, behind the free memory at the end of the last slab.
///
/// Slabs that are free as a whole leave no hole, so that they go first, the smallest of them before larger ones. Of
/// the other stretches the largest go first: fewer pieces suffice. Where all of them do not, up to `room` bytes of new
/// memory go with them. None if pages cannot help: their addresses do not, in what fits into one, and larger
/// alignments are not theirs to give.
pub(crate) fn collect(
    heap: &Heap,
    need: &Need,
    order: &Order<'_>,
    room: u64,
    tail: Tail,
) -> Option<Collection> {
    let whole = in_pages(heap, need, tail)?;
    let admitted = |seg: &Segment| seg.death().is_some_and(|death| order.admits(death));
    let found = heap.segments.slabs().flat_map(|entry| {
        let own = stretches(heap.segments.segments_from(entry.first), admitted);
        let own = own.filter(|own| tail.bytes == 0 || Some(own.range.end()) != tail.end);
        own.map(|own| (own.range.bytes < entry.slab.bytes, own))
    });
    let found = found.filter_map(|(leaves_hole, Stretch { first, range, .. })| {
        let whole = heap.segments.whole_pages(range.base, range.end())?;
        let rank = match leaves_hole {
            true => u64::MAX - whole.bytes,
            false => whole.bytes,
        };
        Some(((leaves_hole, rank), (whole.base, whole.bytes, first)))
    });
    let mut found: Vec<_> = found.collect();
    found.sort_unstable();
    let found = found.into_iter().map(|(_, own)| own);
    as_many_as_suffice(heap, found, whole, room)
}

/// The pages of these stretches, each with its address, its bytes and a segment that begins no later, up to `whole`
/// bytes of them and of up to `room` new ones.
fn as_many_as_suffice(
    heap: &Heap,
    found: impl Iterator<Item = (u64, u64, SegmentId)>,
    whole: u64,
    room: u64,
) -> Option<Collection> {
    let (mut pieces, mut fresh) = (Vec::new(), whole);
    for (base, bytes, head) in found {
        if fresh == 0 {
            break;
        }
        let end = heap.segments.page_ceil(base + bytes.min(fresh));
        let bytes = end - base;
        fresh = fresh.saturating_sub(bytes);
        pieces.push((place_at(heap, head, base).first, Slab { base, bytes }));
    }
    let useful = !pieces.is_empty() && fresh <= room;
    let pieces = adjacent_as_one(pieces);
    useful.then_some(Collection { pieces, fresh })
}

/// Neighbours become one piece: their order in the new slab is of no importance.
pub(super) fn adjacent_as_one(mut pieces: Vec<(SegmentId, Slab)>) -> Vec<(SegmentId, Slab)> {
    pieces.sort_unstable_by_key(|(_, slab)| slab.base);
    let mut out: Vec<(SegmentId, Slab)> = Vec::new();
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
    heap: &Heap,
    need: &Need,
    order: &Order<'_>,
    room: u64,
) -> Option<Collection> {
    let whole = in_pages(heap, need, Tail::default())?;
    let mut free = Vec::new();
    for entry in heap.segments.slabs() {
        for slab in heap.segments.pages_in(entry.slab) {
            let page = Need {
                bytes: slab.bytes,
                align: 1,
                ..*need
            };
            let place = place_at(heap, entry.first, slab.base);
            if let Some((streams, outstanding, _)) = search::cost(heap, place, &page, order) {
                let own = (slab.base, slab.bytes, place.first);
                free.push(((streams, outstanding), own));
            }
        }
    }
    free.sort_unstable();
    let free = free.into_iter().map(|(_, own)| own);
    as_many_as_suffice(heap, free, whole, room)
}

/// What a request lacks beside the tail in whole pages, where collecting them can help.
fn in_pages(heap: &Heap, need: &Need, tail: Tail) -> Option<u64> {
    let page = heap.segments.page()?;
    let lacking = need.bytes.saturating_sub(tail.bytes);
    let useful = need.bytes > page && need.align <= page;
    lacking.checked_next_multiple_of(page).filter(|_| useful)
}

/// Which free memory would have served, and what the order lacks for it: the least. Pages must suit `of_pages`.
pub(crate) fn lack(
    heap: &Heap,
    need: &Need,
    (order, of_pages): (&Order<'_>, &Order<'_>),
    options: &Options,
) -> Option<MissingDependency> {
    let (pieces, wait) = match search::least_wait(heap, need, order) {
        Some(place) => {
            let range = Slab::new(place.start, need.bytes);
            (vec![range], heap.missing(place, need.bytes, order))
        }
        None if options.compaction == Compaction::Never => return None,
        None => {
            let found = collect_pending(heap, need, of_pages, 0)?;
            let wait = found.missing(heap, of_pages);
            let pieces = found.pieces.into_iter().map(|(_, slab)| slab);
            (pieces.collect(), wait)
        }
    };
    (!wait.is_empty()).then_some(MissingDependency { pieces, wait })
}

/// The most that was ever in use, beside which the pool's size is measured, and what remapping may cost.
///
/// A pool that would hold much more is under pressure: it remaps free pages though it could grow. A remapped page costs
/// as much as a new one. So the pool remaps no more pages than it has mapped anew, and one more for every 64 requests
/// that it has served. That bounds the time of programs of which each request asks for a large block.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    /// Bytes in use when a request found nothing, the request's own among them.
    peak: u64,
    /// New pages, those that came with remapped ones among them.
    pub mapped: u64,
    pub remapped: u64,
    /// Requests that the pool had served when the counts began.
    served_before: u64,
}

impl Pressure {
    /// Nothing that the pool holds serves a request of so many bytes.
    pub fn record_miss(&mut self, used: u64, bytes: u64) {
        self.peak = self.peak.max(used.saturating_add(bytes));
    }

    /// Memory went back to the provider once `served` requests had been served: nothing before counts any more.
    pub fn reset(&mut self, served: u64) {
        *self = Self {
            served_before: served,
            ..Self::default()
        };
    }

    /// Whether to remap `pages` pages for a request of `bytes` rather than hold `held` bytes, with `served` requests
    /// served. `aliases` says whether the addresses that memory has left stay mapped, so that replay plans survive.
    pub fn prefers_compaction(
        &self,
        options: &Options,
        aliases: bool,
        bytes: u64,
        pages: u64,
        held: u64,
        served: u64,
    ) -> bool {
        match options.compaction {
            Compaction::Never => false,
            Compaction::Always => true,
            Compaction::Pressure => {
                let slack = self.peak.checked_div(options.slack_share);
                let limit = slack.map_or(u64::MAX, |slack| self.peak.saturating_add(slack));
                let earned = served.saturating_sub(self.served_before);
                let earned = earned.checked_div(options.remap_requests);
                let paid = self.remapped + pages <= self.mapped + earned.unwrap_or(0);
                aliases && bytes >= held / LARGE_SHARE && held > limit && paid
            }
        }
    }
}

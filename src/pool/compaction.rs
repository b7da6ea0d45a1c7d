//! Compaction: free pages are remapped so that they are adjacent.
//!
//! Chooses the pages, and whether remapping them is better than growth. Removes them from the heap for `alloc`, which
//! has the provider remap them, and takes in its answer.
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

use crate::pool::growth::{Growth, Tail};
use crate::pool::heap::search::{self, Need, place_at};
use crate::pool::heap::segments::{Place, Segment, SegmentId, Stretch, stretches};
use crate::pool::heap::{Heap, Piece};
use crate::pool::options::{Compaction, LARGE_SHARE, Options};
use crate::pool::provider::{ProviderError, Slab};
use crate::pool::request::{MissingDependency, Order, WaitPolicy};
use crate::pool::state::{Attempt, PoolState};
use crate::timeline::Frontier;

/// Free pages on their way to another address, and how many new bytes go with them.
pub(crate) struct Remap {
    pub pieces: Vec<Piece>,
    pub pages: u64,
    pub fresh: Growth,
    /// Whether the request comes after all that died there.
    pub ready: bool,
}

impl Remap {
    pub fn slabs(&self) -> Vec<Slab> {
        self.pieces.iter().map(|piece| piece.slab).collect()
    }

    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.slab.bytes).sum()
    }
}

/// Whole free pages, to become one slab with `fresh` new bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Collection {
    /// Each lies within one stretch of free segments, of which one that begins no later is named.
    pub pieces: Vec<(SegmentId, Slab)>,
    pub fresh: u64,
    /// What the request lacks for them.
    pub wait: Frontier,
}

impl Collection {
    /// Number of pages that are remapped.
    pub fn pages(&self, heap: &Heap) -> u64 {
        let pages = |(_, slab): &(_, Slab)| heap.segments.pages_in(*slab).count() as u64;
        self.pieces.iter().map(pages).sum()
    }
}

/// The free pages that make room for a request under its order, behind the free memory at the end of the last slab,
/// which stays there.
///
/// Slabs that are free as a whole leave no hole, so that they go first, the smallest of them before larger ones. Of
/// the other stretches the largest go first: fewer pieces suffice. Where all of them do not, up to `room` bytes of new
/// memory go with them. None if pages cannot help: their addresses do not, in what fits into one, and larger
/// alignments are not theirs to give.
pub(crate) fn collect(heap: &Heap, need: &Need<'_>, room: u64, tail: Tail) -> Option<Collection> {
    let whole = in_pages(heap, need, tail)?;
    let admitted = |seg: &Segment| need.admits(seg);
    let tail_start = tail.end.map_or(u64::MAX, |end| end - tail.bytes);
    let found = heap.segments.slabs().flat_map(|entry| {
        let own = stretches(heap.segments.segments_from(entry.first), admitted);
        let own = own.filter(|own| own.range.end() <= tail_start);
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
    let found = found.into_iter().map(|(_, own)| (own, Frontier::new()));
    as_many_as_suffice(heap, found, whole, room)
}

/// The pages of these stretches, each with its address, its bytes, a segment that begins no later and its wait, up to
/// `whole` bytes of them and of up to `room` new ones.
fn as_many_as_suffice(
    heap: &Heap,
    found: impl Iterator<Item = ((u64, u64, SegmentId), Frontier)>,
    whole: u64,
    room: u64,
) -> Option<Collection> {
    let (mut pieces, mut fresh, mut wait) = (Vec::new(), whole, Frontier::new());
    for ((base, bytes, head), own) in found {
        if fresh == 0 {
            break;
        }
        let end = heap.segments.page_ceil(base + bytes.min(fresh));
        let bytes = end - base;
        fresh = fresh.saturating_sub(bytes);
        wait.join(&own);
        pieces.push((place_at(heap, head, base).first, Slab { base, bytes }));
    }
    let useful = !pieces.is_empty() && fresh <= room;
    let pieces = adjacent_as_one(pieces);
    useful.then_some(Collection {
        pieces,
        fresh,
        wait,
    })
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
pub(crate) fn collect_pending(heap: &Heap, need: &Need<'_>, room: u64) -> Option<Collection> {
    let whole = in_pages(heap, need, Tail::default())?;
    let mut free = Vec::new();
    for entry in heap.segments.slabs() {
        for slab in heap.segments.pages_in(entry.slab) {
            let place = place_at(heap, entry.first, slab.base);
            if let Some((cost, wait)) = search::cost(heap, place, &need.part(slab.bytes)) {
                let (streams, outstanding, _) = cost;
                let own = (slab.base, slab.bytes, place.first);
                free.push(((streams, outstanding, own), wait));
            }
        }
    }
    free.sort_unstable_by_key(|(rank, _)| *rank);
    let free = free.into_iter().map(|((.., own), wait)| (own, wait));
    as_many_as_suffice(heap, free, whole, room)
}

/// What a request lacks beside the tail in whole pages, where collecting them can help.
fn in_pages(heap: &Heap, need: &Need<'_>, tail: Tail) -> Option<u64> {
    let page = heap.segments.page()?;
    let lacking = need.bytes.saturating_sub(tail.bytes);
    let useful = need.bytes > page && need.align <= page;
    lacking.checked_next_multiple_of(page).filter(|_| useful)
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

impl PoolState {
    /// Records, once for a request, that nothing is ready. `least` finds the place whose wait is least.
    pub(super) fn record_miss(
        &mut self,
        need: &Need<'_>,
        least: impl FnOnce(&Heap) -> Option<(Place, Frontier)>,
        attempt: &mut Attempt<'_>,
    ) {
        if std::mem::replace(&mut attempt.missed, true) {
            return;
        }
        let used = self.stats.figures.reserved;
        let used = used.saturating_sub(self.heap.free_bytes());
        self.pressure.record_miss(used, need.bytes);
        if attempt.traces {
            attempt.missing = self.lack(need, least(&self.heap));
        }
    }

    /// Which free memory would have served, and what the request lacks for it: at the place of the least wait, else
    /// in pages.
    fn lack(&self, need: &Need<'_>, least: Option<(Place, Frontier)>) -> Option<MissingDependency> {
        let (pieces, wait) = match least {
            Some((place, wait)) => (vec![Slab::new(place.start, need.bytes)], wait),
            None if self.config.options.compaction == Compaction::Never => return None,
            None => {
                let found = collect_pending(&self.heap, &self.need_of_pages(need), 0)?;
                let pieces = found.pieces.into_iter().map(|(_, slab)| slab);
                (pieces.collect(), found.wait)
            }
        };
        (!wait.is_empty()).then_some(MissingDependency { pieces, wait })
    }

    /// What a request needs of pages that are remapped for it: where a page has one address at a time, none that may
    /// be in use.
    pub(super) fn need_of_pages<'a>(&self, need: &Need<'a>) -> Need<'a> {
        let order = match self.limits.maps_once {
            true => Order::Sync,
            false => need.order,
        };
        Need { order, ..*need }
    }

    /// Removes pages that are ready and together will serve the request; with `grows`, only if that is better.
    pub(super) fn compact(
        &mut self,
        need: &Need<'_>,
        tail: Tail,
        attempt: &Attempt<'_>,
        grows: Option<Growth>,
    ) -> Option<Remap> {
        let options = self.config.options;
        let always = need.waits == WaitPolicy::Always;
        let (held, budget) = (self.held(), self.room_for_pages(attempt)?);
        let (aliases, served) = (self.limits.leaves_mapped, self.stats.counters.served());
        let better = |pressure: &Pressure, pages| match grows.filter(|_| !always) {
            Some(growth) => {
                let held = held + growth.bytes;
                pressure.prefers_compaction(&options, aliases, need.bytes, pages, held, served)
            }
            None => true,
        };
        if !better(&self.pressure, 0) {
            return None;
        }
        let room = match always && !self.limits.maps_once {
            // Pages that have to be waited for come before new memory.
            true => 0,
            false => budget,
        };
        let found = collect(&self.heap, &self.need_of_pages(need), room, tail)?;
        let pages = found.pages(&self.heap);
        better(&self.pressure, pages).then(|| self.remap(&found, pages, tail.end, true))
    }

    /// As [`PoolState::compact`], where that is the policy, with pages that have to be waited for.
    pub(super) fn compact_after(
        &mut self,
        policy: WaitPolicy,
        need: &Need<'_>,
        attempt: &Attempt<'_>,
    ) -> Option<Remap> {
        if self.limits.maps_once {
            // The host waits for these: `host_wait`.
            return None;
        }
        let room = self.room_for_pages(attempt);
        let room = room.filter(|_| need.waits == policy)?;
        let found = collect_pending(&self.heap, need, room)?;
        let pages = found.pages(&self.heap);
        Some(self.remap(&found, pages, None, false))
    }

    /// Bytes reserved, or about to be.
    fn held(&self) -> u64 {
        self.stats.figures.reserved + self.growing
    }

    /// The bytes of new memory that remapped pages may have with them. None where none may be remapped, or,
    /// as mostly where a program only grows, nothing is free.
    fn room_for_pages(&self, attempt: &Attempt<'_>) -> Option<u64> {
        let never = self.config.options.compaction == Compaction::Never;
        let max = self.config.max_bytes.unwrap_or(u64::MAX);
        let room = match attempt.refused {
            Some(_) => 0,
            None => max.saturating_sub(self.held()),
        };
        (!never && !attempt.cannot_remap && self.heap.free_bytes() > 0).then_some(room)
    }

    fn remap(&mut self, found: &Collection, pages: u64, after: Option<u64>, ready: bool) -> Remap {
        let pieces = self.heap.detach_all(&found.pieces);
        self.growing += found.fresh;
        let fresh = Growth {
            bytes: found.fresh,
            page: self.page_for(found.fresh),
            after,
        };
        let remap = Remap {
            pieces,
            pages,
            fresh,
            ready,
        };
        self.moving += remap.bytes();
        remap
    }

    /// Takes in the provider's answer to [`Step::Compact`](crate::pool::policy::Step::Compact). Also if the pool was
    /// closed meanwhile: what has died but not completed stays until it has.
    pub fn remapped(
        &mut self,
        remap: Remap,
        answer: Result<Slab, ProviderError>,
        attempt: &mut Attempt<'_>,
    ) {
        let moved = remap.bytes();
        let fresh = remap.fresh.bytes;
        debug_assert!(
            self.growing >= fresh && self.moving >= moved,
            "a move that was not counted"
        );
        self.growing -= fresh;
        self.moving -= moved;
        let unit = self.config.min_align;
        let slab = answer.map_err(|error| match fresh {
            // The pieces may be elsewhere.
            _ if remap.fresh.after.is_some() => attempt.grows_separately = true,
            0 => attempt.cannot_remap = true,
            _ => attempt.refused = Some(error),
        });
        let Ok(slab) = slab else {
            for piece in &remap.pieces {
                self.heap
                    .add_slab(piece.slab, &piece.runs, unit, &piece.parts);
            }
            return;
        };
        if fresh > 0 {
            self.stats.reserve(fresh);
            self.record_pages(remap.fresh.pages());
            attempt.grew = remap.ready;
        }
        attempt.continues = remap.fresh.after.is_some();
        self.stats.counters.compactions += 1;
        self.stats.counters.compacted_bytes += moved;
        self.pressure.remapped += remap.pages;
        let (mut runs, mut parts, mut to) = (Vec::new(), Vec::new(), slab.base);
        for mut piece in remap.pieces {
            let mut all = Frontier::new();
            piece.parts.iter().for_each(|(_, death)| all.join(death));
            if self.limits.maps_once {
                debug_assert!(all.is_complete(), "a page moved while it may be in use");
            } else {
                self.table.moved(piece.slab, to, all);
            }
            to += piece.slab.bytes;
            runs.append(&mut piece.runs);
            parts.append(&mut piece.parts);
        }
        runs.extend(remap.fresh.runs());
        self.heap.add_slab(slab, &runs, unit, &parts);
    }
}

//! The memory of one pool: segments and indexes, without limits, policy or lock.
//!
//! Owns [`Heap`]. `segments` has the address ranges, `index` finds free ones, `search` the best fit,
//! `pending` what waits for completion, `aliases` the addresses that remapped pages have left, `range_map` values of
//! address ranges. Must never know a provider, a cache or a limit.
//!
//! A freed block keeps its death, a frontier. A request whose order comes after all of the death may take the
//! block at once, as may any request once the death is complete. Neither calls the driver.
//!
//! Example, pages of 2 MiB, in-order queues `q0` and `q1`, nothing complete, no cache:
//!
//! | call | result |
//! |---|---|
//! | `a = alloc q0 3 MiB` | growth by two pages; 1 MiB at the end is free and clear |
//! | `b = alloc q0 1 MiB` | the clear 1 MiB, which needs no order |
//! | `c = alloc q0 2 MiB` | growth by one page behind the others: one slab of three pages |
//! | `free q0 a; free q0 c` | two segments that die at `q0`'s point 1, with `b` between them |
//! | `d = alloc q1 2 MiB` | `q1` does not come after point 1 of `q0`: growth by one page |
//! | `x = alloc q0 3 MiB` | the memory of `a`: its death is on `q0` itself |
//! | `y = alloc q1 2 MiB after an event of q0's free` | the memory of `c`, without an inserted wait |

pub(crate) mod aliases;
pub(crate) mod index;
mod pending;
pub(crate) mod range_map;
pub(crate) mod search;
pub(crate) mod segments;

use crate::pool::heap::index::{BySize, Index};
use crate::pool::heap::search::place_at;
use crate::pool::heap::segments::{
    Holder, NIL, Occupancy, Place, Run, Segment, SegmentId, Segments, stretches,
};
use crate::pool::host_wait::Releasable;
use crate::pool::provider::Slab;
use crate::pool::request::Block;
use crate::timeline::{Frontier, LaneId};
use std::collections::BTreeSet;

#[derive(Debug)]
pub(crate) struct Heap {
    pub segments: Segments,
    pub index: Index,
}

/// Free memory that was removed from the heap: its range, its pages and its deaths.
#[derive(Debug)]
pub(crate) struct Piece {
    pub slab: Slab,
    /// Bytes of pages of one size side by side, and that size.
    pub runs: Vec<Run>,
    pub parts: Vec<(u64, Frontier)>,
}

impl Heap {
    pub fn new(page: Option<u64>) -> Self {
        Self {
            segments: Segments::new(page),
            index: Index::default(),
        }
    }

    /// Adds a slab of these runs of pages, cut to `unit`, that begins with free memory of these sizes and
    /// deaths. False, and unchanged, if nothing is left of it.
    pub fn add_slab(
        &mut self,
        slab: Slab,
        runs: &[Run],
        unit: u64,
        parts: &[(u64, Frontier)],
    ) -> bool {
        let ids = self.segments.add_slab(slab, runs, unit, parts);
        for id in &ids {
            self.index.insert(&self.segments, *id);
        }
        // At its ends it may touch what died alike. The last one first: the other may absorb it.
        let ends = [ids.last(), ids.first().filter(|_| ids.len() > 1)];
        for id in ends.into_iter().flatten() {
            self.index.remove(&self.segments, *id);
            self.file(*id);
        }
        !ids.is_empty()
    }

    /// Bytes of free segments, complete or pending.
    pub fn free_bytes(&self) -> u64 {
        self.segments.slabs().map(|entry| entry.free_bytes).sum()
    }

    /// Completed free memory that can be released, by bytes. Searched on each call: calls are rare.
    pub fn idle(&self) -> BTreeSet<(u64, SegmentId)> {
        let segments = &self.segments;
        let idle = |id| segments.removable(id).map(|slab| (slab.bytes, id));
        match segments.page() {
            Some(least) => {
                let clear = self.index.clear.at_least(least);
                clear.filter_map(|(.., id)| idle(id)).collect()
            }
            None => {
                let firsts = segments.slabs().map(|entry| entry.first);
                let clear = |id: &SegmentId| segments.death(*id).is_some_and(Frontier::is_empty);
                firsts.filter(clear).filter_map(idle).collect()
            }
        }
    }

    /// Removes the least entry of [`Heap::idle`] with `bytes` or more, else the largest.
    pub fn remove_idle(
        &mut self,
        idle: &mut BTreeSet<(u64, SegmentId)>,
        bytes: u64,
    ) -> Option<Slab> {
        let found = *idle.range((bytes, 0)..).next().or_else(|| idle.last())?;
        idle.remove(&found);
        let (_, id) = found;
        let mut slab = self.segments.removable(id)?;
        if self.segments.page().is_some() {
            let end = slab.end();
            slab.base = self.segments.page_floor(end - bytes.clamp(1, slab.bytes));
            slab.bytes = end - slab.base;
        }
        Some(self.detach(id, slab).slab)
    }

    /// Removes at most `bytes` of the largest entry of [`Heap::idle`] that can give any: pages at its end, or
    /// the whole slab.
    pub fn remove_idle_within(
        &mut self,
        idle: &mut BTreeSet<(u64, SegmentId)>,
        bytes: u64,
    ) -> Option<Slab> {
        while let Some((_, id)) = idle.pop_last() {
            let mut slab = self.segments.removable(id)?;
            if self.segments.page().is_some() {
                let end = slab.end();
                let from = end.saturating_sub(bytes).max(slab.base);
                slab.base = self.segments.page_ceil(from);
                slab.bytes = end - slab.base;
            }
            if (1..=bytes).contains(&slab.bytes) {
                return Some(self.detach(id, slab).slab);
            }
        }
        None
    }

    /// Removes free memory: a whole slab, or whole pages, from the segment `first` on.
    pub fn detach(&mut self, first: SegmentId, slab: Slab) -> Piece {
        let runs = match self.segments.page() {
            Some(_) => self.segments.runs_in(slab),
            None => Vec::new(),
        };
        let last = self.index.remove_until(&self.segments, first, slab.end());
        let (mut inner, mut rests) = (first, [NIL, NIL]);
        if self.segments.seg(last).end() > slab.end() && self.segments.page().is_some() {
            rests[1] = self.segments.split(last, slab.end());
        }
        if self.segments.seg(first).addr < slab.base {
            rests[0] = first;
            inner = self.segments.split(first, slab.base);
        }
        let parts = self.segments.remove(inner, slab);
        self.index_rests(rests);
        Piece { slab, runs, parts }
    }

    /// Removes several pieces, ascending. The last piece goes first: several may lie in one segment, whose
    /// rest before a piece keeps its number.
    pub fn detach_all(&mut self, pieces: &[(SegmentId, Slab)]) -> Vec<Piece> {
        let from_last = pieces.iter().rev();
        let mut out: Vec<Piece> = from_last
            .map(|(first, slab)| self.detach(*first, *slab))
            .collect();
        out.reverse();
        out
    }

    /// Turns `bytes` at `place`, which must be free, into a live block.
    pub fn take(&mut self, place: Place, bytes: u64, requested: u64) -> (SegmentId, Block) {
        let end = place.start + bytes;
        self.index.remove_until(&self.segments, place.first, end);
        let (taken, rests) = self.segments.carve(place, bytes, requested);
        self.index_rests(rests);
        let block = Block {
            addr: place.start,
            bytes,
            requested,
        };
        (taken, block)
    }

    /// Makes the free memory live that is complete or died on `lane`. Returns each part with the last epoch of its death.
    ///
    /// Stays free: the end of the last slab, which growth continues. It serves what nothing else does, the wilderness
    /// heuristic (Korn and Vo, In Search of a Better Malloc, USENIX 1985).
    pub fn take_own(&mut self, lane: LaneId) -> Vec<(SegmentId, Block, u64)> {
        let segments = &self.segments;
        let mut last = segments
            .slabs()
            .next_back()
            .map(|last| segments.last_seg(last));
        let mut tail = u64::MAX;
        while let Some(id) = last.filter(|id| segments.death(*id).is_some()) {
            tail = segments.seg(id).addr;
            last = Some(segments.seg(id).prev);
        }
        let runs = self.index.lane(lane).into_iter();
        let runs = runs.flat_map(|index| &index.runs).copied();
        let own: Vec<_> = self.index.clear.at_least(0).chain(runs).collect();
        let mut out = Vec::new();
        for (bytes, start, first) in own.into_iter().filter(|own| own.1 < tail) {
            let death = self.last_death(first, start + bytes);
            let (seg, block) = self.take(Place { first, start }, bytes, 0);
            out.push((seg, block, death.single().map_or(0, |point| point.epoch)));
        }
        out
    }

    /// Makes free memory one live segment that is not a block: memory of a replay plan.
    pub fn hold(&mut self, place: Place, bytes: u64) -> SegmentId {
        let (seg, _) = self.take(place, bytes, 0);
        self.segments.set_live(seg, 0, Holder::Plan);
        seg
    }

    /// Splits a segment of [`Heap::hold`] into segments that are free with these deaths, or live.
    pub fn divide(
        &mut self,
        seg: SegmentId,
        parts: Vec<(u64, Option<Frontier>)>,
    ) -> Vec<SegmentId> {
        let mut ids = vec![seg];
        let mut at = self.segments.seg(seg).addr;
        for (bytes, _) in parts.iter().take(parts.len().saturating_sub(1)) {
            at += bytes;
            let last = ids[ids.len() - 1];
            ids.push(self.segments.split(last, at));
        }
        for (id, (_, death)) in ids.iter().zip(parts) {
            if let Some(death) = death {
                self.free(*id, death);
            }
        }
        ids
    }

    /// Frees a live segment, which no cache holds.
    pub fn free(&mut self, id: SegmentId, mut death: Frontier) {
        death.prune();
        self.segments.free(id, death);
        self.file(id);
    }

    /// The block that has `addr`, with its segment and its holder. A cache's may be dead.
    pub fn block_around(&self, addr: u64) -> Option<(SegmentId, Block, Holder)> {
        let id = self.segments.live_before(addr)?;
        let seg = self.segments.seg(id);
        match seg.state {
            Occupancy::Live { requested, holder } if addr < seg.end() && holder != Holder::Plan => {
                let (addr, bytes) = (seg.addr, seg.bytes);
                let block = Block {
                    addr,
                    bytes,
                    requested,
                };
                Some((id, block, holder))
            }
            _ => None,
        }
    }

    /// Indexes anew what has completed since the last call. True if there was any.
    pub fn sweep(&mut self) -> bool {
        let completed = self.index.completed();
        // All are removed before the first is indexed: mostly they are adjacent and merge.
        for id in &completed {
            self.index.unfile(&self.segments, *id);
            if let Some(death) = self.segments.death_mut(*id) {
                death.prune();
            }
        }
        for id in &completed {
            // Unless another segment absorbed it.
            if self.index.take_unfiled(*id) {
                self.file(*id);
            }
        }
        !completed.is_empty()
    }

    /// Free slabs, or free pages, each with the frontier after which it can be released.
    pub fn releasable(&self) -> Vec<Releasable> {
        let (segments, mut out) = (&self.segments, Vec::new());
        for entry in segments.slabs() {
            let free = |seg: &Segment| seg.death().is_some();
            for own in stretches(segments.segments_from(entry.first), free) {
                let ends = (segments.seg(own.first).prev, segments.seg(own.last).next);
                let whole = segments.whole_pages(own.range.base, own.range.end());
                let leaves: Vec<Slab> = match segments.page() {
                    Some(_) => whole.map_or_else(Vec::new, |all| segments.pages_in(all).collect()),
                    None if ends == (NIL, NIL) => vec![entry.slab],
                    None => Vec::new(),
                };
                let mut first = own.first;
                for slab in leaves {
                    first = place_at(self, first, slab.base).first;
                    let death = self.last_death(first, slab.end());
                    let bytes = slab.bytes;
                    out.push(Releasable { bytes, death });
                }
            }
        }
        out
    }

    /// The frontier after which nothing uses the free segments from `first` up to an address.
    fn last_death(&self, first: SegmentId, end: u64) -> Frontier {
        let mut last = Frontier::new();
        let inside = self.segments.segments_from(first);
        let inside = inside.take_while(|(_, seg)| seg.addr < end);
        let deaths = inside.filter_map(|(_, seg)| seg.death());
        deaths.for_each(|death| last.join(death));
        last.prune();
        last
    }

    /// Merges a free segment with adjacent ones of the same death, and indexes it.
    fn file(&mut self, mut id: SegmentId) {
        loop {
            let next = self.segments.seg(id).next;
            if !self.dies_alike(id, next) {
                break;
            }
            self.unfile(next);
            self.segments.absorb_next(id);
        }
        loop {
            let prev = self.segments.seg(id).prev;
            if !self.dies_alike(prev, id) {
                break;
            }
            self.unfile(prev);
            self.segments.absorb_next(prev);
            id = prev;
        }
        self.index.insert(&self.segments, id);
    }

    /// Indexes what is left of free segments before and behind a range that was removed or is live now.
    fn index_rests(&mut self, rests: [SegmentId; 2]) {
        for id in rests.into_iter().filter(|id| *id != NIL) {
            self.index.insert(&self.segments, id);
            debug_assert!(!self.can_merge(id), "a rest that should be merged");
        }
    }

    /// Whether a neighbour of a free segment died alike.
    fn can_merge(&self, id: SegmentId) -> bool {
        let seg = self.segments.seg(id);
        self.dies_alike(seg.prev, id) || self.dies_alike(id, seg.next)
    }

    fn unfile(&mut self, id: SegmentId) {
        if !self.index.take_unfiled(id) {
            self.index.remove(&self.segments, id);
        }
    }

    fn dies_alike(&self, a: SegmentId, b: SegmentId) -> bool {
        match (self.segments.death(a), self.segments.death(b)) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        }
    }
}

//! Placement and indexes together: the memory of one pool, without limits, policy or lock.

pub(crate) mod aliases;
pub(crate) mod epoch_queue;
pub(crate) mod index;
pub(crate) mod radix;
pub(crate) mod search;
pub(crate) mod segments;
pub(crate) mod size_map;

use crate::pool::heap::index::Index;
use crate::pool::heap::segments::{HELD, NIL, Offsets, Place, Run, Seg, SegId, SlabEntry};
use crate::pool::host_wait::Leavable;
use crate::pool::provider::Slab;
use crate::pool::request::{Block, Order};
use crate::timeline::Frontier;
use std::collections::BTreeSet;

#[derive(Debug)]
pub(crate) struct Store {
    pub offsets: Offsets,
    pub index: Index,
}

/// Free memory that was taken out of the store: where it lay, and what died there and how far.
#[derive(Debug)]
pub(crate) struct Piece {
    pub slab: Slab,
    /// Its pages.
    pub runs: Vec<Run>,
    pub parts: Vec<(u64, Frontier)>,
}

/// A free range: where, and the sizes and deaths of its parts.
pub(crate) type FreeRange = (Place, Slab, Vec<(u64, Frontier)>);

impl Store {
    /// Of blocks that start at multiples of `unit`.
    pub fn new(page: Option<u64>, unit: u64) -> Self {
        Self {
            offsets: Offsets::new(page, unit),
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
        let ids = self.offsets.add_slab(slab, runs, unit, parts);
        for id in &ids {
            self.index.insert(&self.offsets, *id);
        }
        // At its ends it may touch what died alike. The last one first: the other may absorb it.
        let ends = [ids.last(), ids.first().filter(|_| ids.len() > 1)];
        for id in ends.into_iter().flatten() {
            self.index.remove(&self.offsets, *id);
            self.file(*id);
        }
        !ids.is_empty()
    }

    /// Adds a slab as [`Store::add_slab`] does, if all of it can be one live block, and makes it that. None,
    /// and unchanged, if not.
    pub fn add_live(
        &mut self,
        slab: Slab,
        runs: &[Run],
        unit: u64,
        requested: u64,
    ) -> Option<(SegId, Block)> {
        if !slab.base.is_multiple_of(unit) || !slab.bytes.is_multiple_of(unit) {
            return None;
        }
        let ids = self.offsets.add_slab(slab, runs, unit, &[]);
        let [first] = ids[..] else { return None };
        let place = Place {
            first,
            start: slab.base,
        };
        let (taken, ..) = self.offsets.carve(place, slab.bytes, requested);
        let block = Block {
            addr: slab.base,
            bytes: slab.bytes,
            requested,
        };
        Some((taken, block))
    }

    /// What is no live block's, whatever it still has to wait for.
    pub fn free_bytes(&self) -> u64 {
        self.offsets.slabs().map(|entry| entry.free_bytes).sum()
    }

    /// What nothing uses and could go back to the provider, by how many bytes could. Looked for: it is
    /// seldom asked, and to keep it up to date would cost every allocation.
    pub fn idle(&self) -> BTreeSet<(u64, SegId)> {
        let offsets = &self.offsets;
        let idle = |id| offsets.removable(id).map(|slab| (slab.bytes, id));
        match offsets.page() {
            Some(least) => {
                let clear = self.index.clear.from(least);
                clear.filter_map(|(.., id)| idle(id)).collect()
            }
            None => {
                let firsts = offsets.slabs().map(|entry| entry.first);
                let clear = |id: &SegId| offsets.death(*id).is_some_and(Frontier::is_empty);
                firsts.filter(clear).filter_map(idle).collect()
            }
        }
    }

    /// Removes some of [`Store::idle`]: as little as there is of at least `bytes`, else as much.
    pub fn remove_idle(&mut self, idle: &mut BTreeSet<(u64, SegId)>, bytes: u64) -> Option<Slab> {
        let found = *idle.range((bytes, 0)..).next().or_else(|| idle.last())?;
        idle.remove(&found);
        let (_, id) = found;
        let mut slab = self.offsets.removable(id)?;
        if self.offsets.page().is_some() {
            let end = slab.end();
            slab.base = self.offsets.page_floor(end - bytes.clamp(1, slab.bytes));
            slab.bytes = end - slab.base;
        }
        Some(self.detach(id, slab).slab)
    }

    /// Takes free memory out: a whole slab, or whole pages, from the segment `first` on.
    pub fn detach(&mut self, first: SegId, slab: Slab) -> Piece {
        let runs = match self.offsets.page() {
            Some(_) => self.offsets.runs_in(slab),
            None => Vec::new(),
        };
        let (mut inner, mut last) = (first, first);
        let mut id = first;
        while id != NIL && self.offsets.seg(id).addr < slab.end() {
            self.index.remove(&self.offsets, id);
            last = id;
            id = self.offsets.seg(id).next;
        }
        let mut left = [NIL, NIL];
        if self.offsets.seg(last).end() > slab.end() && self.offsets.page().is_some() {
            left[1] = self.offsets.split(last, slab.end());
        }
        if self.offsets.seg(first).addr < slab.base {
            left[0] = first;
            inner = self.offsets.split(first, slab.base);
        }
        let parts = self.offsets.remove(inner, slab);
        for id in left {
            if id != NIL {
                self.index.insert(&self.offsets, id);
            }
        }
        Piece { slab, runs, parts }
    }

    /// The same for several pieces, ascending. From the last one on, since one segment may be named for
    /// several, and what is left of it before a piece keeps its name.
    pub fn detach_all(&mut self, pieces: &[(SegId, Slab)]) -> Vec<Piece> {
        let from_last = pieces.iter().rev();
        let mut out: Vec<Piece> = from_last
            .map(|(first, slab)| self.detach(*first, *slab))
            .collect();
        out.reverse();
        out
    }

    /// Turns `bytes` at `place`, which must be free, into a live block.
    pub fn take(&mut self, place: Place, bytes: u64, requested: u64) -> (SegId, Block) {
        let end = place.start + bytes;
        let mut id = place.first;
        while id != NIL && self.offsets.seg(id).addr < end {
            let next = self.offsets.seg(id).next;
            self.index.remove(&self.offsets, id);
            id = next;
        }
        let (taken, front, back) = self.offsets.carve(place, bytes, requested);
        for left in [front, back] {
            if left != NIL {
                self.index.insert(&self.offsets, left);
            }
        }
        let block = Block {
            addr: place.start,
            bytes,
            requested,
        };
        (taken, block)
    }

    /// Where these ranges, ascending, lie in free memory that `order` comes after, cut where slabs end,
    /// each with what died there. None if some of it is not free or not ordered.
    pub fn all_free(&self, ranges: &[Slab], order: &Order<'_>) -> Option<Vec<FreeRange>> {
        let mut out: Vec<FreeRange> = Vec::new();
        let mut at = NIL;
        for range in ranges {
            let mut base = range.base;
            while base < range.end() {
                let (first, end) = self.offsets.slab_around(base)?;
                let behind =
                    |id| id == NIL || self.offsets.seg(id).addr < self.offsets.seg(first).addr;
                if behind(at) {
                    at = first;
                }
                while self.offsets.seg(at).end() <= base {
                    at = self.offsets.seg(at).next;
                    if at == NIL {
                        return None;
                    }
                }
                let end = end.min(range.end());
                let place = Place {
                    first: at,
                    start: base,
                };
                let (from, mut parts) = (base, Vec::new());
                loop {
                    let seg = self.offsets.seg(at);
                    let death = seg.death().filter(|death| order.admits(death))?;
                    let to = seg.end().min(end);
                    parts.push((to - base, death.clone()));
                    base = to;
                    if base == end {
                        break;
                    }
                    at = seg.next;
                    if at == NIL {
                        return None;
                    }
                }
                let bytes = end - from;
                out.push((place, Slab { base: from, bytes }, parts));
            }
        }
        Some(out)
    }

    /// Makes free memory one live segment that is no block.
    pub fn hold(&mut self, place: Place, bytes: u64) -> SegId {
        let (seg, _) = self.take(place, bytes, 0);
        self.offsets.set_live(seg, 0, HELD);
        seg
    }

    /// Makes several segments of one that is held: free with these deaths, or live. Those that are free
    /// may be joined with others.
    pub fn divide(&mut self, seg: SegId, parts: Vec<(u64, Option<Frontier>)>) -> Vec<SegId> {
        let mut ids = vec![seg];
        let mut at = self.offsets.seg(seg).addr;
        for (bytes, _) in parts.iter().take(parts.len().saturating_sub(1)) {
            at += bytes;
            let last = ids[ids.len() - 1];
            ids.push(self.offsets.split(last, at));
        }
        for (id, (_, death)) in ids.iter().zip(parts) {
            if let Some(death) = death {
                self.free_at(*id, death);
            }
        }
        ids
    }

    /// What taking `bytes` at `place` still has to wait for under `order`.
    pub fn missing(&self, place: Place, bytes: u64, order: &Order<'_>) -> Frontier {
        let end = place.start + bytes;
        let mut out = Frontier::new();
        for (_, seg) in self.offsets.segs_from(place.first) {
            if seg.addr >= end {
                break;
            }
            for point in seg.death().into_iter().flat_map(Frontier::points) {
                if !order.orders_point(point) {
                    out.join_point(point);
                }
            }
        }
        out
    }

    /// Frees the live block that starts at `addr`, which no cache holds any more.
    pub fn free(&mut self, addr: u64, death: Frontier) -> Option<Block> {
        let (block, _) = self
            .live_around(addr)
            .filter(|(block, _)| block.addr == addr)?;
        self.free_at(self.offsets.live_at(addr)?, death);
        Some(block)
    }

    /// Frees a live segment, which no cache holds any more.
    pub fn free_at(&mut self, id: SegId, mut death: Frontier) {
        death.prune();
        self.offsets.free(id, death);
        self.file(id);
    }

    /// The live block that holds `addr`, and the cache that it is lent to or [`NIL`].
    pub fn live_around(&self, addr: u64) -> Option<(Block, u32)> {
        let (id, requested, lent) = self.offsets.live_around(addr)?;
        if lent == HELD {
            return None;
        }
        let seg = self.offsets.seg(id);
        let block = Block {
            addr: seg.addr,
            bytes: seg.bytes,
            requested,
        };
        Some((block, lent))
    }

    /// Refiles what has completed since the last look. True if there was any.
    pub fn sweep(&mut self) -> bool {
        let ripe = self.index.ripe();
        // All are out before the first is filed: mostly they lie side by side, and only what they become
        // together is looked up.
        for id in &ripe {
            self.index.take_out(&self.offsets, *id);
            if let Some(death) = self.offsets.death_mut(*id) {
                death.prune();
            }
        }
        for id in &ripe {
            // Unless another has it already.
            if self.index.was_out(*id) {
                self.file(*id);
            }
        }
        !ripe.is_empty()
    }

    /// What could leave, with what has to complete before: whole slabs, or single pages.
    pub fn leavable(&self) -> Vec<Leavable> {
        let mut out = Vec::new();
        for entry in self.offsets.slabs() {
            let mut stretch: Vec<&Seg> = Vec::new();
            let mut id = entry.first;
            loop {
                let seg = (id != NIL).then(|| self.offsets.seg(id));
                match seg.filter(|seg| seg.death().is_some()) {
                    Some(seg) => stretch.push(seg),
                    None => {
                        self.add_leavable(entry, &stretch, &mut out);
                        stretch.clear();
                    }
                }
                let Some(seg) = seg else { break };
                id = seg.next;
            }
        }
        out
    }

    /// Adds what of a stretch of free segments could leave.
    fn add_leavable(&self, entry: &SlabEntry, stretch: &[&Seg], out: &mut Vec<Leavable>) {
        let (Some(first), Some(last)) = (stretch.first(), stretch.last()) else {
            return;
        };
        let leaves = match self.offsets.page() {
            Some(_) => {
                let inside = self.offsets.whole_pages(first.addr, last.end());
                inside.map_or_else(Vec::new, |inside| self.offsets.pages_in(inside).collect())
            }
            None if first.prev == NIL && last.next == NIL => vec![entry.slab],
            None => Vec::new(),
        };
        for Slab { base, bytes } in leaves {
            let from = stretch.partition_point(|seg| seg.end() <= base);
            let within = stretch[from..].iter();
            let within = within.take_while(|seg| seg.addr < base + bytes);
            let mut death = Frontier::new();
            within
                .filter_map(|seg| seg.death())
                .for_each(|one| death.join(one));
            death.prune();
            out.push(Leavable { bytes, death });
        }
    }

    /// Joins a free segment with all beside it that have the same death, and files it.
    fn file(&mut self, mut id: SegId) {
        loop {
            let next = self.offsets.seg(id).next;
            if !self.dies_alike(id, next) {
                break;
            }
            self.unfile(next);
            self.offsets.absorb_next(id);
        }
        loop {
            let prev = self.offsets.seg(id).prev;
            if !self.dies_alike(prev, id) {
                break;
            }
            self.unfile(prev);
            self.offsets.absorb_next(prev);
            id = prev;
        }
        self.index.insert(&self.offsets, id);
    }

    fn unfile(&mut self, id: SegId) {
        if !self.index.was_out(id) {
            self.index.remove(&self.offsets, id);
        }
    }

    fn dies_alike(&self, a: SegId, b: SegId) -> bool {
        match (self.offsets.death(a), self.offsets.death(b)) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        }
    }
}

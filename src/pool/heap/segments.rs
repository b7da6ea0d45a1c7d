//! Segments: the address ranges of slabs, and their pages.
//!
//! The segments of a slab tile its usable range in address order, without gap or overlap. Each is live, or
//! free with a death. Where memory comes in pages that can be remapped, adjacent slabs are one slab, and whole
//! free pages can be removed anywhere. The size of a page is a multiple of the least page's. Must never know
//! a request, an order or a policy.

use crate::pool::provider::Slab;
use crate::timeline::{Frontier, LaneId};
use std::collections::BTreeMap;

pub(crate) type SegmentId = u32;
pub(crate) const NIL: u32 = u32::MAX;

/// Who holds a live segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The program, as a block that no stream cache has.
    Program,
    /// The stream cache of a lane, which has what was requested and whether the block is live.
    Cache(LaneId),
    /// A replay plan: the segment is not a block.
    Plan,
}

#[derive(Debug)]
pub(crate) enum Occupancy {
    /// An arena entry that stands for no segment.
    Vacant,
    Live {
        requested: u64,
        holder: Holder,
    },
    /// Unused once this has completed; empty when it was observed complete or never used.
    Free(Frontier),
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub addr: u64,
    pub bytes: u64,
    pub prev: SegmentId,
    pub next: SegmentId,
    pub state: Occupancy,
}

impl Segment {
    pub fn end(&self) -> u64 {
        self.addr + self.bytes
    }

    pub fn death(&self) -> Option<&Frontier> {
        match &self.state {
            Occupancy::Free(death) => Some(death),
            Occupancy::Live { .. } | Occupancy::Vacant => None,
        }
    }
}

/// Bytes of pages of one size side by side, and the size.
pub(crate) type Run = (u64, u64);

#[derive(Debug)]
pub(crate) struct SlabEntry {
    pub slab: Slab,
    /// The address of the first segment.
    start: u64,
    pub first: SegmentId,
    pub free_bytes: u64,
}

/// The place of an allocation: it starts at `start`, inside the free segment `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub first: SegmentId,
    pub start: u64,
}

/// Adjacent segments, and their range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub first: SegmentId,
    pub last: SegmentId,
    pub range: Slab,
}

/// The longest stretches of segments that `admits`, in address order.
pub(crate) fn stretches<'a>(
    mut segs: impl Iterator<Item = (SegmentId, &'a Segment)>,
    admits: impl Fn(&Segment) -> bool,
) -> impl Iterator<Item = Stretch> {
    std::iter::from_fn(move || {
        let (first, seg) = segs.find(|(_, seg)| admits(seg))?;
        let (base, bytes) = (seg.addr, seg.bytes);
        let mut stretch = Stretch {
            first,
            last: first,
            range: Slab { base, bytes },
        };
        // The segment behind a stretch is part of none.
        for (last, seg) in segs.by_ref().take_while(|(_, seg)| admits(seg)) {
            stretch.last = last;
            stretch.range.bytes += seg.bytes;
        }
        Some(stretch)
    })
}

#[derive(Debug)]
pub(crate) struct Segments {
    /// The least page, or none if only a whole slab can leave.
    page: Option<u64>,
    /// Pages of one size side by side: the first one's address, and the size. They tile the slabs.
    runs: BTreeMap<u64, u64>,
    segs: Vec<Segment>,
    spare_segs: Vec<SegmentId>,
    /// Ascending by `start`.
    slabs: Vec<SlabEntry>,
    /// Live segments by their addresses.
    live: BTreeMap<u64, SegmentId>,
}

impl Segments {
    pub fn seg(&self, id: SegmentId) -> &Segment {
        &self.segs[id as usize]
    }

    fn seg_mut(&mut self, id: SegmentId) -> &mut Segment {
        &mut self.segs[id as usize]
    }

    pub fn death(&self, id: SegmentId) -> Option<&Frontier> {
        if id == NIL {
            None
        } else {
            self.seg(id).death()
        }
    }

    pub fn death_mut(&mut self, id: SegmentId) -> Option<&mut Frontier> {
        match &mut self.seg_mut(id).state {
            Occupancy::Free(death) => Some(death),
            Occupancy::Live { .. } | Occupancy::Vacant => None,
        }
    }

    pub fn new(page: Option<u64>) -> Self {
        Self {
            page,
            runs: BTreeMap::new(),
            segs: Vec::new(),
            spare_segs: Vec::new(),
            slabs: Vec::new(),
            live: BTreeMap::new(),
        }
    }

    pub fn page(&self) -> Option<u64> {
        self.page
    }

    /// Where the page that holds an address starts, and its size.
    fn page_at(&self, addr: u64) -> (u64, u64) {
        let run = self.runs.range(..=addr).next_back();
        run.map_or((addr, 1), |(start, page)| {
            (addr - (addr - start) % page, *page)
        })
    }

    /// The last start of a page up to an address.
    pub fn page_floor(&self, addr: u64) -> u64 {
        self.page_at(addr).0
    }

    /// The first end of a page from an address on.
    pub fn page_ceil(&self, addr: u64) -> u64 {
        match self.page_at(addr) {
            (start, _) if start == addr => addr,
            (start, page) => start + page,
        }
    }

    /// The whole pages in `[from, to)` of a slab.
    pub fn whole_pages(&self, from: u64, to: u64) -> Option<Slab> {
        let base = self.page_ceil(from);
        let bytes = self.page_floor(to).checked_sub(base)?;
        (bytes > 0).then_some(Slab { base, bytes })
    }

    /// The pages in a range of whole pages.
    pub fn pages_in(&self, range: Slab) -> impl Iterator<Item = Slab> {
        let mut at = range.base;
        std::iter::from_fn(move || {
            let base = at;
            let bytes = self.page_at(base).1;
            at += bytes;
            (base < range.end()).then_some(Slab { base, bytes })
        })
    }

    /// The runs of pages in a range of whole pages: bytes of each, and the size of its pages.
    pub fn runs_in(&self, range: Slab) -> Vec<Run> {
        let mut out: Vec<Run> = Vec::new();
        let mut at = range.base;
        while at < range.end() {
            let next = self.runs.range(at + 1..range.end()).next();
            let end = next.map_or(range.end(), |(start, _)| *start);
            out.push((end - at, self.page_at(at).1));
            at = end;
        }
        out
    }

    fn add_runs(&mut self, mut base: u64, runs: &[Run]) {
        for (bytes, page) in runs {
            debug_assert!(bytes.is_multiple_of(*page), "a run of no whole pages");
            // Beside pages of the same size it is the same run.
            let before = self.runs.range(..base).next_back();
            let same = before.is_some_and(|(start, other)| {
                *other == *page && (base - start).is_multiple_of(*page) && self.slab_ends_at(base)
            });
            if !same {
                self.runs.insert(base, *page);
            }
            base += bytes;
        }
    }

    fn slab_ends_at(&self, addr: u64) -> bool {
        let before = self.slab_at(addr - 1).map(|at| &self.slabs[at]);
        before.is_some_and(|entry| entry.slab.end() == addr)
    }

    pub fn slabs(&self) -> impl DoubleEndedIterator<Item = &SlabEntry> {
        self.slabs.iter()
    }

    /// Position in `slabs` of the slab that holds the address.
    fn slab_at(&self, addr: u64) -> Option<usize> {
        let after = self.slabs.partition_point(|entry| entry.start <= addr);
        after.checked_sub(1)
    }

    /// The first segment of the slab that holds an address, and the slab's end.
    pub fn slab_around(&self, addr: u64) -> Option<(SegmentId, u64)> {
        let entry = &self.slabs[self.slab_at(addr)?];
        (addr < entry.slab.end()).then_some((entry.first, entry.slab.end()))
    }

    fn slab_mut(&mut self, addr: u64) -> Option<&mut SlabEntry> {
        let at = self.slab_at(addr)?;
        self.slabs.get_mut(at)
    }

    fn add_entry(&mut self, entry: SlabEntry) {
        let at = self.slab_at(entry.start).map_or(0, |before| before + 1);
        debug_assert!(
            at == 0 || self.slabs[at - 1].slab.end() <= entry.slab.base,
            "slabs overlap"
        );
        self.slabs.insert(at, entry);
    }

    /// The whole pages of a free segment, or its slab if the segment is all of it.
    pub fn removable(&self, id: SegmentId) -> Option<Slab> {
        let seg = self.seg(id);
        match self.page {
            Some(_) => self.whole_pages(seg.addr, seg.end()),
            None if seg.prev == NIL && seg.next == NIL => {
                self.slab_at(seg.addr).map(|at| self.slabs[at].slab)
            }
            None => None,
        }
    }

    /// The segments of a slab in address order.
    pub fn segments_from(&self, first: SegmentId) -> impl Iterator<Item = (SegmentId, &Segment)> {
        let mut at = first;
        std::iter::from_fn(move || {
            let id = at;
            if id == NIL {
                return None;
            }
            let seg = self.seg(id);
            at = seg.next;
            Some((id, seg))
        })
    }

    /// Adds a slab of these runs of pages, cut to `unit`: free segments of these sizes and deaths one after
    /// the other, the rest never used. Returns the segments, none if nothing is left of the slab.
    pub fn add_slab(
        &mut self,
        slab: Slab,
        runs: &[Run],
        unit: u64,
        parts: &[(u64, Frontier)],
    ) -> Vec<SegmentId> {
        let start = slab.base.checked_next_multiple_of(unit);
        let end = slab.base.checked_add(slab.bytes);
        let (Some(start), Some(end)) = (start, end.map(|end| end / unit * unit)) else {
            return Vec::new();
        };
        let mut ids: Vec<SegmentId> = Vec::new();
        let mut at = start;
        let rest = (u64::MAX, Frontier::new());
        for (bytes, death) in parts.iter().chain([&rest]) {
            let bytes = (*bytes).min(end.saturating_sub(at));
            if bytes == 0 {
                continue;
            }
            let prev = ids.last().copied().unwrap_or(NIL);
            if self.death(prev) == Some(death) {
                self.seg_mut(prev).bytes += bytes;
            } else {
                let id = self.new_seg(Segment {
                    addr: at,
                    bytes,
                    prev,
                    next: NIL,
                    state: Occupancy::Free(death.clone()),
                });
                self.link(prev, id);
                ids.push(id);
            }
            at += bytes;
        }
        if let Some(&first) = ids.first() {
            let free_bytes = end - start;
            if self.page.is_some() {
                self.add_runs(slab.base, runs);
            }
            self.add_entry(SlabEntry {
                slab,
                start,
                first,
                free_bytes,
            });
            self.join_slabs(slab.base);
            self.join_slabs(slab.base + slab.bytes);
        }
        ids
    }

    /// Makes one of two slabs that touch at `at`, if memory comes in pages.
    fn join_slabs(&mut self, at: u64) {
        let place = self.slabs.partition_point(|entry| entry.start < at);
        let Some([before, after]) = self.slabs.get(place.wrapping_sub(1)..=place) else {
            return;
        };
        let touch = before.slab.end() == at && after.start == at;
        if self.page.is_none() || !touch {
            return;
        }
        let last = self.last_seg(before);
        let after = self.slabs.remove(place);
        self.link(last, after.first);
        let before = &mut self.slabs[place - 1];
        before.slab.bytes += after.slab.bytes;
        before.free_bytes += after.free_bytes;
    }

    /// The last segment of a slab.
    pub fn last_seg(&self, entry: &SlabEntry) -> SegmentId {
        // The last live segment is near the slab's end.
        let own = |id: &SegmentId| self.seg(*id).addr >= entry.start;
        let near = self.live_before(entry.slab.end() - 1).filter(own);
        let mut last = near.unwrap_or(entry.first);
        while self.seg(last).next != NIL {
            last = self.seg(last).next;
        }
        last
    }

    /// Removes the free segments from `first` on, whose range is `slab`: a whole slab, or whole pages of one,
    /// which may split the slab. Returns their sizes and deaths.
    pub fn remove(&mut self, first: SegmentId, slab: Slab) -> Vec<(u64, Frontier)> {
        let before = self.seg(first).prev;
        let page_after = self.page_at(slab.end()).1;
        self.runs
            .extract_if(slab.base..slab.end(), |_, _| true)
            .for_each(drop);
        let mut parts = Vec::new();
        let mut id = first;
        while id != NIL && self.seg(id).addr < slab.end() {
            let seg = self.seg(id);
            debug_assert!(seg.death().is_some(), "live memory leaves the heap");
            let (bytes, next) = (seg.bytes, seg.next);
            parts.push((bytes, seg.death().cloned().unwrap_or_default()));
            self.vacate(id);
            id = next;
        }
        let Some(at) = self.slab_at(slab.base.max(self.seg(first).addr)) else {
            return parts;
        };
        let mut entry = self.slabs.remove(at);
        let end = entry.slab.end();
        if id != NIL {
            self.runs.entry(slab.end()).or_insert(page_after);
            self.seg_mut(id).prev = NIL;
            let rest = self.segments_from(id).map(|(_, seg)| seg);
            let free = rest.filter(|seg| seg.death().is_some());
            let free_bytes = free.map(|seg| seg.bytes).sum();
            entry.free_bytes -= free_bytes;
            self.add_entry(SlabEntry {
                slab: Slab::new(slab.end(), end - slab.end()),
                start: slab.end(),
                first: id,
                free_bytes,
            });
        }
        if before != NIL {
            self.seg_mut(before).next = NIL;
            entry.slab.bytes = slab.base - entry.slab.base;
            entry.free_bytes -= parts.iter().map(|(bytes, _)| bytes).sum::<u64>();
            self.add_entry(entry);
        }
        parts
    }

    /// Makes `[place.start, +bytes)` one live segment. It must be covered by adjacent free segments
    /// from `place.first` on. Returns the live segment and what is left free before and after it,
    /// each with the death it had.
    pub fn carve(
        &mut self,
        place: Place,
        bytes: u64,
        requested: u64,
    ) -> (SegmentId, [SegmentId; 2]) {
        let end = place.start + bytes;
        let mut front = NIL;
        let mut taken = place.first;
        if place.start > self.seg(taken).addr {
            front = taken;
            taken = self.split(taken, place.start);
        }
        let mut back = NIL;
        let mut last = taken;
        while self.seg(last).end() < end {
            last = self.seg(last).next;
        }
        if self.seg(last).end() > end {
            back = self.split(last, end);
        }
        while self.seg(taken).end() < end {
            self.absorb_next(taken);
        }
        debug_assert!(self.death(taken).is_some(), "memory allocated twice");
        let seg = self.seg_mut(taken);
        seg.state = Occupancy::Live {
            requested,
            holder: Holder::Program,
        };
        let before = self.live.insert(place.start, taken);
        debug_assert!(before.is_none(), "two live segments at one address");
        if let Some(entry) = self.slab_mut(place.start) {
            entry.free_bytes -= bytes;
        }
        (taken, [front, back])
    }

    /// The last live segment that starts at `addr` or before.
    pub fn live_before(&self, addr: u64) -> Option<SegmentId> {
        self.live.range(..=addr).next_back().map(|(_, id)| *id)
    }

    /// Frees a live segment.
    pub fn free(&mut self, id: SegmentId, death: Frontier) {
        let seg = self.seg_mut(id);
        debug_assert!(matches!(seg.state, Occupancy::Live { .. }), "freed twice");
        seg.state = Occupancy::Free(death);
        let (addr, bytes) = (seg.addr, seg.bytes);
        self.live.remove(&addr);
        if let Some(entry) = self.slab_mut(addr) {
            entry.free_bytes += bytes;
        }
    }

    /// Records the requested bytes of a live segment, and its holder.
    pub fn set_live(&mut self, id: SegmentId, requested: u64, holder: Holder) {
        debug_assert!(self.death(id).is_none(), "a holder of free memory");
        self.seg_mut(id).state = Occupancy::Live { requested, holder };
    }

    /// The live segment of this range, which one stream cache holds. It is `hint`, unless the cache has cut and
    /// coalesced its memory: then segments are cut and joined.
    pub fn live_as_one(&mut self, hint: SegmentId, range: Slab) -> SegmentId {
        let seg = self.seg(hint);
        let live = matches!(seg.state, Occupancy::Live { .. });
        if live && (seg.addr, seg.bytes) == (range.base, range.bytes) {
            return hint;
        }
        let found = self.live_before(range.base);
        debug_assert!(found.is_some(), "a cache's memory is not live");
        let mut id = found.unwrap_or(hint);
        if let Occupancy::Live { requested, .. } = &mut self.seg_mut(id).state {
            // The cache knows.
            *requested = 0;
        }
        if self.seg(id).addr < range.base {
            id = self.split(id, range.base);
        }
        while self.seg(id).end() < range.end() {
            let next = self.seg(id).addr + self.seg(id).bytes;
            self.live.remove(&next);
            self.absorb_next(id);
        }
        if self.seg(id).end() > range.end() {
            self.split(id, range.end());
        }
        id
    }

    /// Joins a segment with the one after it; what the first one is stays.
    pub fn absorb_next(&mut self, id: SegmentId) {
        let next = self.seg(id).next;
        debug_assert!(self.seg(id).end() == self.seg(next).addr, "a gap");
        debug_assert!(
            self.death(id).is_some() == self.death(next).is_some(),
            "a live segment and a free one joined"
        );
        let (bytes, after) = (self.seg(next).bytes, self.seg(next).next);
        self.seg_mut(id).bytes += bytes;
        self.link(id, after);
        self.vacate(next);
    }

    /// Splits a segment at `at`; both parts are live or keep the death. Returns the second.
    pub fn split(&mut self, id: SegmentId, at: u64) -> SegmentId {
        let seg = self.seg(id);
        debug_assert!(seg.addr < at && at < seg.end(), "split outside");
        let state = match seg.state {
            Occupancy::Live { requested, holder } => Occupancy::Live { requested, holder },
            _ => Occupancy::Free(seg.death().cloned().unwrap_or_default()),
        };
        let live = matches!(state, Occupancy::Live { .. });
        let second = Segment {
            addr: at,
            bytes: seg.end() - at,
            prev: id,
            next: seg.next,
            state,
        };
        let after = second.next;
        let second = self.new_seg(second);
        if live {
            self.live.insert(at, second);
        }
        let seg = self.seg_mut(id);
        seg.bytes = at - seg.addr;
        self.link(id, second);
        self.link(second, after);
        second
    }

    /// Makes `next` the segment after `id`; either may be [`NIL`].
    fn link(&mut self, id: SegmentId, next: SegmentId) {
        debug_assert!(
            id == NIL || next == NIL || self.seg(id).end() == self.seg(next).addr,
            "a link over a gap"
        );
        if id != NIL {
            self.seg_mut(id).next = next;
        }
        if next != NIL {
            self.seg_mut(next).prev = id;
        }
    }

    fn new_seg(&mut self, seg: Segment) -> SegmentId {
        if let Some(id) = self.spare_segs.pop() {
            self.segs[id as usize] = seg;
            return id;
        }
        self.segs.push(seg);
        (self.segs.len() - 1) as SegmentId
    }

    fn vacate(&mut self, id: SegmentId) {
        self.seg_mut(id).state = Occupancy::Vacant;
        self.spare_segs.push(id);
    }
}

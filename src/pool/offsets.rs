//! Address ranges: which segment of which slab lies where, and who its neighbours are.
//!
//! Owns placement: segments of a slab tile its usable range in address order, without gap or
//! overlap, each live or free with a death. Knows nothing of sizes wanted, order or policy.

use super::source::Slab;
use crate::timeline::Frontier;
use std::collections::BTreeMap;

pub(crate) type SegId = u32;
pub(crate) type SlabId = u32;
pub(crate) const NIL: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) enum State {
    /// An arena entry that stands for no segment.
    Vacant,
    Live {
        requested: u64,
        /// The stash that it is lent to, as the pool numbers them, or [`NIL`]. That one then knows
        /// what was requested, and whether the block is live at all.
        lent: u32,
    },
    /// Unused once this has completed; empty when it was observed complete or never used.
    Free(Frontier),
}

#[derive(Debug)]
pub(crate) struct Seg {
    pub addr: u64,
    pub bytes: u64,
    pub slab: SlabId,
    pub prev: SegId,
    pub next: SegId,
    pub state: State,
}

impl Seg {
    pub fn end(&self) -> u64 {
        self.addr + self.bytes
    }

    pub fn death(&self) -> Option<&Frontier> {
        match &self.state {
            State::Free(death) => Some(death),
            State::Live { .. } | State::Vacant => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct SlabEntry {
    pub slab: Slab,
    pub first: SegId,
    pub free_bytes: u64,
}

/// Where an allocation goes: it starts at `start`, inside the free segment `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub first: SegId,
    pub start: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Offsets {
    segs: Vec<Seg>,
    spare_segs: Vec<SegId>,
    slabs: Vec<Option<SlabEntry>>,
    spare_slabs: Vec<SlabId>,
    live: BTreeMap<u64, SegId>,
}

impl Offsets {
    pub fn seg(&self, id: SegId) -> &Seg {
        &self.segs[id as usize]
    }

    fn seg_mut(&mut self, id: SegId) -> &mut Seg {
        &mut self.segs[id as usize]
    }

    pub fn death(&self, id: SegId) -> Option<&Frontier> {
        if id == NIL {
            None
        } else {
            self.seg(id).death()
        }
    }

    pub fn death_mut(&mut self, id: SegId) -> Option<&mut Frontier> {
        match &mut self.seg_mut(id).state {
            State::Free(death) => Some(death),
            State::Live { .. } | State::Vacant => None,
        }
    }

    pub fn slabs(&self) -> impl Iterator<Item = (SlabId, &SlabEntry)> {
        let numbered = self.slabs.iter().enumerate();
        numbered.filter_map(|(id, entry)| Some((id as SlabId, entry.as_ref()?)))
    }

    /// The slab that a segment lies in, as the source gave it.
    pub fn slab_of(&self, id: SegId) -> Slab {
        let entry = self.slabs[self.seg(id).slab as usize].as_ref();
        entry.map_or(Slab { base: 0, bytes: 0 }, |entry| entry.slab)
    }

    /// The segments of a slab in address order.
    pub fn segs_from(&self, first: SegId) -> impl Iterator<Item = (SegId, &Seg)> {
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

    /// Adds a slab as one free, never used segment, cut to `unit`. `None` if nothing is left of it.
    pub fn add_slab(&mut self, slab: Slab, unit: u64) -> Option<SegId> {
        let start = slab.base.checked_next_multiple_of(unit)?;
        let end = slab.base.checked_add(slab.bytes)? / unit * unit;
        if start >= end {
            return None;
        }
        let id = match self.spare_slabs.pop() {
            Some(id) => id,
            None => {
                self.slabs.push(None);
                (self.slabs.len() - 1) as SlabId
            }
        };
        let bytes = end - start;
        let first = self.new_seg(Seg {
            addr: start,
            bytes,
            slab: id,
            prev: NIL,
            next: NIL,
            state: State::Free(Frontier::new()),
        });
        self.slabs[id as usize] = Some(SlabEntry {
            slab,
            first,
            free_bytes: bytes,
        });
        Some(first)
    }

    /// Whether the segment is all of its slab.
    pub fn spans_slab(&self, id: SegId) -> bool {
        let seg = self.seg(id);
        seg.prev == NIL && seg.next == NIL
    }

    /// Removes the slab of which `id` is the only, free segment.
    pub fn remove_slab(&mut self, id: SegId) -> Option<Slab> {
        if !self.spans_slab(id) || self.death(id).is_none() {
            return None;
        }
        let slab = self.seg(id).slab;
        let entry = self.slabs[slab as usize].take()?;
        self.vacate(id);
        self.spare_slabs.push(slab);
        Some(entry.slab)
    }

    /// Makes `[place.start, +bytes)` one live segment. It must be covered by adjacent free segments
    /// from `place.first` on. Returns the live segment and what is left free before and after it,
    /// each with the death it had.
    pub fn carve(&mut self, place: Place, bytes: u64, requested: u64) -> (SegId, SegId, SegId) {
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
        let seg = self.seg_mut(taken);
        seg.state = State::Live {
            requested,
            lent: NIL,
        };
        let slab = seg.slab;
        self.live.insert(place.start, taken);
        if let Some(entry) = &mut self.slabs[slab as usize] {
            entry.free_bytes -= bytes;
        }
        (taken, front, back)
    }

    /// Frees the live segment that starts at `addr`.
    pub fn free(&mut self, addr: u64, death: Frontier) -> Option<SegId> {
        let id = self.live.remove(&addr)?;
        let seg = self.seg_mut(id);
        seg.state = State::Free(death);
        let (slab, bytes) = (seg.slab, seg.bytes);
        if let Some(entry) = &mut self.slabs[slab as usize] {
            entry.free_bytes += bytes;
        }
        Some(id)
    }

    /// The live segment that holds `addr`, what was requested of it, and the stash it is lent to.
    pub fn live_around(&self, addr: u64) -> Option<(SegId, u64, u32)> {
        let (_, id) = self.live.range(..=addr).next_back()?;
        match self.seg(*id).state {
            State::Live { requested, lent } if addr < self.seg(*id).end() => {
                Some((*id, requested, lent))
            }
            _ => None,
        }
    }

    /// Notes what was requested of a live block, and the stash it is lent to.
    pub fn set_live(&mut self, addr: u64, requested: u64, lent: u32) {
        if let Some(id) = self.live.get(&addr) {
            self.segs[*id as usize].state = State::Live { requested, lent };
        }
    }

    /// Joins a free segment with the one after it; the first one's death stays.
    pub fn absorb_next(&mut self, id: SegId) {
        let next = self.seg(id).next;
        let (bytes, after) = (self.seg(next).bytes, self.seg(next).next);
        let seg = self.seg_mut(id);
        seg.bytes += bytes;
        seg.next = after;
        if after != NIL {
            self.seg_mut(after).prev = id;
        }
        self.vacate(next);
    }

    /// Splits a free segment at `at`; both parts keep the death. Returns the second.
    fn split(&mut self, id: SegId, at: u64) -> SegId {
        let seg = self.seg(id);
        let second = Seg {
            addr: at,
            bytes: seg.end() - at,
            slab: seg.slab,
            prev: id,
            next: seg.next,
            state: State::Free(seg.death().cloned().unwrap_or_default()),
        };
        let after = second.next;
        let second = self.new_seg(second);
        let seg = self.seg_mut(id);
        seg.bytes = at - seg.addr;
        seg.next = second;
        if after != NIL {
            self.seg_mut(after).prev = second;
        }
        second
    }

    fn new_seg(&mut self, seg: Seg) -> SegId {
        if let Some(id) = self.spare_segs.pop() {
            self.segs[id as usize] = seg;
            return id;
        }
        self.segs.push(seg);
        (self.segs.len() - 1) as SegId
    }

    fn vacate(&mut self, id: SegId) {
        self.seg_mut(id).state = State::Vacant;
        self.spare_segs.push(id);
    }
}

//! Placement and indexes together: the memory of one pool, without limits, policy or lock.

use super::index::Index;
use super::offsets::{NIL, Offsets, Place, SegId};
use super::request::{Block, Order};
use super::source::Slab;
use crate::timeline::Frontier;

#[derive(Debug, Default)]
pub(crate) struct Store {
    pub offsets: Offsets,
    pub index: Index,
}

impl Store {
    /// Adds a slab, cut to `unit`. False, and unchanged, if nothing is left of it.
    pub fn add_slab(&mut self, slab: Slab, unit: u64) -> bool {
        match self.offsets.add_slab(slab, unit) {
            Some(id) => {
                self.index.insert(&self.offsets, id);
                true
            }
            None => false,
        }
    }

    /// Removes an idle slab: the smallest of at least `bytes`, else the largest.
    pub fn remove_idle(&mut self, bytes: u64) -> Option<Slab> {
        let idle = self.index.idle();
        let (_, id) = *idle.range((bytes, 0)..).next().or_else(|| idle.last())?;
        self.index.remove(&self.offsets, id);
        self.offsets.remove_slab(id)
    }

    /// Turns `bytes` at `place`, which must be free, into a live block.
    pub fn take(&mut self, place: Place, bytes: u64, requested: u64) -> Block {
        let end = place.start + bytes;
        let mut id = place.first;
        while id != NIL && self.offsets.seg(id).addr < end {
            let next = self.offsets.seg(id).next;
            self.index.remove(&self.offsets, id);
            id = next;
        }
        let (_, front, back) = self.offsets.carve(place, bytes, requested);
        for left in [front, back] {
            if left != NIL {
                self.index.insert(&self.offsets, left);
            }
        }
        Block {
            addr: place.start,
            bytes,
            requested,
        }
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

    /// Frees the live block that starts at `addr`, which no stash holds any more.
    pub fn free(&mut self, addr: u64, mut death: Frontier) -> Option<Block> {
        let (block, _) = self
            .live_around(addr)
            .filter(|(block, _)| block.addr == addr)?;
        death.prune();
        let id = self.offsets.free(addr, death)?;
        self.file(id);
        Some(block)
    }

    /// The live block that holds `addr`, and the stash that it is lent to or [`NIL`].
    pub fn live_around(&self, addr: u64) -> Option<(Block, u32)> {
        let (id, requested, lent) = self.offsets.live_around(addr)?;
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
        for id in &ripe {
            self.index.remove(&self.offsets, *id);
            if let Some(death) = self.offsets.death_mut(*id) {
                death.prune();
            }
            self.file(*id);
        }
        !ripe.is_empty()
    }

    /// The deaths of slabs without a live block, joined.
    pub fn pending(&self) -> Frontier {
        let mut out = Frontier::new();
        for (_, entry) in self.offsets.slabs() {
            let segs = || self.offsets.segs_from(entry.first);
            if segs().all(|(_, seg)| seg.death().is_some()) {
                segs()
                    .filter_map(|(_, seg)| seg.death())
                    .for_each(|death| out.join(death));
            }
        }
        out.prune();
        out
    }

    /// Joins a free segment with neighbours of the same death, and files it.
    fn file(&mut self, mut id: SegId) {
        let (prev, next) = (self.offsets.seg(id).prev, self.offsets.seg(id).next);
        if self.dies_alike(id, next) {
            self.index.remove(&self.offsets, next);
            self.offsets.absorb_next(id);
        }
        if self.dies_alike(prev, id) {
            self.index.remove(&self.offsets, prev);
            self.offsets.absorb_next(prev);
            id = prev;
        }
        self.index.insert(&self.offsets, id);
    }

    fn dies_alike(&self, a: SegId, b: SegId) -> bool {
        match (self.offsets.death(a), self.offsets.death(b)) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        }
    }
}

//! Release: idle memory above the threshold or for want of room, and address aliases without a use, go back to
//! the provider.

use crate::pool::heap::Heap;
use crate::pool::heap::segments::SegmentId;
use crate::pool::options::ALIAS_RATIO;
use crate::pool::provider::Slab;
use crate::pool::state::PoolState;
use std::collections::BTreeSet;

/// What is returned to the provider: aliases first, then memory.
#[derive(Default)]
pub(crate) struct Releasing {
    pub addresses: Vec<Slab>,
    pub slabs: Vec<Slab>,
}

impl Releasing {
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.slabs.is_empty()
    }
}

impl PoolState {
    /// Aliases without a use, which leave the pool.
    pub fn expired(&mut self) -> Vec<Slab> {
        let most = match self.limits.leaves_mapped {
            true => ALIAS_RATIO.saturating_mul(self.stats.figures.reserved),
            false => 0,
        };
        self.table.expired(&mut self.heap, most)
    }

    /// Aliases that are kept for replay plans, which end.
    pub fn drop_kept_aliases(&mut self) -> Vec<Slab> {
        match self.table.aliases.kept_bytes() {
            0 => Vec::new(),
            _ => self.table.expired(&mut self.heap, 0),
        }
    }

    /// Removes idle memory until at most `keep` bytes will be reserved, as few bytes as suffice.
    pub fn release_down_to(&mut self, keep: u64) -> Releasing {
        self.release_by(keep, Heap::remove_idle)
    }

    /// Removes idle memory as long as at least `keep` bytes will be reserved. Pages differ in size, so
    /// more may stay.
    pub fn trim(&mut self, keep: u64) -> Releasing {
        self.release_by(keep, Heap::remove_idle_within)
    }

    /// `remove` takes memory from the idle entries, given the bytes in excess of `keep`.
    fn release_by(
        &mut self,
        keep: u64,
        remove: impl Fn(&mut Heap, &mut BTreeSet<(u64, SegmentId)>, u64) -> Option<Slab>,
    ) -> Releasing {
        let mut out = Releasing {
            addresses: self.expired(),
            slabs: Vec::new(),
        };
        if self.staying() <= keep {
            return out;
        }
        self.recall();
        self.heap.sweep();
        let mut idle = self.heap.idle();
        while let excess @ 1.. = self.staying().saturating_sub(keep)
            && let Some(slab) = remove(&mut self.heap, &mut idle, excess)
        {
            self.releasing += slab.bytes;
            out.slabs.push(slab);
        }
        if !out.slabs.is_empty() {
            // Allocation traces name addresses of the released memory.
            self.table.forget_replay(&mut self.heap);
            self.requests_spent = self.stats.counters.served();
            self.pressure.reset(self.requests_spent);
            out.addresses.append(&mut self.expired());
        }
        out
    }

    /// The slabs of [`PoolState::release_down_to`] have reached the provider.
    pub fn released(&mut self, slabs: &[Slab]) {
        for slab in slabs {
            self.releasing -= slab.bytes;
            self.stats.unreserve(slab.bytes);
        }
    }

    fn staying(&self) -> u64 {
        let reserved = self.stats.figures.reserved;
        debug_assert!(self.releasing <= reserved, "more is released than there is");
        reserved - self.releasing
    }

    /// Idle slabs to release: for `short` more bytes under the maximum, or all of them where the provider has
    /// no memory left.
    pub(super) fn release_idle(&mut self, short: Option<u64>) -> Releasing {
        let Some(floor) = short else {
            return self.release_down_to(0);
        };
        let max = self.config.max_bytes.unwrap_or(u64::MAX);
        let Some(keep) = max.checked_sub(floor) else {
            return Releasing::default();
        };
        let idle: u64 = self.heap.idle().iter().map(|own| own.0).sum();
        let committed = self.staying() + self.growing;
        if committed.saturating_sub(idle) > keep {
            return Releasing::default();
        }
        self.release_down_to(keep.saturating_sub(self.growing))
    }
}

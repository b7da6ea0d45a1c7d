//! What goes back to the provider, and when: idle memory above what is to be kept, or for want of room,
//! and addresses that nothing can use any more.

use crate::pool::options::ALIAS_RATIO;
use crate::pool::provider::Slab;
use crate::pool::state::State;

/// What goes back to the provider: addresses that nothing leads to any more, then memory.
#[derive(Default)]
pub(crate) struct Leaving {
    pub addresses: Vec<Slab>,
    pub slabs: Vec<Slab>,
}

impl Leaving {
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.slabs.is_empty()
    }
}

impl State {
    /// What `settle` leaves reserved.
    pub fn keep(&self) -> u64 {
        if self.closed {
            0
        } else {
            self.config.release_threshold
        }
    }

    /// Old addresses that nothing can use any more.
    pub fn expired(&mut self) -> Vec<Slab> {
        let most = match self.limits.leaves_mapped {
            true => ALIAS_RATIO.saturating_mul(self.stats.figures.reserved),
            false => 0,
        };
        self.table.expired(&mut self.store, most)
    }

    /// The old addresses that are kept for plans, which end.
    pub fn give_up_plans(&mut self) -> Vec<Slab> {
        match self.table.old.kept_bytes() {
            0 => Vec::new(),
            _ => self.table.expired(&mut self.store, 0),
        }
    }

    /// Takes idle memory out until at most `keep` bytes will be reserved: as few bytes as suffice.
    pub fn leave(&mut self, keep: u64) -> Leaving {
        let mut out = Leaving {
            addresses: self.expired(),
            slabs: Vec::new(),
        };
        if self.staying() <= keep {
            return out;
        }
        self.recall();
        self.store.sweep();
        let mut idle = self.store.idle();
        while let Some(excess) = self
            .staying()
            .checked_sub(keep)
            .filter(|excess| *excess > 0)
        {
            let Some(slab) = self.store.remove_idle(&mut idle, excess) else {
                break;
            };
            self.leaving += slab.bytes;
            out.slabs.push(slab);
        }
        if !out.slabs.is_empty() {
            // Records name addresses there. Without them nothing wants old ones, for which whoever begins
            // anew would only lose what it has by then.
            self.table.forget_replay(&mut self.store);
            self.budget.shrank();
            out.addresses.append(&mut self.expired());
        }
        out
    }

    /// The slabs of [`State::leave`] have reached the provider.
    pub fn left(&mut self, slabs: &[Slab]) {
        for slab in slabs {
            self.leaving -= slab.bytes;
            self.stats.unreserve(slab.bytes);
        }
    }

    fn staying(&self) -> u64 {
        self.stats.figures.reserved - self.leaving
    }

    /// Idle slabs worth giving up: for `short` more bytes under the maximum, else all, for a provider
    /// that has run dry.
    pub(super) fn release_idle(&mut self, short: Option<u64>) -> Leaving {
        let Some(floor) = short else {
            return self.leave(0);
        };
        let max = self.config.max_bytes.unwrap_or(u64::MAX);
        let Some(keep) = max.checked_sub(floor) else {
            return Leaving::default();
        };
        let idle = self.store.idle();
        let idle: u64 = idle.iter().map(|(bytes, _)| *bytes).sum();
        let committed = self.staying() + self.growing;
        if committed.saturating_sub(idle) > keep {
            return Leaving::default();
        }
        self.leave(keep.saturating_sub(self.growing))
    }
}

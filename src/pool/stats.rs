//! Figures and counters. Those of reserved memory are guarded by the pool's lock, so their high is exact;
//! those of used memory are in `cache::usage`.

use crate::pool::request::Reuse;
use std::ops::AddAssign;

/// Bytes. `used` counts blocks as rounded, from the call that allocates them to the call that frees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub reserved: u64,
    pub reserved_high: u64,
    pub used: u64,
    pub used_high: u64,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How requests were served since the pool was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl AddAssign for Counters {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Served from what died on the requesting lane itself.
    own_lane,
    /// Served from deaths that the request's dependencies order.
    ordered,
    /// Served from memory that was never used, or whose use was observed complete.
    completed,
    /// Served with an inserted wait.
    waited,
    /// Served by growth.
    grown,
    /// Not served.
    failed,
    releases,
    /// Slabs that the provider gave, and their bytes.
    growths,
    grown_bytes,
    /// Slabs given back, and their bytes.
    trims,
    trimmed_bytes,
    /// Times that free pages were given one new address together, and their bytes.
    compactions,
    compacted_bytes,
    /// Points in the waits inserted.
    waits,
    /// Replay plans that were made, and requests served from them, which are `own_lane`, `ordered` or `completed`
    /// too.
    replay_plans,
    replayed,
    /// Of these, those of plans of several streams.
    shared_plans,
    replayed_shared,
}

impl Counters {
    /// Counts a request that was served.
    pub(crate) fn count(&mut self, reuse: Reuse) {
        *match reuse {
            Reuse::OwnLane => &mut self.own_lane,
            Reuse::Ordered => &mut self.ordered,
            Reuse::Completed => &mut self.completed,
            Reuse::Waited => &mut self.waited,
            Reuse::Grown => &mut self.grown,
        } += 1;
    }

    /// Requests served.
    pub fn served(&self) -> u64 {
        self.own_lane + self.ordered + self.completed + self.waited + self.grown
    }
}

/// A pool's figures and counters.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub figures: Figures,
    pub counters: Counters,
}

impl Stats {
    pub fn reserve(&mut self, bytes: u64) {
        let f = &mut self.figures;
        f.reserved += bytes;
        f.reserved_high = f.reserved_high.max(f.reserved);
        self.counters.growths += 1;
        self.counters.grown_bytes += bytes;
    }

    pub fn unreserve(&mut self, bytes: u64) {
        debug_assert!(self.figures.reserved >= bytes, "gave back what it had not");
        self.figures.reserved -= bytes;
        self.counters.trims += 1;
        self.counters.trimmed_bytes += bytes;
    }
}

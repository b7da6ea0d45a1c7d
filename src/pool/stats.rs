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

/// How requests were served since the pool was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Served from what died on the requesting lane itself.
    pub own_lane: u64,
    /// Served from deaths that the request's dependencies order.
    pub ordered: u64,
    /// Served from memory that was never used, or whose use was observed complete.
    pub completed: u64,
    /// Served with an inserted wait.
    pub waited: u64,
    /// Served by growth.
    pub grown: u64,
    /// Not served.
    pub failed: u64,
    pub releases: u64,
    /// Slabs that the provider gave, and their bytes.
    pub growths: u64,
    pub grown_bytes: u64,
    /// Slabs given back, and their bytes.
    pub trims: u64,
    pub trimmed_bytes: u64,
    /// Times that free pages were given one new address together, and their bytes.
    pub compactions: u64,
    pub compacted_bytes: u64,
    /// Points in the waits inserted.
    pub waits: u64,
    /// Replay plans that were made, and requests served from them, which are `own_lane`, `ordered` or `completed`
    /// too.
    pub replay_plans: u64,
    pub replayed: u64,
    /// Of these, those of plans of several streams.
    pub shared_plans: u64,
    pub replayed_shared: u64,
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

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        // Written out, so that a new counter does not compile until it is added.
        let Self {
            own_lane,
            ordered,
            completed,
            waited,
            grown,
            failed,
            releases,
            growths,
            grown_bytes,
            trims,
            trimmed_bytes,
            compactions,
            compacted_bytes,
            waits,
            replay_plans,
            replayed,
            shared_plans,
            replayed_shared,
        } = other;
        self.own_lane += own_lane;
        self.ordered += ordered;
        self.completed += completed;
        self.waited += waited;
        self.grown += grown;
        self.failed += failed;
        self.releases += releases;
        self.growths += growths;
        self.grown_bytes += grown_bytes;
        self.trims += trims;
        self.trimmed_bytes += trimmed_bytes;
        self.compactions += compactions;
        self.compacted_bytes += compacted_bytes;
        self.waits += waits;
        self.replay_plans += replay_plans;
        self.replayed += replayed;
        self.shared_plans += shared_plans;
        self.replayed_shared += replayed_shared;
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

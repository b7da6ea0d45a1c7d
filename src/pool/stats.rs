//! Figures and counters. Those of memory reserved are kept under the pool's lock, so the high is
//! exact; those of memory used in the pool's meter.

use std::ops::AddAssign;

/// Sizes in bytes. `used` counts blocks as rounded and moves when the call is made.
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
    /// Served from memory never used or whose death was observed complete.
    pub completed: u64,
    /// Served with an inserted wait.
    pub waited: u64,
    /// Served by growth.
    pub grown: u64,
    /// Not served.
    pub failed: u64,
    pub releases: u64,
    /// Slabs taken from the source, and their bytes.
    pub growths: u64,
    pub grown_bytes: u64,
    /// Slabs given back, and their bytes.
    pub trims: u64,
    pub trimmed_bytes: u64,
    /// Times that free pages were given one new address together, and their bytes.
    pub gathers: u64,
    pub gathered_bytes: u64,
    /// Points in the waits inserted.
    pub waits: u64,
    /// Times that a lane, or several together, got the memory of all that they had had, to do the same
    /// again, and requests served from that, which are `own_lane`, `ordered` or `completed` too.
    pub plans: u64,
    pub planned: u64,
    /// Of these, those of several together.
    pub joint_plans: u64,
    pub planned_jointly: u64,
}

impl Counters {
    /// Requests served, however.
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
            gathers,
            gathered_bytes,
            waits,
            plans,
            planned,
            joint_plans,
            planned_jointly,
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
        self.gathers += gathers;
        self.gathered_bytes += gathered_bytes;
        self.waits += waits;
        self.plans += plans;
        self.planned += planned;
        self.joint_plans += joint_plans;
        self.planned_jointly += planned_jointly;
    }
}

/// Both, as the pool keeps them.
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

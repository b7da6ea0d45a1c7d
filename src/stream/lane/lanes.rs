//! The lanes of a context, divided into busy and parked ones.
//!
//! Owns which lane is in which set. Queries about everything enqueued visit busy lanes only, so
//! idle lanes cost nothing.
//!
//! | state of a lane | entered by | left by |
//! |---|---|---|
//! | busy: may have pending commands | [`Lanes::add`]; its next command or wait ([`Lanes::wake`]) | being parked; its end |
//! | parked: seen idle, with nothing to wait for | [`Lanes::park`] | [`Lanes::wake`]; its end |

use crate::sync::Mutex;
use crate::timeline::LaneId;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::{Arc, Weak};

/// Number of busy lanes up to which none is parked: parking a lane costs waking it again.
const MAX_UNPARKED_LANES: usize = if cfg!(loom) { 0 } else { 32 };

pub(crate) struct Lanes<L>(Mutex<LaneSets<L>>);

/// Busy lanes, mostly few.
type Busy<L> = SmallVec<[Arc<L>; 8]>;

/// A lane as the sets see it.
pub(crate) trait Parkable {
    fn id(&self) -> LaneId;

    /// Parks the lane if it is idle. Returns whether it is parked. A later command unparks it and
    /// calls [`Lanes::wake`].
    fn park(&self) -> bool;

    fn is_parked(&self) -> bool;
}

struct LaneSets<L> {
    /// In the order in which they became busy.
    busy: Vec<Weak<L>>,
    /// Number of busy lanes after the last removal of ended ones.
    live: usize,
    parked: FxHashMap<LaneId, Weak<L>>,
}

impl<L> Default for Lanes<L> {
    fn default() -> Self {
        Self(Mutex::new(LaneSets {
            busy: Vec::new(),
            live: 0,
            parked: FxHashMap::default(),
        }))
    }
}

impl<L: Parkable> Lanes<L> {
    pub fn add(&self, lane: &Arc<L>) {
        let mut sets = self.0.lock();
        if sets.busy.len() >= 2 * sets.live + MAX_UNPARKED_LANES {
            sets.remove_ended();
        }
        sets.busy.push(Arc::downgrade(lane));
    }

    /// A lane has ended.
    pub fn remove(&self, lane: LaneId) {
        self.0.lock().parked.remove(&lane);
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<L>> {
        let sets = self.0.lock();
        let all = sets.busy.iter().chain(sets.parked.values());
        all.filter_map(Weak::upgrade).collect()
    }

    /// The lanes that may have something pending.
    pub fn busy(&self) -> Busy<L> {
        let mut sets = self.0.lock();
        let busy: Busy<L> = sets.busy.iter().filter_map(Weak::upgrade).collect();
        if busy.len() + MAX_UNPARKED_LANES < sets.busy.len() {
            sets.remove_ended();
        }
        busy
    }

    /// Parks what is idle of many busy lanes.
    pub fn park(&self, lanes: &[Arc<L>]) {
        if lanes.len() <= MAX_UNPARKED_LANES || lanes.iter().filter(|lane| lane.park()).count() == 0
        {
            return;
        }
        // Dropped after the lock is released: the drop of a lane takes it.
        let mut held = Vec::new();
        let mut sets = self.0.lock();
        let LaneSets { busy, parked, .. } = &mut *sets;
        busy.retain(|weak| {
            let Some(lane) = weak.upgrade() else {
                return false;
            };
            // A lane may have been woken since it was parked.
            let stays = !lane.is_parked();
            if !stays {
                parked.insert(lane.id(), Weak::clone(weak));
            }
            held.push(lane);
            stays
        });
        drop(sets);
    }

    /// Moves a parked lane back to the busy ones.
    pub fn wake(&self, lane: LaneId) {
        let mut sets = self.0.lock();
        // The lane is missing here while `park` runs: it then stays busy.
        if let Some(weak) = sets.parked.remove(&lane) {
            sets.busy.push(weak);
        }
    }

    /// Number of lanes that a query about everything enqueued visits.
    #[cfg(test)]
    pub fn busy_count(&self) -> usize {
        self.0.lock().busy.len()
    }
}

impl<L> LaneSets<L> {
    fn remove_ended(&mut self) {
        self.busy.retain(|lane| lane.strong_count() > 0);
        self.live = self.busy.len();
    }
}

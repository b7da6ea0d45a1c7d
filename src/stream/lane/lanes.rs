//! The lanes of a context: those that may have something pending, and those seen idle since.
//!
//! Owns which lane is where. Questions about everything enqueued are asked of busy lanes alone, so that
//! idle ones cost nothing, however many there are.
//!
//! | state of a lane | entered by | left by |
//! |---|---|---|
//! | busy | [`Lanes::add`]; its next command or wait ([`Lanes::wake`]) | being parked; its end |
//! | parked: seen idle, with nothing to wait for | [`Lanes::park`] | [`Lanes::wake`]; its end |

use crate::stream::Driver;
use crate::stream::lane::LaneCore;
use crate::timeline::LaneId;
use crate::timeline::sync::Mutex;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Weak};

/// Busy lanes up to which it is not worth to look for idle ones: what parks one wakes it again.
const FEW: usize = 32;

pub(crate) struct Lanes<D: Driver>(Mutex<Kept<D>>);

struct Kept<D: Driver> {
    /// In the order in which they came to be busy.
    busy: Vec<Weak<LaneCore<D>>>,
    /// How many of them there were when ended ones were last left out.
    left: usize,
    parked: FxHashMap<LaneId, Weak<LaneCore<D>>>,
}

impl<D: Driver> Default for Lanes<D> {
    fn default() -> Self {
        Self(Mutex::new(Kept {
            busy: Vec::new(),
            left: 0,
            parked: FxHashMap::default(),
        }))
    }
}

impl<D: Driver> Lanes<D> {
    pub fn add(&self, lane: &Arc<LaneCore<D>>) {
        let mut kept = self.0.lock();
        if kept.busy.len() >= 2 * kept.left + FEW {
            kept.leave_out_ended();
        }
        kept.busy.push(Arc::downgrade(lane));
    }

    /// A lane has ended.
    pub fn remove(&self, lane: LaneId) {
        self.0.lock().parked.remove(&lane);
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<LaneCore<D>>> {
        let kept = self.0.lock();
        let all = kept.busy.iter().chain(kept.parked.values());
        all.filter_map(Weak::upgrade).collect()
    }

    /// Those that may have something pending.
    pub fn busy(&self) -> Vec<Arc<LaneCore<D>>> {
        let mut kept = self.0.lock();
        let busy: Vec<_> = kept.busy.iter().filter_map(Weak::upgrade).collect();
        if busy.len() + FEW < kept.busy.len() {
            kept.leave_out_ended();
        }
        busy
    }

    /// Parks what is idle of many busy lanes.
    pub fn park(&self, lanes: &[Arc<LaneCore<D>>]) {
        if lanes.len() <= FEW || lanes.iter().filter(|lane| lane.park()).count() == 0 {
            return;
        }
        // Let go after the lock: the end of a lane takes it.
        let mut held = Vec::new();
        let mut kept = self.0.lock();
        let Kept { busy, parked, .. } = &mut *kept;
        busy.retain(|weak| {
            let Some(lane) = weak.upgrade() else {
                return false;
            };
            // It may have been woken again since.
            let stays = !lane.is_parked();
            if !stays {
                parked.insert(lane.clock.id(), Weak::clone(weak));
            }
            held.push(lane);
            stays
        });
        drop(kept);
    }

    /// A lane that was parked is not any more.
    pub fn wake(&self, lane: LaneId) {
        let mut kept = self.0.lock();
        // Not there yet if this is while it is being parked: then it stays where it is.
        if let Some(weak) = kept.parked.remove(&lane) {
            kept.busy.push(weak);
        }
    }

    /// How many are looked at where everything enqueued is asked for.
    #[cfg(test)]
    pub fn watched(&self) -> usize {
        self.0.lock().busy.len()
    }
}

impl<D: Driver> Kept<D> {
    fn leave_out_ended(&mut self) {
        self.busy.retain(|lane| lane.strong_count() > 0);
        self.left = self.busy.len();
    }
}

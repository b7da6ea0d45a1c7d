//! One lane's identity and how far it is known to have got.

use super::sync::{AtomicU64, Ordering};
use std::sync::Arc;

/// Identity of a lane, unique in the process and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(u64);

impl LaneId {
    fn fresh() -> Self {
        // Identity only, so no ordering is needed; and a plain `std` atomic, since loom's cannot
        // live in a static.
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        Self(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
    }

    pub fn get(self) -> u64 {
        self.0
    }
}

/// A lane's identity and its monotone completed epoch. Epoch 0 stands before the first command and
/// is always complete.
#[derive(Debug)]
pub struct Clock {
    id: LaneId,
    completed: AtomicU64,
}

impl Clock {
    // Callers share a clock from birth: points, frontiers and dead blocks all hold it.
    #[allow(clippy::new_ret_no_self)]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            id: LaneId::fresh(),
            completed: AtomicU64::new(0),
        })
    }

    pub fn id(&self) -> LaneId {
        self.id
    }

    /// The last epoch observed complete. Acquire: what the observer saw before raising is visible.
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// Records that everything up to `epoch` was observed complete; never goes back. A lane that
    /// has drained and ended is raised to `u64::MAX`, so that nothing waits for it again.
    pub fn raise(&self, epoch: u64) {
        // Not `fetch_max`, which the thread sanitizer does not see: it would report whatever this orders.
        let later = |completed| (completed < epoch).then_some(epoch);
        // Whoever has raised it further has observed this epoch, too.
        let _ = self
            .completed
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, later);
    }
}

/// A command's place: everything on `clock`'s lane up to and including `epoch`.
#[derive(Clone, Debug)]
pub struct Point {
    pub clock: Arc<Clock>,
    pub epoch: u64,
}

impl Point {
    pub fn new(clock: &Arc<Clock>, epoch: u64) -> Self {
        Self {
            clock: Arc::clone(clock),
            epoch,
        }
    }

    pub fn lane(&self) -> LaneId {
        self.clock.id
    }

    /// Whether it was observed complete.
    pub fn is_complete(&self) -> bool {
        self.epoch <= self.clock.completed()
    }

    /// How many epochs lie between what is known complete and this point.
    pub fn outstanding(&self) -> u64 {
        self.epoch.saturating_sub(self.clock.completed())
    }
}

impl PartialEq for Point {
    fn eq(&self, other: &Self) -> bool {
        self.epoch == other.epoch && self.lane() == other.lane()
    }
}

impl Eq for Point {}

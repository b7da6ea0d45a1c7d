//! One lane's identity and how far it is known to have got.

use super::failure::{Failure, Range};
use crate::sync::{AtomicU64, Mutex, Ordering};
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
///
/// When a completion is seen depends on time. Where choices must not, a clock also keeps what the
/// program has awaited itself, and only that is relied on.
#[derive(Debug)]
pub struct Clock {
    id: LaneId,
    /// The epochs observed complete, and those that the program awaited.
    completed: [AtomicU64; 2],
    /// The epoch of the last native command.
    native: AtomicU64,
    /// Whether only the latter may be relied on; else they are not kept.
    deterministic: bool,
    /// Whether the host, or something outside, completes its points, rather than a lane.
    host: bool,
    pub(super) failures: Mutex<Vec<Range>>,
}

impl Clock {
    // Callers share a clock from birth: points, frontiers and dead blocks all hold it.
    #[allow(clippy::new_ret_no_self)]
    pub fn new() -> Arc<Self> {
        Self::of(false)
    }

    /// With `deterministic`, only what the program awaited may be relied on.
    pub fn of(deterministic: bool) -> Arc<Self> {
        Self::made(deterministic, false)
    }

    /// For a point that is not a lane's.
    pub fn of_host(deterministic: bool) -> Arc<Self> {
        Self::made(deterministic, true)
    }

    fn made(deterministic: bool, host: bool) -> Arc<Self> {
        Arc::new(Self {
            id: LaneId::fresh(),
            completed: std::array::from_fn(|_| AtomicU64::new(0)),
            native: AtomicU64::new(0),
            deterministic,
            host,
            failures: Mutex::default(),
        })
    }

    pub fn id(&self) -> LaneId {
        self.id
    }

    /// The last epoch observed complete. Acquire: what the observer saw before raising is visible.
    pub fn completed(&self) -> u64 {
        self.completed[0].load(Ordering::Acquire)
    }

    /// The last epoch whose completion may be relied on.
    #[inline]
    pub fn reliable(&self) -> u64 {
        self.completed[usize::from(self.deterministic)].load(Ordering::Acquire)
    }

    /// Whether only what the program awaited may be relied on.
    pub fn is_deterministic(&self) -> bool {
        self.deterministic
    }

    pub fn is_host(&self) -> bool {
        self.host
    }

    /// Records that the command with this epoch is native: its work may wait for the program.
    pub fn set_native(&self, epoch: u64) {
        debug_assert!(
            self.native.load(Ordering::Relaxed) <= epoch,
            "a native command before an earlier one"
        );
        self.native.store(epoch, Ordering::Release);
    }

    /// The last native command, if its completion may not be relied on.
    #[inline]
    pub fn pending_native(&self) -> Option<u64> {
        let native = self.native.load(Ordering::Acquire);
        (native != 0 && native > self.reliable()).then_some(native)
    }

    /// Records that the program itself has awaited `epoch`, whatever time it took.
    pub fn raise_awaited(&self, epoch: u64) {
        self.raise(epoch);
        if self.deterministic {
            self.completed[1].fetch_max(epoch, Ordering::AcqRel);
        }
        debug_assert!(self.reliable() <= self.completed(), "awaited, not complete");
    }

    /// Records that everything up to `epoch` was observed complete; never goes back. A lane that
    /// has drained and ended is raised to `u64::MAX`, so that nothing waits for it again.
    pub fn raise(&self, epoch: u64) {
        // Not `fetch_max`, which the thread sanitizer does not see: it would report whatever this orders.
        let later = |completed| (completed < epoch).then_some(epoch);
        // Whoever has raised it further has observed this epoch, too.
        let _ = self.completed[0].fetch_update(Ordering::AcqRel, Ordering::Relaxed, later);
        debug_assert!(self.completed() >= epoch, "a clock went back");
    }
}

/// A command's place: everything on `clock`'s lane up to and including `epoch`.
#[derive(Debug)]
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

    /// Whether its completion may be relied on.
    pub fn is_complete(&self) -> bool {
        self.epoch <= self.clock.reliable()
    }

    /// Whether it was observed complete. Nothing that a program can see later may depend on it,
    /// besides time.
    pub fn is_done(&self) -> bool {
        self.epoch <= self.clock.completed()
    }

    /// Whether it is pending and may wait for the program: the host or something outside completes it, or a
    /// native command of its lane is pending.
    #[inline]
    pub fn is_held(&self) -> bool {
        (self.clock.host || self.clock.pending_native().is_some()) && !self.is_complete()
    }

    /// How many epochs lie between what is known complete and this point.
    pub fn outstanding(&self) -> u64 {
        self.epoch.saturating_sub(self.clock.reliable())
    }

    /// Records that its own command failed.
    pub fn fail(&self, why: &Arc<Failure>) {
        self.clock.fail(self.epoch - 1, self.epoch, why);
    }
}

impl Clone for Point {
    #[inline]
    fn clone(&self) -> Self {
        Self::new(&self.clock, self.epoch)
    }

    /// Counts no reference where the lane stays the same.
    #[inline]
    fn clone_from(&mut self, source: &Self) {
        if !Arc::ptr_eq(&self.clock, &source.clock) {
            self.clock = Arc::clone(&source.clock);
        }
        self.epoch = source.epoch;
    }
}

impl PartialEq for Point {
    fn eq(&self, other: &Self) -> bool {
        self.epoch == other.epoch && self.lane() == other.lane()
    }
}

impl Eq for Point {}

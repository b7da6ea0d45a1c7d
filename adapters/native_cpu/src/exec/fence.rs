//! Fences: a clock that lanes, threads and callbacks can wait for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use ur::timeline::Clock;
use ur::timeline::sync::{Condvar, Mutex, MutexGuard};

use super::crew::Crew;
use super::lane::Track;
use super::{Failure, now};

/// Short, never blocks and runs no user code: a worker calls it.
pub type Call = Box<dyn FnOnce() + Send>;

/// How far something has come, for those who wait for it.
pub struct Fence {
    clock: Arc<Clock>,
    crew: Arc<Crew>,
    /// The lane that raises it, whose work a blocked thread may do. None for a host's point.
    track: OnceLock<Weak<Track>>,
    /// The least epoch that anybody waits for, so that raising costs nothing when nobody does.
    awaited: AtomicU64,
    waiters: Mutex<Waiters>,
    changed: Condvar,
}

enum Waiter {
    Lane(Arc<Track>),
    Call(Call),
    Thread,
}

const NOBODY: u64 = u64::MAX;

/// By the epoch that they wait for, then in the order in which they came.
#[derive(Default)]
struct Waiters {
    all: BTreeMap<(u64, u64), Waiter>,
    came: u64,
}

/// How long a thread looks before it sleeps: about what sleeping and being woken costs.
pub const SPIN_NS: u64 = 30_000;

/// How often a sleeping thread checks that its executor is still there.
const CHECK: Duration = Duration::from_millis(100);

/// A place in a fence's course that can be waited for.
#[derive(Clone)]
pub struct Marker {
    fence: Arc<Fence>,
    epoch: u64,
}

/// Raises a host's point to 1 when dropped.
pub struct Signal(Arc<Fence>);

impl Drop for Signal {
    fn drop(&mut self) {
        self.0.raise(1);
    }
}

impl Fence {
    pub(super) fn new(crew: &Arc<Crew>, clock: &Arc<Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock: Arc::clone(clock),
            crew: Arc::clone(crew),
            track: OnceLock::new(),
            awaited: AtomicU64::new(NOBODY),
            waiters: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// A point that the host signals, once.
    pub fn host_point(crew: &Arc<Crew>, clock: &Arc<Clock>) -> (Marker, Signal) {
        let fence = Self::new(crew, clock);
        (Marker::new(&fence, 1), Signal(fence))
    }

    pub(super) fn belongs_to(&self, track: &Arc<Track>) {
        // A fence is made for one lane; a second owner would be a mistake of this module's.
        let _ = self.track.set(Arc::downgrade(track));
    }

    pub fn reached(&self, epoch: u64) -> bool {
        self.clock.completed() >= epoch
    }

    /// Everything up to `epoch` has completed.
    pub(super) fn raise(&self, epoch: u64) {
        self.clock.raise(epoch);
        // With the fence in `register`: either this sees the waiter or the waiter sees the epoch.
        fence(Ordering::SeqCst);
        if self.awaited.load(Ordering::Relaxed) <= epoch && !self.crew.forked() {
            self.wake(epoch);
        }
    }

    #[cold]
    fn wake(&self, epoch: u64) {
        let reached = {
            let mut waiters = self.lock();
            let later = match epoch.checked_add(1) {
                Some(next) => waiters.all.split_off(&(next, 0)),
                None => BTreeMap::new(),
            };
            let reached = std::mem::replace(&mut waiters.all, later);
            self.note_least(&waiters);
            reached
        };
        let mut sleepers = false;
        for waiter in reached.into_values() {
            match waiter {
                Waiter::Lane(track) => track.wake(),
                Waiter::Call(call) => call(),
                Waiter::Thread => sleepers = true,
            }
        }
        if sleepers {
            self.changed.notify_all();
        }
    }

    /// Leaves a waiter to [`Fence::raise`], or gives it back if the epoch is reached already.
    fn register(&self, epoch: u64, waiter: Waiter) -> Option<Waiter> {
        let mut waiters = self.lock();
        waiters.came += 1;
        let place = (epoch, waiters.came);
        waiters.all.insert(place, waiter);
        self.note_least(&waiters);
        fence(Ordering::SeqCst);
        if !self.reached(epoch) {
            return None;
        }
        // Still ours: taking it out needs the lock that we hold.
        let waiter = waiters.all.remove(&place);
        self.note_least(&waiters);
        waiter
    }

    fn note_least(&self, waiters: &Waiters) {
        let least = waiters.all.first_key_value().map(|((epoch, _), _)| *epoch);
        self.awaited
            .store(least.unwrap_or(NOBODY), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock()
    }
}

impl Marker {
    pub(super) fn new(fence: &Arc<Fence>, epoch: u64) -> Self {
        Self {
            fence: Arc::clone(fence),
            epoch,
        }
    }

    pub(super) fn is_of(&self, fence: &Arc<Fence>) -> bool {
        Arc::ptr_eq(&self.fence, fence)
    }

    pub fn reached(&self) -> bool {
        self.fence.reached(self.epoch)
    }

    /// Whether the marker is reached; an error if it never will be.
    pub fn check(&self) -> Result<bool, Failure> {
        if self.reached() {
            return Ok(true);
        }
        self.fence.crew.check().map(|()| false)
    }

    /// Registers a lane to be woken. False if there is nothing to wait for.
    pub(super) fn wake_later(&self, track: &Arc<Track>) -> bool {
        let waiter = Waiter::Lane(Arc::clone(track));
        self.fence.register(self.epoch, waiter).is_none()
    }

    /// Calls `call` as soon as the marker is reached, at once if it is. Hands it back if that can
    /// never be.
    pub fn on_reach(&self, call: Call) -> Result<(), Call> {
        if self.check().is_err() {
            return Err(call);
        }
        if let Some(Waiter::Call(call)) = self.fence.register(self.epoch, Waiter::Call(call)) {
            call();
        }
        Ok(())
    }

    /// Blocks the thread until the marker is reached, doing the lane's work meanwhile.
    pub fn block(&self) -> Result<(), Failure> {
        if self.check()? {
            return Ok(());
        }
        if self.fence.crew.spins() {
            let until = now() + SPIN_NS;
            loop {
                self.help();
                for _ in 0..16 {
                    if self.reached() {
                        return Ok(());
                    }
                    std::hint::spin_loop();
                }
                if now() >= until {
                    break;
                }
            }
        } else {
            self.help();
        }
        self.sleep()
    }

    fn help(&self) {
        if let Some(track) = self.fence.track.get().and_then(Weak::upgrade) {
            track.help(self.epoch);
        }
    }

    fn sleep(&self) -> Result<(), Failure> {
        let fence = &*self.fence;
        if fence.register(self.epoch, Waiter::Thread).is_some() {
            return Ok(());
        }
        let mut waiters = fence.lock();
        while !self.check()? {
            let waited = fence.changed.wait_timeout(waiters, CHECK);
            waiters = waited.0;
        }
        Ok(())
    }
}

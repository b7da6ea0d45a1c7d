//! A completion: a clock that lanes, threads and callbacks can wait for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use ur::sync::{Condvar, Mutex, MutexGuard};
use ur::timeline::Clock;

use super::lane::LaneCore;
use super::thread_pool::ThreadPool;
use super::{Failure, now};

/// Short, never blocks and runs no user code: a worker calls it.
pub type Call = Box<dyn FnOnce() + Send>;

/// A clock and its waiters.
pub struct Completion {
    clock: Arc<Clock>,
    thread_pool: Arc<ThreadPool>,
    /// The lane that raises the clock. A blocked thread may run its work. None for a host's point.
    core: OnceLock<Weak<LaneCore>>,
    /// The least awaited epoch. Raising the clock below it wakes nobody and takes no lock.
    awaited: AtomicU64,
    waiters: Mutex<Waiters>,
    changed: Condvar,
}

enum Waiter {
    Lane(Arc<LaneCore>),
    Call(Call),
    Thread,
}

const NOBODY: u64 = u64::MAX;

/// Sorted by the awaited epoch, then by registration order.
#[derive(Default)]
struct Waiters {
    all: BTreeMap<(u64, u64), Waiter>,
    came: u64,
}

/// How long a thread spins before it sleeps: about the cost of a sleep and a wake-up.
pub const SPIN_NS: u64 = 30_000;

/// How often a sleeping thread checks that its executor is still there.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// An epoch of a completion.
#[derive(Clone)]
pub struct Marker {
    completion: Arc<Completion>,
    epoch: u64,
}

/// Raises a host's point to 1 when dropped.
pub struct Signal(Arc<Completion>);

impl Drop for Signal {
    fn drop(&mut self) {
        self.0.raise(1);
    }
}

impl Completion {
    pub(super) fn new(thread_pool: &Arc<ThreadPool>, clock: &Arc<Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock: Arc::clone(clock),
            thread_pool: Arc::clone(thread_pool),
            core: OnceLock::new(),
            awaited: AtomicU64::new(NOBODY),
            waiters: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// A point that the host signals, once.
    pub fn host_point(thread_pool: &Arc<ThreadPool>, clock: &Arc<Clock>) -> (Marker, Signal) {
        let completion = Self::new(thread_pool, clock);
        (Marker::new(&completion, 1), Signal(completion))
    }

    pub(super) fn belongs_to(&self, core: &Arc<LaneCore>) {
        // A completion is made for one lane, so the cell is empty.
        let _ = self.core.set(Arc::downgrade(core));
    }

    pub fn reached(&self, epoch: u64) -> bool {
        self.clock.completed() >= epoch
    }

    /// Everything up to `epoch` has completed.
    pub(super) fn raise(&self, epoch: u64) {
        self.clock.raise(epoch);
        // Pairs with the memory fence in `register`: this sees the waiter, or the waiter sees the epoch.
        fence(Ordering::SeqCst);
        if self.awaited.load(Ordering::Relaxed) <= epoch && !self.thread_pool.forked() {
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
            self.update_awaited(&waiters);
            reached
        };
        let mut sleepers = false;
        for waiter in reached.into_values() {
            match waiter {
                Waiter::Lane(core) => core.wake(),
                Waiter::Call(call) => call(),
                Waiter::Thread => sleepers = true,
            }
        }
        if sleepers {
            self.changed.notify_all();
        }
    }

    /// Registers a waiter for [`Completion::raise`]. Returns it if the epoch is reached already.
    fn register(&self, epoch: u64, waiter: Waiter) -> Option<Waiter> {
        let mut waiters = self.lock();
        waiters.came += 1;
        let key = (epoch, waiters.came);
        waiters.all.insert(key, waiter);
        self.update_awaited(&waiters);
        fence(Ordering::SeqCst);
        if !self.reached(epoch) {
            return None;
        }
        // The waiter is still registered: its removal needs the lock held here.
        let waiter = waiters.all.remove(&key);
        self.update_awaited(&waiters);
        waiter
    }

    fn update_awaited(&self, waiters: &Waiters) {
        let least = waiters.all.first_key_value().map(|((epoch, _), _)| *epoch);
        self.awaited
            .store(least.unwrap_or(NOBODY), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock()
    }
}

impl Marker {
    pub(super) fn new(completion: &Arc<Completion>, epoch: u64) -> Self {
        Self {
            completion: Arc::clone(completion),
            epoch,
        }
    }

    pub(super) fn is_of(&self, completion: &Arc<Completion>) -> bool {
        Arc::ptr_eq(&self.completion, completion)
    }

    pub fn reached(&self) -> bool {
        self.completion.reached(self.epoch)
    }

    /// Whether the marker is reached; an error if it never will be.
    pub fn check(&self) -> Result<bool, Failure> {
        if self.reached() {
            return Ok(true);
        }
        self.completion.thread_pool.check().map(|()| false)
    }

    /// Registers a lane to be woken. False if there is nothing to wait for.
    pub(super) fn wake_later(&self, core: &Arc<LaneCore>) -> bool {
        let waiter = Waiter::Lane(Arc::clone(core));
        self.completion.register(self.epoch, waiter).is_none()
    }

    /// Calls `call` when the marker is reached, at once if it is. Returns it if the threads are gone.
    pub fn on_completion(&self, call: Call) -> Result<(), Call> {
        if self.check().is_err() {
            return Err(call);
        }
        if let Some(Waiter::Call(call)) = self.completion.register(self.epoch, Waiter::Call(call)) {
            call();
        }
        Ok(())
    }

    /// Blocks the thread until the marker is reached, doing the lane's work meanwhile.
    pub fn block(&self) -> Result<(), Failure> {
        if self.check()? {
            return Ok(());
        }
        if self.completion.thread_pool.spins() {
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
        if let Some(core) = self.completion.core.get().and_then(Weak::upgrade) {
            core.help(self.epoch);
        }
    }

    fn sleep(&self) -> Result<(), Failure> {
        let completion = &*self.completion;
        if completion.register(self.epoch, Waiter::Thread).is_some() {
            return Ok(());
        }
        let mut waiters = completion.lock();
        while !self.check()? {
            let waited = completion.changed.wait_timeout(waiters, CHECK_INTERVAL);
            waiters = waited.0;
        }
        Ok(())
    }
}

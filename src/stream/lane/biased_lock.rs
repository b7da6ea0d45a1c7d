//! A mutex biased to one thread that takes it often, with rare contention: the lock of a lane.
//!
//! It is held across driver calls, so a waiter sleeps. Common mutexes release by an atomic
//! exchange, to learn whether a thread waits. That exchange also drains the store buffer, with
//! everything that the driver has just written to the device. This lock releases by a plain store
//! and then reads whether a thread waits. The processor may make that read before the store is
//! visible, so the waiter pays for the order: between its announcement and its last attempt it
//! executes a barrier on all threads ([`membarrier`]). Either the owner sees the announcement, or
//! the attempt sees the release.
//!
//! | stage of the first in line | left when |
//! |---|---|
//! | spins | it has the lock, or about the time of a driver call has passed |
//! | announces itself, with the barrier, and tries again | it has the lock, or that failed |
//! | sleeps until an owner wakes it | it has the lock, or a millisecond has passed |
//! | asks for a hand-off, and sleeps | an owner releases: it takes the lock for the waiter |
//!
//! Other waiters queue behind the first. Where the system refuses the barrier (a kernel before
//! 4.14, a seccomp filter), an owner may miss the announcement; sleeps are then short
//! ([`MAX_UNORDERED_SLEEP`]). An exchange on release would make that rare delay impossible, at a
//! price for every command.
//!
//! Models (`loom_tests`): mutual exclusion, no lost wake-up, the hand-off.

use crate::object::membarrier;
use crate::sync::rank::{self, UNRANKED};
use crate::sync::{AtomicBool, AtomicU8, Condvar, Mutex, Ordering};
use parking_lot::lock_api::{self, GuardNoSend, RawMutex};
use std::time::{Duration, Instant};

pub type BiasedLock<T> = lock_api::Mutex<RawBiasedLock, T>;
pub type BiasedLockGuard<'a, T> = lock_api::MutexGuard<'a, RawBiasedLock, T>;

/// Iterations that the first in line spins: about the duration of a driver call.
const MAX_SPINS: u32 = if cfg!(loom) { 0 } else { 100 };

/// Waiting time after which the first in line asks for a hand-off.
const HANDOFF_AFTER: Duration = Duration::from_millis(if cfg!(loom) { 0 } else { 1 });

/// Longest sleep of the first in line where the system has no barrier.
const MAX_UNORDERED_SLEEP: Duration = Duration::from_micros(500);

// States of the first in line. It sets the first three itself.
const NO_WAITER: u8 = 0;
const WAITS: u8 = 1;
const ASKS_FOR_HANDOFF: u8 = 2;
/// An owner has taken the lock for it.
const HAS_LOCK: u8 = 3;

/// The lock itself, without what it guards.
pub struct RawBiasedLock {
    locked: AtomicBool,
    waiter: AtomicU8,
    /// Held by the first in line.
    line: Mutex<(), UNRANKED>,
    /// Protects the sleep of the first in line, and the hand-off.
    sleep: Mutex<(), UNRANKED>,
    wakeup: Condvar,
}

macro_rules! unlocked {
    () => {
        Self {
            locked: AtomicBool::new(false),
            waiter: AtomicU8::new(NO_WAITER),
            line: Mutex::new(()),
            sleep: Mutex::new(()),
            wakeup: Condvar::new(),
        }
    };
}

// SAFETY: mutual exclusion (`RawMutex`): `locked` goes from false to true by one atomic exchange,
// and back only in `unlock` of the owner. The thread that made the exchange owns the lock, or the
// waiter for which it sets `HAS_LOCK`.
unsafe impl RawMutex for RawBiasedLock {
    // `RawMutex` demands a constant for initialisation.
    #[allow(clippy::declare_interior_mutable_const)]
    #[cfg(not(loom))]
    const INIT: Self = unlocked!();

    #[cfg(loom)]
    const INIT: Self = panic!("loom's types have no constants");

    type GuardMarker = GuardNoSend;

    #[inline(always)]
    fn lock(&self) {
        rank::enter(rank::LANE);
        if !self.try_acquire() {
            self.lock_slowly();
        }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        let taken = self.try_acquire();
        if taken {
            rank::enter_at_once(rank::LANE);
        }
        taken
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        rank::leave(rank::LANE);
        debug_assert!(self.locked.load(Ordering::Relaxed), "released twice");
        self.locked.store(false, Ordering::Release);
        membarrier::light();
        if self.waiter.load(Ordering::Relaxed) != NO_WAITER {
            self.wake_waiter();
        }
    }
}

impl RawBiasedLock {
    /// A lock that nobody holds.
    pub fn new() -> Self {
        unlocked!()
    }

    #[inline(always)]
    fn try_acquire(&self) -> bool {
        let (free, taken) = (Ordering::Relaxed, Ordering::Acquire);
        self.locked
            .compare_exchange(false, true, taken, free)
            .is_ok()
    }

    #[cold]
    fn lock_slowly(&self) {
        self.wait_in_line(membarrier::heavy);
    }

    /// `barrier` orders the announcement before all later attempts, or answers false.
    fn wait_in_line(&self, barrier: impl FnOnce() -> bool) {
        let _line = self.line.lock();
        for _ in 0..MAX_SPINS {
            if !self.locked.load(Ordering::Relaxed) && self.try_acquire() {
                return;
            }
            std::hint::spin_loop();
        }
        let since = Instant::now();
        self.waiter.store(WAITS, Ordering::Relaxed);
        let ordered = barrier();
        let mut sleep = self.sleep.lock();
        while self.waiter.load(Ordering::Relaxed) != HAS_LOCK && !self.try_acquire() {
            let asks = since.elapsed() >= HANDOFF_AFTER;
            if asks {
                self.waiter.store(ASKS_FOR_HANDOFF, Ordering::Relaxed);
            }
            sleep = match (ordered, asks) {
                (true, true) => self.wakeup.wait(sleep),
                (true, false) => self.wakeup.wait_timeout(sleep, HANDOFF_AFTER).0,
                (false, _) => self.wakeup.wait_timeout(sleep, MAX_UNORDERED_SLEEP).0,
            };
        }
        self.waiter.store(NO_WAITER, Ordering::Relaxed);
    }

    /// Wakes the first in line after a release. If it asked for a hand-off, it gets the lock.
    #[cold]
    fn wake_waiter(&self) {
        // A waiter whose attempt came before the release is asleep once this lock is held.
        let sleep = self.sleep.lock();
        if self.waiter.load(Ordering::Relaxed) == ASKS_FOR_HANDOFF && self.try_acquire() {
            self.waiter.store(HAS_LOCK, Ordering::Relaxed);
        }
        drop(sleep);
        self.wakeup.notify_one();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn one_at_a_time() {
        let counts = Arc::new(BiasedLock::new((0_u64, 0_u64)));
        let count = |counts: Arc<BiasedLock<(u64, u64)>>| {
            for turn in 0..5_000 {
                let mut held = counts.lock();
                held.0 += 1;
                if turn % 1000 == 0 {
                    // Long enough for the other threads to sleep.
                    thread::sleep(Duration::from_millis(1));
                }
                held.1 += 1;
                assert_eq!(held.0, held.1);
            }
        };
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let counts = Arc::clone(&counts);
                thread::spawn(move || count(counts))
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(*counts.lock(), (20_000, 20_000));
    }

    #[test]
    fn who_has_it_has_it_alone() {
        let lock = BiasedLock::new(1);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        *lock.try_lock().unwrap() += 1;
        assert_eq!(*lock.lock(), 2);
    }

    /// A thread that takes the lock again right after its release starves no other.
    #[test]
    fn nobody_is_kept_out() {
        let lock = Arc::new(BiasedLock::new(false));
        let other = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || *lock.lock() = true)
        };
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let held = lock.lock();
            if *held {
                break;
            }
            assert!(Instant::now() < end, "the other thread starves");
            let until = Instant::now() + Duration::from_micros(300);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
        other.join().unwrap();
    }

    /// Where the system refuses the barrier, a waiter gets the lock all the same.
    #[test]
    fn no_barrier_is_needed() {
        let lock = RawBiasedLock::new();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        if !lock.try_acquire() {
                            lock.wait_in_line(|| false);
                        }
                        thread::sleep(Duration::from_micros(20));
                        rank::enter_at_once(rank::LANE);
                        // SAFETY: this thread has just taken the lock.
                        unsafe { lock.unlock() };
                    }
                });
            }
        });
        assert!(lock.try_acquire());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// A lock with what it guards. Loom reports two accesses that the lock does not order.
    struct Guarded {
        lock: RawBiasedLock,
        holders: UnsafeCell<Vec<u8>>,
    }

    // SAFETY: only the owner of the lock uses the cell, and loom checks that.
    unsafe impl Sync for Guarded {}
    // SAFETY: the parts are `Send`; loom's cell does not say so.
    unsafe impl Send for Guarded {}

    impl Guarded {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                lock: RawBiasedLock::new(),
                holders: UnsafeCell::new(Vec::new()),
            })
        }

        /// Takes the lock, adds `who`, runs `check` and releases.
        fn take(&self, who: u8, barrier: fn() -> bool, check: impl FnOnce(&Self)) {
            if !self.lock.try_acquire() {
                self.lock.wait_in_line(barrier);
            }
            // SAFETY: this thread owns the lock, and loom checks that nobody else has access.
            self.holders
                .with_mut(|holders| unsafe { (*holders).push(who) });
            check(self);
            // SAFETY: this thread owns the lock.
            unsafe { self.lock.unlock() };
        }

        fn take_often(&self, who: u8, times: u8, barrier: fn() -> bool) {
            (0..times).for_each(|_| self.take(who, barrier, |_| {}));
        }

        fn holders(&self) -> Vec<u8> {
            // SAFETY: loom checks that all other accesses were before.
            self.holders.with(|holders| unsafe { (*holders).clone() })
        }
    }

    /// Models `threads` threads that take the lock `times` times each, the calling one included.
    fn model(threads: u8, times: u8, preemptions: Option<usize>, barrier: fn() -> bool) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = preemptions;
        model.check(move || {
            let guarded = Guarded::new();
            let others: Vec<_> = (1..threads)
                .map(|who| {
                    let guarded = Arc::clone(&guarded);
                    thread::spawn(move || guarded.take_often(who, times, barrier))
                })
                .collect();
            guarded.take_often(0, times, barrier);
            others.into_iter().for_each(|other| other.join().unwrap());
            let mut all = guarded.holders();
            all.sort_unstable();
            let each = (0..threads).flat_map(|who| (0..times).map(move |_| who));
            assert_eq!(all, each.collect::<Vec<_>>());
        });
    }

    #[test]
    fn loom_two_threads_exclude_each_other_and_wake() {
        model(2, 1, None, membarrier::heavy);
    }

    /// Waiters come again, so the state of the first in line is used a second time.
    #[test]
    fn loom_two_threads_take_turns() {
        model(2, 2, Some(3), membarrier::heavy);
    }

    #[test]
    fn loom_three_threads_exclude_each_other_and_wake() {
        model(3, 1, Some(3), membarrier::heavy);
    }

    /// The model finds the fault that the barrier prevents: a waiter that nobody wakes. In a process
    /// of its own, since loom ends it when threads are left in a deadlock.
    #[test]
    fn loom_without_the_barrier_a_wake_up_is_lost() {
        const INNER: &str = "UR_LOOM_WITHOUT_BARRIER";
        if std::env::var_os(INNER).is_some() {
            return model(2, 1, None, || true);
        }
        let inner = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["loom_without_the_barrier_a_wake_up_is_lost", "--nocapture"])
            .env(INNER, "1")
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&inner.stderr);
        assert!(!inner.status.success(), "the model finds no fault");
        assert!(output.contains("deadlock; threads ="), "{output}");
    }

    /// An owner that takes the lock again at once does not get it before a waiter that has asked.
    #[test]
    fn loom_a_waiter_that_asks_is_next() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let guarded = Guarded::new();
            let waiter = {
                let guarded = Arc::clone(&guarded);
                thread::spawn(move || guarded.take(1, membarrier::heavy, |_| {}))
            };
            let mut asked_after = None;
            for _ in 0..3 {
                guarded.take(0, membarrier::heavy, |guarded| {
                    let asks = guarded.lock.waiter.load(Ordering::Relaxed) == ASKS_FOR_HANDOFF;
                    let now = guarded.holders().len();
                    asked_after = asked_after.or(asks.then_some(now));
                });
            }
            waiter.join().unwrap();
            let holders = guarded.holders();
            assert_eq!(holders.len(), 4);
            if let Some(at) = asked_after {
                assert_eq!(holders[at], 1, "an owner came before it: {holders:?}");
            }
        });
    }
}

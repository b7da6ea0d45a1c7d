//! A mutex biased to one thread that takes it often, with rare contention: the lock of a lane.
//!
//! It is held across driver calls, so a waiter sleeps. Common mutexes release by an atomic
//! exchange, to learn whether a thread waits. That exchange also drains the store buffer, with
//! everything that the driver has just written to the device. This lock releases by a plain store
//! and then reads whether a thread waits. The read may come before a waiter is visible, so a waiter
//! also wakes by timeout.
//!
//! | stage of a waiter | left when |
//! |---|---|
//! | queues behind other waiters | it is first in line |
//! | spins | it has the lock, or some microseconds have passed |
//! | sleeps until the owner wakes it | it has the lock |
//! | asks the owner to yield (from a millisecond on) | it has the lock |

use crate::timeline::rank;
use parking_lot::lock_api::{self, GuardNoSend, RawMutex};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

pub type BiasedLock<T> = lock_api::Mutex<RawBiasedLock, T>;
pub type BiasedLockGuard<'a, T> = lock_api::MutexGuard<'a, RawBiasedLock, T>;

/// Iterations that the first in line spins: about the duration of a driver call.
const MAX_SPINS: u32 = 100;

/// Sleep of the first in line without a wake-up.
const WAIT_TIMEOUT: Duration = Duration::from_micros(500);

/// Waiting time after which the owner yields to the first in line.
const HANDOFF_AFTER: Duration = Duration::from_millis(1);

// States of the first in line.
const NO_WAITER: u8 = 0;
const WAITER_SLEEPS: u8 = 1;
const HANDOFF: u8 = 2;

/// The lock itself, without what it guards.
pub struct RawBiasedLock {
    locked: AtomicBool,
    waiter: AtomicU8,
    /// Held by the first in line.
    line: Mutex<()>,
    /// Protects the sleep of the first in line.
    sleep: Mutex<()>,
    wakeup: Condvar,
}

// SAFETY: mutual exclusion (`RawMutex`): `locked` goes from false to true by one atomic exchange,
// and back only in `unlock` of the owner.
unsafe impl RawMutex for RawBiasedLock {
    // `RawMutex` demands a constant for initialisation.
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self {
        locked: AtomicBool::new(false),
        waiter: AtomicU8::new(NO_WAITER),
        line: Mutex::new(()),
        sleep: Mutex::new(()),
        wakeup: Condvar::new(),
    };

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
        self.locked.store(false, Ordering::Release);
        if self.waiter.load(Ordering::Relaxed) != NO_WAITER {
            self.wake_waiter();
        }
    }
}

impl RawBiasedLock {
    #[inline(always)]
    fn try_acquire(&self) -> bool {
        let (free, taken) = (Ordering::Relaxed, Ordering::Acquire);
        self.locked
            .compare_exchange(false, true, taken, free)
            .is_ok()
    }

    #[cold]
    fn lock_slowly(&self) {
        let _line = self.line.lock();
        for _ in 0..MAX_SPINS {
            if !self.locked.load(Ordering::Relaxed) && self.try_acquire() {
                return;
            }
            std::hint::spin_loop();
        }
        let since = Instant::now();
        let mut sleep = self.sleep.lock();
        // Stored before the next attempt: an owner that releases later sees it, except for the
        // window described on top.
        self.waiter.store(WAITER_SLEEPS, Ordering::SeqCst);
        while !self.try_acquire() {
            if since.elapsed() > HANDOFF_AFTER {
                self.waiter.store(HANDOFF, Ordering::Relaxed);
            }
            self.wakeup.wait_for(&mut sleep, WAIT_TIMEOUT);
        }
        self.waiter.store(NO_WAITER, Ordering::Relaxed);
    }

    #[cold]
    fn wake_waiter(&self) {
        // A waiter that checked before the release is asleep once this lock is held.
        drop(self.sleep.lock());
        self.wakeup.notify_all();
        for _ in 0..100 {
            if self.waiter.load(Ordering::Relaxed) != HANDOFF {
                return;
            }
            std::thread::sleep(Duration::from_micros(10));
        }
    }
}

#[cfg(test)]
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
}

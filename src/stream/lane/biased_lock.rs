//! A lock that one thread takes again and again, and another seldom: a lane's.
//!
//! It is held over the driver's calls, so whoever finds it taken has to sleep. Other such locks ask when
//! they are given up, by a second atomic step, whether anybody does; which also waits until all has
//! arrived that the driver has just written, to the device too. Tail giving up is a plain store and a look
//! at who waits. That look may come too early, so whoever waits wakes up now and then without being called.
//!
//! | who finds it taken | until |
//! |---|---|
//! | queues up behind the others | it is first in line |
//! | looks again and again | some microseconds are over |
//! | sleeps, and is called by who gives the lock up | it has the lock |
//! | is waited for by who gives the lock up | the same, from a millisecond on |

use crate::timeline::rank;
use parking_lot::lock_api::{self, GuardNoSend, RawMutex};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

pub type BiasedLock<T> = lock_api::Mutex<RawBiasedLock, T>;
pub type BiasedLockGuard<'a, T> = lock_api::MutexGuard<'a, RawBiasedLock, T>;

/// How long the first in line looks before it sleeps: as long as a call of the driver's mostly takes.
const MAX_SPINS: u32 = 100;

/// How long it sleeps if nobody calls.
const WAIT_TIMEOUT: Duration = Duration::from_micros(500);

/// From when on it is waited for.
const HANDOFF_AFTER: Duration = Duration::from_millis(1);

// What the first in line does.
const NO_WAITER: u8 = 0;
const WAITER_SLEEPS: u8 = 1;
const HANDOFF: u8 = 2;

/// The lock itself, without what it guards.
pub struct RawBiasedLock {
    locked: AtomicBool,
    waiter: AtomicU8,
    /// Held by the first in line.
    line: Mutex<()>,
    /// Where that sleeps.
    sleep: Mutex<()>,
    wakeup: Condvar,
}

// SAFETY: `taken` goes from false to true in one step, for one thread, and back by that thread's unlocking.
unsafe impl RawMutex for RawBiasedLock {
    // The trait's own way to begin one.
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
        // Before the next try: who gives the lock up after that sees it, but for the moment told above.
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
        // Whoever looked before the lock was given up sleeps once this is had.
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
                    // Long enough for the others to fall asleep.
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

    /// A thread that takes it again as soon as it has given it up keeps nobody out.
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

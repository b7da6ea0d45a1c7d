//! A lock that one thread takes again and again, and another seldom: a lane's.
//!
//! It is held over the driver's calls, so whoever finds it taken has to sleep. Other such locks ask when
//! they are given up, by a second atomic step, whether anybody does; which also waits until all has
//! arrived that the driver has just written, to the device too. Here giving up is a plain store and a look
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

pub type Lone<T> = lock_api::Mutex<Raw, T>;
pub type LoneGuard<'a, T> = lock_api::MutexGuard<'a, Raw, T>;

/// How long the first in line looks before it sleeps: as long as a call of the driver's mostly takes.
const LOOKS: u32 = 100;

/// How long it sleeps if nobody calls.
const SLEEP: Duration = Duration::from_micros(500);

/// From when on it is waited for.
const LONG: Duration = Duration::from_millis(1);

// What the first in line does.
const NOTHING: u8 = 0;
const SLEEPS: u8 = 1;
const IS_WAITED_FOR: u8 = 2;

/// The lock itself, without what it guards.
pub struct Raw {
    taken: AtomicBool,
    first: AtomicU8,
    /// Held by the first in line.
    turn: Mutex<()>,
    /// Where that sleeps.
    bed: Mutex<()>,
    bell: Condvar,
}

// SAFETY: `taken` goes from false to true in one step, for one thread, and back by that thread's unlocking.
unsafe impl RawMutex for Raw {
    // The trait's own way to begin one.
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self {
        taken: AtomicBool::new(false),
        first: AtomicU8::new(NOTHING),
        turn: Mutex::new(()),
        bed: Mutex::new(()),
        bell: Condvar::new(),
    };

    type GuardMarker = GuardNoSend;

    #[inline(always)]
    fn lock(&self) {
        rank::enter(rank::LANE);
        if !self.take() {
            self.lock_slowly();
        }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        let taken = self.take();
        if taken {
            rank::enter_at_once(rank::LANE);
        }
        taken
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        rank::leave(rank::LANE);
        self.taken.store(false, Ordering::Release);
        if self.first.load(Ordering::Relaxed) != NOTHING {
            self.call();
        }
    }
}

impl Raw {
    #[inline(always)]
    fn take(&self) -> bool {
        let (free, taken) = (Ordering::Relaxed, Ordering::Acquire);
        self.taken
            .compare_exchange(false, true, taken, free)
            .is_ok()
    }

    #[cold]
    fn lock_slowly(&self) {
        let _turn = self.turn.lock();
        for _ in 0..LOOKS {
            if !self.taken.load(Ordering::Relaxed) && self.take() {
                return;
            }
            std::hint::spin_loop();
        }
        let since = Instant::now();
        let mut bed = self.bed.lock();
        // Before the next try: who gives the lock up after that sees it, but for the moment told above.
        self.first.store(SLEEPS, Ordering::SeqCst);
        while !self.take() {
            if since.elapsed() > LONG {
                self.first.store(IS_WAITED_FOR, Ordering::Relaxed);
            }
            self.bell.wait_for(&mut bed, SLEEP);
        }
        self.first.store(NOTHING, Ordering::Relaxed);
    }

    #[cold]
    fn call(&self) {
        // Whoever looked before the lock was given up sleeps once this is had.
        drop(self.bed.lock());
        self.bell.notify_all();
        for _ in 0..100 {
            if self.first.load(Ordering::Relaxed) != IS_WAITED_FOR {
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
        let counts = Arc::new(Lone::new((0_u64, 0_u64)));
        let count = |counts: Arc<Lone<(u64, u64)>>| {
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
        let lock = Lone::new(1);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        *lock.try_lock().unwrap() += 1;
        assert_eq!(*lock.lock(), 2);
    }

    /// A thread that takes it again as soon as it has given it up keeps nobody out.
    #[test]
    fn nobody_is_kept_out() {
        let lock = Arc::new(Lone::new(false));
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

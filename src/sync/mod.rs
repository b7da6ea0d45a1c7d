//! Locks, condition variables and atomics of all layers. Loom can stand in for them, and debug builds check the order in
//! which locks are taken: a lock's type says its rank ([`rank`]). The lock of lanes is made of these types
//! (`src/stream/lane/biased_lock.rs`).
//!
//! Owns nothing. Uses only `std`, shared values and locks without poisoning. The state behind a lock is only changed by
//! code that cannot panic half-way, and an abort of the caller's process is worse than what poisoning prevents. Locks
//! that do not look for panics each time save a good part of what an uncontended lock costs.

#![forbid(unsafe_code)]

pub mod rank;

use rank::{Held, Rank};
use std::ops::{Deref, DerefMut};

#[cfg(loom)]
use loom::sync as imp;
#[cfg(not(loom))]
use parking_lot as imp;

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(loom)]
pub use shared::Shared;
/// A shared value whose references are counted. It has no weak references, so a look whether one alone is left is
/// a load.
#[cfg(not(loom))]
pub use triomphe::Arc as Shared;

/// A lock whose `lock` cannot fail.
#[derive(Debug, Default)]
pub struct Mutex<T, const RANK: Rank = { rank::LEAF }>(imp::Mutex<T>);

/// A lock that many may hold to read and one to write.
#[derive(Debug, Default)]
pub struct RwLock<T, const RANK: Rank = { rank::LEAF }>(imp::RwLock<T>);

/// What a lock guards, until dropped.
#[derive(Debug)]
pub struct Guard<G> {
    inner: G,
    // Given up after the lock itself.
    _held: Held,
}

/// Of a [`Mutex`].
pub type MutexGuard<'a, T> = Guard<imp::MutexGuard<'a, T>>;
/// Of a [`RwLock`], to read.
pub type ReadGuard<'a, T> = Guard<imp::RwLockReadGuard<'a, T>>;
/// Of a [`RwLock`], to write.
pub type WriteGuard<'a, T> = Guard<imp::RwLockWriteGuard<'a, T>>;
/// Of a [`Brief`].
#[cfg(not(loom))]
pub type BriefGuard<'a, T> = Guard<spin::mutex::SpinMutexGuard<'a, T>>;

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;

    #[inline(always)]
    fn deref(&self) -> &G::Target {
        &self.inner
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.inner
    }
}

/// What a lock of `imp` gave.
#[cfg(not(loom))]
#[inline(always)]
fn entered<G>(guard: G) -> G {
    guard
}

#[cfg(loom)]
fn entered<G>(guard: std::sync::LockResult<G>) -> G {
    guard.unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl<T, const RANK: Rank> Mutex<T, RANK> {
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let _held = Held::new(RANK);
        let inner = entered(self.0.lock());
        Guard { inner, _held }
    }

    pub fn get_mut(&mut self) -> &mut T {
        entered(self.0.get_mut())
    }

    /// None if another thread has it.
    #[cfg(all(test, not(loom)))]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.0.try_lock()?;
        let _held = Held::at_once(RANK);
        Some(Guard { inner, _held })
    }
}

impl<T, const RANK: Rank> RwLock<T, RANK> {
    pub fn new(value: T) -> Self {
        Self(imp::RwLock::new(value))
    }

    #[inline]
    pub fn read(&self) -> ReadGuard<'_, T> {
        let _held = Held::new(RANK);
        let inner = entered(self.0.read());
        Guard { inner, _held }
    }

    #[inline]
    pub fn write(&self) -> WriteGuard<'_, T> {
        let _held = Held::new(RANK);
        let inner = entered(self.0.write());
        Guard { inner, _held }
    }
}

/// A lock for some dozen instructions at a time that almost nobody else ever wants: each allocation and
/// free takes its lane's. To give it up is a plain store, where a [`Mutex`] asks, at the price of taking
/// it, whether somebody sleeps; so nobody does but for a moment. Nothing that blocks may run under it.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct Brief<T, const RANK: Rank = { rank::LEAF }>(spin::mutex::SpinMutex<T>);

/// In models a [`Mutex`] stands in for it.
#[cfg(loom)]
pub use Mutex as Brief;
#[cfg(loom)]
pub use MutexGuard as BriefGuard;

#[cfg(not(loom))]
impl<T, const RANK: Rank> Brief<T, RANK> {
    pub fn new(value: T) -> Self {
        Self(spin::mutex::SpinMutex::new(value))
    }

    #[inline]
    pub fn lock(&self) -> BriefGuard<'_, T> {
        let _held = Held::new(RANK);
        let inner = self.0.try_lock().unwrap_or_else(|| self.lock_slowly());
        Guard { inner, _held }
    }

    /// Looks for much longer than the lock is ever held; then whoever has it does not run, and has to be
    /// let run, whatever its priority.
    #[cold]
    fn lock_slowly(&self) -> spin::mutex::SpinMutexGuard<'_, T> {
        loop {
            for _ in 0..100 {
                if !self.0.is_locked()
                    && let Some(guard) = self.0.try_lock()
                {
                    return guard;
                }
                std::hint::spin_loop();
            }
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }
}

/// A condition to wait on while holding a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(imp::Condvar);

impl Condvar {
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(imp::Condvar::new())
    }

    #[cfg(loom)]
    pub fn new() -> Self {
        Self(imp::Condvar::new())
    }

    #[cfg(not(loom))]
    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(&mut guard.inner);
        guard
    }

    #[cfg(loom)]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let Guard { inner, _held } = guard;
        let inner = entered(self.0.wait(inner));
        Guard { inner, _held }
    }

    /// As [`Condvar::wait`], for no longer than this. Also whether it took that long.
    #[cfg(not(loom))]
    pub fn wait_timeout<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        most: std::time::Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let waited = self.0.wait_for(&mut guard.inner, most);
        (guard, waited.timed_out())
    }

    #[cfg(loom)]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _: std::time::Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        (self.wait(guard), false)
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A stand-in for `triomphe::Arc` in models. Its count is one of loom's, with the orderings that `triomphe` documents
/// in its source: a clone is relaxed, a drop releases, [`Shared::strong_count`] is relaxed.
#[cfg(loom)]
mod shared {
    use super::{AtomicUsize, Ordering};
    use std::ops::Deref;
    use std::sync::Arc;

    #[derive(Debug)]
    pub struct Shared<T> {
        count: Arc<AtomicUsize>,
        value: Arc<T>,
    }

    impl<T> Shared<T> {
        pub fn new(value: T) -> Self {
            Self {
                count: Arc::new(AtomicUsize::new(1)),
                value: Arc::new(value),
            }
        }

        pub fn strong_count(this: &Self) -> usize {
            this.count.load(Ordering::Relaxed)
        }

        pub fn get_mut(this: &mut Self) -> Option<&mut T> {
            match this.count.load(Ordering::Acquire) {
                1 => Arc::get_mut(&mut this.value),
                _ => None,
            }
        }

        pub fn ptr_eq(this: &Self, other: &Self) -> bool {
            Arc::ptr_eq(&this.value, &other.value)
        }

        pub fn as_ptr(this: &Self) -> *const T {
            Arc::as_ptr(&this.value)
        }
    }

    impl<T> Clone for Shared<T> {
        fn clone(&self) -> Self {
            self.count.fetch_add(1, Ordering::Relaxed);
            Self {
                count: Arc::clone(&self.count),
                value: Arc::clone(&self.value),
            }
        }
    }

    impl<T> Drop for Shared<T> {
        fn drop(&mut self) {
            if self.count.fetch_sub(1, Ordering::Release) == 1 {
                self.count.load(Ordering::Acquire);
            }
        }
    }

    impl<T> Deref for Shared<T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.value
        }
    }

    impl<T: Default> Default for Shared<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    impl<T> From<T> for Shared<T> {
        fn from(value: T) -> Self {
            Self::new(value)
        }
    }
}

//! The synchronisation that `timeline`, `pool` and lanes use, so that loom can stand in for it.
//!
//! Owns nothing. No lock is poisoned: the state behind it is only changed by code that cannot panic
//! half-way, and an abort of the caller's process is worse. So the locks are ones that do not look
//! for panics each time, which is a good part of what an uncontended lock costs.

#[cfg(loom)]
use loom::sync as imp;
#[cfg(not(loom))]
use parking_lot as imp;

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, Ordering};

pub use imp::MutexGuard;

/// A lock whose `lock` cannot fail.
#[derive(Debug)]
pub struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    #[cfg(not(loom))]
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }

    #[cfg(loom)]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let guard = self.0.lock();
        guard.unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A condition to wait on while holding a [`Mutex`].
#[derive(Debug)]
pub struct Condvar(imp::Condvar);

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl Condvar {
    pub fn new() -> Self {
        Self(imp::Condvar::new())
    }

    #[cfg(not(loom))]
    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(&mut guard);
        guard
    }

    #[cfg(loom)]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let guard = self.0.wait(guard);
        guard.unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

//! The synchronisation that `timeline` and `pool` use, so that loom can stand in for it.
//!
//! Owns nothing. A poisoned lock is entered all the same: the state behind it is only changed by
//! code that cannot panic half-way, and an abort of the caller's process is worse.

#[cfg(loom)]
use loom::sync as imp;
#[cfg(not(loom))]
use std::sync as imp;

use std::sync::PoisonError;

pub use imp::MutexGuard;
pub use imp::atomic::{AtomicU64, Ordering};

/// A lock whose `lock` cannot fail.
#[derive(Debug)]
pub struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

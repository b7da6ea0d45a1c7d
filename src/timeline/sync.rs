//! The synchronisation that `timeline` and `pool` use, so that loom can stand in for it. Lanes have a lock
//! of their own besides (`src/stream/lane/lone.rs`).
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

/// A lock for some dozen instructions at a time that almost nobody else ever wants: each allocation and
/// free takes its lane's. To give it up is a plain store, where a [`Mutex`] asks, at the price of taking
/// it, whether somebody sleeps; so nobody does but for a moment. Nothing that blocks may run under it.
#[derive(Debug)]
pub struct Brief<T>(brief::Lock<T>);

pub use brief::Guard as BriefGuard;

/// In models a [`Mutex`] stands in for it.
#[cfg(loom)]
mod brief {
    pub type Lock<T> = super::Mutex<T>;
    pub type Guard<'a, T> = super::MutexGuard<'a, T>;
}

#[cfg(not(loom))]
mod brief {
    pub type Lock<T> = spin::mutex::SpinMutex<T>;
    pub type Guard<'a, T> = spin::mutex::SpinMutexGuard<'a, T>;
}

impl<T> Brief<T> {
    pub fn new(value: T) -> Self {
        Self(brief::Lock::new(value))
    }

    #[cfg(not(loom))]
    #[inline]
    pub fn lock(&self) -> BriefGuard<'_, T> {
        self.0.try_lock().unwrap_or_else(|| self.lock_slowly())
    }

    #[cfg(loom)]
    pub fn lock(&self) -> BriefGuard<'_, T> {
        self.0.lock()
    }

    /// Looks for much longer than the lock is ever held; then whoever has it does not run, and has to be
    /// let run, whatever its priority.
    #[cfg(not(loom))]
    #[cold]
    fn lock_slowly(&self) -> BriefGuard<'_, T> {
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

//! Locks that are entered even after a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks that are entered even after a panic: what they guard is changed in single steps.
pub(crate) fn enter<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

//! What lives as long as the process: loaders, and what a callback may still use after its test.
//!
//! Kept in a list, so that a leak checker tells it from what was lost.

use std::any::Any;
use std::sync::{Mutex, PoisonError};

static KEPT: Mutex<Vec<&'static (dyn Any + Send + Sync)>> = Mutex::new(Vec::new());

/// Keeps a value for the rest of the process.
pub fn keep<T: Send + Sync + 'static>(value: T) -> &'static T {
    let kept: &'static T = Box::leak(Box::new(value));
    KEPT.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(kept);
    kept
}

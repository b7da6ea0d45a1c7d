//! Values that live as long as the process: loaders, and data that a callback may use after its test.
//!
//! A list refers to them, so that a leak checker does not report them.

use std::any::Any;
use std::sync::{Mutex, PoisonError};

static LEAKED: Mutex<Vec<&'static (dyn Any + Send + Sync)>> = Mutex::new(Vec::new());

/// Leaks a value and returns a reference for the rest of the process.
pub fn leak<T: Send + Sync + 'static>(value: T) -> &'static T {
    let leaked: &'static T = Box::leak(Box::new(value));
    LEAKED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(leaked);
    leaked
}

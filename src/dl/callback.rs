//! The way back from a driver: every callback that a driver runs passes through here.
//!
//! A driver's thread is not ours. What runs on it must be short: raise an epoch, notify, hand over.
//! It never blocks, never runs a user's code and never calls the driver.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

static PANICS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Runs the body of a driver's callback. A panic ends here and gives `fallback`: unwinding into a
/// driver's frames would be undefined. The panic is counted and not logged, since a logger may
/// be a user's.
pub fn guarded_callback<R>(fallback: R, body: impl FnOnce() -> R) -> R {
    adjust_depth(1);
    let result = catch_unwind(AssertUnwindSafe(body));
    adjust_depth(-1);
    result.unwrap_or_else(|payload| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        // A payload's destructor may panic too, and then it is better kept.
        std::mem::forget(payload);
        fallback
    })
}

/// Whether this thread is inside a driver's callback, where waiting would be a mistake. What blocks
/// can assert that it is not.
pub fn in_callback() -> bool {
    DEPTH.try_with(Cell::get).is_ok_and(|depth| depth > 0)
}

/// Panics that ended in [`guarded_callback`], in this library since it was loaded.
pub fn callback_panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// A thread whose locals are gone has no depth, and needs none.
fn adjust_depth(by: i32) {
    let _ = DEPTH.try_with(|depth| depth.set(depth.get().saturating_add_signed(by)));
}

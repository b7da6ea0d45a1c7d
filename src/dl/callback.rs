//! The guard of driver callbacks: every callback that a driver runs passes through it.
//!
//! A callback runs on a thread of the driver. It is short: it advances an epoch, notifies, or
//! queues a job. It never blocks, never runs user code and never calls the driver.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

static PANICS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Runs the body of a driver's callback. After a panic it returns `fallback`, since unwinding into
/// a driver is undefined. Panics are counted and not logged, since a logger may be a user's
/// callback.
pub fn guarded_callback<R>(fallback: R, body: impl FnOnce() -> R) -> R {
    adjust_depth(1);
    let result = catch_unwind(AssertUnwindSafe(body));
    adjust_depth(-1);
    result.unwrap_or_else(|payload| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        // The payload is leaked, since its destructor may panic as well.
        std::mem::forget(payload);
        fallback
    })
}

/// Whether this thread runs a driver's callback. Functions that block can assert that it does not.
pub fn in_callback() -> bool {
    DEPTH.try_with(Cell::get).is_ok_and(|depth| depth > 0)
}

/// Number of panics caught by [`guarded_callback`] since the library was loaded.
pub fn callback_panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// A thread whose thread-locals are destroyed has no depth to update.
fn adjust_depth(by: i32) {
    let _ = DEPTH.try_with(|depth| depth.set(depth.get().saturating_add_signed(by)));
}

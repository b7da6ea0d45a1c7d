//! Calls of user functions. Such a function is a part of enqueued work, so that nothing in it may wait for all work.

use crate::object::{Object, Result};
use crate::stream::Driver;
use std::cell::Cell;

thread_local! {
    /// Number of user functions that this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Whether the calling thread is in a user function.
pub fn in_user_function() -> bool {
    DEPTH.get() > 0
}

fn counted(call: impl FnOnce()) {
    DEPTH.set(DEPTH.get() + 1);
    call();
    DEPTH.set(DEPTH.get() - 1);
}

/// Calls a user function, unless the driver cannot set the thread's state for it.
pub(crate) fn call_user<D: Driver>(device: &Object<D::Device>, call: impl FnOnce()) -> Result<()> {
    D::call_user(device, || counted(call))
}

/// As [`call_user`], but always calls the function.
pub(crate) fn call_user_anyway<D: Driver>(device: &Object<D::Device>, call: impl Fn()) {
    if let Err(error) = call_user::<D>(device, &call) {
        log::error!("a user's function finds no device: {:?}", error.code());
        counted(call);
    }
}

//! A gate for a host task, which holds back what waits for it. One for a process, as tests have one each.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static OPEN: AtomicBool = AtomicBool::new(false);

/// Holds back the host tasks that call [`pass_gate`] from now on.
pub fn close_gate() {
    OPEN.store(false, Ordering::Release);
}

/// Lets them end.
pub fn open_gate() {
    OPEN.store(true, Ordering::Release);
}

/// A host task that ends once the gate is open. It is closed at first.
///
/// # Safety
/// None is needed: the argument is not used.
pub unsafe extern "C" fn pass_gate(_: *mut c_void) {
    while !OPEN.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

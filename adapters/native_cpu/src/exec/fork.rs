//! Whether this process is a fork of the one that started the workers: threads do not survive a
//! fork, and locks may be held for ever, so that a child must neither wait nor lock.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between this process and the one that loaded the library.
pub fn generation() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Starts counting. The C library forgets the handler when it unloads this library.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only touches an atomic, as a child of a threaded process may.
        // Without memory for the registration forks go unnoticed; nothing else depends on it.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

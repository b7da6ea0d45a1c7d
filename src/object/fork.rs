//! Detection of forks. A forked child has one thread, and locks may stay locked for ever. It must
//! therefore neither wait nor lock.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of forks since the process that loaded the library.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process in which an object was created.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    forks: u32,
}

impl Origin {
    /// The current process. The first call registers a fork handler, which the C library removes
    /// when it unloads this library.
    pub fn here() -> Self {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| {
            // SAFETY: the handler only increments an atomic, which POSIX allows in the child of a
            // threaded process. If the registration fails, forks are not detected.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Self {
            forks: FORKS.load(Ordering::Relaxed),
        }
    }

    /// Whether the current process is a fork of that process.
    pub fn is_forked(self) -> bool {
        self.forks != FORKS.load(Ordering::Relaxed)
    }
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

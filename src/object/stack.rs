//! The stack of threads that run a program's own code, such as kernels and host tasks.

use std::cell::Cell;
use std::mem::MaybeUninit;

/// Stack size in bytes where the limit is none: the default of distributions.
const UNLIMITED_STACK_BYTES: usize = 8 << 20;

/// Bytes for the frames between a thread's start and the program's code, whatever the limit.
const MIN_STACK_BYTES: usize = 256 << 10;

/// Bytes of stack for a thread that runs a program's code: those of a main thread, which `ulimit -s`
/// limits, and 8 MiB where it does not. Only pages that are touched cost anything.
pub fn stack_bytes() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the limit is writable; it stays as it is if the system refuses.
    unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) };
    of_limit(limit.rlim_cur)
}

/// Whether the calling thread's stack is about as large, so that it may run a program's code in
/// place of such a thread. Programs may have threads with less.
pub fn has_usual_stack() -> bool {
    thread_local!(static USUAL: Cell<Option<bool>> = const { Cell::new(None) });
    USUAL.get().unwrap_or_else(|| {
        // The system's share at the stack's ends counts for some and not for others.
        let usual = own_bytes().is_some_and(|own| own + own / 8 >= stack_bytes());
        USUAL.set(Some(usual));
        usual
    })
}

/// Bytes of the calling thread's stack.
fn own_bytes() -> Option<usize> {
    let mut attributes = MaybeUninit::uninit();
    let (mut start, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes are initialised by the first call, if it succeeds, read by the second
    // and given back by the third.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let failed = libc::pthread_attr_getstack(attributes.as_ptr(), &mut start, &mut bytes);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        (failed == 0).then_some(bytes)
    }
}

fn of_limit(limit: libc::rlim_t) -> usize {
    match limit {
        libc::RLIM_INFINITY => UNLIMITED_STACK_BYTES,
        bytes => usize::try_from(bytes)
            .unwrap_or(usize::MAX)
            .max(MIN_STACK_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_follow_the_limit() {
        assert_eq!(of_limit(64 << 20), 64 << 20);
        assert_eq!(of_limit(1 << 20), 1 << 20);
        assert_eq!(of_limit(libc::RLIM_INFINITY), UNLIMITED_STACK_BYTES);
        assert_eq!(of_limit(0), MIN_STACK_BYTES);
        assert!(stack_bytes() >= MIN_STACK_BYTES);
    }

    /// One with less is told so, too: `adapters/native_cpu/tests/pools/environment.rs` waits on such.
    #[test]
    fn a_thread_with_the_usual_stack_knows_it() {
        let thread = std::thread::Builder::new().stack_size(stack_bytes());
        let thread = thread.spawn(|| (has_usual_stack(), own_bytes()));
        let (usual, own) = thread.expect("a thread").join().expect("no panic");
        assert!(usual && own.is_some_and(|own| own >= stack_bytes()));
    }
}

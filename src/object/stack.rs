//! The stack size of threads that run a program's code, such as kernels and host tasks.

use std::cell::Cell;
use std::mem::MaybeUninit;

/// Stack size in bytes if the limit is unlimited: the default of distributions.
const UNLIMITED_STACK_BYTES: usize = 8 << 20;

/// Minimum stack size in bytes, for the frames between a thread's start and the program's code.
const MIN_STACK_BYTES: usize = 256 << 10;

/// Stack size in bytes for a thread that runs a program's code.
///
/// The size is that of the main thread, which `ulimit -s` limits, or 8 MiB without a limit.
/// Untouched pages cost no memory.
pub fn stack_bytes() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: `limit` is a local variable; a failed call leaves it unchanged.
    unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) };
    bytes_for(limit.rlim_cur)
}

/// Whether the calling thread's stack is about [`stack_bytes`] large, so that it may run a
/// program's code. Programs may have threads with smaller stacks.
pub fn has_usual_stack() -> bool {
    thread_local!(static USUAL: Cell<Option<bool>> = const { Cell::new(None) });
    USUAL.get().unwrap_or_else(|| {
        // The C library may subtract guard pages and its own data from the size.
        let usual = own_bytes().is_some_and(|own| own + own / 8 >= stack_bytes());
        USUAL.set(Some(usual));
        usual
    })
}

/// The size of the calling thread's stack in bytes; none if it is unknown.
fn own_bytes() -> Option<usize> {
    let mut attributes = MaybeUninit::uninit();
    let (mut start, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: `pthread_getattr_np` initialises the attributes if it succeeds; they are then read
    // and destroyed.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let failed = libc::pthread_attr_getstack(attributes.as_ptr(), &mut start, &mut bytes);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        (failed == 0).then_some(bytes)
    }
}

fn bytes_for(limit: libc::rlim_t) -> usize {
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
        assert_eq!(bytes_for(64 << 20), 64 << 20);
        assert_eq!(bytes_for(1 << 20), 1 << 20);
        assert_eq!(bytes_for(libc::RLIM_INFINITY), UNLIMITED_STACK_BYTES);
        assert_eq!(bytes_for(0), MIN_STACK_BYTES);
        assert!(stack_bytes() >= MIN_STACK_BYTES);
    }

    /// A small stack is detected as well: `adapters/native_cpu/tests/pools/environment.rs` waits on
    /// one.
    #[test]
    fn a_thread_with_the_usual_stack_knows_it() {
        let thread = std::thread::Builder::new().stack_size(stack_bytes());
        let thread = thread.spawn(|| (has_usual_stack(), own_bytes()));
        let (usual, own) = thread.expect("a thread").join().expect("no panic");
        assert!(usual && own.is_some_and(|own| own >= stack_bytes()));
    }
}

//! The stack of threads that run a program's own code, such as kernels and host tasks.

/// Bytes of stack where the limit is none: what distributions set.
const UNLIMITED: usize = 8 << 20;

/// Bytes that the frames between a thread's start and the program's code may need, whatever the limit.
const LEAST: usize = 256 << 10;

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

fn of_limit(limit: libc::rlim_t) -> usize {
    match limit {
        libc::RLIM_INFINITY => UNLIMITED,
        bytes => usize::try_from(bytes).unwrap_or(usize::MAX).max(LEAST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_follow_the_limit() {
        assert_eq!(of_limit(64 << 20), 64 << 20);
        assert_eq!(of_limit(1 << 20), 1 << 20);
        assert_eq!(of_limit(libc::RLIM_INFINITY), UNLIMITED);
        assert_eq!(of_limit(0), LEAST);
        assert!(stack_bytes() >= LEAST);
    }
}

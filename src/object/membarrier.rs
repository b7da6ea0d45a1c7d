//! A memory barrier whose whole cost falls on the side that runs rarely.
//!
//! Two threads each store one word and then read the other's. At least one of them must see the
//! other's store. Two full fences promise that. [`light`] and [`heavy`] promise it as well: the
//! frequent side executes [`light`], which costs no instruction, and the rare side [`heavy`].
//!
//! | guarantee | source |
//! |---|---|
//! | [`heavy`] takes every running thread of the process through a full fence, at a point in its program order; a thread that does not run has passed one when it was switched out | Linux, membarrier(2), `MEMBARRIER_CMD_PRIVATE_EXPEDITED` |
//! | the compiler keeps the order of memory accesses around [`light`] | [`std::sync::atomic::compiler_fence`] |
//!
//! So each [`light`] is before or after the fence that [`heavy`] causes on its thread: the pair
//! orders as two fences do. Models use two fences (`cfg(loom)`).

/// The barrier of the frequent side: orders accesses of its thread against [`heavy`].
#[inline(always)]
pub fn light() {
    #[cfg(loom)]
    loom::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
}

/// The barrier of the rare side: some microseconds. False if the system has none, and nothing is
/// ordered then.
#[cold]
pub fn heavy() -> bool {
    #[cfg(loom)]
    loom::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    cfg!(loom) || system::barrier()
}

#[cfg(target_os = "linux")]
mod system {
    use libc::{
        MEMBARRIER_CMD_PRIVATE_EXPEDITED as BARRIER,
        MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED as REGISTER,
    };

    pub fn barrier() -> bool {
        // A process registers once. The kernel refuses the barrier before that.
        call(BARRIER) || call(REGISTER) && call(BARRIER)
    }

    fn call(command: libc::membarrier_cmd) -> bool {
        // SAFETY: membarrier reads its arguments alone and writes no memory of the process.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub fn barrier() -> bool {
        false
    }
}

#[cfg(all(test, target_os = "linux", not(loom)))]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    /// The test of store buffers: without a barrier both sides often miss the other's store.
    #[test]
    fn one_side_sees_the_other() {
        if !heavy() {
            println!("skipped: the system has no membarrier");
            return;
        }
        const ROUNDS: u32 = 2_000;
        let [rare, frequent, seen] = [const { AtomicU32::new(0) }; 3];
        let start = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    start.wait();
                    frequent.store(round, Ordering::Relaxed);
                    light();
                    seen.store(rare.load(Ordering::Relaxed), Ordering::Relaxed);
                    start.wait();
                }
            });
            for round in 1..=ROUNDS {
                start.wait();
                rare.store(round, Ordering::Relaxed);
                assert!(heavy());
                let other = frequent.load(Ordering::Relaxed);
                start.wait();
                let missed = other != round && seen.load(Ordering::Relaxed) != round;
                assert!(!missed, "both missed the other's store in round {round}");
            }
        });
    }
}

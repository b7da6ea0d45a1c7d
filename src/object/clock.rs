//! The host's clock.

/// Nanoseconds of `CLOCK_MONOTONIC`: since an arbitrary point in the past, never 0. Devices that share the host's
/// clock stamp commands with it.
#[inline]
pub fn host_time() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the clock exists on every Linux and `time` is ours to write. It cannot fail then.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

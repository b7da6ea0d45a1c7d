//! Copies and fills by the host, on devices that share its memory. The caller promises that the
//! addresses are valid.
//!
//! Knows neither lanes nor events: the driver decides when work may run here ([`Driver::submit`]).

use crate::stream::{Driver, Work};
use std::ptr;

/// Largest transfer in bytes that the host makes faster than an idle device: a submission costs
/// more.
const MAX_HOST_BYTES: usize = 4 << 10;

impl<D: Driver> Work<D> {
    /// Whether it is a copy or a fill that the host makes faster than an idle device.
    pub fn suits_host(&self) -> bool {
        match *self {
            // Overlapping ranges are left to the driver.
            Work::Copy { dst, src, bytes } => {
                (1..=MAX_HOST_BYTES).contains(&bytes) && dst.abs_diff(src) >= bytes
            }
            Work::Fill {
                ref pattern, bytes, ..
            } => (1..=MAX_HOST_BYTES).contains(&bytes) && !pattern.is_empty(),
            _ => false,
        }
    }

    /// Runs work that [`Work::suits_host`] here; does nothing else.
    pub fn run_on_host(&self) {
        match *self {
            Work::Copy { dst, src, bytes } => move_bytes(dst, src, bytes),
            Work::Fill {
                dst,
                ref pattern,
                bytes,
            } => fill(dst, pattern, bytes),
            _ => {}
        }
    }
}

/// Copies, also where the ranges overlap.
pub fn move_bytes(dst: usize, src: usize, bytes: usize) {
    let (to, from) = (
        ptr::with_exposed_provenance_mut::<u8>(dst),
        ptr::with_exposed_provenance(src),
    );
    // SAFETY: the command's caller promises that both ranges are valid.
    unsafe { ptr::copy::<u8>(from, to, bytes) }
}

/// Bytes that [`fill`] copies from: they stay in the first-level cache.
const WINDOW_BYTES: usize = 4096;

/// Repeats a pattern.
pub fn fill(dst: usize, pattern: &[u8], bytes: usize) {
    let to = ptr::with_exposed_provenance_mut::<u8>(dst);
    if let &[byte] = pattern {
        // SAFETY: the command's caller promises that the range is valid.
        unsafe { ptr::write_bytes(to, byte, bytes) };
        return;
    }
    let mut done = pattern.len().min(bytes);
    // SAFETY: the command's caller promises that the range is valid. `done` never exceeds it, and
    // the pattern is memory of our own.
    unsafe { ptr::copy_nonoverlapping(pattern.as_ptr(), to, done) };
    if done == 0 {
        return;
    }
    let window = (WINDOW_BYTES / done).max(1) * done;
    while done < bytes {
        // A whole number of patterns, except at the end of the range.
        let next = done.min(window).min(bytes - done);
        // SAFETY: the command's caller promises that the range is valid. The source ends at or
        // before `done`, where the target begins.
        unsafe { ptr::copy_nonoverlapping(to, to.add(done), next) };
        done += next;
    }
}

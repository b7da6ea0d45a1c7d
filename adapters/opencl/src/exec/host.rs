//! Small copies and fills by the host itself, on devices that share its memory.
//!
//! To give such a command to an idle device costs more than the command. It may use addresses of the
//! caller's; it knows neither lanes nor events.

use std::ptr;

use ur::stream::Work;

use crate::OpenCl;

/// Most bytes that the host moves sooner than it could have them moved.
const MOST: usize = 4 << 10;

/// Whether the host can do this itself, and soon.
pub(super) fn suits(work: &Work<OpenCl>) -> bool {
    match *work {
        // What a driver says of overlapping ranges stays its own to say.
        Work::Copy { dst, src, bytes } => (1..=MOST).contains(&bytes) && dst.abs_diff(src) >= bytes,
        Work::Fill {
            ref pattern, bytes, ..
        } => (1..=MOST).contains(&bytes) && !pattern.is_empty(),
        _ => false,
    }
}

/// Does what [`suits`].
pub(super) fn run(work: &Work<OpenCl>) {
    match *work {
        Work::Copy { dst, src, bytes } => {
            let from: *const u8 = ptr::with_exposed_provenance(src);
            // SAFETY: the caller promises both ranges until the command has ended, which is now; they
            // do not overlap.
            unsafe { ptr::copy_nonoverlapping(from, ptr::with_exposed_provenance_mut(dst), bytes) };
        }
        Work::Fill {
            dst,
            ref pattern,
            bytes,
        } => {
            let size = pattern.len();
            for start in (0..bytes).step_by(size) {
                let to: *mut u8 = ptr::with_exposed_provenance_mut(dst + start);
                // SAFETY: the caller promises the range; no more of it is written than there is.
                unsafe { ptr::copy_nonoverlapping(pattern.as_ptr(), to, size.min(bytes - start)) };
            }
        }
        _ => {}
    }
}

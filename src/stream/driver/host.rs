//! Copies, fills and slabs by the host, on devices that share its memory. The caller promises that the
//! addresses are valid.
//!
//! Knows neither lanes nor events: the driver decides when work may run here ([`Driver::submit`]).

use crate::object::{Error, Result};
use crate::stream::{Driver, Kind, Pitched, Work};
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::ops::Range;
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

    /// Runs a copy or a fill of any size here. Does nothing else: hints have no effect in the host's memory,
    /// and launches are the driver's to run.
    pub fn run_on_host(&self) {
        match *self {
            Work::Copy { dst, src, bytes } => move_bytes(dst, src, bytes),
            Work::CopyRect { dst, src, region } => copy_rows(dst, src, region, all_rows(region)),
            Work::Fill {
                dst,
                ref pattern,
                bytes,
            } => fill(dst, pattern, bytes),
            Work::FillRect {
                dst,
                ref pattern,
                region,
            } => fill_rows(dst, pattern, region, all_rows(region)),
            _ => {}
        }
    }
}

fn all_rows([_, rows, slices]: [usize; 3]) -> Range<usize> {
    0..rows * slices
}

/// Copies these rows of a region (bytes, rows, slices), counted through all of its slices.
pub fn copy_rows(dst: Pitched, src: Pitched, region: [usize; 3], rows: Range<usize>) {
    for row in rows {
        move_bytes(at(dst, region, row), at(src, region, row), region[0]);
    }
}

/// Repeats a pattern over each of these rows of a region, counted as by [`copy_rows`].
pub fn fill_rows(dst: Pitched, pattern: &[u8], region: [usize; 3], rows: Range<usize>) {
    for row in rows {
        fill(at(dst, region, row), pattern, region[0]);
    }
}

/// Address of a row of a region, which has rows.
fn at(block: Pitched, [_, rows, _]: [usize; 3], row: usize) -> usize {
    block.addr + row % rows * block.row_pitch + row / rows * block.slice_pitch
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

/// The methods of [`Driver`] about slabs, for a device that shares the host's memory. They come together, since the one
/// frees what the other has allocated.
#[macro_export]
macro_rules! host_slabs {
    () => {
        fn acquire(
            _: &$crate::stream::Devices<Self>,
            _: Option<&$crate::object::Object<Self::Device>>,
            kind: $crate::stream::Kind,
            bytes: usize,
            zeroed: bool,
        ) -> $crate::object::Result<usize> {
            $crate::stream::host::acquire(kind, bytes, zeroed)
        }

        fn release(
            _: &$crate::stream::Devices<Self>,
            _: $crate::stream::Kind,
            addr: usize,
            bytes: usize,
        ) {
            // SAFETY: the method gets each slab of `acquire` once, with its size.
            unsafe { $crate::stream::host::release(addr, bytes) };
        }

        fn granularity(
            _: Option<&$crate::object::Object<Self::Device>>,
            _: $crate::stream::Kind,
        ) -> usize {
            $crate::stream::host::SLAB_ALIGN_BYTES
        }
    };
}

/// Alignment and granularity of slabs, in bytes.
pub const SLAB_ALIGN_BYTES: usize = 4096;

/// The slabs of [`Driver::acquire`], from the host's allocator. `bytes` is a multiple of [`SLAB_ALIGN_BYTES`].
pub fn acquire(kind: Kind, bytes: usize, zeroed: bool) -> Result<usize> {
    let none = Error::new(kind.exhausted());
    let layout = Layout::from_size_align(bytes, SLAB_ALIGN_BYTES).map_err(|_| none)?;
    if bytes == 0 {
        return Err(none);
    }
    let make = if zeroed { alloc_zeroed } else { alloc };
    // SAFETY: the layout has bytes.
    let start = unsafe { make(layout) };
    match start.is_null() {
        true => Err(none),
        false => Ok(start.expose_provenance()),
    }
}

/// Frees a slab of [`acquire`].
///
/// # Safety
/// `acquire` returned the address for this size, and this is the first call for it.
pub unsafe fn release(addr: usize, bytes: usize) {
    if let Ok(layout) = Layout::from_size_align(bytes, SLAB_ALIGN_BYTES) {
        // SAFETY: the caller promises a slab, which was allocated with this layout.
        unsafe { dealloc(ptr::with_exposed_provenance_mut(addr), layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::*;

    #[test]
    fn rows_are_counted_through_all_slices() {
        let from: Vec<u8> = (0..64).collect();
        let mut to = vec![0xffu8; 64];
        let pitched = |addr| Pitched {
            addr,
            row_pitch: 8,
            slice_pitch: 32,
        };
        let dst = pitched(to.as_mut_ptr().expose_provenance());
        let src = pitched(from.as_ptr().expose_provenance() + 1);
        // The last row of the first slice, and the first of the second.
        copy_rows(dst, src, [2, 3, 2], 2..4);
        fill_rows(dst, &[7], [1, 3, 2], 5..6);
        let mut expected = vec![0xffu8; 64];
        expected[16..18].copy_from_slice(&[17, 18]);
        expected[32..34].copy_from_slice(&[33, 34]);
        expected[48] = 7;
        assert_eq!(to, expected);
        // A region without rows has no row to address.
        copy_rows(dst, src, [2, 0, 2], all_rows([2, 0, 2]));
        assert_eq!(to, expected);
    }

    #[test]
    fn slabs_are_aligned_and_zeroed_and_end() -> Result<()> {
        let bytes = 3 * SLAB_ALIGN_BYTES;
        // The second slab most likely gets the memory of the first one.
        for (zeroed, expected) in [(false, None), (true, Some(0))] {
            let slab = acquire(Kind::Shared, bytes, zeroed)?;
            assert!(slab.is_multiple_of(SLAB_ALIGN_BYTES));
            let content = ptr::with_exposed_provenance_mut::<u8>(slab);
            for at in 0..bytes {
                // SAFETY: the slab has so many bytes; they are read only where they were zeroed.
                let found = expected.map(|_| unsafe { content.add(at).read() });
                assert_eq!(found, expected);
            }
            fill(slab, &[1], bytes);
            // SAFETY: the slab is `acquire`'s, and no longer used.
            unsafe { release(slab, bytes) };
        }
        for (kind, code) in [
            (Kind::Host, UR_RESULT_ERROR_OUT_OF_HOST_MEMORY),
            (Kind::Device, UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY),
            (Kind::Shared, UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY),
        ] {
            for bytes in [0, 1 << 62, usize::MAX] {
                assert_eq!(acquire(kind, bytes, false), Err(Error::new(code)));
            }
        }
        Ok(())
    }
}

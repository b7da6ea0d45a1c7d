//! Ranges and boxes of buffers and USM, checked against their ends.

use crate::abi::*;
use crate::object::{Error, Result, ensure};
use crate::stream::Pitched;

pub(crate) const OUTSIDE: Error = Error::new(UR_RESULT_ERROR_INVALID_SIZE);

/// Address of a part of `[start, +length)` that lies inside it.
pub(crate) fn range(start: usize, length: usize, offset: usize, bytes: usize) -> Result<usize> {
    let end = offset.checked_add(bytes).ok_or(OUTSIDE)?;
    ensure(end <= length, OUTSIDE.code())?;
    start.checked_add(offset).ok_or(OUTSIDE)
}

/// Up to three values, `rest` for those that are missing.
#[inline(always)]
pub(crate) fn three(values: &[usize], rest: usize) -> [usize; 3] {
    match *values {
        [] => [rest; 3],
        [x] => [x, rest, rest],
        [x, y] => [x, y, rest],
        [x, y, z, ..] => [x, y, z],
    }
}

/// A box of a pitched block: bytes, rows, slices.
pub(crate) struct Box3 {
    pub region: [usize; 3],
    /// From the block's start to the box's first byte, and to behind its last.
    first: usize,
    pub end: usize,
    row_pitch: usize,
    slice_pitch: usize,
}

impl Box3 {
    /// A pitch of 0 means packed.
    pub fn new(
        origin: ur_rect_offset_t,
        region: ur_rect_region_t,
        row_pitch: usize,
        slice_pitch: usize,
    ) -> Result<Self> {
        let [x, y, z] = [size(origin.x)?, size(origin.y)?, size(origin.z)?];
        let [width, height, depth] = [
            size(region.width)?,
            size(region.height)?,
            size(region.depth)?,
        ];
        let row_pitch = if row_pitch == 0 { width } else { row_pitch };
        let packed = row_pitch.checked_mul(height).ok_or(OUTSIDE)?;
        let slice_pitch = if slice_pitch == 0 {
            packed
        } else {
            slice_pitch
        };
        let place = |x: usize, y: usize, z: usize| {
            let rows = y.checked_mul(row_pitch)?;
            z.checked_mul(slice_pitch)?
                .checked_add(rows)?
                .checked_add(x)
        };
        let first = place(x, y, z).ok_or(OUTSIDE)?;
        let last = |from: usize, extent: usize| from.checked_add(extent)?.checked_sub(1);
        let end = last(y, height)
            .zip(last(z, depth))
            .and_then(|(y, z)| place(x.checked_add(width)?, y, z))
            .ok_or(OUTSIDE)?;
        Ok(Self {
            region: [width, height, depth],
            first,
            end,
            row_pitch,
            slice_pitch,
        })
    }

    /// The box in a block that starts at `addr`.
    pub fn at(&self, addr: usize) -> Pitched {
        Pitched {
            addr: addr.wrapping_add(self.first),
            row_pitch: self.row_pitch,
            slice_pitch: self.slice_pitch,
        }
    }
}

fn size(value: u64) -> Result<usize> {
    usize::try_from(value).map_err(|_| OUTSIDE)
}

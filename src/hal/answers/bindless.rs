//! Bindless images: what a description may say whatever the driver, and chains that name memory of another interface.

use crate::abi::*;
use crate::object::{Error, Result, chain, ensure};
use std::ffi::{c_int, c_void};

const WRONG: Error = Error::new(UR_RESULT_ERROR_INVALID_VALUE);

/// What an image is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageRole {
    /// Image memory.
    Memory,
    /// Sampled handles of image memory.
    Sampled,
    /// Unsampled handles of image memory.
    Unsampled,
    /// Linear memory, and sampled handles of it.
    Linear,
    /// Unsampled handles of linear memory.
    UnsampledLinear,
}

impl ImageRole {
    pub fn of_memory(memory: ur_exp_image_mem_type_t) -> Self {
        match memory {
            UR_EXP_IMAGE_MEM_TYPE_USM_POINTER => Self::Linear,
            _ => Self::Memory,
        }
    }

    pub fn of_handle(memory: ur_exp_image_mem_type_t, is_unsampled: bool) -> Self {
        match (memory, is_unsampled) {
            (UR_EXP_IMAGE_MEM_TYPE_USM_POINTER, true) => Self::UnsampledLinear,
            (UR_EXP_IMAGE_MEM_TYPE_USM_POINTER, false) => Self::Linear,
            (_, true) => Self::Unsampled,
            (_, false) => Self::Sampled,
        }
    }
}

/// The mip levels of an image whose longest axis has so many pixels, at least one. `INVALID_VALUE` for more than halving
/// the sizes gives.
pub fn mip_levels(desc: &ur_image_desc_t, longest: usize) -> Result<u32> {
    let levels = desc.numMipLevel.max(1);
    ensure(levels <= 1 + longest.max(1).ilog2(), WRONG.code())?;
    Ok(levels)
}

/// `INVALID_VALUE` for several samples in a pixel.
pub fn check_samples(desc: &ur_image_desc_t) -> Result<()> {
    ensure(desc.numSamples <= 1, WRONG.code())
}

/// Coordinates of a pixel beside the layer.
pub fn coordinates(kind: ur_mem_type_t) -> usize {
    match kind {
        UR_MEM_TYPE_IMAGE1D | UR_MEM_TYPE_IMAGE1D_ARRAY => 1,
        UR_MEM_TYPE_IMAGE3D | UR_MEM_TYPE_IMAGE_CUBEMAP_EXP => 3,
        _ => 2,
    }
}

/// The rows of an image in linear memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearRows {
    pub count: usize,
    /// Bytes of the pixels of a row.
    pub packed: usize,
    /// Bytes from row to row.
    pub pitch: usize,
}

impl LinearRows {
    /// A pitch of 0 stands for packed rows.
    pub fn new(count: usize, packed: usize, pitch: usize) -> Self {
        let pitch = if pitch == 0 { packed } else { pitch };
        Self {
            count,
            packed,
            pitch,
        }
    }

    /// Whether rows lie apart, and a driver takes the pitch: multiples of `align`, up to `most`.
    pub fn fit(&self, align: usize, most: usize) -> bool {
        (self.packed..=most).contains(&self.pitch) && self.pitch.is_multiple_of(align.max(1))
    }

    /// Bytes from the first pixel to the last. None if these have no number.
    pub fn bytes(&self) -> Option<usize> {
        let before = self.pitch.checked_mul(self.count.saturating_sub(1))?;
        before.checked_add(self.packed)
    }
}

/// The file descriptor in a chain. `INVALID_VALUE` without one.
///
/// # Safety
/// The chain consists of live structs tagged as what they are.
pub unsafe fn file_descriptor(first: *const c_void) -> Result<c_int> {
    let tag = UR_STRUCTURE_TYPE_EXP_FILE_DESCRIPTOR;
    // SAFETY: as this function's.
    let found = unsafe { chain::find::<ur_exp_file_descriptor_t>(first, tag) };
    let found = found.map(|own| own.fd).filter(|fd| *fd >= 0);
    found.ok_or(WRONG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{from_ref, null};

    #[test]
    fn a_size_has_so_many_levels() {
        let of = |levels| {
            let desc = ur_image_desc_t {
                numMipLevel: levels,
                ..Default::default()
            };
            mip_levels(&desc, 8)
        };
        assert_eq!(of(0), Ok(1));
        assert_eq!(of(4), Ok(4));
        assert_eq!(of(5), Err(WRONG));
    }

    #[test]
    fn a_pixel_has_one_sample() {
        let of = |samples| {
            check_samples(&ur_image_desc_t {
                numSamples: samples,
                ..Default::default()
            })
        };
        assert_eq!([of(0), of(1), of(2)], [Ok(()), Ok(()), Err(WRONG)]);
    }

    #[test]
    fn linear_memory_has_roles_of_its_own() {
        let of = |memory| {
            let handle = |unsampled| ImageRole::of_handle(memory, unsampled);
            [ImageRole::of_memory(memory), handle(false), handle(true)]
        };
        let (usm, opaque) = (
            UR_EXP_IMAGE_MEM_TYPE_USM_POINTER,
            UR_EXP_IMAGE_MEM_TYPE_OPAQUE_HANDLE,
        );
        use ImageRole::*;
        assert_eq!(of(usm), [Linear, Linear, UnsampledLinear]);
        assert_eq!(of(opaque), [Memory, Sampled, Unsampled]);
    }

    #[test]
    fn rows_lie_apart_and_end_with_their_last_pixel() {
        let rows = |pitch| LinearRows::new(3, 12, pitch);
        assert_eq!(rows(0).pitch, 12);
        assert_eq!(rows(16).bytes(), Some(44));
        assert_eq!(rows(usize::MAX).bytes(), None);
        assert!(rows(16).fit(16, 16));
        assert!(!rows(8).fit(1, 16), "rows overlap");
        assert!(!rows(12).fit(8, 16), "not aligned");
        assert!(!rows(32).fit(16, 16), "beyond the most");
    }

    #[test]
    fn a_descriptor_is_chained() {
        let own = |fd| ur_exp_file_descriptor_t {
            fd,
            ..Default::default()
        };
        // SAFETY: a chain of one struct.
        let of = |own: &ur_exp_file_descriptor_t| unsafe { file_descriptor(from_ref(own).cast()) };
        assert_eq!(of(&own(3)), Ok(3));
        assert_eq!(of(&own(-1)), Err(WRONG));
        // SAFETY: an empty chain.
        assert_eq!(unsafe { file_descriptor(null()) }, Err(WRONG));
    }
}

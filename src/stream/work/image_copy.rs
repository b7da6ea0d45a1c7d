//! Copies of bindless images as callers describe them: which ends are images, where linear memory lies, and regions.

use crate::abi::*;
use crate::object::{Error, Result, chain, ensure};
use crate::stream::Pitched;

/// A number that is no memory.
const UNKNOWN: Error = Error::new(UR_RESULT_ERROR_INVALID_VALUE);

const OUTSIDE: Error = Error::new(UR_RESULT_ERROR_INVALID_IMAGE_SIZE);

/// Most regions of a copy.
const MAX_REGIONS: usize = 64;

/// A region: the first texel of source and destination, and the texels along each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageRegion {
    pub src: [usize; 3],
    pub dst: [usize; 3],
    pub extent: [usize; 3],
}

/// One end of a copy: the handle of image memory, or the address of linear memory.
#[derive(Clone, Copy)]
pub struct ImageCopyEnd<'a> {
    pub address: usize,
    pub desc: &'a ur_image_desc_t,
    pub format: &'a ur_image_format_t,
}

/// Which ends are images, source and destination. `INVALID_VALUE` for a direction that the ends exclude: image memory is
/// on the device. `INVALID_ARGUMENT` for different channel orders.
pub fn image_ends(
    (from, to): (&ImageCopyEnd<'_>, &ImageCopyEnd<'_>),
    flags: ur_exp_image_copy_flags_t,
    types: ur_exp_image_copy_input_types_t,
) -> Result<(bool, bool)> {
    let (src, dst) = match types {
        UR_EXP_IMAGE_COPY_INPUT_TYPES_MEM_TO_IMAGE => (false, true),
        UR_EXP_IMAGE_COPY_INPUT_TYPES_IMAGE_TO_MEM => (true, false),
        UR_EXP_IMAGE_COPY_INPUT_TYPES_MEM_TO_MEM => (false, false),
        _ => (true, true),
    };
    let possible = match flags {
        UR_EXP_IMAGE_COPY_FLAG_HOST_TO_DEVICE => !src,
        UR_EXP_IMAGE_COPY_FLAG_DEVICE_TO_HOST => !dst,
        UR_EXP_IMAGE_COPY_FLAG_DEVICE_TO_DEVICE => true,
        UR_EXP_IMAGE_COPY_FLAG_HOST_TO_HOST => !src && !dst,
        _ => false,
    };
    ensure(possible, UR_RESULT_ERROR_INVALID_VALUE)?;
    let same = from.format.channelOrder == to.format.channelOrder;
    ensure(same, UR_RESULT_ERROR_INVALID_ARGUMENT)?;
    Ok((src, dst))
}

/// Linear memory with so many texels along each axis, of these bytes. Pitches of 0 are packed. `INVALID_VALUE` for
/// pitches within which rows or slices would overlap, `INVALID_IMAGE_SIZE` if it has no end.
pub fn linear_image(
    address: usize,
    desc: &ur_image_desc_t,
    extent: [usize; 3],
    texel: usize,
) -> Result<Pitched> {
    let packed = extent[0].checked_mul(texel).ok_or(OUTSIDE)?;
    let row_pitch = if desc.rowPitch == 0 {
        packed
    } else {
        desc.rowPitch
    };
    ensure(row_pitch >= packed, UNKNOWN.code())?;
    let rows = row_pitch.checked_mul(extent[1]).ok_or(OUTSIDE)?;
    let slice_pitch = if desc.slicePitch == 0 {
        rows
    } else {
        desc.slicePitch
    };
    ensure(extent[2] == 1 || slice_pitch >= rows, UNKNOWN.code())?;
    slice_pitch.checked_mul(extent[2]).ok_or(OUTSIDE)?;
    Ok(Pitched {
        addr: address,
        row_pitch,
        slice_pitch,
    })
}

impl Pitched {
    /// The memory from a texel on.
    pub fn from_texel(self, [x, y, z]: [usize; 3], texel: usize) -> Self {
        Self {
            addr: self.addr + x * texel + y * self.row_pitch + z * self.slice_pitch,
            ..self
        }
    }
}

/// The regions of a chain. `extents` are the texels of source and destination along each axis.
///
/// `INVALID_VALUE` if a region cuts texels, for too many, and for an unknown struct; `INVALID_IMAGE_SIZE` if an end does
/// not have a region.
pub fn image_regions(
    first: &ur_exp_image_copy_region_t,
    extents: ([usize; 3], [usize; 3]),
    texel: usize,
) -> Result<Vec<ImageRegion>> {
    let tag = UR_STRUCTURE_TYPE_EXP_IMAGE_COPY_REGION;
    // SAFETY: the caller's chain consists of live structs tagged as what they are.
    let other = unsafe { chain::has_other(first.pNext, &[tag]) };
    ensure(!other, UR_RESULT_ERROR_INVALID_VALUE)?;
    let mut found = Vec::new();
    let mut next = Some(first);
    while let Some(region) = next {
        ensure(found.len() < MAX_REGIONS, UR_RESULT_ERROR_INVALID_VALUE)?;
        found.push(checked(region, extents, texel)?);
        // SAFETY: the caller's chain consists of live structs tagged as what they are.
        next = unsafe { chain::find(region.pNext, tag) };
    }
    Ok(found)
}

/// A region in numbers of texels.
///
/// The caller counts bytes along x. A height or depth of 0 stands for all that the ends have beyond the offset.
fn checked(
    region: &ur_exp_image_copy_region_t,
    (from_extent, to_extent): ([usize; 3], [usize; 3]),
    texel: usize,
) -> Result<ImageRegion> {
    let whole = |bytes: u64| -> Result<usize> {
        let bytes = bytes as usize;
        ensure(bytes.is_multiple_of(texel), UR_RESULT_ERROR_INVALID_VALUE)?;
        Ok(bytes / texel)
    };
    let place = |at: &ur_rect_offset_t| -> Result<[usize; 3]> {
        Ok([whole(at.x)?, at.y as usize, at.z as usize])
    };
    let (src, dst) = (place(&region.srcOffset)?, place(&region.dstOffset)?);
    let size = &region.copyExtent;
    let asked = [
        whole(size.width)?,
        size.height as usize,
        size.depth as usize,
    ];
    let mut extent = [0; 3];
    for axis in 0..3 {
        let room = |own: [usize; 3], at: [usize; 3]| own[axis].checked_sub(at[axis]);
        let left = room(from_extent, src).zip(room(to_extent, dst));
        let (from, to) = left.ok_or(OUTSIDE)?;
        let most = from.min(to);
        let size = match asked[axis] {
            0 if axis > 0 => most,
            size => size,
        };
        ensure(size > 0 && size <= most, OUTSIDE.code())?;
        extent[axis] = size;
    }
    Ok(ImageRegion { src, dst, extent })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_memory_begins_at_a_texel() {
        let desc = ur_image_desc_t {
            rowPitch: 32,
            slicePitch: 256,
            ..Default::default()
        };
        let linear = |desc: &ur_image_desc_t, extent| linear_image(0x1000, desc, extent, 4);
        let memory = linear(&desc, [8, 8, 4]).expect("memory");
        let at = memory.from_texel([1, 2, 1], 4);
        assert_eq!(at.addr, 0x1000 + 4 + 2 * 32 + 256);
        assert_eq!((at.row_pitch, at.slice_pitch), (32, 256));
        let packed = linear(&ur_image_desc_t::default(), [2, 3, 2]).expect("memory");
        assert_eq!((packed.row_pitch, packed.slice_pitch), (8, 24));
        let code = |extent| linear(&desc, extent).map(drop).map_err(Error::code);
        assert_eq!(code([9, 1, 1]), Err(UR_RESULT_ERROR_INVALID_VALUE));
        assert_eq!(code([8, 9, 2]), Err(UR_RESULT_ERROR_INVALID_VALUE));
        assert_eq!(
            code([8, usize::MAX, 1]),
            Err(UR_RESULT_ERROR_INVALID_IMAGE_SIZE)
        );
    }

    #[test]
    fn a_region_lies_inside_both_ends() {
        let ends = ([8, 1, 1], [8, 4, 2]);
        let asked = |x: u64, [width, height, depth]: [u64; 3]| {
            let region = ur_exp_image_copy_region_t {
                srcOffset: ur_rect_offset_t {
                    x: 4 * x,
                    y: 0,
                    z: 0,
                },
                copyExtent: ur_rect_region_t {
                    width: 4 * width,
                    height,
                    depth,
                },
                ..Default::default()
            };
            let found = checked(&region, ends, 4).map(|region| region.extent);
            found.map_err(Error::code)
        };
        let outside = Err(UR_RESULT_ERROR_INVALID_IMAGE_SIZE);
        assert_eq!(asked(0, [8, 0, 0]), Ok([8, 1, 1]));
        assert_eq!(asked(3, [5, 1, 1]), Ok([5, 1, 1]));
        for (x, extent) in [
            (0, [0, 1, 1]),
            (1, [8, 1, 1]),
            (9, [1, 1, 1]),
            (0, [8, 2, 1]),
        ] {
            assert_eq!(asked(x, extent), outside, "{x} {extent:?}");
        }
        let cut = ur_exp_image_copy_region_t {
            copyExtent: ur_rect_region_t {
                width: 6,
                height: 1,
                depth: 1,
            },
            ..Default::default()
        };
        let found = checked(&cut, ends, 4).map(drop).map_err(Error::code);
        assert_eq!(found, Err(UR_RESULT_ERROR_INVALID_VALUE));
    }

    fn end<'a>(desc: &'a ur_image_desc_t, format: &'a ur_image_format_t) -> ImageCopyEnd<'a> {
        ImageCopyEnd {
            address: 0x1000,
            desc,
            format,
        }
    }

    #[test]
    fn both_ends_have_one_order_of_channels() {
        let desc = ur_image_desc_t::default();
        let of = |order| ur_image_format_t {
            channelOrder: order,
            channelType: UR_IMAGE_CHANNEL_TYPE_FLOAT,
        };
        let (one, other) = (
            of(UR_IMAGE_CHANNEL_ORDER_RGBA),
            of(UR_IMAGE_CHANNEL_ORDER_BGRA),
        );
        let copy = |to| {
            let ends = (&end(&desc, &one), &end(&desc, to));
            let flags = UR_EXP_IMAGE_COPY_FLAG_DEVICE_TO_DEVICE;
            let types = UR_EXP_IMAGE_COPY_INPUT_TYPES_IMAGE_TO_IMAGE;
            image_ends(ends, flags, types).map_err(Error::code)
        };
        assert_eq!(copy(&one), Ok((true, true)));
        assert_eq!(copy(&other), Err(UR_RESULT_ERROR_INVALID_ARGUMENT));
    }

    #[test]
    fn directions_and_ends_agree() {
        use super::{
            UR_EXP_IMAGE_COPY_INPUT_TYPES_IMAGE_TO_IMAGE as BOTH,
            UR_EXP_IMAGE_COPY_INPUT_TYPES_IMAGE_TO_MEM as FROM,
            UR_EXP_IMAGE_COPY_INPUT_TYPES_MEM_TO_IMAGE as TO,
            UR_EXP_IMAGE_COPY_INPUT_TYPES_MEM_TO_MEM as NONE,
        };
        let (desc, format) = (ur_image_desc_t::default(), ur_image_format_t::default());
        let end = end(&desc, &format);
        let possible = |flags| {
            [TO, FROM, NONE, BOTH].map(|types| image_ends((&end, &end), flags, types).is_ok())
        };
        let both = UR_EXP_IMAGE_COPY_FLAG_HOST_TO_DEVICE.0 | UR_EXP_IMAGE_COPY_FLAG_HOST_TO_HOST.0;
        for (flags, expected) in [
            (
                UR_EXP_IMAGE_COPY_FLAG_HOST_TO_DEVICE,
                [true, false, true, false],
            ),
            (
                UR_EXP_IMAGE_COPY_FLAG_DEVICE_TO_HOST,
                [false, true, true, false],
            ),
            (UR_EXP_IMAGE_COPY_FLAG_DEVICE_TO_DEVICE, [true; 4]),
            (
                UR_EXP_IMAGE_COPY_FLAG_HOST_TO_HOST,
                [false, false, true, false],
            ),
            (ur_exp_image_copy_flags_t(both), [false; 4]),
        ] {
            assert_eq!(possible(flags), expected, "{flags:?}");
        }
    }
}

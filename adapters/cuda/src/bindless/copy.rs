//! Copies between linear memory and image memory, in any combination. No pixel is converted.
//!
//! A copy of several regions is one command. Rows of linear memory lie packed or as its description's pitches say.

use std::any::Any;
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Handles, Object, OutHandle, Result, chain, ensure};
use ur::stream::{Event, Pitched, Queue, Work};

use super::memory::{self, ImageMemory, extent, texel_of};
use crate::Cuda;
use crate::exec::{BoxEnd, Boxes, Native};
use crate::image::{Shape, Texel};

/// A number that is no memory.
const UNKNOWN: Error = Error::new(UR_RESULT_ERROR_INVALID_VALUE);

const OUTSIDE: Error = Error::new(UR_RESULT_ERROR_INVALID_IMAGE_SIZE);

/// Most regions of a copy.
const MAX_REGIONS: usize = 64;

/// One end of a copy as the caller describes it.
pub struct End<'a> {
    pub address: usize,
    pub desc: &'a ur_image_desc_t,
    pub format: &'a ur_image_format_t,
}

/// The memory of one end.
enum Side {
    Linear {
        memory: Pitched,
        /// Texels along each axis.
        extent: [usize; 3],
    },
    Image(Arc<ImageMemory>),
}

/// A region: the first texel of source and destination, and the texels along each axis.
#[derive(Clone, Copy)]
struct Region {
    src: [usize; 3],
    dst: [usize; 3],
    extent: [usize; 3],
}

impl Side {
    fn linear(end: &End<'_>, texel: Texel) -> Result<Self> {
        let shape = Shape::of(end.desc)?;
        let extent = extent(&shape);
        let packed = extent[0].checked_mul(texel.bytes).ok_or(OUTSIDE)?;
        let row_pitch = if end.desc.rowPitch == 0 {
            packed
        } else {
            end.desc.rowPitch
        };
        ensure(row_pitch >= packed, UNKNOWN.code())?;
        let rows = row_pitch.checked_mul(extent[1]).ok_or(OUTSIDE)?;
        let slice_pitch = if end.desc.slicePitch == 0 {
            rows
        } else {
            end.desc.slicePitch
        };
        ensure(extent[2] == 1 || slice_pitch >= rows, UNKNOWN.code())?;
        slice_pitch.checked_mul(extent[2]).ok_or(OUTSIDE)?;
        let memory = Pitched {
            addr: end.address,
            row_pitch,
            slice_pitch,
        };
        Ok(Self::Linear { memory, extent })
    }

    fn extent(&self) -> [usize; 3] {
        match self {
            Self::Linear { extent, .. } => *extent,
            Self::Image(image) => image.extent(),
        }
    }

    /// The end of a box that begins at a texel.
    fn at(&self, [x, y, z]: [usize; 3], texel: usize) -> Result<BoxEnd> {
        Ok(match self {
            Self::Linear { memory, .. } => BoxEnd::Memory(Pitched {
                addr: memory.addr + x * texel + y * memory.row_pitch + z * memory.slice_pitch,
                ..*memory
            }),
            Self::Image(image) => BoxEnd::Array {
                raw: image.array()?.raw(),
                origin: [x * texel, y, z],
            },
        })
    }
}

/// The work of a copy. A single region between linear memory is the engine's own matter.
fn work((dst, src): (&Side, &Side), regions: &[Region], texel: usize) -> Result<Work<Cuda>> {
    let keeps = [dst, src].into_iter().filter_map(|side| match side {
        Side::Image(image) => Some(Arc::clone(image) as Arc<dyn Any + Send + Sync>),
        Side::Linear { .. } => None,
    });
    let mut boxes = Boxes::keeping(keeps.collect());
    for region in regions {
        let [width, height, depth] = region.extent;
        let ends = (dst.at(region.dst, texel)?, src.at(region.src, texel)?);
        let region = [width * texel, height, depth];
        if let ((BoxEnd::Memory(dst), BoxEnd::Memory(src)), 1) = (ends, regions.len()) {
            return Ok(Work::CopyRect { dst, src, region });
        }
        boxes.add(ends.0, ends.1, region);
    }
    Ok(Work::Native(Native::Boxes(Arc::new(boxes))))
}

/// Which ends are images. `INVALID_VALUE` for a direction that the ends exclude: image memory is on the device.
fn ends(
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
    Ok((src, dst))
}

/// The regions of a chain.
fn regions(
    first: &ur_exp_image_copy_region_t,
    (src, dst): (&Side, &Side),
    texel: usize,
) -> Result<Vec<Region>> {
    let tag = UR_STRUCTURE_TYPE_EXP_IMAGE_COPY_REGION;
    // SAFETY: the caller's chain consists of live structs tagged as what they are.
    let other = unsafe { chain::has_other(first.pNext, &[tag]) };
    ensure(!other, UR_RESULT_ERROR_INVALID_VALUE)?;
    let mut found = Vec::new();
    let mut next = Some(first);
    while let Some(region) = next {
        ensure(found.len() < MAX_REGIONS, UR_RESULT_ERROR_INVALID_VALUE)?;
        found.push(checked(region, (src, dst), texel)?);
        // SAFETY: the caller's chain consists of live structs tagged as what they are.
        next = unsafe { chain::find(region.pNext, tag) };
    }
    Ok(found)
}

/// A region in numbers of texels. `INVALID_VALUE` if it cuts texels, `INVALID_IMAGE_SIZE` if an end does not have it.
///
/// The caller counts bytes along x. A height or depth of 0 stands for all that the ends have beyond the offset.
fn checked(
    region: &ur_exp_image_copy_region_t,
    (src, dst): (&Side, &Side),
    texel: usize,
) -> Result<Region> {
    let whole = |bytes: u64| -> Result<usize> {
        let bytes = bytes as usize;
        ensure(bytes.is_multiple_of(texel), UR_RESULT_ERROR_INVALID_VALUE)?;
        Ok(bytes / texel)
    };
    let place = |at: &ur_rect_offset_t| -> Result<[usize; 3]> {
        Ok([whole(at.x)?, at.y as usize, at.z as usize])
    };
    let (from, to) = (place(&region.srcOffset)?, place(&region.dstOffset)?);
    let size = &region.copyExtent;
    let asked = [
        whole(size.width)?,
        size.height as usize,
        size.depth as usize,
    ];
    let (from_extent, to_extent) = (src.extent(), dst.extent());
    let mut extent = [0; 3];
    for axis in 0..3 {
        let room = |own: [usize; 3], at: [usize; 3]| own[axis].checked_sub(at[axis]);
        let left = room(from_extent, from).zip(room(to_extent, to));
        let (from, to) = left.ok_or(OUTSIDE)?;
        let most = from.min(to);
        let size = match asked[axis] {
            0 if axis > 0 => most,
            size => size,
        };
        ensure(size > 0 && size <= most, OUTSIDE.code())?;
        extent[axis] = size;
    }
    Ok(Region {
        src: from,
        dst: to,
        extent,
    })
}

/// `urBindlessImagesImageCopyExp`. `INVALID_ARGUMENT` for different channel orders, `INVALID_VALUE` for pixels of
/// different sizes and for numbers that are no image memory, `INVALID_IMAGE_SIZE` for a region outside an end.
pub fn enqueue(
    this: &Object<Queue<Cuda>>,
    (src, dst): (End<'_>, End<'_>),
    region: &ur_exp_image_copy_region_t,
    (flags, types): (ur_exp_image_copy_flags_t, ur_exp_image_copy_input_types_t),
    waits: Handles<'_, Event<Cuda>>,
    event: OutHandle<'_, Event<Cuda>>,
) -> Result<()> {
    let (from_image, to_image) = ends(flags, types)?;
    let same = src.format.channelOrder == dst.format.channelOrder;
    ensure(same, UR_RESULT_ERROR_INVALID_ARGUMENT)?;
    let (texel, other) = (texel_of(src.format)?, texel_of(dst.format)?);
    ensure(texel.bytes == other.bytes, UR_RESULT_ERROR_INVALID_VALUE)?;
    let gpu = this.device().gpu()?;
    let context = this.context();
    let side = |end: &End<'_>, is_image: bool| {
        let found = memory::find(context, end.address);
        match (is_image, found) {
            (true, Some(image)) => {
                image.array()?;
                ensure(image.texel.bytes == texel.bytes, UNKNOWN.code())?;
                let here = Arc::ptr_eq(&image.gpu, &gpu);
                ensure(here, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
                Ok(Side::Image(image))
            }
            (false, None) => Side::linear(end, texel),
            _ => Err(UNKNOWN),
        }
    };
    let (src, dst) = (side(&src, from_image)?, side(&dst, to_image)?);
    let regions = regions(region, (&src, &dst), texel.bytes)?;
    let work = work((&dst, &src), &regions, texel.bytes)?;
    let command = UR_COMMAND_MEM_IMAGE_COPY;
    Queue::enqueue(this, command, waits, work, event, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linear(extent: [usize; 3], row_pitch: usize, slice_pitch: usize) -> Side {
        let memory = Pitched {
            addr: 0x1000,
            row_pitch,
            slice_pitch,
        };
        Side::Linear { memory, extent }
    }

    #[test]
    fn linear_memory_begins_at_the_region() {
        let region = Region {
            src: [1, 2, 1],
            dst: [0, 0, 0],
            extent: [2, 3, 2],
        };
        let (src, dst) = (linear([8, 8, 4], 32, 256), linear([2, 3, 2], 8, 24));
        let Ok(Work::CopyRect { dst, src, region }) = work((&dst, &src), &[region], 4) else {
            panic!("a plain copy");
        };
        assert_eq!((src.addr, dst.addr), (0x1000 + 4 + 2 * 32 + 256, 0x1000));
        assert_eq!(region, [8, 3, 2]);
    }

    #[test]
    fn a_region_lies_inside_both_ends() {
        let (src, dst) = (linear([8, 1, 1], 32, 32), linear([8, 4, 2], 32, 128));
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
            let found = checked(&region, (&src, &dst), 4).map(|region| region.extent);
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
        let found = checked(&cut, (&src, &dst), 4)
            .map(drop)
            .map_err(Error::code);
        assert_eq!(found, Err(UR_RESULT_ERROR_INVALID_VALUE));
    }

    #[test]
    fn directions_and_ends_agree() {
        use super::{
            UR_EXP_IMAGE_COPY_INPUT_TYPES_IMAGE_TO_IMAGE as BOTH,
            UR_EXP_IMAGE_COPY_INPUT_TYPES_IMAGE_TO_MEM as FROM,
            UR_EXP_IMAGE_COPY_INPUT_TYPES_MEM_TO_IMAGE as TO,
            UR_EXP_IMAGE_COPY_INPUT_TYPES_MEM_TO_MEM as NONE,
        };
        let possible = |flags| [TO, FROM, NONE, BOTH].map(|types| ends(flags, types).is_ok());
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

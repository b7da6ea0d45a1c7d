//! Copies between linear memory and image memory, in any combination. No pixel is converted.
//!
//! A copy of several regions is one command. Rows of linear memory lie packed or as its description's pitches say.

use std::sync::Arc;

use ur::abi::*;
use ur::hal::answers::{ImageBox, ImageShape};
use ur::object::{Error, Object, Result, ensure};
use ur::stream::{
    ImageCopyEnd, ImageRegion, Pitched, Queue, Work, image_ends, image_regions, linear_image,
};

use super::memory::{self, ImageMemory, extent};
use crate::LevelZero;
use crate::exec::{List, Native, append_plain};
use crate::image::{between, transfer};

/// A number that is no memory.
const UNKNOWN: Error = Error::new(UR_RESULT_ERROR_INVALID_VALUE);

/// The memory of one end.
#[derive(Clone)]
enum Side {
    Linear {
        memory: Pitched,
        /// Texels along each axis.
        extent: [usize; 3],
    },
    Image(Arc<ImageMemory>),
}

impl Side {
    fn extent(&self) -> [usize; 3] {
        match self {
            Self::Linear { extent, .. } => *extent,
            Self::Image(image) => extent(&image.shape),
        }
    }
}

/// A region of an image as the image's shape counts axes.
fn part(shape: &ImageShape, origin: [usize; 3], region: [usize; 3]) -> ImageBox {
    let axes = |[x, y, z]: [usize; 3]| match shape.has_layered_rows() {
        true => [x, z, y],
        false => [x, y, z],
    };
    ImageBox {
        origin: axes(origin),
        region: axes(region),
    }
}

/// Appends the copy of a region.
fn append(
    list: &List,
    (dst, src): (&Side, &Side),
    region: &ImageRegion,
    texel: usize,
) -> Result<()> {
    let size = region.extent;
    match (dst, src) {
        (Side::Linear { memory: dst, .. }, Side::Linear { memory: src, .. }) => {
            let [width, height, depth] = size;
            let work = Work::CopyRect {
                dst: dst.from_texel(region.dst, texel),
                src: src.from_texel(region.src, texel),
                region: [width * texel, height, depth],
            };
            append_plain(list, work)
        }
        (Side::Image(image), Side::Linear { memory, .. }) => {
            let memory = memory.from_texel(region.src, texel);
            let at = part(&image.shape, region.dst, size);
            transfer(list, (image.native()?.raw, &image.shape), &at, memory, true)
        }
        (Side::Linear { memory, .. }, Side::Image(image)) => {
            let memory = memory.from_texel(region.dst, texel);
            let at = part(&image.shape, region.src, size);
            transfer(
                list,
                (image.native()?.raw, &image.shape),
                &at,
                memory,
                false,
            )
        }
        (Side::Image(dst), Side::Image(src)) => {
            let at = part(&dst.shape, region.dst, size);
            let from = part(&src.shape, region.src, size);
            between(list, (dst.native()?.raw, &at), (src.native()?.raw, &from))
        }
    }
}

/// The work between two ends. A single region between linear memory is the engine's own matter.
fn joined((dst, src): (Side, Side), regions: Vec<ImageRegion>, texel: usize) -> Work<LevelZero> {
    if let (Side::Linear { memory: dst, .. }, Side::Linear { memory: src, .. }, [region]) =
        (&dst, &src, &regions[..])
    {
        let [width, height, depth] = region.extent;
        return Work::CopyRect {
            dst: dst.from_texel(region.dst, texel),
            src: src.from_texel(region.src, texel),
            region: [width * texel, height, depth],
        };
    }
    Work::Native(Native::call(move |list| {
        let mut all = regions.iter();
        all.try_for_each(|region| append(list, (&dst, &src), region, texel))
    }))
}

/// `urBindlessImagesImageCopyExp`. `INVALID_ARGUMENT` for different channel orders, `INVALID_VALUE` for pixels of
/// different sizes, for mipmaps and for numbers that are no image memory, `INVALID_IMAGE_SIZE` for a region outside an end.
pub fn work(
    this: &Object<Queue<LevelZero>>,
    src: ImageCopyEnd<'_>,
    dst: ImageCopyEnd<'_>,
    region: &ur_exp_image_copy_region_t,
    flags: ur_exp_image_copy_flags_t,
    types: ur_exp_image_copy_input_types_t,
) -> Result<Work<LevelZero>> {
    this.device().bindless().ok_or(Error::unsupported())?;
    let (from_image, to_image) = image_ends((&src, &dst), flags, types)?;
    let context = this.context();
    let device = this.device();
    let side = |end: &ImageCopyEnd<'_>, is_image: bool| -> Result<(Side, usize)> {
        let found = memory::find(context, end.address);
        let shape = ImageShape::new(end.format, end.desc)?;
        match (is_image, found) {
            (true, Some(image)) => {
                image.native()?;
                ensure(image.shape.pixel == shape.pixel, UNKNOWN.code())?;
                let here = image.device.raw() == device.raw();
                ensure(here, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
                Ok((Side::Image(image), shape.pixel))
            }
            (false, None) => {
                let extent = extent(&shape);
                let memory = linear_image(end.address, end.desc, extent, shape.pixel)?;
                Ok((Side::Linear { memory, extent }, shape.pixel))
            }
            _ => Err(UNKNOWN),
        }
    };
    let ((src, texel), (dst, other)) = (side(&src, from_image)?, side(&dst, to_image)?);
    ensure(texel == other, UR_RESULT_ERROR_INVALID_VALUE)?;
    let regions = image_regions(region, (src.extent(), dst.extent()), texel)?;
    Ok(joined((dst, src), regions, texel))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_rows_of_a_line_s_array() {
        let format = ur_image_format_t {
            channelOrder: UR_IMAGE_CHANNEL_ORDER_R,
            channelType: UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT8,
        };
        let of = |kind| {
            let desc = ur_image_desc_t {
                r#type: kind,
                width: 8,
                height: 4,
                depth: 3,
                arraySize: 5,
                ..Default::default()
            };
            let shape = ImageShape::new(&format, &desc).expect("a shape");
            let part = part(&shape, [1, 0, 2], [3, 1, 2]);
            (part.origin, part.region)
        };
        assert_eq!(of(UR_MEM_TYPE_IMAGE1D_ARRAY), ([1, 2, 0], [3, 2, 1]));
        assert_eq!(of(UR_MEM_TYPE_IMAGE2D_ARRAY), ([1, 0, 2], [3, 1, 2]));
    }

    #[test]
    fn linear_memory_begins_at_the_region() {
        let region = ImageRegion {
            src: [1, 2, 1],
            dst: [0, 0, 0],
            extent: [2, 3, 2],
        };
        let linear = |extent, row_pitch, slice_pitch| Side::Linear {
            memory: Pitched {
                addr: 0x1000,
                row_pitch,
                slice_pitch,
            },
            extent,
        };
        let (src, dst) = (linear([8, 8, 4], 32, 256), linear([2, 3, 2], 8, 24));
        let Work::CopyRect { dst, src, region } = joined((dst, src), vec![region], 4) else {
            panic!("a plain copy");
        };
        assert_eq!((src.addr, dst.addr), (0x1000 + 4 + 2 * 32 + 256, 0x1000));
        assert_eq!(region, [8, 3, 2]);
    }
}

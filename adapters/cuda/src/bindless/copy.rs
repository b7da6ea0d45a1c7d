//! Copies between linear memory and image memory, in any combination. No pixel is converted.
//!
//! A copy of several regions is one command. Rows of linear memory lie packed or as its description's pitches say.

use std::any::Any;
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Object, Result, ensure};
use ur::stream::{
    ImageCopyEnd, ImageRegion, Pitched, Queue, Work, image_ends, image_regions, linear_image,
};

use super::memory::{self, ImageMemory, extent, texel_of};
use crate::Cuda;
use crate::exec::{BoxEnd, Boxes, Native};
use crate::image::{Shape, Texel};

/// A number that is no memory.
const UNKNOWN: Error = Error::new(UR_RESULT_ERROR_INVALID_VALUE);

/// The memory of one end.
enum Side {
    Linear {
        memory: Pitched,
        /// Texels along each axis.
        extent: [usize; 3],
    },
    Image(Arc<ImageMemory>),
}

impl Side {
    fn linear(end: &ImageCopyEnd<'_>, texel: Texel) -> Result<Self> {
        let extent = extent(&Shape::of(end.desc)?);
        let memory = linear_image(end.address, end.desc, extent, texel.bytes)?;
        Ok(Self::Linear { memory, extent })
    }

    fn extent(&self) -> [usize; 3] {
        match self {
            Self::Linear { extent, .. } => *extent,
            Self::Image(image) => image.extent(),
        }
    }

    /// The end of a box that begins at a texel.
    fn at(&self, at @ [x, y, z]: [usize; 3], texel: usize) -> Result<BoxEnd> {
        Ok(match self {
            Self::Linear { memory, .. } => BoxEnd::Memory(memory.from_texel(at, texel)),
            Self::Image(image) => BoxEnd::Array {
                raw: image.array()?.raw(),
                origin: [x * texel, y, z],
            },
        })
    }
}

/// The work between two ends. A single region between linear memory is the engine's own matter.
fn joined((dst, src): (&Side, &Side), regions: &[ImageRegion], texel: usize) -> Result<Work<Cuda>> {
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

/// `urBindlessImagesImageCopyExp`. `INVALID_ARGUMENT` for different channel orders, `INVALID_VALUE` for pixels of
/// different sizes and for numbers that are no image memory, `INVALID_IMAGE_SIZE` for a region outside an end.
pub fn work(
    this: &Object<Queue<Cuda>>,
    src: ImageCopyEnd<'_>,
    dst: ImageCopyEnd<'_>,
    region: &ur_exp_image_copy_region_t,
    flags: ur_exp_image_copy_flags_t,
    types: ur_exp_image_copy_input_types_t,
) -> Result<Work<Cuda>> {
    let (from_image, to_image) = image_ends((&src, &dst), flags, types)?;
    let (texel, other) = (texel_of(src.format)?, texel_of(dst.format)?);
    ensure(texel.bytes == other.bytes, UR_RESULT_ERROR_INVALID_VALUE)?;
    let gpu = this.device().gpu()?;
    let context = this.context();
    let side = |end: &ImageCopyEnd<'_>, is_image: bool| {
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
    let regions = image_regions(region, (src.extent(), dst.extent()), texel.bytes)?;
    joined((&dst, &src), &regions, texel.bytes)
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
        let region = ImageRegion {
            src: [1, 2, 1],
            dst: [0, 0, 0],
            extent: [2, 3, 2],
        };
        let (src, dst) = (linear([8, 8, 4], 32, 256), linear([2, 3, 2], 8, 24));
        let Ok(Work::CopyRect { dst, src, region }) = joined((&dst, &src), &[region], 4) else {
            panic!("a plain copy");
        };
        assert_eq!((src.addr, dst.addr), (0x1000 + 4 + 2 * 32 + 256, 0x1000));
        assert_eq!(region, [8, 3, 2]);
    }
}

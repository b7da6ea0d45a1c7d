//! Images: the bytes of their pixels, their shape, and the boxes that commands name in them.
//!
//! Axes that an image lacks have one pixel. The layers of an array are its last axis: rows of a 1D array, slices
//! of a 2D array.

use crate::abi::*;
use crate::hal::ImageInfo;
use crate::object::{Error, InfoOut, Result, ensure};

const FORMAT: Error = Error::new(UR_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT);
const DESCRIPTOR: Error = Error::new(UR_RESULT_ERROR_INVALID_IMAGE_FORMAT_DESCRIPTOR);
const SHAPE: Error = Error::new(UR_RESULT_ERROR_INVALID_IMAGE_SIZE);
const OUTSIDE: Error = Error::new(UR_RESULT_ERROR_INVALID_SIZE);

/// The channels that a pixel has in memory. None for an unknown order.
pub fn channels(order: ur_image_channel_order_t) -> Option<usize> {
    Some(match order {
        UR_IMAGE_CHANNEL_ORDER_A
        | UR_IMAGE_CHANNEL_ORDER_R
        | UR_IMAGE_CHANNEL_ORDER_INTENSITY
        | UR_IMAGE_CHANNEL_ORDER_LUMINANCE => 1,
        UR_IMAGE_CHANNEL_ORDER_RG | UR_IMAGE_CHANNEL_ORDER_RA | UR_IMAGE_CHANNEL_ORDER_RX => 2,
        UR_IMAGE_CHANNEL_ORDER_RGB | UR_IMAGE_CHANNEL_ORDER_RGX => 3,
        UR_IMAGE_CHANNEL_ORDER_RGBA
        | UR_IMAGE_CHANNEL_ORDER_BGRA
        | UR_IMAGE_CHANNEL_ORDER_ARGB
        | UR_IMAGE_CHANNEL_ORDER_ABGR
        | UR_IMAGE_CHANNEL_ORDER_RGBX
        | UR_IMAGE_CHANNEL_ORDER_SRGBA => 4,
        _ => return None,
    })
}

/// Bytes of a channel. None for types that pack all channels of a pixel, and for unknown ones.
pub fn channel_bytes(kind: ur_image_channel_type_t) -> Option<usize> {
    Some(match kind {
        UR_IMAGE_CHANNEL_TYPE_SNORM_INT8
        | UR_IMAGE_CHANNEL_TYPE_UNORM_INT8
        | UR_IMAGE_CHANNEL_TYPE_SIGNED_INT8
        | UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT8 => 1,
        UR_IMAGE_CHANNEL_TYPE_SNORM_INT16
        | UR_IMAGE_CHANNEL_TYPE_UNORM_INT16
        | UR_IMAGE_CHANNEL_TYPE_SIGNED_INT16
        | UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT16
        | UR_IMAGE_CHANNEL_TYPE_HALF_FLOAT => 2,
        UR_IMAGE_CHANNEL_TYPE_SIGNED_INT32
        | UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT32
        | UR_IMAGE_CHANNEL_TYPE_FLOAT => 4,
        _ => return None,
    })
}

/// Bytes of a pixel. `UNSUPPORTED_IMAGE_FORMAT` for an unknown format.
pub fn pixel_bytes(format: &ur_image_format_t) -> Result<usize> {
    let channels = channels(format.channelOrder).ok_or(FORMAT)?;
    match format.channelType {
        UR_IMAGE_CHANNEL_TYPE_UNORM_SHORT_565 | UR_IMAGE_CHANNEL_TYPE_UNORM_SHORT_555 => Ok(2),
        UR_IMAGE_CHANNEL_TYPE_INT_101010 => Ok(4),
        kind => Ok(channels * channel_bytes(kind).ok_or(FORMAT)?),
    }
}

/// The shape of an image, and where its pixels lie in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageShape {
    pub kind: ur_mem_type_t,
    /// Pixels along each axis.
    pub extent: [usize; 3],
    /// Bytes of a pixel.
    pub pixel: usize,
}

/// A box of an image, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageBox {
    pub origin: [usize; 3],
    pub region: [usize; 3],
}

impl ImageBox {
    /// Whether a pixel lies in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        (0..3).all(|axis| {
            let (one, two) = (self.origin[axis], other.origin[axis]);
            one < two + other.region[axis] && two < one + self.region[axis]
        })
    }
}

/// Bytes from row to row and from slice to slice, or layer to layer, of an image in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImagePitch {
    pub row: usize,
    pub slice: usize,
}

impl ImageShape {
    /// The shape that a descriptor names. `INVALID_IMAGE_SIZE` if an axis has no pixel or there are too many,
    /// `INVALID_IMAGE_FORMAT_DESCRIPTOR` for a kind that is not plain.
    pub fn new(format: &ur_image_format_t, desc: &ur_image_desc_t) -> Result<Self> {
        let extent = match desc.r#type {
            UR_MEM_TYPE_IMAGE1D => [desc.width, 1, 1],
            UR_MEM_TYPE_IMAGE2D => [desc.width, desc.height, 1],
            UR_MEM_TYPE_IMAGE3D => [desc.width, desc.height, desc.depth],
            UR_MEM_TYPE_IMAGE1D_ARRAY => [desc.width, desc.arraySize, 1],
            UR_MEM_TYPE_IMAGE2D_ARRAY => [desc.width, desc.height, desc.arraySize],
            _ => return Err(DESCRIPTOR),
        };
        let pixel = pixel_bytes(format)?;
        let shape = Self {
            kind: desc.r#type,
            extent,
            pixel,
        };
        ensure(extent.iter().all(|size| *size > 0), SHAPE.code())?;
        shape.checked_bytes().ok_or(SHAPE)?;
        Ok(shape)
    }

    fn checked_bytes(&self) -> Option<usize> {
        let mut sizes = self.extent.iter();
        let bytes = sizes.try_fold(self.pixel, |all, size| all.checked_mul(*size))?;
        (bytes <= isize::MAX as usize).then_some(bytes)
    }

    /// Bytes of all pixels, packed.
    pub fn bytes(&self) -> usize {
        self.extent.iter().product::<usize>() * self.pixel
    }

    /// The axis that counts layers. None for an image without layers.
    fn layers(&self) -> Option<usize> {
        match self.kind {
            UR_MEM_TYPE_IMAGE1D_ARRAY => Some(1),
            UR_MEM_TYPE_IMAGE2D_ARRAY => Some(2),
            _ => None,
        }
    }

    /// Pixels along the longest axis, layers aside.
    pub fn longest(&self) -> usize {
        let axes = (0..3).filter(|axis| self.layers() != Some(*axis));
        axes.map(|axis| self.extent[axis]).max().unwrap_or(1)
    }

    /// The shape of a mip level: of each axis half the pixels for each level before it, and at least one. Layers stay as
    /// many.
    pub fn level(&self, level: u32) -> Self {
        let mut own = *self;
        for axis in (0..3).filter(|axis| self.layers() != Some(*axis)) {
            let size = self.extent[axis].checked_shr(level);
            own.extent[axis] = size.unwrap_or(0).max(1);
        }
        own
    }

    /// Whether the second axis counts layers.
    pub fn has_layered_rows(&self) -> bool {
        self.kind == UR_MEM_TYPE_IMAGE1D_ARRAY
    }

    /// Whether slices lie one behind another: the image is 3D or an array.
    pub fn has_slices(&self) -> bool {
        !matches!(self.kind, UR_MEM_TYPE_IMAGE1D | UR_MEM_TYPE_IMAGE2D)
    }

    /// The pitches of the host memory that an image is made with. `INVALID_IMAGE_FORMAT_DESCRIPTOR` as for
    /// [`ImageShape::pitch`].
    pub fn host_pitch(&self, desc: &ur_image_desc_t) -> Result<ImagePitch> {
        let pitch = self.pitch(&self.whole(), desc.rowPitch, desc.slicePitch);
        pitch.map_err(|_| DESCRIPTOR)
    }

    /// All pixels.
    pub fn whole(&self) -> ImageBox {
        ImageBox {
            origin: [0; 3],
            region: self.extent,
        }
    }

    /// `INVALID_IMAGE_SIZE` if a device's images are smaller: `max` has the most pixels along each axis.
    pub fn check_within(&self, max: [usize; 3]) -> Result<()> {
        let mut axes = self.extent.iter().zip(max);
        ensure(axes.all(|(own, max)| *own <= max), SHAPE.code())
    }

    /// The pitches of all pixels, packed.
    pub fn packed(&self) -> ImagePitch {
        let [width, second, _] = self.extent;
        let row = width * self.pixel;
        let rows = if self.has_layered_rows() { 1 } else { second };
        let slice = row * rows;
        ImagePitch { row, slice }
    }

    /// A box of the image. `INVALID_SIZE` if it is empty or goes beyond the image.
    pub fn part(&self, origin: ur_rect_offset_t, region: ur_rect_region_t) -> Result<ImageBox> {
        let size = |value: u64| usize::try_from(value).map_err(|_| OUTSIDE);
        let found = ImageBox {
            origin: [size(origin.x)?, size(origin.y)?, size(origin.z)?],
            region: [
                size(region.width)?,
                size(region.height)?,
                size(region.depth)?,
            ],
        };
        for axis in 0..3 {
            let (first, count) = (found.origin[axis], found.region[axis]);
            let end = first.checked_add(count);
            let inside = end.is_some_and(|end| end <= self.extent[axis]);
            ensure(count > 0 && inside, OUTSIDE.code())?;
        }
        Ok(found)
    }

    /// The pitches of a box in host memory, where 0 stands for packed. `INVALID_SIZE` if rows or slices would
    /// overlap. The slice pitch of an image without slices is ignored: `libsycl` gives one.
    pub fn pitch(&self, part: &ImageBox, row: usize, slice: usize) -> Result<ImagePitch> {
        let [width, height, depth] = part.region;
        let packed = width.checked_mul(self.pixel).ok_or(OUTSIDE)?;
        let row = if row == 0 { packed } else { row };
        ensure(row >= packed, OUTSIDE.code())?;
        let layers = self.has_layered_rows();
        let rows = if layers { 1 } else { height };
        let least = row.checked_mul(rows).ok_or(OUTSIDE)?;
        let slice = match slice {
            pitch if pitch > 0 && self.has_slices() => pitch,
            _ => least,
        };
        ensure(slice >= least, OUTSIDE.code())?;
        let slices = if layers { height } else { depth };
        // All of the box has addresses.
        let end = slice.checked_mul(slices);
        ensure(
            end.is_some_and(|end| end <= isize::MAX as usize),
            OUTSIDE.code(),
        )?;
        Ok(ImagePitch { row, slice })
    }
}

/// One end of a copy between images.
#[derive(Clone, Copy)]
pub struct ImageEnd<'a> {
    pub shape: &'a ImageShape,
    pub format: &'a ur_image_format_t,
    pub origin: ur_rect_offset_t,
}

/// The boxes of a copy, first that which is written. `INVALID_MEM_OBJECT` for two formats, `INVALID_SIZE` as for
/// [`ImageShape::part`], `OVERLAPPING_REGIONS` if both ends are in one image and share a pixel.
pub fn image_boxes(
    to: ImageEnd<'_>,
    from: ImageEnd<'_>,
    region: ur_rect_region_t,
    is_one_image: bool,
) -> Result<(ImageBox, ImageBox)> {
    let format = |end: ImageEnd<'_>| (end.format.channelOrder, end.format.channelType);
    ensure(
        format(to) == format(from),
        UR_RESULT_ERROR_INVALID_MEM_OBJECT,
    )?;
    let source = from.shape.part(from.origin, region)?;
    let target = to.shape.part(to.origin, region)?;
    let apart = !is_one_image || !source.overlaps(&target);
    ensure(apart, UR_RESULT_ERROR_OVERLAPPING_REGIONS)?;
    Ok((target, source))
}

/// `urMemImageGetInfo` of an image without mipmaps and multisampling. `pitch` is that of host memory.
pub fn image_info(
    shape: &ImageShape,
    format: &ur_image_format_t,
    pitch: ImagePitch,
    what: ImageInfo,
    out: InfoOut<'_>,
) -> Result<()> {
    let [width, second, third] = shape.extent;
    let (height, depth, layers) = match shape.kind {
        UR_MEM_TYPE_IMAGE2D => (second, 0, 0),
        UR_MEM_TYPE_IMAGE3D => (second, third, 0),
        UR_MEM_TYPE_IMAGE1D_ARRAY => (0, 0, second),
        UR_MEM_TYPE_IMAGE2D_ARRAY => (second, 0, third),
        _ => (0, 0, 0),
    };
    match what {
        ImageInfo::Format => out.value(*format),
        ImageInfo::ElementSize => out.value(shape.pixel),
        ImageInfo::RowPitch => out.value(pitch.row),
        ImageInfo::SlicePitch => out.value(if shape.has_slices() { pitch.slice } else { 0 }),
        ImageInfo::Width => out.value(width),
        ImageInfo::Height => out.value(height),
        ImageInfo::Depth => out.value(depth),
        ImageInfo::ArraySize => out.value(layers),
        ImageInfo::NumMipLevels | ImageInfo::NumSamples => out.value(0u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RGBA8: ur_image_format_t = ur_image_format_t {
        channelOrder: UR_IMAGE_CHANNEL_ORDER_RGBA,
        channelType: UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT8,
    };

    fn shape(kind: ur_mem_type_t) -> Result<ImageShape> {
        let desc = ur_image_desc_t {
            r#type: kind,
            width: 7,
            height: 5,
            depth: 3,
            arraySize: 2,
            ..Default::default()
        };
        ImageShape::new(&RGBA8, &desc)
    }

    fn offset([x, y, z]: [u64; 3]) -> ur_rect_offset_t {
        ur_rect_offset_t { x, y, z }
    }

    fn region([width, height, depth]: [u64; 3]) -> ur_rect_region_t {
        ur_rect_region_t {
            width,
            height,
            depth,
        }
    }

    #[test]
    fn pixels_have_bytes() {
        let of = |order, kind| {
            pixel_bytes(&ur_image_format_t {
                channelOrder: order,
                channelType: kind,
            })
        };
        assert_eq!(
            of(UR_IMAGE_CHANNEL_ORDER_RG, UR_IMAGE_CHANNEL_TYPE_HALF_FLOAT),
            Ok(4)
        );
        assert_eq!(
            of(UR_IMAGE_CHANNEL_ORDER_RGBA, UR_IMAGE_CHANNEL_TYPE_FLOAT),
            Ok(16)
        );
        assert_eq!(
            of(
                UR_IMAGE_CHANNEL_ORDER_RGB,
                UR_IMAGE_CHANNEL_TYPE_UNORM_SHORT_565
            ),
            Ok(2)
        );
        let unknown = ur_image_channel_type_t(99);
        assert_eq!(of(UR_IMAGE_CHANNEL_ORDER_R, unknown), Err(FORMAT));
    }

    #[test]
    fn an_axis_that_a_kind_lacks_has_one_pixel() -> Result<()> {
        assert_eq!(shape(UR_MEM_TYPE_IMAGE1D)?.extent, [7, 1, 1]);
        assert_eq!(shape(UR_MEM_TYPE_IMAGE2D)?.extent, [7, 5, 1]);
        assert_eq!(shape(UR_MEM_TYPE_IMAGE3D)?.extent, [7, 5, 3]);
        assert_eq!(shape(UR_MEM_TYPE_IMAGE1D_ARRAY)?.extent, [7, 2, 1]);
        assert_eq!(shape(UR_MEM_TYPE_IMAGE2D_ARRAY)?.extent, [7, 5, 2]);
        assert_eq!(shape(UR_MEM_TYPE_IMAGE3D)?.bytes(), 7 * 5 * 3 * 4);
        assert_eq!(shape(UR_MEM_TYPE_IMAGE_CUBEMAP_EXP), Err(DESCRIPTOR));
        let huge = ur_image_desc_t {
            r#type: UR_MEM_TYPE_IMAGE2D,
            width: usize::MAX / 8,
            height: 9,
            ..Default::default()
        };
        assert_eq!(ImageShape::new(&RGBA8, &huge), Err(SHAPE));
        let empty = ur_image_desc_t { height: 0, ..huge };
        assert_eq!(ImageShape::new(&RGBA8, &empty), Err(SHAPE));
        Ok(())
    }

    #[test]
    fn levels_halve_axes_and_keep_layers() -> Result<()> {
        // 7, 5 and 3 pixels, or 2 layers.
        let of = |kind, level| shape(kind).map(|own| own.level(level).extent);
        assert_eq!(of(UR_MEM_TYPE_IMAGE3D, 0)?, [7, 5, 3]);
        assert_eq!(of(UR_MEM_TYPE_IMAGE3D, 1)?, [3, 2, 1]);
        assert_eq!(of(UR_MEM_TYPE_IMAGE2D, 2)?, [1, 1, 1]);
        assert_eq!(of(UR_MEM_TYPE_IMAGE1D, 1)?, [3, 1, 1]);
        assert_eq!(of(UR_MEM_TYPE_IMAGE1D_ARRAY, 2)?, [1, 2, 1]);
        assert_eq!(of(UR_MEM_TYPE_IMAGE2D_ARRAY, 1)?, [3, 2, 2]);
        assert_eq!(of(UR_MEM_TYPE_IMAGE2D_ARRAY, 99)?, [1, 1, 2]);
        let layered = ImageShape {
            extent: [2, 64, 1],
            ..shape(UR_MEM_TYPE_IMAGE1D_ARRAY)?
        };
        assert_eq!(layered.longest(), 2, "layers are no pixels of an axis");
        assert_eq!(shape(UR_MEM_TYPE_IMAGE2D_ARRAY)?.longest(), 7);
        Ok(())
    }

    #[test]
    fn a_box_lies_in_the_image() -> Result<()> {
        let image = shape(UR_MEM_TYPE_IMAGE3D)?;
        let part = |from, size| image.part(offset(from), region(size));
        assert_eq!(part([0; 3], [7, 5, 3]), Ok(image.whole()));
        assert!(part([6, 4, 2], [1, 1, 1]).is_ok());
        for (from, size) in [
            ([1, 0, 0], [7, 5, 3]),
            ([0, 0, 3], [1, 1, 1]),
            ([0, 0, 0], [1, 0, 1]),
            ([u64::MAX, 0, 0], [1, 1, 1]),
        ] {
            assert_eq!(part(from, size), Err(OUTSIDE), "{from:?} {size:?}");
        }
        let flat = shape(UR_MEM_TYPE_IMAGE2D)?;
        assert_eq!(
            flat.part(offset([0; 3]), region([1, 1, 2])),
            Err(OUTSIDE),
            "2D images have one slice"
        );
        Ok(())
    }

    #[test]
    fn an_image_is_within_limits() -> Result<()> {
        let image = shape(UR_MEM_TYPE_IMAGE3D)?;
        assert_eq!(image.check_within([7, 5, 3]), Ok(()));
        assert_eq!(image.check_within([7, 4, 9]), Err(SHAPE));
        Ok(())
    }

    #[test]
    fn packed_pixels_have_the_pitches_of_their_kind() -> Result<()> {
        for (kind, row, slice) in [
            (UR_MEM_TYPE_IMAGE1D, 28, 28),
            (UR_MEM_TYPE_IMAGE1D_ARRAY, 28, 28),
            (UR_MEM_TYPE_IMAGE2D, 28, 140),
            (UR_MEM_TYPE_IMAGE2D_ARRAY, 28, 140),
        ] {
            let image = shape(kind)?;
            assert_eq!(image.packed(), ImagePitch { row, slice });
            assert_eq!(image.pitch(&image.whole(), 0, 0), Ok(image.packed()));
        }
        Ok(())
    }

    #[test]
    fn a_copy_is_of_one_format_and_its_boxes_are_apart() -> Result<()> {
        let image = shape(UR_MEM_TYPE_IMAGE2D)?;
        let other = ur_image_format_t {
            channelType: UR_IMAGE_CHANNEL_TYPE_FLOAT,
            ..RGBA8
        };
        let end = |format, from| ImageEnd {
            shape: &image,
            format,
            origin: offset(from),
        };
        let boxes = |to, is_one| {
            let from = end(&RGBA8, [0; 3]);
            image_boxes(end(&RGBA8, to), from, region([2, 2, 1]), is_one)
        };
        let (target, source) = boxes([1, 1, 0], false)?;
        assert_eq!((target.origin, source.origin), ([1, 1, 0], [0; 3]));
        let code = |found: Result<_>| {
            found
                .map(|_: (ImageBox, ImageBox)| ())
                .map_err(|e| e.code())
        };
        let overlap = Err(UR_RESULT_ERROR_OVERLAPPING_REGIONS);
        assert_eq!(code(boxes([1, 1, 0], true)), overlap);
        assert_eq!(code(boxes([2, 2, 0], true)), Ok(()));
        assert_eq!(code(boxes([6, 4, 0], true)), Err(OUTSIDE.code()));
        let mixed = image_boxes(
            end(&RGBA8, [0; 3]),
            end(&other, [0; 3]),
            region([1; 3]),
            false,
        );
        assert_eq!(code(mixed), Err(UR_RESULT_ERROR_INVALID_MEM_OBJECT));
        Ok(())
    }

    #[test]
    fn boxes_overlap_where_all_axes_do() {
        let part = |origin, region| ImageBox { origin, region };
        let one = part([2, 2, 0], [3, 3, 1]);
        assert!(one.overlaps(&part([4, 4, 0], [1, 1, 1])));
        assert!(!one.overlaps(&part([5, 2, 0], [3, 3, 1])));
        assert!(!one.overlaps(&part([2, 2, 1], [3, 3, 1])));
    }

    #[test]
    fn pitches_are_packed_or_larger() -> Result<()> {
        let image = shape(UR_MEM_TYPE_IMAGE3D)?;
        let all = image.whole();
        let pitch = |row, slice| {
            image
                .pitch(&all, row, slice)
                .map(|own| (own.row, own.slice))
        };
        assert_eq!(pitch(0, 0), Ok((28, 140)));
        assert_eq!(pitch(32, 0), Ok((32, 160)));
        assert_eq!(pitch(32, 200), Ok((32, 200)));
        for (row, slice) in [(27, 0), (32, 159), (usize::MAX, 0), (28, usize::MAX)] {
            assert_eq!(pitch(row, slice), Err(OUTSIDE), "{row} {slice}");
        }
        let flat = shape(UR_MEM_TYPE_IMAGE2D)?;
        let pitch = flat.pitch(&flat.whole(), 32, 32)?;
        assert_eq!((pitch.row, pitch.slice), (32, 160));
        // The rows of a 1D array are its layers.
        let lines = shape(UR_MEM_TYPE_IMAGE1D_ARRAY)?;
        let pitch = lines.pitch(&lines.whole(), 28, 64)?;
        assert_eq!((pitch.row, pitch.slice), (28, 64));
        Ok(())
    }
}

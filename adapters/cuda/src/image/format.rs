//! Formats and shapes as the driver describes them.

use std::ffi::c_uint;

use ur::abi::*;
use ur::hal::answers::{channel_bytes, channels};
use ur::object::{Error, Result, ensure};

use crate::cu::sys::CUarray_format::*;
use crate::cu::sys::*;

/// A texel: a format of each channel, and their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Texel {
    pub format: CUarray_format,
    pub channels: c_uint,
    /// Bytes of all channels.
    pub bytes: usize,
    /// Whether a texture reads its integers as numbers from 0 or -1 to 1.
    pub is_normalized: bool,
}

const UNKNOWN: Error = Error::new(UR_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT);

#[rustfmt::skip]
const TYPES: [(ur_image_channel_type_t, CUarray_format, bool); 12] = [
    (UR_IMAGE_CHANNEL_TYPE_SNORM_INT8, CU_AD_FORMAT_SIGNED_INT8, true),
    (UR_IMAGE_CHANNEL_TYPE_SNORM_INT16, CU_AD_FORMAT_SIGNED_INT16, true),
    (UR_IMAGE_CHANNEL_TYPE_UNORM_INT8, CU_AD_FORMAT_UNSIGNED_INT8, true),
    (UR_IMAGE_CHANNEL_TYPE_UNORM_INT16, CU_AD_FORMAT_UNSIGNED_INT16, true),
    (UR_IMAGE_CHANNEL_TYPE_SIGNED_INT8, CU_AD_FORMAT_SIGNED_INT8, false),
    (UR_IMAGE_CHANNEL_TYPE_SIGNED_INT16, CU_AD_FORMAT_SIGNED_INT16, false),
    (UR_IMAGE_CHANNEL_TYPE_SIGNED_INT32, CU_AD_FORMAT_SIGNED_INT32, false),
    (UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT8, CU_AD_FORMAT_UNSIGNED_INT8, false),
    (UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT16, CU_AD_FORMAT_UNSIGNED_INT16, false),
    (UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT32, CU_AD_FORMAT_UNSIGNED_INT32, false),
    (UR_IMAGE_CHANNEL_TYPE_HALF_FLOAT, CU_AD_FORMAT_HALF, false),
    (UR_IMAGE_CHANNEL_TYPE_FLOAT, CU_AD_FORMAT_FLOAT, false),
];

impl Texel {
    /// `UNSUPPORTED_IMAGE_FORMAT` for types that pack channels, for three channels, and for unknown formats.
    /// The order of four channels is not part of a texel: the driver's first channel is the first in memory.
    pub fn of(format: &ur_image_format_t) -> Result<Self> {
        let channels = channels(format.channelOrder).ok_or(UNKNOWN)?;
        ensure(channels != 3, UNKNOWN.code())?;
        let kind = format.channelType;
        let found = TYPES.iter().find(|(own, ..)| *own == kind);
        let (_, native, is_normalized) = *found.ok_or(UNKNOWN)?;
        Ok(Self {
            format: native,
            channels: channels as c_uint,
            bytes: channels * channel_bytes(kind).ok_or(UNKNOWN)?,
            is_normalized,
        })
    }
}

/// The sizes of an array in texels, and its kind. The driver tells 1D, 2D and 3D arrays by sizes of 0, and counts
/// layers and the faces of a cube as depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    /// `CUDA_ARRAY3D_*` of the kind.
    pub flags: c_uint,
}

/// Faces of a cube.
const FACES: usize = 6;

impl Shape {
    /// `INVALID_IMAGE_FORMAT_DESCRIPTOR` for an unknown kind, `INVALID_IMAGE_SIZE` if a size of the kind is 0.
    pub fn of(desc: &ur_image_desc_t) -> Result<Self> {
        let (width, height) = (desc.width, desc.height);
        let layers = desc.arraySize;
        let (height, depth, flags) = match desc.r#type {
            UR_MEM_TYPE_IMAGE1D => (None, None, 0),
            UR_MEM_TYPE_IMAGE2D => (Some(height), None, 0),
            UR_MEM_TYPE_IMAGE3D => (Some(height), Some(desc.depth), 0),
            UR_MEM_TYPE_IMAGE1D_ARRAY => (None, Some(layers), CUDA_ARRAY3D_LAYERED),
            UR_MEM_TYPE_IMAGE2D_ARRAY => (Some(height), Some(layers), CUDA_ARRAY3D_LAYERED),
            UR_MEM_TYPE_IMAGE_CUBEMAP_EXP if layers > FACES => {
                let flags = CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED;
                (Some(height), Some(layers), flags)
            }
            UR_MEM_TYPE_IMAGE_CUBEMAP_EXP => (Some(height), Some(FACES), CUDA_ARRAY3D_CUBEMAP),
            UR_MEM_TYPE_IMAGE_GATHER_EXP => (Some(height), None, CUDA_ARRAY3D_TEXTURE_GATHER),
            _ => return Err(Error::new(UR_RESULT_ERROR_INVALID_IMAGE_FORMAT_DESCRIPTOR)),
        };
        let sizes = [Some(width), height, depth];
        let given = sizes.iter().flatten().all(|size| *size > 0);
        ensure(given, UR_RESULT_ERROR_INVALID_IMAGE_SIZE)?;
        Ok(Self {
            width,
            height: height.unwrap_or(0),
            depth: depth.unwrap_or(0),
            flags,
        })
    }

    /// The driver's description of an array of this shape. `flags` are those that the kind does not imply.
    pub fn described(&self, texel: Texel, flags: c_uint) -> CUDA_ARRAY3D_DESCRIPTOR {
        CUDA_ARRAY3D_DESCRIPTOR {
            Width: self.width,
            Height: self.height,
            Depth: self.depth,
            Format: texel.format,
            NumChannels: texel.channels,
            Flags: self.flags | flags,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_the_driver_s_formats_and_sizes() {
        for (kind, format, is_normalized) in TYPES {
            let given = ur_image_format_t {
                channelOrder: UR_IMAGE_CHANNEL_ORDER_RG,
                channelType: kind,
            };
            let texel = Texel::of(&given).expect("a format");
            assert_eq!((texel.format, texel.channels), (format, 2));
            assert_eq!(texel.is_normalized, is_normalized);
            let bytes = match format as u32 {
                1 | 8 => 2,
                2 | 9 | 16 => 4,
                _ => 8,
            };
            assert_eq!(texel.bytes, bytes, "{kind:?}");
        }
        let packed = ur_image_format_t {
            channelOrder: UR_IMAGE_CHANNEL_ORDER_RGB,
            channelType: UR_IMAGE_CHANNEL_TYPE_UNORM_INT8,
        };
        assert_eq!(Texel::of(&packed), Err(UNKNOWN));
    }

    #[test]
    fn sizes_that_a_kind_lacks_are_0() {
        let desc = |kind| ur_image_desc_t {
            r#type: kind,
            width: 9,
            height: 8,
            depth: 7,
            arraySize: 12,
            ..Default::default()
        };
        let sizes = |kind| {
            let shape = Shape::of(&desc(kind)).expect("a shape");
            ([shape.width, shape.height, shape.depth], shape.flags)
        };
        assert_eq!(sizes(UR_MEM_TYPE_IMAGE1D), ([9, 0, 0], 0));
        assert_eq!(sizes(UR_MEM_TYPE_IMAGE2D), ([9, 8, 0], 0));
        assert_eq!(sizes(UR_MEM_TYPE_IMAGE3D), ([9, 8, 7], 0));
        assert_eq!(sizes(UR_MEM_TYPE_IMAGE1D_ARRAY), ([9, 0, 12], 1));
        assert_eq!(sizes(UR_MEM_TYPE_IMAGE2D_ARRAY), ([9, 8, 12], 1));
        assert_eq!(sizes(UR_MEM_TYPE_IMAGE_CUBEMAP_EXP), ([9, 8, 12], 5));
        let none = ur_image_desc_t {
            depth: 0,
            ..desc(UR_MEM_TYPE_IMAGE3D)
        };
        assert!(Shape::of(&none).is_err());
    }
}

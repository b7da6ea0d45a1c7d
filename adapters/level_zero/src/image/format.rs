//! Formats and descriptions of images as the driver has them.

use ur::abi::*;
use ur::object::{Error, Result, ensure};

use crate::lz::*;

const UNKNOWN: Error = Error::new(UR_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT);
const DESCRIPTOR: Error = Error::new(UR_RESULT_ERROR_INVALID_IMAGE_FORMAT_DESCRIPTOR);
const SHAPE: Error = Error::new(UR_RESULT_ERROR_INVALID_IMAGE_SIZE);

/// A channel's type: the driver's, and its bits as an index of [`LAYOUTS`].
#[rustfmt::skip]
const TYPES: [(ur_image_channel_type_t, ze_image_format_type_t, usize); 12] = [
    (UR_IMAGE_CHANNEL_TYPE_SNORM_INT8, ZE_IMAGE_FORMAT_TYPE_SNORM, 0),
    (UR_IMAGE_CHANNEL_TYPE_SNORM_INT16, ZE_IMAGE_FORMAT_TYPE_SNORM, 1),
    (UR_IMAGE_CHANNEL_TYPE_UNORM_INT8, ZE_IMAGE_FORMAT_TYPE_UNORM, 0),
    (UR_IMAGE_CHANNEL_TYPE_UNORM_INT16, ZE_IMAGE_FORMAT_TYPE_UNORM, 1),
    (UR_IMAGE_CHANNEL_TYPE_SIGNED_INT8, ZE_IMAGE_FORMAT_TYPE_SINT, 0),
    (UR_IMAGE_CHANNEL_TYPE_SIGNED_INT16, ZE_IMAGE_FORMAT_TYPE_SINT, 1),
    (UR_IMAGE_CHANNEL_TYPE_SIGNED_INT32, ZE_IMAGE_FORMAT_TYPE_SINT, 2),
    (UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT8, ZE_IMAGE_FORMAT_TYPE_UINT, 0),
    (UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT16, ZE_IMAGE_FORMAT_TYPE_UINT, 1),
    (UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT32, ZE_IMAGE_FORMAT_TYPE_UINT, 2),
    (UR_IMAGE_CHANNEL_TYPE_HALF_FLOAT, ZE_IMAGE_FORMAT_TYPE_FLOAT, 1),
    (UR_IMAGE_CHANNEL_TYPE_FLOAT, ZE_IMAGE_FORMAT_TYPE_FLOAT, 2),
];

/// Layouts of 1 to 4 channels, of 8, 16 and 32 bits.
#[rustfmt::skip]
const LAYOUTS: [[ze_image_format_layout_t; 3]; 4] = [
    [ZE_IMAGE_FORMAT_LAYOUT_8, ZE_IMAGE_FORMAT_LAYOUT_16, ZE_IMAGE_FORMAT_LAYOUT_32],
    [ZE_IMAGE_FORMAT_LAYOUT_8_8, ZE_IMAGE_FORMAT_LAYOUT_16_16, ZE_IMAGE_FORMAT_LAYOUT_32_32],
    [ZE_IMAGE_FORMAT_LAYOUT_8_8_8, ZE_IMAGE_FORMAT_LAYOUT_16_16_16, ZE_IMAGE_FORMAT_LAYOUT_32_32_32],
    [ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8, ZE_IMAGE_FORMAT_LAYOUT_16_16_16_16, ZE_IMAGE_FORMAT_LAYOUT_32_32_32_32],
];

const R: ze_image_format_swizzle_t = ZE_IMAGE_FORMAT_SWIZZLE_R;
const G: ze_image_format_swizzle_t = ZE_IMAGE_FORMAT_SWIZZLE_G;
const B: ze_image_format_swizzle_t = ZE_IMAGE_FORMAT_SWIZZLE_B;
const A: ze_image_format_swizzle_t = ZE_IMAGE_FORMAT_SWIZZLE_A;
const ZERO: ze_image_format_swizzle_t = ZE_IMAGE_FORMAT_SWIZZLE_0;
const ONE: ze_image_format_swizzle_t = ZE_IMAGE_FORMAT_SWIZZLE_1;

/// Orders of channels: their number in memory, and the channel of memory that red, green, blue and alpha are read from,
/// where the first is R. Orders with an unused channel, ARGB and sRGB have no such description that drivers agree on.
#[rustfmt::skip]
const ORDERS: [(ur_image_channel_order_t, usize, [ze_image_format_swizzle_t; 4]); 10] = [
    (UR_IMAGE_CHANNEL_ORDER_R, 1, [R, ZERO, ZERO, ONE]),
    (UR_IMAGE_CHANNEL_ORDER_A, 1, [ZERO, ZERO, ZERO, R]),
    (UR_IMAGE_CHANNEL_ORDER_INTENSITY, 1, [R, R, R, R]),
    (UR_IMAGE_CHANNEL_ORDER_LUMINANCE, 1, [R, R, R, ONE]),
    (UR_IMAGE_CHANNEL_ORDER_RG, 2, [R, G, ZERO, ONE]),
    (UR_IMAGE_CHANNEL_ORDER_RA, 2, [R, ZERO, ZERO, G]),
    (UR_IMAGE_CHANNEL_ORDER_RGB, 3, [R, G, B, ONE]),
    (UR_IMAGE_CHANNEL_ORDER_RGBA, 4, [R, G, B, A]),
    (UR_IMAGE_CHANNEL_ORDER_BGRA, 4, [B, G, R, A]),
    (UR_IMAGE_CHANNEL_ORDER_ABGR, 4, [A, B, G, R]),
];

/// The driver's format. `UNSUPPORTED_IMAGE_FORMAT` for types that pack channels, and for orders that the driver has no
/// description of. A device may refuse a format later.
pub fn native_format(format: &ur_image_format_t) -> Result<ze_image_format_t> {
    let kind = TYPES.iter().find(|(own, ..)| *own == format.channelType);
    let order = ORDERS.iter().find(|(own, ..)| *own == format.channelOrder);
    let (_, kind, bits) = *kind.ok_or(UNKNOWN)?;
    let (_, channels, [x, y, z, w]) = *order.ok_or(UNKNOWN)?;
    Ok(ze_image_format_t {
        layout: LAYOUTS[channels - 1][bits],
        r#type: kind,
        x,
        y,
        z,
        w,
    })
}

/// The driver's description. Kernels write the image if `is_written`. `INVALID_IMAGE_FORMAT_DESCRIPTOR` for an unknown
/// kind, `INVALID_IMAGE_SIZE` for sizes that no driver has.
pub fn described(
    format: &ur_image_format_t,
    desc: &ur_image_desc_t,
    is_written: bool,
) -> Result<ze_image_desc_t> {
    let (kind, height, depth, layers) = match desc.r#type {
        UR_MEM_TYPE_IMAGE1D => (ZE_IMAGE_TYPE_1D, 1, 1, 0),
        UR_MEM_TYPE_IMAGE2D => (ZE_IMAGE_TYPE_2D, desc.height, 1, 0),
        UR_MEM_TYPE_IMAGE3D => (ZE_IMAGE_TYPE_3D, desc.height, desc.depth, 0),
        UR_MEM_TYPE_IMAGE1D_ARRAY => (ZE_IMAGE_TYPE_1DARRAY, 1, 1, desc.arraySize),
        UR_MEM_TYPE_IMAGE2D_ARRAY => (ZE_IMAGE_TYPE_2DARRAY, desc.height, 1, desc.arraySize),
        _ => return Err(DESCRIPTOR),
    };
    let has_layers = matches!(kind, ZE_IMAGE_TYPE_1DARRAY | ZE_IMAGE_TYPE_2DARRAY);
    let given = desc.width > 0 && height > 0 && depth > 0 && (layers > 0 || !has_layers);
    ensure(given, SHAPE.code())?;
    let size = |value: usize| u32::try_from(value).map_err(|_| SHAPE);
    Ok(ze_image_desc_t {
        flags: match is_written {
            true => ZE_IMAGE_FLAG_KERNEL_WRITE,
            false => 0,
        },
        r#type: kind,
        format: native_format(format)?,
        width: desc.width as u64,
        height: size(height)?,
        depth: size(depth)?,
        arraylevels: size(layers)?,
        miplevels: desc.numMipLevel,
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ur::hal::answers::{channel_bytes, channels};

    #[test]
    fn layouts_have_the_channels_and_bits_of_formats() {
        for (order, count, swizzles) in ORDERS {
            assert_eq!(channels(order), Some(count));
            let reads = |channel| swizzles.contains(&channel);
            assert_eq!(reads(A), count == 4, "{order:?}");
            for (kind, native, _) in TYPES {
                let format = native_format(&ur_image_format_t {
                    channelOrder: order,
                    channelType: kind,
                });
                let format = format.expect("a format");
                assert_eq!(format.r#type, native);
                let name = format!("{:?}", format.layout);
                let bits = format!("_{}", 8 * channel_bytes(kind).expect("bytes"));
                let expected = format!("ZE_IMAGE_FORMAT_LAYOUT{}", bits.repeat(count));
                assert_eq!(name, expected);
            }
        }
        for (order, kind) in [
            (
                UR_IMAGE_CHANNEL_ORDER_RGB,
                UR_IMAGE_CHANNEL_TYPE_UNORM_SHORT_565,
            ),
            (UR_IMAGE_CHANNEL_ORDER_RX, UR_IMAGE_CHANNEL_TYPE_FLOAT),
        ] {
            let format = native_format(&ur_image_format_t {
                channelOrder: order,
                channelType: kind,
            });
            assert_eq!(format.map(|_| ()), Err(UNKNOWN));
        }
    }

    #[test]
    fn a_description_has_the_axes_of_its_kind() {
        let format = ur_image_format_t {
            channelOrder: UR_IMAGE_CHANNEL_ORDER_RGBA,
            channelType: UR_IMAGE_CHANNEL_TYPE_FLOAT,
        };
        let desc = |kind| ur_image_desc_t {
            r#type: kind,
            width: 9,
            height: 8,
            depth: 7,
            arraySize: 5,
            ..Default::default()
        };
        let sizes = |kind| {
            let own = described(&format, &desc(kind), true).expect("a description");
            assert_eq!(own.flags, ZE_IMAGE_FLAG_KERNEL_WRITE);
            (
                own.r#type,
                [own.width as u32, own.height, own.depth, own.arraylevels],
            )
        };
        assert_eq!(sizes(UR_MEM_TYPE_IMAGE1D), (ZE_IMAGE_TYPE_1D, [9, 1, 1, 0]));
        assert_eq!(sizes(UR_MEM_TYPE_IMAGE3D), (ZE_IMAGE_TYPE_3D, [9, 8, 7, 0]));
        assert_eq!(
            sizes(UR_MEM_TYPE_IMAGE1D_ARRAY),
            (ZE_IMAGE_TYPE_1DARRAY, [9, 1, 1, 5])
        );
        assert_eq!(
            sizes(UR_MEM_TYPE_IMAGE2D_ARRAY),
            (ZE_IMAGE_TYPE_2DARRAY, [9, 8, 1, 5])
        );
        let code = |desc: ur_image_desc_t| described(&format, &desc, false).map(|own| own.flags);
        let empty = ur_image_desc_t {
            arraySize: 0,
            ..desc(UR_MEM_TYPE_IMAGE2D_ARRAY)
        };
        assert_eq!(code(empty), Err(SHAPE));
        let huge = ur_image_desc_t {
            height: 1 << 32,
            ..desc(UR_MEM_TYPE_IMAGE2D)
        };
        assert_eq!(code(huge), Err(SHAPE));
        assert_eq!(code(desc(UR_MEM_TYPE_IMAGE_CUBEMAP_EXP)), Err(DESCRIPTOR));
        assert_eq!(code(desc(UR_MEM_TYPE_IMAGE2D)), Ok(0));
    }
}

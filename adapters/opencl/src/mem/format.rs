//! Conversion of image formats and descriptors between Unified Runtime and OpenCL.

use std::ffi::c_void;
use std::ptr::null;

use opencl_sys::*;
use ur::abi::*;
use ur::object::{Error, Result};

const ORDERS: [(ur_image_channel_order_t, cl_channel_order); 14] = [
    (UR_IMAGE_CHANNEL_ORDER_A, CL_A),
    (UR_IMAGE_CHANNEL_ORDER_R, CL_R),
    (UR_IMAGE_CHANNEL_ORDER_RG, CL_RG),
    (UR_IMAGE_CHANNEL_ORDER_RA, CL_RA),
    (UR_IMAGE_CHANNEL_ORDER_RGB, CL_RGB),
    (UR_IMAGE_CHANNEL_ORDER_RGBA, CL_RGBA),
    (UR_IMAGE_CHANNEL_ORDER_BGRA, CL_BGRA),
    (UR_IMAGE_CHANNEL_ORDER_ARGB, CL_ARGB),
    (UR_IMAGE_CHANNEL_ORDER_ABGR, CL_ABGR),
    (UR_IMAGE_CHANNEL_ORDER_INTENSITY, CL_INTENSITY),
    (UR_IMAGE_CHANNEL_ORDER_LUMINANCE, CL_LUMINANCE),
    (UR_IMAGE_CHANNEL_ORDER_RX, CL_Rx),
    (UR_IMAGE_CHANNEL_ORDER_RGX, CL_RGx),
    (UR_IMAGE_CHANNEL_ORDER_SRGBA, CL_sRGBA),
];

const TYPES: [(ur_image_channel_type_t, cl_channel_type); 15] = [
    (UR_IMAGE_CHANNEL_TYPE_SNORM_INT8, CL_SNORM_INT8),
    (UR_IMAGE_CHANNEL_TYPE_SNORM_INT16, CL_SNORM_INT16),
    (UR_IMAGE_CHANNEL_TYPE_UNORM_INT8, CL_UNORM_INT8),
    (UR_IMAGE_CHANNEL_TYPE_UNORM_INT16, CL_UNORM_INT16),
    (UR_IMAGE_CHANNEL_TYPE_UNORM_SHORT_565, CL_UNORM_SHORT_565),
    (UR_IMAGE_CHANNEL_TYPE_UNORM_SHORT_555, CL_UNORM_SHORT_555),
    (UR_IMAGE_CHANNEL_TYPE_INT_101010, CL_UNORM_INT_101010),
    (UR_IMAGE_CHANNEL_TYPE_SIGNED_INT8, CL_SIGNED_INT8),
    (UR_IMAGE_CHANNEL_TYPE_SIGNED_INT16, CL_SIGNED_INT16),
    (UR_IMAGE_CHANNEL_TYPE_SIGNED_INT32, CL_SIGNED_INT32),
    (UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT8, CL_UNSIGNED_INT8),
    (UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT16, CL_UNSIGNED_INT16),
    (UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT32, CL_UNSIGNED_INT32),
    (UR_IMAGE_CHANNEL_TYPE_HALF_FLOAT, CL_HALF_FLOAT),
    (UR_IMAGE_CHANNEL_TYPE_FLOAT, CL_FLOAT),
];

/// OpenCL's format for a format of Unified Runtime.
pub fn native(format: &ur_image_format_t) -> Result<cl_image_format> {
    let unknown = Error::new(UR_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT);
    let order = ORDERS
        .iter()
        .find(|(ur, _)| *ur == format.channelOrder)
        .ok_or(unknown)?;
    let kind = TYPES
        .iter()
        .find(|(ur, _)| *ur == format.channelType)
        .ok_or(unknown)?;
    Ok(cl_image_format {
        image_channel_order: order.1,
        image_channel_data_type: kind.1,
    })
}

/// Unified Runtime's format for one of OpenCL.
pub fn named(format: cl_image_format) -> Result<ur_image_format_t> {
    let order = ORDERS
        .iter()
        .find(|(_, cl)| *cl == format.image_channel_order);
    let kind = TYPES
        .iter()
        .find(|(_, cl)| *cl == format.image_channel_data_type);
    let unknown = Error::new(UR_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT);
    Ok(ur_image_format_t {
        channelOrder: order.ok_or(unknown)?.0,
        channelType: kind.ok_or(unknown)?.0,
    })
}

const KINDS: [(ur_mem_type_t, cl_mem_object_type); 5] = [
    (UR_MEM_TYPE_IMAGE2D, CL_MEM_OBJECT_IMAGE2D),
    (UR_MEM_TYPE_IMAGE3D, CL_MEM_OBJECT_IMAGE3D),
    (UR_MEM_TYPE_IMAGE2D_ARRAY, CL_MEM_OBJECT_IMAGE2D_ARRAY),
    (UR_MEM_TYPE_IMAGE1D, CL_MEM_OBJECT_IMAGE1D),
    (UR_MEM_TYPE_IMAGE1D_ARRAY, CL_MEM_OBJECT_IMAGE1D_ARRAY),
];

/// The kind of an image of OpenCL. None if the object is none.
pub fn named_kind(kind: cl_mem_object_type) -> Option<ur_mem_type_t> {
    let kind = match kind {
        CL_MEM_OBJECT_IMAGE1D_BUFFER => CL_MEM_OBJECT_IMAGE1D,
        kind => kind,
    };
    let found = KINDS.iter().find(|(_, cl)| *cl == kind);
    found.map(|(ur, _)| *ur)
}

pub fn native_desc(desc: &ur_image_desc_t) -> Result<cl_image_desc> {
    let kind = KINDS.iter().find(|(ur, _)| *ur == desc.r#type);
    let kind = kind.ok_or(Error::new(UR_RESULT_ERROR_UNSUPPORTED_FEATURE))?;
    Ok(cl_image_desc {
        image_type: kind.1,
        image_width: desc.width,
        image_height: desc.height,
        image_depth: desc.depth,
        image_array_size: desc.arraySize,
        image_row_pitch: desc.rowPitch,
        image_slice_pitch: desc.slicePitch,
        num_mip_levels: desc.numMipLevel,
        num_samples: desc.numSamples,
        buffer: null::<c_void>().cast_mut(),
    })
}

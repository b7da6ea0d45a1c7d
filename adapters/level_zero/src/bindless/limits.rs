//! The images that a device supports, by what they are for.

use std::ptr::from_mut;

use ur::abi::*;
use ur::hal::answers::{ImageRole, ImageShape, channels, mip_levels};
use ur::object::{Object, Result, ensure};

use super::memory::shape_of;
use super::{OfContext, able};
use crate::device::Device;
use crate::image::described;
use crate::lz::{check as check_code, *};

/// The driver's extension of `ze_image_format_support_ext_properties_t`.
const FORMATS: &str = "ZE_extension_image_format_support";

/// The shape and the mip levels of an image for a role, on a device with bindless images. `INVALID_IMAGE_SIZE` for sizes
/// beyond its limits, `UNSUPPORTED_IMAGE_FORMAT` for a format that it lacks, and `INVALID_VALUE` for a kind that the role
/// has not and for more levels than halving the sizes gives.
pub fn check(
    device: &Object<Device>,
    (format, desc): (&ur_image_format_t, &ur_image_desc_t),
    role: ImageRole,
) -> Result<(ImageShape, u32)> {
    let shape = shape_of(format, desc)?;
    let levels = mip_levels(desc, shape.longest())?;
    let most = match role {
        ImageRole::Linear => linear_extent(device, desc.r#type)?,
        _ => device.max_extent(desc.r#type),
    };
    shape.check_within(most)?;
    ensure(
        has_format(device, format, desc)?,
        UR_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT,
    )?;
    Ok((shape, levels))
}

/// The largest image in linear memory, lines and planes alone. A driver that tells no limits has those of images.
fn linear_extent(device: &Device, kind: ur_mem_type_t) -> Result<[usize; 3]> {
    let flat = [UR_MEM_TYPE_IMAGE1D, UR_MEM_TYPE_IMAGE2D].contains(&kind);
    ensure(flat, UR_RESULT_ERROR_INVALID_VALUE)?;
    let mut most = device.max_extent(kind);
    let reported = &device.facts.linear;
    let reported = [reported.maxImageLinearWidth, reported.maxImageLinearHeight];
    if kind == UR_MEM_TYPE_IMAGE2D && reported.iter().all(|size| *size > 0) {
        most[..2].copy_from_slice(&reported);
    }
    Ok(most)
}

/// Whether the device has images of a format. Three channels are whole numbers of 8 and 16 bits, whatever the driver
/// says of others.
fn has_format(
    device: &Object<Device>,
    format: &ur_image_format_t,
    desc: &ur_image_desc_t,
) -> Result<bool> {
    let what = described(format, desc, true)?;
    let integers = [
        UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT8,
        UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT16,
    ];
    if channels(format.channelOrder) == Some(3) && !integers.contains(&format.channelType) {
        return Ok(false);
    }
    if !device.platform().has_extension(FORMATS) {
        return Ok(true);
    }
    let mut support = ze_image_format_support_ext_properties_t::default();
    let mut found = ze_image_properties_t {
        pNext: from_mut(&mut support).cast(),
        ..Default::default()
    };
    // SAFETY: the description and the answers have their tags, and the chain lasts for the call.
    let code = unsafe { (device.api().zeImageGetProperties)(device.raw(), &what, &mut found) };
    match code {
        ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT => Ok(false),
        code => check_code(code, "zeImageGetProperties").map(|()| support.supported != 0),
    }
}

/// Whether there are images of a description. One that is none is no error here. Linear memory has sampled handles
/// alone.
pub fn has_image(
    this: &OfContext,
    device: &Object<Device>,
    format: &ur_image_format_t,
    desc: &ur_image_desc_t,
    role: ImageRole,
) -> Result<bool> {
    able(this, device)?;
    if role == ImageRole::UnsampledLinear {
        return Ok(false);
    }
    match check(device, (format, desc), role) {
        Err(error) if !ABSENT.contains(&error.code()) => Err(error),
        Err(_) => Ok(false),
        // Kernels sample, read and write the levels of a mipmap one by one, as images of their own.
        Ok((_, levels)) => Ok(levels == 1 || role == ImageRole::Memory),
    }
}

/// What [`check`] says of images that a device does not have.
const ABSENT: [ur_result_t; 5] = [
    UR_RESULT_ERROR_INVALID_IMAGE_SIZE,
    UR_RESULT_ERROR_INVALID_IMAGE_FORMAT_DESCRIPTOR,
    UR_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT,
    UR_RESULT_ERROR_UNSUPPORTED_FEATURE,
    UR_RESULT_ERROR_INVALID_VALUE,
];

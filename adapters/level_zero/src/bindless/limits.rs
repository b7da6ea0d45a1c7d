//! The images that a device supports, by what they are for.

use std::ptr::from_mut;

use ur::abi::*;
use ur::hal::answers::{ImageShape, channels};
use ur::object::{Error, Object, Result, ensure};

use super::memory::shape_of;
use super::{OfContext, able};
use crate::device::Device;
use crate::image::described;
use crate::lz::{check as check_code, *};

/// What an image is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Image memory, and its handles.
    Memory,
    /// Sampled handles of linear memory.
    Linear,
}

const SHAPE: Error = Error::new(UR_RESULT_ERROR_INVALID_IMAGE_SIZE);

/// The driver's extension of `ze_image_format_support_ext_properties_t`.
const FORMATS: &str = "ZE_extension_image_format_support";

/// The shape of an image for a role, on a device with bindless images. `INVALID_IMAGE_SIZE` for sizes beyond its limits, `UNSUPPORTED_IMAGE_FORMAT` for a format that it lacks, and `INVALID_VALUE` for a kind
/// that the role has not.
pub fn check(
    device: &Object<Device>,
    (format, desc): (&ur_image_format_t, &ur_image_desc_t),
    role: Role,
) -> Result<ImageShape> {
    let shape = shape_of(format, desc)?;
    let most = match role {
        Role::Memory => device.max_extent(desc.r#type),
        Role::Linear => linear_extent(device, desc.r#type)?,
    };
    let fits = shape
        .extent
        .iter()
        .zip(most)
        .all(|(size, most)| *size <= most);
    ensure(fits, SHAPE.code())?;
    ensure(
        has_format(device, format, desc)?,
        UR_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT,
    )?;
    Ok(shape)
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

/// Whether there are images of a description. One that is none is no error here.
fn is_there(
    this: &OfContext,
    device: &Object<Device>,
    (desc, format): (&ur_image_desc_t, &ur_image_format_t),
    memory: ur_exp_image_mem_type_t,
) -> Result<ur_bool_t> {
    able(this, device)?;
    let role = match memory {
        UR_EXP_IMAGE_MEM_TYPE_USM_POINTER => Role::Linear,
        _ => Role::Memory,
    };
    match check(device, (format, desc), role) {
        Err(error) if !ABSENT.contains(&error.code()) => Err(error),
        found => Ok(found.is_ok().into()),
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

/// `urBindlessImagesGetImageMemoryHandleTypeSupportExp`
pub fn can_allocate(
    this: &OfContext,
    device: &Object<Device>,
    desc: &ur_image_desc_t,
    format: &ur_image_format_t,
    memory: ur_exp_image_mem_type_t,
) -> Result<ur_bool_t> {
    is_there(this, device, (desc, format), memory)
}

/// `urBindlessImagesGetImageSampledHandleSupportExp`
pub fn can_sample(
    this: &OfContext,
    device: &Object<Device>,
    desc: &ur_image_desc_t,
    format: &ur_image_format_t,
    memory: ur_exp_image_mem_type_t,
) -> Result<ur_bool_t> {
    is_there(this, device, (desc, format), memory)
}

/// `urBindlessImagesGetImageUnsampledHandleSupportExp`. Linear memory has sampled handles alone.
pub fn can_use_unsampled(
    this: &OfContext,
    device: &Object<Device>,
    desc: &ur_image_desc_t,
    format: &ur_image_format_t,
    memory: ur_exp_image_mem_type_t,
) -> Result<ur_bool_t> {
    match memory {
        UR_EXP_IMAGE_MEM_TYPE_USM_POINTER => able(this, device).map(|_| 0),
        _ => is_there(this, device, (desc, format), memory),
    }
}

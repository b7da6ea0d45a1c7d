//! Handles of images: textures for sampled ones, surfaces for unsampled ones. A kernel takes them by value.

use std::sync::Arc;

use ur::abi::*;
use ur::hal::answers::{ImageRole, coordinates};
use ur::object::{Error, Object, Result, ensure};
use ur::stream::Driver;

use super::limits;
use super::memory::{self, ImageMemory, shape_of, texel_of};
use super::{OfContext, bindless, check_home, gpu, sampler};
use crate::Cuda;
use crate::cu::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT;
use crate::device::Device;
use crate::image::{Resource, Surface, Texel, Texture};
use crate::vendor::Ordinal;

/// A handle: whether it is sampled, the device, and the number, which a device gives a texture and a surface apart.
pub type HandleKey = (bool, Ordinal, u64);

/// An image as kernels take it. It ends before its memory.
pub enum ImageHandle {
    Sampled {
        #[allow(dead_code, reason = "ends when dropped")]
        texture: Texture,
        #[allow(dead_code, reason = "kept alive")]
        memory: Option<Arc<ImageMemory>>,
    },
    Unsampled {
        #[allow(dead_code, reason = "ends when dropped")]
        surface: Surface,
        #[allow(dead_code, reason = "kept alive")]
        memory: Arc<ImageMemory>,
    },
}

fn give(this: &OfContext, key: HandleKey, handle: ImageHandle) -> ur_exp_image_native_handle_t {
    let before = bindless(this).handles.lock().insert(key, handle);
    debug_assert!(before.is_none(), "the driver gave out a live number");
    key.2 as ur_exp_image_native_handle_t
}

/// `INVALID_IMAGE_SIZE` unless a description has the sizes of the memory, `INVALID_VALUE` unless its pixels have.
fn check_same(own: &ImageMemory, desc: &ur_image_desc_t, texel: Texel) -> Result<()> {
    let shape = shape_of(desc)?;
    let same = memory::extent(&shape) == own.extent();
    ensure(same, UR_RESULT_ERROR_INVALID_IMAGE_SIZE)?;
    let same = (texel.bytes, texel.channels) == (own.texel.bytes, own.texel.channels);
    ensure(same, UR_RESULT_ERROR_INVALID_VALUE)
}

/// `urBindlessImagesUnsampledImageCreateExp`. `INVALID_VALUE` for a mipmap, and for numbers that are no image memory,
/// addresses of USM among them: the driver's surfaces lie in arrays.
pub fn create_unsampled(
    this: &OfContext,
    device: &Object<Device>,
    image: ur_exp_image_mem_native_handle_t,
    format: &ur_image_format_t,
    desc: &ur_image_desc_t,
) -> Result<ur_exp_image_native_handle_t> {
    let gpu = gpu(this, device)?;
    let texel = texel_of(format)?;
    let memory = memory::find(this, image);
    let memory = memory.ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?;
    check_home(&memory.gpu, &gpu)?;
    check_same(&memory, desc, texel)?;
    let surface = Surface::create(memory.array()?)?;
    let key = (false, gpu.device, surface.raw());
    Ok(give(this, key, ImageHandle::Unsampled { surface, memory }))
}

/// `urBindlessImagesSampledImageCreateExp`, over image memory or over USM. `INVALID_VALUE` for an address that the
/// context does not know, and for kinds that have no linear memory.
pub fn create_sampled(
    this: &OfContext,
    device: &Object<Device>,
    image: ur_exp_image_mem_native_handle_t,
    format: &ur_image_format_t,
    desc: &ur_image_desc_t,
    sampler: &ur_sampler_desc_t,
) -> Result<ur_exp_image_native_handle_t> {
    let gpu = gpu(this, device)?;
    let texel = texel_of(format)?;
    let how = sampler::describe(sampler, texel, coordinates(desc.r#type))?;
    let memory = memory::find(this, image);
    let texture = match &memory {
        Some(memory) => {
            check_home(&memory.gpu, &gpu)?;
            check_same(memory, desc, texel)?;
            Texture::create(&gpu, memory.resource(), &how, None)
        }
        None => {
            let over = linear(this, device, image, desc, texel)?;
            Texture::create(&gpu, over, &how, None)
        }
    }?;
    let key = (true, gpu.device, texture.raw());
    Ok(give(this, key, ImageHandle::Sampled { texture, memory }))
}

/// USM that a texture is made over: a line, or rows with a pitch. `INVALID_VALUE` for addresses, pitches and kinds that
/// textures do not have, `INVALID_IMAGE_SIZE` beyond the allocation or the device's limits.
fn linear(
    this: &OfContext,
    device: &Object<Device>,
    address: usize,
    desc: &ur_image_desc_t,
    texel: Texel,
) -> Result<Resource<'static>> {
    let wrong = Error::new(UR_RESULT_ERROR_INVALID_VALUE);
    let found = this.usm_at(address).ok_or(wrong)?;
    let flat = [UR_MEM_TYPE_IMAGE1D, UR_MEM_TYPE_IMAGE2D].contains(&desc.r#type);
    ensure(flat && desc.numMipLevel <= 1, wrong.code())?;
    let shape = shape_of(desc)?;
    let fits = limits::fits(device, desc.r#type, &shape, 1, ImageRole::Linear)?;
    ensure(fits, UR_RESULT_ERROR_INVALID_IMAGE_SIZE)?;
    let rows = limits::rows(device, desc, &shape, texel)?.ok_or(wrong)?;
    let align = device.attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)?;
    let aligned = address.is_multiple_of(align.max(1) as usize);
    ensure(aligned, wrong.code())?;
    found.check_rows(address, &rows, |home| Ok(Cuda::can_access(device, home)))?;
    let address = address as u64;
    Ok(match desc.r#type {
        UR_MEM_TYPE_IMAGE1D => Resource::Linear {
            address,
            texel,
            bytes: rows.packed,
        },
        _ => Resource::Pitched {
            address,
            texel,
            width: shape.width,
            height: shape.height,
            pitch: rows.pitch,
        },
    })
}

/// `urBindlessImagesUnsampledImageHandleDestroyExp` and its sampled form. `INVALID_VALUE` for other numbers.
pub fn destroy(
    this: &OfContext,
    device: &Object<Device>,
    image: ur_exp_image_native_handle_t,
    is_sampled: bool,
) -> Result<()> {
    let key = (is_sampled, gpu(this, device)?.device, image as u64);
    let ended = bindless(this).handles.lock().remove(&key);
    // The driver's object ends without the lock. Kernels may use it.
    this.drop_after_use(ended.ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?);
    Ok(())
}

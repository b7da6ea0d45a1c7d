//! Image memory: native images, of which handles are views. The driver has no mipmaps, and one sample in a pixel.

use std::ptr::from_ref;
use std::sync::Arc;

use ur::abi::*;
use ur::hal::ImageInfo;
use ur::hal::answers::{ImageRole, ImageShape, check_samples, image_info, mip_levels};
use ur::object::{Error, InfoOut, Object, Result, ensure};

use super::external::{ExternalMem, Imported};
use super::limits;
use super::{OfContext, able, bindless, check_home};
use crate::device::Device;
use crate::image::{self, NativeImage};
use crate::lz::*;

/// A number that is no memory.
const UNKNOWN: Error = Error::new(UR_RESULT_ERROR_INVALID_VALUE);

/// The memory behind a handle, with what it was made as.
pub struct ImageMemory {
    pub device: Arc<Object<Device>>,
    pub native: NativeImage,
    pub shape: ImageShape,
    pub format: ur_image_format_t,
    /// Imported memory that this maps.
    _keeps: Option<Arc<Imported>>,
}

/// Texels along each axis as copies count them: layers are the third axis of every array.
pub fn extent(shape: &ImageShape) -> [usize; 3] {
    let [width, second, third] = shape.extent;
    match shape.has_layered_rows() {
        true => [width, third, second],
        false => [width, second, third],
    }
}

/// The shape of an image. `INVALID_VALUE` for more mip levels than halving the sizes gives and for several samples,
/// `UNSUPPORTED_FEATURE` for other mipmaps.
pub fn shape_of(format: &ur_image_format_t, desc: &ur_image_desc_t) -> Result<ImageShape> {
    let shape = ImageShape::new(format, desc)?;
    let largest = shape.extent.into_iter().max().unwrap_or(1);
    check_samples(desc)?;
    let levels = mip_levels(desc, largest)?;
    ensure(levels == 1, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    Ok(shape)
}

/// The driver's description of a bindless image, which needs the chain of `flags`.
pub fn described(
    format: &ur_image_format_t,
    desc: &ur_image_desc_t,
    flags: &ze_image_bindless_exp_desc_t,
) -> Result<ze_image_desc_t> {
    Ok(ze_image_desc_t {
        pNext: from_ref(flags).cast(),
        // The driver's 0 is one level.
        miplevels: 0,
        ..image::described(format, desc, true)?
    })
}

/// New image memory, in imported memory if there is any.
fn create(
    this: &OfContext,
    device: &Object<Device>,
    (format, desc): (&ur_image_format_t, &ur_image_desc_t),
    keeps: Option<Arc<Imported>>,
) -> Result<ur_exp_image_mem_native_handle_t> {
    let shape = limits::check(device, (format, desc), ImageRole::Sampled)?;
    let imported = keeps.as_ref().map(|memory| memory.described());
    let flags = ze_image_bindless_exp_desc_t {
        pNext: match &imported {
            Some(imported) => from_ref(imported).cast(),
            None => std::ptr::null(),
        },
        flags: ZE_IMAGE_BINDLESS_EXP_FLAG_BINDLESS,
        ..Default::default()
    };
    let what = described(format, desc, &flags)?;
    let native = NativeImage::create(&this.domain().state().native, device, &what)?;
    native.make_resident(device)?;
    let handle = native.raw.0.expose_provenance();
    let made = Arc::new(ImageMemory {
        device: device.arc(),
        native,
        shape,
        format: *format,
        _keeps: keeps,
    });
    let before = bindless(this).memory.lock().insert(handle, made);
    debug_assert!(before.is_none(), "the driver gave out a live handle");
    Ok(handle)
}

/// `urBindlessImagesImageAllocateExp`. `INVALID_IMAGE_SIZE` for sizes beyond the device's limits.
pub fn allocate(
    this: &OfContext,
    device: &Object<Device>,
    format: &ur_image_format_t,
    desc: &ur_image_desc_t,
) -> Result<ur_exp_image_mem_native_handle_t> {
    able(this, device)?;
    create(this, device, (format, desc), None)
}

/// `urBindlessImagesMapExternalArrayExp`: image memory over the whole import. `INVALID_IMAGE_SIZE` if that has not so
/// many pixels.
pub fn map_array(
    this: &OfContext,
    device: &Object<Device>,
    format: &ur_image_format_t,
    desc: &ur_image_desc_t,
    own: &Object<ExternalMem>,
) -> Result<ur_exp_image_mem_native_handle_t> {
    able(this, device)?;
    let memory = own.memory();
    check_home(&memory.device, device)?;
    let shape = shape_of(format, desc)?;
    ensure(
        shape.bytes() <= memory.bytes,
        UR_RESULT_ERROR_INVALID_IMAGE_SIZE,
    )?;
    create(this, device, (format, desc), Some(Arc::clone(memory)))
}

/// The memory of a handle, if the context has given it out.
pub fn find(
    this: &OfContext,
    handle: ur_exp_image_mem_native_handle_t,
) -> Option<Arc<ImageMemory>> {
    bindless(this).memory.lock().get(&handle).cloned()
}

/// `urBindlessImagesImageFreeExp`. `INVALID_VALUE` for a number that is no handle.
pub fn free(
    this: &OfContext,
    device: &Object<Device>,
    handle: ur_exp_image_mem_native_handle_t,
) -> Result<()> {
    able(this, device)?;
    let ended = {
        let mut all = bindless(this).memory.lock();
        check_home(&all.get(&handle).ok_or(UNKNOWN)?.device, device)?;
        all.remove(&handle)
    };
    // The driver's image ends without the lock.
    drop(ended);
    Ok(())
}

/// `urBindlessImagesMipmapFreeExp`: `INVALID_VALUE`, as no handle is a mipmap's.
pub fn free_mipmap(
    this: &OfContext,
    device: &Object<Device>,
    _: ur_exp_image_mem_native_handle_t,
) -> Result<()> {
    able(this, device)?;
    Err(UNKNOWN)
}

/// `urBindlessImagesMipmapGetLevelExp`: `INVALID_VALUE`, as no handle is a mipmap's.
pub fn level(
    this: &OfContext,
    device: &Object<Device>,
    _: ur_exp_image_mem_native_handle_t,
    _: u32,
) -> Result<ur_exp_image_mem_native_handle_t> {
    able(this, device)?;
    Err(UNKNOWN)
}

/// `urBindlessImagesImageGetInfoExp`. `INVALID_VALUE` for a number that is no handle.
pub fn info(
    this: &OfContext,
    handle: ur_exp_image_mem_native_handle_t,
    what: ImageInfo,
    out: InfoOut<'_>,
) -> Result<()> {
    let mut devices = this.devices().iter();
    let able = devices.any(|device| device.bindless().is_some());
    ensure(able, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    let own = find(this, handle).ok_or(UNKNOWN)?;
    image_info(&own.shape, &own.format, own.shape.packed(), what, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RGBA8: ur_image_format_t = ur_image_format_t {
        channelOrder: UR_IMAGE_CHANNEL_ORDER_RGBA,
        channelType: UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT8,
    };

    fn desc(kind: ur_mem_type_t) -> ur_image_desc_t {
        ur_image_desc_t {
            r#type: kind,
            width: 8,
            height: 3,
            depth: 2,
            arraySize: 5,
            ..Default::default()
        }
    }

    #[test]
    fn layers_are_the_third_axis() {
        let of = |kind| extent(&shape_of(&RGBA8, &desc(kind)).expect("a shape"));
        assert_eq!(of(UR_MEM_TYPE_IMAGE1D), [8, 1, 1]);
        assert_eq!(of(UR_MEM_TYPE_IMAGE3D), [8, 3, 2]);
        assert_eq!(of(UR_MEM_TYPE_IMAGE1D_ARRAY), [8, 1, 5]);
        assert_eq!(of(UR_MEM_TYPE_IMAGE2D_ARRAY), [8, 3, 5]);
    }

    #[test]
    fn mipmaps_and_samples_are_refused() {
        let of = |levels, samples| {
            let desc = ur_image_desc_t {
                numMipLevel: levels,
                numSamples: samples,
                ..desc(UR_MEM_TYPE_IMAGE2D)
            };
            shape_of(&RGBA8, &desc).map(drop).map_err(Error::code)
        };
        assert_eq!(of(0, 0), Ok(()));
        assert_eq!(of(1, 1), Ok(()));
        assert_eq!(of(4, 0), Err(UR_RESULT_ERROR_UNSUPPORTED_FEATURE));
        assert_eq!(of(5, 0), Err(UR_RESULT_ERROR_INVALID_VALUE));
        assert_eq!(of(1, 2), Err(UR_RESULT_ERROR_INVALID_VALUE));
    }
}

//! Image memory: native images, of which handles are views, and mipmaps of them. The driver's images have one mip level,
//! and one sample in a pixel.
//!
//! | handle | number | ends with |
//! |---|---|---|
//! | an image | the driver's | `urBindlessImagesImageFreeExp` |
//! | a mipmap, a native image for each level | the place of its state | `urBindlessImagesMipmapFreeExp` |
//! | a level of it | the driver's | the whole |

use std::ptr::{from_ref, null};
use std::sync::Arc;

use ur::abi::*;
use ur::hal::ImageInfo;
use ur::hal::answers::{ImageRole, ImageShape, check_samples, image_info};
use ur::object::{Error, InfoOut, Object, Result, ensure};

use super::external::{ExternalMem, Imported};
use super::limits;
use super::{OfContext, able, bindless, check_home};
use crate::device::Device;
use crate::image::{self, NativeImage};
use crate::lz::*;

/// A number that is no memory, or memory of another kind.
const UNKNOWN: Error = Error::new(UR_RESULT_ERROR_INVALID_VALUE);

/// The memory behind a handle, with what it was made as.
pub struct ImageMemory {
    pub device: Arc<Object<Device>>,
    pub shape: ImageShape,
    pub format: ur_image_format_t,
    storage: Storage,
    /// Imported memory that this maps.
    _keeps: Option<Arc<Imported>>,
}

enum Storage {
    Image(NativeImage),
    /// The levels, of which each has a handle.
    Mipmap(Box<[Arc<ImageMemory>]>),
    Level(NativeImage),
}

impl ImageMemory {
    /// The native image. `INVALID_VALUE` for a mipmap, whose levels are native images.
    pub fn native(&self) -> Result<&NativeImage> {
        match &self.storage {
            Storage::Image(native) | Storage::Level(native) => Ok(native),
            Storage::Mipmap(_) => Err(UNKNOWN),
        }
    }

    /// A handle for the caller.
    fn handle(self: &Arc<Self>) -> usize {
        match &self.storage {
            Storage::Image(native) | Storage::Level(native) => native.raw.0.expose_provenance(),
            Storage::Mipmap(_) => Arc::as_ptr(self).expose_provenance(),
        }
    }

    /// The levels of a mipmap. Other memory has none.
    fn levels(&self) -> &[Arc<Self>] {
        match &self.storage {
            Storage::Mipmap(levels) => levels,
            Storage::Image(_) | Storage::Level(_) => &[],
        }
    }

    /// Gives the memory and its levels out. Returns its handle.
    fn give(self: Arc<Self>, this: &OfContext) -> ur_exp_image_mem_native_handle_t {
        let handle = self.handle();
        let mut all = bindless(this).memory.lock();
        for own in self.levels().iter().chain([&self]) {
            let before = all.insert(own.handle(), Arc::clone(own));
            debug_assert!(before.is_none(), "the driver gave out a live handle");
        }
        handle
    }
}

/// Texels along each axis as copies count them: layers are the third axis of every array.
pub fn extent(shape: &ImageShape) -> [usize; 3] {
    let [width, second, third] = shape.extent;
    match shape.has_layered_rows() {
        true => [width, third, second],
        false => [width, second, third],
    }
}

/// The shape of an image, with its first level if it has several. `INVALID_VALUE` for several samples.
pub fn shape_of(format: &ur_image_format_t, desc: &ur_image_desc_t) -> Result<ImageShape> {
    let shape = ImageShape::new(format, desc)?;
    check_samples(desc)?;
    Ok(shape)
}

/// A level of an image, as one without levels.
fn level_of(desc: &ur_image_desc_t, shape: &ImageShape) -> ur_image_desc_t {
    let [width, height, depth] = shape.extent;
    // The driver's description takes no axes that the kind lacks, and the layers from `arraySize`.
    ur_image_desc_t {
        width,
        height,
        depth,
        numMipLevel: 1,
        ..*desc
    }
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

/// A native image of one level, in imported memory if there is any.
fn create(
    this: &OfContext,
    device: &Object<Device>,
    (format, desc): (&ur_image_format_t, &ur_image_desc_t),
    imported: Option<&ze_external_memory_import_fd_t>,
) -> Result<NativeImage> {
    let flags = ze_image_bindless_exp_desc_t {
        pNext: imported.map_or(null(), |imported| from_ref(imported).cast()),
        flags: ZE_IMAGE_BINDLESS_EXP_FLAG_BINDLESS,
        ..Default::default()
    };
    let what = described(format, desc, &flags)?;
    let native = NativeImage::create(&this.domain().state().native, device, &what)?;
    native.make_resident(device)?;
    Ok(native)
}

/// `urBindlessImagesImageAllocateExp`. `INVALID_IMAGE_SIZE` for sizes beyond the device's limits.
pub fn allocate(
    this: &OfContext,
    device: &Object<Device>,
    format: &ur_image_format_t,
    desc: &ur_image_desc_t,
) -> Result<ur_exp_image_mem_native_handle_t> {
    able(this, device)?;
    let (shape, levels) = limits::check(device, (format, desc), ImageRole::Memory)?;
    let made = |shape, storage| {
        Arc::new(ImageMemory {
            device: device.arc(),
            shape,
            format: *format,
            storage,
            _keeps: None,
        })
    };
    let storage = match levels {
        1 => Storage::Image(create(this, device, (format, desc), None)?),
        levels => {
            let level = |level| {
                let shape = shape.level(level);
                let native = create(this, device, (format, &level_of(desc, &shape)), None)?;
                Ok(made(shape, Storage::Level(native)))
            };
            Storage::Mipmap((0..levels).map(level).collect::<Result<_>>()?)
        }
    };
    Ok(made(shape, storage).give(this))
}

/// `urBindlessImagesMapExternalArrayExp`: image memory over the whole import. `INVALID_IMAGE_SIZE` if that has not so
/// many pixels, `UNSUPPORTED_FEATURE` for several levels, as the driver's images have one.
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
    let (shape, levels) = limits::check(device, (format, desc), ImageRole::Memory)?;
    ensure(levels == 1, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    ensure(
        shape.bytes() <= memory.bytes,
        UR_RESULT_ERROR_INVALID_IMAGE_SIZE,
    )?;
    let native = create(this, device, (format, desc), Some(&memory.described()))?;
    let made = Arc::new(ImageMemory {
        device: device.arc(),
        shape,
        format: *format,
        storage: Storage::Image(native),
        _keeps: Some(Arc::clone(memory)),
    });
    Ok(made.give(this))
}

/// The memory of a handle, if the context has given it out.
pub fn find(
    this: &OfContext,
    handle: ur_exp_image_mem_native_handle_t,
) -> Option<Arc<ImageMemory>> {
    bindless(this).memory.lock().get(&handle).cloned()
}

/// Ends a handle, and all levels of a mipmap. `INVALID_VALUE` for a number that is no handle, and for memory that ends
/// otherwise.
fn end(
    this: &OfContext,
    device: &Object<Device>,
    handle: ur_exp_image_mem_native_handle_t,
    ends: impl FnOnce(&Storage) -> bool,
) -> Result<()> {
    able(this, device)?;
    let mut all = bindless(this).memory.lock();
    let own = Arc::clone(all.get(&handle).ok_or(UNKNOWN)?);
    check_home(&own.device, device)?;
    ensure(ends(&own.storage), UNKNOWN.code())?;
    for one in own.levels().iter().chain([&own]) {
        all.remove(&one.handle());
    }
    // The driver's images end without the lock.
    drop(all);
    // Copies may use them, and kernels that were given handles of them.
    this.drop_after_use(own);
    Ok(())
}

/// `urBindlessImagesImageFreeExp`. `INVALID_VALUE` for a mipmap and its levels, and for other numbers.
pub fn free(
    this: &OfContext,
    device: &Object<Device>,
    handle: ur_exp_image_mem_native_handle_t,
) -> Result<()> {
    let single = |storage: &Storage| matches!(storage, Storage::Image(_));
    end(this, device, handle, single)
}

/// `urBindlessImagesMipmapFreeExp`. `INVALID_VALUE` for image memory without levels, and for other numbers.
pub fn free_mipmap(
    this: &OfContext,
    device: &Object<Device>,
    handle: ur_exp_image_mem_native_handle_t,
) -> Result<()> {
    let whole = |storage: &Storage| matches!(storage, Storage::Mipmap(_));
    end(this, device, handle, whole)
}

/// `urBindlessImagesMipmapGetLevelExp`. A level has one handle, however often it is asked for. `INVALID_VALUE` for a level
/// that the mipmap does not have, for image memory without levels, and for other numbers.
pub fn level(
    this: &OfContext,
    device: &Object<Device>,
    handle: ur_exp_image_mem_native_handle_t,
    level: u32,
) -> Result<ur_exp_image_mem_native_handle_t> {
    able(this, device)?;
    let found = find(this, handle).ok_or(UNKNOWN)?;
    check_home(&found.device, device)?;
    let level = found.levels().get(level as usize).ok_or(UNKNOWN)?;
    Ok(level.handle())
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
    if what == ImageInfo::NumMipLevels {
        return out.value(own.levels().len() as u32);
    }
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
    fn several_samples_are_refused() {
        let of = |samples| {
            let desc = ur_image_desc_t {
                numSamples: samples,
                ..desc(UR_MEM_TYPE_IMAGE2D)
            };
            shape_of(&RGBA8, &desc).map(drop).map_err(Error::code)
        };
        assert_eq!([of(0), of(1)], [Ok(()); 2]);
        assert_eq!(of(2), Err(UR_RESULT_ERROR_INVALID_VALUE));
    }

    #[test]
    fn a_level_is_described_as_an_image_of_its_size() {
        for (kind, sizes, layers) in [
            (UR_MEM_TYPE_IMAGE1D, [4, 1, 1], 0),
            (UR_MEM_TYPE_IMAGE2D, [4, 1, 1], 0),
            (UR_MEM_TYPE_IMAGE3D, [4, 1, 1], 0),
            (UR_MEM_TYPE_IMAGE1D_ARRAY, [4, 1, 1], 5),
            (UR_MEM_TYPE_IMAGE2D_ARRAY, [4, 1, 1], 5),
        ] {
            let desc = ur_image_desc_t {
                numMipLevel: 2,
                ..desc(kind)
            };
            let shape = shape_of(&RGBA8, &desc).expect("a shape").level(1);
            let level = level_of(&desc, &shape);
            assert_eq!(shape_of(&RGBA8, &level), Ok(shape), "{kind:?}");
            let flags = ze_image_bindless_exp_desc_t::default();
            let own = described(&RGBA8, &level, &flags).expect("a description");
            let found = [own.width as usize, own.height as usize, own.depth as usize];
            assert_eq!((found, own.arraylevels), (sizes, layers), "{kind:?}");
            assert_eq!(own.miplevels, 0);
        }
    }
}

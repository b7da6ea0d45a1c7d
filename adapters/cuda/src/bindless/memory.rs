//! Image memory: arrays, mipmapped arrays and their levels.
//!
//! | handle | made by | ends with |
//! |---|---|---|
//! | an array | an allocation | `urBindlessImagesImageFreeExp` |
//! | level 0 of a mapped mipmapped array | a mapping of one level | `urBindlessImagesImageFreeExp` |
//! | a mipmapped array | an allocation or a mapping of several levels | `urBindlessImagesMipmapFreeExp` |
//! | a level of it | `urBindlessImagesMipmapGetLevelExp` | the whole |

use std::sync::Arc;

use ur::abi::*;
use ur::hal::ImageInfo;
use ur::hal::answers::{ImageRole, check_samples, mip_levels};
use ur::object::{Error, InfoOut, Object, Result, ensure};

use super::limits;
use super::{OfContext, bindless, check_home, gpu};
use crate::cu::sys::{CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_LAYERED};
use crate::device::Device;
use crate::exec::Gpu;
use crate::image::{Array, Mipmap, Resource, Shape, Surface, Texel};

/// A handle of image memory.
const UNKNOWN: Error = Error::new(UR_RESULT_ERROR_INVALID_VALUE);

/// The memory behind a handle, with what it was made as.
pub struct ImageMemory {
    pub gpu: Arc<Gpu>,
    pub shape: Shape,
    pub format: ur_image_format_t,
    pub texel: Texel,
    storage: Storage,
    /// Imported memory that this maps.
    #[allow(dead_code, reason = "ends after the mapping")]
    keeps: Option<Arc<dyn Send + Sync>>,
}

enum Storage {
    Array(Array),
    Mipmap {
        whole: Arc<Mipmap>,
        levels: u32,
    },
    Level {
        array: Array,
        of: Arc<Mipmap>,
        level: u32,
    },
}

impl ImageMemory {
    /// A handle for the caller: the driver's.
    fn handle(&self) -> usize {
        match &self.storage {
            Storage::Array(array) | Storage::Level { array, .. } => array.raw().expose_provenance(),
            Storage::Mipmap { whole, .. } => whole.raw().expose_provenance(),
        }
    }

    /// The single array. `INVALID_VALUE` for a mipmapped array, whose levels are arrays.
    pub fn array(&self) -> Result<&Array> {
        match &self.storage {
            Storage::Array(array) | Storage::Level { array, .. } => Ok(array),
            Storage::Mipmap { .. } => Err(UNKNOWN),
        }
    }

    /// What textures are made over.
    pub fn resource(&self) -> Resource<'_> {
        match &self.storage {
            Storage::Array(array) | Storage::Level { array, .. } => Resource::Array(array),
            Storage::Mipmap { whole, .. } => Resource::Mipmap(whole),
        }
    }

    /// Texels along each axis as copies count them: an axis that the image lacks has one.
    pub fn extent(&self) -> [usize; 3] {
        extent(&self.shape)
    }

    /// A mapping of imported memory as a mipmapped array. One of a single level is given out as that level.
    pub fn mapped(
        mipmap: Mipmap,
        (shape, levels): (Shape, u32),
        (format, texel): (ur_image_format_t, Texel),
        keeps: Arc<dyn Send + Sync>,
    ) -> Result<Self> {
        let (gpu, whole) = (Arc::clone(mipmap.gpu()), Arc::new(mipmap));
        let storage = match levels {
            1 => Storage::Array(whole.level(0)?),
            _ => Storage::Mipmap { whole, levels },
        };
        Ok(Self {
            gpu,
            shape,
            format,
            texel,
            storage,
            keeps: Some(keeps),
        })
    }

    /// Gives the memory out. Returns its handle.
    pub fn give(self, this: &OfContext) -> ur_exp_image_mem_native_handle_t {
        let handle = self.handle();
        let before = bindless(this).memory.lock().insert(handle, Arc::new(self));
        debug_assert!(before.is_none(), "the driver gave out a live handle");
        handle
    }
}

/// Texels along each axis: layers and faces count as depth.
pub fn extent(shape: &Shape) -> [usize; 3] {
    [shape.width, shape.height.max(1), shape.depth.max(1)]
}

fn has_layers(shape: &Shape) -> bool {
    shape.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) != 0
}

/// Number of mip levels of a description, at least one. `INVALID_VALUE` for more than halving the sizes gives.
pub fn levels(desc: &ur_image_desc_t, shape: &Shape) -> Result<u32> {
    let depth = if has_layers(shape) { 1 } else { shape.depth };
    let largest = shape.width.max(shape.height).max(depth);
    mip_levels(desc, largest)
}

/// The shape of a level of a mipmap. Layers stay as many.
fn level_of(shape: &Shape, level: u32) -> Shape {
    let half = |size: usize| match size {
        0 => 0,
        size => (size >> level).max(1),
    };
    let depth = match has_layers(shape) {
        true => shape.depth,
        false => half(shape.depth),
    };
    Shape {
        width: half(shape.width),
        height: half(shape.height),
        depth,
        ..*shape
    }
}

/// The shape of an image. `INVALID_IMAGE_SIZE` for a cube of other than six square faces, and for multisampling.
pub fn shape_of(desc: &ur_image_desc_t) -> Result<Shape> {
    let shape = Shape::of(desc)?;
    let cube = desc.r#type == UR_MEM_TYPE_IMAGE_CUBEMAP_EXP;
    let faces = !cube || shape.width == shape.height && desc.arraySize == 6;
    ensure(faces, UR_RESULT_ERROR_INVALID_IMAGE_SIZE)?;
    check_samples(desc)?;
    Ok(shape)
}

/// The pixels of a format. `UNSUPPORTED_IMAGE_FORMAT` for orders other than those that bindless images have.
pub fn texel_of(format: &ur_image_format_t) -> Result<Texel> {
    const KNOWN: [ur_image_channel_order_t; 8] = [
        UR_IMAGE_CHANNEL_ORDER_A,
        UR_IMAGE_CHANNEL_ORDER_R,
        UR_IMAGE_CHANNEL_ORDER_RG,
        UR_IMAGE_CHANNEL_ORDER_RA,
        UR_IMAGE_CHANNEL_ORDER_RGBA,
        UR_IMAGE_CHANNEL_ORDER_BGRA,
        UR_IMAGE_CHANNEL_ORDER_ARGB,
        UR_IMAGE_CHANNEL_ORDER_ABGR,
    ];
    let known = KNOWN.contains(&format.channelOrder);
    ensure(known, UR_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT)?;
    Texel::of(format)
}

/// `urBindlessImagesImageAllocateExp`. `INVALID_IMAGE_SIZE` for sizes beyond the device's limits.
pub fn allocate(
    this: &OfContext,
    device: &Object<Device>,
    format: &ur_image_format_t,
    desc: &ur_image_desc_t,
) -> Result<ur_exp_image_mem_native_handle_t> {
    let gpu = gpu(this, device)?;
    let (texel, shape) = (texel_of(format)?, shape_of(desc)?);
    let levels = levels(desc, &shape)?;
    let fits = |role| limits::fits(device, desc.r#type, &shape, levels, role);
    ensure(
        fits(ImageRole::Sampled)?,
        UR_RESULT_ERROR_INVALID_IMAGE_SIZE,
    )?;
    // Surfaces are smaller than textures. A larger image has no unsampled handles.
    let flags = match fits(ImageRole::Unsampled)? {
        true => Surface::ARRAY_FLAGS,
        false => 0,
    };
    let storage = match levels {
        1 => Storage::Array(Array::create(&gpu, &shape, texel, flags)?),
        _ => {
            let whole = Mipmap::create(&gpu, &shape, texel, flags, levels)?;
            let whole = Arc::new(whole);
            Storage::Mipmap { whole, levels }
        }
    };
    let made = ImageMemory {
        gpu,
        shape,
        format: *format,
        texel,
        storage,
        keeps: None,
    };
    Ok(made.give(this))
}

/// The memory of a handle, if the context has given it out.
pub fn find(
    this: &OfContext,
    handle: ur_exp_image_mem_native_handle_t,
) -> Option<Arc<ImageMemory>> {
    bindless(this).memory.lock().get(&handle).cloned()
}

/// [`find`] for one device. `INVALID_VALUE` if the context has not given the handle out.
fn find_of(
    this: &OfContext,
    gpu: &Arc<Gpu>,
    handle: ur_exp_image_mem_native_handle_t,
) -> Result<Arc<ImageMemory>> {
    let found = find(this, handle).ok_or(UNKNOWN)?;
    check_home(&found.gpu, gpu)?;
    Ok(found)
}

/// Ends a handle, and all levels of a mipmap.
fn end(this: &OfContext, handle: usize) {
    let mut all = bindless(this).memory.lock();
    let ended = all.remove(&handle);
    let mut levels = Vec::new();
    if let Some(Storage::Mipmap { whole, .. }) = ended.as_ref().map(|own| &own.storage) {
        let own = |memory: &ImageMemory| matches!(&memory.storage, Storage::Level { of, .. } if Arc::ptr_eq(of, whole));
        let found = all.iter().filter(|(_, memory)| own(memory));
        let found: Vec<usize> = found.map(|(handle, _)| *handle).collect();
        levels.extend(found.iter().filter_map(|handle| all.remove(handle)));
    }
    drop(all);
    // The driver's objects end without the lock. Copies may use them, and kernels that were given handles of them.
    this.drop_after_use((levels, ended));
}

/// `urBindlessImagesImageFreeExp`. `INVALID_VALUE` for a mipmap and its levels, and for other numbers.
pub fn free(
    this: &OfContext,
    device: &Object<Device>,
    handle: ur_exp_image_mem_native_handle_t,
) -> Result<()> {
    let found = find_of(this, &gpu(this, device)?, handle)?;
    let single = matches!(found.storage, Storage::Array(_));
    ensure(single, UNKNOWN.code())?;
    end(this, handle);
    Ok(())
}

/// `urBindlessImagesMipmapFreeExp`. `INVALID_VALUE` for image memory without levels, and for other numbers.
pub fn free_mipmap(
    this: &OfContext,
    device: &Object<Device>,
    handle: ur_exp_image_mem_native_handle_t,
) -> Result<()> {
    let found = find_of(this, &gpu(this, device)?, handle)?;
    let whole = matches!(found.storage, Storage::Mipmap { .. });
    ensure(whole, UNKNOWN.code())?;
    end(this, handle);
    Ok(())
}

/// `urBindlessImagesMipmapGetLevelExp`. A level has one handle, however often it is asked for.
pub fn level(
    this: &OfContext,
    device: &Object<Device>,
    handle: ur_exp_image_mem_native_handle_t,
    level: u32,
) -> Result<ur_exp_image_mem_native_handle_t> {
    let found = find_of(this, &gpu(this, device)?, handle)?;
    let Storage::Mipmap { whole, levels } = &found.storage else {
        return Err(UNKNOWN);
    };
    ensure(level < *levels, UNKNOWN.code())?;
    let is_it = |memory: &ImageMemory| {
        matches!(&memory.storage, Storage::Level { of, level: own, .. }
            if *own == level && Arc::ptr_eq(of, whole))
    };
    let mut all = bindless(this).memory.lock();
    if let Some((known, _)) = all.iter().find(|(_, memory)| is_it(memory)) {
        return Ok(*known);
    }
    let made = ImageMemory {
        gpu: Arc::clone(&found.gpu),
        shape: level_of(&found.shape, level),
        format: found.format,
        texel: found.texel,
        storage: Storage::Level {
            array: whole.level(level)?,
            of: Arc::clone(whole),
            level,
        },
        keeps: found.keeps.clone(),
    };
    let handle = made.handle();
    all.insert(handle, Arc::new(made));
    Ok(handle)
}

/// `urBindlessImagesImageGetInfoExp`. `INVALID_VALUE` for a number that is no handle.
pub fn info(
    this: &OfContext,
    handle: ur_exp_image_mem_native_handle_t,
    what: ImageInfo,
    out: InfoOut<'_>,
) -> Result<()> {
    let own = find(this, handle).ok_or(UNKNOWN)?;
    let (shape, texel) = (&own.shape, own.texel.bytes);
    let row = shape.width * texel;
    let is_deep = shape.depth > 0;
    match what {
        ImageInfo::Format => out.value(own.format),
        ImageInfo::ElementSize => out.value(texel),
        ImageInfo::RowPitch => out.value(row),
        ImageInfo::SlicePitch => out.value(if is_deep {
            row * shape.height.max(1)
        } else {
            0
        }),
        ImageInfo::Width => out.value(shape.width),
        ImageInfo::Height => out.value(shape.height),
        ImageInfo::Depth => out.value(if has_layers(shape) { 0 } else { shape.depth }),
        ImageInfo::ArraySize => out.value(if has_layers(shape) { shape.depth } else { 0 }),
        ImageInfo::NumMipLevels => out.value(match own.storage {
            Storage::Mipmap { levels, .. } => levels,
            Storage::Array(_) | Storage::Level { .. } => 0,
        }),
        ImageInfo::NumSamples => out.value(0_u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desc(kind: ur_mem_type_t, sizes: [usize; 3], layers: usize, levels: u32) -> ur_image_desc_t {
        let [width, height, depth] = sizes;
        ur_image_desc_t {
            r#type: kind,
            width,
            height,
            depth,
            arraySize: layers,
            numMipLevel: levels,
            ..Default::default()
        }
    }

    #[test]
    fn levels_halve_sizes_and_keep_layers() {
        let shape = |kind, sizes, layers| shape_of(&desc(kind, sizes, layers, 1)).expect("a shape");
        let flat = shape(UR_MEM_TYPE_IMAGE2D, [9, 4, 0], 0);
        assert_eq!(extent(&level_of(&flat, 1)), [4, 2, 1]);
        assert_eq!(extent(&level_of(&flat, 3)), [1, 1, 1]);
        let deep = shape(UR_MEM_TYPE_IMAGE3D, [8, 8, 8], 0);
        assert_eq!(extent(&level_of(&deep, 1)), [4, 4, 4]);
        let layered = shape(UR_MEM_TYPE_IMAGE1D_ARRAY, [8, 0, 0], 5);
        assert_eq!(extent(&level_of(&layered, 2)), [2, 1, 5]);
    }

    #[test]
    fn a_size_has_so_many_levels() {
        let of = |sizes, levels_wanted| {
            let desc = desc(UR_MEM_TYPE_IMAGE2D, sizes, 0, levels_wanted);
            levels(&desc, &shape_of(&desc).expect("a shape")).map_err(Error::code)
        };
        assert_eq!(of([8, 3, 0], 0), Ok(1));
        assert_eq!(of([8, 3, 0], 4), Ok(4));
        assert_eq!(of([8, 3, 0], 5), Err(UR_RESULT_ERROR_INVALID_VALUE));
    }

    #[test]
    fn a_cube_has_six_square_faces() {
        let of = |sizes, faces| {
            let desc = desc(UR_MEM_TYPE_IMAGE_CUBEMAP_EXP, sizes, faces, 1);
            shape_of(&desc).map(drop).map_err(Error::code)
        };
        assert_eq!(of([4, 4, 0], 6), Ok(()));
        for (sizes, faces) in [([4, 2, 0], 6), ([4, 4, 0], 5), ([4, 4, 0], 12)] {
            assert_eq!(of(sizes, faces), Err(UR_RESULT_ERROR_INVALID_IMAGE_SIZE));
        }
    }
}

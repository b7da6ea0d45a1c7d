//! The sizes that a device supports, by the kind of image and what it is for.

use ur::abi::*;
use ur::hal::answers::{ImageRole, LinearRows};
use ur::object::{Object, Result, ensure};

use super::OfContext;
use super::memory::{levels, shape_of, texel_of};
use crate::cu::sys::CUdevice_attribute::{self as Attribute, *};
use crate::device::Device;
use crate::image::{Shape, Texel};

/// The attributes that limit width, height and depth or layers. Sizes that have none are not limited.
type Limits = &'static [Attribute];

/// The limits of a kind, with several mip levels or one. None if there is no such image.
#[rustfmt::skip]
fn limits(kind: ur_mem_type_t, is_mipmap: bool, role: ImageRole) -> Option<Limits> {
    use ImageRole::{Linear, Sampled, Unsampled};
    const D1: &[Attribute] = &[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH];
    const D1_LINEAR: &[Attribute] = &[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH];
    const D1_MIPMAP: &[Attribute] = &[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH];
    const D1_SURFACE: &[Attribute] = &[CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH];
    const D2: &[Attribute] = &[
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT,
    ];
    const D2_LINEAR: &[Attribute] = &[
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT,
    ];
    const D2_MIPMAP: &[Attribute] = &[
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT,
    ];
    const D2_SURFACE: &[Attribute] = &[
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT,
    ];
    const D3: &[Attribute] = &[
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH,
    ];
    const D3_SURFACE: &[Attribute] = &[
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH,
    ];
    const D1_LAYERS: &[Attribute] = &[
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS,
    ];
    const D1_LAYERS_SURFACE: &[Attribute] = &[
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS,
    ];
    const D2_LAYERS: &[Attribute] = &[
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS,
    ];
    const D2_LAYERS_SURFACE: &[Attribute] = &[
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS,
    ];
    const CUBE: &[Attribute] = &[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH];
    const CUBE_SURFACE: &[Attribute] = &[CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH];
    Some(match (kind, role) {
        (UR_MEM_TYPE_IMAGE1D, Linear) if !is_mipmap => D1_LINEAR,
        (UR_MEM_TYPE_IMAGE2D, Linear) if !is_mipmap => D2_LINEAR,
        (_, Linear) => return None,
        (UR_MEM_TYPE_IMAGE1D, Sampled) => if is_mipmap { D1_MIPMAP } else { D1 },
        (UR_MEM_TYPE_IMAGE1D, Unsampled) => D1_SURFACE,
        (UR_MEM_TYPE_IMAGE2D, Sampled) => if is_mipmap { D2_MIPMAP } else { D2 },
        (UR_MEM_TYPE_IMAGE2D, Unsampled) => D2_SURFACE,
        (UR_MEM_TYPE_IMAGE3D, Sampled) => D3,
        (UR_MEM_TYPE_IMAGE3D, Unsampled) => D3_SURFACE,
        (UR_MEM_TYPE_IMAGE1D_ARRAY, Sampled) => D1_LAYERS,
        (UR_MEM_TYPE_IMAGE1D_ARRAY, Unsampled) => D1_LAYERS_SURFACE,
        (UR_MEM_TYPE_IMAGE2D_ARRAY, Sampled) => D2_LAYERS,
        (UR_MEM_TYPE_IMAGE2D_ARRAY, Unsampled) => D2_LAYERS_SURFACE,
        (UR_MEM_TYPE_IMAGE_CUBEMAP_EXP, Sampled) => CUBE,
        (UR_MEM_TYPE_IMAGE_CUBEMAP_EXP, Unsampled) => CUBE_SURFACE,
        _ => return None,
    })
}

/// Whether the device has images of this shape for this role.
pub fn fits(
    device: &Device,
    kind: ur_mem_type_t,
    shape: &Shape,
    levels: u32,
    role: ImageRole,
) -> Result<bool> {
    let Some(limits) = limits(kind, levels > 1, role) else {
        return Ok(false);
    };
    // Sizes that the kind lacks are 0.
    let sizes = [shape.width, shape.height, shape.depth];
    let sizes = sizes.into_iter().filter(|size| *size > 0);
    for (size, limit) in sizes.zip(limits) {
        let most = device.attribute(*limit)?.max(0) as usize;
        if size > most {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The rows of an image in linear memory. None if the driver does not take them: 2D images are aligned.
pub fn rows(
    device: &Device,
    desc: &ur_image_desc_t,
    shape: &Shape,
    texel: Texel,
) -> Result<Option<LinearRows>> {
    let Some(packed) = shape.width.checked_mul(texel.bytes) else {
        return Ok(None);
    };
    if desc.r#type != UR_MEM_TYPE_IMAGE2D {
        return Ok(Some(LinearRows::new(1, packed, 0)));
    }
    let most = device.attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH)?;
    let align = device.attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT)?;
    let rows = LinearRows::new(shape.height, packed, desc.rowPitch);
    let fit = rows.fit(align.max(1) as usize, most.max(0) as usize);
    Ok(fit.then_some(rows))
}

/// Whether an image of this description exists for a role. A description that is none is no error here. The driver's
/// surfaces lie in arrays alone.
pub fn has_image(
    this: &OfContext,
    device: &Object<Device>,
    format: &ur_image_format_t,
    desc: &ur_image_desc_t,
    role: ImageRole,
) -> Result<bool> {
    this.check_device(device)?;
    let role = match role {
        ImageRole::UnsampledLinear => return Ok(false),
        // All image memory can be sampled.
        ImageRole::Memory => ImageRole::Sampled,
        role => role,
    };
    let able = device.api().imaging().is_some();
    ensure(able, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    let (Ok(shape), Ok(texel)) = (shape_of(desc), texel_of(format)) else {
        return Ok(false);
    };
    let Ok(levels) = levels(desc, &shape) else {
        return Ok(false);
    };
    // Kernels read and write the levels of a mipmap one by one, as images of their own.
    let handle = role != ImageRole::Unsampled || levels == 1;
    let lies = role != ImageRole::Linear || rows(device, desc, &shape, texel)?.is_some();
    Ok(handle && lies && fits(device, desc.r#type, &shape, levels, role)?)
}

//! Images on a device: whether it has them, and how large they may be.

use std::sync::OnceLock;

use ur::abi::*;
use ur::object::Result;
use ur::object::env::Env;

use super::Device;
use crate::cu::sys::CUdevice_attribute as Attribute;
use crate::cu::sys::CUdevice_attribute::*;

/// The variables that turn images on. Device code of DPC++ handles few formats of images on CUDA, so that they are
/// off for programs that ask whether a device has images.
const VARIABLES: [&str; 2] = [
    "UR_CUDA_ENABLE_IMAGE_SUPPORT",
    "SYCL_UR_CUDA_ENABLE_IMAGE_SUPPORT",
];

fn are_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| {
        let environment = Env::process();
        VARIABLES.iter().any(|name| environment.flag(name, false))
    })
}

/// The largest size along an axis: that of textures and that of surfaces. None for an axis of one pixel.
type Axis = Option<[Attribute; 2]>;

#[rustfmt::skip]
const LIMITS: [(ur_mem_type_t, [Axis; 3]); 5] = [
    (UR_MEM_TYPE_IMAGE1D, [
        Some([CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH]),
        None,
        None,
    ]),
    (UR_MEM_TYPE_IMAGE2D, [
        Some([CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH]),
        Some([CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT]),
        None,
    ]),
    (UR_MEM_TYPE_IMAGE3D, [
        Some([CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH]),
        Some([CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT]),
        Some([CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH]),
    ]),
    (UR_MEM_TYPE_IMAGE1D_ARRAY, [
        Some([CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH]),
        Some([CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS]),
        None,
    ]),
    (UR_MEM_TYPE_IMAGE2D_ARRAY, [
        Some([CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH]),
        Some([CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT]),
        Some([CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS]),
    ]),
];

impl Device {
    /// Whether images and samplers can be made: the driver has arrays, and the user wants images.
    pub fn has_images(&self) -> bool {
        are_wanted() && self.api.imaging().is_some()
    }

    /// The largest image of a kind, in pixels along each axis; 1 for axes that it lacks.
    pub fn max_extent(&self, kind: ur_mem_type_t) -> Result<[usize; 3]> {
        let mut extent = [1; 3];
        let found = LIMITS.iter().find(|(own, _)| *own == kind);
        for (size, axis) in extent
            .iter_mut()
            .zip(found.map_or(&[None; 3], |found| &found.1))
        {
            if let Some([texture, surface]) = *axis {
                let least = self.attribute(texture)?.min(self.attribute(surface)?);
                *size = least.max(0) as usize;
            }
        }
        Ok(extent)
    }
}

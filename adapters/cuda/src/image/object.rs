//! Textures and surfaces: what a kernel takes to read or write an image.

use std::ffi::c_uint;
use std::ptr::{from_ref, null};
use std::sync::Arc;

use ur::object::Result;

use super::array::calls;
use super::{Array, Mipmap, Texel};
use crate::cu::sys::*;
use crate::exec::Gpu;

/// Memory that a texture is made over. It must outlive the texture.
#[derive(Clone, Copy)]
pub enum Resource<'a> {
    Array(&'a Array),
    Mipmap(&'a Mipmap),
    /// So many bytes of linear memory.
    Linear {
        address: u64,
        texel: Texel,
        bytes: usize,
    },
    /// Rows of linear memory: sizes in texels, and the bytes from row to row.
    Pitched {
        address: u64,
        texel: Texel,
        width: usize,
        height: usize,
        pitch: usize,
    },
}

impl Resource<'_> {
    fn described(&self) -> CUDA_RESOURCE_DESC {
        let mut what = CUDA_RESOURCE_DESC {
            resType: CUresourcetype::CU_RESOURCE_TYPE_ARRAY,
            // The driver wants zeroes in what a kind does not use.
            res: CUDA_RESOURCE_DESC_st__bindgen_ty_1 {
                reserved: CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_5 { reserved: [0; 32] },
            },
            flags: 0,
        };
        match *self {
            Resource::Array(array) => what.res.array.hArray = array.raw(),
            Resource::Mipmap(mipmap) => {
                what.resType = CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
                what.res.mipmap.hMipmappedArray = mipmap.raw();
            }
            Resource::Linear {
                address,
                texel,
                bytes,
            } => {
                what.resType = CUresourcetype::CU_RESOURCE_TYPE_LINEAR;
                what.res.linear = CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_3 {
                    devPtr: address,
                    format: texel.format,
                    numChannels: texel.channels,
                    sizeInBytes: bytes,
                };
            }
            Resource::Pitched {
                address,
                texel,
                width,
                height,
                pitch,
            } => {
                what.resType = CUresourcetype::CU_RESOURCE_TYPE_PITCH2D;
                what.res.pitch2D = CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_4 {
                    devPtr: address,
                    format: texel.format,
                    numChannels: texel.channels,
                    width,
                    height,
                    pitchInBytes: pitch,
                };
            }
        }
        what
    }
}

/// A texture. Its number is what a kernel takes.
pub struct Texture {
    gpu: Arc<Gpu>,
    raw: CUtexObject,
}

impl Texture {
    /// A texture over memory of the device. `view` reinterprets an array, if it is given.
    pub fn create(
        gpu: &Arc<Gpu>,
        over: Resource<'_>,
        how: &CUDA_TEXTURE_DESC,
        view: Option<&CUDA_RESOURCE_VIEW_DESC>,
    ) -> Result<Self> {
        let calls = calls(gpu)?;
        let _current = gpu.enter()?;
        let (what, view, mut raw) = (over.described(), view.map_or(null(), from_ref), 0);
        // SAFETY: room for an object, and readable descriptions, the last of which may be null.
        let code = unsafe { (calls.create_texture)(&mut raw, &what, how, view) };
        gpu.check(code, "cuTexObjectCreate")?;
        Ok(Self {
            gpu: Arc::clone(gpu),
            raw,
        })
    }

    pub fn raw(&self) -> CUtexObject {
        self.raw
    }
}

impl Drop for Texture {
    fn drop(&mut self) {
        if let (Ok(calls), Ok(_current)) = (calls(&self.gpu), self.gpu.enter()) {
            // SAFETY: the texture is ours, and its use is over.
            let code = unsafe { (calls.destroy_texture)(self.raw) };
            if !code.is_success() {
                log::error!("cuTexObjectDestroy failed with {}", code.0);
            }
        }
    }
}

/// A surface. Its number is what a kernel takes.
pub struct Surface {
    gpu: Arc<Gpu>,
    raw: CUsurfObject,
}

impl Surface {
    /// Arrays under surfaces have this flag.
    pub const ARRAY_FLAGS: c_uint = CUDA_ARRAY3D_SURFACE_LDST;

    /// A surface over an array, which must outlive it.
    pub fn create(over: &Array) -> Result<Self> {
        let gpu = over.gpu();
        let calls = calls(gpu)?;
        let _current = gpu.enter()?;
        let (what, mut raw) = (Resource::Array(over).described(), 0);
        // SAFETY: room for an object, and a readable description.
        let code = unsafe { (calls.create_surface)(&mut raw, &what) };
        gpu.check(code, "cuSurfObjectCreate")?;
        Ok(Self {
            gpu: Arc::clone(gpu),
            raw,
        })
    }

    pub fn raw(&self) -> CUsurfObject {
        self.raw
    }
}

impl Drop for Surface {
    fn drop(&mut self) {
        if let (Ok(calls), Ok(_current)) = (calls(&self.gpu), self.gpu.enter()) {
            // SAFETY: the surface is ours, and its use is over.
            let code = unsafe { (calls.destroy_surface)(self.raw) };
            if !code.is_success() {
                log::error!("cuSurfObjectDestroy failed with {}", code.0);
            }
        }
    }
}

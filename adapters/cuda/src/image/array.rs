//! Arrays and mipmapped arrays: memory of a device whose layout only the driver knows.

use std::ffi::c_uint;
use std::ptr::null_mut;
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Result};

use super::{Shape, Texel};
use crate::cu::sys::*;
use crate::cu::{Code, Imaging, failure};
use crate::exec::Gpu;

/// The functions of a device's driver. `UNSUPPORTED_FEATURE` if it has none.
pub(super) fn calls(gpu: &Gpu) -> Result<Imaging> {
    gpu.api.imaging().ok_or(Error::unsupported())
}

/// The error of a failed creation. The driver answers sizes beyond its limits as it does any wrong value.
fn refused(gpu: &Gpu, code: Code, call: &str) -> Error {
    let error = failure(gpu.api, code, call);
    match code {
        Code::INVALID_VALUE => Error::new(UR_RESULT_ERROR_INVALID_IMAGE_SIZE),
        _ => error,
    }
}

/// An array, or a level of a mipmapped one.
pub struct Array {
    gpu: Arc<Gpu>,
    raw: CUarray,
    owner: Owner,
}

enum Owner {
    /// Destroyed on drop.
    Us,
    /// Foreign code, which keeps it.
    User,
    /// The mipmapped array that it is a level of.
    Mipmap { _whole: Arc<Mipmap> },
}

// SAFETY: the driver's objects may be used from any thread.
unsafe impl Send for Array {}
// SAFETY: the driver's objects may be used from any thread.
unsafe impl Sync for Array {}

impl Array {
    /// A new array. `flags` are `CUDA_ARRAY3D_*` beyond those of its kind. `INVALID_IMAGE_SIZE` for sizes that the
    /// driver refuses.
    pub fn create(gpu: &Arc<Gpu>, shape: &Shape, texel: Texel, flags: c_uint) -> Result<Self> {
        let calls = calls(gpu)?;
        let _current = gpu.enter()?;
        let (what, mut raw) = (shape.described(texel, flags), null_mut());
        // SAFETY: room for a handle, and a readable description.
        let code = unsafe { (calls.create_array)(&mut raw, &what) };
        match code.is_success() && !raw.is_null() {
            true => Ok(Self {
                gpu: Arc::clone(gpu),
                raw,
                owner: Owner::Us,
            }),
            false => Err(refused(gpu, code, "cuArray3DCreate")),
        }
    }

    /// A foreign array of the device. It is destroyed on drop if `owned`.
    pub fn adopt(gpu: &Arc<Gpu>, raw: CUarray, owned: bool) -> Self {
        Self {
            gpu: Arc::clone(gpu),
            raw,
            owner: if owned { Owner::Us } else { Owner::User },
        }
    }

    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    pub fn raw(&self) -> CUarray {
        self.raw
    }

    /// Whether foreign code destroys the array.
    pub fn is_foreign(&self) -> bool {
        matches!(self.owner, Owner::User)
    }

    /// The array, which is the caller's from now on.
    pub fn into_raw(mut self) -> CUarray {
        self.owner = Owner::User;
        self.raw
    }

    /// The driver's description of it.
    pub fn description(&self) -> Result<CUDA_ARRAY3D_DESCRIPTOR> {
        let calls = calls(&self.gpu)?;
        let _current = self.gpu.enter()?;
        let mut what = CUDA_ARRAY3D_DESCRIPTOR {
            Width: 0,
            Height: 0,
            Depth: 0,
            Format: CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8,
            NumChannels: 0,
            Flags: 0,
        };
        // SAFETY: room for a description, and a live array.
        let code = unsafe { (calls.describe_array)(&mut what, self.raw) };
        self.gpu.check(code, "cuArray3DGetDescriptor")?;
        Ok(what)
    }
}

impl Drop for Array {
    /// No command uses the array: its users saw to that.
    fn drop(&mut self) {
        if !matches!(self.owner, Owner::Us) {
            return;
        }
        if let (Ok(calls), Ok(_current)) = (calls(&self.gpu), self.gpu.enter()) {
            // SAFETY: the array is ours, and its use is over.
            let code = unsafe { (calls.destroy_array)(self.raw) };
            if !code.is_success() {
                log::error!("cuArrayDestroy failed with {}", code.0);
            }
        }
    }
}

/// A mipmapped array.
pub struct Mipmap {
    gpu: Arc<Gpu>,
    raw: CUmipmappedArray,
    is_ours: bool,
}

// SAFETY: the driver's objects may be used from any thread.
unsafe impl Send for Mipmap {}
// SAFETY: the driver's objects may be used from any thread.
unsafe impl Sync for Mipmap {}

impl Mipmap {
    /// A new one with so many levels. `flags` are `CUDA_ARRAY3D_*` beyond those of its kind. `INVALID_IMAGE_SIZE`
    /// for sizes, or a number of levels, that the driver refuses.
    pub fn create(
        gpu: &Arc<Gpu>,
        shape: &Shape,
        texel: Texel,
        flags: c_uint,
        levels: c_uint,
    ) -> Result<Self> {
        let calls = calls(gpu)?;
        let _current = gpu.enter()?;
        let (what, mut raw) = (shape.described(texel, flags), null_mut());
        // SAFETY: room for a handle, and a readable description.
        let code = unsafe { (calls.create_mipmap)(&mut raw, &what, levels) };
        match code.is_success() && !raw.is_null() {
            true => Ok(Self {
                gpu: Arc::clone(gpu),
                raw,
                is_ours: true,
            }),
            false => Err(refused(gpu, code, "cuMipmappedArrayCreate")),
        }
    }

    /// A foreign one of the device. It is destroyed on drop if `owned`.
    pub fn adopt(gpu: &Arc<Gpu>, raw: CUmipmappedArray, owned: bool) -> Self {
        Self {
            gpu: Arc::clone(gpu),
            raw,
            is_ours: owned,
        }
    }

    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    pub fn raw(&self) -> CUmipmappedArray {
        self.raw
    }

    /// The array of a level. `INVALID_VALUE` if there are not so many.
    pub fn level(self: &Arc<Self>, level: c_uint) -> Result<Array> {
        let calls = calls(&self.gpu)?;
        let _current = self.gpu.enter()?;
        let mut raw = null_mut();
        // SAFETY: room for a handle, and a live mipmapped array.
        let code = unsafe { (calls.level)(&mut raw, self.raw, level) };
        self.gpu.check(code, "cuMipmappedArrayGetLevel")?;
        Ok(Array {
            gpu: Arc::clone(&self.gpu),
            raw,
            owner: Owner::Mipmap {
                _whole: Arc::clone(self),
            },
        })
    }
}

impl Drop for Mipmap {
    /// No command uses the levels: their users saw to that.
    fn drop(&mut self) {
        if !self.is_ours {
            return;
        }
        if let (Ok(calls), Ok(_current)) = (calls(&self.gpu), self.gpu.enter()) {
            // SAFETY: the mipmapped array is ours, and its use is over.
            let code = unsafe { (calls.destroy_mipmap)(self.raw) };
            if !code.is_success() {
                log::error!("cuMipmappedArrayDestroy failed with {}", code.0);
            }
        }
    }
}

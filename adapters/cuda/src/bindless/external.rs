//! Memory of another interface: imports, and their mappings as linear memory and as image memory.

use std::ffi::c_void;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Arc;

use ur::abi::*;
use ur::hal;
use ur::hal::answers::file_descriptor;
use ur::object::{Body, Error, Kind, Object, Result, ensure};

use super::memory::{self, ImageMemory, levels, shape_of, texel_of};
use super::{OfContext, bindless, check_home, gpu};
use crate::Cuda;
use crate::cu::ExternalMemories;
use crate::cu::sys::*;
use crate::device::Device;
use crate::exec::Gpu;
use crate::image::{Mipmap, Surface};

/// Imported memory behind its handle.
pub struct ExternalMem {
    memory: Arc<Imported>,
}

/// Memory of the driver's, which the mappings of it keep.
struct Imported {
    gpu: Arc<Gpu>,
    calls: ExternalMemories,
    raw: CUexternalMemory,
    bytes: u64,
}

// SAFETY: the driver's objects may be used from any thread.
unsafe impl Send for Imported {}
// SAFETY: the driver's objects may be used from any thread.
unsafe impl Sync for Imported {}

impl Drop for Imported {
    fn drop(&mut self) {
        if let Ok(_current) = self.gpu.enter() {
            // SAFETY: imported by `ExternalMem::import`, and the mappings of it have ended.
            let code = unsafe { (self.calls.destroy)(self.raw) };
            if !code.is_success() {
                log::error!("cuDestroyExternalMemory failed with {}", code.0);
            }
        }
    }
}

impl Body for ExternalMem {
    const KIND: Kind = Kind::ExternalMem;
}

impl hal::ExternalMem<Cuda> for ExternalMem {}

fn calls(gpu: &Gpu) -> Result<ExternalMemories> {
    gpu.api.external_memories().ok_or(Error::unsupported())
}

impl ExternalMem {
    /// `urBindlessImagesImportExternalMemoryExp`. The driver takes the file descriptor over if this succeeds.
    ///
    /// `INVALID_VALUE` without a size or a descriptor, `UNSUPPORTED_FEATURE` for other kinds of handles.
    pub fn import(
        this: &OfContext,
        device: &Object<Device>,
        size: usize,
        kind: ur_exp_external_mem_type_t,
        desc: &ur_exp_external_mem_desc_t,
    ) -> Result<Arc<Object<Self>>> {
        let gpu = gpu(this, device)?;
        let calls = calls(&gpu)?;
        ensure(size > 0, UR_RESULT_ERROR_INVALID_VALUE)?;
        let known = kind == UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD;
        ensure(known, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        let what = CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
            type_: CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
            handle: CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1 {
                // SAFETY: the caller's chain consists of live structs tagged as what they are.
                fd: unsafe { file_descriptor(desc.pNext) }?,
            },
            size: size as u64,
            flags: 0,
            reserved: [0; 16],
        };
        let _current = gpu.enter()?;
        let mut raw = null_mut();
        // SAFETY: room for a handle, and a readable description.
        let code = unsafe { (calls.import)(&mut raw, &what) };
        gpu.check(code, "cuImportExternalMemory")?;
        let memory = Arc::new(Imported {
            gpu: Arc::clone(&gpu),
            calls,
            raw,
            bytes: size as u64,
        });
        Ok(hal::new::<Cuda, _>(Self { memory }))
    }

    /// `urBindlessImagesReleaseExternalMemoryExp`
    pub fn end(this: &OfContext, device: &Object<Device>, own: &Object<Self>) -> Result<()> {
        check_home(&own.memory.gpu, &gpu(this, device)?)?;
        own.release()
    }
}

/// A mapping as linear memory.
pub struct LinearMap {
    memory: Arc<Imported>,
    start: CUdeviceptr,
}

impl Drop for LinearMap {
    fn drop(&mut self) {
        let gpu = &self.memory.gpu;
        if let Ok(_current) = gpu.enter() {
            // SAFETY: mapped by `map_linear`, and no command uses it.
            let code = unsafe { (gpu.api.cuMemFree)(self.start) };
            if !code.is_success() {
                log::error!("cuMemFree failed with {}", code.0);
            }
        }
    }
}

/// `urBindlessImagesMapExternalLinearMemoryExp`. `INVALID_VALUE` for a part that the memory does not have.
pub fn map_linear(
    this: &OfContext,
    device: &Object<Device>,
    offset: u64,
    size: u64,
    own: &Object<ExternalMem>,
) -> Result<*mut c_void> {
    let memory = &own.memory;
    let gpu = gpu(this, device)?;
    check_home(&memory.gpu, &gpu)?;
    let inside = offset
        .checked_add(size)
        .is_some_and(|end| end <= memory.bytes);
    ensure(inside && size > 0, UR_RESULT_ERROR_INVALID_VALUE)?;
    let what = CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
        offset,
        size,
        flags: 0,
        reserved: [0; 16],
    };
    let mut start = 0;
    {
        let _current = gpu.enter()?;
        // SAFETY: room for an address, live memory, and a readable description.
        let code = unsafe { (memory.calls.map_buffer)(&mut start, memory.raw, &what) };
        gpu.check(code, "cuExternalMemoryGetMappedBuffer")?;
    }
    let map = LinearMap {
        memory: Arc::clone(memory),
        start,
    };
    let at = start as usize;
    this.add_foreign(at, size as usize, device)?;
    bindless(this).linear.lock().insert(at, map);
    Ok(with_exposed_provenance_mut(at))
}

/// `urBindlessImagesFreeMappedLinearMemoryExp`. `INVALID_VALUE` for an address of no mapping.
pub fn free_linear(this: &OfContext, device: &Object<Device>, at: *mut c_void) -> Result<()> {
    let at = at.addr();
    let gpu = gpu(this, device)?;
    let wrong = Error::new(UR_RESULT_ERROR_INVALID_VALUE);
    let ended = {
        let mut all = bindless(this).linear.lock();
        check_home(&all.get(&at).ok_or(wrong)?.memory.gpu, &gpu)?;
        all.remove(&at)
    };
    this.remove_foreign(at)?;
    // Commands may use the memory.
    this.drop_after_use(ended);
    Ok(())
}

/// `urBindlessImagesMapExternalArrayExp`: image memory over the whole import.
pub fn map_array(
    this: &OfContext,
    device: &Object<Device>,
    format: &ur_image_format_t,
    desc: &ur_image_desc_t,
    own: &Object<ExternalMem>,
) -> Result<ur_exp_image_mem_native_handle_t> {
    let memory = &own.memory;
    let gpu = gpu(this, device)?;
    check_home(&memory.gpu, &gpu)?;
    let (texel, shape) = (texel_of(format)?, shape_of(desc)?);
    let levels = levels(desc, &shape)?;
    let texels = memory::extent(&shape)
        .into_iter()
        .try_fold(texel.bytes, usize::checked_mul);
    let inside = texels.is_some_and(|bytes| bytes as u64 <= memory.bytes);
    ensure(inside, UR_RESULT_ERROR_INVALID_IMAGE_SIZE)?;
    let what = CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC {
        offset: 0,
        arrayDesc: shape.described(texel, Surface::ARRAY_FLAGS),
        numLevels: levels,
        reserved: [0; 16],
    };
    let mut raw = null_mut();
    {
        let _current = gpu.enter()?;
        // SAFETY: room for a handle, live memory, and a readable description.
        let code = unsafe { (memory.calls.map_mipmap)(&mut raw, memory.raw, &what) };
        gpu.check(code, "cuExternalMemoryGetMappedMipmappedArray")?;
    }
    let mipmap = Mipmap::adopt(&gpu, raw, true);
    let keeps: Arc<Imported> = Arc::clone(memory);
    let made = ImageMemory::mapped(mipmap, (shape, levels), (*format, texel), keeps)?;
    Ok(made.give(this))
}

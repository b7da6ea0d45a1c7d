//! Memory of another interface: imports, and their mappings as linear memory.
//!
//! The interface imports where it allocates, so that each mapping is an import of its own. The first one, which ends at
//! once, tells whether the descriptor is one.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr::{from_mut, null_mut, with_exposed_provenance_mut};
use std::sync::Arc;

use ur::abi::*;
use ur::hal;
use ur::hal::answers::file_descriptor;
use ur::object::{Body, Error, Kind, Object, Result, ensure};

use super::{OfContext, bindless, check_home};
use crate::LevelZero;
use crate::context::NativeContext;
use crate::device::Device;
use crate::exec;
use crate::lz::*;

/// Imported memory behind its handle.
pub struct ExternalMem {
    memory: Arc<Imported>,
}

/// A descriptor of memory, which the mappings of it keep.
pub struct Imported {
    context: Arc<NativeContext>,
    pub device: Arc<Object<Device>>,
    file: OwnedFd,
    kind: ze_external_memory_type_flags_t,
    pub bytes: usize,
}

impl Imported {
    /// The import as the driver describes it.
    pub fn described(&self) -> ze_external_memory_import_fd_t {
        described(self.kind, self.file.as_raw_fd())
    }
}

fn described(kind: ze_external_memory_type_flags_t, file: c_int) -> ze_external_memory_import_fd_t {
    ze_external_memory_import_fd_t {
        flags: kind,
        fd: file,
        ..Default::default()
    }
}

impl Body for ExternalMem {
    const KIND: Kind = Kind::ExternalMem;
}

impl hal::ExternalMem<LevelZero> for ExternalMem {}

/// The kinds of descriptors, each with the driver's.
const KINDS: [(ur_exp_external_mem_type_t, ze_external_memory_type_flag_t); 2] = [
    (
        UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD,
        ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD,
    ),
    (
        UR_EXP_EXTERNAL_MEM_TYPE_DMA_BUF,
        ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF,
    ),
];

/// Whether the driver imports memory at all.
pub fn can_import(device: &Device) -> bool {
    KINDS
        .iter()
        .any(|(kind, _)| imports(device, *kind).is_some())
}

/// `urBindlessImagesSupportsImportingHandleTypeExp`. `UNSUPPORTED_FEATURE` if the driver imports none.
pub fn can_import_kind(device: &Device, kind: ur_exp_external_mem_type_t) -> Result<ur_bool_t> {
    ensure(can_import(device), UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    Ok(imports(device, kind).is_some().into())
}

/// The driver's kind of a descriptor that it imports memory from. None for other kinds.
fn imports(
    device: &Device,
    kind: ur_exp_external_mem_type_t,
) -> Option<ze_external_memory_type_flag_t> {
    let mut known = KINDS.iter();
    let (_, native) = known.find(|(own, _)| *own == kind)?;
    let able = device.facts.external.memoryAllocationImportTypes & native != 0;
    able.then_some(*native)
}

/// The driver's kind of a descriptor that it exports memory as. None for other kinds.
pub fn exports(
    device: &Device,
    kind: ur_exp_external_mem_type_t,
) -> Option<ze_external_memory_type_flag_t> {
    let mut known = KINDS.iter();
    let (_, native) = known.find(|(own, _)| *own == kind)?;
    let able = device.facts.external.memoryAllocationExportTypes & native != 0;
    able.then_some(*native)
}

impl ExternalMem {
    /// `urBindlessImagesImportExternalMemoryExp`. This takes the file descriptor over if it succeeds: the driver does
    /// not, and each mapping needs it.
    ///
    /// `INVALID_VALUE` without a size or a descriptor, `UNSUPPORTED_FEATURE` for other kinds of handles.
    pub fn import(
        this: &OfContext,
        device: &Object<Device>,
        size: usize,
        kind: ur_exp_external_mem_type_t,
        desc: &ur_exp_external_mem_desc_t,
    ) -> Result<Arc<Object<Self>>> {
        this.check_device(device)?;
        ensure(can_import(device), UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        ensure(size > 0, UR_RESULT_ERROR_INVALID_VALUE)?;
        let kind = imports(device, kind).ok_or(Error::unsupported())?;
        // SAFETY: the caller's chain consists of live structs tagged as what they are.
        let file = unsafe { file_descriptor(desc.pNext) }?;
        let context = &this.domain().state().native;
        exec::free(context, map(context, device, described(kind, file), size)?);
        let memory = Arc::new(Imported {
            context: Arc::clone(context),
            device: device.arc(),
            // SAFETY: an open descriptor, which the caller hands over with the success of this call.
            file: unsafe { OwnedFd::from_raw_fd(file) },
            kind,
            bytes: size,
        });
        Ok(hal::new::<LevelZero, _>(Self { memory }))
    }

    pub fn memory(&self) -> &Arc<Imported> {
        &self.memory
    }

    /// `urBindlessImagesReleaseExternalMemoryExp`
    pub fn end(this: &OfContext, device: &Object<Device>, own: &Object<Self>) -> Result<()> {
        this.check_device(device)?;
        check_home(&own.memory.device, device)?;
        own.release()
    }
}

/// Imports the memory behind a descriptor, all of it. Returns its address.
fn map(
    context: &NativeContext,
    device: &Object<Device>,
    mut import: ze_external_memory_import_fd_t,
    bytes: usize,
) -> Result<usize> {
    let desc = ze_device_mem_alloc_desc_t::chained(from_mut(&mut import).cast());
    let mut start = null_mut();
    // SAFETY: the description has its tag, its chain lasts for the call, and there is room for the address.
    unsafe {
        call!(
            context.api,
            zeMemAllocDevice(context.raw, &desc, bytes, 0, device.raw(), &mut start)
        )
    }?;
    let start = start.expose_provenance();
    exec::add_memory(context, device, start, bytes).inspect_err(|_| exec::free(context, start))?;
    Ok(start)
}

/// A mapping of imported memory: the address of the whole.
pub struct LinearMap {
    memory: Arc<Imported>,
    start: usize,
}

impl Drop for LinearMap {
    fn drop(&mut self) {
        exec::free(&self.memory.context, self.start);
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
    this.check_device(device)?;
    check_home(&memory.device, device)?;
    let end = offset.checked_add(size);
    let inside = end.is_some_and(|end| end <= memory.bytes as u64);
    ensure(inside && size > 0, UR_RESULT_ERROR_INVALID_VALUE)?;
    let map = LinearMap {
        start: map(&memory.context, device, memory.described(), memory.bytes)?,
        memory: Arc::clone(memory),
    };
    let at = map.start + offset as usize;
    this.add_foreign(at, size as usize, device)?;
    bindless(this).linear.lock().insert(at, map);
    Ok(with_exposed_provenance_mut(at))
}

/// `urBindlessImagesFreeMappedLinearMemoryExp`. `INVALID_VALUE` for an address of no mapping.
pub fn free_linear(this: &OfContext, device: &Object<Device>, at: *mut c_void) -> Result<()> {
    let at = at.addr();
    this.check_device(device)?;
    ensure(can_import(device), UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    let wrong = Error::new(UR_RESULT_ERROR_INVALID_VALUE);
    let ended = {
        let mut all = bindless(this).linear.lock();
        check_home(&all.get(&at).ok_or(wrong)?.memory.device, device)?;
        all.remove(&at)
    };
    this.remove_foreign(at)?;
    // The driver's memory ends without the lock. Commands may use it.
    this.drop_after_use(ended);
    Ok(())
}

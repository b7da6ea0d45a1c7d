//! Device memory that other interfaces import, as a file descriptor.

use std::ffi::{c_int, c_void};
use std::ptr::{from_mut, null_mut};
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Object, Result, ensure};
use ur::stream::Driver;

use super::{OfContext, shared};
use crate::LevelZero;
use crate::bindless::exports;
use crate::context::NativeContext;
use crate::device::Device;
use crate::exec;
use crate::lz::*;

/// One native allocation.
pub(super) struct Exportable {
    context: Arc<NativeContext>,
    device: ze_device_handle_t,
    start: usize,
}

impl Drop for Exportable {
    fn drop(&mut self) {
        exec::free(&self.context, self.start);
    }
}

/// `urMemoryExportAllocExportableMemoryExp`
pub fn alloc(
    this: &OfContext,
    device: &Object<Device>,
    align: usize,
    size: usize,
    kind: ur_exp_external_mem_type_t,
) -> Result<*mut c_void> {
    this.check_device(device)?;
    let max_align = <LevelZero as Driver>::MAX_ALIGN_BYTES;
    ensure(align as u64 <= max_align, UR_RESULT_ERROR_INVALID_VALUE)?;
    ensure(
        size <= exec::max_slab(device),
        UR_RESULT_ERROR_UNSUPPORTED_SIZE,
    )?;
    let flags = exports(device, kind).ok_or(Error::unsupported())?;
    let context = &this.domain().state().native;
    let mut export = ze_external_memory_export_desc_t {
        flags,
        ..Default::default()
    };
    let desc = ze_device_mem_alloc_desc_t::chained(from_mut(&mut export).cast());
    let mut start = null_mut();
    // SAFETY: the description has its tag, its chain lasts for the call, and there is room for the address.
    unsafe {
        call!(
            context.api,
            zeMemAllocDevice(context.raw, &desc, size, align, device.raw(), &mut start)
        )
    }?;
    let addr = start.expose_provenance();
    let own = Exportable {
        context: Arc::clone(context),
        device: device.raw(),
        start: addr,
    };
    exec::add_memory(context, device, addr, size)?;
    this.add_foreign(addr, size, device)?;
    shared(this).exportable.lock().insert(addr, own);
    Ok(start)
}

/// `urMemoryExportFreeExportableMemoryExp`
pub fn free(this: &OfContext, device: &Object<Device>, mem: *mut c_void) -> Result<()> {
    let addr = mem.addr();
    this.check_device(device)?;
    let able = exports(device, UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD).is_some();
    ensure(able, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    let own = {
        let mut all = shared(this).exportable.lock();
        check_home(all.get(&addr), device)?;
        all.remove(&addr)
    };
    this.remove_foreign(addr)?;
    // Commands may use the memory.
    this.drop_after_use(own);
    Ok(())
}

/// `urMemoryExportExportMemoryHandleExp`: a descriptor of the caller's.
pub fn export(
    this: &OfContext,
    device: &Object<Device>,
    kind: ur_exp_external_mem_type_t,
    mem: *mut c_void,
    handle: *mut c_void,
) -> Result<()> {
    this.check_device(device)?;
    let flags = exports(device, kind).ok_or(Error::unsupported())?;
    let all = shared(this).exportable.lock();
    let own = check_home(all.get(&mem.addr()), device)?;
    let mut export = ze_external_memory_export_fd_t {
        flags,
        fd: -1,
        ..Default::default()
    };
    let mut found = ze_memory_allocation_properties_t {
        pNext: from_mut(&mut export).cast(),
        ..Default::default()
    };
    let context = &own.context;
    // SAFETY: the answer has its tag, is writable, and its chain lasts for the call.
    unsafe {
        call!(
            context.api,
            zeMemGetAllocProperties(context.raw, mem, &mut found, null_mut())
        )
    }?;
    ensure(export.fd >= 0, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    // SAFETY: `urMemoryExportExportMemoryHandleExp` promises room for an `int`. The descriptor is the caller's.
    unsafe { handle.cast::<c_int>().write(export.fd) };
    Ok(())
}

/// The memory. `INVALID_VALUE` if there is none, `INVALID_DEVICE` if it is another device's.
fn check_home<'a>(own: Option<&'a Exportable>, device: &Device) -> Result<&'a Exportable> {
    let own = own.ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?;
    ensure(own.device == device.raw(), UR_RESULT_ERROR_INVALID_DEVICE)?;
    Ok(own)
}

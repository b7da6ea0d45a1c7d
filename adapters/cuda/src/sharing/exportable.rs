//! Device memory that other interfaces import, as a file descriptor.

use std::ffi::{c_int, c_void};
use std::os::fd::IntoRawFd as _;
use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Object, Result, ensure};
use ur::stream::Driver;

use super::OfContext;
use super::memory::{Mapping, shared_pages};
use crate::Cuda;
use crate::device::Device;
use crate::exec::Gpu;
use crate::virtual_mem::Page;

/// One native allocation, with its address.
pub(super) struct Exportable {
    gpu: Arc<Gpu>,
    page: Page,
    #[allow(dead_code, reason = "unmaps the memory when dropped")]
    mapping: Mapping,
}

/// File descriptors are the one kind of handle of this system.
fn check_kind(kind: ur_exp_external_mem_type_t) -> Result<()> {
    let known = kind == UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD;
    ensure(known, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)
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
    let max_align = <Cuda as Driver>::MAX_ALIGN_BYTES;
    ensure(align as u64 <= max_align, UR_RESULT_ERROR_INVALID_VALUE)?;
    let max = <Cuda as Driver>::max_alloc(device);
    ensure(size <= max, UR_RESULT_ERROR_UNSUPPORTED_SIZE)?;
    check_kind(kind)?;
    let gpu = device.gpu()?;
    let how = shared_pages(&gpu)?;
    let whole = size.checked_next_multiple_of(how.bytes);
    let whole = whole.ok_or(Error::new(UR_RESULT_ERROR_UNSUPPORTED_SIZE))?;
    let page = Page::of(&gpu, how.create(gpu.api, whole)?);
    let members = &this.domain().state().members;
    let all = (&[(page.handle(), whole)][..], align);
    let mapping = Mapping::shared(&gpu, how, all, &gpu, members)?;
    let start = mapping.start;
    this.add_foreign(start, size, device)?;
    let own = Exportable { gpu, page, mapping };
    let shared = &this.domain().state().shared;
    shared.exportable.lock().insert(start, own);
    Ok(with_exposed_provenance_mut(start))
}

/// `urMemoryExportFreeExportableMemoryExp`
pub fn free(this: &OfContext, device: &Object<Device>, mem: *mut c_void) -> Result<()> {
    let addr = mem.addr();
    this.check_device(device)?;
    let gpu = device.gpu()?;
    let shared = &this.domain().state().shared;
    let own = {
        let mut all = shared.exportable.lock();
        check_home(all.get(&addr), &gpu)?;
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
    check_kind(kind)?;
    let gpu = device.gpu()?;
    let all = this.domain().state().shared.exportable.lock();
    let own = check_home(all.get(&mem.addr()), &gpu)?;
    let _current = gpu.enter()?;
    let descriptor = shared_pages(&gpu)?.export(gpu.api, own.page.handle())?;
    // SAFETY: `urMemoryExportExportMemoryHandleExp` promises room for an `int`.
    unsafe { handle.cast::<c_int>().write(descriptor.into_raw_fd()) };
    Ok(())
}

/// The memory. `INVALID_VALUE` if there is none, `INVALID_DEVICE` if it is another device's.
fn check_home<'a>(own: Option<&'a Exportable>, gpu: &Arc<Gpu>) -> Result<&'a Exportable> {
    let own = own.ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?;
    ensure(Arc::ptr_eq(&own.gpu, gpu), UR_RESULT_ERROR_INVALID_DEVICE)?;
    Ok(own)
}

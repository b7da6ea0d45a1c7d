//! Memory of pools and physical memory that other processes open.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::{null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::Arc;

use ur::abi::*;
use ur::ipc::blob::{ExportName, Subject};
use ur::ipc::broker::{self, Export, Opened};
use ur::ipc::duplicate;
use ur::object::{Error, Object, Out, Result, ensure};

use super::{OfContext, check_able, kind, shared};
use crate::context::NativeContext;
use crate::device::Device;
use crate::driver::SLAB_BYTES;
use crate::exec;
use crate::lz::*;
use crate::virtual_mem::PhysicalMem;

/// The driver's handle of an allocation, while other processes may ask for it.
struct Handle {
    context: Arc<NativeContext>,
    raw: ze_ipc_mem_handle_t,
}

impl Handle {
    fn of(context: &Arc<NativeContext>, start: usize) -> Result<Self> {
        let mut raw = ze_ipc_mem_handle_t::default();
        // SAFETY: an allocation of the context starts there, and there is room for the handle.
        unsafe {
            call!(
                context.api,
                zeMemGetIpcHandle(context.raw, with_exposed_provenance(start), &mut raw)
            )
        }?;
        let context = Arc::clone(context);
        Ok(Self { context, raw })
    }

    /// A new descriptor of the allocation.
    fn descriptor(&self) -> Result<OwnedFd> {
        let mut number = 0;
        let asked = self.context.api.descriptors().map(|(of_handle, _)| {
            // SAFETY: a live handle, and room for the number.
            unsafe { of_handle(self.context.raw, self.raw, &mut number) }
        });
        duplicate(match asked {
            // A new loader has the functions for an old driver, too.
            None | Some(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE) => exec::descriptor_of(&self.raw.data),
            Some(code) => {
                check(code, "zeMemGetFileDescriptorFromIpcHandleExp")?;
                c_int::try_from(number).unwrap_or(-1)
            }
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // An old driver keeps the handle with the memory.
        if let Some(put) = self.context.api.zeMemPutIpcHandle
            && !self.context.api.is_torn_down()
        {
            // SAFETY: a live handle of this context.
            let code = unsafe { put(self.context.raw, self.raw) };
            if let Err(error) = check(code, "zeMemPutIpcHandle") {
                log::error!("a handle of memory stays: {:?}", error.code());
            }
        }
    }
}

/// An allocation of another process, as the driver opened it.
pub(super) struct OpenedMemory {
    context: Arc<NativeContext>,
    start: usize,
}

impl OpenedMemory {
    fn open(context: &Arc<NativeContext>, device: &Object<Device>, file: &OwnedFd) -> Result<Self> {
        let api = context.api;
        let handle = Self::handle(context, file);
        let mut start = null_mut();
        // SAFETY: a handle of this process, and room for the address.
        unsafe {
            call!(
                api,
                zeMemOpenIpcHandle(context.raw, device.raw(), handle, 0, &mut start)
            )
        }?;
        let own = Self {
            context: Arc::clone(context),
            start: start.expose_provenance(),
        };
        let (_, bytes) = exec::allocation(context, own.start)?;
        exec::add_memory(context, device, own.start, bytes)?;
        Ok(own)
    }

    /// The driver's handle of a descriptor of another process. Intel's driver makes handles of its own process's
    /// descriptors alone. It opens one that begins with a descriptor, and is 0 otherwise.
    fn handle(context: &NativeContext, file: &OwnedFd) -> ze_ipc_mem_handle_t {
        let number = file.as_raw_fd();
        let mut handle = ze_ipc_mem_handle_t::default();
        let made = context.api.descriptors().map(|(_, of_descriptor)| {
            let number = u64::from(number.unsigned_abs());
            // SAFETY: an open descriptor, and room for the handle.
            let code = unsafe { of_descriptor(context.raw, number, &mut handle) };
            check(code, "zeMemGetIpcHandleFromFileDescriptorExp")
        });
        if !matches!(made, Some(Ok(()))) {
            handle = ze_ipc_mem_handle_t::default();
            exec::set_descriptor(&mut handle.data, number);
        }
        handle
    }
}

impl Drop for OpenedMemory {
    fn drop(&mut self) {
        let context = &self.context;
        if context.api.is_torn_down() {
            return;
        }
        exec::remove_memory(context, self.start);
        let start: *mut c_void = with_exposed_provenance_mut(self.start);
        // SAFETY: opened by this, and closed once.
        let closed = unsafe { call!(context.api, zeMemCloseIpcHandle(context.raw, start)) };
        if let Err(error) = closed {
            log::error!("memory of another process stays: {:?}", error.code());
        }
    }
}

/// `urIPCGetMemHandleExp`
pub fn get_memory(
    this: &OfContext,
    mem: *mut c_void,
    data: Out<'_, *mut c_void>,
    size: Out<'_, usize>,
) -> Result<()> {
    check_able(this, Subject::Memory)?;
    let addr = mem.addr();
    let block = this.export_block(addr)?;
    if !data.wanted() {
        // Nobody could give the blob back.
        size.set(ExportName::NONE.write(kind(Subject::Memory)).len());
        return Ok(());
    }
    let context = &this.domain().state().native;
    let (start, whole) = exec::allocation(context, addr)?;
    let handle = Handle::of(context, start)?;
    let export = Export {
        pages: vec![whole],
        descriptor: Box::new(move |_| handle.descriptor()),
        offset: addr - start,
        bytes: block.bytes,
        keeps: Box::new(block),
    };
    let (at, bytes) = shared(this).given.publish(kind(Subject::Memory), export)?;
    data.set(at);
    size.set(bytes);
    Ok(())
}

/// The one native object behind a blob, and its bytes.
fn open<P>(
    subject: Subject,
    blob: &[u8],
    import: impl FnMut(&OwnedFd) -> Result<P>,
) -> Result<(Opened<()>, P, usize)> {
    let name = ExportName::read(kind(subject), blob)?;
    let opened = broker::open(&name, import)?;
    let (offset, bytes) = (opened.offset, opened.bytes);
    let mut pages = opened.pages.into_iter();
    match (pages.next(), pages.next()) {
        (Some((page, whole)), None) => {
            let pages = Vec::new();
            #[rustfmt::skip]
            let range = Opened { pages, offset, bytes };
            Ok((range, page, whole))
        }
        _ => Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE)),
    }
}

/// `urIPCOpenMemHandleExp`
pub fn open_memory(this: &OfContext, device: &Object<Device>, blob: &[u8]) -> Result<*mut c_void> {
    this.check_device(device)?;
    check_able(this, Subject::Memory)?;
    let context = &this.domain().state().native;
    let import = |file: &OwnedFd| OpenedMemory::open(context, device, file);
    let (range, memory, whole) = open(Subject::Memory, blob, import)?;
    // A driver that allocates within larger allocations of its own leads to their start.
    let (_, found) = exec::allocation(context, memory.start)?;
    let alike = (whole..=whole.next_multiple_of(SLAB_BYTES)).contains(&found);
    ensure(alike, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    let at = memory.start + range.offset;
    this.add_foreign(at, range.bytes, device)?;
    shared(this).opened.lock().insert(at, memory);
    Ok(with_exposed_provenance_mut(at))
}

/// `urIPCCloseMemHandleExp`
pub fn close_memory(this: &OfContext, mem: *mut c_void) -> Result<()> {
    check_able(this, Subject::Memory)?;
    let addr = mem.addr();
    let memory = shared(this).opened.lock().remove(&addr);
    let memory = memory.ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?;
    this.remove_foreign(addr)?;
    // Commands may use the memory.
    this.drop_after_use(memory);
    Ok(())
}

/// `urIPCGetPhysMemHandleExp`
pub fn get_physical(
    this: &OfContext,
    memory: &Object<PhysicalMem>,
) -> Result<(*mut c_void, usize)> {
    memory.check_shareable()?;
    let block = Arc::clone(memory.shared_block()?);
    let bytes = memory.bytes();
    block.file()?;
    let own = Arc::clone(&block);
    let export = Export {
        pages: vec![bytes],
        descriptor: Box::new(move |_| duplicate(own.file()?.as_raw_fd())),
        offset: 0,
        bytes,
        keeps: Box::new(block),
    };
    let given = &shared(this).given;
    given.publish(kind(Subject::Physical), export)
}

/// `urIPCOpenPhysMemHandleExp`
pub fn open_physical(
    this: &OfContext,
    device: &Object<Device>,
    blob: &[u8],
) -> Result<Arc<Object<PhysicalMem>>> {
    this.check_device(device)?;
    check_able(this, Subject::Physical)?;
    let import = |file: &OwnedFd| duplicate(file.as_raw_fd());
    let (_, file, bytes) = open(Subject::Physical, blob, import)?;
    PhysicalMem::open(this, device, bytes, &file)
}

/// `urIPCClosePhysMemHandleExp`
pub fn close_physical(this: &OfContext, memory: &Object<PhysicalMem>) -> Result<()> {
    check_able(this, Subject::Physical)?;
    ensure(memory.is_opened(), UR_RESULT_ERROR_INVALID_VALUE)?;
    memory.release()
}

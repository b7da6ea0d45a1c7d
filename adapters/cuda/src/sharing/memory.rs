//! Memory of pools and physical memory that other processes open.

use std::any::Any;
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;

use ur::abi::*;
use ur::ipc::blob::{ExportName, Subject};
use ur::ipc::broker::{self, Export, Opened};
use ur::object::{Error, Object, Out, Result, ensure};

use super::{OfContext, kind};
use crate::device::Device;
use crate::exec::{Gpu, Members, Pages};
use crate::vendor::Access;
use crate::virtual_mem::{Page, PhysicalMem, pages};

/// The pages of a device, as far as processes can share them.
pub(super) fn shared_pages(gpu: &Gpu) -> Result<Pages> {
    let pages = pages(gpu)?;
    match pages.sharing {
        Some(_) => Ok(pages),
        None => Err(Error::unsupported()),
    }
}

/// Native allocations side by side at addresses of their own, with read and write access for a device.
pub(super) struct Mapping {
    gpu: Arc<Gpu>,
    how: Pages,
    /// The device that holds the memory, if other devices of the context have access to it as they have to
    /// the device's pools.
    holder: Option<Arc<Gpu>>,
    pub start: usize,
    /// Reserved bytes, and those that are mapped.
    reserved: usize,
    mapped: usize,
}

impl Mapping {
    /// Maps allocations of these handles and bytes, at a multiple of `align`, a power of two or 0.
    pub fn new(gpu: &Arc<Gpu>, how: Pages, all: &[(u64, usize)], align: usize) -> Result<Self> {
        let mapping = Self::without_access(gpu, how, all, align)?;
        let (who, access) = ([gpu.location()], Access::CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        how.set_access(gpu.api, mapping.start, mapping.mapped, &who, access)?;
        Ok(mapping)
    }

    /// As [`Mapping::new`], of memory that `holder` holds. Devices of the context have access as to its pools.
    pub fn shared(
        gpu: &Arc<Gpu>,
        how: Pages,
        (all, align): (&[(u64, usize)], usize),
        holder: &Arc<Gpu>,
        members: &Members,
    ) -> Result<Self> {
        let mut mapping = Self::without_access(gpu, how, all, align)?;
        let range = (mapping.start, mapping.mapped);
        holder.share_mapped(&how, range, members, gpu)?;
        mapping.holder = Some(Arc::clone(holder));
        Ok(mapping)
    }

    fn without_access(
        gpu: &Arc<Gpu>,
        how: Pages,
        all: &[(u64, usize)],
        align: usize,
    ) -> Result<Self> {
        let bytes = all.iter().map(|(_, bytes)| bytes).sum();
        let aligned = how.with(how.bytes.max(align));
        let mut mapping = Self {
            gpu: Arc::clone(gpu),
            how,
            holder: None,
            start: aligned.reserve(gpu.api, 0, bytes)?,
            reserved: bytes,
            mapped: 0,
        };
        for (handle, bytes) in all {
            let at = mapping.start + mapping.mapped;
            how.map(gpu.api, at, *bytes, 0, *handle)?;
            mapping.mapped += bytes;
        }
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(holder) = &self.holder {
            holder.unmap_shared(self.start, self.mapped);
        }
        if self.mapped > 0 {
            let pages = self.how.with(self.mapped);
            pages.unmap_pages(self.start, 1);
        }
        self.how.unreserve(self.start, self.reserved);
        log::trace!("memory of device {} is unmapped", self.gpu.device);
    }
}

/// `urIPCGetMemHandleExp`
pub fn get_memory(
    this: &OfContext,
    mem: *mut c_void,
    data: Out<'_, *mut c_void>,
    size: Out<'_, usize>,
) -> Result<()> {
    let block = this.export_block(mem.addr())?;
    let gpu = block.device.gpu()?;
    let how = shared_pages(&gpu)?;
    ensure(!block.pages.is_empty(), UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    let (offset, bytes) = (block.offset, block.bytes);
    let pages = block.pages.clone();
    let export = export(gpu, how, pages, (offset, bytes), Box::new(block));
    if !data.wanted() {
        // Nobody could give the blob back.
        size.set(ExportName::NONE.write(kind(Subject::Memory)).len());
        return Ok(());
    }
    let given = &this.domain().state().shared.given;
    let (at, bytes) = given.publish(kind(Subject::Memory), export)?;
    data.set(at);
    size.set(bytes);
    Ok(())
}

/// Native allocations of these handles and bytes, and the range of them that is the memory.
fn export(
    gpu: Arc<Gpu>,
    how: Pages,
    pages: Vec<(u64, usize)>,
    (offset, bytes): (usize, usize),
    keeps: Box<dyn Any + Send + Sync>,
) -> Export {
    let sizes = pages.iter().map(|(_, bytes)| *bytes).collect();
    let descriptor = move |page: usize| {
        let _current = gpu.enter()?;
        how.export(gpu.api, pages[page].0)
    };
    Export {
        pages: sizes,
        descriptor: Box::new(descriptor),
        offset,
        bytes,
        keeps,
    }
}

/// `urIPCGetPhysMemHandleExp`
pub fn get_physical(
    this: &OfContext,
    memory: &Object<PhysicalMem>,
) -> Result<(*mut c_void, usize)> {
    let gpu = memory.gpu();
    let how = shared_pages(gpu)?;
    let own = memory.shared_pages()?;
    let pages: Vec<_> = own.iter().map(|page| (page.handle(), how.bytes)).collect();
    let range = (0, own.len() * how.bytes);
    let export = export(Arc::clone(gpu), how, pages, range, Box::new(own.to_vec()));
    let given = &this.domain().state().shared.given;
    given.publish(kind(Subject::Physical), export)
}

/// The pages behind a blob, for a device.
fn open(subject: Subject, gpu: &Arc<Gpu>, how: Pages, blob: &[u8]) -> Result<Opened<Page>> {
    let name = ExportName::read(kind(subject), blob)?;
    broker::open(&name, |descriptor: &OwnedFd| {
        let handle = how.import(gpu.api, descriptor)?;
        Ok(Page::of(gpu, handle))
    })
}

/// The device of the context that holds opened memory, whose access to it the other devices then have as to its
/// pools. None if it is not of the context: only the opener has access then, and must be able to.
fn holder(
    this: &OfContext,
    gpu: &Gpu,
    how: &Pages,
    pages: &[(Page, usize)],
) -> Result<Option<Arc<Object<Device>>>> {
    let known = match pages.first() {
        Some((page, _)) if gpu.has_peers() => how.holder(gpu.api, page.handle())?,
        _ => None,
    };
    let home = known.unwrap_or(gpu.device);
    let devices = this.devices().iter();
    for device in devices {
        if device.gpu()?.device == home {
            return Ok(Some(device.arc()));
        }
    }
    ensure(gpu.can_reach(home), UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    Ok(None)
}

/// `urIPCOpenMemHandleExp`
pub fn open_memory(this: &OfContext, device: &Object<Device>, blob: &[u8]) -> Result<*mut c_void> {
    this.check_device(device)?;
    let gpu = device.gpu()?;
    let how = shared_pages(&gpu)?;
    let opened = open(Subject::Memory, &gpu, how, blob)?;
    let all: Vec<_> = opened
        .pages
        .iter()
        .map(|(page, bytes)| (page.handle(), *bytes))
        .collect();
    let holder = holder(this, &gpu, &how, &opened.pages)?;
    // A mapping keeps the memory, so that the pages' handles end here.
    let mapping = match &holder {
        Some(holder) => {
            let members = &this.domain().state().members;
            Mapping::shared(&gpu, how, (&all, 0), &holder.gpu()?, members)?
        }
        None => Mapping::new(&gpu, how, &all, 0)?,
    };
    let at = mapping.start + opened.offset;
    this.add_foreign(at, opened.bytes, holder.as_deref().unwrap_or(device))?;
    let shared = &this.domain().state().shared;
    shared.opened.lock().insert(at, mapping);
    Ok(with_exposed_provenance_mut(at))
}

/// `urIPCCloseMemHandleExp`
pub fn close_memory(this: &OfContext, mem: *mut c_void) -> Result<()> {
    let addr = mem.addr();
    let shared = &this.domain().state().shared;
    let mapping = shared.opened.lock().remove(&addr);
    let mapping = mapping.ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?;
    this.remove_foreign(addr)?;
    // Commands may use the memory.
    this.drop_after_use(mapping);
    Ok(())
}

/// `urIPCOpenPhysMemHandleExp`
pub fn open_physical(
    this: &OfContext,
    device: &Object<Device>,
    blob: &[u8],
) -> Result<Arc<Object<PhysicalMem>>> {
    this.check_device(device)?;
    let gpu = device.gpu()?;
    let how = shared_pages(&gpu)?;
    let opened = open(Subject::Physical, &gpu, how, blob)?;
    let home = match holder(this, &gpu, &how, &opened.pages)? {
        Some(holder) => {
            let home = holder.gpu()?;
            ensure(gpu.reaches(&home), UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
            home
        }
        None => gpu,
    };
    PhysicalMem::opened(this, device, home, opened.pages)
}

/// `urIPCClosePhysMemHandleExp`
pub fn close_physical(_: &OfContext, memory: &Object<PhysicalMem>) -> Result<()> {
    ensure(memory.is_opened(), UR_RESULT_ERROR_INVALID_VALUE)?;
    memory.release()
}

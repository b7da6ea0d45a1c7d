//! Address ranges and the physical memory behind them.
//!
//! The driver maps a native allocation only as a whole, so that physical memory is one native allocation
//! for each page. An unmapped address cannot be accessed.

use std::sync::Arc;

use ur::abi::*;
use ur::hal::answers::physical_mem_info;
use ur::hal::{self, PhysicalMemInfo, Ranges};
use ur::object::{Body, Error, InfoOut, Kind, Object, Result, ensure};
use ur::stream::Context;

use crate::Cuda;
use crate::device::Device;
use crate::exec::{Gpu, Members, Pages};
use crate::vendor::Access;

/// The ranges of one context, each with the device that reserved it, and their mapped pages. A page lives
/// while it is mapped.
#[derive(Default)]
pub struct AddressSpace {
    ranges: Ranges<Arc<Gpu>, Vec<Arc<Page>>>,
}

/// One page of physical memory.
pub struct Page {
    gpu: Arc<Gpu>,
    handle: u64,
}

impl Page {
    /// A page of a native allocation, which it owns.
    pub fn of(gpu: &Arc<Gpu>, handle: u64) -> Self {
        Self {
            gpu: Arc::clone(gpu),
            handle,
        }
    }

    pub fn handle(&self) -> u64 {
        self.handle
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(pages) = self.gpu.pages {
            pages.destroy(self.handle);
        }
    }
}

pub fn pages(gpu: &Gpu) -> Result<Pages> {
    gpu.pages.ok_or(Error::unsupported())
}

fn native(access: ur_virtual_mem_access_flags_t) -> Result<Access> {
    use Access::*;
    match access {
        UR_VIRTUAL_MEM_ACCESS_FLAG_NONE => Ok(CU_MEM_ACCESS_FLAGS_PROT_NONE),
        UR_VIRTUAL_MEM_ACCESS_FLAG_READ_WRITE => Ok(CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
        UR_VIRTUAL_MEM_ACCESS_FLAG_READ_ONLY => Ok(CU_MEM_ACCESS_FLAGS_PROT_READ),
        _ => Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE)),
    }
}

fn check_size(pages: &Pages, bytes: usize) -> Result<()> {
    let whole = bytes > 0 && bytes.is_multiple_of(pages.bytes);
    ensure(whole, UR_RESULT_ERROR_INVALID_SIZE)
}

fn unmap(pages: &Pages, start: usize, own: &[Arc<Page>]) {
    let mapped = own.iter().enumerate();
    mapped.for_each(|(at, page)| page.gpu.unmap_shared(start + at * pages.bytes, pages.bytes));
    pages.unmap_pages(start, own.len());
}

impl AddressSpace {
    pub fn reserve(&self, gpu: &Arc<Gpu>, hint: usize, bytes: usize) -> Result<usize> {
        let pages = pages(gpu)?;
        check_size(&pages, bytes)?;
        let start = pages.reserve(gpu.api, hint, bytes)?;
        self.ranges.reserved(start, bytes, Arc::clone(gpu));
        Ok(start)
    }

    pub fn free(&self, start: usize, bytes: usize) -> Result<()> {
        let gpu = self.ranges.freed(start, bytes)?;
        pages(&gpu)?.unreserve(start, bytes);
        Ok(())
    }

    pub fn map(
        &self,
        members: &Members,
        (start, bytes): (usize, usize),
        memory: &PhysicalMem,
        offset: usize,
        access: ur_virtual_mem_access_flags_t,
    ) -> Result<()> {
        let (gpu, wanted) = (&memory.gpu, native(access)?);
        let pages = pages(gpu)?;
        check_size(&pages, bytes)?;
        let aligned = start.is_multiple_of(pages.bytes) && offset.is_multiple_of(pages.bytes);
        ensure(aligned, UR_RESULT_ERROR_INVALID_VALUE)?;
        let (first, count) = (offset / pages.bytes, bytes / pages.bytes);
        let own = memory.pages.get(first..).and_then(|rest| rest.get(..count));
        let own = own.ok_or(Error::new(UR_RESULT_ERROR_INVALID_SIZE))?;
        self.ranges.map(start, bytes, access, || {
            let handles: Vec<u64> = own.iter().map(|page| page.handle).collect();
            gpu.map_shared(&pages, start, &handles, members, wanted)?;
            Ok(own.to_vec())
        })
    }

    pub fn unmap(&self, start: usize, bytes: usize) -> Result<()> {
        self.ranges.unmap(start, bytes, |gpu, at, _, own| {
            unmap(&pages(gpu)?, at, own);
            Ok(())
        })
    }

    pub fn set_access(
        &self,
        members: &Members,
        (start, bytes): (usize, usize),
        access: ur_virtual_mem_access_flags_t,
    ) -> Result<()> {
        let wanted = native(access)?;
        self.ranges
            .set_access(start, bytes, access, |at, bytes, own| match own.first() {
                Some(page) => {
                    let pages = pages(&page.gpu)?;
                    let at = (at, bytes);
                    page.gpu.set_shared_access(&pages, at, members, wanted)
                }
                None => Ok(()),
            })
    }

    pub fn access(&self, start: usize, bytes: usize) -> Result<ur_virtual_mem_access_flags_t> {
        self.ranges.access(start, bytes)
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        // A range was reserved only if the device has pages.
        self.ranges.clear(
            |gpu, at, _, own| {
                if let Ok(pages) = pages(gpu) {
                    unmap(&pages, at, own);
                }
            },
            |gpu, start, bytes| {
                if let Ok(pages) = pages(gpu) {
                    pages.unreserve(start, bytes);
                }
            },
        );
    }
}

/// Memory without an address.
pub struct PhysicalMem {
    context: Arc<Object<Context<Cuda>>>,
    device: Arc<Object<Device>>,
    gpu: Arc<Gpu>,
    bytes: usize,
    /// The flags of its creation.
    flags: ur_physical_mem_flags_t,
    pages: Vec<Arc<Page>>,
    /// Whether another process made the memory.
    is_opened: bool,
}

impl PhysicalMem {
    pub fn create(
        context: &Object<Context<Cuda>>,
        device: &Object<Device>,
        bytes: usize,
        properties: Option<&ur_physical_mem_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        context.check_device(device)?;
        let gpu = device.gpu()?;
        let flags = properties.map_or_else(Default::default, |properties| properties.flags);
        let how = pages(&gpu)?;
        check_size(&how, bytes)?;
        // Without the flag nobody may open the memory, so that it needs no shareable handles.
        let how = match flags.contains(UR_PHYSICAL_MEM_FLAG_ENABLE_IPC) {
            true => how,
            false => how.private(),
        };
        let handles = how.create_pages(gpu.api, bytes / how.bytes)?;
        let page = |handle| Arc::new(Page::of(&gpu, handle));
        let pages = handles.into_iter().map(page).collect();
        Ok(Self::made(
            context,
            device,
            gpu,
            pages,
            (bytes, flags),
            false,
        ))
    }

    /// Memory of another process, in pages of the device's size. It is mapped as memory of `gpu`.
    pub fn opened(
        context: &Object<Context<Cuda>>,
        device: &Object<Device>,
        gpu: Arc<Gpu>,
        opened: Vec<(Page, usize)>,
    ) -> Result<Arc<Object<Self>>> {
        let size = pages(&gpu)?.bytes;
        let alike = opened.iter().all(|(_, bytes)| *bytes == size);
        ensure(alike, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        let bytes = opened.len() * size;
        let pages = opened.into_iter().map(|(page, _)| Arc::new(page)).collect();
        let flags = UR_PHYSICAL_MEM_FLAG_ENABLE_IPC;
        Ok(Self::made(
            context,
            device,
            gpu,
            pages,
            (bytes, flags),
            true,
        ))
    }

    fn made(
        context: &Object<Context<Cuda>>,
        device: &Object<Device>,
        gpu: Arc<Gpu>,
        pages: Vec<Arc<Page>>,
        (bytes, flags): (usize, ur_physical_mem_flags_t),
        is_opened: bool,
    ) -> Arc<Object<Self>> {
        hal::new::<Cuda, _>(Self {
            context: context.arc(),
            device: device.arc(),
            gpu,
            bytes,
            flags,
            pages,
            is_opened,
        })
    }

    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// The pages, for other processes. `INVALID_ARGUMENT` if the memory was created without
    /// `UR_PHYSICAL_MEM_FLAG_ENABLE_IPC`, or is another process's.
    pub fn shared_pages(&self) -> Result<&[Arc<Page>]> {
        let own = self.flags.contains(UR_PHYSICAL_MEM_FLAG_ENABLE_IPC) && !self.is_opened;
        ensure(own, UR_RESULT_ERROR_INVALID_ARGUMENT)?;
        Ok(&self.pages)
    }

    pub fn is_opened(&self) -> bool {
        self.is_opened
    }
}

impl Body for PhysicalMem {
    const KIND: Kind = Kind::PhysicalMem;
}

impl hal::PhysicalMem<Cuda> for PhysicalMem {
    fn get_info(this: &Object<Self>, what: PhysicalMemInfo, out: InfoOut<'_>) -> Result<()> {
        let place = (&*this.context, &*this.device);
        physical_mem_info::<Cuda>(this, place, (this.bytes, this.flags), what, out)
    }
}

//! Memory from the driver: pages of device memory, which can be mapped anywhere, and slabs of host and
//! managed memory, which cannot.

use std::ffi::c_void;
use std::ptr::null_mut;

use ur::abi::*;
use ur::object::{Error, Result};
use ur::stream::Kind;

use super::gpu::Gpu;
use crate::cu::sys::*;
use crate::cu::{Api, Code, Paging, check, failure};

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`: all devices see it.
const EVERYWHERE: u32 = 3;

/// `CU_MEM_ATTACH_GLOBAL`
const GLOBAL: u32 = 1;

/// Virtual memory of a device that has it.
#[derive(Clone, Copy)]
pub struct Pages {
    pub calls: Paging,
    /// Bytes of a page, a power of two.
    pub bytes: usize,
    device: CUdevice,
}

impl Pages {
    pub fn of(api: &Api, device: CUdevice) -> Option<Self> {
        let (calls, mut has) = (api.paging()?, 0);
        let attribute =
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED;
        // SAFETY: room for a number.
        let code = unsafe { (api.cuDeviceGetAttribute)(&mut has, attribute, device) };
        let mut pages = Self {
            calls,
            bytes: 0,
            device,
        };
        let (what, mut bytes) = (pages.properties(), 0);
        // SAFETY: room for a number; 0 is `CU_MEM_ALLOC_GRANULARITY_MINIMUM`.
        let told = unsafe { (calls.granularity)(&mut bytes, &what, 0) };
        pages.bytes = bytes;
        let usable = code.is_success() && has != 0 && told.is_success();
        (usable && bytes.is_power_of_two()).then_some(pages)
    }

    fn location(&self) -> CUmemLocation {
        CUmemLocation {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: self.device,
        }
    }

    fn properties(&self) -> CUmemAllocationProp {
        CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: self.location(),
            win32HandleMetaData: null_mut(),
            allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        }
    }

    /// Addresses from a multiple of a page on, near `hint` if that is not 0.
    pub fn reserve(&self, api: &Api, hint: usize, bytes: usize) -> Result<usize> {
        let mut start = 0;
        // SAFETY: room for an address.
        let code = unsafe { (self.calls.reserve)(&mut start, bytes, self.bytes, hint as u64, 0) };
        check(api, code, "cuMemAddressReserve")?;
        Ok(start as usize)
    }

    pub fn unreserve(&self, addr: usize, bytes: usize) {
        // SAFETY: a reservation of ours where nothing is mapped.
        let code = unsafe { (self.calls.unreserve)(addr as u64, bytes) };
        log_failed(code, "cuMemAddressFree");
    }

    /// One piece of memory of so many bytes, a multiple of the page.
    pub fn create(&self, api: &Api, bytes: usize) -> Result<u64> {
        let (what, mut handle) = (self.properties(), 0);
        // SAFETY: room for a handle.
        let code = unsafe { (self.calls.create)(&mut handle, bytes, &what, 0) };
        check(api, code, "cuMemCreate")?;
        Ok(handle)
    }

    /// The memory goes when it is mapped nowhere any more.
    pub fn destroy(&self, handle: u64) {
        // SAFETY: our one reference.
        let code = unsafe { (self.calls.destroy)(handle) };
        log_failed(code, "cuMemRelease");
    }

    /// Maps a piece at reserved addresses, without access yet.
    pub fn map(
        &self,
        api: &Api,
        addr: usize,
        bytes: usize,
        offset: usize,
        handle: u64,
    ) -> Result<()> {
        // SAFETY: addresses of ours where nothing is mapped, and a live piece.
        let code = unsafe { (self.calls.map)(addr as u64, bytes, offset, handle, 0) };
        check(api, code, "cuMemMap")
    }

    pub fn unmap(&self, addr: usize, bytes: usize) -> Code {
        // SAFETY: whole mappings of ours, all use of which is over.
        unsafe { (self.calls.unmap)(addr as u64, bytes) }
    }

    /// Gives this device access to what is mapped there.
    pub fn set_access(
        &self,
        api: &Api,
        addr: usize,
        bytes: usize,
        access: CUmemAccess_flags,
    ) -> Result<()> {
        let who = CUmemAccessDesc {
            location: self.location(),
            flags: access,
        };
        // SAFETY: addresses of ours, all mapped; one description.
        let code = unsafe { (self.calls.set_access)(addr as u64, bytes, &who, 1) };
        check(api, code, "cuMemSetAccess")
    }

    /// New pages, each a piece of its own, so that each can be mapped anywhere.
    pub fn create_pages(&self, api: &Api, count: usize) -> Result<Vec<u64>> {
        let mut pages = Vec::with_capacity(count);
        for _ in 0..count {
            match self.create(api, self.bytes) {
                Ok(page) => pages.push(page),
                Err(error) => {
                    pages.iter().for_each(|page| self.destroy(*page));
                    return Err(error);
                }
            }
        }
        Ok(pages)
    }

    pub fn map_pages(&self, api: &Api, addr: usize, pages: &[u64]) -> Result<()> {
        let place = |at: usize| addr + at * self.bytes;
        let mut mapped = 0;
        let mut map = || {
            for page in pages {
                self.map(api, place(mapped), self.bytes, 0, *page)?;
                mapped += 1;
            }
            let access = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            self.set_access(api, addr, pages.len() * self.bytes, access)
        };
        map().inspect_err(|_| self.unmap_pages(addr, mapped))
    }

    pub fn unmap_pages(&self, addr: usize, count: usize) {
        if count > 0 {
            log_failed(self.unmap(addr, count * self.bytes), "cuMemUnmap");
        }
    }
}

pub fn log_failed(code: Code, call: &str) {
    if !code.is_success() {
        log::error!("{call} failed with {}", code.0);
    }
}

impl Gpu {
    /// Zeroes new pages: at addresses of their own for the time being.
    pub fn zero_pages(&self, pages: &Pages, all: &[u64]) -> Result<()> {
        let _current = self.enter()?;
        let bytes = all.len() * pages.bytes;
        let addr = pages.reserve(self.api, 0, bytes)?;
        let zeroed = pages.map_pages(self.api, addr, all).and_then(|()| {
            let zeroed = self.zero(addr, bytes);
            pages.unmap_pages(addr, all.len());
            zeroed
        });
        pages.unreserve(addr, bytes);
        zeroed
    }

    fn zero(&self, addr: usize, bytes: usize) -> Result<()> {
        self.at_once(|stream| {
            // SAFETY: new memory of that size.
            let code = unsafe { (self.api.cuMemsetD8Async)(addr as u64, 0, bytes, stream) };
            self.check(code, "cuMemsetD8Async")
        })
    }

    /// A slab of host, managed or, without pages, device memory.
    pub fn slab(&self, kind: Kind, bytes: usize, zeroed: bool) -> Result<usize> {
        let _current = self.enter()?;
        let (mut host, mut device): (*mut c_void, CUdeviceptr) = (null_mut(), 0);
        // SAFETY: room for an address.
        let code = unsafe {
            match kind {
                Kind::Host => (self.api.cuMemHostAlloc)(&mut host, bytes, EVERYWHERE),
                Kind::Device => (self.api.cuMemAlloc)(&mut device, bytes),
                Kind::Shared => (self.api.cuMemAllocManaged)(&mut device, bytes, GLOBAL),
            }
        };
        let addr = match kind {
            Kind::Host => host.expose_provenance(),
            Kind::Device | Kind::Shared => device as usize,
        };
        if !code.is_success() || addr == 0 {
            let error = failure(self.api, code, "allocating memory");
            return Err(match (kind, code) {
                (Kind::Host, Code::OUT_OF_MEMORY) => Error::new(UR_RESULT_ERROR_OUT_OF_HOST_MEMORY),
                _ => error,
            });
        }
        if zeroed && let Err(error) = self.zero(addr, bytes) {
            self.free_slab(kind, addr);
            return Err(error);
        }
        Ok(addr)
    }

    pub fn free_slab(&self, kind: Kind, addr: usize) {
        let Ok(_current) = self.enter() else { return };
        // SAFETY: a slab of ours, all use of which is over.
        let code = unsafe {
            match kind {
                Kind::Host => (self.api.cuMemFreeHost)(std::ptr::with_exposed_provenance_mut(addr)),
                Kind::Device | Kind::Shared => (self.api.cuMemFree)(addr as u64),
            }
        };
        log_failed(code, "freeing memory");
    }
}

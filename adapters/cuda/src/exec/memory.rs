//! Memory of the driver: pages of a device or of the host, which can be mapped at any address, and slabs,
//! which cannot. Mapping pages waits for no work. Allocating or freeing a slab may.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr::null_mut;

use ur::abi::*;
use ur::object::{Error, Result};
use ur::stream::Kind;

use super::gpu::Gpu;
use crate::cu::sys::*;
use crate::cu::{Api, Code, Paging, RelaxedCapture, Sharing, check, failure};

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`: all devices reach the memory.
const EVERYWHERE: u32 = 3;

/// `CU_MEMHOSTREGISTER_READ_ONLY`
const READ_ONLY: u32 = 8;

/// How processes share memory.
const DESCRIPTOR: CUmemAllocationHandleType =
    CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// `CU_MEM_ATTACH_GLOBAL`
const GLOBAL: u32 = 1;

/// Least number of pages that a device's memory is divided into.
const MIN_PAGES_PER_DEVICE: usize = 1 << 8;

/// Limit on the bytes of a page, however large the device's memory is.
const MAX_PAGE_SHARE_BYTES: usize = 128 << 20;

/// Pages of virtual memory on one device or of the host.
#[derive(Clone, Copy)]
pub struct Pages {
    calls: Paging,
    /// Bytes of a page, a power of two.
    pub bytes: usize,
    /// The device or host node of the pages.
    pub home: CUmemLocation,
    /// Of pages that other processes can open.
    pub sharing: Option<Sharing>,
}

/// This attribute and the next came with CUDA 12.2.
pub(super) const HOST_NODE: CUdevice_attribute =
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID;
const HOST_PAGES: CUdevice_attribute =
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;

impl Pages {
    /// The pages of a device. None if it has no virtual memory.
    pub fn of_device(api: &Api, device: CUdevice) -> Option<Self> {
        let has = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED;
        if attribute(api, device, has)? == 0 {
            return None;
        }
        let home = CUmemLocation {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: device,
        };
        Self::at(api, home)
    }

    /// These pages such that other processes can open them, if the device and the driver can. One page is
    /// made and exported to learn that: a sandbox may refuse what the device supports.
    pub fn to_share(self, api: &Api, device: CUdevice) -> Self {
        let has =
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
        let able = attribute(api, device, has).is_some_and(|able| able != 0);
        let shared = Self {
            sharing: api.sharing().filter(|_| able),
            ..self
        };
        let export = || -> Result<()> {
            let page = shared.create(api, shared.bytes)?;
            let exported = shared.export(api, page);
            shared.destroy(page);
            exported.map(drop)
        };
        match shared.sharing.is_some().then(export) {
            Some(Ok(())) => shared,
            Some(Err(error)) => {
                log::info!(
                    "memory is not shared with other processes: {:?}",
                    error.code()
                );
                self
            }
            None => self,
        }
    }

    /// These pages such that no other process can open them.
    pub fn private(self) -> Self {
        Self {
            sharing: None,
            ..self
        }
    }

    /// Pages of another size, which is a multiple of this size.
    pub fn with(self, bytes: usize) -> Self {
        Self { bytes, ..self }
    }

    /// Bytes of the largest pages, for large pools. Mapping and unmapping a page costs 45 µs on an H200
    /// (driver 580), and less than 1 µs for each of its MiB. With pages of 2 MiB, growth by 13 GiB took
    /// 390 ms.
    pub fn largest(self, api: &Api, device: CUdevice) -> usize {
        let mut total = 0;
        // SAFETY: `total` is writable.
        let code = unsafe { (api.cuDeviceTotalMem)(&mut total, device) };
        largest_page(self.bytes, if code.is_success() { total } else { 0 })
    }

    /// The pages of the host node near a device. None if the device cannot reach them or they differ in size
    /// from `like`.
    pub fn of_host(api: &Api, device: CUdevice, like: &Self) -> Option<Self> {
        if attribute(api, device, HOST_PAGES)? == 0 {
            return None;
        }
        let home = CUmemLocation {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA,
            id: attribute(api, device, HOST_NODE)?.max(0),
        };
        Self::at(api, home).filter(|pages| pages.bytes == like.bytes)
    }

    fn at(api: &Api, home: CUmemLocation) -> Option<Self> {
        let mut pages = Self {
            calls: api.paging()?,
            bytes: 0,
            home,
            sharing: None,
        };
        let (what, mut bytes) = (pages.properties(), 0);
        // SAFETY: `bytes` is writable; 0 is `CU_MEM_ALLOC_GRANULARITY_MINIMUM`.
        let code = unsafe { (pages.calls.granularity)(&mut bytes, &what, 0) };
        pages.bytes = bytes;
        (code.is_success() && bytes.is_power_of_two()).then_some(pages)
    }

    fn properties(&self) -> CUmemAllocationProp {
        CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: match self.sharing {
                Some(_) => DESCRIPTOR,
                None => CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            },
            location: self.home,
            win32HandleMetaData: null_mut(),
            allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        }
    }

    /// Reserves addresses, aligned to a page, near `hint` if that is not 0.
    pub fn reserve(&self, api: &Api, hint: usize, bytes: usize) -> Result<usize> {
        let mut start = 0;
        // A page is any multiple of the least page, and the driver takes powers of two only.
        let align = 1 << self.bytes.trailing_zeros();
        // SAFETY: `start` is writable.
        let code = unsafe { (self.calls.reserve)(&mut start, bytes, align, hint as u64, 0) };
        check(api, code, "cuMemAddressReserve")?;
        Ok(start as usize)
    }

    pub fn unreserve(&self, addr: usize, bytes: usize) {
        // SAFETY: the caller owns the reservation and has unmapped it.
        let code = unsafe { (self.calls.unreserve)(addr as u64, bytes) };
        log_failed(code, "cuMemAddressFree");
    }

    /// Creates one native allocation. `bytes` is a multiple of the page size.
    pub fn create(&self, api: &Api, bytes: usize) -> Result<u64> {
        let (what, mut handle) = (self.properties(), 0);
        // SAFETY: `handle` is writable.
        let code = unsafe { (self.calls.create)(&mut handle, bytes, &what, 0) };
        check(api, code, "cuMemCreate")?;
        Ok(handle)
    }

    /// Releases a native allocation. Its memory is freed with its last mapping.
    pub fn destroy(&self, handle: u64) {
        // SAFETY: the caller gives up its reference.
        let code = unsafe { (self.calls.destroy)(handle) };
        log_failed(code, "cuMemRelease");
    }

    /// A file descriptor for a native allocation, which keeps the memory alive.
    pub fn export(&self, api: &Api, handle: u64) -> Result<OwnedFd> {
        let sharing = self.sharing.ok_or(Error::unsupported())?;
        let mut descriptor: c_int = -1;
        let to = (&raw mut descriptor).cast();
        // SAFETY: the caller has a reference to the allocation, and the output is an `int` for this type.
        let code = unsafe { (sharing.export)(to, handle, DESCRIPTOR, 0) };
        check(api, code, "cuMemExportToShareableHandle")?;
        // SAFETY: the driver opened the descriptor for the caller.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// A native allocation of the memory behind a file descriptor, which may be closed afterwards.
    pub fn import(&self, api: &Api, descriptor: &OwnedFd) -> Result<u64> {
        let sharing = self.sharing.ok_or(Error::unsupported())?;
        let mut handle = 0;
        // The driver takes the descriptor's number in place of a pointer.
        let number = std::ptr::without_provenance_mut(descriptor.as_raw_fd() as usize);
        // SAFETY: `handle` is writable, and the descriptor is open.
        let code = unsafe { (sharing.import)(&mut handle, number, DESCRIPTOR) };
        check(api, code, "cuMemImportFromShareableHandle")?;
        Ok(handle)
    }

    /// The device that holds a native allocation. None if the driver cannot tell.
    pub fn holder(&self, api: &Api, handle: u64) -> Result<Option<CUdevice>> {
        let Some(query) = api.cuMemGetAllocationPropertiesFromHandle else {
            return Ok(None);
        };
        let mut what = self.properties();
        // SAFETY: `what` is writable, and the caller has a reference to the allocation.
        let code = unsafe { query(&mut what, handle) };
        let of_device = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        check(api, code, "cuMemGetAllocationPropertiesFromHandle")?;
        Ok((what.location.type_ == of_device).then_some(what.location.id))
    }

    /// Maps a native allocation at reserved addresses, without access.
    pub fn map(
        &self,
        api: &Api,
        addr: usize,
        bytes: usize,
        offset: usize,
        handle: u64,
    ) -> Result<()> {
        // SAFETY: the caller owns the unmapped addresses and a reference to the allocation.
        let code = unsafe { (self.calls.map)(addr as u64, bytes, offset, handle, 0) };
        check(api, code, "cuMemMap")
    }

    pub fn unmap(&self, addr: usize, bytes: usize) -> Code {
        // SAFETY: the range is whole mappings of the caller's, and their use is over.
        unsafe { (self.calls.unmap)(addr as u64, bytes) }
    }

    /// Sets the access of these devices to mapped memory.
    pub fn set_access(
        &self,
        api: &Api,
        addr: usize,
        bytes: usize,
        who: &[CUmemLocation],
        access: CUmemAccess_flags,
    ) -> Result<()> {
        let who: Vec<_> = who
            .iter()
            .map(|location| CUmemAccessDesc {
                location: *location,
                flags: access,
            })
            .collect();
        // SAFETY: the caller has mapped the addresses, and the list has `who.len()` elements.
        let code = unsafe { (self.calls.set_access)(addr as u64, bytes, who.as_ptr(), who.len()) };
        check(api, code, "cuMemSetAccess")
    }

    /// Creates pages. Each is a native allocation of its own, so that each can be mapped anywhere.
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

    /// Maps pages side by side, with access for these devices.
    pub fn map_pages(
        &self,
        api: &Api,
        addr: usize,
        pages: &[u64],
        who: &[CUmemLocation],
        access: CUmemAccess_flags,
    ) -> Result<()> {
        let page_start = |at: usize| addr + at * self.bytes;
        let mut mapped = 0;
        let mut map = || {
            for page in pages {
                self.map(api, page_start(mapped), self.bytes, 0, *page)?;
                mapped += 1;
            }
            self.set_access(api, addr, pages.len() * self.bytes, who, access)
        };
        map().inspect_err(|_| self.unmap_pages(addr, mapped))
    }

    pub fn unmap_pages(&self, addr: usize, count: usize) {
        if count > 0 {
            log_failed(self.unmap(addr, count * self.bytes), "cuMemUnmap");
        }
    }
}

/// Bytes of the largest page of a device with `total` bytes whose smallest page has `least`.
fn largest_page(least: usize, total: usize) -> usize {
    let share = (total / MIN_PAGES_PER_DEVICE + 1).next_power_of_two() / 2;
    share.clamp(least, least.max(MAX_PAGE_SHARE_BYTES))
}

pub(super) fn attribute(api: &Api, device: CUdevice, what: CUdevice_attribute) -> Option<i32> {
    let mut value = 0;
    // SAFETY: `value` is writable.
    let code = unsafe { (api.cuDeviceGetAttribute)(&mut value, what, device) };
    code.is_success().then_some(value)
}

pub(super) fn log_failed(code: Code, call: &str) {
    if !code.is_success() {
        log::error!("{call} failed with {}", code.0);
    }
}

/// Whether the host has this many bytes available. True if the system does not report it.
pub fn host_may_have(bytes: usize) -> bool {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let mut lines = text.lines();
    let free = lines.find_map(|line| {
        let rest = line.strip_prefix("MemAvailable:")?;
        rest.split_whitespace().next()?.parse::<usize>().ok()
    });
    free.is_none_or(|kilobytes| bytes <= kilobytes.saturating_mul(1024))
}

impl Gpu {
    /// The device as a location.
    pub fn location(&self) -> CUmemLocation {
        CUmemLocation {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: self.device,
        }
    }

    /// Whether the device has this many bytes free. The driver creates pages one by one, so that a failed
    /// attempt would take long.
    pub fn may_have(&self, bytes: usize) -> Result<bool> {
        let _current = self.enter()?;
        let (mut free, mut all) = (0, 0);
        // SAFETY: both numbers are writable.
        let code = unsafe { (self.api.cuMemGetInfo)(&mut free, &mut all) };
        self.check(code, "cuMemGetInfo")?;
        Ok(bytes <= free)
    }

    /// Zeroes new pages, at temporary addresses.
    pub fn zero_pages(&self, pages: &Pages, all: &[u64]) -> Result<()> {
        let own = [self.location()];
        let _current = self.enter()?;
        let bytes = all.len() * pages.bytes;
        let addr = pages.reserve(self.api, 0, bytes)?;
        let access = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let mapped = pages.map_pages(self.api, addr, all, &own, access);
        let zeroed = mapped.and_then(|()| {
            let zeroed = self.zero(addr, bytes);
            pages.unmap_pages(addr, all.len());
            zeroed
        });
        pages.unreserve(addr, bytes);
        zeroed
    }

    fn zero(&self, addr: usize, bytes: usize) -> Result<()> {
        self.at_once(|stream| {
            // SAFETY: the memory is new and has that size.
            let code = unsafe { (self.api.cuMemsetD8Async)(addr as u64, 0, bytes, stream) };
            self.check(code, "cuMemsetD8Async")
        })
    }

    /// Allocates a slab of host memory, managed memory or, without pages, device memory.
    pub fn slab(&self, kind: Kind, bytes: usize, zeroed: bool) -> Result<usize> {
        let _current = self.enter()?;
        let _relaxed = RelaxedCapture::new(self.api);
        let (mut host, mut device): (*mut c_void, CUdeviceptr) = (null_mut(), 0);
        // SAFETY: both addresses are writable.
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

    /// Whether the device reaches registered host memory at the host's address.
    pub fn shares_addresses(&self) -> bool {
        let same = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM;
        attribute(self.api, self.device, same).is_some_and(|same| same != 0)
    }

    /// Registers host memory, so that all devices reach it. False if the driver refuses: it may not accept such
    /// memory, or have registered a part of it.
    pub fn register(&self, addr: usize, bytes: usize) -> Result<bool> {
        let _current = self.enter()?;
        let _relaxed = RelaxedCapture::new(self.api);
        let start = std::ptr::with_exposed_provenance_mut(addr);
        // SAFETY: the caller's memory has that size and stays until it is unregistered.
        let code = unsafe { (self.api.cuMemHostRegister)(start, bytes, EVERYWHERE) };
        if !code.is_success() {
            log::debug!("cuMemHostRegister of {bytes} bytes answered {}", code.0);
        }
        Ok(code.is_success())
    }

    /// Registers host memory, so that all devices reach it at the host's address. `read_only`: devices only
    /// read it, where the device knows that.
    pub fn register_for_devices(&self, addr: usize, bytes: usize, read_only: bool) -> Result<()> {
        let knows = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED;
        let knows = || attribute(self.api, self.device, knows).is_some_and(|knows| knows != 0);
        let flags = match read_only && knows() {
            true => EVERYWHERE | READ_ONLY,
            false => EVERYWHERE,
        };
        let _current = self.enter()?;
        let _relaxed = RelaxedCapture::new(self.api);
        let start = std::ptr::with_exposed_provenance_mut(addr);
        // SAFETY: the caller's memory has that size and stays until it is unregistered.
        let code = unsafe { (self.api.cuMemHostRegister)(start, bytes, flags) };
        let checked = self.check(code, "cuMemHostRegister");
        checked.map_err(|error| match code {
            Code::OUT_OF_MEMORY => Error::new(UR_RESULT_ERROR_OUT_OF_HOST_MEMORY),
            _ => error,
        })
    }

    pub fn unregister(&self, addr: usize) {
        let Ok(_current) = self.enter() else { return };
        let _relaxed = RelaxedCapture::new(self.api);
        let start = std::ptr::with_exposed_provenance_mut(addr);
        // SAFETY: the memory is registered, and its use by devices is over.
        log_failed(
            unsafe { (self.api.cuMemHostUnregister)(start) },
            "cuMemHostUnregister",
        );
    }

    /// The start and the bytes of the driver's allocation that has an address. `INVALID_VALUE` if none has.
    pub fn allocation(&self, addr: usize) -> Result<(usize, usize)> {
        let query = self.api.cuMemGetAddressRange.ok_or(Error::unsupported())?;
        let _current = self.enter()?;
        let (mut start, mut bytes) = (0, 0);
        // SAFETY: both are writable.
        let code = unsafe { query(&mut start, &mut bytes, addr as u64) };
        match code {
            // The driver says so of addresses that it does not know.
            Code::NOT_FOUND => Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE)),
            code => self.check(code, "cuMemGetAddressRange"),
        }?;
        Ok((start as usize, bytes))
    }

    pub fn free_slab(&self, kind: Kind, addr: usize) {
        let Ok(_current) = self.enter() else { return };
        let _relaxed = RelaxedCapture::new(self.api);
        // SAFETY: the slab is the pool's, and its use is over.
        let code = unsafe {
            match kind {
                Kind::Host => (self.api.cuMemFreeHost)(std::ptr::with_exposed_provenance_mut(addr)),
                Kind::Device | Kind::Shared => (self.api.cuMemFree)(addr as u64),
            }
        };
        log_failed(code, "freeing memory");
    }
}

#[cfg(test)]
mod tests {
    use super::largest_page;

    #[test]
    fn pages_grow_with_the_device() {
        const MIB: usize = 1 << 20;
        let of = |gib: usize| largest_page(2 * MIB, gib << 10 << 20) / MIB;
        assert_eq!(
            [of(0), of(1), of(8), of(24), of(141), of(1024)],
            [2, 4, 32, 64, 128, 128]
        );
        assert_eq!(
            largest_page(32 * MIB, 0),
            32 * MIB,
            "never less than the driver's"
        );
    }
}

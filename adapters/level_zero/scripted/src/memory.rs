//! Allocations of the three kinds. The host reaches all of them. Device memory, and memory for other interfaces or of
//! others, are files in memory.
//!
//! A handle for other processes begins with the file's descriptor, as with Intel's driver.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsRawFd as _, BorrowedFd, IntoRawFd as _, OwnedFd};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ze::*;

use crate::entry::{Answer, chained, given, offer, put};
use crate::object::hold;
use crate::{context, device, host_memory, image, pages, script, worker};

const PAGE_BYTES: usize = 4 << 10;
/// Alignments up to this are granted.
const MAX_ALIGN_BYTES: usize = 2 << 20;

struct Allocation {
    place: Place,
    bytes: usize,
    kind: ze_memory_type_t,
    /// None for host memory.
    device: Option<usize>,
    id: u64,
}

static LIVE: Mutex<BTreeMap<usize, Allocation>> = Mutex::new(BTreeMap::new());
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

pub fn count() -> (&'static str, usize) {
    ("allocation", hold(&LIVE).len())
}

pub fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// Where the bytes of an allocation are.
enum Place {
    Heap(Layout),
    File(Mapped),
    /// The file of an allocation of another process.
    Opened(Mapped),
}

/// What an address belongs to.
pub struct Range {
    pub start: usize,
    pub bytes: usize,
    pub kind: ze_memory_type_t,
    pub device: Option<usize>,
    pub id: u64,
}

pub fn range_of(address: usize) -> Option<Range> {
    let live = hold(&LIVE);
    let (start, own) = live.range(..=address).next_back()?;
    (address - start < own.bytes).then_some(Range {
        start: *start,
        bytes: own.bytes,
        kind: own.kind,
        device: own.device,
        id: own.id,
    })
}

/// # Safety
/// `next` is a chain.
unsafe fn allocate(
    context: ze_context_handle_t,
    kind: ze_memory_type_t,
    device: ze_device_handle_t,
    size: usize,
    align: usize,
    next: *const c_void,
    out: *mut *mut c_void,
) -> Answer {
    context::check(context)?;
    let home = match kind {
        ZE_MEMORY_TYPE_DEVICE => Some(device::index(device)?),
        ZE_MEMORY_TYPE_SHARED if !device.is_null() => Some(device::index(device)?),
        _ => None,
    };
    home.map_or_else(script::present, script::device_present)?;
    if out.is_null() {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    if align != 0 && (!align.is_power_of_two() || align > MAX_ALIGN_BYTES) {
        return Err(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
    }
    // SAFETY: as the caller promises.
    let relaxed = unsafe { chained::<ze_relaxed_allocation_limits_exp_desc_t>(next) }.is_some();
    if size == 0 || (size as u64 > device::max_alloc_bytes() && !relaxed) {
        return Err(ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    }
    let full = match kind {
        ZE_MEMORY_TYPE_HOST => ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY,
        _ => ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
    };
    let mut live = hold(&LIVE);
    let used: usize = live.values().map(|own| own.bytes).sum();
    if used.saturating_add(size) as u64 > device::memory_bytes() {
        return Err(full);
    }
    // SAFETY: as the caller promises.
    let given = unsafe { file(next, size) }?;
    let own = match (given, kind) {
        (None, ZE_MEMORY_TYPE_DEVICE) => Some(pages::file_of(size)?),
        (given, _) => given,
    };
    let (start, place) = match own {
        Some(file) => {
            let mapped = Mapped::of(file, size).ok_or(full)?;
            (mapped.start, Place::File(mapped))
        }
        None => {
            let layout = Layout::from_size_align(size, align.max(PAGE_BYTES))
                .map_err(|_| ZE_RESULT_ERROR_UNSUPPORTED_SIZE)?;
            // SAFETY: the size is not 0.
            let start = unsafe { std::alloc::alloc(layout) };
            if start.is_null() {
                return Err(full);
            }
            (start.expose_provenance(), Place::Heap(layout))
        }
    };
    let allocation = Allocation {
        place,
        bytes: size,
        kind,
        device: home,
        id: next_id(),
    };
    live.insert(start, allocation);
    // SAFETY: it is not null.
    unsafe { out.write(ptr::with_exposed_provenance_mut(start)) };
    Ok(())
}

/// The kinds of files that memory crosses as. Both are files in memory here.
pub const FILES: ze_external_memory_type_flags_t =
    ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD | ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF;

fn is_one_kind(flags: ze_external_memory_type_flags_t) -> Answer {
    match flags & !FILES == 0 && flags.count_ones() == 1 {
        true => Ok(()),
        false => Err(ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION),
    }
}

/// The file of an allocation that is for others, or from others. None for one that is neither.
///
/// # Safety
/// `next` is a chain.
pub unsafe fn file(next: *const c_void, bytes: usize) -> Answer<Option<OwnedFd>> {
    // SAFETY: as the caller promises.
    let (imported, exported) = unsafe {
        (
            chained::<ze_external_memory_import_fd_t>(next),
            chained::<ze_external_memory_export_desc_t>(next),
        )
    };
    if let Some(desc) = imported {
        is_one_kind(desc.flags)?;
        return duplicate(desc.fd, bytes).map(Some);
    }
    if let Some(desc) = exported {
        if desc.flags & !FILES != 0 || desc.flags == 0 {
            return Err(ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
        }
        return pages::file_of(bytes).map(Some);
    }
    Ok(None)
}

/// A descriptor of the same file, which has at least so many bytes. The given one stays the caller's.
pub fn duplicate(descriptor: c_int, bytes: usize) -> Answer<OwnedFd> {
    if descriptor < 0 {
        return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
    }
    // SAFETY: the caller's descriptor stays open during the call.
    let given = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let own = given.try_clone_to_owned();
    let own = own.map_err(|_| ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
    // SAFETY: an open descriptor.
    let end = unsafe { libc::lseek(own.as_raw_fd(), 0, libc::SEEK_END) };
    match usize::try_from(end).is_ok_and(|end| end >= bytes) {
        true => Ok(own),
        false => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
    }
}

/// A file's bytes in memory.
pub struct Mapped {
    file: OwnedFd,
    pub start: usize,
    bytes: usize,
}

impl Mapped {
    pub fn descriptor(&self) -> c_int {
        self.file.as_raw_fd()
    }

    pub fn of(file: OwnedFd, bytes: usize) -> Option<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let raw = file.as_raw_fd();
        let bytes = bytes.checked_next_multiple_of(PAGE_BYTES)?;
        // The start suits every alignment.
        let start = pages::reserve(bytes)?;
        let at = ptr::with_exposed_provenance_mut(start);
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: a mapping of an open file at addresses that were reserved for it.
        let mapped = unsafe { libc::mmap(at, bytes, access, flags, raw, 0) } != libc::MAP_FAILED;
        let own = Self { file, start, bytes };
        mapped.then_some(own)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `of` with this size.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(self.start), self.bytes) };
    }
}

/// A new descriptor of the file behind an address, for the caller.
fn export(start: usize) -> Answer<c_int> {
    let live = hold(&LIVE);
    let found = live.range(..=start).next_back();
    let found = found.filter(|(first, own)| start - *first < own.bytes);
    match found.map(|(_, own)| &own.place) {
        Some(Place::File(mapped) | Place::Opened(mapped)) => {
            let file = mapped.file.try_clone();
            let file = file.map_err(|_| ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)?;
            Ok(file.into_raw_fd())
        }
        _ => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
    }
}

/// Removes an allocation from the table, if it suits.
fn take(start: usize, suits: impl Fn(&mut Allocation) -> bool) -> Option<Allocation> {
    let mut live = hold(&LIVE);
    live.get_mut(&start).is_some_and(suits).then_some(())?;
    live.remove(&start)
}

/// The descriptor in a handle.
pub fn descriptor_of(data: &[c_char]) -> c_int {
    let mut number = [0; size_of::<c_int>()];
    for (to, from) in number.iter_mut().zip(data) {
        *to = from.cast_unsigned();
    }
    c_int::from_ne_bytes(number)
}

/// A handle of 64 bytes with a descriptor.
pub fn handle_of(number: c_int) -> [c_char; 64] {
    let mut data = [0; 64];
    for (to, from) in data.iter_mut().zip(number.to_ne_bytes()) {
        *to = from.cast_signed();
    }
    data
}

/// The bytes of a descriptor's file.
pub fn file_bytes(descriptor: c_int) -> Answer<usize> {
    // SAFETY: the system refuses a number that is no descriptor.
    let end = unsafe { libc::lseek(descriptor, 0, libc::SEEK_END) };
    usize::try_from(end).map_err(|_| ZE_RESULT_ERROR_INVALID_ARGUMENT)
}

fn free(start: *mut c_void) -> Answer {
    if start.is_null() {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    let is_own = |own: &mut Allocation| !matches!(own.place, Place::Opened(_));
    let Some(own) = take(start.addr(), is_own) else {
        script::broken("a free of what is no allocation".into());
        return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
    };
    if worker::uses(start.addr(), own.bytes) {
        script::broken("memory is freed that a command uses".into());
        // The test ends with this message, and not by the command's access.
        return Ok(());
    }
    context::freed(start.addr());
    if let Place::Heap(layout) = own.place {
        // SAFETY: it was allocated so, and is not in the table any more.
        unsafe { std::alloc::dealloc(start.cast(), layout) };
    }
    Ok(())
}

entries! {
    fn zeMemAllocShared(
        context: ze_context_handle_t, desc: *const ze_device_mem_alloc_desc_t,
        host: *const ze_host_mem_alloc_desc_t, size: usize, align: usize, device: ze_device_handle_t,
        out: *mut *mut c_void,
    ) {
        given(host)?;
        let next = given(desc)?.pNext;
        allocate(context, ZE_MEMORY_TYPE_SHARED, device, size, align, next, out)
    }

    fn zeMemAllocDevice(
        context: ze_context_handle_t, desc: *const ze_device_mem_alloc_desc_t, size: usize, align: usize,
        device: ze_device_handle_t, out: *mut *mut c_void,
    ) {
        let next = given(desc)?.pNext;
        allocate(context, ZE_MEMORY_TYPE_DEVICE, device, size, align, next, out)
    }

    fn zeMemAllocHost(
        context: ze_context_handle_t, desc: *const ze_host_mem_alloc_desc_t, size: usize, align: usize,
        out: *mut *mut c_void,
    ) {
        let next = given(desc)?.pNext;
        allocate(context, ZE_MEMORY_TYPE_HOST, ze_device_handle_t::NULL, size, align, next, out)
    }

    fn zeMemFree(context: ze_context_handle_t, start: *mut c_void) {
        context::check(context)?;
        free(start)
    }

    fn zeMemFreeExt(
        context: ze_context_handle_t, desc: *const ze_memory_free_ext_desc_t, start: *mut c_void,
    ) {
        context::check(context)?;
        match given(desc)?.freePolicy {
            ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE => {
                // Those who use the memory may wait for the caller.
                let address = start.expose_provenance();
                std::thread::spawn(move || {
                    worker::drain_all();
                    free(ptr::with_exposed_provenance_mut(address))
                });
                Ok(())
            }
            _ => {
                worker::drain_all();
                free(start)
            }
        }
    }

    fn zeMemGetAllocProperties(
        context: ze_context_handle_t, start: *const c_void, out: *mut ze_memory_allocation_properties_t,
        home: *mut ze_device_handle_t,
    ) {
        context::check(context)?;
        given(start.cast::<u8>())?;
        given(out)?;
        if let Some(wanted) = chained::<ze_external_memory_export_fd_t>((*out).pNext) {
            is_one_kind(wanted.flags)?;
            wanted.fd = export(start.addr())?;
        }
        let found = range_of(start.addr()).or_else(|| pages::range_of(start.addr()));
        // An import is the host's, as with Intel's newest driver.
        let other = match host_memory::is_imported(start.addr()) {
            true => ZE_MEMORY_TYPE_HOST,
            false => ZE_MEMORY_TYPE_UNKNOWN,
        };
        (*out).r#type = found.as_ref().map_or(other, |own| own.kind);
        (*out).id = found.as_ref().map_or(0, |own| own.id);
        (*out).pageSize = match &found {
            Some(_) => PAGE_BYTES as u64,
            None => 0,
        };
        let device = found.and_then(|own| own.device);
        offer(home, device.map(device::handle).unwrap_or_default());
        Ok(())
    }

    fn zeMemGetAddressRange(
        context: ze_context_handle_t, start: *const c_void, base: *mut *mut c_void, size: *mut usize,
    ) {
        context::check(context)?;
        given(start.cast::<u8>())?;
        let found = range_of(start.addr()).or_else(|| pages::range_of(start.addr()));
        let found = found.ok_or(ZE_RESULT_ERROR_ADDRESS_NOT_FOUND)?;
        offer(base, ptr::with_exposed_provenance_mut(found.start));
        offer(size, found.bytes);
        Ok(())
    }

    fn zeMemGetIpcHandle(
        context: ze_context_handle_t, start: *const c_void, out: *mut ze_ipc_mem_handle_t,
    ) {
        context::check(context)?;
        given(out)?;
        let live = hold(&LIVE);
        match live.get(&start.addr()).map(|own| &own.place) {
            Some(Place::File(mapped)) => {
                put(out, ze_ipc_mem_handle_t { data: handle_of(mapped.file.as_raw_fd()) })
            }
            _ => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
        }
    }

    fn zeMemPutIpcHandle(context: ze_context_handle_t, handle: ze_ipc_mem_handle_t) {
        context::check(context)?;
        file_bytes(descriptor_of(&handle.data)).map(drop)
    }

    fn zeMemGetFileDescriptorFromIpcHandleExp(
        context: ze_context_handle_t, handle: ze_ipc_mem_handle_t, out: *mut u64,
    ) {
        context::check(context)?;
        let number = u64::try_from(descriptor_of(&handle.data));
        put(out, number.map_err(|_| ZE_RESULT_ERROR_INVALID_ARGUMENT)?)
    }

    fn zeMemGetIpcHandleFromFileDescriptorExp(
        context: ze_context_handle_t, number: u64, out: *mut ze_ipc_mem_handle_t,
    ) {
        context::check(context)?;
        let number = c_int::try_from(number).map_err(|_| ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
        // As Intel's driver, which knows the descriptors of this process's own memory alone.
        let is_own = hold(&LIVE).values().any(|own| {
            matches!(&own.place, Place::File(mapped) if mapped.file.as_raw_fd() == number)
        });
        match is_own {
            true => put(out, ze_ipc_mem_handle_t { data: handle_of(number) }),
            false => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
        }
    }

    fn zeMemOpenIpcHandle(
        context: ze_context_handle_t, device: ze_device_handle_t, handle: ze_ipc_mem_handle_t,
        _flags: ze_ipc_memory_flags_t, out: *mut *mut c_void,
    ) {
        context::check(context)?;
        let home = device::index(device)?;
        script::present()?;
        given(out)?;
        let number = descriptor_of(&handle.data);
        let bytes = file_bytes(number)?;
        let file = duplicate(number, 1)?;
        let mapped = Mapped::of(file, bytes).ok_or(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)?;
        let start = mapped.start;
        let opened = Allocation {
            place: Place::Opened(mapped),
            bytes,
            kind: ZE_MEMORY_TYPE_DEVICE,
            device: Some(home),
            id: next_id(),
        };
        hold(&LIVE).insert(start, opened);
        put(out, ptr::with_exposed_provenance_mut(start))
    }

    fn zeMemCloseIpcHandle(context: ze_context_handle_t, start: *const c_void) {
        context::check(context)?;
        let closed = take(start.addr(), |own| matches!(own.place, Place::Opened(_)));
        match &closed {
            None => script::broken("a close of what is not opened".into()),
            Some(own) if worker::uses(start.addr(), own.bytes) => {
                script::broken("memory is closed that a command uses".into());
            }
            Some(_) => {}
        }
        closed.map(drop).ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)
    }

    fn zeMemGetPitchFor2dImage(
        context: ze_context_handle_t, device: ze_device_handle_t, width: usize, _height: usize,
        element: u32, out: *mut usize,
    ) {
        context::check_both(context, device)?;
        put(out, (width * element as usize).next_multiple_of(image::PITCH_BYTES))
    }

    fn zeMemSetAtomicAccessAttributeExp(
        context: ze_context_handle_t, device: ze_device_handle_t, _start: *const c_void, _size: usize,
        _attribute: ze_memory_atomic_attr_exp_flags_t,
    ) {
        context::check_both(context, device)
    }
}

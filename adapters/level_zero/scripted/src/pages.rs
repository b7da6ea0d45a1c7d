//! Virtual and physical memory: reserved addresses, blocks of memory, and the mappings between them.
//!
//! A block of device memory is mapped once at a time, as Intel's driver has it since 26.27.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr;
use std::sync::{Arc, Mutex};

use ze::*;

use crate::entry::{Answer, chained, given, put};
use crate::memory::{Range, next_id};
use crate::object::{Objects, hold};
use crate::{context, device, memory, script};

/// The granularity of sizes and addresses.
const PAGE_BYTES: usize = 64 << 10;
/// Reserved addresses are multiples of it.
const RANGE_ALIGN_BYTES: usize = 2 << 20;

/// A block of memory, as a file without a name.
pub struct Physical {
    file: OwnedFd,
    bytes: usize,
    id: u64,
    device: Option<usize>,
    is_exportable: bool,
    is_mapped: Mutex<bool>,
}

struct Map {
    bytes: usize,
    physical: Arc<Physical>,
    access: ze_memory_access_attribute_t,
}

#[derive(Default)]
struct Space {
    /// Sizes of reserved ranges, by address.
    ranges: BTreeMap<usize, usize>,
    maps: BTreeMap<usize, Map>,
}

pub static PHYSICAL: Objects<Physical> = Objects::of("physical memory");
static SPACE: Mutex<Space> = Mutex::new(Space {
    ranges: BTreeMap::new(),
    maps: BTreeMap::new(),
});

pub fn count_ranges() -> (&'static str, usize) {
    ("range", hold(&SPACE).ranges.len())
}

pub fn count_maps() -> (&'static str, usize) {
    ("mapping", hold(&SPACE).maps.len())
}

/// The mapping that holds an address, else the reserved range.
pub fn range_of(address: usize) -> Option<Range> {
    let space = hold(&SPACE);
    if let Some((start, map)) = space.maps.range(..=address).next_back()
        && address - start < map.bytes
    {
        return Some(Range {
            start: *start,
            bytes: map.bytes,
            kind: match map.physical.device {
                Some(_) => ZE_MEMORY_TYPE_DEVICE,
                None => ZE_MEMORY_TYPE_HOST,
            },
            device: map.physical.device,
            id: map.physical.id,
        });
    }
    None
}

fn whole_pages(size: usize) -> Answer {
    match size == 0 || !size.is_multiple_of(PAGE_BYTES) {
        true => Err(ZE_RESULT_ERROR_UNSUPPORTED_SIZE),
        false => Ok(()),
    }
}

fn protection(access: ze_memory_access_attribute_t) -> Answer<i32> {
    match access {
        ZE_MEMORY_ACCESS_ATTRIBUTE_NONE => Ok(libc::PROT_NONE),
        ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE => Ok(libc::PROT_READ | libc::PROT_WRITE),
        ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY => Ok(libc::PROT_READ),
        _ => Err(ZE_RESULT_ERROR_INVALID_ENUMERATION),
    }
}

/// Takes the memory away from addresses, and keeps them reserved.
fn empty(start: usize, bytes: usize) {
    // SAFETY: the addresses are of a range that this module reserved; nobody may use their memory any more.
    unsafe {
        libc::mmap(
            ptr::with_exposed_provenance_mut(start),
            bytes,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
            -1,
            0,
        )
    };
}

/// Reserves addresses. Returns the first.
pub fn reserve(bytes: usize) -> Option<usize> {
    let room = bytes.checked_add(RANGE_ALIGN_BYTES)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping.
    let found = unsafe { libc::mmap(ptr::null_mut(), room, libc::PROT_NONE, flags, -1, 0) };
    if found == libc::MAP_FAILED {
        return None;
    }
    let first = found.expose_provenance();
    let start = first.next_multiple_of(RANGE_ALIGN_BYTES);
    let (before, behind) = (start - first, first + room - (start + bytes));
    // SAFETY: both ends are of the new mapping and not given away.
    unsafe {
        if before > 0 {
            libc::munmap(found, before);
        }
        if behind > 0 {
            libc::munmap(ptr::with_exposed_provenance_mut(start + bytes), behind);
        }
    }
    Some(start)
}

impl Space {
    fn is_reserved(&self, start: usize, bytes: usize) -> bool {
        let found = self.ranges.range(..=start).next_back();
        found.is_some_and(|(first, all)| start - first < *all && bytes <= all - (start - first))
    }
}

/// A new file in memory.
pub fn file_of(bytes: usize) -> Answer<OwnedFd> {
    let length = libc::off_t::try_from(bytes).map_err(|_| ZE_RESULT_ERROR_UNSUPPORTED_SIZE)?;
    // SAFETY: a C string.
    let raw = unsafe { libc::memfd_create(c"scripted".as_ptr(), libc::MFD_CLOEXEC) };
    if raw < 0 {
        return Err(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    }
    // SAFETY: opened just now, for this value alone.
    let file = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: an open file.
    match unsafe { libc::ftruncate(raw, length) } {
        0 => Ok(file),
        _ => Err(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY),
    }
}

entries! {
    fn zeVirtualMemReserve(
        context: ze_context_handle_t, _start: *const c_void, size: usize, out: *mut *mut c_void,
    ) {
        context::check(context)?;
        given(out)?;
        whole_pages(size)?;
        let start = reserve(size).ok_or(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)?;
        hold(&SPACE).ranges.insert(start, size);
        put(out, ptr::with_exposed_provenance_mut(start))
    }

    fn zeVirtualMemFree(context: ze_context_handle_t, start: *const c_void, size: usize) {
        context::check(context)?;
        let mut space = hold(&SPACE);
        let first = start.addr();
        if space.ranges.get(&first) != Some(&size) {
            script::broken("a free of what is no range".into());
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        if space.maps.range(first..first + size).next().is_some() {
            script::broken("a free of a range with mappings".into());
            return Err(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
        }
        space.ranges.remove(&first);
        libc::munmap(start.cast_mut(), size);
        Ok(())
    }

    fn zeVirtualMemQueryPageSize(
        context: ze_context_handle_t, device: ze_device_handle_t, _size: usize, out: *mut usize,
    ) {
        context::check_both(context, device)?;
        put(out, PAGE_BYTES)
    }

    fn zeVirtualMemMap(
        context: ze_context_handle_t, start: *const c_void, size: usize,
        physical: ze_physical_mem_handle_t, offset: usize, access: ze_memory_access_attribute_t,
    ) {
        context::check(context)?;
        let physical = PHYSICAL.get(physical.0)?;
        let protection = protection(access)?;
        whole_pages(size)?;
        let first = start.addr();
        let mut space = hold(&SPACE);
        let fits = offset.checked_add(size).is_some_and(|end| end <= physical.bytes);
        if !first.is_multiple_of(PAGE_BYTES) || !offset.is_multiple_of(PAGE_BYTES) {
            return Err(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
        }
        let mut below = space.maps.range(..first + size);
        let is_taken = below.next_back().is_some_and(|(at, map)| at + map.bytes > first);
        if !fits || !space.is_reserved(first, size) || is_taken {
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        let mut is_mapped = hold(&physical.is_mapped);
        if *is_mapped && physical.device.is_some() {
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let descriptor = physical.file.as_raw_fd();
        let offset = libc::off_t::try_from(offset).map_err(|_| ZE_RESULT_ERROR_INVALID_SIZE)?;
        let at = ptr::with_exposed_provenance_mut::<c_void>(first);
        if libc::mmap(at, size, protection, flags, descriptor, offset) == libc::MAP_FAILED {
            return Err(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
        }
        *is_mapped = true;
        drop(is_mapped);
        space.maps.insert(first, Map { bytes: size, physical, access });
        Ok(())
    }

    fn zeVirtualMemUnmap(context: ze_context_handle_t, start: *const c_void, size: usize) {
        context::check(context)?;
        let mut space = hold(&SPACE);
        let first = start.addr();
        let ends: Vec<_> = space.maps.range(first..first.saturating_add(size)).map(|(at, map)| (*at, map.bytes)).collect();
        let covered: usize = ends.iter().map(|(_, bytes)| bytes).sum();
        if size == 0 || covered != size {
            script::broken("an unmap of what is not mapped".into());
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        for (at, bytes) in ends {
            if let Some(map) = space.maps.remove(&at) {
                *hold(&map.physical.is_mapped) = false;
            }
            empty(at, bytes);
        }
        Ok(())
    }

    fn zeVirtualMemSetAccessAttribute(
        context: ze_context_handle_t, start: *const c_void, size: usize, access: ze_memory_access_attribute_t,
    ) {
        context::check(context)?;
        let protection = protection(access)?;
        let mut space = hold(&SPACE);
        let first = start.addr();
        let inside = space.maps.range_mut(..=first).next_back();
        let inside = inside.filter(|(at, map)| first + size <= **at + map.bytes);
        let (_, map) = inside.ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
        if libc::mprotect(start.cast_mut(), size, protection) != 0 {
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        map.access = access;
        Ok(())
    }

    fn zeVirtualMemGetAccessAttribute(
        context: ze_context_handle_t, start: *const c_void, size: usize,
        access: *mut ze_memory_access_attribute_t, out: *mut usize,
    ) {
        context::check(context)?;
        given(access)?;
        given(out)?;
        let space = hold(&SPACE);
        let first = start.addr();
        let inside = space.maps.range(..=first).next_back();
        match inside.filter(|(at, map)| first - **at < map.bytes) {
            Some((at, map)) => {
                put(access, map.access)?;
                put(out, size.min(map.bytes - (first - at)))
            }
            None if space.is_reserved(first, size) => {
                put(access, ZE_MEMORY_ACCESS_ATTRIBUTE_NONE)?;
                put(out, size)
            }
            None => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
        }
    }

    fn zePhysicalMemCreate(
        context: ze_context_handle_t, device: ze_device_handle_t, desc: *mut ze_physical_mem_desc_t,
        out: *mut ze_physical_mem_handle_t,
    ) {
        context::check(context)?;
        let desc = given(desc.cast_const())?;
        given(out)?;
        script::present()?;
        whole_pages(desc.size)?;
        let is_host = desc.flags & ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_HOST != 0;
        let device = match is_host {
            true => None,
            false => Some(device::index(device)?),
        };
        if desc.size as u64 > device::memory_bytes() {
            return Err(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
        }
        let is_exportable = chained::<ze_external_memory_export_desc_t>(desc.pNext).is_some();
        let file = match memory::file(desc.pNext, desc.size)? {
            Some(file) => file,
            None => file_of(desc.size)?,
        };
        let physical = Physical {
            file, bytes: desc.size, id: next_id(), device, is_exportable, is_mapped: Mutex::new(false),
        };
        put(out, ze_physical_mem_handle_t(PHYSICAL.add(|_| physical)))
    }

    fn zePhysicalMemDestroy(context: ze_context_handle_t, physical: ze_physical_mem_handle_t) {
        context::check(context)?;
        let own = PHYSICAL.remove(physical.0)?;
        if *hold(&own.is_mapped) {
            script::broken("physical memory destroyed while mapped".into());
        }
        Ok(())
    }

    fn zePhysicalMemGetProperties(
        context: ze_context_handle_t, physical: ze_physical_mem_handle_t,
        out: *mut ze_physical_mem_properties_t,
    ) {
        context::check(context)?;
        let own = PHYSICAL.get(physical.0)?;
        given(out)?;
        if let Some(wanted) = chained::<ze_external_memory_export_fd_t>((*out).pNext) {
            if !own.is_exportable {
                return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
            }
            wanted.fd = memory::duplicate(own.file.as_raw_fd(), own.bytes)?.into_raw_fd();
        }
        (*out).id = own.id;
        (*out).size = own.bytes as u64;
        Ok(())
    }
}

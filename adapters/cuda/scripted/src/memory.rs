//! Memory: allocations, and physical memory mapped to reserved addresses.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{c_int, c_uint, c_void};

use crate::driver::*;
use crate::peers::{Description, descriptions, device_of, grant};
use crate::share;
use crate::strict::hold_idle;

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.max(1), 4096).ok()
}

/// Zeroed memory, or `None` if there is not enough.
pub fn allocate(bytes: usize) -> Option<usize> {
    let layout = layout(bytes).filter(|layout| layout.size() <= 1 << 30);
    // SAFETY: the size is not 0.
    let start = unsafe { alloc_zeroed(layout?) };
    (!start.is_null()).then(|| start.expose_provenance())
}

pub fn deallocate(start: usize, bytes: usize) {
    if let Some(layout) = layout(bytes) {
        // SAFETY: from `allocate` with the same layout.
        unsafe { dealloc(std::ptr::with_exposed_provenance_mut(start), layout) };
    }
}

fn make(name: &'static str, bytes: usize, of_device: bool) -> Result<usize, u32> {
    let mut driver = hold_idle(of_device.then(current));
    if let Some(code) = driver.acts(name) {
        return Err(code);
    }
    if let Some(code) = driver.begin_unsafe() {
        return Err(code);
    }
    let start = allocate(bytes).ok_or(OUT_OF_MEMORY)?;
    let home = of_device.then(|| device_of(current()));
    driver.blocks.insert(start, Allocation { bytes, home });
    Ok(start)
}

fn free(start: usize, name: &'static str) -> u32 {
    let mut driver = hold_idle(None);
    if let Some(code) = driver.called(name) {
        return code;
    }
    driver.pump();
    match driver.blocks.remove(&start) {
        Some(block) => {
            if driver.external_maps.remove(&start).is_none() {
                deallocate(start, block.bytes);
            }
            SUCCESS
        }
        None => code(driver.broken(&format!("{name} of what is not there"))),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(start: *mut u64, bytes: usize) -> u32 {
    // SAFETY: room for an address, as for all outputs here.
    code(make("cuMemAlloc", bytes, true).map(|at| unsafe { start.write(at as u64) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocManaged(start: *mut u64, bytes: usize, _: c_uint) -> u32 {
    // SAFETY: room for an address, as for all outputs here.
    code(make("cuMemAllocManaged", bytes, false).map(|at| unsafe { start.write(at as u64) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(start: *mut *mut c_void, bytes: usize, _: c_uint) -> u32 {
    let made = make("cuMemHostAlloc", bytes, false);
    // SAFETY: room for an address, as for all outputs here.
    code(made.map(|at| unsafe { start.write(std::ptr::with_exposed_provenance_mut(at)) }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(start: u64) -> u32 {
    free(start as usize, "cuMemFree")
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeHost(start: *mut c_void) -> u32 {
    free(start.addr(), "cuMemFreeHost")
}

/// `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED`.
const ALREADY_REGISTERED: u32 = 712;

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostRegister_v2(start: *mut c_void, bytes: usize, _: c_uint) -> u32 {
    let (mut driver, at) = (hold_idle(None), start.addr());
    if let Some(code) = driver.acts("cuMemHostRegister") {
        return code;
    }
    let before = driver.registered.range(..at + bytes).next_back();
    if before.is_some_and(|(start, bytes)| start + bytes > at) {
        return ALREADY_REGISTERED;
    }
    driver.registered.insert(at, bytes);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostUnregister(start: *mut c_void) -> u32 {
    let mut driver = hold_idle(None);
    if let Some(code) = driver.acts("cuMemHostUnregister") {
        return code;
    }
    match driver.registered.remove(&start.addr()) {
        Some(_) => SUCCESS,
        None => code(driver.broken("memory unregistered that is not registered")),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAllocationGranularity(
    bytes: *mut usize,
    _: *const c_void,
    _: c_uint,
) -> u32 {
    // SAFETY: room for an address, as for all outputs here.
    unsafe { bytes.write(PAGE) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAddressReserve(
    start: *mut u64,
    bytes: usize,
    alignment: usize,
    _: u64,
    _: u64,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.called("cuMemAddressReserve") {
        return code;
    }
    if alignment != 0 && !alignment.is_power_of_two() {
        return INVALID_VALUE;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let none = std::ptr::null_mut();
    let slack = alignment.max(PAGE);
    // SAFETY: a new mapping at an address that the system chooses.
    let all = unsafe { libc::mmap(none, bytes + slack, libc::PROT_NONE, flags, -1, 0) };
    if all == libc::MAP_FAILED {
        return OUT_OF_MEMORY;
    }
    let all = all.expose_provenance();
    let at = all.next_multiple_of(slack);
    for (from, to) in [(all, at), (at + bytes, all + bytes + slack)] {
        if from < to {
            // SAFETY: the parts of the mapping before and behind the aligned one, which are unused.
            unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(from), to - from) };
        }
    }
    driver.ranges.insert(at, bytes);
    // SAFETY: the driver's interface promises room for each output.
    unsafe { start.write(at as u64) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAddressFree(start: u64, bytes: usize) -> u32 {
    let (mut driver, start) = (hold(), start as usize);
    let used = driver.maps.range(start..start + bytes).next().is_some();
    if used || driver.ranges.get(&start) != Some(&bytes) {
        return code(driver.broken("addresses given back that are in use, or not reserved"));
    }
    driver.ranges.remove(&start);
    // SAFETY: a whole reservation without any use.
    unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(start), bytes) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemCreate(
    handle: *mut u64,
    bytes: usize,
    what: *const c_int,
    _: u64,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.called("cuMemCreate") {
        return code;
    }
    let name = driver.name();
    // SAFETY: the caller passes properties: two numbers, then the type and the number of a location.
    let location = unsafe { [what.add(2).read(), what.add(3).read()] };
    let piece = Piece {
        bytes,
        home: (location[0] == 1).then_some(location[1] as usize),
        released: false,
        mapped: 0,
        last: 0,
        // SAFETY: the second member of the driver's description.
        shareable: unsafe { what.cast::<c_uint>().add(1).read() } == share::DESCRIPTOR,
        file: None,
    };
    driver.pieces.insert(name, piece);
    // SAFETY: a whole reservation without any use.
    unsafe { handle.write(name as u64) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemRelease(handle: u64) -> u32 {
    let (mut driver, name) = (hold(), handle as usize);
    match driver.pieces.get_mut(&name) {
        Some(piece) if !piece.released => {
            piece.released = true;
            if piece.mapped == 0 {
                driver.pieces.remove(&name);
            }
            SUCCESS
        }
        _ => code(driver.broken("a piece released twice")),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemMap(start: u64, bytes: usize, offset: usize, handle: u64, _: u64) -> u32 {
    let (mut driver, at, name) = (hold(), start as usize, handle as usize);
    if let Some(code) = driver.called("cuMemMap") {
        return code;
    }
    let found = driver.maps.range(at..at + bytes).next().is_some();
    let whole = driver
        .pieces
        .get(&name)
        .is_some_and(|piece| piece.bytes == bytes && offset == 0);
    if found || !whole {
        return code(driver.broken("mapping what is no piece, or where one is"));
    }
    if let Some(piece) = driver.pieces.get_mut(&name) {
        if !share::map_piece(piece, at) {
            return OUT_OF_MEMORY;
        }
        piece.mapped += 1;
        piece.last = at;
    }
    let map = Map {
        bytes,
        piece: name,
        access: [0; MAX_DEVICES],
    };
    driver.maps.insert(at, map);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemUnmap(start: u64, bytes: usize) -> u32 {
    let (mut driver, start) = (hold(), start as usize);
    driver.pump();
    let all: Vec<_> = driver
        .maps
        .range(start..start + bytes)
        .map(|(at, map)| (*at, (map.bytes, map.piece)))
        .collect();
    if all.iter().map(|(_, (bytes, _))| bytes).sum::<usize>() != bytes {
        return code(driver.broken("unmapping what is not all mapped"));
    }
    for (at, (bytes, name)) in all {
        driver.maps.remove(&at);
        if driver
            .pieces
            .get(&name)
            .is_some_and(|piece| piece.file.is_some())
        {
            share::unmap_piece(at, bytes);
        }
        if let Some(piece) = driver.pieces.get_mut(&name) {
            piece.mapped -= 1;
            if piece.mapped == 0 && piece.released {
                driver.pieces.remove(&name);
            }
        }
    }
    let start = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: a part of a reservation, all uses of which are complete.
    unsafe {
        libc::madvise(start, bytes, libc::MADV_DONTNEED);
        libc::mprotect(start, bytes, libc::PROT_NONE);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemSetAccess(
    start: u64,
    bytes: usize,
    who: *const Description,
    count: usize,
) -> u32 {
    let (mut driver, at) = (hold(), start as usize);
    if let Some(code) = driver.called("cuMemSetAccess") {
        return code;
    }
    driver.pump();
    // SAFETY: the caller passes as many descriptions as it says.
    let who = unsafe { descriptions(who, count) };
    let maps = driver.maps.range(at..at + bytes);
    let homes: Vec<_> = maps
        .map(|(_, map)| (map.bytes, driver.pieces.get(&map.piece)))
        .map(|(bytes, piece)| (bytes, piece.and_then(|piece| piece.home)))
        .collect();
    if homes.iter().map(|(bytes, _)| bytes).sum::<usize>() != bytes {
        return code(driver.broken("access to what is not all mapped"));
    }
    if !homes.iter().all(|(_, home)| driver.can_have(*home, who)) {
        return INVALID_VALUE;
    }
    for (_, map) in driver.maps.range_mut(at..at + bytes) {
        grant(&mut map.access, who);
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let start = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: a part of a reservation.
    match unsafe { libc::mprotect(start, bytes, protection) } {
        0 => SUCCESS,
        _ => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAddressRange_v2(
    start: *mut u64,
    bytes: *mut usize,
    at: u64,
) -> u32 {
    let (mut driver, at) = (hold(), at as usize);
    if let Some(code) = driver.acts("cuMemGetAddressRange") {
        return code;
    }
    let blocks = driver.blocks.range(..=at).next_back();
    let block = blocks.map(|(start, block)| (*start, block.bytes));
    let maps = driver.maps.range(..=at).next_back();
    let map = maps.map(|(start, map)| (*start, map.bytes));
    let all = [block, map].into_iter().flatten();
    let Some(found) = all.clone().find(|(start, bytes)| at - start < *bytes) else {
        return NOT_FOUND;
    };
    // SAFETY: room for an address and a size.
    unsafe {
        start.write(found.0 as u64);
        bytes.write(found.1);
    }
    SUCCESS
}

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`, `_DEVICE_ORDINAL` and `_ACCESS_FLAGS` of memory that a device owns.
///
/// The library knows nothing about other memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttribute(value: *mut c_void, what: c_int, at: u64) -> u32 {
    let driver = hold();
    let Some((home, access)) = driver.access(at as usize) else {
        return INVALID_VALUE;
    };
    // SAFETY: the driver's interface promises room for a number of the attribute's size.
    unsafe {
        match what {
            2 => value.cast::<c_int>().write(2),
            9 => value.cast::<c_int>().write(home as c_int),
            16 => value.cast::<u64>().write(access[device_of(current())]),
            _ => return INVALID_VALUE,
        }
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAdvise(_: u64, _: usize, _: c_int, _: c_int) -> u32 {
    hold().acts("cuMemAdvise").unwrap_or(SUCCESS)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPrefetchAsync(_: u64, _: usize, _: c_int, _: *mut c_void) -> u32 {
    hold().acts("cuMemPrefetchAsync").unwrap_or(SUCCESS)
}

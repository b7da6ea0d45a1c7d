//! Memory: allocations, and pieces that are mapped at reserved addresses.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{c_int, c_uint, c_void};

use crate::world::*;

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.max(1), 4096).ok()
}

/// Zeroed memory, as far as there is so much.
pub fn allocate(bytes: usize) -> Option<usize> {
    let layout = layout(bytes).filter(|layout| layout.size() <= 1 << 30);
    // SAFETY: not of size zero.
    let start = unsafe { alloc_zeroed(layout?) };
    (!start.is_null()).then(|| start.expose_provenance())
}

pub fn deallocate(start: usize, bytes: usize) {
    if let Some(layout) = layout(bytes) {
        // SAFETY: from `allocate` with the same layout.
        unsafe { dealloc(std::ptr::with_exposed_provenance_mut(start), layout) };
    }
}

fn make(name: &'static str, bytes: usize) -> Result<usize, u32> {
    let mut world = hold();
    if let Some(code) = world.acts(name) {
        return Err(code);
    }
    let start = allocate(bytes).ok_or(OUT_OF_MEMORY)?;
    world.blocks.insert(start, bytes);
    Ok(start)
}

fn free(start: usize, name: &str) -> u32 {
    let mut world = hold();
    world.pump();
    match world.blocks.remove(&start) {
        Some(bytes) => {
            deallocate(start, bytes);
            SUCCESS
        }
        None => code(world.broken(&format!("{name} of what is not there"))),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(start: *mut u64, bytes: usize) -> u32 {
    // SAFETY: room for an address, as for all outputs here.
    code(make("cuMemAlloc", bytes).map(|at| unsafe { start.write(at as u64) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocManaged(start: *mut u64, bytes: usize, _: c_uint) -> u32 {
    // SAFETY: as above.
    code(make("cuMemAllocManaged", bytes).map(|at| unsafe { start.write(at as u64) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(start: *mut *mut c_void, bytes: usize, _: c_uint) -> u32 {
    let made = make("cuMemHostAlloc", bytes);
    // SAFETY: as above.
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

/// `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED`
const ALREADY_REGISTERED: u32 = 712;

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostRegister_v2(start: *mut c_void, bytes: usize, _: c_uint) -> u32 {
    let (mut world, at) = (hold(), start.addr());
    if let Some(code) = world.acts("cuMemHostRegister") {
        return code;
    }
    let before = world.registered.range(..at + bytes).next_back();
    if before.is_some_and(|(start, bytes)| start + bytes > at) {
        return ALREADY_REGISTERED;
    }
    world.registered.insert(at, bytes);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostUnregister(start: *mut c_void) -> u32 {
    let mut world = hold();
    if let Some(code) = world.acts("cuMemHostUnregister") {
        return code;
    }
    match world.registered.remove(&start.addr()) {
        Some(_) => SUCCESS,
        None => code(world.broken("memory unregistered that is not registered")),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAllocationGranularity(
    bytes: *mut usize,
    _: *const c_void,
    _: c_uint,
) -> u32 {
    // SAFETY: as above.
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
    let mut world = hold();
    if let Some(code) = world.called("cuMemAddressReserve") {
        return code;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let none = std::ptr::null_mut();
    let slack = alignment.max(PAGE);
    // SAFETY: a new mapping, wherever there is room.
    let all = unsafe { libc::mmap(none, bytes + slack, libc::PROT_NONE, flags, -1, 0) };
    if all == libc::MAP_FAILED {
        return OUT_OF_MEMORY;
    }
    let all = all.expose_provenance();
    let at = all.next_multiple_of(slack);
    for (from, to) in [(all, at), (at + bytes, all + bytes + slack)] {
        if from < to {
            // SAFETY: what lies before and behind the part that is kept.
            unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(from), to - from) };
        }
    }
    world.ranges.insert(at, bytes);
    // SAFETY: as above.
    unsafe { start.write(at as u64) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAddressFree(start: u64, bytes: usize) -> u32 {
    let (mut world, start) = (hold(), start as usize);
    let used = world.maps.range(start..start + bytes).next().is_some();
    if used || world.ranges.get(&start) != Some(&bytes) {
        return code(world.broken("addresses given back that are in use, or not reserved"));
    }
    world.ranges.remove(&start);
    // SAFETY: a reservation that is given up.
    unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(start), bytes) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemCreate(
    handle: *mut u64,
    bytes: usize,
    _: *const c_void,
    _: u64,
) -> u32 {
    let mut world = hold();
    if let Some(code) = world.called("cuMemCreate") {
        return code;
    }
    let name = world.name();
    let piece = Piece {
        bytes,
        released: false,
        mapped: 0,
    };
    world.pieces.insert(name, piece);
    // SAFETY: as above.
    unsafe { handle.write(name as u64) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemRelease(handle: u64) -> u32 {
    let (mut world, name) = (hold(), handle as usize);
    match world.pieces.get_mut(&name) {
        Some(piece) if !piece.released => {
            piece.released = true;
            if piece.mapped == 0 {
                world.pieces.remove(&name);
            }
            SUCCESS
        }
        _ => code(world.broken("a piece released twice")),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemMap(start: u64, bytes: usize, offset: usize, handle: u64, _: u64) -> u32 {
    let (mut world, at, name) = (hold(), start as usize, handle as usize);
    if let Some(code) = world.called("cuMemMap") {
        return code;
    }
    let taken = world.maps.range(at..at + bytes).next().is_some();
    let whole = world
        .pieces
        .get(&name)
        .is_some_and(|piece| piece.bytes == bytes && offset == 0);
    if taken || !whole {
        return code(world.broken("mapping what is no piece, or where one is"));
    }
    if let Some(piece) = world.pieces.get_mut(&name) {
        piece.mapped += 1;
    }
    world.maps.insert(at, (bytes, name));
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemUnmap(start: u64, bytes: usize) -> u32 {
    let (mut world, start) = (hold(), start as usize);
    world.pump();
    let all: Vec<_> = world
        .maps
        .range(start..start + bytes)
        .map(|(at, map)| (*at, *map))
        .collect();
    if all.iter().map(|(_, (bytes, _))| bytes).sum::<usize>() != bytes {
        return code(world.broken("unmapping what is not all mapped"));
    }
    for (at, (_, name)) in all {
        world.maps.remove(&at);
        if let Some(piece) = world.pieces.get_mut(&name) {
            piece.mapped -= 1;
            if piece.mapped == 0 && piece.released {
                world.pieces.remove(&name);
            }
        }
    }
    let start = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: a part of a reservation, all use of which is over.
    unsafe {
        libc::madvise(start, bytes, libc::MADV_DONTNEED);
        libc::mprotect(start, bytes, libc::PROT_NONE);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemSetAccess(start: u64, bytes: usize, _: *const c_void, _: usize) -> u32 {
    if let Some(code) = hold().called("cuMemSetAccess") {
        return code;
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let start = std::ptr::with_exposed_provenance_mut(start as usize);
    // SAFETY: a part of a reservation.
    match unsafe { libc::mprotect(start, bytes, protection) } {
        0 => SUCCESS,
        _ => INVALID_VALUE,
    }
}

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE` and `_DEVICE_ORDINAL`, of memory that was said to be elsewhere; of
/// other memory the library knows nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttribute(value: *mut c_void, what: c_int, at: u64) -> u32 {
    let value = match (hold().elsewhere.contains(&(at as usize)), what) {
        (true, 2) => Some(2),
        (true, 9) => Some(1),
        _ => None,
    }
    .map(|told: c_int| {
        // SAFETY: room for a number, by the driver's interface.
        unsafe { value.cast::<c_int>().write(told) };
    });
    value.map_or(INVALID_VALUE, |()| SUCCESS)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAdvise(_: u64, _: usize, _: c_int, _: c_int) -> u32 {
    hold().acts("cuMemAdvise").unwrap_or(SUCCESS)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPrefetchAsync(_: u64, _: usize, _: c_int, _: *mut c_void) -> u32 {
    hold().acts("cuMemPrefetchAsync").unwrap_or(SUCCESS)
}

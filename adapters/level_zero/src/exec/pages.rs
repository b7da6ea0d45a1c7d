//! Pages of device memory for the pools: native blocks, which have one address at a time.
//!
//! A pool that reaches its maximum, or finds the device full, moves free pages together. Chunks of the driver's memory,
//! which are the default, stay where they are. What a mapping costs on hardware is not known, so that pages are the
//! user's choice: `UR_LEVEL_ZERO_PAGES`.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::{null, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Object, Result, ensure};
use ur::stream::Kind;
use ur::sync::{Mutex, rank};

use super::memory;
use crate::context::NativeContext;
use crate::device::Device;
use crate::lz::*;
use crate::virtual_mem::{create_block, page_bytes};

/// Bytes of the least page.
pub const PAGE_BYTES: usize = 2 << 20;
/// Bytes of the largest page: each mapping costs time, the more the more there are.
pub const LARGEST_PAGE_BYTES: usize = 32 << 20;

/// The mappings of a native context, each with its bytes: the driver unmaps what it has mapped, and no part of it.
#[derive(Default)]
pub struct Mapped(Mutex<BTreeMap<usize, usize>, { rank::DRIVER }>);

fn at(addr: usize) -> *const c_void {
    with_exposed_provenance(addr)
}

fn block(page: u64) -> ze_physical_mem_handle_t {
    ze_physical_mem_handle_t(with_exposed_provenance_mut(page as usize))
}

/// Reserves addresses.
pub fn reserve(context: &NativeContext, bytes: usize) -> Result<usize> {
    let mut start = std::ptr::null_mut();
    // SAFETY: there is room for the address.
    unsafe {
        call!(
            context.api,
            zeVirtualMemReserve(context.raw, null(), bytes, &mut start)
        )
    }?;
    let start = start.expose_provenance();
    if !start.is_multiple_of(PAGE_BYTES) {
        unreserve(context, start, bytes);
        ensure(false, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    }
    Ok(start)
}

/// Frees reserved addresses, where nothing is mapped.
pub fn unreserve(context: &NativeContext, start: usize, bytes: usize) {
    if context.api.is_torn_down() {
        return;
    }
    // SAFETY: reserved by this, and nothing is mapped there.
    let freed = unsafe { call!(context.api, zeVirtualMemFree(context.raw, at(start), bytes)) };
    if let Err(error) = freed {
        log::error!("addresses stay reserved: {:?}", error.code());
    }
}

/// Makes blocks of this size, zeroed if the caller wants that.
pub fn create(
    context: &Arc<NativeContext>,
    device: &Object<Device>,
    (bytes, count): (usize, usize),
    zeroed: bool,
) -> Result<Vec<u64>> {
    let page = page_bytes(context, device, bytes)?;
    let whole = page > 0 && bytes.is_multiple_of(page);
    ensure(whole, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    let mut made = Vec::new();
    let all = (0..count).try_for_each(|_| {
        made.push(create_one(context, device, bytes)?);
        Ok(())
    });
    let zeros = || zero(context, device, bytes, &made);
    let done = all.and_then(|()| if zeroed { zeros() } else { Ok(()) });
    done.inspect_err(|_| destroy(context, &made))?;
    Ok(made)
}

fn create_one(context: &NativeContext, device: &Device, bytes: usize) -> Result<u64> {
    // SAFETY: there is no chain.
    let raw = unsafe { create_block(context, device, bytes, null()) }?;
    Ok(raw.0.expose_provenance() as u64)
}

/// Writes zeros to blocks that are mapped nowhere, at addresses for that alone.
fn zero(
    context: &Arc<NativeContext>,
    device: &Object<Device>,
    bytes: usize,
    pages: &[u64],
) -> Result<()> {
    let all = bytes * pages.len();
    let start = reserve(context, all)?;
    let zeroed = map(context, start, bytes, pages).and_then(|()| {
        let zeroed = memory::zero(context, device, Kind::Device, start, all);
        unmap(context, start, all);
        zeroed
    });
    unreserve(context, start, all);
    zeroed
}

/// Destroys blocks, which are mapped nowhere.
pub fn destroy(context: &NativeContext, pages: &[u64]) {
    if context.api.is_torn_down() {
        return;
    }
    for page in pages {
        // SAFETY: made by this, and mapped nowhere.
        let gone = unsafe { call!(context.api, zePhysicalMemDestroy(context.raw, block(*page))) };
        if let Err(error) = gone {
            log::error!("a page of a pool stays: {:?}", error.code());
        }
    }
}

/// Maps blocks of this size side by side at reserved addresses. None is mapped after an error.
pub fn map(context: &NativeContext, start: usize, bytes: usize, pages: &[u64]) -> Result<()> {
    let access = ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE;
    for (place, page) in (start..).step_by(bytes).zip(pages) {
        // SAFETY: the addresses are reserved and unmapped, and the block has this size.
        let mapped = unsafe {
            call!(
                context.api,
                zeVirtualMemMap(context.raw, at(place), bytes, block(*page), 0, access)
            )
        };
        mapped.inspect_err(|_| unmap(context, start, place - start))?;
        context.mapped.0.lock().insert(place, bytes);
    }
    Ok(())
}

/// Unmaps the blocks in a range, whose use has ended.
pub fn unmap(context: &NativeContext, start: usize, bytes: usize) {
    if context.api.is_torn_down() {
        return;
    }
    let range = start..start.saturating_add(bytes);
    let gone: Vec<_> = {
        let mut mapped = context.mapped.0.lock();
        mapped.extract_if(range, |_, _| true).collect()
    };
    for (place, bytes) in gone {
        // SAFETY: mapped by this, and not in use.
        let unmap = || unsafe {
            call!(
                context.api,
                zeVirtualMemUnmap(context.raw, at(place), bytes)
            )
        };
        // Tried again: the addresses are used for other pages next.
        if let Err(error) = unmap().or_else(|_| unmap()) {
            log::error!("a page of a pool stays mapped: {:?}", error.code());
        }
    }
}

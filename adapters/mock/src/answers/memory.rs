//! Answers about USM, mapped and virtual memory, and memory shared with other processes.

use std::ffi::c_void;
use std::sync::Arc;

use ur::abi::*;
use ur::object::{InfoOut, Kind, Result};

use crate::info;
use crate::make;
use crate::memory::{self, Request};
use crate::objects::{self, Handle, Origin};

/// Allocates memory of a USM type, and writes its address.
///
/// # Safety
/// The descriptor is null or readable; the output is null or writable.
unsafe fn alloc(
    ty: ur_usm_type_t,
    device: ur_device_handle_t,
    desc: *const ur_usm_desc_t,
    pool: ur_usm_pool_handle_t,
    size: usize,
    to: *mut *mut c_void,
) -> Result<()> {
    // SAFETY: the caller guarantees that the descriptor is null or readable.
    let align = unsafe { desc.as_ref() }.map_or(0, |desc| desc.align as usize);
    // SAFETY: the caller guarantees that the output is null or writable.
    unsafe {
        alloc_on(
            ty,
            objects::find(device, Kind::Device),
            pool,
            (size, align),
            to,
        )
    }
}

/// Allocates memory on a device, and writes its address.
///
/// # Safety
/// The output is null or writable.
unsafe fn alloc_on(
    ty: ur_usm_type_t,
    device: Option<Arc<Handle>>,
    pool: ur_usm_pool_handle_t,
    (size, align): (usize, usize),
    to: *mut *mut c_void,
) -> Result<()> {
    if to.is_null() {
        return Ok(());
    }
    let memory = memory::alloc(Request {
        size,
        align,
        ty,
        device,
        pool: objects::find(pool, Kind::UsmPool),
    })?;
    // SAFETY: not null, and the caller guarantees that it is writable.
    unsafe { to.write(memory) };
    Ok(())
}

const NONE: *mut c_void = std::ptr::null_mut();

pub fn usm_host_alloc(p: &ur_usm_host_alloc_params_t) -> Result<()> {
    let ty = UR_USM_TYPE_HOST;
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe { alloc(ty, NONE.cast(), *p.ppUSMDesc, *p.ppool, *p.psize, *p.pppMem) }
}

pub fn usm_device_alloc(p: &ur_usm_device_alloc_params_t) -> Result<()> {
    let ty = UR_USM_TYPE_DEVICE;
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe { alloc(ty, *p.phDevice, *p.ppUSMDesc, *p.ppool, *p.psize, *p.pppMem) }
}

pub fn usm_shared_alloc(p: &ur_usm_shared_alloc_params_t) -> Result<()> {
    let ty = UR_USM_TYPE_SHARED;
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe { alloc(ty, *p.phDevice, *p.ppUSMDesc, *p.ppool, *p.psize, *p.pppMem) }
}

pub fn usm_pitched_alloc_exp(p: &ur_usm_pitched_alloc_exp_params_t) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    let (width, height) = unsafe { (*p.pwidthInBytes, *p.pheight) };
    let pitch = width.checked_next_multiple_of(64).unwrap_or(width);
    let size = pitch.saturating_mul(height);
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        alloc(
            UR_USM_TYPE_DEVICE,
            *p.phDevice,
            *p.ppUSMDesc,
            *p.ppool,
            size,
            *p.pppMem,
        )?;
        make::value(*p.ppResultPitch, pitch);
    }
    Ok(())
}

pub fn usm_free(p: &ur_usm_free_params_t) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    memory::free(unsafe { *p.ppMem })
}

pub fn usm_get_mem_alloc_info(p: &ur_usm_get_mem_alloc_info_params_t) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        let out = InfoOut::new(Some(*p.ppropSize), *p.ppPropValue, *p.ppPropSizeRet);
        info::of_memory(
            *p.ppMem,
            ur_usm_alloc_info_t::PROPERTIES,
            (*p.ppropName).0,
            out,
        )
    }
}

/// Allocates memory, and writes its address and the event of the command.
///
/// # Safety
/// Each output is null or writable.
unsafe fn enqueue_alloc(
    (ty, command): (ur_usm_type_t, ur_command_t),
    queue: ur_queue_handle_t,
    pool: ur_usm_pool_handle_t,
    size: usize,
    to: *mut *mut c_void,
    event: *mut ur_event_handle_t,
) -> Result<()> {
    let origin = Origin::default().with(queue, Kind::Queue);
    let device = objects::find(queue, Kind::Queue)
        .filter(|_| ty != UR_USM_TYPE_HOST)
        .and_then(|queue| queue.related(Kind::Device).into_iter().next());
    // SAFETY: the caller guarantees that each output is null or writable.
    unsafe {
        alloc_on(ty, device, pool, (size, 0), to)?;
        make::event(event, command, &origin);
    }
    Ok(())
}

pub fn enqueue_usm_device_alloc_exp(p: &ur_enqueue_usm_device_alloc_exp_params_t) -> Result<()> {
    let what = (UR_USM_TYPE_DEVICE, UR_COMMAND_ENQUEUE_USM_DEVICE_ALLOC_EXP);
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        enqueue_alloc(
            what,
            *p.phQueue,
            *p.ppPool,
            *p.psize,
            *p.pppMem,
            *p.pphEvent,
        )
    }
}

pub fn enqueue_usm_shared_alloc_exp(p: &ur_enqueue_usm_shared_alloc_exp_params_t) -> Result<()> {
    let what = (UR_USM_TYPE_SHARED, UR_COMMAND_ENQUEUE_USM_SHARED_ALLOC_EXP);
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        enqueue_alloc(
            what,
            *p.phQueue,
            *p.ppPool,
            *p.psize,
            *p.pppMem,
            *p.pphEvent,
        )
    }
}

pub fn enqueue_usm_host_alloc_exp(p: &ur_enqueue_usm_host_alloc_exp_params_t) -> Result<()> {
    let what = (UR_USM_TYPE_HOST, UR_COMMAND_ENQUEUE_USM_HOST_ALLOC_EXP);
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        enqueue_alloc(
            what,
            *p.phQueue,
            *p.ppPool,
            *p.psize,
            *p.pppMem,
            *p.pphEvent,
        )
    }
}

pub fn enqueue_usm_free_exp(p: &ur_enqueue_usm_free_exp_params_t) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        memory::free(*p.ppMem)?;
        let origin = Origin::default().with(*p.phQueue, Kind::Queue);
        make::event(*p.pphEvent, UR_COMMAND_ENQUEUE_USM_FREE_EXP, &origin);
    }
    Ok(())
}

/// A mapping is separate memory, since a buffer has no content.
pub fn enqueue_mem_buffer_map(p: &ur_enqueue_mem_buffer_map_params_t) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        let none = std::ptr::null_mut();
        alloc_on(UR_USM_TYPE_UNKNOWN, None, none, (*p.psize, 0), *p.pppRetMap)?;
        let origin = Origin::default().with(*p.phQueue, Kind::Queue);
        make::event(*p.pphEvent, UR_COMMAND_MEM_BUFFER_MAP, &origin);
    }
    Ok(())
}

pub fn enqueue_mem_unmap(p: &ur_enqueue_mem_unmap_params_t) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        memory::free(*p.ppMappedPtr)?;
        let origin = Origin::default().with(*p.phQueue, Kind::Queue);
        make::event(*p.pphEvent, UR_COMMAND_MEM_UNMAP, &origin);
    }
    Ok(())
}

const PAGE_BYTES: usize = 4096;

/// A reserved range is allocated at once.
pub fn virtual_mem_reserve(p: &ur_virtual_mem_reserve_params_t) -> Result<()> {
    let none = std::ptr::null_mut();
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        alloc_on(
            UR_USM_TYPE_UNKNOWN,
            None,
            none,
            (*p.psize, PAGE_BYTES),
            *p.pppStart,
        )
    }
}

pub fn virtual_mem_free(p: &ur_virtual_mem_free_params_t) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    memory::free(unsafe { *p.ppStart })
}

pub fn memory_export_alloc_exportable_memory_exp(
    p: &ur_memory_export_alloc_exportable_memory_exp_params_t,
) -> Result<()> {
    let none = std::ptr::null_mut();
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        let device = objects::find(*p.phDevice, Kind::Device);
        let shape = (*p.psize, *p.palignment);
        alloc_on(UR_USM_TYPE_DEVICE, device, none, shape, *p.pppMem)
    }
}

pub fn memory_export_free_exportable_memory_exp(
    p: &ur_memory_export_free_exportable_memory_exp_params_t,
) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    memory::free(unsafe { *p.ppMem })
}

/// The file descriptor is invalid.
pub fn memory_export_export_memory_handle_exp(
    p: &ur_memory_export_export_memory_handle_exp_params_t,
) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract; every handle type is at
    // least as large as a descriptor.
    unsafe { make::value((*p.ppMemHandleRet).cast::<i32>(), -1) };
    Ok(())
}

pub fn bindless_images_map_external_linear_memory_exp(
    p: &ur_bindless_images_map_external_linear_memory_exp_params_t,
) -> Result<()> {
    let none = std::ptr::null_mut();
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        let device = objects::find(*p.phDevice, Kind::Device);
        let size = usize::try_from(*p.psize).unwrap_or(usize::MAX);
        alloc_on(UR_USM_TYPE_DEVICE, device, none, (size, 0), *p.pppRetMem)
    }
}

pub fn bindless_images_free_mapped_linear_memory_exp(
    p: &ur_bindless_images_free_mapped_linear_memory_exp_params_t,
) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    memory::free(unsafe { *p.ppMem })
}

/// The data of every inter-process handle; nothing reads it.
static SHARED: [u8; 64] = *b"unified runtime mock: inter-process handle of an object of this ";

/// Writes the data and the size of an inter-process handle.
///
/// # Safety
/// Each output is null or writable.
unsafe fn shared(data: *mut *mut c_void, size: *mut usize) -> Result<()> {
    // SAFETY: the caller guarantees that each output is null or writable.
    unsafe {
        make::value(data, SHARED.as_ptr().cast_mut().cast());
        make::value(size, SHARED.len());
    }
    Ok(())
}

pub fn ipc_get_mem_handle_exp(p: &ur_ipc_get_mem_handle_exp_params_t) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe { shared(*p.pppIPCMemHandleData, *p.ppIPCMemHandleDataSizeRet) }
}

pub fn ipc_get_phys_mem_handle_exp(p: &ur_ipc_get_phys_mem_handle_exp_params_t) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe { shared(*p.pppIPCPhysMemHandleData, *p.ppIPCPhysMemHandleDataSizeRet) }
}

pub fn ipc_get_event_handle_exp(p: &ur_ipc_get_event_handle_exp_params_t) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe { shared(*p.pppIPCEventHandleData, *p.ppIPCEventHandleDataSizeRet) }
}

/// Allocates a page, since the size of the shared memory is unknown.
pub fn ipc_open_mem_handle_exp(p: &ur_ipc_open_mem_handle_exp_params_t) -> Result<()> {
    let none = std::ptr::null_mut();
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        let device = objects::find(*p.phDevice, Kind::Device);
        alloc_on(
            UR_USM_TYPE_DEVICE,
            device,
            none,
            (PAGE_BYTES, PAGE_BYTES),
            *p.pppMem,
        )
    }
}

pub fn ipc_close_mem_handle_exp(p: &ur_ipc_close_mem_handle_exp_params_t) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    memory::free(unsafe { *p.ppMem })
}

pub fn ipc_close_phys_mem_handle_exp(p: &ur_ipc_close_phys_mem_handle_exp_params_t) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    objects::release(unsafe { *p.phPhysMem }, Kind::PhysicalMem)
}

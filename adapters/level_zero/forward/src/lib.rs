//! A Level Zero driver that hands every call to Intel's, for machines without a GPU.
//!
//! Told to submit to nobody, Intel's driver does its work and then fails a few calls because nothing is behind it.
//! This library fills the loader's tables from `libze_intel_gpu.so.1` and replaces four entries:
//!
//! | call | Intel's answer without a GPU | here |
//! |---|---|---|
//! | zeContextMakeMemoryResident, zeContextEvictMemory | 0x78000001, the work done | success |
//! | zeVirtualMemMap | 0x78000001, the mapping made | success |
//! | zeEventQueryStatus | not ready for ever | as zeEventHostSynchronize without patience |
//!
//! `ZE_ENABLE_ALT_DRIVERS` names the library to the loader.
//!
//! `FORWARD_LEVEL_ZERO_COMPUTE_QUEUES=N` gives each device N compute queues, which stand for one: Intel's driver has
//! several only with a device, and crashes on `ZEX_NUMBER_OF_CCS` without. Each immediate list is then named on
//! standard error with its device, ordinal and index.

#![allow(non_snake_case, non_camel_case_types)]

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::OnceLock;
use ze::ddi::*;
use ze::*;

/// An export of Intel's driver.
fn export(name: &CStr) -> Option<*mut c_void> {
    static DRIVER: OnceLock<usize> = OnceLock::new();
    let driver = *DRIVER.get_or_init(|| {
        // SAFETY: the driver's initialisers are sound to run; it stays open for the process's life.
        let opened = unsafe { libc::dlopen(c"libze_intel_gpu.so.1".as_ptr(), libc::RTLD_NOW) };
        opened.expose_provenance()
    });
    if driver == 0 {
        return None;
    }
    // SAFETY: `driver` is what dlopen returned, and `name` a string.
    let found = unsafe { libc::dlsym(ptr::with_exposed_provenance_mut(driver), name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Has Intel's driver fill a table.
///
/// # Safety
/// `table` has room for what `version` promises.
unsafe fn fill<T>(name: &CStr, version: ze_api_version_t, table: *mut T) -> ze_result_t {
    let Some(getter) = export(name) else {
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    };
    // SAFETY: every getter of a driver has this type, and the caller promises the room.
    unsafe {
        let getter: unsafe extern "C" fn(ze_api_version_t, *mut T) -> ze_result_t =
            std::mem::transmute(getter);
        getter(version, table)
    }
}

/// Puts a function of this library in a table, and keeps Intel's.
macro_rules! replace {
    ($table:ident: $($member:ident of $kept:ident by $own:ident),*) => {
        $(
            // SAFETY: the loader's table is filled and has the entry since version 1.0.
            unsafe {
                if let Some(intel) = (*$table).$member {
                    let _ = $kept.set(intel);
                    (*$table).$member = Some($own);
                }
            }
        )*
    };
}

macro_rules! forward {
    ($($getter:ident $table:ident [$($lengths:tt)*] { $($entries:tt)* })*) => {
        $(
            /// Fills a table of the loader's.
            ///
            /// # Safety
            /// `table` has room for what `version` promises.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $getter(
                version: ze_api_version_t,
                table: *mut $table,
            ) -> ze_result_t {
                const NAME: &CStr = match CStr::from_bytes_with_nul(
                    concat!(stringify!($getter), "\0").as_bytes()
                ) {
                    Ok(name) => name,
                    Err(_) => c"",
                };
                // SAFETY: as the caller promises.
                let answer = unsafe { fill(NAME, version, table) };
                if answer == ZE_RESULT_SUCCESS {
                    forward!(@own $getter table);
                }
                answer
            }
        )*
    };
    (@own zeGetContextProcAddrTable $table:ident) => {
        replace!($table: pfnMakeMemoryResident of RESIDENT by make_resident, pfnEvictMemory of EVICT by evict)
    };
    (@own zeGetDeviceProcAddrTable $table:ident) => {
        if compute_queues().is_some() {
            replace!($table: pfnGetCommandQueueGroupProperties of GROUPS by groups)
        }
    };
    (@own zeGetCommandListProcAddrTable $table:ident) => {
        if compute_queues().is_some() {
            replace!($table: pfnCreateImmediate of IMMEDIATE by immediate)
        }
    };
    (@own zeGetVirtualMemProcAddrTable $table:ident) => {
        replace!($table: pfnMap of MAP by map)
    };
    (@own zeGetEventProcAddrTable $table:ident) => {{
        // SAFETY: the table is filled.
        unsafe {
            if let Some(intel) = (*$table).pfnHostSynchronize {
                let _ = SYNCHRONIZE.set(intel);
                (*$table).pfnQueryStatus = Some(query);
            }
        }
    }};
    (@own $getter:ident $table:ident) => {};
}
for_each_table! { forward }

use ze::for_each_table;

static RESIDENT: OnceLock<pfn::zeContextMakeMemoryResident> = OnceLock::new();
static EVICT: OnceLock<pfn::zeContextEvictMemory> = OnceLock::new();
static MAP: OnceLock<pfn::zeVirtualMemMap> = OnceLock::new();
static SYNCHRONIZE: OnceLock<pfn::zeEventHostSynchronize> = OnceLock::new();
static GROUPS: OnceLock<pfn::zeDeviceGetCommandQueueGroupProperties> = OnceLock::new();
static IMMEDIATE: OnceLock<pfn::zeCommandListCreateImmediate> = OnceLock::new();

/// The number of compute queues that devices pretend to have.
fn compute_queues() -> Option<u32> {
    let number = std::env::var("FORWARD_LEVEL_ZERO_COMPUTE_QUEUES").ok()?;
    number.parse().ok()
}

/// Without a device the driver reports that it is not initialised, once its own work is done.
fn forgiven(answer: ze_result_t) -> ze_result_t {
    match answer {
        ZE_RESULT_ERROR_UNINITIALIZED => ZE_RESULT_SUCCESS,
        other => other,
    }
}

unsafe extern "C" fn make_resident(
    context: ze_context_handle_t,
    device: ze_device_handle_t,
    start: *mut c_void,
    size: usize,
) -> ze_result_t {
    let Some(intel) = RESIDENT.get() else {
        return ZE_RESULT_ERROR_UNINITIALIZED;
    };
    // SAFETY: the caller's arguments, as they are.
    forgiven(unsafe { intel(context, device, start, size) })
}

unsafe extern "C" fn evict(
    context: ze_context_handle_t,
    device: ze_device_handle_t,
    start: *mut c_void,
    size: usize,
) -> ze_result_t {
    let Some(intel) = EVICT.get() else {
        return ZE_RESULT_ERROR_UNINITIALIZED;
    };
    // SAFETY: the caller's arguments, as they are.
    forgiven(unsafe { intel(context, device, start, size) })
}

unsafe extern "C" fn map(
    context: ze_context_handle_t,
    start: *const c_void,
    size: usize,
    memory: ze_physical_mem_handle_t,
    offset: usize,
    access: ze_memory_access_attribute_t,
) -> ze_result_t {
    let Some(intel) = MAP.get() else {
        return ZE_RESULT_ERROR_UNINITIALIZED;
    };
    // SAFETY: the caller's arguments, as they are.
    forgiven(unsafe { intel(context, start, size, memory, offset, access) })
}

unsafe extern "C" fn query(event: ze_event_handle_t) -> ze_result_t {
    match SYNCHRONIZE.get() {
        // SAFETY: the caller's event.
        Some(intel) => unsafe { intel(event, 0) },
        None => ZE_RESULT_ERROR_UNINITIALIZED,
    }
}

unsafe extern "C" fn groups(
    device: ze_device_handle_t,
    count: *mut u32,
    all: *mut ze_command_queue_group_properties_t,
) -> ze_result_t {
    let Some(intel) = GROUPS.get() else {
        return ZE_RESULT_ERROR_UNINITIALIZED;
    };
    // SAFETY: the caller's arguments, as they are.
    let answer = unsafe { intel(device, count, all) };
    if answer != ZE_RESULT_SUCCESS || all.is_null() {
        return answer;
    }
    // SAFETY: the driver wrote `count` descriptions.
    let all = unsafe { std::slice::from_raw_parts_mut(all, *count as usize) };
    for group in all {
        if group.flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE != 0 {
            group.numQueues = compute_queues().unwrap_or(group.numQueues);
        }
    }
    answer
}

unsafe extern "C" fn immediate(
    context: ze_context_handle_t,
    device: ze_device_handle_t,
    desc: *const ze_command_queue_desc_t,
    list: *mut ze_command_list_handle_t,
) -> ze_result_t {
    // SAFETY: the caller's description, or null.
    let (Some(intel), Some(asked)) = (IMMEDIATE.get(), unsafe { desc.as_ref() }) else {
        return ZE_RESULT_ERROR_UNINITIALIZED;
    };
    eprintln!("list {:?} {} {}", device.0, asked.ordinal, asked.index);
    if compute_queues().is_some_and(|count| asked.index >= count) {
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    let own = ze_command_queue_desc_t { index: 0, ..*asked };
    // SAFETY: the caller's arguments, but for the index.
    unsafe { intel(context, device, &own, list) }
}

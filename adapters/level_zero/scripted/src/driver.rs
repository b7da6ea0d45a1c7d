//! Start, the one driver, its extensions, and the loader's own functions for a program without a loader.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use ze::*;

use crate::entry::{boundary, bytes_out, fill, given, put, text_into};
use crate::tables::{self, Entry};
use crate::{device, host_memory, script};

pub const DRIVER: usize = 0x5eed_d000_0000;

/// An extension, and the version of the interface from which the driver has it.
struct Extension {
    name: &'static str,
    version: u32,
    since: u32,
}

const fn extension(name: &'static str, version: u32, since: u32) -> Extension {
    Extension {
        name,
        version,
        since,
    }
}

const EXTENSIONS: &[Extension] = &[
    extension("ZE_experimental_module_program", 0x1_0000, 0x1_0000),
    extension("ZE_experimental_global_offset", 0x1_0000, 0x1_0001),
    extension(
        "ZE_experimental_relaxed_allocation_limits",
        0x1_0000,
        0x1_0001,
    ),
    extension("ZE_extension_memory_free_policies", 0x1_0000, 0x1_0003),
    extension("ZE_extension_eu_count", 0x1_0000, 0x1_0003),
    extension("ZE_extension_image_copy", 0x1_0000, 0x1_0003),
    extension("ZE_extension_device_ip_version", 0x1_0000, 0x1_0005),
    extension(
        "ZE_extension_event_query_kernel_timestamps",
        0x1_0000,
        0x1_0006,
    ),
    extension(
        "ZE_experimental_event_pool_counter_based",
        0x1_0000,
        0x1_0008,
    ),
    extension(
        "ZE_experimental_immediate_command_list_append",
        0x1_0000,
        0x1_000b,
    ),
    extension("ZE_extension_device_cache_line_size", 0x1_0000, 0x1_000c),
    extension("ZE_extension_device_vector_sizes", 0x1_0000, 0x1_000c),
    extension(
        "ZE_extension_kernel_max_group_size_properties",
        0x1_0000,
        0x1_0008,
    ),
    extension("ZE_experimental_bindless_image", 0x1_0000, 0x1_000c),
    extension("ZE_extension_image_format_support", 0x1_0000, 0x1_000c),
    extension("ZE_extension_external_semaphores", 0x1_0000, 0x1_000c),
    extension("ZE_experimental_mutable_command_list", 0x1_0001, 0x1_0009),
    extension("ZE_extension_record_replay_graph", 0x1_0000, 0x1_000f),
    extension("ZE_intel_get_driver_version_string", 0x1_0000, 0x1_0003),
];

/// The interface's version that the driver has.
pub fn version() -> ze_api_version_t {
    let given = script::variable("VERSION").and_then(|text| {
        let (major, minor) = text.split_once('.')?;
        Some(major.parse::<u32>().ok()? << 16 | minor.parse::<u32>().ok()?)
    });
    given.map_or(ze_api_version_t(0x1_000f), ze_api_version_t)
}

fn extensions() -> Vec<&'static Extension> {
    let has = |one: &&Extension| one.since <= version().0 && !script::is_without(one.name);
    EXTENSIONS.iter().filter(has).collect()
}

fn handle() -> ze_driver_handle_t {
    ze_driver_handle_t(ptr::without_provenance_mut(DRIVER))
}

/// Checks a driver's handle.
pub fn check(driver: ze_driver_handle_t) -> crate::entry::Answer {
    match driver.0.addr() {
        DRIVER => Ok(()),
        0 => Err(ZE_RESULT_ERROR_INVALID_NULL_HANDLE),
        _ => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
    }
}

entries! {
    fn zeInit(flags: ze_init_flags_t) {
        script::report_at_exit();
        match flags == 0 || flags & ZE_INIT_FLAG_GPU_ONLY != 0 {
            true => Ok(()),
            false => Err(ZE_RESULT_ERROR_UNINITIALIZED),
        }
    }

    fn zeInitDrivers(count: *mut u32, drivers: *mut ze_driver_handle_t, desc: *mut ze_init_driver_type_desc_t) {
        script::report_at_exit();
        let wanted = given(desc)?.flags;
        let all: &[ze_driver_handle_t] = match wanted & ZE_INIT_DRIVER_TYPE_FLAG_GPU {
            0 => &[],
            _ => &[handle()],
        };
        fill(count, drivers, all, |to, from| *to = *from)
    }

    fn zeDriverGet(count: *mut u32, drivers: *mut ze_driver_handle_t) {
        fill(count, drivers, &[handle()], |to, from| *to = *from)
    }

    fn zeDriverGetApiVersion(driver: ze_driver_handle_t, out: *mut ze_api_version_t) {
        check(driver)?;
        put(out, version())
    }

    fn zeDriverGetProperties(driver: ze_driver_handle_t, out: *mut ze_driver_properties_t) {
        check(driver)?;
        given(out)?;
        (*out).uuid = ze_driver_uuid_t { id: *b"scripted driver\0" };
        (*out).driverVersion = 0x0100_0001;
        Ok(())
    }

    fn zeDriverGetIpcProperties(driver: ze_driver_handle_t, out: *mut ze_driver_ipc_properties_t) {
        check(driver)?;
        given(out)?;
        (*out).flags = ZE_IPC_PROPERTY_FLAG_MEMORY | ZE_IPC_PROPERTY_FLAG_EVENT_POOL;
        Ok(())
    }

    fn zeDriverGetExtensionProperties(
        driver: ze_driver_handle_t, count: *mut u32, out: *mut ze_driver_extension_properties_t,
    ) {
        check(driver)?;
        fill(count, out, &extensions(), |to, from| {
            text_into(&mut to.name, from.name);
            to.version = from.version;
        })
    }

    fn zeDriverGetExtensionFunctionAddress(
        driver: ze_driver_handle_t, name: *const c_char, out: *mut *mut c_void,
    ) {
        check(driver)?;
        given(name)?;
        let name = CStr::from_ptr(name).to_string_lossy();
        let known = match &*name {
            "zexCounterBasedEventCreate2" => "zeEventCounterBasedCreate",
            own => own,
        };
        let function = tables::find(known).filter(|_| !script::is_without(&name));
        put(out, function.map_or(ptr::null_mut(), |function| function as *mut c_void))?;
        function.map(drop).ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)
    }

    fn zeDriverGetLastErrorDescription(driver: ze_driver_handle_t, out: *mut *const c_char) {
        check(driver)?;
        put(out, c"".as_ptr())
    }

    fn zerGetLastErrorDescription(out: *mut *const c_char) {
        put(out, c"".as_ptr())
    }

    fn zelLoaderGetVersions(count: *mut usize, out: *mut zel_component_version_t) {
        let room = *given(count)?;
        count.write(1);
        if !out.is_null() && room > 0 {
            let mut own = zel_component_version_t::default();
            text_into(&mut own.component_name, "loader");
            own.spec_version = version();
            own.component_lib_version = zel_version_t { major: 1, minor: 32, patch: 0 };
            out.write(own);
        }
        Ok(())
    }
}

unsafe extern "C" fn default_context(driver: ze_driver_handle_t) -> ze_context_handle_t {
    match check(driver) {
        Ok(()) => crate::context::default(),
        Err(_) => ze_context_handle_t::NULL,
    }
}

unsafe extern "C" fn only_default_context() -> ze_context_handle_t {
    crate::context::default()
}

unsafe extern "C" fn identify(device: ze_device_handle_t) -> u32 {
    device::index(device).map_or(0, |index| u32::try_from(index).unwrap_or(0))
}

unsafe extern "C" fn identified(identifier: u32) -> ze_device_handle_t {
    let all = device::all();
    all.get(identifier as usize).copied().unwrap_or_default()
}

/// Intel's: the driver's version as text, without a zero at its end.
unsafe extern "C" fn version_string(
    driver: ze_driver_handle_t,
    out: *mut c_char,
    size: *mut usize,
) -> ze_result_t {
    boundary("zeIntelGetDriverVersionString", || {
        check(driver)?;
        // SAFETY: the caller keeps the interface's promises about its pointers.
        unsafe { bytes_out(size, out, b"1.15.1+9") }
    })
}

macro_rules! other {
    ($name:literal, $function:path, $ty:ty) => {
        Entry {
            name: $name,
            // SAFETY: a function's address keeps its meaning; callers give it its own type back.
            function: unsafe { std::mem::transmute::<$ty, ze::ddi::Opaque>($function) },
        }
    };
}

/// Functions that return something else than a result, or are not of the interface.
pub const OTHERS: &[Entry] = &[
    other!(
        "zeDriverGetDefaultContext",
        default_context,
        pfn::zeDriverGetDefaultContext
    ),
    other!(
        "zerGetDefaultContext",
        only_default_context,
        pfn::zerGetDefaultContext
    ),
    other!(
        "zerTranslateDeviceHandleToIdentifier",
        identify,
        pfn::zerTranslateDeviceHandleToIdentifier
    ),
    other!(
        "zerTranslateIdentifierToDeviceHandle",
        identified,
        pfn::zerTranslateIdentifierToDeviceHandle
    ),
    other!(
        "zexDriverImportExternalPointer",
        host_memory::import,
        unsafe extern "C" fn(ze_driver_handle_t, *mut c_void, usize) -> ze_result_t
    ),
    other!(
        "zexDriverReleaseImportedPointer",
        host_memory::release,
        unsafe extern "C" fn(ze_driver_handle_t, *mut c_void) -> ze_result_t
    ),
    other!(
        "zeIntelGetDriverVersionString",
        version_string,
        unsafe extern "C" fn(ze_driver_handle_t, *mut c_char, *mut usize) -> ze_result_t
    ),
];

#[unsafe(no_mangle)]
pub extern "C" fn zelCheckIsLoaderInTearDown() -> u8 {
    0
}

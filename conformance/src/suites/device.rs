//! Devices: listing, every property, and properties that must agree with each other.

use crate::fixture::{Fixture, devices};
use crate::objects::{Context, info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_eq};
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let mut tests = crate::tests!["device";
        get_lists_all, get_by_type, get_sizes, retain_and_release, belongs_to_its_platform,
        memory_is_plausible, work_sizes_are_plausible, queue_flags, select_binary,
        select_binary_without_match, native_handle, timestamps, unknown_property,
    ];
    tests.extend(info::tests(
        "device_info",
        "",
        ur_device_info_t::PROPERTIES,
        |_| Ok(()),
        |f, (), name, size, value, ret| {
            f.ur.urDeviceGetInfo(f.device, ur_device_info_t(name), size, value, ret)
        },
    ));
    tests
}

/// `urDeviceGet` lists the device under test, and the default devices are among all devices.
fn get_lists_all(fixture: &Fixture) -> Done {
    let all = devices(fixture.ur, fixture.platform, UR_DEVICE_TYPE_ALL)?;
    check!(
        all.contains(&fixture.device),
        "the device under test is not listed"
    );
    let default = devices(fixture.ur, fixture.platform, UR_DEVICE_TYPE_DEFAULT)?;
    check!(
        default.iter().all(|device| all.contains(device)),
        "a default device is not among all devices"
    );
    Ok(())
}

/// `urDeviceGet` with a type lists the devices that report this type and no others.
fn get_by_type(fixture: &Fixture) -> Done {
    let all = devices(fixture.ur, fixture.platform, UR_DEVICE_TYPE_ALL)?;
    for ty in [
        UR_DEVICE_TYPE_GPU,
        UR_DEVICE_TYPE_CPU,
        UR_DEVICE_TYPE_FPGA,
        UR_DEVICE_TYPE_MCA,
        UR_DEVICE_TYPE_VPU,
    ] {
        let of_type = devices(fixture.ur, fixture.platform, ty)?;
        for device in all.iter() {
            let found: ur_device_type_t = info::value(|size, value, ret| {
                fixture
                    .ur
                    .urDeviceGetInfo(*device, UR_DEVICE_INFO_TYPE, size, value, ret)
            })?;
            check_eq!(
                of_type.contains(device),
                found == ty,
                "whether a device of {found:?} is listed as {ty:?}"
            );
        }
    }
    Ok(())
}

/// `urDeviceGet` refuses wrong sizes and writes no entry beyond the last device.
fn get_sizes(fixture: &Fixture) -> Done {
    let ty = UR_DEVICE_TYPE_ALL;
    let mut device = null_mut();
    let mut count = 0;
    fixture
        .ur
        .urDeviceGet(fixture.platform, ty, 0, &mut device, &mut count)
        .fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    fixture
        .ur
        .urDeviceGet(fixture.platform, ty, 1, null_mut(), &mut count)
        .fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    let marker = std::ptr::dangling_mut();
    let total = devices(fixture.ur, fixture.platform, ty)?.len();
    let mut list = vec![marker; total + 1];
    fixture
        .ur
        .urDeviceGet(
            fixture.platform,
            ty,
            total as u32 + 1,
            list.as_mut_ptr(),
            &mut count,
        )
        .ok()?;
    check_eq!(count as usize, total, "number of devices");
    check_eq!(list[total], marker, "entry beyond the last device");
    for device in &list[..total] {
        fixture.ur.urDeviceRelease(*device).ok()?;
    }
    Ok(())
}

/// A root device can be retained and released and reports a reference.
fn retain_and_release(fixture: &Fixture) -> Done {
    fixture.ur.urDeviceRetain(fixture.device).ok()?;
    fixture.ur.urDeviceRelease(fixture.device).ok()?;
    let count: u32 = fixture.device_info(UR_DEVICE_INFO_REFERENCE_COUNT)?;
    check!(count > 0, "a device in use has no references");
    Ok(())
}

/// A device reports its platform, and a root device has no parent.
fn belongs_to_its_platform(fixture: &Fixture) -> Done {
    let platform: ur_platform_handle_t = fixture.device_info(UR_DEVICE_INFO_PLATFORM)?;
    check_eq!(platform, fixture.platform, "platform of the device");
    let parent: ur_device_handle_t = fixture.device_info(UR_DEVICE_INFO_PARENT_DEVICE)?;
    check!(parent.is_null(), "a root device has a parent");
    Ok(())
}

/// The largest allocation and the local memory fit in the global memory.
fn memory_is_plausible(fixture: &Fixture) -> Done {
    let total: u64 = fixture.device_info(UR_DEVICE_INFO_GLOBAL_MEM_SIZE)?;
    let largest: u64 = fixture.device_info(UR_DEVICE_INFO_MAX_MEM_ALLOC_SIZE)?;
    let local: u64 = fixture.device_info(UR_DEVICE_INFO_LOCAL_MEM_SIZE)?;
    check!(
        total > 1 << 20,
        "global memory of {total} bytes, expected more than 1 MiB"
    );
    check!(
        largest > 0 && largest <= total,
        "allocations of up to {largest} bytes in {total} bytes of global memory"
    );
    check!(
        local < total,
        "local memory of {local} bytes beside {total} bytes of global memory"
    );
    Ok(())
}

/// A device has three dimensions, a size limit for each, and at least one compute unit.
fn work_sizes_are_plausible(fixture: &Fixture) -> Done {
    let dimensions: u32 = fixture.device_info(UR_DEVICE_INFO_MAX_WORK_ITEM_DIMENSIONS)?;
    let sizes = info::list::<usize>(|size, value, ret| {
        fixture.ur.urDeviceGetInfo(
            fixture.device,
            UR_DEVICE_INFO_MAX_WORK_ITEM_SIZES,
            size,
            value,
            ret,
        )
    })?;
    let group: usize = fixture.device_info(UR_DEVICE_INFO_MAX_WORK_GROUP_SIZE)?;
    let units: u32 = fixture.device_info(UR_DEVICE_INFO_MAX_COMPUTE_UNITS)?;
    check!(
        dimensions >= 3,
        "{dimensions} dimensions, expected at least 3"
    );
    check_eq!(
        sizes.len(),
        dimensions as usize,
        "number of work-item sizes"
    );
    check!(
        sizes.iter().all(|size| *size > 0),
        "work-item sizes {sizes:?}"
    );
    check!(
        group > 0 && units > 0,
        "work-groups of {group}, {units} compute units"
    );
    Ok(())
}

/// A queue can be made with each flag that the device reports.
fn queue_flags(fixture: &Fixture) -> Done {
    let flags: ur_queue_flags_t = fixture.device_info(UR_DEVICE_INFO_QUEUE_ON_HOST_PROPERTIES)?;
    let context = Context::new(fixture)?;
    for (bit, name) in [
        (UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE, "out-of-order"),
        (UR_QUEUE_FLAG_PROFILING_ENABLE, "profiling"),
    ] {
        let made = crate::objects::Queue::new(&context, fixture.device, bit).is_ok();
        check!(
            made || !flags.contains(bit),
            "the device reports {name} queues, but refuses one"
        );
    }
    Ok(())
}

fn target(fixture: &Fixture) -> Result<&'static std::ffi::CStr, Stop> {
    match fixture.backend {
        UR_BACKEND_NATIVE_CPU => Ok(UR_DEVICE_BINARY_TARGET_NATIVE_CPU),
        UR_BACKEND_OPENCL | UR_BACKEND_LEVEL_ZERO => Ok(UR_DEVICE_BINARY_TARGET_SPIRV64),
        UR_BACKEND_CUDA => Ok(UR_DEVICE_BINARY_TARGET_NVPTX64),
        UR_BACKEND_HIP => Ok(UR_DEVICE_BINARY_TARGET_AMDGCN),
        other => Err(Stop::skipped(format!(
            "no binary target known for {other:?}"
        ))),
    }
}

fn binary(spec: &'static std::ffi::CStr) -> ur_device_binary_t {
    ur_device_binary_t {
        pDeviceTargetSpec: spec.as_ptr(),
        ..Default::default()
    }
}

/// `urDeviceSelectBinary` chooses the binary of the device's target and refuses an empty list.
fn select_binary(fixture: &Fixture) -> Done {
    let binaries = [
        binary(UR_DEVICE_BINARY_TARGET_UNKNOWN),
        binary(target(fixture)?),
    ];
    let mut chosen = u32::MAX;
    fixture
        .ur
        .urDeviceSelectBinary(fixture.device, binaries.as_ptr(), 2, &mut chosen)
        .ok()?;
    check_eq!(chosen, 1, "chosen binary");
    fixture
        .ur
        .urDeviceSelectBinary(fixture.device, binaries.as_ptr(), 0, &mut chosen)
        .fails(UR_RESULT_ERROR_INVALID_SIZE)
}

/// `urDeviceSelectBinary` fails with `INVALID_BINARY` if no binary matches.
fn select_binary_without_match(fixture: &Fixture) -> Done {
    let binaries = [binary(UR_DEVICE_BINARY_TARGET_UNKNOWN)];
    let mut chosen = u32::MAX;
    fixture
        .ur
        .urDeviceSelectBinary(fixture.device, binaries.as_ptr(), 1, &mut chosen)
        .fails(UR_RESULT_ERROR_INVALID_BINARY)
}

/// A device can be made from its native handle.
fn native_handle(fixture: &Fixture) -> Done {
    let mut native = 0;
    let status = fixture
        .ur
        .urDeviceGetNativeHandle(fixture.device, &mut native);
    if status.is_unsupported() {
        return Ok(());
    }
    status.ok()?;
    let mut device = null_mut();
    let made =
        fixture
            .ur
            .urDeviceCreateWithNativeHandle(native, fixture.adapter, null(), &mut device);
    if made.is_unsupported() {
        return Ok(());
    }
    made.ok()?;
    fixture.ur.urDeviceRelease(device).ok()
}

/// The device's and the host's timestamps advance, and the host's count nanoseconds.
fn timestamps(fixture: &Fixture) -> Done {
    let (mut device, mut host) = (0, 0);
    fixture
        .ur
        .urDeviceGetGlobalTimestamps(fixture.device, &mut device, &mut host)
        .ok()?;
    let (mut later_device, mut later_host) = (0, 0);
    std::thread::sleep(std::time::Duration::from_millis(2));
    fixture
        .ur
        .urDeviceGetGlobalTimestamps(fixture.device, &mut later_device, null_mut())
        .ok()?;
    fixture
        .ur
        .urDeviceGetGlobalTimestamps(fixture.device, null_mut(), &mut later_host)
        .ok()?;
    check!(
        later_device > device,
        "the device's clock went from {device} to {later_device}"
    );
    check!(
        later_host > host,
        "the host's clock went from {host} to {later_host}"
    );
    check!(
        later_host - host < 60_000_000_000,
        "the host's clock does not count nanoseconds"
    );
    Ok(())
}

/// An unknown property is refused with `INVALID_ENUMERATION`.
fn unknown_property(fixture: &Fixture) -> Done {
    let mut size = 0;
    let status = fixture.ur.urDeviceGetInfo(
        fixture.device,
        ur_device_info_t(0x7fff_0000),
        0,
        null_mut(),
        &mut size,
    );
    status.fails(UR_RESULT_ERROR_INVALID_ENUMERATION)
}

//! Devices: listing, partitions, every property, and properties that must agree with each other.

use crate::fixture::{Fixture, devices};
use crate::generated::info::DEVICE_INFO;
use crate::objects::{Context, info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_eq};
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let mut tests = crate::tests!["device";
        get_lists_all, get_by_type, get_sizes, retain_and_release, belongs_to_its_platform, memory_is_plausible,
        work_sizes_are_plausible, queue_flags, select_binary, select_binary_without_match, native_handle, timestamps,
        partition_equally, partition_by_counts, partition_refused, sub_device_works, unknown_property,
    ];
    for property in DEVICE_INFO {
        let name = property.name.trim_start_matches("UR_DEVICE_INFO_").to_lowercase();
        tests.push(Test::new("device_info", name, move |fixture| {
            let ask = |size, value, ret| {
                fixture.ur.urDeviceGetInfo(fixture.device, ur_device_info_t(property.value), size, value, ret)
            };
            let mut size = 0;
            let status = ask(0, null_mut(), &mut size);
            if property.optional && status.code == UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION {
                return Ok(());
            }
            info::protocol(property, ask)
        }));
    }
    tests
}

fn get_lists_all(fixture: &Fixture) -> Done {
    let all = devices(fixture.ur, fixture.platform, UR_DEVICE_TYPE_ALL)?;
    check!(all.contains(&fixture.device), "the device under test is not listed");
    let default = devices(fixture.ur, fixture.platform, UR_DEVICE_TYPE_DEFAULT)?;
    check!(default.iter().all(|device| all.contains(device)), "a default device is not among all devices");
    Ok(())
}

fn get_by_type(fixture: &Fixture) -> Done {
    let all = devices(fixture.ur, fixture.platform, UR_DEVICE_TYPE_ALL)?;
    for ty in [UR_DEVICE_TYPE_GPU, UR_DEVICE_TYPE_CPU, UR_DEVICE_TYPE_FPGA, UR_DEVICE_TYPE_MCA, UR_DEVICE_TYPE_VPU] {
        let of_type = devices(fixture.ur, fixture.platform, ty)?;
        for device in &all {
            let found: ur_device_type_t = info::value(|size, value, ret| {
                fixture.ur.urDeviceGetInfo(*device, UR_DEVICE_INFO_TYPE, size, value, ret)
            })?;
            check_eq!(of_type.contains(device), found == ty, "whether a device of {found:?} is listed as {ty:?}");
        }
    }
    Ok(())
}

fn get_sizes(fixture: &Fixture) -> Done {
    let ty = UR_DEVICE_TYPE_ALL;
    let mut device = null_mut();
    let mut count = 0;
    fixture.ur.urDeviceGet(fixture.platform, ty, 0, &mut device, &mut count).fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    fixture.ur.urDeviceGet(fixture.platform, ty, 1, null_mut(), &mut count).fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    let marker = std::ptr::dangling_mut();
    let total = devices(fixture.ur, fixture.platform, ty)?.len();
    let mut list = vec![marker; total + 1];
    fixture.ur.urDeviceGet(fixture.platform, ty, total as u32 + 1, list.as_mut_ptr(), &mut count).ok()?;
    check_eq!(count as usize, total, "number of devices");
    check_eq!(list[total], marker, "entry beyond the last device");
    Ok(())
}

fn retain_and_release(fixture: &Fixture) -> Done {
    fixture.ur.urDeviceRetain(fixture.device).ok()?;
    fixture.ur.urDeviceRelease(fixture.device).ok()?;
    let count: u32 = fixture.device_info(UR_DEVICE_INFO_REFERENCE_COUNT)?;
    check!(count > 0, "a device in use has no references");
    Ok(())
}

fn belongs_to_its_platform(fixture: &Fixture) -> Done {
    let platform: ur_platform_handle_t = fixture.device_info(UR_DEVICE_INFO_PLATFORM)?;
    check_eq!(platform, fixture.platform, "platform of the device");
    let parent: ur_device_handle_t = fixture.device_info(UR_DEVICE_INFO_PARENT_DEVICE)?;
    check!(parent.is_null(), "a root device has a parent");
    Ok(())
}

fn memory_is_plausible(fixture: &Fixture) -> Done {
    let total: u64 = fixture.device_info(UR_DEVICE_INFO_GLOBAL_MEM_SIZE)?;
    let largest: u64 = fixture.device_info(UR_DEVICE_INFO_MAX_MEM_ALLOC_SIZE)?;
    let local: u64 = fixture.device_info(UR_DEVICE_INFO_LOCAL_MEM_SIZE)?;
    check!(total > 1 << 20, "global memory of {total} bytes");
    check!(largest > 0 && largest <= total, "allocations of up to {largest} bytes in {total}");
    check!(local < total, "local memory of {local} bytes in {total}");
    Ok(())
}

fn work_sizes_are_plausible(fixture: &Fixture) -> Done {
    let dimensions: u32 = fixture.device_info(UR_DEVICE_INFO_MAX_WORK_ITEM_DIMENSIONS)?;
    let sizes = info::list::<usize>(|size, value, ret| {
        fixture.ur.urDeviceGetInfo(fixture.device, UR_DEVICE_INFO_MAX_WORK_ITEM_SIZES, size, value, ret)
    })?;
    let group: usize = fixture.device_info(UR_DEVICE_INFO_MAX_WORK_GROUP_SIZE)?;
    let units: u32 = fixture.device_info(UR_DEVICE_INFO_MAX_COMPUTE_UNITS)?;
    check!(dimensions >= 3, "{dimensions} dimensions");
    check_eq!(sizes.len(), dimensions as usize, "number of work-item sizes");
    check!(sizes.iter().all(|size| *size > 0), "work-item sizes {sizes:?}");
    check!(group > 0 && units > 0, "work-groups of {group}, {units} compute units");
    Ok(())
}

fn queue_flags(fixture: &Fixture) -> Done {
    let flags: ur_queue_flags_t = fixture.device_info(UR_DEVICE_INFO_QUEUE_ON_HOST_PROPERTIES)?;
    let context = Context::new(fixture)?;
    for (bit, name) in [
        (UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE, "out-of-order"),
        (UR_QUEUE_FLAG_PROFILING_ENABLE, "profiling"),
    ] {
        let made = crate::objects::Queue::new(&context, fixture.device, bit).is_ok();
        check!(made || !flags.contains(bit), "the device offers {name} queues, but makes none");
    }
    Ok(())
}

fn target(fixture: &Fixture) -> Result<&'static std::ffi::CStr, Stop> {
    match fixture.backend {
        UR_BACKEND_NATIVE_CPU => Ok(UR_DEVICE_BINARY_TARGET_NATIVE_CPU),
        UR_BACKEND_OPENCL | UR_BACKEND_LEVEL_ZERO => Ok(UR_DEVICE_BINARY_TARGET_SPIRV64),
        UR_BACKEND_CUDA => Ok(UR_DEVICE_BINARY_TARGET_NVPTX64),
        UR_BACKEND_HIP => Ok(UR_DEVICE_BINARY_TARGET_AMDGCN),
        other => Err(Stop::skipped(format!("no binary target known for {other:?}"))),
    }
}

fn binary(spec: &'static std::ffi::CStr) -> ur_device_binary_t {
    ur_device_binary_t { pDeviceTargetSpec: spec.as_ptr(), ..Default::default() }
}

fn select_binary(fixture: &Fixture) -> Done {
    let binaries = [binary(UR_DEVICE_BINARY_TARGET_UNKNOWN), binary(target(fixture)?)];
    let mut chosen = u32::MAX;
    fixture.ur.urDeviceSelectBinary(fixture.device, binaries.as_ptr(), 2, &mut chosen).ok()?;
    check_eq!(chosen, 1, "chosen binary");
    fixture.ur.urDeviceSelectBinary(fixture.device, binaries.as_ptr(), 0, &mut chosen).fails(UR_RESULT_ERROR_INVALID_SIZE)
}

fn select_binary_without_match(fixture: &Fixture) -> Done {
    let binaries = [binary(UR_DEVICE_BINARY_TARGET_UNKNOWN)];
    let mut chosen = u32::MAX;
    fixture.ur.urDeviceSelectBinary(fixture.device, binaries.as_ptr(), 1, &mut chosen).fails(UR_RESULT_ERROR_INVALID_BINARY)
}

fn native_handle(fixture: &Fixture) -> Done {
    let mut native = 0;
    let status = fixture.ur.urDeviceGetNativeHandle(fixture.device, &mut native);
    if status.is_unsupported() {
        return Ok(());
    }
    status.ok()?;
    let mut device = null_mut();
    let made = fixture.ur.urDeviceCreateWithNativeHandle(native, fixture.adapter, null(), &mut device);
    if made.is_unsupported() {
        return Ok(());
    }
    made.ok()?;
    fixture.ur.urDeviceRelease(device).ok()
}

fn timestamps(fixture: &Fixture) -> Done {
    let (mut device, mut host) = (0, 0);
    fixture.ur.urDeviceGetGlobalTimestamps(fixture.device, &mut device, &mut host).ok()?;
    let (mut later_device, mut later_host) = (0, 0);
    std::thread::sleep(std::time::Duration::from_millis(2));
    fixture.ur.urDeviceGetGlobalTimestamps(fixture.device, &mut later_device, null_mut()).ok()?;
    fixture.ur.urDeviceGetGlobalTimestamps(fixture.device, null_mut(), &mut later_host).ok()?;
    check!(later_device > device, "the device's clock went from {device} to {later_device}");
    check!(later_host > host, "the host's clock went from {host} to {later_host}");
    check!(later_host - host < 60_000_000_000, "the host's clock does not count nanoseconds");
    Ok(())
}

fn ways(fixture: &Fixture) -> Result<Vec<ur_device_partition_t>, Stop> {
    info::list(|size, value, ret| {
        fixture.ur.urDeviceGetInfo(fixture.device, UR_DEVICE_INFO_SUPPORTED_PARTITIONS, size, value, ret)
    })
}

fn property(ty: ur_device_partition_t, number: u32) -> ur_device_partition_property_t {
    let value = ur_device_partition_value_t { count: number };
    ur_device_partition_property_t { r#type: ty, value }
}

fn partition(fixture: &Fixture, list: &[ur_device_partition_property_t]) -> Result<Vec<ur_device_handle_t>, Stop> {
    let properties =
        ur_device_partition_properties_t { pProperties: list.as_ptr(), PropCount: list.len(), ..Default::default() };
    let mut count = 0;
    fixture.ur.urDevicePartition(fixture.device, &properties, 0, null_mut(), &mut count).ok()?;
    let mut parts = vec![null_mut(); count as usize];
    fixture.ur.urDevicePartition(fixture.device, &properties, count, parts.as_mut_ptr(), null_mut()).ok()?;
    Ok(parts)
}

fn units(fixture: &Fixture, device: ur_device_handle_t) -> Result<u32, Stop> {
    info::value(|size, value, ret| {
        fixture.ur.urDeviceGetInfo(device, UR_DEVICE_INFO_MAX_COMPUTE_UNITS, size, value, ret)
    })
}

fn need_partition(fixture: &Fixture, way: ur_device_partition_t) -> Done {
    match ways(fixture)?.contains(&way) {
        true => Ok(()),
        false => Err(Stop::Unsupported { what: format!("{way:?} is not among the partitions offered"), documented: true }),
    }
}

fn partition_equally(fixture: &Fixture) -> Done {
    need_partition(fixture, UR_DEVICE_PARTITION_EQUALLY)?;
    let whole = units(fixture, fixture.device)?;
    let parts = partition(fixture, &[property(UR_DEVICE_PARTITION_EQUALLY, 1)])?;
    check_eq!(parts.len() as u32, whole, "number of sub-devices with one compute unit");
    for part in parts {
        check_eq!(units(fixture, part)?, 1, "compute units of a sub-device");
        let parent: ur_device_handle_t = info::value(|size, value, ret| {
            fixture.ur.urDeviceGetInfo(part, UR_DEVICE_INFO_PARENT_DEVICE, size, value, ret)
        })?;
        check_eq!(parent, fixture.device, "parent of a sub-device");
        fixture.ur.urDeviceRelease(part).ok()?;
    }
    Ok(())
}

fn partition_by_counts(fixture: &Fixture) -> Done {
    need_partition(fixture, UR_DEVICE_PARTITION_BY_COUNTS)?;
    let whole = units(fixture, fixture.device)?;
    if whole < 2 {
        return Err(Stop::skipped("one compute unit cannot be split"));
    }
    let counts = [whole - 1, 1];
    let list = counts.map(|count| property(UR_DEVICE_PARTITION_BY_COUNTS, count));
    let parts = partition(fixture, &list)?;
    check_eq!(parts.len(), counts.len(), "number of sub-devices");
    for (part, count) in parts.into_iter().zip(counts) {
        check_eq!(units(fixture, part)?, count, "compute units of a sub-device");
        let way = info::list::<u64>(|size, value, ret| {
            fixture.ur.urDeviceGetInfo(part, UR_DEVICE_INFO_PARTITION_TYPE, size, value, ret)
        })?;
        check!(!way.is_empty(), "a sub-device does not know how it was split off");
        fixture.ur.urDeviceRelease(part).ok()?;
    }
    Ok(())
}

fn partition_refused(fixture: &Fixture) -> Done {
    let mut count = 0;
    let refuse = |list: &[ur_device_partition_property_t], count: &mut u32| {
        let properties =
            ur_device_partition_properties_t { pProperties: list.as_ptr(), PropCount: list.len(), ..Default::default() };
        fixture.ur.urDevicePartition(fixture.device, &properties, 0, null_mut(), count)
    };
    let whole = units(fixture, fixture.device)?;
    for way in [UR_DEVICE_PARTITION_EQUALLY, UR_DEVICE_PARTITION_BY_COUNTS] {
        if ways(fixture)?.contains(&way) {
            refuse(&[property(way, whole + 1)], &mut count).fails_with(&[
                UR_RESULT_ERROR_INVALID_DEVICE_PARTITION_COUNT,
                UR_RESULT_ERROR_DEVICE_PARTITION_FAILED,
                UR_RESULT_ERROR_INVALID_VALUE,
            ])?;
        }
    }
    let empty = ur_device_partition_properties_t::default();
    let none = fixture.ur.urDevicePartition(fixture.device, &empty, 0, null_mut(), &mut count);
    none.fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)
}

fn sub_device_works(fixture: &Fixture) -> Done {
    need_partition(fixture, UR_DEVICE_PARTITION_EQUALLY)?;
    let parts = partition(fixture, &[property(UR_DEVICE_PARTITION_EQUALLY, 1)])?;
    let part = parts[0];
    let mut raw = null_mut();
    fixture.ur.urContextCreate(1, &part, null(), &mut raw).ok()?;
    let context = Context::adopt(fixture.ur, raw);
    let queue = crate::objects::Queue::new(&context, part, ur_queue_flags_t(0))?;
    let memory = crate::objects::Usm::new(&context, part, crate::objects::Kind::Device, 4096, 0, null_mut())?;
    queue.fill(memory.ptr, 0x11_u8, 4096, &[])?;
    check!(queue.read::<u8>(memory.ptr, 4096, &[])?.iter().all(|byte| *byte == 0x11), "memory of a sub-device");
    for part in parts {
        fixture.ur.urDeviceRelease(part).ok()?;
    }
    // The context keeps the sub-device alive.
    queue.fill(memory.ptr, 0x22_u8, 4096, &[])?;
    queue.finish()
}

fn unknown_property(fixture: &Fixture) -> Done {
    let mut size = 0;
    let status = fixture.ur.urDeviceGetInfo(fixture.device, ur_device_info_t(0x7fff_0000), 0, null_mut(), &mut size);
    status.fails(UR_RESULT_ERROR_INVALID_ENUMERATION)
}

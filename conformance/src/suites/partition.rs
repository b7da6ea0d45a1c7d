//! Devices split into sub-devices.

use crate::fixture::Fixture;
use crate::kernels::IOTA;
use crate::objects::{Arg, Context, Program, info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_all, check_eq, check_items};
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["device"; partition_equally, partition_by_counts, partition_by_domain, partition_refused, sub_device_works]
}

fn ways(fixture: &Fixture) -> Result<Vec<ur_device_partition_t>, Stop> {
    info::list(|size, value, ret| {
        fixture.ur.urDeviceGetInfo(
            fixture.device,
            UR_DEVICE_INFO_SUPPORTED_PARTITIONS,
            size,
            value,
            ret,
        )
    })
}

fn property(ty: ur_device_partition_t, number: u32) -> ur_device_partition_property_t {
    let value = ur_device_partition_value_t { count: number };
    ur_device_partition_property_t { r#type: ty, value }
}

fn partition(
    fixture: &Fixture,
    list: &[ur_device_partition_property_t],
) -> Result<Vec<ur_device_handle_t>, Stop> {
    let properties = ur_device_partition_properties_t {
        pProperties: list.as_ptr(),
        PropCount: list.len(),
        ..Default::default()
    };
    let mut count = 0;
    fixture
        .ur
        .urDevicePartition(fixture.device, &properties, 0, null_mut(), &mut count)
        .ok()?;
    let mut parts = vec![null_mut(); count as usize];
    fixture
        .ur
        .urDevicePartition(
            fixture.device,
            &properties,
            count,
            parts.as_mut_ptr(),
            null_mut(),
        )
        .ok()?;
    Ok(parts)
}

fn units(fixture: &Fixture, device: ur_device_handle_t) -> Result<u32, Stop> {
    info::value(|size, value, ret| {
        fixture
            .ur
            .urDeviceGetInfo(device, UR_DEVICE_INFO_MAX_COMPUTE_UNITS, size, value, ret)
    })
}

fn need_partition(fixture: &Fixture, way: ur_device_partition_t) -> Done {
    match ways(fixture)?.contains(&way) {
        true => Ok(()),
        false => Err(Stop::Unsupported {
            what: format!("{way:?} is not among the partitions offered"),
            documented: true,
        }),
    }
}

/// Sub-devices of one compute unit each, with one reference to each.
///
/// Stops the test if the device cannot be partitioned.
pub fn in_single_units(fixture: &Fixture) -> Result<Vec<ur_device_handle_t>, Stop> {
    need_partition(fixture, UR_DEVICE_PARTITION_EQUALLY)?;
    partition(fixture, &[property(UR_DEVICE_PARTITION_EQUALLY, 1)])
}

/// A partition into single compute units gives one sub-device for each, with its parent.
fn partition_equally(fixture: &Fixture) -> Done {
    need_partition(fixture, UR_DEVICE_PARTITION_EQUALLY)?;
    let whole = units(fixture, fixture.device)?;
    let parts = partition(fixture, &[property(UR_DEVICE_PARTITION_EQUALLY, 1)])?;
    check_eq!(
        parts.len() as u32,
        whole,
        "number of sub-devices with one compute unit"
    );
    for part in parts {
        check_eq!(units(fixture, part)?, 1, "compute units of a sub-device");
        let parent: ur_device_handle_t = info::value(|size, value, ret| {
            fixture
                .ur
                .urDeviceGetInfo(part, UR_DEVICE_INFO_PARENT_DEVICE, size, value, ret)
        })?;
        check_eq!(parent, fixture.device, "parent of a sub-device");
        fixture.ur.urDeviceRelease(part).ok()?;
    }
    Ok(())
}

/// A partition by counts gives sub-devices with those counts.
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
        check_eq!(
            units(fixture, part)?,
            count,
            "compute units of a sub-device"
        );
        let way = info::list::<u64>(|size, value, ret| {
            fixture
                .ur
                .urDeviceGetInfo(part, UR_DEVICE_INFO_PARTITION_TYPE, size, value, ret)
        })?;
        check!(
            !way.is_empty(),
            "a sub-device does not report its partition type"
        );
        fixture.ur.urDeviceRelease(part).ok()?;
    }
    Ok(())
}

fn by_domain(domain: ur_device_affinity_domain_flags_t) -> ur_device_partition_property_t {
    let value = ur_device_partition_value_t {
        affinity_domain: domain,
    };
    let r#type = UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN;
    ur_device_partition_property_t { r#type, value }
}

/// A partition by a domain that the device has gives sub-devices with its parent, which have no parts themselves.
fn partition_by_domain(fixture: &Fixture) -> Done {
    need_partition(fixture, UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN)?;
    let ur = fixture.ur;
    let most: u32 = info::value(|size, value, ret| {
        let what = UR_DEVICE_INFO_PARTITION_MAX_SUB_DEVICES;
        ur.urDeviceGetInfo(fixture.device, what, size, value, ret)
    })?;
    let domains: ur_device_affinity_domain_flags_t = info::value(|size, value, ret| {
        let what = UR_DEVICE_INFO_PARTITION_AFFINITY_DOMAIN;
        ur.urDeviceGetInfo(fixture.device, what, size, value, ret)
    })?;
    let next = UR_DEVICE_AFFINITY_DOMAIN_FLAG_NEXT_PARTITIONABLE;
    for domain in [UR_DEVICE_AFFINITY_DOMAIN_FLAG_NUMA, next] {
        if !domains.contains(domain) {
            continue;
        }
        let parts = partition(fixture, &[by_domain(domain)])?;
        check_eq!(parts.len() as u32, most, "number of sub-devices");
        let whole = units(fixture, fixture.device)?;
        let mut all = 0;
        for part in parts {
            all += units(fixture, part)?;
            let parent: ur_device_handle_t = info::value(|size, value, ret| {
                ur.urDeviceGetInfo(part, UR_DEVICE_INFO_PARENT_DEVICE, size, value, ret)
            })?;
            check_eq!(parent, fixture.device, "parent of a sub-device");
            let way = info::list::<ur_device_partition_property_t>(|size, value, ret| {
                ur.urDeviceGetInfo(part, UR_DEVICE_INFO_PARTITION_TYPE, size, value, ret)
            })?;
            let kind = way.first().map(|way| way.r#type);
            let expected = UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN;
            check_eq!(kind, Some(expected), "partition type of a sub-device");
            ur.urDeviceRelease(part).ok()?;
        }
        check_eq!(all, whole, "compute units of all sub-devices");
    }
    Ok(())
}

/// A partition beyond the device's compute units or without properties is refused.
fn partition_refused(fixture: &Fixture) -> Done {
    let mut count = 0;
    let refuse = |list: &[ur_device_partition_property_t], count: &mut u32| {
        let properties = ur_device_partition_properties_t {
            pProperties: list.as_ptr(),
            PropCount: list.len(),
            ..Default::default()
        };
        fixture
            .ur
            .urDevicePartition(fixture.device, &properties, 0, null_mut(), count)
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
    let none = fixture
        .ur
        .urDevicePartition(fixture.device, &empty, 0, null_mut(), &mut count);
    none.fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)
}

/// A partition that the device offers.
fn any_partition(fixture: &Fixture) -> Result<Vec<ur_device_handle_t>, Stop> {
    let by_domain = by_domain(UR_DEVICE_AFFINITY_DOMAIN_FLAG_NEXT_PARTITIONABLE);
    match ways(fixture)?.contains(&UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN) {
        true => partition(fixture, &[by_domain]),
        false => in_single_units(fixture),
    }
}

/// A sub-device has a context, a queue, memory and kernels that keep it alive. The whole device and its parts share a
/// context.
fn sub_device_works(fixture: &Fixture) -> Done {
    let parts = any_partition(fixture)?;
    let part = parts[0];
    let mut raw = null_mut();
    fixture
        .ur
        .urContextCreate(1, &part, null(), &mut raw)
        .ok()?;
    let context = Context::adopt(fixture.ur, raw);
    let queue = crate::objects::Queue::new(&context, part, ur_queue_flags_t(0))?;
    let memory = crate::objects::Usm::new(
        &context,
        part,
        crate::objects::Kind::Device,
        4096,
        0,
        null_mut(),
    )?;
    queue.fill(memory.ptr, 0x11_u8, 4096, &[])?;
    check_all!(
        queue.read::<u8>(memory.ptr, 4096, &[])?,
        0x11,
        "bytes of a sub-device's memory"
    );
    let mut all = parts.clone();
    all.push(fixture.device);
    let mut raw = null_mut();
    let count = all.len() as u32;
    let ur = fixture.ur;
    ur.urContextCreate(count, all.as_ptr(), null(), &mut raw)
        .ok()?;
    let shared = Context::adopt(ur, raw);
    let program = Program::on(fixture, &shared, part)?;
    let iota = program.kernel(IOTA)?;
    let numbers = shared.usm(fixture, crate::objects::Kind::Host, 400)?;
    for (device, base) in all.into_iter().zip(1_u32..) {
        let queue = crate::objects::Queue::new(&shared, device, ur_queue_flags_t(0))?;
        queue.fill(numbers.ptr, 0_u8, 400, &[])?;
        let args = [Arg::Pointer(numbers.ptr), Arg::of(&base)];
        queue.launch(&iota, 100, &args, &[])?;
        queue.finish()?;
        let expected = base..base + 100;
        check_items!(numbers.host::<u32>().to_vec(), expected, "device {base}");
    }
    for part in parts {
        fixture.ur.urDeviceRelease(part).ok()?;
    }
    // The context keeps the sub-device alive.
    queue.fill(memory.ptr, 0x22_u8, 4096, &[])?;
    queue.finish()
}

//! The limits that a device reports, and their use.
//!
//! Each limit is used up, and each reported kind of memory is allocated. The suites `every_function` and
//! `unsupported` cover optional features.

use super::launch::{Setup, counts_up, launch};
use crate::fixture::Fixture;
use crate::kernels::{IDS, IOTA, Ids, THROUGH_LOCAL};
use crate::objects::{Arg, Context, Kind, Queue, info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_eq};
use std::ptr::null_mut;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["device_limits";
        max_work_group_size, max_work_item_sizes, local_memory_size, usm_kinds, sub_buffer_alignment,
        address_bits, max_sub_devices, timer_resolution,
    ]
}

/// A kernel's work-group limit is at most the device's, and a work-group of that size runs.
fn max_work_group_size(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let max: usize = fixture.device_info(UR_DEVICE_INFO_MAX_WORK_GROUP_SIZE)?;
    let kernel = program.kernel(IOTA)?;
    let group: usize = info::value(|size, value, ret| {
        fixture.ur.urKernelGetGroupInfo(
            kernel.raw,
            fixture.device,
            UR_KERNEL_GROUP_INFO_WORK_GROUP_SIZE,
            size,
            value,
            ret,
        )
    })?;
    check!(
        (1..=max).contains(&group),
        "the kernel allows work-groups of {group}, the device {max}"
    );
    let items = 2 * group;
    let memory = context.usm(fixture, Kind::Device, items * 4)?;
    let args = Arg::properties(&[Arg::Pointer(memory.ptr), Arg::of(&5_u32)]);
    let sizes = [None, Some([items, 1, 1]), Some([group, 1, 1])];
    launch(&queue, &kernel, 1, sizes, &args).ok()?;
    check!(
        counts_up(&queue.read(memory.ptr, items, &[])?, 5),
        "work-groups of {group} did not count up from 5"
    );
    Ok(())
}

/// A work-group may extend along any dimension up to `MAX_WORK_ITEM_SIZES`.
fn max_work_item_sizes(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let max: usize = fixture.device_info(UR_DEVICE_INFO_MAX_WORK_GROUP_SIZE)?;
    let (ur, device) = (fixture.ur, fixture.device);
    let sizes = info::list::<usize>(|size, value, ret| {
        ur.urDeviceGetInfo(device, UR_DEVICE_INFO_MAX_WORK_ITEM_SIZES, size, value, ret)
    })?;
    let kernel = program.kernel(IDS)?;
    for (dimension, size) in sizes.into_iter().enumerate().take(3) {
        let length = size.min(max).min(64);
        let mut whole = [1; 3];
        whole[dimension] = length;
        let memory = context.usm(fixture, Kind::Device, length * size_of::<Ids>())?;
        let args = Arg::properties(&[Arg::Pointer(memory.ptr)]);
        launch(&queue, &kernel, 3, [None, Some(whole), Some(whole)], &args).ok()?;
        let seen = queue.read::<Ids>(memory.ptr, length, &[])?;
        check!(
            (0..).zip(&seen).all(|(at, ids)| ids.local[dimension] == at),
            "wrong local ids in a work-group of {length} in dimension {dimension}"
        );
    }
    Ok(())
}

/// A kernel that uses no local memory itself can be given all of it as an argument.
fn local_memory_size(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let kernel = program.kernel(THROUGH_LOCAL)?;
    let whole: u64 = fixture.device_info(UR_DEVICE_INFO_LOCAL_MEM_SIZE)?;
    let own: u64 = info::value(|size, value, ret| {
        fixture.ur.urKernelGetGroupInfo(
            kernel.raw,
            fixture.device,
            UR_KERNEL_GROUP_INFO_LOCAL_MEM_SIZE,
            size,
            value,
            ret,
        )
    })?;
    check!(
        own <= whole,
        "a kernel uses {own} bytes of local memory, the device has {whole}"
    );
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let bytes = usize::try_from(whole - own).unwrap_or(usize::MAX);
    let args = Arg::properties(&[Arg::Pointer(memory.ptr), Arg::Local(bytes)]);
    let sizes = [None, Some([16, 1, 1]), Some([16, 1, 1])];
    launch(&queue, &kernel, 1, sizes, &args).ok()?;
    check!(
        counts_up(&queue.read(memory.ptr, 16, &[])?, 0),
        "wrong words through {bytes} bytes of local memory"
    );
    Ok(())
}

/// The kinds of USM that the device reports can be allocated and all others are refused.
fn usm_kinds(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let flags = |property| -> Result<u32, Stop> {
        fixture
            .device_info::<ur_device_usm_access_capability_flags_t>(property)
            .map(|flags| flags.0)
    };
    let shared = flags(UR_DEVICE_INFO_USM_SINGLE_SHARED_SUPPORT)?
        | flags(UR_DEVICE_INFO_USM_CROSS_SHARED_SUPPORT)?;
    for (kind, access) in [
        (Kind::Host, flags(UR_DEVICE_INFO_USM_HOST_SUPPORT)?),
        (Kind::Device, flags(UR_DEVICE_INFO_USM_DEVICE_SUPPORT)?),
        (Kind::Shared, shared),
    ] {
        let mut ptr = null_mut();
        let (desc, pool) = (std::ptr::null(), null_mut());
        let status = kind.allocate(&context, fixture.device, desc, pool, 64, &mut ptr);
        if access & UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ACCESS.0 == 0 {
            status.fails(UR_RESULT_ERROR_INVALID_OPERATION)?;
            continue;
        }
        status.ok()?;
        fixture.ur.urUSMFree(context.raw, ptr).ok()?;
    }
    Ok(())
}

/// A sub-buffer may begin at any multiple of the alignment that the device reports.
fn sub_buffer_alignment(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let bits: u32 = fixture.device_info(UR_DEVICE_INFO_MEM_BASE_ADDR_ALIGN)?;
    check!(
        bits.is_multiple_of(8) && (bits / 8).is_power_of_two(),
        "the alignment of {bits} bits is no power of two of bytes"
    );
    let align = bits as usize / 8;
    let buffer = context.buffer(4 * align)?;
    let region = ur_buffer_region_t {
        origin: 3 * align,
        size: align,
        ..Default::default()
    };
    let (flags, ty) = (UR_MEM_FLAG_READ_WRITE, UR_BUFFER_CREATE_TYPE_REGION);
    let mut part = null_mut();
    let ur = fixture.ur;
    ur.urMemBufferPartition(buffer.raw, flags, ty, &region, &mut part)
        .ok()?;
    ur.urMemRelease(part).ok()
}

/// Addresses of USM fit in the reported number of bits, and a device in use is available.
fn address_bits(fixture: &Fixture) -> Done {
    let bits: u32 = fixture.device_info(UR_DEVICE_INFO_ADDRESS_BITS)?;
    let context = Context::new(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    check!(
        bits == 64 || memory.ptr.addr() >> bits == 0,
        "{:?} does not fit in {bits} bits",
        memory.ptr
    );
    let available: ur_bool_t = fixture.device_info(UR_DEVICE_INFO_AVAILABLE)?;
    check_eq!(available, 1, "availability of a device in use");
    Ok(())
}

/// A partition makes no more sub-devices than the device reports.
fn max_sub_devices(fixture: &Fixture) -> Done {
    let max: u32 = fixture.device_info(UR_DEVICE_INFO_PARTITION_MAX_SUB_DEVICES)?;
    let parts = super::partition::in_single_units(fixture)?;
    let count = parts.len();
    for part in parts {
        fixture.ur.urDeviceRelease(part).ok()?;
    }
    check!(
        count <= max as usize,
        "{count} sub-devices were made, expected at most {max}"
    );
    Ok(())
}

/// A command's duration is a multiple of the timer resolution that the device reports.
fn timer_resolution(fixture: &Fixture) -> Done {
    let resolution: usize = fixture.device_info(UR_DEVICE_INFO_PROFILING_TIMER_RESOLUTION)?;
    check!(resolution > 0, "the timer resolution is 0");
    let context = Context::new(fixture)?;
    let queue = Queue::new(&context, fixture.device, UR_QUEUE_FLAG_PROFILING_ENABLE)?;
    let memory = context.usm(fixture, Kind::Device, 1 << 20)?;
    let event = queue.fill(memory.ptr, 1_u8, 1 << 20, &[])?;
    event.wait()?;
    let time = |name| -> Result<u64, Stop> {
        info::value(|size, value, ret| {
            fixture
                .ur
                .urEventGetProfilingInfo(event.raw, name, size, value, ret)
        })
    };
    let (start, end) = (
        time(UR_PROFILING_INFO_COMMAND_START)?,
        time(UR_PROFILING_INFO_COMMAND_END)?,
    );
    check!(
        start <= end && (end - start).is_multiple_of(resolution as u64),
        "a command ran from {start} to {end}, no multiple of {resolution}"
    );
    Ok(())
}

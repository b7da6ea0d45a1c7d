//! Optional properties of launches: accepted where the device reports the capability, and refused elsewhere.

use super::launch::{Setup, counts_up};
use crate::fixture::Fixture;
use crate::kernels::IOTA;
use crate::objects::{Arg, Kernel, Kind, Queue};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::status::Status;
use crate::{check, check_all};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["launch_properties"; no_properties, cooperative, opportunistic_serialization, undefined_flags, cluster, work_group_memory, unknown_structure_in_chain]
}

type Head = ur_kernel_launch_ext_properties_t;

fn with_flags(flags: ur_kernel_launch_flags_t) -> Head {
    Head {
        flags,
        ..Default::default()
    }
}

fn with_chain(chain: *mut c_void) -> Head {
    Head {
        pNext: chain,
        ..Default::default()
    }
}

/// A launch of work-groups with one work-item each.
fn launch(
    queue: &Queue,
    kernel: &Kernel,
    groups: usize,
    args: &[Arg],
    properties: &Head,
    event: *mut ur_event_handle_t,
) -> Status {
    let args = Arg::properties(args);
    let local = 1_usize;
    queue.ur.urEnqueueKernelLaunchWithArgsExp(
        queue.raw,
        kernel.raw,
        1,
        null(),
        &groups,
        &local,
        args.len() as u32,
        args.as_ptr(),
        properties,
        0,
        null(),
        event,
    )
}

fn able(fixture: &Fixture) -> Result<ur_kernel_launch_properties_flags_t, Stop> {
    fixture.device_info(UR_DEVICE_INFO_KERNEL_LAUNCH_CAPABILITIES)
}

/// Launches with properties that need a capability.
///
/// The launch must run with the capability and be refused without it. A cooperative launch may run without
/// it, since clients ask before they query.
fn needs(
    fixture: &Fixture,
    capability: ur_kernel_launch_properties_flags_t,
    properties: &Head,
) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let (base, nothing) = (5_u32, 0_u32);
    queue.fill(memory.ptr, nothing, 64, &[])?;
    let args = [Arg::Pointer(memory.ptr), Arg::of(&base)];
    let status = launch(&queue, &kernel, 16, &args, properties, null_mut());
    let optional = capability == UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE && status.is_ok();
    if optional || able(fixture)?.contains(capability) {
        status.ok()?;
        let right = counts_up(&queue.read(memory.ptr, 16, &[])?, base);
        check!(
            right,
            "words of a launch with properties do not count up from {base}"
        );
        return Ok(());
    }
    status.fails_with(&[
        UR_RESULT_ERROR_INVALID_OPERATION,
        UR_RESULT_ERROR_UNSUPPORTED_FEATURE,
    ])?;
    let untouched = queue.read::<u32>(memory.ptr, 16, &[])?;
    check_all!(untouched, 0, "words after a refused launch");
    Err(Stop::Unsupported {
        what: format!("{capability:?} is not among the device's, and {status}"),
        documented: true,
    })
}

/// A launch with an empty property structure runs.
fn no_properties(fixture: &Fixture) -> Done {
    let nothing = ur_kernel_launch_properties_flags_t(0);
    needs(fixture, nothing, &with_flags(ur_kernel_launch_flags_t(0)))
}

/// A cooperative launch runs, or is refused without that capability.
fn cooperative(fixture: &Fixture) -> Done {
    let capability = UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE;
    needs(
        fixture,
        capability,
        &with_flags(UR_KERNEL_LAUNCH_FLAG_COOPERATIVE),
    )
}

/// A launch with opportunistic queue serialization runs, or is refused without that capability.
fn opportunistic_serialization(fixture: &Fixture) -> Done {
    let capability = UR_KERNEL_LAUNCH_PROPERTIES_FLAG_OPPORTUNISTIC_QUEUE_SERIALIZE;
    let flag = UR_KERNEL_LAUNCH_FLAG_OPPORTUNISTIC_QUEUE_SERIALIZE;
    needs(fixture, capability, &with_flags(flag))
}

/// Undefined launch flags are refused with `INVALID_ENUMERATION`.
fn undefined_flags(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let args = [Arg::Pointer(memory.ptr), Arg::of(&1_u32)];
    let undefined = with_flags(ur_kernel_launch_flags_t(UR_KERNEL_LAUNCH_FLAGS_MASK));
    launch(&queue, &kernel, 16, &args, &undefined, null_mut())
        .fails(UR_RESULT_ERROR_INVALID_ENUMERATION)
}

/// A launch with a cluster size runs, or is refused without that capability.
fn cluster(fixture: &Fixture) -> Done {
    let mut cluster = ur_kernel_launch_cluster_property_t {
        clusterDim: [1, 1, 1],
        ..Default::default()
    };
    let capability = UR_KERNEL_LAUNCH_PROPERTIES_FLAG_CLUSTER_DIMENSION;
    needs(fixture, capability, &with_chain((&raw mut cluster).cast()))
}

/// A launch with work-group memory runs, or is refused without that capability.
fn work_group_memory(fixture: &Fixture) -> Done {
    let mut memory = ur_kernel_launch_workgroup_property_t {
        workgroup_mem_size: 256,
        ..Default::default()
    };
    let capability = UR_KERNEL_LAUNCH_PROPERTIES_FLAG_WORK_GROUP_MEMORY;
    needs(fixture, capability, &with_chain((&raw mut memory).cast()))
}

/// A launch with an unknown structure in its property chain is refused.
fn unknown_structure_in_chain(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let args = [Arg::Pointer(memory.ptr), Arg::of(&1_u32)];
    let mut stranger = ur_usm_host_desc_t::default();
    launch(
        &queue,
        &kernel,
        16,
        &args,
        &with_chain((&raw mut stranger).cast()),
        null_mut(),
    )
    .fails_with(&[
        UR_RESULT_ERROR_INVALID_OPERATION,
        UR_RESULT_ERROR_UNSUPPORTED_FEATURE,
    ])
}

//! Launches with wrong, missing and reordered arguments.

use super::launch::{Setup, counts_up, launch};
use crate::fixture::Fixture;
use crate::kernels::{IDS, IOTA};
use crate::objects::{Arg, Kind};
use crate::outcome::Done;
use crate::registry::Test;
use crate::{check, check_eq};
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["launch"; invalid_dimension, invalid_global_size, invalid_local_size, invalid_arguments, missing_arguments, command_type, arguments_in_any_order]
}

/// A launch that lacks an argument is refused, whatever an earlier launch was given.
fn missing_arguments(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    kernel.need_arguments()?;
    let memory = context.usm(fixture, Kind::Device, 400)?;
    let base = 3_u32;
    let args = Arg::properties(&[Arg::Pointer(memory.ptr), Arg::of(&base)]);
    let sizes = [None, Some([100, 1, 1]), None];
    launch(&queue, &kernel, 1, sizes, &args).ok()?;
    queue.finish()?;
    for some in [&args[..1], &args[1..], &[]] {
        launch(&queue, &kernel, 1, sizes, some).fails(UR_RESULT_ERROR_INVALID_KERNEL_ARGS)?;
    }
    launch(&queue, &kernel, 1, sizes, &args).ok()?;
    check!(
        counts_up(&queue.read(memory.ptr, 100, &[])?, 3),
        "words of a launch after refused ones do not count up from 3"
    );
    Ok(())
}

/// A launch may list its arguments in any order.
fn arguments_in_any_order(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    let memory = context.usm(fixture, Kind::Device, 400)?;
    let base = 3_u32;
    let mut args = Arg::properties(&[Arg::Pointer(memory.ptr), Arg::of(&base)]);
    args.reverse();
    launch(&queue, &kernel, 1, [None, Some([100, 1, 1]), None], &args).ok()?;
    check!(
        counts_up(&queue.read(memory.ptr, 100, &[])?, 3),
        "words of a launch with reversed arguments do not count up from 3"
    );
    Ok(())
}

/// A launch of 0 or more than 3 dimensions is refused.
fn invalid_dimension(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let kernel = program.kernel(IDS)?;
    let memory = context.usm(fixture, Kind::Device, 4096)?;
    let args = Arg::properties(&[Arg::Pointer(memory.ptr)]);
    for dimensions in [0, 4, u32::MAX] {
        let status = launch(
            &queue,
            &kernel,
            dimensions,
            [None, Some([1; 3]), None],
            &args,
        );
        status.fails(UR_RESULT_ERROR_INVALID_WORK_DIMENSION)?;
    }
    Ok(())
}

/// A launch with a global size of 0 in any dimension is refused.
fn invalid_global_size(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let kernel = program.kernel(IDS)?;
    let memory = context.usm(fixture, Kind::Device, 4096)?;
    let args = Arg::properties(&[Arg::Pointer(memory.ptr)]);
    for (dimensions, global) in [(1, [0, 1, 1]), (2, [1, 0, 1]), (3, [1, 1, 0])] {
        let status = launch(
            &queue,
            &kernel,
            dimensions,
            [None, Some(global), None],
            &args,
        );
        status.fails(UR_RESULT_ERROR_INVALID_WORK_DIMENSION)?;
    }
    queue.finish()
}

/// A work-group size of 0, too large, or no divisor of the global size is refused.
fn invalid_local_size(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let kernel = program.kernel(IDS)?;
    let memory = context.usm(fixture, Kind::Device, 64 << 10)?;
    let args = Arg::properties(&[Arg::Pointer(memory.ptr)]);
    let largest: usize = fixture.device_info(UR_DEVICE_INFO_MAX_WORK_GROUP_SIZE)?;
    for local in [[0, 1, 1], [3, 1, 1], [largest * 2, 1, 1]] {
        let global = [largest * 2, 1, 1];
        if global[0].is_multiple_of(3) && local[0] == 3 {
            continue;
        }
        let status = launch(&queue, &kernel, 1, [None, Some(global), Some(local)], &args);
        status.fails_with(&[
            UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE,
            UR_RESULT_ERROR_INVALID_WORK_ITEM_SIZE,
        ])?;
    }
    queue.finish()
}

/// A null argument list and an unknown argument type are refused.
fn invalid_arguments(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let kernel = program.kernel(IDS)?;
    let memory = context.usm(fixture, Kind::Device, 4096)?;
    let ur = fixture.ur;
    let global = 1;
    let call = |count, args| {
        let (q, k) = (queue.raw, kernel.raw);
        ur.urEnqueueKernelLaunchWithArgsExp(
            q,
            k,
            1,
            null(),
            &global,
            null(),
            count,
            args,
            null(),
            0,
            null(),
            null_mut(),
        )
    };
    call(1, null()).fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    let mut args = Arg::properties(&[Arg::Pointer(memory.ptr)]);
    args[0].r#type = ur_exp_kernel_arg_type_t(77);
    call(1, args.as_ptr()).fails(UR_RESULT_ERROR_INVALID_ENUMERATION)
}

/// The event of a launch reports its command type.
fn command_type(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let event = queue.launch(
        &kernel,
        16,
        &[Arg::Pointer(memory.ptr), Arg::of(&1_u32)],
        &[],
    )?;
    check_eq!(
        event.get::<ur_command_t>(UR_EVENT_INFO_COMMAND_TYPE)?,
        UR_COMMAND_KERNEL_LAUNCH,
        "command type"
    );
    event.wait()
}

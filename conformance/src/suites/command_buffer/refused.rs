//! Commands and submissions that a command buffer refuses.

use super::SUITE;
use crate::fixture::Fixture;
use crate::kernels::{ADD, IOTA};
use crate::objects::{Arg, CommandBuffer, Context, Kind, Program, Shape, With};
use crate::outcome::Done;
use crate::registry::Test;
use crate::{check, check_eq};
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests![SUITE;
        refused_sizes, refused_points, refused_kernel_alternatives, refused_handles, refused_queues,
    ]
}

/// A recorded command with a wrong size is refused and not recorded.
fn refused_sizes(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let mem = context.buffer(64)?;
    let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
    let ur = fixture.ur;
    let (points, events): (*const u32, *const ur_event_handle_t) = (null(), null());
    let mut point = 77;
    for (offset, size) in [(0, 65), (64, 1), (usize::MAX, 2)] {
        ur.urCommandBufferAppendMemBufferReadExp(
            buffer.raw,
            mem.raw,
            offset,
            size,
            memory.ptr,
            0,
            points,
            0,
            events,
            &mut point,
            null_mut(),
            null_mut(),
        )
        .fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    }
    ur.urCommandBufferAppendUSMMemcpyExp(
        buffer.raw,
        memory.ptr,
        memory.ptr,
        0,
        0,
        points,
        0,
        events,
        &mut point,
        null_mut(),
        null_mut(),
    )
    .fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    let byte = 1_u8;
    ur.urCommandBufferAppendMemBufferFillExp(
        buffer.raw,
        mem.raw,
        (&raw const byte).cast(),
        1,
        32,
        33,
        0,
        points,
        0,
        events,
        &mut point,
        null_mut(),
        null_mut(),
    )
    .fails_because(UR_RESULT_ERROR_INVALID_SIZE, "`offset + size`")?;
    check_eq!(point, 77, "a refused append wrote a sync point");
    // No command was appended.
    buffer.finalize()?;
    buffer.enqueue(&context.in_order(fixture)?, &[])?.wait()
}

/// An unknown sync point is refused.
fn refused_points(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let (one, two) = (
        CommandBuffer::new(fixture, &context, Shape::default())?,
        CommandBuffer::new(fixture, &context, Shape::default())?,
    );
    let other = one.fill(memory.ptr, 1_u8, 64, With::default())?.point;
    let own = two.fill(memory.ptr, 1_u8, 64, With::default())?.point;
    let pattern = 2_u8;
    for wrong in [other, own.wrapping_add(1), own.wrapping_sub(1)] {
        fixture
            .ur
            .urCommandBufferAppendUSMFillExp(
                two.raw,
                memory.ptr,
                (&raw const pattern).cast(),
                1,
                64,
                2,
                [own, wrong].as_ptr(),
                0,
                null(),
                null_mut(),
                null_mut(),
                null_mut(),
            )
            .fails_with(&[
                UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_SYNC_POINT_EXP,
                UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_SYNC_POINT_WAIT_LIST_EXP,
                // Some adapters have no more specific code.
                UR_RESULT_ERROR_INVALID_VALUE,
            ])?;
    }
    Ok(())
}

/// A list of alternative kernels that contains the kernel itself is refused.
fn refused_kernel_alternatives(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::new(fixture, &context)?;
    let (iota, add) = (program.kernel(IOTA)?, program.kernel(ADD)?);
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let shape = Shape {
        updatable: true,
        ..Shape::default()
    };
    let buffer = CommandBuffer::new(fixture, &context, shape)?;
    let args = Arg::properties(&[Arg::Pointer(memory.ptr), Arg::of(&1_u32)]);
    let (items, mut kernels) = (16, [add.raw, iota.raw]);
    fixture
        .ur
        .urCommandBufferAppendKernelLaunchWithArgsExp(
            buffer.raw,
            iota.raw,
            1,
            null(),
            &items,
            null(),
            2,
            args.as_ptr(),
            2,
            kernels.as_mut_ptr(),
            0,
            null(),
            0,
            null(),
            null_mut(),
            null_mut(),
            null_mut(),
        )
        .fails_because(UR_RESULT_ERROR_INVALID_VALUE, "contains `hKernel`")?;
    fixture
        .ur
        .urCommandBufferAppendKernelLaunchExp(
            buffer.raw,
            iota.raw,
            1,
            null(),
            &items,
            null(),
            2,
            kernels.as_mut_ptr(),
            0,
            null(),
            0,
            null(),
            null_mut(),
            null_mut(),
            null_mut(),
        )
        .fails_because(UR_RESULT_ERROR_INVALID_VALUE, "contains `hKernel`")
}

/// A command handle is refused in a command buffer that is not updatable.
fn refused_handles(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
    let (pattern, mut command) = (1_u8, null_mut());
    fixture
        .ur
        .urCommandBufferAppendUSMFillExp(
            buffer.raw,
            memory.ptr,
            (&raw const pattern).cast(),
            1,
            64,
            0,
            null(),
            0,
            null(),
            null_mut(),
            null_mut(),
            &mut command,
        )
        .fails(UR_RESULT_ERROR_INVALID_OPERATION)?;
    check!(command.is_null(), "a refused append wrote a handle");
    Ok(())
}

/// A submission to a queue of another context is refused.
fn refused_queues(fixture: &Fixture) -> Done {
    let (context, other) = (Context::new(fixture)?, Context::new(fixture)?);
    let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
    buffer.finalize()?;
    let foreign = other.in_order(fixture)?;
    fixture
        .ur
        .urEnqueueCommandBufferExp(foreign.raw, buffer.raw, 0, null(), null_mut())
        .fails_because(UR_RESULT_ERROR_INVALID_QUEUE, "of another context")
}

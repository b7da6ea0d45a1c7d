//! The states of command buffers, their info queries, and the objects that they keep alive.

use super::SUITE;
use crate::fixture::Fixture;
use crate::kernels::IOTA;
use crate::objects::{Arg, CommandBuffer, Context, Kind, Program, Shape, With, info};
use crate::outcome::Done;
use crate::registry::Test;
use crate::{check_eq, check_items};
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let mut tests = crate::tests![SUITE; reports_its_descriptor, counts_references, states, empty, keeps_its_objects];
    tests.extend(info::tests(
        SUITE,
        "info_",
        ur_exp_command_buffer_info_t::PROPERTIES,
        |fixture| CommandBuffer::new(fixture, &Context::new(fixture)?, Shape::default()),
        |fixture, buffer, what, size, value, ret| {
            let what = ur_exp_command_buffer_info_t(what);
            fixture
                .ur
                .urCommandBufferGetInfoExp(buffer.raw, what, size, value, ret)
        },
    ));
    tests
}

/// A command buffer reports the descriptor that it was made with.
fn reports_its_descriptor(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    for bits in 0..8 {
        let shape = Shape {
            updatable: bits & 1 != 0,
            in_order: bits & 2 != 0,
            profiled: bits & 4 != 0,
        };
        let buffer = CommandBuffer::new(fixture, &context, shape)?;
        let desc: ur_exp_command_buffer_desc_t =
            buffer.get(UR_EXP_COMMAND_BUFFER_INFO_DESCRIPTOR)?;
        check_eq!(desc.stype, UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_DESC, "tag");
        check_eq!(desc.isUpdatable != 0, shape.updatable, "isUpdatable");
        check_eq!(desc.isInOrder != 0, shape.in_order, "isInOrder");
        check_eq!(desc.enableProfiling != 0, shape.profiled, "enableProfiling");
    }
    Ok(())
}

/// A retain and a release of a command buffer change its reference count by one.
fn counts_references(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
    let count = || buffer.get::<u32>(UR_EXP_COMMAND_BUFFER_INFO_REFERENCE_COUNT);
    check_eq!(count()?, 1, "references of a new buffer");
    let second = buffer.share()?;
    check_eq!(count()?, 2, "references after a retain");
    drop(second);
    check_eq!(count()?, 1, "references after a release");
    Ok(())
}

/// A command buffer refuses commands once finalized, and submissions before that.
fn states(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let ur = fixture.ur;
    let enqueue = || ur.urEnqueueCommandBufferExp(queue.raw, buffer.raw, 0, null(), null_mut());
    enqueue().fails(UR_RESULT_ERROR_INVALID_OPERATION)?;
    buffer.fill(memory.ptr, 1_u8, 64, With::default())?;
    buffer.finalize()?;
    ur.urCommandBufferFinalizeExp(buffer.raw)
        .fails(UR_RESULT_ERROR_INVALID_OPERATION)?;
    let pattern = 2_u8;
    let mut point = 77;
    ur.urCommandBufferAppendUSMFillExp(
        buffer.raw,
        memory.ptr,
        (&raw const pattern).cast(),
        1,
        64,
        0,
        null(),
        0,
        null(),
        &mut point,
        null_mut(),
        null_mut(),
    )
    .fails(UR_RESULT_ERROR_INVALID_OPERATION)?;
    check_eq!(point, 77, "a refused append wrote a sync point");
    enqueue().ok()?;
    check_eq!(queue.read::<u8>(memory.ptr, 64, &[])?, [1; 64], "the fill");
    Ok(())
}

/// An empty command buffer can be submitted and acts as a marker.
fn empty(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    for queue in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
        let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
        buffer.finalize()?;
        for _ in 0..3 {
            let event = buffer.enqueue(&queue, &[])?;
            check_eq!(
                event.get::<ur_command_t>(UR_EVENT_INFO_COMMAND_TYPE)?,
                UR_COMMAND_ENQUEUE_COMMAND_BUFFER_EXP,
                "command type"
            );
            event.wait()?;
        }
    }
    Ok(())
}

/// A command buffer keeps the objects of its commands, and a submission keeps the buffer.
fn keeps_its_objects(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let program = Program::new(fixture, &context)?;
    let out = context.usm(fixture, Kind::Host, 400)?;
    let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
    {
        let kernel = program.kernel(IOTA)?;
        let mem = context.buffer(400)?;
        let args = [Arg::Buffer(&mem), Arg::of(&3_u32)];
        let made = buffer.launch(&kernel, 100, &args, With::default())?;
        buffer.append(With::after(&[made.point]), |s| {
            fixture.ur.urCommandBufferAppendMemBufferReadExp(
                buffer.raw, mem.raw, 0, 400, out.ptr, s.points.0, s.points.1, s.events.0,
                s.events.1, s.point, s.event, s.command,
            )
        })?;
    }
    drop(program);
    buffer.finalize()?;
    for _ in 0..10 {
        buffer.enqueue_only(&queue)?;
    }
    drop(buffer);
    queue.finish()?;
    check_items!(
        out.host::<u32>().iter().copied(),
        3..103,
        "words read by the submission"
    );
    Ok(())
}

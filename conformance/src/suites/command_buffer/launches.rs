//! Recorded launches.

use super::SUITE;
use crate::fixture::Fixture;
use crate::kernels::{ADD, IOTA, THROUGH_LOCAL};
use crate::objects::{Arg, CommandBuffer, Context, Kind, Program, Shape, With};
use crate::outcome::Done;
use crate::registry::Test;
use crate::{check, check_items};
use std::ptr::{null, null_mut};

pub fn all() -> Vec<Test> {
    crate::tests![SUITE; launches, local_memory, arguments_are_copied]
}

/// Recorded launches on USM and on buffers run at each submission.
fn launches(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let program = Program::new(fixture, &context)?;
    let (iota, add) = (program.kernel(IOTA)?, program.kernel(ADD)?);
    let memory = context.usm(fixture, Kind::Device, 4000)?;
    let mem = context.buffer(4000)?;
    let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
    for arg in [|_| None, Some] as [fn(_) -> Option<_>; 2] {
        let target = || arg(&mem).map_or(Arg::Pointer(memory.ptr), Arg::Buffer);
        let first = [target(), Arg::of(&7_u32)];
        let first = buffer.launch(&iota, 1000, &first, With::default())?;
        let second = [target(), Arg::of(&100_u32)];
        buffer.launch(&add, 1000, &second, With::after(&[first.point]))?;
    }
    buffer.finalize()?;
    for round in 0..3 {
        buffer.enqueue_only(&queue)?;
        let counts = |data: Vec<u32>| data.into_iter().eq(107..1107);
        check!(
            counts(queue.read(memory.ptr, 1000, &[])?),
            "words in USM are wrong in round {round}"
        );
        check!(
            counts(mem.read(&queue, 0, 1000)?),
            "words of a buffer are wrong in round {round}"
        );
    }
    Ok(())
}

/// A recorded launch has its local memory argument.
fn local_memory(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let program = Program::new(fixture, &context)?;
    let kernel = program.kernel(THROUGH_LOCAL)?;
    let memory = context.usm(fixture, Kind::Device, 64 * 4)?;
    let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
    let args = Arg::properties(&[Arg::Pointer(memory.ptr), Arg::Local(16 * 4)]);
    let (global, local) = (64, 16);
    buffer.append(With::default(), |s| {
        fixture.ur.urCommandBufferAppendKernelLaunchWithArgsExp(
            buffer.raw,
            kernel.raw,
            1,
            null(),
            &global,
            &local,
            2,
            args.as_ptr(),
            0,
            null_mut(),
            s.points.0,
            s.points.1,
            s.events.0,
            s.events.1,
            s.point,
            s.event,
            s.command,
        )
    })?;
    buffer.finalize()?;
    for _ in 0..2 {
        queue.fill(memory.ptr, 77_u32, 256, &[])?;
        buffer.enqueue_only(&queue)?;
        let data: Vec<u32> = queue.read(memory.ptr, 64, &[])?;
        check_items!(
            data.iter().copied(),
            (0..64).map(|at| at % 16),
            "local ids through local memory"
        );
    }
    Ok(())
}

/// A recorded launch keeps the argument values that it was recorded with.
fn arguments_are_copied(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let program = Program::new(fixture, &context)?;
    let kernel = program.kernel(IOTA)?;
    let memory = context.usm(fixture, Kind::Device, 400)?;
    let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
    let mut base = Box::new(11_u32);
    let args = [Arg::Pointer(memory.ptr), Arg::of(&*base)];
    buffer.launch(&kernel, 100, &args, With::default())?;
    buffer.finalize()?;
    *base = 0;
    drop(base);
    // A launch of the same kernel elsewhere does not change the recorded argument.
    queue.launch(
        &kernel,
        100,
        &[Arg::Pointer(memory.ptr), Arg::of(&5_u32)],
        &[],
    )?;
    buffer.enqueue_only(&queue)?;
    let data: Vec<u32> = queue.read(memory.ptr, 100, &[])?;
    check_items!(data, 11..111, "words written with the recorded argument");
    Ok(())
}

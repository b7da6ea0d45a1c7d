//! Command buffers: their life, what can be recorded, and what is refused.

use crate::fixture::Fixture;
use crate::generated::info::EXP_COMMAND_BUFFER_INFO;
use crate::kernels::{ADD, IOTA, THROUGH_LOCAL};
use crate::objects::{Appended, Arg, CommandBuffer, Context, Kind, Program, Shape, With, info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_eq};
use std::ptr::{null, null_mut};
use ur::abi::*;

const SUITE: &str = "command_buffer";

pub fn all() -> Vec<Test> {
    let mut tests = crate::tests![SUITE;
        descriptor, references, life, empty, fill_patterns, copies_between_kinds, host_memory,
        buffers, buffer_rects, hints, launches, local_memory, arguments_are_copied, uses_stay,
        refused_sizes, refused_points, refused_alternatives, refused_handles, refused_queues,
        native_commands,
    ];
    tests.extend(info::tests(
        SUITE,
        "info_",
        EXP_COMMAND_BUFFER_INFO,
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

fn descriptor(fixture: &Fixture) -> Done {
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

fn references(fixture: &Fixture) -> Done {
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

fn life(fixture: &Fixture) -> Done {
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

/// Without a command it is a marker.
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

fn fill_patterns(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    for size in [1, 2, 3, 4, 8, 16, 31, 64, 128, 300] {
        let pattern: Vec<u8> = (0..size).map(|at| (at * 3 + size) as u8).collect();
        let bytes = size * 61;
        let memory = context.usm(fixture, Kind::Device, bytes)?;
        let mem = context.buffer(bytes)?;
        let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
        let (ur, from) = (fixture.ur, pattern.as_ptr().cast());
        buffer.append(With::default(), |s| {
            ur.urCommandBufferAppendUSMFillExp(
                buffer.raw, memory.ptr, from, size, bytes, s.points.0, s.points.1, s.events.0,
                s.events.1, s.point, s.event, s.command,
            )
        })?;
        buffer.append(With::default(), |s| {
            ur.urCommandBufferAppendMemBufferFillExp(
                buffer.raw, mem.raw, from, size, 0, bytes, s.points.0, s.points.1, s.events.0,
                s.events.1, s.point, s.event, s.command,
            )
        })?;
        buffer.finalize()?;
        // The pattern belongs to the caller again.
        let kept = pattern.clone();
        drop(pattern);
        buffer.enqueue_only(&queue)?;
        let data = queue.read::<u8>(memory.ptr, bytes, &[])?;
        check!(
            data.chunks(size).all(|chunk| chunk == kept),
            "USM, {size} bytes"
        );
        let data = mem.read::<u8>(&queue, 0, bytes)?;
        check!(
            data.chunks(size).all(|chunk| chunk == kept),
            "a buffer, {size} bytes"
        );
    }
    Ok(())
}

fn copies_between_kinds(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    for (tag, (from, kind)) in Kind::ALL
        .iter()
        .flat_map(|from| Kind::ALL.map(|kind| (*from, kind)))
        .enumerate()
    {
        let src = context.usm(fixture, from, 5000)?;
        let dst = context.usm(fixture, kind, 5000)?;
        let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
        let filled = buffer.fill(src.ptr, tag as u8 + 1, 5000, With::default())?;
        let to = dst.ptr.wrapping_byte_add(3);
        buffer.copy(to, src.ptr, 4001, With::after(&[filled.point]))?;
        buffer.finalize()?;
        queue.fill(dst.ptr, 0_u8, 5000, &[])?;
        buffer.enqueue_only(&queue)?;
        let data = queue.read::<u8>(dst.ptr, 5000, &[])?;
        let right = data.iter().enumerate().all(|(at, byte)| {
            *byte
                == if (3..4004).contains(&at) {
                    tag as u8 + 1
                } else {
                    0
                }
        });
        check!(right, "a copy from {from} to {kind} memory");
    }
    Ok(())
}

/// Host memory is read and written at each execution, not when the command is appended.
fn host_memory(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 400)?;
    let (mut from, mut to) = (vec![0_u32; 100], vec![0_u32; 100]);
    let (src, dst) = (from.as_mut_ptr(), to.as_mut_ptr());
    let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
    let written = buffer.copy(memory.ptr, src.cast(), 400, With::default())?;
    buffer.copy(dst.cast(), memory.ptr, 400, With::after(&[written.point]))?;
    buffer.finalize()?;
    for round in 1..5_u32 {
        // SAFETY: no execution is under way; the vectors' own memory.
        unsafe { std::slice::from_raw_parts_mut(src, 100) }.fill(round);
        buffer.enqueue(&queue, &[])?.wait()?;
        // SAFETY: as above.
        let seen = unsafe { std::slice::from_raw_parts(dst, 100) };
        check!(seen.iter().all(|word| *word == round), "round {round}");
    }
    drop((from, to));
    Ok(())
}

fn buffers(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let (a, b) = (context.buffer(400)?, context.buffer(400)?);
    b.write(&queue, 0, &[0_u8; 400])?;
    let data: Vec<u32> = (0..50).collect();
    let mut out = vec![0_u32; 25];
    let (src, dst) = (data.as_ptr().cast(), out.as_mut_ptr());
    let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
    let ur = fixture.ur;
    let written = buffer.append(With::default(), |s| {
        ur.urCommandBufferAppendMemBufferWriteExp(
            buffer.raw, a.raw, 40, 200, src, s.points.0, s.points.1, s.events.0, s.events.1,
            s.point, s.event, s.command,
        )
    })?;
    let copied = buffer.append(With::after(&[written.point]), |s| {
        ur.urCommandBufferAppendMemBufferCopyExp(
            buffer.raw, a.raw, b.raw, 80, 8, 160, s.points.0, s.points.1, s.events.0, s.events.1,
            s.point, s.event, s.command,
        )
    })?;
    buffer.append(With::after(&[copied.point]), |s| {
        ur.urCommandBufferAppendMemBufferReadExp(
            buffer.raw,
            b.raw,
            8,
            100,
            dst.cast(),
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
    buffer.enqueue(&queue, &[])?.wait()?;
    check!(
        out.iter().copied().eq(10..35),
        "written, copied and read: {out:?}"
    );
    let copied: Vec<u32> = b.read(&queue, 0, 100)?;
    let want = |at: u32| if (2..42).contains(&at) { at + 8 } else { 0 };
    check!(copied.iter().copied().eq((0..100).map(want)), "the copy");
    Ok(())
}

fn buffer_rects(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let (a, b) = (context.buffer(256)?, context.buffer(256)?);
    a.write(&queue, 0, &[0_u8; 256])?;
    b.write(&queue, 0, &[0_u8; 256])?;
    let mut data: Vec<u8> = (0..=255).collect();
    let mut out = vec![0_u8; 256];
    let (src, dst) = (data.as_mut_ptr().cast(), out.as_mut_ptr().cast());
    let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
    let (ur, raw) = (fixture.ur, buffer.raw);
    let at = |x, y| ur_rect_offset_t { x, y, z: 0 };
    let box_ = ur_rect_region_t {
        width: 4,
        height: 3,
        depth: 1,
    };
    let written = buffer.append(With::default(), |s| {
        ur.urCommandBufferAppendMemBufferWriteRectExp(
            raw,
            a.raw,
            at(2, 1),
            at(1, 2),
            box_,
            16,
            0,
            16,
            0,
            src,
            s.points.0,
            s.points.1,
            s.events.0,
            s.events.1,
            s.point,
            s.event,
            s.command,
        )
    })?;
    let copied = buffer.append(With::after(&[written.point]), |s| {
        ur.urCommandBufferAppendMemBufferCopyRectExp(
            raw,
            a.raw,
            b.raw,
            at(2, 1),
            at(5, 4),
            box_,
            16,
            0,
            16,
            0,
            s.points.0,
            s.points.1,
            s.events.0,
            s.events.1,
            s.point,
            s.event,
            s.command,
        )
    })?;
    buffer.append(With::after(&[copied.point]), |s| {
        ur.urCommandBufferAppendMemBufferReadRectExp(
            raw,
            b.raw,
            at(5, 4),
            at(0, 0),
            box_,
            16,
            0,
            16,
            0,
            dst,
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
    buffer.enqueue(&queue, &[])?.wait()?;
    for y in 0..3 {
        let row: Vec<u8> = (0..4).map(|x| (2 + y) * 16 + 1 + x).collect();
        let own = usize::from(y) * 16;
        check_eq!(out[own..own + 4], row, "row {y}");
    }
    let touched = out.iter().filter(|byte| **byte != 0).count();
    check_eq!(touched, 12, "bytes written");
    drop(data);
    Ok(())
}

fn hints(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Shared, 4096)?;
    let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
    let ur = fixture.ur;
    let filled = buffer.fill(memory.ptr, 9_u8, 4096, With::default())?;
    let flags = ur_usm_migration_flags_t(0);
    let fetched = buffer.append(With::after(&[filled.point]), |s| {
        ur.urCommandBufferAppendUSMPrefetchExp(
            buffer.raw, memory.ptr, 4096, flags, s.points.0, s.points.1, s.events.0, s.events.1,
            s.point, s.event, s.command,
        )
    })?;
    buffer.append(With::after(&[fetched.point]), |s| {
        ur.urCommandBufferAppendUSMAdviseExp(
            buffer.raw,
            memory.ptr,
            4096,
            UR_USM_ADVICE_FLAG_DEFAULT,
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
    buffer.enqueue(&queue, &[])?.wait()?;
    check!(
        memory.host::<u8>().iter().all(|byte| *byte == 9),
        "the memory"
    );
    Ok(())
}

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
            "USM, round {round}"
        );
        check!(
            counts(mem.read(&queue, 0, 1000)?),
            "a buffer, round {round}"
        );
    }
    Ok(())
}

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
        check!(
            data.iter().copied().eq((0..64).map(|at| at % 16)),
            "{data:?}"
        );
    }
    Ok(())
}

/// A recorded launch has its arguments for good.
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
    // Nor does a launch of the same kernel elsewhere change it.
    queue.launch(
        &kernel,
        100,
        &[Arg::Pointer(memory.ptr), Arg::of(&5_u32)],
        &[],
    )?;
    buffer.enqueue_only(&queue)?;
    let data: Vec<u32> = queue.read(memory.ptr, 100, &[])?;
    check!(data.into_iter().eq(11..111), "the recorded argument");
    Ok(())
}

/// The buffer keeps the objects that its commands use, and an execution those of its buffer.
fn uses_stay(fixture: &Fixture) -> Done {
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
    check!(
        out.host::<u32>().iter().copied().eq(3..103),
        "what it wrote"
    );
    Ok(())
}

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
    // Nothing was appended.
    buffer.finalize()?;
    buffer.enqueue(&context.in_order(fixture)?, &[])?.wait()
}

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
                // Some adapters know no better word.
                UR_RESULT_ERROR_INVALID_VALUE,
            ])?;
    }
    Ok(())
}

fn refused_alternatives(fixture: &Fixture) -> Done {
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

/// Only commands of an updatable buffer have handles.
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

extern "C" fn count_call(data: *mut std::ffi::c_void) {
    // SAFETY: the test passes its counter, and waits for the call.
    unsafe { *data.cast::<u32>() += 1 };
}

/// A native command is recorded by a call back within the call, or not at all.
fn native_commands(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
    let mut calls = 0_u32;
    let mut point = 77;
    let status = fixture.ur.urCommandBufferAppendNativeCommandExp(
        buffer.raw,
        Some(count_call),
        (&raw mut calls).cast(),
        null_mut(),
        0,
        null(),
        &mut point,
    );
    if status.is_unsupported() {
        check_eq!((calls, point), (0, 77), "calls of a refused command");
        return Err(Stop::Unsupported {
            what: status.to_string(),
            documented: false,
        });
    }
    status.ok()?;
    check_eq!(calls, 1, "calls before the append returned");
    let Appended { point: behind, .. } = {
        let memory = context.usm(fixture, Kind::Device, 64)?;
        let made = buffer.fill(memory.ptr, 1_u8, 64, With::after(&[point]))?;
        buffer.finalize()?;
        buffer.enqueue(&context.in_order(fixture)?, &[])?.wait()?;
        made
    };
    check!(behind != point, "sync points are distinct");
    check_eq!(calls, 1, "calls at execution");
    Ok(())
}

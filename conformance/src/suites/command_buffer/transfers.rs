//! Recorded fills, copies and hints on USM, host memory and buffers.

use super::SUITE;
use crate::fixture::Fixture;
use crate::objects::{CommandBuffer, Context, Kind, Shape, With};
use crate::outcome::Done;
use crate::registry::Test;
use crate::{check, check_all, check_eq, check_items};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests![SUITE;
        fill_patterns, copies_between_kinds, host_memory, buffers, buffer_rects, hints,
    ]
}

/// Recorded fills of USM and buffers repeat patterns of 1 to 300 bytes.
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
        // The caller may change the pattern after the append.
        let saved = pattern.clone();
        drop(pattern);
        buffer.enqueue_only(&queue)?;
        let data = queue.read::<u8>(memory.ptr, bytes, &[])?;
        check!(
            data.chunks(size).all(|chunk| chunk == saved),
            "a pattern of {size} bytes was not repeated in USM"
        );
        let data = mem.read::<u8>(&queue, 0, bytes)?;
        check!(
            data.chunks(size).all(|chunk| chunk == saved),
            "a pattern of {size} bytes was not repeated in a buffer"
        );
    }
    Ok(())
}

/// Recorded copies move unaligned data between each pair of USM kinds.
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
        check!(right, "a copy from {from} to {kind} memory is wrong");
    }
    Ok(())
}

/// Recorded copies read and write host memory at each submission.
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
        // SAFETY: memory of the vectors, and no submission is pending.
        unsafe { std::slice::from_raw_parts_mut(src, 100) }.fill(round);
        buffer.enqueue(&queue, &[])?.wait()?;
        // SAFETY: memory of the vectors, and no submission is pending.
        let seen = unsafe { std::slice::from_raw_parts(dst, 100) };
        check_all!(seen, round, "round {round}");
    }
    drop((from, to));
    Ok(())
}

/// Recorded writes, copies and reads of buffers move the given ranges.
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
    check_items!(
        out.iter().copied(),
        10..35,
        "words written, copied and read"
    );
    let copied: Vec<u32> = b.read(&queue, 0, 100)?;
    let want = |at: u32| if (2..42).contains(&at) { at + 8 } else { 0 };
    check_items!(
        copied.iter().copied(),
        (0..100).map(want),
        "words of the copy"
    );
    Ok(())
}

/// Recorded rectangle writes, copies and reads place each row.
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

/// Recorded prefetches and advice leave the data unchanged.
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
    check_all!(
        memory.host::<u8>(),
        9,
        "bytes after a prefetch and an advice"
    );
    Ok(())
}

//! Buffers in the host's address space: mapped, or made over host memory.

use crate::fixture::Fixture;
use crate::objects::{Buffer, Context, Queue};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_all, check_eq};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["buffer"; map_to_read, map_to_write, map_invalidates, map_refused, uses_host_memory,
        sub_buffers_of_unaligned_host_memory]
}

/// A buffer with `USE_HOST_POINTER` maps to the host's memory and leaves its data there.
fn uses_host_memory(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let mut data = vec![3_u32; 1000];
    let properties = ur_buffer_properties_t {
        pHost: data.as_mut_ptr().cast(),
        ..Default::default()
    };
    let mut raw = null_mut();
    let flags = UR_MEM_FLAG_READ_WRITE | UR_MEM_FLAG_USE_HOST_POINTER;
    fixture
        .ur
        .urMemBufferCreate(context.raw, flags, 4000, &properties, &mut raw)
        .ok()?;
    let buffer = Buffer::adopt(fixture.ur, raw);
    check_all!(
        buffer.read::<u32>(&queue, 0, 1000)?,
        3,
        "data of the host memory"
    );
    buffer.write(&queue, 0, &[4_u32; 1000])?;
    let mapped = map(&queue, &buffer, UR_MAP_FLAG_READ, 0, 4000)?;
    check_eq!(
        mapped.addr(),
        data.as_ptr().addr(),
        "mapped address of used host memory"
    );
    unmap(&queue, &buffer, mapped)?;
    queue.finish()?;
    drop(buffer);
    check_all!(data, 4, "used host memory after the buffer's release");
    Ok(())
}

/// Host memory of any alignment serves a buffer whose sub-buffer takes every command.
fn sub_buffers_of_unaligned_host_memory(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let step = super::buffer::alignment(fixture)?.max(128);
    let ur = fixture.ur;
    for off in [0, 1, 4, 16, step / 2, step] {
        let mut data = vec![1_u8; 6 * step];
        // `off` bytes past the device's alignment.
        let skew = data.as_ptr().align_offset(step) + off;
        let host_at = data[skew..].as_mut_ptr();
        let properties = ur_buffer_properties_t {
            pHost: host_at.cast(),
            ..Default::default()
        };
        let (mut raw, size) = (null_mut(), 4 * step);
        let flags = UR_MEM_FLAG_READ_WRITE | UR_MEM_FLAG_USE_HOST_POINTER;
        ur.urMemBufferCreate(context.raw, flags, size, &properties, &mut raw)
            .ok()?;
        let buffer = Buffer::adopt(ur, raw);
        let part = buffer.part(step, 2 * step)?;
        let none = (0, null(), null_mut());
        for (pattern, at, bytes) in [
            (vec![2_u8], 0, 12),
            (vec![2; 4], 8, 12),
            (vec![2; 8], 16, 8),
        ] {
            let (len, raw) = (pattern.len(), part.raw);
            ur.urEnqueueMemBufferFill(
                queue.raw,
                raw,
                pattern.as_ptr().cast(),
                len,
                at,
                bytes,
                none.0,
                none.1,
                none.2,
            )
            .ok()?;
        }
        part.write(&queue, 24, &[3_u8; 8])?;
        ur.urEnqueueMemBufferCopy(
            queue.raw, part.raw, part.raw, 0, step, 32, none.0, none.1, none.2,
        )
        .ok()?;
        let region = ur_rect_region_t {
            width: 4,
            height: 2,
            depth: 1,
        };
        let from = ur_rect_offset_t { x: 8, y: 1, z: 0 };
        let to = ur_rect_offset_t { x: 8, y: 4, z: 0 };
        let (zero, mut rows) = (ur_rect_offset_t::default(), [0_u8; 8]);
        let rows = rows.as_mut_ptr().cast();
        ur.urEnqueueMemBufferReadRect(
            queue.raw, part.raw, 1, from, zero, region, 16, 0, 4, 0, rows, none.0, none.1, none.2,
        )
        .ok()?;
        ur.urEnqueueMemBufferWriteRect(
            queue.raw, part.raw, 1, to, zero, region, 16, 0, 4, 0, rows, none.0, none.1, none.2,
        )
        .ok()?;
        let mapped = map(&queue, &part, UR_MAP_FLAG_READ | UR_MAP_FLAG_WRITE, 0, 96)?;
        check_eq!(
            mapped.addr(),
            host_at.addr() + step,
            "mapped address of a sub-buffer of used host memory"
        );
        host(mapped, 96)[32] = 4;
        unmap(&queue, &part, mapped)?;
        let mut want = vec![1_u8; size];
        want[step..step + 24].fill(2);
        want[step + 24..step + 32].fill(3);
        let copied = want[step..step + 32].to_vec();
        want[2 * step..2 * step + 32].copy_from_slice(&copied);
        // Two rows of 4 bytes with a pitch of 16. The second one equals what was there before.
        want[step + 72..step + 76].fill(3);
        want[step + 32] = 4;
        check!(
            part.read::<u8>(&queue, 0, 2 * step)? == want[step..3 * step],
            "a sub-buffer {off} bytes past an aligned address has wrong data"
        );
        check!(
            buffer.read::<u8>(&queue, 0, size)? == want,
            "the whole buffer has wrong data, {off} bytes past an aligned address"
        );
        let mapped = map(&queue, &buffer, UR_MAP_FLAG_READ, 0, size)?;
        check!(
            host(mapped, size) == want,
            "the host memory has wrong data, {off} bytes past an aligned address"
        );
        unmap(&queue, &buffer, mapped)?;
        queue.finish()?;
    }
    Ok(())
}

pub(super) fn map(
    queue: &Queue,
    buffer: &Buffer,
    flags: ur_map_flags_t,
    offset: usize,
    size: usize,
) -> Result<*mut c_void, Stop> {
    let mut mapped = null_mut();
    let ur = queue.ur;
    ur.urEnqueueMemBufferMap(
        queue.raw,
        buffer.raw,
        1,
        flags,
        offset,
        size,
        0,
        null(),
        null_mut(),
        &mut mapped,
    )
    .ok()?;
    if mapped.is_null() {
        return Err(Stop::failed(
            "urEnqueueMemBufferMap: success, but no pointer",
        ));
    }
    Ok(mapped)
}

pub(super) fn unmap(queue: &Queue, buffer: &Buffer, mapped: *mut c_void) -> Done {
    queue
        .ur
        .urEnqueueMemUnmap(queue.raw, buffer.raw, mapped, 0, null(), null_mut())
        .ok()
}

/// The mapped range as the host sees it.
fn host<'a>(mapped: *mut c_void, size: usize) -> &'a mut [u8] {
    // SAFETY: a blocking map returned `mapped`, which has `size` bytes until the unmap. The tests below do
    // not keep the slice longer.
    unsafe { std::slice::from_raw_parts_mut(mapped.cast(), size) }
}

/// A map to read shows the range's data and leaves the buffer unchanged.
fn map_to_read(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let mut data: Vec<u8> = (0..200).collect();
    let buffer = Buffer::copied(&context, &mut data)?;
    let mapped = map(&queue, &buffer, UR_MAP_FLAG_READ, 50, 100)?;
    check!(host(mapped, 100) == &data[50..150], "the mapped range");
    unmap(&queue, &buffer, mapped)?;
    check!(
        buffer.read::<u8>(&queue, 0, 200)? == data,
        "the buffer changed by a map to read"
    );
    Ok(())
}

/// What the host writes into a mapped range is in the buffer after the unmap.
fn map_to_write(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let buffer = Buffer::copied(&context, &mut [1_u8; 200])?;
    let mapped = map(
        &queue,
        &buffer,
        UR_MAP_FLAG_READ | UR_MAP_FLAG_WRITE,
        50,
        100,
    )?;
    let range = host(mapped, 100);
    check_all!(range, 1, "the mapped range");
    range[10..20].fill(2);
    unmap(&queue, &buffer, mapped)?;
    let found = buffer.read::<u8>(&queue, 0, 200)?;
    let right = found
        .iter()
        .enumerate()
        .all(|(at, byte)| *byte == if (60..70).contains(&at) { 2 } else { 1 });
    check!(
        right,
        "the buffer does not have what was written to its map"
    );
    Ok(())
}

/// A map that invalidates its range takes what the host writes.
fn map_invalidates(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let buffer = Buffer::copied(&context, &mut [1_u8; 200])?;
    let mapped = map(&queue, &buffer, UR_MAP_FLAG_WRITE_INVALIDATE_REGION, 0, 200)?;
    host(mapped, 200).fill(3);
    unmap(&queue, &buffer, mapped)?;
    check!(
        buffer.read::<u8>(&queue, 0, 200)? == [3_u8; 200],
        "the buffer does not have what was written to its map"
    );
    Ok(())
}

/// A map past the end of a buffer and an unmap of another pointer are refused.
fn map_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let buffer = context.buffer(64)?;
    let mut mapped = null_mut();
    for (offset, size) in [(0, 65), (64, 1), (usize::MAX, 2)] {
        let (ur, flags) = (fixture.ur, UR_MAP_FLAG_READ);
        let status = ur.urEnqueueMemBufferMap(
            queue.raw,
            buffer.raw,
            1,
            flags,
            offset,
            size,
            0,
            null(),
            null_mut(),
            &mut mapped,
        );
        status.fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    }
    let mut local = 0_u64;
    let wrong = fixture.ur.urEnqueueMemUnmap(
        queue.raw,
        buffer.raw,
        (&raw mut local).cast(),
        0,
        null(),
        null_mut(),
    );
    wrong.refused()
}

//! Buffers: creation, sub-buffers, and every command on them with real data.

use crate::fixture::Fixture;
use crate::objects::{Buffer, Context, Gate, info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_all, check_eq, check_items};
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let mut tests = crate::tests!["buffer";
        create_with_flags, create_refused, counts_references, reports_its_context, copies_host_memory,
        write_and_read, read_and_write_refused, copy, copy_refused, fill_patterns, fill_refused,
        sub_buffers_share_storage, sub_buffer_refused, sub_buffer_outlives_its_parent, pending_commands_keep_buffer, out_of_order_chain,
        native_handle,
    ];
    let buffer = |fixture: &Fixture| Context::new(fixture)?.buffer(4096);
    tests.extend(info::tests(
        "buffer",
        "info_",
        ur_mem_info_t::PROPERTIES,
        buffer,
        |f, buffer, name, size, value, ret| {
            f.ur.urMemGetInfo(buffer.raw, ur_mem_info_t(name), size, value, ret)
        },
    ));
    tests
}

/// A buffer can be created with each access flag and reports its size.
fn create_with_flags(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    for flags in [
        UR_MEM_FLAG_READ_WRITE,
        UR_MEM_FLAG_READ_ONLY,
        UR_MEM_FLAG_WRITE_ONLY,
        UR_MEM_FLAG_ALLOC_HOST_POINTER,
    ] {
        let buffer = Buffer::new(&context, flags, 1000)?;
        check_eq!(buffer.get::<usize>(UR_MEM_INFO_SIZE)?, 1000, "size");
    }
    Ok(())
}

/// `urMemBufferCreate` refuses wrong sizes, undefined flags and a missing or needless host pointer.
fn create_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let mut raw = null_mut();
    let mut create = |flags, size, properties: *const ur_buffer_properties_t| {
        fixture
            .ur
            .urMemBufferCreate(context.raw, flags, size, properties, &mut raw)
    };
    let plain = ur_mem_flags_t(0);
    let without = ur_buffer_properties_t::default();
    let mut byte = 0_u64;
    let with = ur_buffer_properties_t {
        pHost: (&raw mut byte).cast(),
        ..Default::default()
    };
    let max: u64 = fixture.device_info(UR_DEVICE_INFO_MAX_MEM_ALLOC_SIZE)?;
    create(plain, 0, null()).fails(UR_RESULT_ERROR_INVALID_BUFFER_SIZE)?;
    for size in [max as usize + 1, usize::MAX] {
        let what = "UR_DEVICE_INFO_MAX_MEM_ALLOC_SIZE";
        create(plain, size, null()).fails_because(UR_RESULT_ERROR_INVALID_BUFFER_SIZE, what)?;
    }
    create(ur_mem_flags_t(UR_MEM_FLAGS_MASK), 8, null())
        .fails(UR_RESULT_ERROR_INVALID_ENUMERATION)?;
    for flags in [
        UR_MEM_FLAG_USE_HOST_POINTER,
        UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER,
    ] {
        create(flags, 8, null()).fails(UR_RESULT_ERROR_INVALID_HOST_PTR)?;
        create(flags, 8, &without).fails(UR_RESULT_ERROR_INVALID_HOST_PTR)?;
    }
    create(plain, 8, &with).fails(UR_RESULT_ERROR_INVALID_HOST_PTR)?;
    check!(raw.is_null(), "a refused urMemBufferCreate wrote a handle");
    Ok(())
}

/// A retain and a release of a buffer change its reference count by one.
fn counts_references(fixture: &Fixture) -> Done {
    let buffer = Context::new(fixture)?.buffer(64)?;
    let references = || buffer.get::<u32>(UR_MEM_INFO_REFERENCE_COUNT);
    check_eq!(references()?, 1, "references of a new buffer");
    let second = buffer.share()?;
    check_eq!(references()?, 2, "references after a retain");
    drop(second);
    check_eq!(references()?, 1, "references after a release");
    Ok(())
}

/// A buffer reports its context.
fn reports_its_context(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let buffer = context.buffer(64)?;
    check_eq!(
        buffer.get::<ur_context_handle_t>(UR_MEM_INFO_CONTEXT)?,
        context.raw,
        "context of the buffer"
    );
    Ok(())
}

/// A buffer with `ALLOC_COPY_HOST_POINTER` copies the host's data before the call returns.
fn copies_host_memory(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let mut data: Vec<u32> = (0..1000).collect();
    let buffer = Buffer::copied(&context, &mut data)?;
    data.fill(0);
    check_items!(
        buffer.read::<u32>(&queue, 0, 1000)?,
        0..1000,
        "copied bytes"
    );
    Ok(())
}

/// Data written to a buffer is read back unchanged, in whole and from an offset.
fn write_and_read(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    for size in [1, 7, 4096, (3 << 20) + 1] {
        let buffer = context.buffer(size)?;
        let data: Vec<u8> = (0..size).map(|at| (at * 3) as u8).collect();
        buffer.write(&queue, 0, &data)?;
        check!(
            buffer.read::<u8>(&queue, 0, size)? == data,
            "{size} bytes were read back changed"
        );
        let middle = size / 3;
        check!(
            buffer.read::<u8>(&queue, middle, size - middle)? == data[middle..],
            "{size} bytes were read back changed from {middle} on"
        );
    }
    Ok(())
}

/// A read or write past the end of a buffer is refused, also when the sum overflows.
fn read_and_write_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let buffer = context.buffer(64)?;
    let mut data = [0_u8; 128];
    let host = data.as_mut_ptr().cast();
    for (offset, size) in [(0, 65), (64, 1), (1, 64), (usize::MAX, 2), (2, usize::MAX)] {
        let ur = fixture.ur;
        let read = ur.urEnqueueMemBufferRead(
            queue.raw,
            buffer.raw,
            1,
            offset,
            size,
            host,
            0,
            null(),
            null_mut(),
        );
        read.fails(UR_RESULT_ERROR_INVALID_SIZE)?;
        let write = ur.urEnqueueMemBufferWrite(
            queue.raw,
            buffer.raw,
            1,
            offset,
            size,
            host,
            0,
            null(),
            null_mut(),
        );
        write.fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    }
    Ok(())
}

/// A copy moves the given range between buffers, or within one, and changes no other byte.
fn copy(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let mut data: Vec<u8> = (0..=255).collect();
    let src = Buffer::copied(&context, &mut data)?;
    let dst = Buffer::copied(&context, &mut [0_u8; 256])?;
    let ur = fixture.ur;
    queue.event(|e| {
        ur.urEnqueueMemBufferCopy(queue.raw, src.raw, dst.raw, 10, 100, 50, 0, null(), e)
    })?;
    queue.event(|e| {
        ur.urEnqueueMemBufferCopy(queue.raw, dst.raw, dst.raw, 100, 0, 50, 0, null(), e)
    })?;
    let found = dst.read::<u8>(&queue, 0, 256)?;
    check!(
        found[..50] == data[10..60] && found[100..150] == data[10..60],
        "copied bytes"
    );
    check!(
        found[50..100]
            .iter()
            .chain(&found[150..])
            .all(|byte| *byte == 0),
        "bytes beside the copies changed"
    );
    Ok(())
}

/// A copy past the end of either buffer is refused, also when the sum overflows.
fn copy_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let (src, dst) = (context.buffer(64)?, context.buffer(32)?);
    for (from, to, size) in [
        (0, 0, 33),
        (0, 32, 1),
        (60, 0, 5),
        (usize::MAX, 0, 2),
        (0, usize::MAX, 2),
    ] {
        let ur = fixture.ur;
        let status = ur.urEnqueueMemBufferCopy(
            queue.raw,
            src.raw,
            dst.raw,
            from,
            to,
            size,
            0,
            null(),
            null_mut(),
        );
        status.fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    }
    Ok(())
}

/// A fill repeats patterns of 1 to 128 bytes and changes no byte beside its range.
fn fill_patterns(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    for power in 0..=7 {
        let size = 1_usize << power;
        let pattern: Vec<u8> = (0..size).map(|at| (at * 5 + power) as u8).collect();
        let buffer = Buffer::copied(&context, &mut vec![0xee_u8; size * 40])?;
        let (ur, from) = (fixture.ur, pattern.as_ptr().cast());
        queue.event(|e| {
            ur.urEnqueueMemBufferFill(
                queue.raw,
                buffer.raw,
                from,
                size,
                size * 3,
                size * 30,
                0,
                null(),
                e,
            )
        })?;
        let data = buffer.read::<u8>(&queue, 0, size * 40)?;
        check!(
            data[size * 3..size * 33]
                .chunks(size)
                .all(|chunk| chunk == pattern),
            "a pattern of {size} bytes was not repeated"
        );
        let beside = data[..size * 3].iter().chain(&data[size * 33..]);
        check!(
            beside.clone().all(|byte| *byte == 0xee),
            "bytes beside a fill of {size} bytes changed"
        );
    }
    Ok(())
}

/// A fill with a wrong pattern size, offset or size is refused.
fn fill_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let buffer = context.buffer(64)?;
    let pattern = [0_u8; 128];
    // Pattern size, offset, size.
    for (pattern_size, offset, size) in [
        (0, 0, 64),
        (4, 0, 0),
        (128, 0, 64),
        (3, 0, 63),
        (4, 0, 6),
        (4, 2, 8),
        (4, 0, 68),
        (4, 64, 4),
    ] {
        let (ur, from) = (fixture.ur, pattern.as_ptr().cast());
        let status = ur.urEnqueueMemBufferFill(
            queue.raw,
            buffer.raw,
            from,
            pattern_size,
            offset,
            size,
            0,
            null(),
            null_mut(),
        );
        status.fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    }
    Ok(())
}

/// The alignment in bytes that a sub-buffer's origin needs.
pub fn alignment(fixture: &Fixture) -> Result<usize, Stop> {
    let bits: u32 = fixture.device_info(UR_DEVICE_INFO_MEM_BASE_ADDR_ALIGN)?;
    Ok((bits as usize / 8).max(64))
}

/// A write to a sub-buffer is seen in its buffer, and the reverse.
fn sub_buffers_share_storage(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let step = alignment(fixture)?;
    let buffer = Buffer::copied(&context, &mut vec![1_u8; step * 3])?;
    let part = buffer.part(step, step)?;
    check_eq!(
        part.get::<usize>(UR_MEM_INFO_SIZE)?,
        step,
        "size of a sub-buffer"
    );
    part.write(&queue, 0, &vec![2_u8; step])?;
    let found = buffer.read::<u8>(&queue, 0, step * 3)?;
    let right = found
        .iter()
        .enumerate()
        .all(|(at, byte)| *byte == if at / step == 1 { 2 } else { 1 });
    check!(right, "a write to a sub-buffer is not in its buffer alone");
    buffer.write(&queue, step, &vec![3_u8; step])?;
    check_all!(
        part.read::<u8>(&queue, 0, step)?,
        3,
        "a sub-buffer whose buffer was written"
    );
    Ok(())
}

/// A sub-buffer that is empty, past the end, or of another sub-buffer is refused.
fn sub_buffer_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let step = alignment(fixture)?;
    let buffer = context.buffer(step * 2)?;
    let cut = |buffer: &Buffer, origin, size| {
        let region = ur_buffer_region_t {
            origin,
            size,
            ..Default::default()
        };
        let mut raw = null_mut();
        let flags = UR_MEM_FLAG_READ_WRITE;
        fixture.ur.urMemBufferPartition(
            buffer.raw,
            flags,
            UR_BUFFER_CREATE_TYPE_REGION,
            &region,
            &mut raw,
        )
    };
    cut(&buffer, 0, 0).fails(UR_RESULT_ERROR_INVALID_BUFFER_SIZE)?;
    cut(&buffer, 0, step * 2 + 1).fails(UR_RESULT_ERROR_INVALID_BUFFER_SIZE)?;
    cut(&buffer, step * 2, 1).fails(UR_RESULT_ERROR_INVALID_BUFFER_SIZE)?;
    cut(&buffer, usize::MAX, 2).refused()?;
    let part = buffer.part(0, step)?;
    cut(&part, 0, 8).fails(UR_RESULT_ERROR_INVALID_MEM_OBJECT)
}

/// A sub-buffer works after its buffer was released.
fn sub_buffer_outlives_its_parent(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let step = alignment(fixture)?;
    let buffer = context.buffer(step * 2)?;
    let part = buffer.part(step, step)?;
    drop(buffer);
    part.write(&queue, 0, &vec![9_u8; step])?;
    check_all!(
        part.read::<u8>(&queue, 0, step)?,
        9,
        "a sub-buffer whose parent was released"
    );
    Ok(())
}

/// Pending commands keep a released buffer and touch no buffer made since.
fn pending_commands_keep_buffer(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let (queue, other) = (context.in_order(fixture)?, context.in_order(fixture)?);
    let ur = fixture.ur;
    let size = 4096;
    let (data, mut back) = (vec![7_u8; size], vec![0_u8; size]);
    let buffer = context.buffer(size)?;
    let gate = Gate::close(fixture, &queue)?;
    let (from, to) = (data.as_ptr().cast(), back.as_mut_ptr().cast());
    ur.urEnqueueMemBufferWrite(
        queue.raw,
        buffer.raw,
        0,
        0,
        size,
        from,
        0,
        null(),
        null_mut(),
    )
    .ok()?;
    ur.urEnqueueMemBufferRead(queue.raw, buffer.raw, 0, 0, size, to, 0, null(), null_mut())
        .ok()?;
    drop(buffer);
    let others = (0..16).map(|_| context.buffer(size));
    let others = others.collect::<Result<Vec<_>, _>>()?;
    for buffer in &others {
        buffer.write(&other, 0, &vec![9_u8; size])?;
    }
    gate.open();
    queue.finish()?;
    check!(
        back == data,
        "data written and read through a released buffer changed"
    );
    for buffer in &others {
        let all = buffer.read::<u8>(&other, 0, size)?;
        check_all!(all, 9, "a buffer made after the release");
    }
    Ok(())
}

/// A fill, a copy and a read of an out-of-order queue follow each other by events.
fn out_of_order_chain(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.out_of_order(fixture)?;
    let size = 1 << 16;
    let (a, b) = (context.buffer(size)?, context.buffer(size)?);
    let ur = fixture.ur;
    for round in 0..20_u8 {
        let from = (&raw const round).cast();
        let filled = queue.event(|e| {
            ur.urEnqueueMemBufferFill(queue.raw, a.raw, from, 1, 0, size, 0, null(), e)
        })?;
        let copied = queue.event(|e| {
            ur.urEnqueueMemBufferCopy(queue.raw, a.raw, b.raw, 0, 0, size, 1, &filled.raw, e)
        })?;
        let mut data = vec![0_u8; size];
        let dst = data.as_mut_ptr().cast();
        ur.urEnqueueMemBufferRead(
            queue.raw,
            b.raw,
            1,
            0,
            size,
            dst,
            1,
            &copied.raw,
            null_mut(),
        )
        .ok()?;
        check_all!(data, round, "round {round} of a chain of events");
    }
    Ok(())
}

/// A buffer gives its native handle or reports that it has none.
fn native_handle(fixture: &Fixture) -> Done {
    let buffer = Context::new(fixture)?.buffer(64)?;
    let mut native = 0;
    let status = fixture
        .ur
        .urMemGetNativeHandle(buffer.raw, fixture.device, &mut native);
    if status.is_unsupported() {
        Ok(())
    } else {
        status.ok()
    }
}

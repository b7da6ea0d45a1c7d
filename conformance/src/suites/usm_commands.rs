//! Commands on USM pointers: copies, fills, prefetches and advice.

use crate::fixture::Fixture;
use crate::objects::{Context, Kind, Queue};
use crate::outcome::Done;
use crate::registry::Test;
use crate::{check, check_all};
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["usm"; copy_between_kinds, copy_of_plain_memory, copy_refused, fill_patterns, fill_refused, fill_leaves_the_rest, prefetch, advise, blocking_copy]
}

/// A copy moves unaligned data between each pair of USM kinds.
fn copy_between_kinds(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let mut tag = 1_u8;
    for from in Kind::ALL {
        for to in Kind::ALL {
            let (src, dst) = (
                context.usm(fixture, from, 10_000)?,
                context.usm(fixture, to, 10_000)?,
            );
            queue.fill(src.ptr, tag, 10_000, &[])?;
            queue.fill(dst.ptr, 0_u8, 10_000, &[])?;
            // Odd offsets, so that nothing is aligned.
            queue.copy(
                dst.ptr.wrapping_byte_add(3),
                src.ptr.wrapping_byte_add(1),
                9_001,
                &[],
            )?;
            let data = queue.read::<u8>(dst.ptr, 10_000, &[])?;
            let copied = data
                .iter()
                .enumerate()
                .all(|(at, byte)| *byte == if (3..9_004).contains(&at) { tag } else { 0 });
            check!(copied, "a copy from {from} to {to} memory is wrong");
            tag += 1;
        }
    }
    Ok(())
}

/// A copy takes plain host memory on both sides.
fn copy_of_plain_memory(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let (from, mut to) = (vec![3_u16; 5_000], vec![0_u16; 5_000]);
    let dst = to.as_mut_ptr().cast();
    fixture
        .ur
        .urEnqueueUSMMemcpy(
            queue.raw,
            1,
            dst,
            from.as_ptr().cast(),
            10_000,
            0,
            null(),
            null_mut(),
        )
        .ok()?;
    check!(to == from, "a copy between plain host memory is wrong");
    Ok(())
}

/// A copy of 0 bytes is refused and gives no event.
fn copy_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 128)?;
    let half = memory.ptr.wrapping_byte_add(64);
    let mut event = null_mut();
    let copy = |size, event| {
        fixture
            .ur
            .urEnqueueUSMMemcpy(queue.raw, 0, half, memory.ptr, size, 0, null(), event)
    };
    copy(0, &mut event).fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    check!(event.is_null(), "a refused command gave an event");
    Ok(())
}

/// A fill repeats patterns of 1 to 1,000 bytes and changes no byte beside its range.
fn fill_patterns(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    for pattern_size in [1, 2, 3, 4, 5, 8, 12, 16, 31, 64, 128, 256, 1000] {
        for (first, times) in [(0, 97), (0, 96), (1, 96), (3, 1), (4, 88)] {
            fill_part(fixture, &context, &queue, (pattern_size, first, times))?;
        }
    }
    Ok(())
}

/// Fills a range of an allocation. `first` patterns before it and one after it must stay unchanged.
fn fill_part(
    fixture: &Fixture,
    context: &Context,
    queue: &Queue,
    (pattern_size, first, times): (usize, usize, usize),
) -> Done {
    let (start, size) = (pattern_size * first, pattern_size * times);
    let pattern: Vec<u8> = (0..pattern_size)
        .map(|at| (at + pattern_size) as u8)
        .collect();
    let all = start + size + pattern_size;
    let memory = context.usm(fixture, Kind::Device, all)?;
    queue.fill(memory.ptr, 0xee_u8, all, &[])?;
    let filled = queue.event(|event| {
        let to = memory.ptr.wrapping_byte_add(start);
        let from = pattern.as_ptr().cast();
        fixture
            .ur
            .urEnqueueUSMFill(queue.raw, to, pattern_size, from, size, 0, null(), event)
    })?;
    // The caller may change the pattern after the call.
    let saved = pattern.clone();
    drop(pattern);
    filled.wait()?;
    let data = queue.read::<u8>(memory.ptr, all, &[])?;
    let (before, rest) = data.split_at(start);
    let (inside, after) = rest.split_at(size);
    check!(
        inside.chunks(pattern_size).all(|chunk| chunk == saved),
        "a pattern of {pattern_size} bytes after {first} was not repeated {times} times"
    );
    check!(
        before.iter().chain(after).all(|byte| *byte == 0xee),
        "bytes beside {times} times a pattern of {pattern_size} bytes after {first}"
    );
    Ok(())
}

/// A fill with a wrong pattern size or size is refused.
fn fill_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let pattern = [0_u8; 128];
    for (pattern_size, size) in [(0, 64), (4, 0), (128, 64), (4, 63)] {
        let from = pattern.as_ptr().cast();
        let status = fixture.ur.urEnqueueUSMFill(
            queue.raw,
            memory.ptr,
            pattern_size,
            from,
            size,
            0,
            null(),
            null_mut(),
        );
        status.fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    }
    Ok(())
}

/// An unaligned fill changes no byte beside its range.
fn fill_leaves_the_rest(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 4096)?;
    queue.fill(memory.ptr, 1_u8, 4096, &[])?;
    queue.fill(memory.ptr.wrapping_byte_add(1001), 2_u8, 999, &[])?;
    let data = queue.read::<u8>(memory.ptr, 4096, &[])?;
    let right = data
        .iter()
        .enumerate()
        .all(|(at, byte)| *byte == if (1001..2000).contains(&at) { 2 } else { 1 });
    check!(right, "a fill touched bytes beside its range");
    Ok(())
}

/// A prefetch in each direction leaves the data unchanged, and one of 0 bytes is refused.
fn prefetch(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Shared, 1 << 20)?;
    queue.fill(memory.ptr, 5_u8, 1 << 20, &[])?;
    for flags in [
        ur_usm_migration_flags_t(0),
        UR_USM_MIGRATION_FLAG_HOST_TO_DEVICE,
        UR_USM_MIGRATION_FLAG_DEVICE_TO_HOST,
    ] {
        let ur = fixture.ur;
        queue
            .event(|event| {
                ur.urEnqueueUSMPrefetch(queue.raw, memory.ptr, 1 << 20, flags, 0, null(), event)
            })?
            .wait()?;
    }
    let empty = fixture.ur.urEnqueueUSMPrefetch(
        queue.raw,
        memory.ptr,
        0,
        ur_usm_migration_flags_t(0),
        0,
        null(),
        null_mut(),
    );
    empty.fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    check_all!(memory.host::<u8>(), 5, "bytes after a prefetch");
    Ok(())
}

/// Each advice leaves the data unchanged, and one for 0 bytes is refused.
fn advise(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Shared, 1 << 20)?;
    queue.fill(memory.ptr, 6_u8, 1 << 20, &[])?;
    for &(bit, _) in ur_usm_advice_flags_t::BITS {
        let advice = ur_usm_advice_flags_t(bit);
        let ur = fixture.ur;
        queue
            .event(|event| ur.urEnqueueUSMAdvise(queue.raw, memory.ptr, 1 << 20, advice, event))?
            .wait()?;
    }
    fixture
        .ur
        .urEnqueueUSMAdvise(
            queue.raw,
            memory.ptr,
            0,
            UR_USM_ADVICE_FLAG_DEFAULT,
            null_mut(),
        )
        .fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    check_all!(memory.host::<u8>(), 6, "bytes after advice");
    Ok(())
}

/// A blocking copy returns only when the data is there.
fn blocking_copy(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.out_of_order(fixture)?;
    let (src, dst) = (
        context.usm(fixture, Kind::Device, 4 << 20)?,
        context.usm(fixture, Kind::Host, 4 << 20)?,
    );
    let filled = queue.fill(src.ptr, 8_u8, 4 << 20, &[])?;
    fixture
        .ur
        .urEnqueueUSMMemcpy(
            queue.raw,
            1,
            dst.ptr,
            src.ptr,
            4 << 20,
            1,
            &filled.raw,
            null_mut(),
        )
        .ok()?;
    check_all!(dst.host::<u8>(), 8, "bytes after a blocking copy");
    Ok(())
}

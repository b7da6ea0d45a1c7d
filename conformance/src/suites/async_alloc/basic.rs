//! Allocation, use and free with nothing pending.

use super::*;
use crate::kernels::{IOTA, VERIFY};
use crate::objects::{Arg, Program, alloc_info};
use crate::{check, check_all, check_eq};
use std::ffi::c_void;

const SUITE: &str = "async_alloc";

pub fn all() -> Vec<Test> {
    let mut tests = by_kind(
        SUITE,
        &[
            ("use_of_all_sizes", use_of_all_sizes),
            ("aligned_and_disjoint", aligned_and_disjoint),
            ("block_info", block_info),
            ("events", events),
            ("kernels", kernels),
            ("host_access", host_access),
            ("current_pool", current_pool),
            ("properties", properties),
            ("event_is_optional", event_is_optional),
            ("free_ignores_its_pool", free_ignores_its_pool),
            ("large_block", large_block),
        ],
    );
    tests.extend(plain(
        SUITE,
        &[
            ("kinds_do_not_mix", kinds_do_not_mix),
            ("free_on_another_queue", free_on_another_queue),
        ],
    ));
    tests
}

/// Blocks of 1 byte to 5 MiB hold data, and no byte is used after their frees.
fn use_of_all_sizes(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    for size in [
        1,
        2,
        63,
        64,
        65,
        255,
        256,
        257,
        4095,
        4096,
        4097,
        100_000,
        MIB - 1,
        MIB,
        MIB + 1,
        5 * MIB + 123,
    ] {
        setup.exercise(&queue, kind, &pool, size)?;
    }
    queue.finish()?;
    check_eq!(pool.used()?, 0, "used bytes when all is freed");
    Ok(())
}

/// Live blocks are aligned to 64 bytes, do not overlap and keep their data.
fn aligned_and_disjoint(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let mut blocks = Vec::new();
    for index in 0..300 {
        blocks.push(queue.alloc(kind, &pool, 1 + index * 61 % 5000, &[])?);
    }
    for block in &blocks {
        check!(
            block.ptr.addr().is_multiple_of(64),
            "{:?} is not aligned to 64",
            block.ptr
        );
    }
    let mut sorted = blocks.clone();
    sorted.sort_by_key(|block| block.ptr.addr());
    check!(
        sorted.windows(2).all(|pair| !pair[0].overlaps(&pair[1])),
        "two live blocks overlap"
    );
    for (index, block) in blocks.iter().enumerate() {
        queue.fill(block.ptr, index as u8, block.size, &[])?;
    }
    for (index, block) in blocks.iter().enumerate() {
        all_bytes(&queue, *block, index as u8)?;
        queue.free(*block, &[])?;
    }
    queue.finish()
}

/// A block reports its kind, base, size, device and pool, and nothing after its free.
fn block_info(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let block = queue.alloc(kind, &pool, 10_000, &[])?;
    let context = &setup.context;
    check_eq!(
        alloc_info::<ur_usm_type_t>(context, block.ptr, UR_USM_ALLOC_INFO_TYPE)?,
        kind.usm_type(),
        "kind"
    );
    let inner = block.ptr.wrapping_byte_add(9_999);
    check_eq!(
        alloc_info::<*mut c_void>(context, inner, UR_USM_ALLOC_INFO_BASE_PTR)?,
        block.ptr,
        "base"
    );
    let size: usize = alloc_info(context, block.ptr, UR_USM_ALLOC_INFO_SIZE)?;
    check!(
        (10_000..20_000).contains(&size),
        "size {size} of a block of 10000"
    );
    if kind != Kind::Host {
        let device: ur_device_handle_t = alloc_info(context, block.ptr, UR_USM_ALLOC_INFO_DEVICE)?;
        check_eq!(device, setup.fixture.device, "device");
    }
    let of: ur_usm_pool_handle_t = alloc_info(context, block.ptr, UR_USM_ALLOC_INFO_POOL)?;
    check_eq!(of, pool.raw, "pool");
    queue.free(block, &[])?;
    queue.finish()?;
    let ty: ur_usm_type_t = alloc_info(context, block.ptr, UR_USM_ALLOC_INFO_TYPE)?;
    check_eq!(ty, UR_USM_TYPE_UNKNOWN, "kind after the free");
    Ok(())
}

/// The events of an allocation and a free report type, queue, context and references.
fn events(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let (block, allocated) = queue.alloc_event(kind, &pool, 4096, &[])?;
    let freed = queue.free_event(block, &[])?;
    check!(
        allocated.raw != freed.raw,
        "allocation and free share an event handle"
    );
    let want = match kind {
        Kind::Device => UR_COMMAND_ENQUEUE_USM_DEVICE_ALLOC_EXP,
        Kind::Shared => UR_COMMAND_ENQUEUE_USM_SHARED_ALLOC_EXP,
        Kind::Host => UR_COMMAND_ENQUEUE_USM_HOST_ALLOC_EXP,
    };
    for (event, want) in [
        (&allocated, want),
        (&freed, UR_COMMAND_ENQUEUE_USM_FREE_EXP),
    ] {
        check_eq!(
            event.get::<ur_command_t>(UR_EVENT_INFO_COMMAND_TYPE)?,
            want,
            "command type"
        );
        check_eq!(
            event.get::<u32>(UR_EVENT_INFO_REFERENCE_COUNT)?,
            1,
            "references of {want:?}"
        );
        check_eq!(
            event.get::<ur_queue_handle_t>(UR_EVENT_INFO_COMMAND_QUEUE)?,
            queue.raw,
            "queue of {want:?}"
        );
        check_eq!(
            event.get::<ur_context_handle_t>(UR_EVENT_INFO_CONTEXT)?,
            setup.context.raw,
            "context of {want:?}"
        );
        event.wait()?;
        check!(
            event.is_complete()?,
            "{want:?} is not complete after a wait"
        );
    }
    Ok(())
}

/// Kernels write and verify blocks that are allocated and freed around them.
fn kernels(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let program = Program::new(setup.fixture, &setup.context)?;
    let (iota, verify) = (program.kernel(IOTA)?, program.kernel(VERIFY)?);
    let wrong = setup.result(4)?;
    queue.fill(wrong.ptr, 0_u32, 4, &[])?;
    for round in 0..20_u32 {
        let items = 1000 + round as usize * 100;
        let block = queue.alloc(kind, &pool, items * 4, &[])?;
        queue.launch(
            &iota,
            items,
            &[Arg::Pointer(block.ptr), Arg::of(&round)],
            &[],
        )?;
        queue.launch(
            &verify,
            items,
            &[
                Arg::Pointer(block.ptr),
                Arg::of(&round),
                Arg::Pointer(wrong.ptr),
            ],
            &[],
        )?;
        queue.free(block, &[])?;
    }
    queue.finish()?;
    check_eq!(wrong.host::<u32>()[0], 0, "wrong words");
    Ok(())
}

/// The host reads and writes host and shared blocks.
fn host_access(setup: &Setup, kind: Kind) -> Done {
    if !kind.host_accessible() {
        return Err(Stop::skipped("the host cannot access device memory"));
    }
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let (block, allocated) = queue.alloc_event(kind, &pool, 4096, &[])?;
    allocated.wait()?;
    block.host::<u32>().fill(77);
    check_all!(
        queue.read::<u32>(block.ptr, 1024, &[])?,
        77,
        "what the host wrote"
    );
    queue.fill(block.ptr, 78_u32, 4096, &[])?.wait()?;
    check_all!(block.host::<u32>(), 78, "what the device wrote");
    queue.free(block, &[])?;
    queue.finish()
}

/// An allocation with a null pool comes from the default pool at first.
fn current_pool(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.default_pool()?);
    let before = pool.used()?;
    let block = queue.alloc_current(kind, 1000)?;
    check!(
        pool.used()? > before,
        "an allocation with a null pool did not come from the default pool"
    );
    let of: ur_usm_pool_handle_t = alloc_info(&setup.context, block.ptr, UR_USM_ALLOC_INFO_POOL)?;
    check_eq!(of, pool.raw, "pool of an allocation with a null pool");
    queue.fill(block.ptr, 3_u8, 1000, &[])?;
    all_bytes(&queue, block, 3)?;
    queue.free(block, &[])?;
    check_eq!(pool.used()?, before, "used bytes after the free");
    queue.finish()
}

/// Allocation properties are accepted, and undefined flags are refused.
fn properties(setup: &Setup, kind: Kind) -> Done {
    let queue = setup.in_order()?;
    for flags in [
        ur_exp_async_usm_alloc_flags_t(0),
        UR_EXP_ASYNC_USM_ALLOC_FLAG_TBD,
    ] {
        let properties = ur_exp_async_usm_alloc_properties_t {
            flags,
            ..Default::default()
        };
        let mut ptr = null_mut();
        kind.enqueue(
            &queue,
            null_mut(),
            100,
            &properties,
            (0, null()),
            &mut ptr,
            null_mut(),
        )
        .ok()?;
        queue.free(Block { ptr, size: 100 }, &[])?;
    }
    let flags = ur_exp_async_usm_alloc_flags_t(UR_EXP_ASYNC_USM_ALLOC_FLAGS_MASK);
    let properties = ur_exp_async_usm_alloc_properties_t {
        flags,
        ..Default::default()
    };
    let mut ptr = null_mut();
    let status = kind.enqueue(
        &queue,
        null_mut(),
        100,
        &properties,
        (0, null()),
        &mut ptr,
        null_mut(),
    );
    status.fails(UR_RESULT_ERROR_INVALID_ENUMERATION)?;
    check!(ptr.is_null(), "a refused allocation wrote a pointer");
    Ok(())
}

/// Allocations and frees without events return all memory.
fn event_is_optional(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    for _ in 0..100 {
        let block = queue.alloc(kind, &pool, 512, &[])?;
        queue.free(block, &[])?;
    }
    queue.finish()?;
    check_eq!(pool.used()?, 0, "used bytes");
    Ok(())
}

/// A free returns its block to the pool it came from, whatever pool it names.
fn free_ignores_its_pool(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool, other) = (setup.in_order()?, setup.pool()?, setup.pool()?);
    let block = queue.alloc(kind, &pool, 1000, &[])?;
    let ur = setup.fixture.ur;
    ur.urEnqueueUSMFreeExp(queue.raw, other.raw, block.ptr, 0, null(), null_mut())
        .ok()?;
    check_eq!(
        pool.used()?,
        0,
        "used bytes of the pool that the block came from"
    );
    check_eq!(other.used()?, 0, "used bytes of the pool named by the free");
    queue.finish()
}

/// A block of 96 MiB is usable to its last byte.
fn large_block(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let size = 96 * MIB + 4097;
    let block = queue.alloc(kind, &pool, size, &[])?;
    // Reads and writes at a few offsets only, for speed.
    for offset in (0..size - 64).step_by(7 * MIB).chain([size - 64]) {
        queue.fill(block.ptr.wrapping_byte_add(offset), 0x77_u8, 64, &[])?;
    }
    let last = Block {
        ptr: block.ptr.wrapping_byte_add(size - 64),
        size: 64,
    };
    all_bytes(&queue, last, 0x77)?;
    queue.free(block, &[])?;
    queue.finish()
}

/// A freed block of one kind never serves another kind.
fn kinds_do_not_mix(setup: &Setup) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    for first in Kind::ALL {
        for second in Kind::ALL {
            let block = queue.alloc(first, &pool, 256 * KIB, &[])?;
            queue.free(block, &[])?;
            let other = queue.alloc(second, &pool, 256 * KIB, &[])?;
            let ty: ur_usm_type_t = alloc_info(&setup.context, other.ptr, UR_USM_ALLOC_INFO_TYPE)?;
            check_eq!(
                ty,
                second.usm_type(),
                "kind of a {second} block after a {first} block was freed"
            );
            queue.free(other, &[])?;
        }
    }
    queue.finish()
}

/// A block may be freed on another queue than it was allocated on.
fn free_on_another_queue(setup: &Setup) -> Done {
    let (first, second, pool) = (setup.in_order()?, setup.in_order()?, setup.pool()?);
    for kind in Kind::ALL {
        let (block, allocated) = first.alloc_event(kind, &pool, 4096, &[])?;
        let used = second.fill(block.ptr, 1_u8, 4096, &[&allocated])?;
        first.free(block, &[&used])?;
        let (block, allocated) = first.alloc_event(kind, &pool, 4096, &[])?;
        second.free(block, &[&allocated])?;
    }
    first.finish()?;
    second.finish()?;
    check_eq!(pool.used()?, 0, "used bytes");
    Ok(())
}

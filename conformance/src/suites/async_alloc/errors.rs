//! Wrong arguments: each is refused with its code and changes nothing.

use super::*;
use crate::check_eq;
use crate::status::Status;

const SUITE: &str = "async_errors";

/// The codes for running out of memory.
pub const OUT_OF_MEMORY: [ur_result_t; 3] = [
    UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
    UR_RESULT_ERROR_OUT_OF_HOST_MEMORY,
    UR_RESULT_ERROR_OUT_OF_RESOURCES,
];

pub fn all() -> Vec<Test> {
    let mut tests = by_kind(
        SUITE,
        &[
            ("size_0", size_0),
            ("huge_sizes", huge_sizes),
            ("double_free", double_free),
            ("interior_free", interior_free),
            ("wait_lists", wait_lists),
            ("null_handles_and_pointers", null_handles_and_pointers),
        ],
    );
    tests.extend(plain(
        SUITE,
        &[
            ("free_of_unknown_pointers", free_of_unknown_pointers),
            (
                "free_of_another_contexts_block",
                free_of_another_contexts_block,
            ),
            ("refused_free_keeps_the_block", refused_free_keeps_the_block),
            ("double_free_sync_and_async", double_free_sync_and_async),
            ("pool_of_another_context", pool_of_another_context),
            ("queue_works_after_errors", queue_works_after_errors),
        ],
    ));
    tests
}

/// Makes an allocation that must be refused, and checks that it wrote and counted nothing.
fn refuse(setup: &Setup, kind: Kind, size: usize, check: impl Fn(Status) -> Done) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let (used, reserved) = (pool.used()?, pool.reserved()?);
    let (mut ptr, mut event) = (null_mut(), null_mut());
    check(kind.enqueue(
        &queue,
        pool.raw,
        size,
        null(),
        (0, null()),
        &mut ptr,
        &mut event,
    ))?;
    check!(
        ptr.is_null() && event.is_null(),
        "a refused allocation wrote a pointer or an event"
    );
    check_eq!(
        (pool.used()?, pool.reserved()?),
        (used, reserved),
        "used and reserved bytes after a refusal"
    );
    queue.finish()
}

/// An allocation of 0 bytes is refused with `INVALID_USM_SIZE`.
fn size_0(setup: &Setup, kind: Kind) -> Done {
    refuse(setup, kind, 0, |status| {
        status.fails(UR_RESULT_ERROR_INVALID_USM_SIZE)
    })
}

/// An allocation beyond all memory is refused and changes no statistic.
fn huge_sizes(setup: &Setup, kind: Kind) -> Done {
    let mut allowed = OUT_OF_MEMORY.to_vec();
    allowed.push(UR_RESULT_ERROR_INVALID_USM_SIZE);
    for size in [
        usize::MAX,
        usize::MAX - 63,
        usize::MAX - 4096,
        usize::MAX / 2 + 1,
        1 << 62,
        1 << 56,
    ] {
        refuse(setup, kind, size, |status| status.fails_with(&allowed))?;
    }
    Ok(())
}

fn free(queue: &Queue, ptr: *mut std::ffi::c_void) -> Status {
    queue
        .ur
        .urEnqueueUSMFreeExp(queue.raw, null_mut(), ptr, 0, null(), null_mut())
}

/// A second free is refused, while the first is pending and afterwards.
fn double_free(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let block = queue.alloc(kind, &pool, 4096, &[])?;
    queue.free(block, &[])?;
    free(&queue, block.ptr).fails(UR_RESULT_ERROR_INVALID_MEM_OBJECT)?;
    queue.finish()?;
    free(&queue, block.ptr).fails(UR_RESULT_ERROR_INVALID_MEM_OBJECT)?;
    check_eq!(pool.used()?, 0, "used bytes after a double free");
    // Refused while the free is pending, too.
    let block = queue.alloc(kind, &pool, 4096, &[])?;
    let gate = setup.gate(&queue)?;
    queue.free(block, &[])?;
    free(&queue, block.ptr).fails(UR_RESULT_ERROR_INVALID_MEM_OBJECT)?;
    gate.open();
    queue.finish()
}

/// A free of a pointer into a block is refused.
fn interior_free(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let block = queue.alloc(kind, &pool, 64 * KIB, &[])?;
    let used = pool.used()?;
    for offset in [1, 64, 4096, 64 * KIB - 1] {
        free(&queue, block.ptr.wrapping_byte_add(offset))
            .fails(UR_RESULT_ERROR_INVALID_MEM_OBJECT)?;
    }
    check_eq!(pool.used()?, used, "used bytes after refused frees");
    queue.free(block, &[])?;
    queue.finish()
}

/// An allocation and a free refuse a malformed wait list.
fn wait_lists(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let event = queue.marker(&[])?;
    let null_event: [ur_event_handle_t; 1] = [null_mut()];
    let lists = [
        (1, null()),
        (0, &raw const event.raw),
        (1, null_event.as_ptr()),
    ];
    let block = queue.alloc(kind, &pool, 4096, &[])?;
    let used = pool.used()?;
    for list in lists {
        let (mut ptr, mut made) = (null_mut(), null_mut());
        let status = kind.enqueue(&queue, pool.raw, 64, null(), list, &mut ptr, &mut made);
        status.fails(UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST)?;
        check!(
            ptr.is_null() && made.is_null(),
            "a refused allocation wrote a pointer or an event"
        );
        let ur = setup.fixture.ur;
        let status =
            ur.urEnqueueUSMFreeExp(queue.raw, null_mut(), block.ptr, list.0, list.1, &mut made);
        status.fails(UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST)?;
        check!(made.is_null(), "a refused free wrote an event");
    }
    check_eq!(pool.used()?, used, "used bytes after refusals");
    queue.free(block, &[])?;
    queue.finish()
}

/// Null queues, results and pointers are refused.
fn null_handles_and_pointers(setup: &Setup, kind: Kind) -> Done {
    let ur = setup.fixture.ur;
    let null_queue = Queue::adopt(ur, null_mut());
    let queue = setup.in_order()?;
    let mut ptr = null_mut();
    let none = kind.enqueue(
        &null_queue,
        null_mut(),
        64,
        null(),
        (0, null()),
        &mut ptr,
        null_mut(),
    );
    none.fails(UR_RESULT_ERROR_INVALID_NULL_HANDLE)?;
    let nowhere = kind.enqueue(
        &queue,
        null_mut(),
        64,
        null(),
        (0, null()),
        null_mut(),
        null_mut(),
    );
    nowhere.fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    free(&queue, null_mut()).fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    let local = &raw const queue;
    free(&null_queue, local.cast_mut().cast()).fails(UR_RESULT_ERROR_INVALID_NULL_HANDLE)
}

/// A free of a pointer that is no block is refused and gives no event.
fn free_of_unknown_pointers(setup: &Setup) -> Done {
    let queue = setup.in_order()?;
    let mut local = 0_u64;
    let heap = Box::new(0_u64);
    let pointers = [
        (&raw mut local).cast(),
        (&raw const *heap).cast_mut().cast(),
        std::ptr::without_provenance_mut(1),
        std::ptr::without_provenance_mut(usize::MAX),
        std::ptr::without_provenance_mut(0x1000),
    ];
    for pointer in pointers {
        let mut event = null_mut();
        let ur = setup.fixture.ur;
        let status = ur.urEnqueueUSMFreeExp(queue.raw, null_mut(), pointer, 0, null(), &mut event);
        status.fails(UR_RESULT_ERROR_INVALID_MEM_OBJECT)?;
        check!(event.is_null(), "a refused free wrote an event");
    }
    queue.finish()
}

/// A free of another context's block is refused.
fn free_of_another_contexts_block(setup: &Setup) -> Done {
    let other = Setup::new(setup.fixture)?;
    let (queue, foreign) = (setup.in_order()?, other.in_order()?);
    let block = foreign.alloc(Kind::Device, &other.pool()?, 4096, &[])?;
    free(&queue, block.ptr).fails(UR_RESULT_ERROR_INVALID_MEM_OBJECT)?;
    foreign.free(block, &[])?;
    foreign.finish()
}

/// A refused free leaves the block live with its data.
fn refused_free_keeps_the_block(setup: &Setup) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let block = queue.alloc(Kind::Device, &pool, 4096, &[])?;
    queue.fill(block.ptr, 0x42_u8, 4096, &[])?;
    free(&queue, block.ptr.wrapping_byte_add(8)).fails(UR_RESULT_ERROR_INVALID_MEM_OBJECT)?;
    let ur = setup.fixture.ur;
    ur.urEnqueueUSMFreeExp(queue.raw, null_mut(), block.ptr, 1, null(), null_mut())
        .fails(UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST)?;
    let other = queue.alloc(Kind::Device, &pool, 4096, &[])?;
    check!(
        !other.overlaps(&block),
        "a block was handed out again after a refused free"
    );
    queue.fill(other.ptr, 0x43_u8, 4096, &[])?;
    all_bytes(&queue, block, 0x42)?;
    queue.free(block, &[])?;
    queue.free(other, &[])?;
    queue.finish()
}

/// A block freed by one of the two free functions is refused by the other.
fn double_free_sync_and_async(setup: &Setup) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let ur = setup.fixture.ur;
    let block = queue.alloc(Kind::Device, &pool, 4096, &[])?;
    queue.free(block, &[])?;
    ur.urUSMFree(setup.context.raw, block.ptr)
        .fails(UR_RESULT_ERROR_INVALID_MEM_OBJECT)?;
    let block = queue.alloc(Kind::Device, &pool, 4096, &[])?;
    ur.urUSMFree(setup.context.raw, block.ptr).ok()?;
    free(&queue, block.ptr).fails(UR_RESULT_ERROR_INVALID_MEM_OBJECT)?;
    let plain = setup
        .context
        .usm(setup.fixture, Kind::Device, 4096)?
        .into_raw();
    free(&queue, plain).ok()?;
    ur.urUSMFree(setup.context.raw, plain)
        .fails(UR_RESULT_ERROR_INVALID_MEM_OBJECT)?;
    queue.finish()
}

/// A pool of another context is refused.
fn pool_of_another_context(setup: &Setup) -> Done {
    let other = Setup::new(setup.fixture)?;
    let (queue, foreign) = (setup.in_order()?, other.pool()?);
    for kind in Kind::ALL {
        let mut ptr = null_mut();
        let status = kind.enqueue(
            &queue,
            foreign.raw,
            64,
            null(),
            (0, null()),
            &mut ptr,
            null_mut(),
        );
        status.refused()?;
        check!(ptr.is_null(), "a refused allocation wrote a pointer");
    }
    let ur = setup.fixture.ur;
    ur.urUSMPoolSetDevicePoolExp(setup.context.raw, setup.fixture.device, foreign.raw)
        .refused()
}

/// A queue works after refused allocations and frees.
fn queue_works_after_errors(setup: &Setup) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    for _ in 0..50 {
        let mut ptr = null_mut();
        Kind::Device
            .enqueue(
                &queue,
                pool.raw,
                0,
                null(),
                (0, null()),
                &mut ptr,
                null_mut(),
            )
            .refused()?;
        Kind::Device
            .enqueue(
                &queue,
                pool.raw,
                usize::MAX,
                null(),
                (0, null()),
                &mut ptr,
                null_mut(),
            )
            .refused()?;
        free(&queue, std::ptr::without_provenance_mut(64)).refused()?;
        setup.exercise(&queue, Kind::Device, &pool, 1000)?;
    }
    queue.finish()?;
    check_eq!(pool.used()?, 0, "used bytes");
    Ok(())
}

//! Synchronous and asynchronous allocation from the same memory.

use super::fixtures::{A, B, Full, PendingFree, use_later};
use super::*;
use crate::check_eq;
use crate::objects::alloc_info;

const SUITE: &str = "async_and_sync";
const SIZE: usize = 512 * KIB;

pub fn all() -> Vec<Test> {
    by_kind(
        SUITE,
        &[
            (
                "synchronous_free_of_asynchronous_block",
                synchronous_free_of_asynchronous_block,
            ),
            (
                "asynchronous_free_of_synchronous_block",
                asynchronous_free_of_synchronous_block,
            ),
            (
                "synchronous_allocation_takes_nothing_pending",
                synchronous_allocation_takes_nothing_pending,
            ),
            (
                "synchronous_free_with_pending_use",
                synchronous_free_with_pending_use,
            ),
            ("shared_pool", shared_pool),
        ],
    )
}

/// `urUSMFree` frees an asynchronous block and returns its memory to the pool.
fn synchronous_free_of_asynchronous_block(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let block = queue.alloc(kind, &pool, SIZE, &[])?;
    queue.fill(block.ptr, A, SIZE, &[])?;
    queue.finish()?;
    setup
        .fixture
        .ur
        .urUSMFree(setup.context.raw, block.ptr)
        .ok()?;
    check_eq!(pool.used()?, 0, "used bytes after urUSMFree");
    let ty: ur_usm_type_t = alloc_info(&setup.context, block.ptr, UR_USM_ALLOC_INFO_TYPE)?;
    check_eq!(ty, UR_USM_TYPE_UNKNOWN, "kind after urUSMFree");
    setup.exercise(&queue, kind, &pool, SIZE)?;
    queue.finish()
}

/// `urEnqueueUSMFreeExp` frees a synchronous block after the queue's earlier commands.
fn asynchronous_free_of_synchronous_block(setup: &Setup, kind: Kind) -> Done {
    let queue = setup.in_order()?;
    let result = setup.result(SIZE)?;
    let block = Block {
        ptr: setup.context.usm(setup.fixture, kind, SIZE)?.into_raw(),
        size: SIZE,
    };
    let gate = setup.gate(&queue)?;
    queue.fill(block.ptr, A, SIZE, &[])?;
    queue.copy(result.ptr, block.ptr, SIZE, &[])?;
    let freed = queue.free_event(block, &[])?;
    pending(&freed, "a free completed before an earlier command")?;
    gate.open();
    queue.finish()?;
    same_bytes(result.host(), A)?;
    let ty: ur_usm_type_t = alloc_info(&setup.context, block.ptr, UR_USM_ALLOC_INFO_TYPE)?;
    check_eq!(ty, UR_USM_TYPE_UNKNOWN, "kind after the free");
    Ok(())
}

/// A synchronous allocation takes no block whose free is pending.
fn synchronous_allocation_takes_nothing_pending(setup: &Setup, kind: Kind) -> Done {
    let (queue, other) = (setup.in_order()?, setup.in_order()?);
    let mut full = Full::new(setup, kind, SIZE)?;
    let pending_free = PendingFree::new(setup, &queue, full.take()?)?;
    let memory = Usm::new(
        &setup.context,
        setup.fixture.device,
        kind,
        SIZE,
        0,
        full.pool.raw,
    )?;
    let block = Block {
        ptr: memory.ptr,
        size: SIZE,
    };
    check!(
        !block.overlaps(&pending_free.block),
        "a synchronous allocation took a block whose free is pending"
    );
    other.fill(memory.ptr, B, SIZE, &[])?.wait()?;
    pending_free.open_and_check(&queue)?;
    all_bytes(&other, block, B)?;
    drop(memory);
    full.empty(&other)
}

/// `urUSMFree` does not give away memory that pending commands use; it may block.
fn synchronous_free_with_pending_use(setup: &Setup, kind: Kind) -> Done {
    let (queue, other, pool) = (setup.in_order()?, setup.in_order()?, setup.pool()?);
    let result = setup.result(SIZE)?;
    let block = queue.alloc(kind, &pool, SIZE, &[])?;
    let (gate, _) = use_later(setup, &queue, block, &result)?;
    gate.open_after(2 * MOMENT);
    setup
        .fixture
        .ur
        .urUSMFree(setup.context.raw, block.ptr)
        .ok()?;
    let again = other.alloc(kind, &pool, SIZE, &[])?;
    other.fill(again.ptr, B, SIZE, &[])?.wait()?;
    queue.finish()?;
    same_bytes(result.host(), A)?;
    all_bytes(&other, again, B)?;
    other.free(again, &[])?;
    other.finish()
}

/// Synchronous and asynchronous allocations reuse the memory of one pool.
fn shared_pool(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let mut reserved = 0;
    for round in 0..20 {
        let memory = Usm::new(
            &setup.context,
            setup.fixture.device,
            kind,
            SIZE,
            0,
            pool.raw,
        )?;
        check!(
            pool.used()? >= SIZE,
            "a synchronous allocation does not count as used"
        );
        queue.write(memory.ptr, &vec![round as u8; SIZE])?;
        queue.finish()?;
        drop(memory);
        let block = queue.alloc(kind, &pool, SIZE, &[])?;
        queue.fill(block.ptr, A, SIZE, &[])?;
        queue.free(block, &[])?;
        queue.finish()?;
        if round == 0 {
            reserved = pool.reserved()?;
        }
    }
    check_eq!(
        pool.reserved()?,
        reserved,
        "reserved bytes after 20 rounds of both kinds of allocation"
    );
    check_eq!(pool.used()?, 0, "used bytes");
    Ok(())
}

//! Memory that must not be reused: its last use is pending and not ordered before the allocation.
//!
//! The data shows it: pattern `A` of the old block must reach its copy.

use super::fixtures::{A, B, Full, PendingFree, use_later};
use super::*;
use crate::check_eq;

const SUITE: &str = "async_no_reuse";
const SIZE: usize = 256 * KIB;

pub fn all() -> Vec<Test> {
    let mut tests = by_kind(
        SUITE,
        &[
            ("without_dependency", without_dependency),
            ("grows_rather_than_waits", grows_rather_than_waits),
            ("wait_list_of_the_free", wait_list_of_the_free),
            ("event_before_the_free", event_before_the_free),
            (
                "free_on_idle_queue_of_pending_use",
                free_on_idle_queue_of_pending_use,
            ),
            ("parts_of_a_pending_block", parts_of_a_pending_block),
            ("neighbour_of_a_pending_block", neighbour_of_a_pending_block),
            ("free_after_two_uses", free_after_two_uses),
            (
                "out_of_order_without_dependency",
                out_of_order_without_dependency,
            ),
            ("out_of_order_without_event", out_of_order_without_event),
        ],
    );
    tests.extend(plain(
        SUITE,
        &[
            ("many_pending_blocks", many_pending_blocks),
            ("live_blocks", live_blocks),
        ],
    ));
    tests
}

/// Fills a new block as soon as possible, and checks that the pending use of the old one was not disturbed.
fn overwrite(
    pending_free: &PendingFree,
    home: &Queue,
    queue: &Queue,
    block: Block,
    wait: &[&Event],
) -> Done {
    let filled = queue.fill(block.ptr, B, block.size, wait)?;
    // Gives a fill that waits for nothing the time to run.
    filled.completes_within(MOMENT)?;
    pending_free.open_and_check(home)?;
    filled.wait()?;
    let data = queue.read::<u8>(block.ptr, block.size, &[])?;
    check!(
        same_bytes(&data, B).is_ok(),
        "pending work wrote into a new allocation"
    );
    let freed = queue.free_event(block, &[&filled])?;
    freed.wait()
}

/// A block whose free is pending is not overwritten by an allocation without a dependency.
fn without_dependency(setup: &Setup, kind: Kind) -> Done {
    let (first, second) = (setup.in_order()?, setup.in_order()?);
    let mut full = Full::new(setup, kind, SIZE)?;
    let pending_free = PendingFree::new(setup, &first, full.take()?)?;
    let block = second.alloc(kind, &full.pool, SIZE, &[])?;
    overwrite(&pending_free, &first, &second, block, &[])?;
    full.empty(&second)
}

/// A pool that may grow grows rather than wait for an unrelated queue.
fn grows_rather_than_waits(setup: &Setup, kind: Kind) -> Done {
    let (first, second) = (setup.in_order()?, setup.in_order()?);
    let mut full = Full::new(setup, kind, SIZE)?;
    let pending_free = PendingFree::new(setup, &first, full.take()?)?;
    let (block, allocated) = second.alloc_event(kind, &full.pool, SIZE, &[])?;
    check!(
        !block.overlaps(&pending_free.block),
        "an allocation got a block whose free is pending"
    );
    check!(
        full.pool.reserved()? > full.reserved,
        "a full pool did not grow"
    );
    completes(
        &allocated,
        "an allocation waits for a queue that it does not depend on",
    )?;
    let filled = second.fill(block.ptr, B, SIZE, &[])?;
    completes(
        &filled,
        "a use waits for a queue that it does not depend on",
    )?;
    check!(
        !pending_free.freed.is_complete()?,
        "the free completed although its queue is blocked"
    );
    pending_free.open_and_check(&first)?;
    second.free(block, &[])?;
    full.empty(&second)
}

/// A freed block is not reused before the wait list of its free has completed.
fn wait_list_of_the_free(setup: &Setup, kind: Kind) -> Done {
    let (user, owner, third) = (setup.in_order()?, setup.in_order()?, setup.in_order()?);
    let mut full = Full::new(setup, kind, SIZE)?;
    let result = setup.result(SIZE)?;
    let block = full.take()?;
    let (gate, used) = use_later(setup, &user, block, &result)?;
    owner.free(block, &[&used])?;
    let other = third.alloc(kind, &full.pool, SIZE, &[])?;
    third
        .fill(other.ptr, B, SIZE, &[])?
        .completes_within(MOMENT)?;
    gate.open();
    user.finish()?;
    same_bytes(result.host(), A)?;
    all_bytes(&third, other, B)?;
    third.free(other, &[])?;
    full.empty(&third)?;
    owner.finish()
}

/// An event from before the free does not order an allocation after it.
fn event_before_the_free(setup: &Setup, kind: Kind) -> Done {
    let (first, second) = (setup.in_order()?, setup.in_order()?);
    let mut full = Full::new(setup, kind, SIZE)?;
    let early = first.marker(&[])?;
    let pending_free = PendingFree::new(setup, &first, full.take()?)?;
    let block = second.alloc(kind, &full.pool, SIZE, &[&early])?;
    overwrite(&pending_free, &first, &second, block, &[])?;
    full.empty(&second)
}

/// The queue of a free may reuse the block, whose new use waits for the old one.
fn free_on_idle_queue_of_pending_use(setup: &Setup, kind: Kind) -> Done {
    let (user, owner) = (setup.in_order()?, setup.in_order()?);
    let mut full = Full::new(setup, kind, SIZE)?;
    let result = setup.result(SIZE)?;
    let block = full.take()?;
    let (gate, used) = use_later(setup, &user, block, &result)?;
    owner.free(block, &[&used])?;
    let again = owner.alloc(kind, &full.pool, SIZE, &[])?;
    owner
        .fill(again.ptr, B, SIZE, &[])?
        .completes_within(MOMENT)?;
    gate.open();
    user.finish()?;
    same_bytes(result.host(), A)?;
    all_bytes(&owner, again, B)?;
    owner.free(again, &[])?;
    full.empty(&owner)
}

/// Parts of a block whose free is pending are not given to another allocation.
fn parts_of_a_pending_block(setup: &Setup, kind: Kind) -> Done {
    let (first, second) = (setup.in_order()?, setup.in_order()?);
    let mut full = Full::new(setup, kind, 4 * MIB)?;
    let pending_free = PendingFree::new(setup, &first, full.take()?)?;
    let mut parts = Vec::new();
    for size in [64, 4 * KIB, 64 * KIB, MIB, 64, 2 * MIB] {
        let part = second.alloc(kind, &full.pool, size, &[])?;
        second.fill(part.ptr, B, size, &[])?;
        parts.push(part);
    }
    second.marker(&[])?.completes_within(MOMENT)?;
    pending_free.open_and_check(&first)?;
    parts
        .into_iter()
        .try_for_each(|part| second.free(part, &[]))?;
    full.empty(&second)
}

/// A free block does not merge with a neighbour whose free is pending.
fn neighbour_of_a_pending_block(setup: &Setup, kind: Kind) -> Done {
    let (first, second) = (setup.in_order()?, setup.in_order()?);
    let mut full = Full::new(setup, kind, SIZE)?;
    let mut pending_free = None;
    // All blocks but one in the middle are freed on the idle queue.
    let middle = full.filler.len() / 2;
    for (index, block) in std::mem::take(&mut full.filler).into_iter().enumerate() {
        match index == middle {
            true => pending_free = Some(PendingFree::new(setup, &first, block)?),
            false => second.free(block, &[])?,
        }
    }
    let large = second.alloc(kind, &full.pool, full.reserved / 4 * 3, &[])?;
    match pending_free {
        Some(pending_free) => overwrite(&pending_free, &first, &second, large, &[])?,
        None => return Err(Stop::failed("the pool has no block")),
    }
    full.empty(&second)
}

/// A block freed after two uses is not reused after only one of them.
fn free_after_two_uses(setup: &Setup, kind: Kind) -> Done {
    let queues = [setup.in_order()?, setup.in_order()?, setup.in_order()?];
    let mut full = Full::new(setup, kind, SIZE)?;
    let result = setup.result(SIZE)?;
    let block = full.take()?;
    let first = queues[1].fill(block.ptr, A, SIZE, &[])?;
    let gate = setup.gate(&queues[2])?;
    let second = queues[2].copy(result.ptr, block.ptr, SIZE, &[&first])?;
    queues[0].free(block, &[&first, &second])?;
    let other = queues[1].alloc(kind, &full.pool, SIZE, &[&first])?;
    queues[1]
        .fill(other.ptr, B, SIZE, &[])?
        .completes_within(MOMENT)?;
    gate.open();
    queues[2].finish()?;
    same_bytes(result.host(), A)?;
    queues[1].free(other, &[])?;
    queues.iter().try_for_each(Queue::finish)?;
    full.empty(&queues[0])
}

/// An out-of-order queue does not overwrite a block whose free is pending.
fn out_of_order_without_dependency(setup: &Setup, kind: Kind) -> Done {
    let (first, second) = (setup.in_order()?, setup.out_of_order()?);
    let mut full = Full::new(setup, kind, SIZE)?;
    let pending_free = PendingFree::new(setup, &first, full.take()?)?;
    let (block, allocated) = second.alloc_event(kind, &full.pool, SIZE, &[])?;
    overwrite(&pending_free, &first, &second, block, &[&allocated])?;
    full.empty(&second)
}

/// An allocation without an event on an out-of-order queue takes no block with a pending free.
///
/// No later command could wait for that allocation. On an out-of-order queue this holds for earlier frees
/// of the same queue too.
fn out_of_order_without_event(setup: &Setup, kind: Kind) -> Done {
    let queue = setup.out_of_order()?;
    let mut full = Full::new(setup, kind, SIZE)?;
    let result = setup.result(SIZE)?;
    let block = full.take()?;
    let (gate, copied) = use_later(setup, &queue, block, &result)?;
    queue.free(block, &[&copied])?;
    let other = queue.alloc(kind, &full.pool, SIZE, &[])?;
    check!(
        !other.overlaps(&block),
        "an allocation got a block whose free is pending"
    );
    let overwritten = queue.fill(other.ptr, B, SIZE, &[])?;
    completes(
        &overwritten,
        "a use that depends on nothing did not complete",
    )?;
    gate.open();
    queue.finish()?;
    same_bytes(result.host(), A)?;
    queue.free(other, &[])?;
    full.empty(&queue)
}

/// Hundreds of blocks with pending frees keep their data beside as many allocations.
fn many_pending_blocks(setup: &Setup) -> Done {
    const SMALL: usize = 16 * KIB;
    let (first, second) = (setup.in_order()?, setup.in_order()?);
    let mut full = Full::new(setup, Kind::Device, SMALL)?;
    let blocks: Vec<Block> = full.filler.drain(..).collect();
    let result = setup.result(blocks.len() * SMALL)?;
    for (index, block) in blocks.iter().enumerate() {
        first.fill(block.ptr, index as u8, SMALL, &[])?;
    }
    first.finish()?;
    let gate = setup.gate(&first)?;
    for (index, block) in blocks.iter().enumerate() {
        first.copy(
            result.ptr.wrapping_byte_add(index * SMALL),
            block.ptr,
            SMALL,
            &[],
        )?;
        first.free(*block, &[])?;
    }
    for _ in 0..blocks.len() {
        let block = second.alloc(Kind::Device, &full.pool, SMALL, &[])?;
        second.fill(block.ptr, 0xff_u8, SMALL, &[])?;
        second.free(block, &[])?;
    }
    second.finish()?;
    gate.open();
    first.finish()?;
    for (index, data) in result.host::<u8>().chunks(SMALL).enumerate() {
        same_bytes(data, index as u8)?;
    }
    full.empty(&second)
}

/// A live block is never given to another allocation, however much is freed around it.
fn live_blocks(setup: &Setup) -> Done {
    let (queue, other, pool) = (setup.in_order()?, setup.in_order()?, setup.pool()?);
    let mut live: Vec<(Block, u8)> = Vec::new();
    let mut random = 12_345_u32;
    for step in 0..1500_u32 {
        random = random.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let size = 64 + (random >> 8) as usize % (48 * KIB);
        if random.is_multiple_of(3) && !live.is_empty() {
            let (block, tag) = live.swap_remove((random >> 4) as usize % live.len());
            if step % 50 == 0 {
                all_bytes(&queue, block, tag)?;
            }
            let done = queue.marker(&[])?;
            if step.is_multiple_of(2) {
                queue.free(block, &[])?
            } else {
                other.free(block, &[&done])?
            };
        } else {
            let block = queue.alloc(Kind::Device, &pool, size, &[])?;
            check!(
                live.iter().all(|(other, _)| !other.overlaps(&block)),
                "a live block was handed out again"
            );
            queue.fill(block.ptr, step as u8, size, &[])?;
            live.push((block, step as u8));
        }
    }
    for (block, tag) in live {
        all_bytes(&queue, block, tag)?;
        queue.free(block, &[])?;
    }
    queue.finish()?;
    other.finish()?;
    check_eq!(pool.used()?, 0, "used bytes");
    Ok(())
}

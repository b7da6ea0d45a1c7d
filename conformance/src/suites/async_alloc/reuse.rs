//! Reuse that the program's own order allows: without growth and without waiting.
//!
//! In most tests the block's free is pending, so that only the order can justify the reuse.

use super::fixtures::{A, B, Full};
use super::*;
use crate::check_eq;

const SUITE: &str = "async_reuse";
const SIZE: usize = 300 * KIB;

pub fn all() -> Vec<Test> {
    let mut tests = by_kind(
        SUITE,
        &[
            ("same_queue", same_queue),
            ("same_queue_many_times", same_queue_many_times),
            (
                "across_queues_by_the_event_of_the_free",
                across_queues_by_the_event_of_the_free,
            ),
            (
                "across_queues_by_a_later_event",
                across_queues_by_a_later_event,
            ),
            ("across_queues_by_a_barrier", across_queues_by_a_barrier),
            ("through_a_third_queue", through_a_third_queue),
            ("on_the_queue_of_the_free", on_the_queue_of_the_free),
            ("after_finish", after_finish),
            ("after_a_wait_for_the_free", after_a_wait_for_the_free),
            ("after_a_status_query", after_a_status_query),
            ("after_device_wait", after_device_wait),
            ("split_of_a_larger_block", split_of_a_larger_block),
            ("merge_of_neighbours", merge_of_neighbours),
            ("ring_of_queues", ring_of_queues),
        ],
    );
    tests.extend(plain(
        SUITE,
        &[
            (
                "after_a_free_that_joins_two_queues",
                after_a_free_that_joins_two_queues,
            ),
            ("mixed_sizes_settle", mixed_sizes_settle),
        ],
    ));
    tests
}

/// An in-order queue reuses its freed block without growth and without waiting.
fn same_queue(setup: &Setup, kind: Kind) -> Done {
    let queue = setup.in_order()?;
    let mut full = Full::new(setup, kind, SIZE)?;
    let block = full.take()?;
    let gate = setup.gate(&queue)?;
    queue.fill(block.ptr, A, SIZE, &[])?;
    queue.free(block, &[])?;
    let again = queue.alloc(kind, &full.pool, SIZE, &[])?;
    full.has_not_grown()?;
    queue.fill(again.ptr, B, SIZE, &[])?;
    check!(!gate.event.is_complete()?, "the reuse waited for the gate");
    gate.open();
    all_bytes(&queue, again, B)?;
    queue.free(again, &[])?;
    full.empty(&queue)
}

/// One block serves 2,000 allocations of a blocked in-order queue.
fn same_queue_many_times(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let gate = setup.gate(&queue)?;
    for round in 0..2000 {
        let block = queue.alloc(kind, &pool, SIZE, &[])?;
        if round % 100 == 0 {
            queue.fill(block.ptr, round as u8, SIZE, &[])?;
        }
        queue.free(block, &[])?;
    }
    let high = pool.statistic(UR_USM_POOL_INFO_USED_HIGH_EXP)?;
    check!(
        high < 2 * SIZE,
        "one block at a time used {high} bytes, expected less than two blocks"
    );
    let one = pool.reserved()?;
    gate.open();
    queue.finish()?;
    // As much as one block takes, and no more.
    let fresh = setup.pool()?;
    let block = queue.alloc(kind, &fresh, SIZE, &[])?;
    check_eq!(
        one,
        fresh.reserved()?,
        "reserved bytes after 2000 rounds, compared with one block"
    );
    queue.free(block, &[])?;
    queue.finish()
}

/// Another queue reuses a block after the event of its free.
fn across_queues_by_the_event_of_the_free(setup: &Setup, kind: Kind) -> Done {
    let (first, second) = (setup.in_order()?, setup.in_order()?);
    let mut full = Full::new(setup, kind, SIZE)?;
    let block = full.take()?;
    let result = setup.result(SIZE)?;
    let gate = setup.gate(&first)?;
    first.fill(block.ptr, A, SIZE, &[])?;
    first.copy(result.ptr, block.ptr, SIZE, &[])?;
    let freed = first.free_event(block, &[])?;
    let again = second.alloc(kind, &full.pool, SIZE, &[&freed])?;
    full.has_not_grown()?;
    let filled = second.fill(again.ptr, B, SIZE, &[])?;
    pending(
        &filled,
        "a use of the new block ran before the old block's free",
    )?;
    gate.open();
    all_bytes(&second, again, B)?;
    same_bytes(result.host(), A)?;
    second.free(again, &[])?;
    full.empty(&second)
}

/// Another queue reuses a block after any event later than its free.
fn across_queues_by_a_later_event(setup: &Setup, kind: Kind) -> Done {
    let (first, second) = (setup.in_order()?, setup.in_order()?);
    let mut full = Full::new(setup, kind, SIZE)?;
    let block = full.take()?;
    let gate = setup.gate(&first)?;
    first.free(block, &[])?;
    let later = first.marker(&[])?;
    let again = second.alloc(kind, &full.pool, SIZE, &[&later])?;
    full.has_not_grown()?;
    gate.open();
    second.free(again, &[])?;
    full.empty(&second)
}

/// Another queue reuses a block after an earlier barrier on the event of its free.
fn across_queues_by_a_barrier(setup: &Setup, kind: Kind) -> Done {
    let first = setup.in_order()?;
    for second in [setup.in_order()?, setup.out_of_order()?] {
        let mut full = Full::new(setup, kind, SIZE)?;
        let block = full.take()?;
        let gate = setup.gate(&first)?;
        let freed = first.free_event(block, &[])?;
        second.barrier(&[&freed])?;
        let again = second.alloc(kind, &full.pool, SIZE, &[])?;
        full.has_not_grown()?;
        gate.open();
        second.finish()?;
        second.free(again, &[])?;
        full.empty(&second)?;
    }
    Ok(())
}

/// A third queue reuses a block after an event that depends on its free.
fn through_a_third_queue(setup: &Setup, kind: Kind) -> Done {
    let (first, second, third) = (setup.in_order()?, setup.out_of_order()?, setup.in_order()?);
    let mut full = Full::new(setup, kind, SIZE)?;
    let memory = setup.result(64)?;
    let block = full.take()?;
    let gate = setup.gate(&first)?;
    let freed = first.free_event(block, &[])?;
    let between = second.fill(memory.ptr, 1_u8, 64, &[&freed])?;
    let again = third.alloc(kind, &full.pool, SIZE, &[&between])?;
    full.has_not_grown()?;
    gate.open();
    third.free(again, &[])?;
    full.empty(&third)
}

/// The queue that freed another queue's block reuses it, after the block's last use.
fn on_the_queue_of_the_free(setup: &Setup, kind: Kind) -> Done {
    let (first, second) = (setup.in_order()?, setup.in_order()?);
    let mut full = Full::new(setup, kind, SIZE)?;
    let block = full.take()?;
    let gate = setup.gate(&first)?;
    let used = first.fill(block.ptr, A, SIZE, &[])?;
    second.free(block, &[&used])?;
    // The second queue is ordered after the free.
    let again = second.alloc(kind, &full.pool, SIZE, &[])?;
    full.has_not_grown()?;
    let filled = second.fill(again.ptr, B, SIZE, &[])?;
    pending(
        &filled,
        "a use of the new block ran before the old block's last use",
    )?;
    gate.open();
    first.finish()?;
    all_bytes(&second, again, B)?;
    second.free(again, &[])?;
    full.empty(&second)
}

/// Any queue reuses a block after `urQueueFinish` on the queue of its free.
fn after_finish(setup: &Setup, kind: Kind) -> Done {
    let (first, second) = (setup.in_order()?, setup.in_order()?);
    let mut full = Full::new(setup, kind, SIZE)?;
    first.free(full.take()?, &[])?;
    first.finish()?;
    let again = second.alloc(kind, &full.pool, SIZE, &[])?;
    full.has_not_grown()?;
    second.free(again, &[])?;
    full.empty(&second)
}

/// Any queue reuses a block after a host wait for the event of its free.
fn after_a_wait_for_the_free(setup: &Setup, kind: Kind) -> Done {
    let (first, second) = (setup.in_order()?, setup.out_of_order()?);
    let mut full = Full::new(setup, kind, SIZE)?;
    first.free_event(full.take()?, &[])?.wait()?;
    let again = second.alloc(kind, &full.pool, SIZE, &[])?;
    full.has_not_grown()?;
    second.free(again, &[])?;
    full.empty(&second)
}

/// Any queue reuses a block after a query that saw its free complete.
fn after_a_status_query(setup: &Setup, kind: Kind) -> Done {
    let (first, second) = (setup.in_order()?, setup.in_order()?);
    let mut full = Full::new(setup, kind, SIZE)?;
    let freed = first.free_event(full.take()?, &[])?;
    completes(
        &freed,
        "a free on an idle queue does not complete by itself",
    )?;
    let again = second.alloc(kind, &full.pool, SIZE, &[])?;
    full.has_not_grown()?;
    second.free(again, &[])?;
    full.empty(&second)
}

/// Any queue reuses a block after `urDeviceWaitExp`.
fn after_device_wait(setup: &Setup, kind: Kind) -> Done {
    let fixture = setup.fixture;
    let (first, second) = (setup.in_order()?, setup.in_order()?);
    fixture.require(UR_DEVICE_INFO_DEVICE_WAIT_SUPPORT_EXP, || {
        fixture.ur.urDeviceWaitExp(fixture.device)
    })?;
    let mut full = Full::new(setup, kind, SIZE)?;
    first.free(full.take()?, &[])?;
    fixture.ur.urDeviceWaitExp(fixture.device).ok()?;
    let again = second.alloc(kind, &full.pool, SIZE, &[])?;
    full.has_not_grown()?;
    second.free(again, &[])?;
    full.empty(&second)
}

/// Smaller blocks reuse the parts of a freed block without growth.
fn split_of_a_larger_block(setup: &Setup, kind: Kind) -> Done {
    let queue = setup.in_order()?;
    let mut full = Full::new(setup, kind, 4 * MIB)?;
    let block = full.take()?;
    let gate = setup.gate(&queue)?;
    queue.free(block, &[])?;
    let parts = (0..4)
        .map(|_| queue.alloc(kind, &full.pool, MIB, &[]))
        .collect::<Result<Vec<Block>, Stop>>()?;
    full.has_not_grown()?;
    for (index, part) in parts.iter().enumerate() {
        check!(
            parts[..index].iter().all(|other| !other.overlaps(part)),
            "parts of one block overlap"
        );
        queue.fill(part.ptr, index as u8, MIB, &[])?;
    }
    gate.open();
    for (index, part) in parts.into_iter().enumerate() {
        all_bytes(&queue, part, index as u8)?;
        queue.free(part, &[])?;
    }
    full.empty(&queue)
}

/// A large block reuses freed neighbours without growth.
fn merge_of_neighbours(setup: &Setup, kind: Kind) -> Done {
    let queue = setup.in_order()?;
    let mut full = Full::new(setup, kind, 256 * KIB)?;
    let gate = setup.gate(&queue)?;
    for block in std::mem::take(&mut full.filler) {
        queue.free(block, &[])?;
    }
    // Half of the free memory, in one block.
    let large = queue.alloc(kind, &full.pool, full.reserved / 2, &[])?;
    full.has_not_grown()?;
    gate.open();
    queue.free(large, &[])?;
    full.empty(&queue)
}

/// One block goes round three queues by events without growth.
fn ring_of_queues(setup: &Setup, kind: Kind) -> Done {
    let queues = [setup.in_order()?, setup.out_of_order()?, setup.in_order()?];
    let mut full = Full::new(setup, kind, SIZE)?;
    let result = setup.result(SIZE)?;
    let gate = setup.gate(&queues[0])?;
    let mut freed = queues[0].free_event(full.take()?, &[])?;
    for round in 0..100 {
        let queue = &queues[round % 3];
        let (block, allocated) = queue.alloc_event(kind, &full.pool, SIZE, &[&freed])?;
        let filled = queue.fill(block.ptr, round as u8, SIZE, &[&allocated])?;
        let last = if round == 99 {
            queue.copy(result.ptr, block.ptr, SIZE, &[&filled])?
        } else {
            filled
        };
        freed = queue.free_event(block, &[&last])?;
    }
    full.has_not_grown()?;
    gate.open();
    queues.iter().try_for_each(Queue::finish)?;
    same_bytes(result.host(), 99)?;
    full.empty(&queues[0])
}

/// A block whose free waited for two queues is reused after the event of that free.
fn after_a_free_that_joins_two_queues(setup: &Setup) -> Done {
    let (first, second, third) = (setup.in_order()?, setup.in_order()?, setup.in_order()?);
    let mut full = Full::new(setup, Kind::Device, SIZE)?;
    let block = full.take()?;
    let gates = [setup.gate(&first)?, setup.gate(&second)?];
    let used = [
        first.fill(block.ptr, A, SIZE / 2, &[])?,
        second.marker(&[])?,
    ];
    let freed = third.free_event(block, &[&used[0], &used[1]])?;
    let fourth = setup.in_order()?;
    let again = fourth.alloc(Kind::Device, &full.pool, SIZE, &[&freed])?;
    full.has_not_grown()?;
    let filled = fourth.fill(again.ptr, B, SIZE, &[])?;
    gates[0].open();
    pending(
        &filled,
        "a block was reused before the second of its uses completed",
    )?;
    gates[1].open();
    all_bytes(&fourth, again, B)?;
    fourth.free(again, &[])?;
    full.empty(&fourth)
}

/// A repeating pattern of sizes reserves nothing after its third round.
fn mixed_sizes_settle(setup: &Setup) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let mut settled = 0;
    for round in 0..30 {
        let sizes = [100, 3 * KIB, 70 * KIB, MIB, 5 * MIB, 900 * KIB, 64];
        let blocks = sizes
            .iter()
            .map(|size| queue.alloc(Kind::Device, &pool, *size, &[]))
            .collect::<Result<Vec<Block>, Stop>>()?;
        for block in blocks.into_iter().rev() {
            queue.free(block, &[])?;
        }
        if round == 2 {
            settled = pool.reserved()?;
        }
    }
    check_eq!(
        pool.reserved()?,
        settled,
        "reserved bytes after 30 rounds, compared with 3"
    );
    queue.finish()
}

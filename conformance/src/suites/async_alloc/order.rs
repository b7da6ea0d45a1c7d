//! When allocations and frees complete, and which commands they block.

use super::fixtures::{A, B};
use super::*;

const SUITE: &str = "async_order";

pub fn all() -> Vec<Test> {
    by_kind(
        SUITE,
        &[
            ("calls_do_not_block", calls_do_not_block),
            (
                "allocation_waits_for_its_list",
                allocation_waits_for_its_list,
            ),
            ("allocation_follows_its_queue", allocation_follows_its_queue),
            ("allocation_blocks_its_queue", allocation_blocks_its_queue),
            ("free_waits_for_its_list", free_waits_for_its_list),
            ("free_follows_its_queue", free_follows_its_queue),
            ("free_blocks_its_queue", free_blocks_its_queue),
            (
                "finish_covers_allocation_and_free",
                finish_covers_allocation_and_free,
            ),
            ("use_before_completion", use_before_completion),
            (
                "event_orders_use_on_another_queue",
                event_orders_use_on_another_queue,
            ),
            ("events_released_early", events_released_early),
            ("idle_queue_completes", idle_queue_completes),
            ("event_callback", event_callback),
        ],
    )
}

/// Calls that allocate and free return while their queue is blocked.
fn calls_do_not_block(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let gate = setup.gate(&queue)?;
    for round in 0..50 {
        let block = queue.alloc(kind, &pool, 4096 * (1 + round), &[])?;
        queue.fill(block.ptr, 1_u8, block.size, &[])?;
        queue.free(block, &[])?;
    }
    check!(
        !gate.is_open() && !gate.event.is_complete()?,
        "an allocation or a free waited for its queue"
    );
    gate.open();
    queue.finish()
}

/// An allocation completes only after its wait list.
fn allocation_waits_for_its_list(setup: &Setup, kind: Kind) -> Done {
    let (queue, other, pool) = (setup.in_order()?, setup.in_order()?, setup.pool()?);
    let gate = setup.gate(&other)?;
    let (block, allocated) = queue.alloc_event(kind, &pool, 4096, &[&gate.event])?;
    pending(&allocated, "an allocation completed before its wait list")?;
    gate.open();
    completes(
        &allocated,
        "an allocation did not complete after its wait list",
    )?;
    queue.free(block, &[])?;
    queue.finish()
}

/// An allocation completes after the earlier commands of its in-order queue.
fn allocation_follows_its_queue(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let gate = setup.gate(&queue)?;
    let (block, allocated) = queue.alloc_event(kind, &pool, 4096, &[])?;
    pending(
        &allocated,
        "an allocation completed before an earlier command of its in-order queue",
    )?;
    gate.open();
    completes(&allocated, "an allocation did not complete after its queue")?;
    queue.free(block, &[])?;
    queue.finish()
}

/// The wait list of an allocation blocks later commands of its in-order queue.
fn allocation_blocks_its_queue(setup: &Setup, kind: Kind) -> Done {
    let (queue, other, pool) = (setup.in_order()?, setup.in_order()?, setup.pool()?);
    let gate = setup.gate(&other)?;
    let block = queue.alloc(kind, &pool, 4096, &[&gate.event])?;
    let filled = queue.fill(block.ptr, 1_u8, 4096, &[])?;
    pending(
        &filled,
        "a command overtook the wait list of an allocation before it",
    )?;
    gate.open();
    completes(&filled, "a command did not complete")?;
    queue.free(block, &[])?;
    queue.finish()
}

/// A free completes only after its wait list.
fn free_waits_for_its_list(setup: &Setup, kind: Kind) -> Done {
    let (queue, other, pool) = (setup.in_order()?, setup.in_order()?, setup.pool()?);
    let block = queue.alloc(kind, &pool, 4096, &[])?;
    let gate = setup.gate(&other)?;
    let freed = queue.free_event(block, &[&gate.event])?;
    pending(&freed, "a free completed before its wait list")?;
    gate.open();
    completes(&freed, "a free did not complete after its wait list")
}

/// A free completes after the earlier commands of its in-order queue.
fn free_follows_its_queue(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let block = queue.alloc(kind, &pool, 4096, &[])?;
    let gate = setup.gate(&queue)?;
    let freed = queue.free_event(block, &[])?;
    pending(
        &freed,
        "a free completed before an earlier command of its in-order queue",
    )?;
    gate.open();
    completes(&freed, "a free did not complete after its queue")
}

/// The wait list of a free blocks later commands of its in-order queue.
fn free_blocks_its_queue(setup: &Setup, kind: Kind) -> Done {
    let (queue, other, pool) = (setup.in_order()?, setup.in_order()?, setup.pool()?);
    let memory = setup.result(64)?;
    let block = queue.alloc(kind, &pool, 4096, &[])?;
    let gate = setup.gate(&other)?;
    queue.free(block, &[&gate.event])?;
    let later = queue.fill(memory.ptr, 1_u8, 64, &[])?;
    pending(
        &later,
        "a command overtook the wait list of a free before it",
    )?;
    gate.open();
    completes(&later, "a command did not complete")
}

/// `urQueueFinish` waits for pending allocations and frees.
fn finish_covers_allocation_and_free(setup: &Setup, kind: Kind) -> Done {
    for queue in [setup.in_order()?, setup.out_of_order()?] {
        let (other, pool) = (setup.in_order()?, setup.pool()?);
        let gate = setup.gate(&other)?;
        let (block, allocated) = queue.alloc_event(kind, &pool, 4096, &[&gate.event])?;
        gate.open_after(MOMENT);
        queue.finish()?;
        check!(
            gate.is_open() && allocated.is_complete()?,
            "urQueueFinish did not wait for an allocation"
        );
        drop(gate);
        let gate = setup.gate(&other)?;
        let freed = queue.free_event(block, &[&gate.event])?;
        gate.open_after(MOMENT);
        queue.finish()?;
        check!(
            gate.is_open() && freed.is_complete()?,
            "urQueueFinish did not wait for a free"
        );
    }
    Ok(())
}

/// Commands on a block may be enqueued before its allocation completes.
fn use_before_completion(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let result = setup.result(64 * KIB)?;
    let gate = setup.gate(&queue)?;
    let block = queue.alloc(kind, &pool, 64 * KIB, &[])?;
    queue.fill(block.ptr, A, block.size, &[])?;
    queue.copy(result.ptr, block.ptr, block.size, &[])?;
    queue.free(block, &[])?;
    gate.open();
    queue.finish()?;
    same_bytes(result.host(), A)
}

/// The event of an allocation orders its use on another queue.
fn event_orders_use_on_another_queue(setup: &Setup, kind: Kind) -> Done {
    let (first, second, pool) = (setup.in_order()?, setup.out_of_order()?, setup.pool()?);
    let result = setup.result(64 * KIB)?;
    let gate = setup.gate(&first)?;
    let (block, allocated) = first.alloc_event(kind, &pool, 64 * KIB, &[])?;
    let filled = second.fill(block.ptr, B, block.size, &[&allocated])?;
    pending(&filled, "a use ordered after an allocation ran before it")?;
    let copied = second.copy(result.ptr, block.ptr, block.size, &[&filled])?;
    let freed = second.free_event(block, &[&copied])?;
    gate.open();
    completes(&freed, "a free on another queue did not complete")?;
    second.finish()?;
    same_bytes(result.host(), B)
}

/// Events released after their use in wait lists still order.
fn events_released_early(setup: &Setup, kind: Kind) -> Done {
    let (first, second, pool) = (setup.in_order()?, setup.in_order()?, setup.pool()?);
    let result = setup.result(4096)?;
    let gate = setup.gate(&first)?;
    let (block, allocated) = first.alloc_event(kind, &pool, 4096, &[])?;
    let filled = second.fill(block.ptr, A, 4096, &[&allocated])?;
    drop(allocated);
    second.copy(result.ptr, block.ptr, 4096, &[&filled])?;
    drop(filled);
    let freed = second.free_event(block, &[])?;
    let (again, allocated) = first.alloc_event(kind, &pool, 4096, &[&freed])?;
    drop(freed);
    first.free(again, &[])?;
    gate.open();
    first.finish()?;
    second.finish()?;
    check!(
        allocated.is_complete()?,
        "an allocation is not complete after urQueueFinish"
    );
    same_bytes(result.host(), A)
}

/// Allocations and frees on an idle queue complete without another call.
fn idle_queue_completes(setup: &Setup, kind: Kind) -> Done {
    for queue in [setup.in_order()?, setup.out_of_order()?] {
        let pool = setup.pool()?;
        let (block, allocated) = queue.alloc_event(kind, &pool, 4096, &[])?;
        completes(
            &allocated,
            "an allocation on an idle queue does not complete by itself",
        )?;
        let freed = queue.free_event(block, &[])?;
        completes(
            &freed,
            "a free on an idle queue does not complete by itself",
        )?;
    }
    Ok(())
}

/// Callbacks on the events of an allocation and a free run once each, after completion.
fn event_callback(setup: &Setup, kind: Kind) -> Done {
    use std::sync::atomic::{AtomicU32, Ordering};
    unsafe extern "C" fn count(
        _: ur_event_handle_t,
        _: ur_execution_info_t,
        data: *mut std::ffi::c_void,
    ) {
        // SAFETY: the counter below is leaked.
        unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
    }
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let counter = crate::leak::leak(AtomicU32::new(0));
    let gate = setup.gate(&queue)?;
    let (block, allocated) = queue.alloc_event(kind, &pool, 4096, &[])?;
    let freed = queue.free_event(block, &[])?;
    for event in [&allocated, &freed] {
        let data = (&raw const *counter).cast_mut().cast();
        setup
            .fixture
            .ur
            .urEventSetCallback(event.raw, UR_EXECUTION_INFO_COMPLETE, Some(count), data)
            .ok()?;
    }
    std::thread::sleep(MOMENT);
    check!(
        counter.load(Ordering::SeqCst) == 0,
        "a callback ran before its command completed"
    );
    gate.open();
    queue.finish()?;
    let end = std::time::Instant::now() + LONG;
    while counter.load(Ordering::SeqCst) < 2 && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    check!(
        counter.load(Ordering::SeqCst) == 2,
        "{} of 2 callbacks ran",
        counter.load(Ordering::SeqCst)
    );
    Ok(())
}

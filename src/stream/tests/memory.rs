//! Asynchronous allocation: bookkeeping, reuse, refusal.

use crate::abi::*;
use crate::hal::{self, UsmAllocInfo};
use crate::stream::testing::*;
use crate::stream::{Context, Kind, Queue};

const MIB: usize = 1 << 20;

#[test]
fn allocation_and_free_do_not_call_the_driver() {
    let fixture = Fixture::<Polled>::new();
    let queue = fixture.in_order();
    free_only(&queue, alloc_only(&queue, None, MIB, &[]).unwrap(), &[]).unwrap();
    let calls = fixture.driver.calls();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let block = alloc_only(&queue, None, MIB, &[]).unwrap();
        seen.insert(block);
        free_only(&queue, block, &[]).unwrap();
    }
    assert_eq!(fixture.driver.calls(), calls);
    assert_eq!(seen.len(), 1);
    // Nor while commands are pending.
    launch_only(&queue, 1, &[]);
    let block = alloc_only(&queue, None, MIB, &[]).unwrap();
    launch_only(&queue, 2, &[]);
    free_only(&queue, block, &[]).unwrap();
    assert_eq!(alloc_only(&queue, None, MIB, &[]), Ok(block));
    let [submits, waits, marks, acquires] = fixture.driver.calls();
    assert_eq!([submits - 2, waits, marks, acquires], calls);
    fixture.driver.run();
}

fn events_carry_reuse_across_queues<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let (p, q, r) = (
        fixture.in_order(),
        fixture.in_order(),
        fixture.out_of_order(),
    );
    let block = alloc_only(&p, None, MIB, &[]).unwrap();
    launch_only(&p, 1, &[]);
    let death = free(&p, block, &[]).unwrap();
    assert_eq!(death.command(), UR_COMMAND_ENQUEUE_USM_FREE_EXP);
    let refused = alloc_only(&q, None, MIB, &[]).unwrap();
    assert_ne!(refused, block, "nothing orders it");
    assert_eq!(fixture.driver.waits(), 0);
    assert_ne!(alloc_only(&r, None, MIB, &[]).unwrap(), block, "nor here");
    let (taken, event) = alloc(&r, None, MIB, &[&death]).unwrap();
    assert_eq!(taken, block);
    assert_ne!(status(&event), UR_EVENT_STATUS_COMPLETE);
    free(&r, taken, &[&event]).unwrap();
    assert_eq!(
        alloc_only(&q, None, MIB, &[&event]),
        Ok(block),
        "transitively"
    );
    assert!(fixture.driver.waits() <= 1);
    fixture.driver.run();
}

#[test]
fn events_carry_reuse_across_queues_when_tracked() {
    events_carry_reuse_across_queues::<Tracked>();
}

#[test]
fn events_carry_reuse_across_queues_when_polled() {
    events_carry_reuse_across_queues::<Polled>();
}

#[test]
fn completion_carries_reuse_across_queues_when_tracked() {
    completion_carries_reuse_across_queues::<Tracked>();
}

#[test]
fn completion_carries_reuse_across_queues_when_looked_for() {
    completion_carries_reuse_across_queues::<Polled>();
}

/// The predecessors are on lanes, which a wait for everything covers anyway.
fn frees_out_of_order_record_nothing<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let (queue, other) = (fixture.out_of_order(), fixture.in_order());
    for label in 0..20 {
        let (block, made) = alloc(&queue, None, 64 << 10, &[]).unwrap();
        let ran = launch(&queue, label, &[&made]);
        free(&queue, block, &[&ran]).unwrap();
    }
    assert_eq!(fixture.driver.calls()[2], 0, "nobody has an event any more");
    let all = marker(&queue, &[]);
    assert_ne!(status(&all), UR_EVENT_STATUS_COMPLETE);
    fixture.driver.run();
    assert_eq!(status(&all), UR_EVENT_STATUS_COMPLETE);
    // No query follows elsewhere.
    let block = alloc_only(&queue, None, 64 << 10, &[]).unwrap();
    let ran = launch(&other, 20, &[]);
    free_only(&queue, block, &[&ran]).unwrap();
    drop(ran);
    let all = marker(&queue, &[]);
    assert_ne!(status(&all), UR_EVENT_STATUS_COMPLETE);
    assert_ne!(alloc_only(&queue, None, 64 << 10, &[]), Ok(block));
    fixture.driver.run();
    assert_eq!(status(&all), UR_EVENT_STATUS_COMPLETE);
}

#[test]
fn frees_out_of_order_record_nothing_when_tracked() {
    frees_out_of_order_record_nothing::<Tracked>();
}

#[test]
fn frees_out_of_order_record_nothing_when_polled() {
    frees_out_of_order_record_nothing::<Polled>();
}

fn completion_carries_reuse_across_queues<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let (p, q) = (fixture.in_order(), fixture.out_of_order());
    // All of a page, so that no other memory is free.
    let block = alloc_only(&p, None, 2 * MIB, &[]).unwrap();
    launch_only(&p, 1, &[]);
    free_only(&p, block, &[]).unwrap();
    fixture.driver.run();
    let grown = fixture.driver.calls()[3];
    assert_eq!(alloc_only(&q, None, 2 * MIB, &[]), Ok(block));
    assert_eq!(fixture.driver.calls()[3], grown);
}

fn a_busy_lane_reports_its_progress<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let (p, q) = (fixture.in_order(), fixture.in_order());
    let line = fixture.driver.lanes.lock().unwrap()[0].number;
    let block = alloc_only(&p, None, 2 * MIB, &[]).unwrap();
    launch_only(&p, 1, &[]);
    free_only(&p, block, &[]).unwrap();
    // No use has completed, so another block is given. A driver that must be polled records a marker.
    let other = alloc_only(&q, None, 2 * MIB, &[]).unwrap();
    assert_ne!(other, block);
    launch_only(&p, 2, &[]);
    let steps = if D::TRACKS { 1 } else { 2 };
    assert!((0..steps).all(|_| fixture.driver.step(line)));
    assert_eq!(fixture.driver.ran(), [1]);
    let calls = fixture.driver.calls();
    assert_eq!(alloc_only(&q, None, 2 * MIB, &[]), Ok(block));
    // A lane has few markers, however often it is queried.
    for _ in 0..10 {
        launch_only(&p, 3, &[]);
        alloc_only(&q, None, 4 * MIB, &[]).unwrap();
    }
    let marks = fixture.driver.calls()[2] - calls[2];
    assert!(marks <= 5, "{marks} markers");
    fixture.driver.run();
    free_only(&q, block, &[]).unwrap();
    free_only(&q, other, &[]).unwrap();
}

#[test]
fn a_busy_lane_reports_its_progress_when_tracked() {
    a_busy_lane_reports_its_progress::<Tracked>();
}

#[test]
fn a_busy_lane_reports_its_progress_when_polled() {
    a_busy_lane_reports_its_progress::<Polled>();
}

#[test]
fn an_out_of_order_free_is_ordered_by_its_list_and_barriers() {
    let fixture = Fixture::<Tracked>::new();
    let queue = fixture.out_of_order();
    let block = alloc_only(&queue, None, MIB, &[]).unwrap();
    let used = launch(&queue, 1, &[]);
    let freed = free(&queue, block, &[&used]).unwrap();
    assert_ne!(alloc_only(&queue, None, MIB, &[]).unwrap(), block);
    let command = UR_COMMAND_EVENTS_WAIT_WITH_BARRIER;
    without(&[], |waits, event| {
        Queue::join_events(&queue, command, waits, event, true)
    })
    .unwrap();
    let (again, event) = alloc(&queue, None, MIB, &[]).unwrap();
    assert_eq!(again, block, "the barrier covers the free");
    assert_eq!(
        (status(&freed), status(&event)),
        (UR_EVENT_STATUS_SUBMITTED, UR_EVENT_STATUS_SUBMITTED)
    );
    fixture.driver.run();
    assert_eq!(
        (status(&freed), status(&event)),
        (UR_EVENT_STATUS_COMPLETE, UR_EVENT_STATUS_COMPLETE)
    );
}

#[test]
fn barriers_and_finish_cover_pending_allocations() {
    let fixture = Fixture::<Tracked>::new();
    let (p, q) = (fixture.in_order(), fixture.out_of_order());
    let far = launch(&p, 1, &[]);
    let (_, pending) = alloc(&q, None, MIB, &[&far]).unwrap();
    let command = UR_COMMAND_EVENTS_WAIT_WITH_BARRIER;
    without(&[], |waits, event| {
        Queue::join_events(&q, command, waits, event, true)
    })
    .unwrap();
    let after = launch(&q, 2, &[]);
    let q_line = fixture.driver.lanes.lock().unwrap()[1].number;
    assert!(!fixture.driver.step(q_line));
    q.finish_here().unwrap();
    assert_eq!(fixture.driver.ran(), [1, 2]);
    assert_eq!(
        (status(&pending), status(&after)),
        (UR_EVENT_STATUS_COMPLETE, UR_EVENT_STATUS_COMPLETE)
    );
    // `finish` alone covers them, too.
    let far = launch(&p, 3, &[]);
    let (block, pending) = alloc(&q, None, MIB, &[&far]).unwrap();
    free_only(&q, block, &[&pending]).unwrap();
    q.finish_here().unwrap();
    assert_eq!(fixture.driver.ran(), [1, 2, 3]);
}

#[test]
fn unknown_pointers_are_refused_and_enqueue_nothing() {
    let fixture = Fixture::<Tracked>::new();
    let (p, q) = (fixture.in_order(), fixture.in_order());
    let far = launch(&p, 1, &[]);
    let block = alloc_only(&q, None, MIB, &[]).unwrap();
    let invalid = Some(UR_RESULT_ERROR_INVALID_MEM_OBJECT);
    assert_eq!(code(free_only(&q, 0x10, &[&far])), invalid);
    assert_eq!(
        code(free_only(&q, block + 1, &[&far])),
        invalid,
        "no interior pointer"
    );
    assert_eq!(fixture.driver.waits(), 0);
    free_only(&q, block, &[]).unwrap();
    assert_eq!(code(free_only(&q, block, &[])), invalid, "freed already");
    assert_eq!(code(fixture.context.free_now(block)), invalid);
    fixture.driver.run();
}

#[test]
fn synchronous_usm_takes_only_what_is_complete() {
    let fixture = Fixture::<Tracked>::new();
    let (p, q) = (fixture.in_order(), fixture.out_of_order());
    let now = || {
        let device = Some(&*fixture.device);
        let made = Context::alloc_now(&fixture.context, Kind::Device, device, None, None, MIB);
        made.unwrap().addr()
    };
    let block = alloc_only(&p, None, MIB, &[]).unwrap();
    launch_only(&p, 1, &[]);
    free_only(&p, block, &[]).unwrap();
    let first = now();
    assert_ne!(first, block);
    launch_only(&q, 2, &[]);
    fixture.context.free_now(first).unwrap();
    assert_ne!(now(), first, "it dies with all that was enqueued");
    assert_eq!(
        alloc_only(&p, None, MIB, &[]),
        Ok(block),
        "queues keep their shortcuts"
    );
    free_only(&p, block, &[]).unwrap();
    fixture.driver.run();
    let grown = fixture.driver.calls()[3];
    let three = [now(), now(), now()];
    assert!(three.contains(&block) && three.contains(&first));
    assert_eq!(fixture.driver.calls()[3], grown);
    // A pointer of one kind may be freed by the other function, too.
    free_only(&p, block, &[]).unwrap();
    assert_eq!(alloc_only(&p, None, MIB, &[]), Ok(block));
}

#[test]
fn allocations_are_known_by_any_address_inside() {
    let fixture = Fixture::<Tracked>::new();
    let queue = fixture.in_order();
    let pool = fixture.pool(0, usize::MAX);
    let of = |addr: usize, what: UsmAllocInfo| {
        info::<usize>(|out| Context::alloc_info(&fixture.context, addr, what, out))
    };
    let kind = |addr: usize| {
        info::<ur_usm_type_t>(|out| {
            Context::alloc_info(&fixture.context, addr, UsmAllocInfo::Type, out)
        })
    };
    let block = alloc_only(&queue, Some(&pool), 1000, &[]).unwrap();
    assert_eq!(kind(block + 999), Ok(UR_USM_TYPE_DEVICE));
    assert_eq!(of(block + 999, UsmAllocInfo::BasePtr), Ok(block));
    assert_eq!(of(block, UsmAllocInfo::Size), Ok(1000));
    assert_eq!(
        of(block, UsmAllocInfo::Device),
        Ok(fixture.device.handle().addr())
    );
    assert_eq!(of(block, UsmAllocInfo::Pool), Ok(pool.handle().addr()));
    assert_eq!(kind(block + 1000), Ok(UR_USM_TYPE_UNKNOWN));
    assert_eq!(
        code(of(8, UsmAllocInfo::Size)),
        Some(UR_RESULT_ERROR_INVALID_MEM_OBJECT)
    );
    let host = Context::alloc_now(&fixture.context, Kind::Host, None, None, None, 64)
        .unwrap()
        .addr();
    assert_eq!(
        (kind(host), of(host, UsmAllocInfo::Device)),
        (Ok(UR_USM_TYPE_HOST), Ok(0))
    );
    let default = Context::default_pool(&fixture.context, &fixture.device).unwrap();
    assert_eq!(of(host, UsmAllocInfo::Pool), Ok(default.handle().addr()));
    // Commands must stay inside the allocation.
    assert!(fixture.context.check_range(block + 500, 500).is_ok());
    assert_eq!(
        code(fixture.context.check_range(block + 500, 501)),
        Some(UR_RESULT_ERROR_INVALID_SIZE)
    );
}

#[test]
fn cached_allocation_extents_are_never_stale() {
    let fixture = Fixture::<Tracked>::new();
    let (queue, other) = (fixture.in_order(), fixture.in_order());
    let check = |addr: usize, bytes: usize| code(fixture.context.check_range(addr, bytes));
    let outside = Some(UR_RESULT_ERROR_INVALID_SIZE);
    // From the lane's own cache, shorter and longer.
    let block = alloc_only(&queue, None, 1000, &[]).unwrap();
    assert_eq!(check(block, 1000), None);
    for bytes in [1000, 900, 901, 800, 1000] {
        free_only(&queue, block, &[]).unwrap();
        // Free memory has no bounds, whatever is allocated there later.
        assert_eq!(check(block, 1 << 20), None);
        assert_eq!(alloc_only(&queue, None, bytes, &[]), Ok(block));
        assert_eq!(
            (check(block, bytes), check(block, bytes + 1)),
            (None, outside)
        );
        assert_eq!(
            (check(block + 9, bytes - 9), check(block + 9, bytes)),
            (None, outside)
        );
    }
    // Allocated through the pool.
    let death = free(&queue, block, &[]).unwrap();
    let block = alloc_only(&other, None, 30, &[&death]).unwrap();
    assert_eq!((check(block, 30), check(block, 31)), (None, outside));
    // Memory that this context did not allocate.
    assert_eq!((check(8, 1 << 20), check(8, 1 << 20)), (None, None));
}

#[test]
fn default_and_current_pools_are_stable() {
    let fixture = Fixture::<Tracked>::new();
    let queue = fixture.in_order();
    let default = || Context::default_pool(&fixture.context, &fixture.device).unwrap();
    let current = || Context::current_pool(&fixture.context, &fixture.device).unwrap();
    assert!(std::sync::Arc::ptr_eq(&default(), &default()));
    assert!(std::sync::Arc::ptr_eq(&default(), &current()));
    let pool = fixture.pool(0, usize::MAX);
    pool.retain();
    fixture
        .context
        .set_current_pool(&fixture.device, &pool)
        .unwrap();
    assert!(std::sync::Arc::ptr_eq(&current(), &pool));
    assert!(!std::sync::Arc::ptr_eq(&default(), &pool));
    alloc_only(&queue, None, MIB, &[]).unwrap();
    assert_eq!(pool.core().used.read().0 as usize, MIB);
    // The context keeps the pool.
    let weak = std::sync::Arc::downgrade(&pool);
    pool.release().unwrap();
    drop(pool);
    alloc_only(&queue, None, MIB, &[]).unwrap();
    assert!(weak.upgrade().is_some());
    fixture
        .context
        .set_current_pool(&fixture.device, &default())
        .unwrap();
    assert!(weak.upgrade().is_none());
    let destroy = hal::Context::<Tracked>::usm_pool_destroy_exp(
        &fixture.context,
        &fixture.device,
        &default(),
    );
    assert_eq!(code(destroy), Some(UR_RESULT_ERROR_INVALID_VALUE));
    let other = Fixture::<Tracked>::new();
    let foreign = other.pool(0, 0);
    let set = fixture.context.set_current_pool(&fixture.device, &foreign);
    assert_eq!(code(set), Some(UR_RESULT_ERROR_INVALID_VALUE));
}

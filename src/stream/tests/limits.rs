//! Maximum sizes, thresholds, statistics, zero-initialised pools and pools over user memory.

use crate::abi::*;
use crate::hal::{self, UsmPoolInfo};
use crate::object::{InfoIn, Result};
use crate::stream::queue::alloc;
use crate::stream::testing::*;
use crate::stream::{Context, Event, Kind, UsmPool};
use std::sync::atomic::{AtomicUsize, Ordering};

const MIB: usize = 1 << 20;

fn figure<D: AnyFake>(pool: &PoolArc<D>, what: UsmPoolInfo) -> usize {
    info::<usize>(|out| hal::UsmPool::<D>::get_info_exp(pool, what, out)).unwrap()
}

fn set<D: AnyFake>(pool: &PoolArc<D>, what: UsmPoolInfo, value: usize) -> Result<()> {
    // SAFETY: the value is alive and has this size.
    let input = unsafe { InfoIn::new(size_of::<usize>(), (&raw const value).cast()) }?;
    hal::UsmPool::<D>::set_info_exp(pool, what, input)
}

fn a_full_pool_waits_in_queue_order<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let pool = fixture.pool(MIB, usize::MAX);
    let (p, q) = (fixture.in_order(), fixture.in_order());
    let block = alloc_only(&p, Some(&pool), MIB, &[]).unwrap();
    launch_only(&p, 1, &[]);
    free_only(&p, block, &[]).unwrap();
    let grown = fixture.driver.calls()[3];
    assert_eq!(alloc_only(&q, Some(&pool), MIB, &[]), Ok(block));
    assert_eq!(
        (fixture.driver.waits(), fixture.driver.calls()[3]),
        (1, grown),
        "one wait, no growth"
    );
    launch_only(&q, 2, &[]);
    let q_line = fixture.driver.lanes.lock().unwrap()[1].number;
    assert!(!fixture.driver.step(q_line), "the use waits for the death");
    free_only(&q, block, &[]).unwrap();
    // On an out-of-order queue the event carries the wait.
    let r = fixture.out_of_order();
    let dry = Some(UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
    let (again, event) = alloc(&r, Some(&pool), MIB, &[]).unwrap();
    assert_eq!((again, status(&event)), (block, UR_EVENT_STATUS_SUBMITTED));
    launch_only(&r, 3, &[&event]);
    fixture.driver.run();
    assert_eq!(fixture.driver.ran(), [1, 2, 3]);
    assert_eq!(
        code(alloc_only(&p, Some(&pool), MIB, &[])),
        dry,
        "live memory cannot be waited for"
    );
    let host = without(&[], |waits, out| {
        alloc::alloc(&p, Kind::Host, Some(&*pool), MIB, waits, out)
    });
    assert_eq!(code(host), Some(UR_RESULT_ERROR_OUT_OF_HOST_MEMORY));
    // Without an event the host waits.
    let last = launch(&r, 4, &[&event]);
    free_only(&r, block, &[&last]).unwrap();
    assert_eq!(alloc_only(&r, Some(&pool), MIB, &[]), Ok(block));
    assert_eq!(fixture.driver.ran(), [1, 2, 3, 4]);
}

#[test]
fn a_full_pool_waits_in_queue_order_when_tracked() {
    a_full_pool_waits_in_queue_order::<Tracked>();
}

#[test]
fn a_full_pool_waits_in_queue_order_when_polled() {
    a_full_pool_waits_in_queue_order::<Polled>();
}

/// Four slabs of a quarter each are pending on two queues.
///
/// The host waits for one queue, whose slabs are released for a new one.
fn pending_quarters_make_room_for_three<D: AnyFake>() {
    for ask in 0..4 {
        let fixture = Fixture::<D>::new();
        let pool = fixture.pool(8 * MIB, usize::MAX);
        let (p, q) = (fixture.in_order(), fixture.in_order());
        let queues = [&p, &p, &q, &p];
        let blocks = queues.map(|queue| alloc_only(queue, Some(&pool), 2 * MIB, &[]).unwrap());
        launch_only(&p, 1, &[]);
        launch_only(&q, 2, &[]);
        for (queue, block) in queues.iter().zip(blocks) {
            free_only(queue, block, &[]).unwrap();
        }
        let (asks, size) = (fixture.out_of_order(), 6 * MIB);
        let (asks, event) = match ask {
            0 => (&p, false),
            1 => (&q, true),
            2 => (&asks, false),
            _ => (&asks, true),
        };
        let block = match event {
            true => alloc(asks, Some(&pool), size, &[]).map(|(block, _)| block),
            false => alloc_only(asks, Some(&pool), size, &[]),
        };
        assert!(block.is_ok(), "{:?}", code(block));
        assert!(fixture.driver.ran().contains(&1));
        assert_eq!(figure(&pool, UsmPoolInfo::ReservedHighExp), 8 * MIB);
        assert_eq!(pool.core().counters().failed, 0);
        let more = alloc_only(asks, Some(&pool), 4 * MIB, &[]);
        assert_eq!(code(more), Some(UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY));
        assert_eq!(pool.core().counters().failed, 1);
    }
}

#[test]
fn pending_quarters_make_room_for_three_when_tracked() {
    pending_quarters_make_room_for_three::<Tracked>();
}

#[test]
fn pending_quarters_make_room_for_three_when_polled() {
    pending_quarters_make_room_for_three::<Polled>();
}

/// The wait covers pending memory of other kinds under the maximum, and of other pools where the driver has
/// no more.
#[test]
fn the_host_waits_for_memory_of_other_kinds_and_pools() {
    let fixture = Fixture::<Polled>::new();
    let (p, q) = (fixture.in_order(), fixture.in_order());
    let pool = fixture.pool(4 * MIB, usize::MAX);
    let host = |queue: &QueueArc<Polled>, pool: Option<&PoolArc<Polled>>| {
        without(&[], |waits, out| {
            let pool = pool.map(|pool| &**pool);
            alloc::alloc(queue, Kind::Host, pool, 4 * MIB, waits, out)
        })
    };
    let device = alloc_only(&p, Some(&pool), 4 * MIB, &[]).unwrap();
    launch_only(&p, 1, &[]);
    free_only(&p, device, &[]).unwrap();
    let block = host(&q, Some(&pool)).unwrap();
    assert_eq!(fixture.driver.ran(), [1]);
    launch_only(&q, 2, &[]);
    free_only(&q, block.addr(), &[]).unwrap();
    *fixture.driver.room.lock().unwrap() = Some(4 * MIB);
    host(&p, None).unwrap();
    assert_eq!(fixture.driver.ran(), [1, 2]);
    assert_eq!(figure(&pool, UsmPoolInfo::ReservedCurrentExp), 0);
}

#[test]
fn a_maximum_holds_over_all_kinds_together() {
    let fixture = Fixture::<Tracked>::new();
    let pool = fixture.pool(8 * MIB, usize::MAX);
    let queue = fixture.in_order();
    let of = |kind| {
        without(&[], |waits, out| {
            alloc::alloc(&queue, kind, Some(&*pool), 4 * MIB, waits, out)
        })
    };
    let device = of(Kind::Device).unwrap().addr();
    of(Kind::Shared).unwrap();
    assert_eq!(
        code(of(Kind::Host)),
        Some(UR_RESULT_ERROR_OUT_OF_HOST_MEMORY)
    );
    assert_eq!(figure(&pool, UsmPoolInfo::ReservedCurrentExp), 8 * MIB);
    free_only(&queue, device, &[]).unwrap();
    // Idle memory of one kind is released for another.
    of(Kind::Host).unwrap();
    assert_eq!(figure(&pool, UsmPoolInfo::ReservedCurrentExp), 8 * MIB);
    assert_eq!(figure(&pool, UsmPoolInfo::ReservedHighExp), 8 * MIB);
    assert_eq!(figure(&pool, UsmPoolInfo::UsedHighExp), 8 * MIB);
    assert_eq!(figure(&pool, UsmPoolInfo::MaximumSizeExp), 8 * MIB);
}

#[test]
fn a_synchronous_request_waits_on_the_host_for_room() {
    let fixture = Fixture::<Tracked>::new();
    let pool = fixture.pool(MIB, usize::MAX);
    let queue = fixture.in_order();
    let block = alloc_only(&queue, Some(&pool), MIB, &[]).unwrap();
    let now = |kind| {
        let device = Some(&*fixture.device);
        Context::alloc_now(&fixture.context, kind, device, None, Some(&*pool), MIB)
            .map(|ptr| ptr.addr())
    };
    assert_eq!(
        code(now(Kind::Device)),
        Some(UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)
    );
    launch_only(&queue, 1, &[]);
    free_only(&queue, block, &[]).unwrap();
    assert_eq!(now(Kind::Device), Ok(block));
    assert_eq!(fixture.driver.ran(), [1]);
    launch_only(&queue, 2, &[]);
    free_only(&queue, block, &[]).unwrap();
    assert!(
        now(Kind::Shared).is_ok(),
        "room that another kind gives back"
    );
    assert_eq!(fixture.driver.ran(), [1, 2]);
}

#[test]
fn memory_pressure_releases_other_pools_idle_memory() {
    let fixture = Fixture::<Tracked>::new();
    *fixture.driver.room.lock().unwrap() = Some(2 * MIB);
    let queue = fixture.in_order();
    let pool = fixture.pool(0, usize::MAX);
    let block = alloc_only(&queue, Some(&pool), 2 * MIB, &[]).unwrap();
    let dry = Some(UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
    assert_eq!(code(alloc_only(&queue, None, MIB, &[])), dry);
    free_only(&queue, block, &[]).unwrap();
    assert!(alloc_only(&queue, None, MIB, &[]).is_ok());
    assert_eq!(figure(&pool, UsmPoolInfo::ReservedCurrentExp), 0);
}

#[test]
fn thresholds_are_settled_before_a_wait_returns() {
    let fixture = Fixture::<Tracked>::new();
    let queue = fixture.in_order();
    let reserved = |pool: &PoolArc<_>| figure(pool, UsmPoolInfo::ReservedCurrentExp);
    let cycle = |pool: &PoolArc<_>| {
        let block = alloc_only(&queue, Some(pool), 4 * MIB, &[]).unwrap();
        launch_only(&queue, 1, &[]);
        free(&queue, block, &[]).unwrap()
    };
    let (none, some, all) = (
        fixture.pool(0, 0),
        fixture.pool(0, 4 * MIB),
        fixture.pool(0, usize::MAX),
    );
    for pool in [&none, &some, &all] {
        cycle(pool);
        assert_eq!(reserved(pool), 4 * MIB, "nothing goes before a wait");
    }
    queue.finish_here().unwrap();
    assert_eq!([&none, &some, &all].map(reserved), [0, 4 * MIB, 4 * MIB]);
    let event = cycle(&none);
    let handles = [event.handle()];
    <Event<Tracked> as hal::Event<Tracked>>::wait(list::<Tracked, _>(&handles)).unwrap();
    assert_eq!(reserved(&none), 0);
    cycle(&none);
    fixture.engine.wait_device(&fixture.device).unwrap();
    assert_eq!(reserved(&none), 0);
    set(&some, UsmPoolInfo::ReleaseThresholdExp, MIB).unwrap();
    assert_eq!(
        (
            reserved(&some),
            figure(&some, UsmPoolInfo::ReleaseThresholdExp)
        ),
        (4 * MIB, MIB)
    );
    queue.finish_here().unwrap();
    assert_eq!(reserved(&some), 0, "whole slabs go");
    all.core().trim(0);
    assert_eq!(reserved(&all), 0);
}

#[test]
fn a_wait_settles_pools_again_once_one_is_dirty() {
    let fixture = Fixture::<Tracked>::new();
    let queue = fixture.in_order();
    let pool = fixture.pool(0, usize::MAX);
    let reserved = || figure(&pool, UsmPoolInfo::ReservedCurrentExp);
    let cycle = || {
        let block = alloc_only(&queue, Some(&pool), 4 * MIB, &[]).unwrap();
        free(&queue, block, &[]).unwrap()
    };
    let memory = &fixture.context.domain().memory;
    let wait = |event: &EventArc<Tracked>| {
        let handles = [event.handle()];
        <Event<Tracked> as hal::Event<Tracked>>::wait(list::<Tracked, _>(&handles)).unwrap();
    };
    let first = cycle();
    wait(&first);
    assert!(!memory.wants_settling(), "and from now on nobody looks");
    assert_eq!(reserved(), 4 * MIB);
    set(&pool, UsmPoolInfo::ReleaseThresholdExp, 0).unwrap();
    wait(&first);
    assert_eq!(reserved(), 0, "an event awaited before settles, too");
    let block = alloc_only(&queue, Some(&pool), 4 * MIB, &[]).unwrap();
    wait(&first);
    assert_eq!(reserved(), 4 * MIB, "it is in use");
    wait(&free(&queue, block, &[]).unwrap());
    assert_eq!(reserved(), 0, "a pool with a threshold is always looked at");
    set(&pool, UsmPoolInfo::ReleaseThresholdExp, usize::MAX).unwrap();
    let last = cycle();
    wait(&last);
    assert!(!memory.wants_settling());
    pool.core().close();
    assert!(memory.wants_settling());
    wait(&last);
    assert!(!memory.wants_settling(), "it was drained");
}

#[test]
fn statistics_can_be_read_and_peaks_reset() {
    let fixture = Fixture::<Tracked>::new();
    let pool = fixture.pool(0, usize::MAX);
    let queue = fixture.in_order();
    let kinds = [Kind::Device, Kind::Shared, Kind::Host];
    let blocks = kinds.map(|kind| {
        let made = without(&[], |waits, out| {
            alloc::alloc(&queue, kind, Some(&*pool), MIB, waits, out)
        });
        made.unwrap().addr()
    });
    assert_eq!(figure(&pool, UsmPoolInfo::UsedCurrentExp), 3 * MIB);
    launch_only(&queue, 1, &[]);
    for block in blocks {
        free_only(&queue, block, &[]).unwrap();
    }
    assert_eq!(
        figure(&pool, UsmPoolInfo::UsedCurrentExp),
        0,
        "when the call is made"
    );
    assert_eq!(figure(&pool, UsmPoolInfo::UsedHighExp), 3 * MIB);
    let high = figure(&pool, UsmPoolInfo::ReservedHighExp);
    assert_eq!(high, figure(&pool, UsmPoolInfo::ReservedCurrentExp));
    set(&pool, UsmPoolInfo::UsedHighExp, 0).unwrap();
    assert_eq!(figure(&pool, UsmPoolInfo::UsedHighExp), 0);
    queue.finish_here().unwrap();
    pool.core().trim(0);
    assert_eq!(figure(&pool, UsmPoolInfo::ReservedHighExp), high);
    set(&pool, UsmPoolInfo::ReservedHighExp, 0).unwrap();
    assert_eq!(figure(&pool, UsmPoolInfo::ReservedHighExp), 0);
    assert_eq!(
        code(set(&pool, UsmPoolInfo::UsedHighExp, 1)),
        Some(UR_RESULT_ERROR_INVALID_VALUE)
    );
    let fixed = set(&pool, UsmPoolInfo::MaximumSizeExp, 0);
    assert_eq!(code(fixed), Some(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION));
    let of = |what| info::<usize>(|out| hal::UsmPool::<Tracked>::get_info(&pool, what, out));
    assert_eq!(
        of(UsmPoolInfo::Context),
        Ok(fixture.context.handle().addr())
    );
}

#[test]
fn statistics_are_exact_with_threads() {
    let fixture = Fixture::<Tracked>::new();
    let pool = fixture.pool(0, usize::MAX);
    let most = AtomicUsize::new(0);
    let now = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let queue = fixture.in_order();
                for _ in 0..200 {
                    let block = alloc_only(&queue, Some(&pool), 1 << 16, &[]).unwrap();
                    let level = now.fetch_add(1 << 16, Ordering::SeqCst) + (1 << 16);
                    most.fetch_max(level, Ordering::SeqCst);
                    now.fetch_sub(1 << 16, Ordering::SeqCst);
                    free_only(&queue, block, &[]).unwrap();
                }
            });
        }
    });
    assert_eq!(figure(&pool, UsmPoolInfo::UsedCurrentExp), 0);
    let high = figure(&pool, UsmPoolInfo::UsedHighExp);
    assert!(high >= most.load(Ordering::SeqCst) && high <= 4 << 16);
}

fn make(
    fixture: &Fixture<Tracked>,
    flags: ur_usm_pool_flags_t,
    buffer: Option<&ur_usm_pool_buffer_desc_t>,
) -> Result<PoolArc<Tracked>> {
    let chained = buffer.map_or(std::ptr::null(), |buffer| std::ptr::from_ref(buffer).cast());
    let desc = ur_usm_pool_desc_t {
        pNext: chained,
        flags,
        ..Default::default()
    };
    UsmPool::create(&fixture.context, vec![fixture.device.clone()], &desc)
}

#[test]
fn zero_initialised_pools_ask_for_zeroed_memory() {
    let fixture = Fixture::<Tracked>::new();
    let queue = fixture.in_order();
    let all = UR_USM_POOL_FLAG_ZERO_INITIALIZE_BLOCK
        | UR_USM_POOL_FLAG_READ_ONLY_EXP
        | UR_USM_POOL_FLAG_USE_NATIVE_MEMORY_POOL_EXP;
    let zeroed = make(&fixture, all, None).unwrap();
    alloc_only(&queue, Some(&zeroed), MIB, &[]).unwrap();
    alloc_only(&queue, None, MIB, &[]).unwrap();
    assert_eq!(fixture.driver.zeroed.load(Ordering::Relaxed), 1);
}

#[test]
fn pools_over_user_memory_give_no_other_memory() {
    let fixture = Fixture::<Tracked>::new();
    let queue = fixture.in_order();
    let outer = alloc_only(&queue, None, MIB, &[]).unwrap();
    let mut buffer = ur_usm_pool_buffer_desc_t {
        pMem: std::ptr::without_provenance_mut(outer),
        size: MIB,
        memType: UR_USM_TYPE_DEVICE,
        device: fixture.device.handle().cast(),
        ..Default::default()
    };
    let submits = fixture.driver.calls()[0];
    let pool = make(
        &fixture,
        UR_USM_POOL_FLAG_ZERO_INITIALIZE_BLOCK,
        Some(&buffer),
    )
    .unwrap();
    assert_eq!(fixture.driver.calls()[0], submits + 1, "zeroed once");
    let grown = fixture.driver.calls()[3];
    let inner = alloc_only(&queue, Some(&pool), MIB / 2, &[]).unwrap();
    let rest = alloc_only(&queue, Some(&pool), MIB / 2, &[]).unwrap();
    assert_eq!((inner, rest), (outer, outer + MIB / 2));
    assert_eq!(
        code(alloc_only(&queue, Some(&pool), 1, &[])),
        Some(UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)
    );
    let shared = without(&[], |waits, out| {
        alloc::alloc(&queue, Kind::Shared, Some(&*pool), 8, waits, out)
    });
    assert_eq!(
        code(shared),
        Some(UR_RESULT_ERROR_INVALID_VALUE),
        "it is of one kind"
    );
    // The innermost allocation at an address is used first, and then the one around it.
    free_only(&queue, inner, &[]).unwrap();
    assert_eq!(figure(&pool, UsmPoolInfo::UsedCurrentExp), MIB / 2);
    free_only(&queue, rest, &[]).unwrap();
    drop(pool);
    free_only(&queue, outer, &[]).unwrap();
    assert_eq!(fixture.driver.calls()[3], grown);
    buffer.pMem = std::ptr::null_mut();
    let null = make(&fixture, ur_usm_pool_flags_t(0), Some(&buffer));
    assert_eq!(code(null), Some(UR_RESULT_ERROR_INVALID_NULL_POINTER));
    buffer.pMem = std::ptr::without_provenance_mut(outer);
    buffer.memType = UR_USM_TYPE_UNKNOWN;
    let unknown = make(&fixture, ur_usm_pool_flags_t(0), Some(&buffer));
    assert_eq!(code(unknown), Some(UR_RESULT_ERROR_INVALID_VALUE));
}

//! Waits, lanes, barriers, events and host tasks.

use crate::abi::*;
use crate::hal;
use crate::stream::testing::*;
use crate::stream::{Queue, Work};
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

fn barrier<D: AnyFake>(queue: &QueueArc<D>, waits: &[&EventArc<D>]) -> EventArc<D> {
    let command = UR_COMMAND_EVENTS_WAIT_WITH_BARRIER;
    with_event(waits, |waits, event| {
        Queue::join_events(queue, command, waits, event, true)
    })
    .unwrap()
    .1
}

fn waiting_is_elided<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let (p, q, r) = (fixture.in_order(), fixture.in_order(), fixture.in_order());
    let first = launch(&p, 1, &[]);
    let second = launch(&p, 2, &[]);
    assert_eq!(fixture.driver.waits(), 0);
    launch_only(&p, 3, &[&first, &second]);
    assert_eq!(fixture.driver.waits(), 0, "a lane orders its own");
    let on_q = launch(&q, 4, &[&first, &second]);
    assert_eq!(
        fixture.driver.waits(),
        1,
        "two points of one lane are one wait"
    );
    launch_only(&q, 5, &[&first]);
    launch_only(&q, 5, &[&second]);
    assert_eq!(fixture.driver.waits(), 1, "it waits already");
    launch_only(&r, 6, &[&on_q]);
    assert_eq!(fixture.driver.waits(), 2);
    launch_only(&r, 7, &[&second]);
    assert_eq!(fixture.driver.waits(), 2, "order is transitive");
    fixture.driver.run();
    assert_eq!(status(&on_q), UR_EVENT_STATUS_COMPLETE);
    launch_only(&fixture.in_order(), 8, &[&on_q, &first]);
    assert_eq!(
        fixture.driver.waits(),
        2,
        "nobody waits for what is complete"
    );
    fixture.driver.run();
}

#[test]
fn waiting_is_elided_with_a_tracking_driver() {
    waiting_is_elided::<Tracked>();
}

#[test]
fn waiting_is_elided_with_a_polled_driver() {
    waiting_is_elided::<Polled>();
}

#[test]
fn a_polled_driver_records_only_what_can_be_seen() {
    let fixture = Fixture::<Polled>::new();
    let (p, q) = (fixture.in_order(), fixture.in_order());
    for label in 0..10 {
        launch_only(&p, label, &[]);
    }
    drop(launch(&p, 10, &[]));
    launch_only(&p, 11, &[]);
    assert_eq!(
        fixture.driver.calls()[2],
        0,
        "no event alive, nothing recorded"
    );
    let seen = launch(&p, 12, &[]);
    assert_eq!(fixture.driver.calls()[2], 0);
    launch_only(&p, 13, &[]);
    assert_eq!(
        fixture.driver.calls()[2],
        1,
        "alive when the next command came"
    );
    launch_only(&q, 20, &[&seen]);
    assert_eq!(fixture.driver.calls()[2], 1, "and used as it was recorded");
    // The wait does not cover commands after the event.
    let p_line = fixture.driver.lanes.lock().unwrap()[0].number;
    for _ in 0..14 {
        assert!(fixture.driver.step(p_line));
    }
    let q_line = fixture.driver.lanes.lock().unwrap()[1].number;
    assert!(fixture.driver.step(q_line) && fixture.driver.step(q_line));
    assert_eq!(fixture.driver.ran().last(), Some(&20));
    fixture.driver.run();
}

#[test]
fn a_polled_driver_is_queried_once_there_are_many_markers() {
    let fixture = Fixture::<Polled>::new();
    let (p, q, r) = (fixture.in_order(), fixture.in_order(), fixture.in_order());
    let pass_on = |label: u32| {
        let event = launch(&p, label, &[]);
        launch_only(&q, 1000 + label, &[&event]);
        event
    };
    // No command is complete, so no dependency may be dropped.
    let events: Vec<_> = (0..100).map(pass_on).collect();
    launch_only(&r, 2000, &[&events[3]]);
    assert_eq!(fixture.driver.waits(), 101);
    let p_line = fixture.driver.lanes.lock().unwrap()[0].number;
    while fixture.driver.ran().last() != Some(&89) {
        assert!(fixture.driver.step(p_line));
    }
    (100..300).for_each(|label| drop(pass_on(label)));
    launch_only(&r, 2001, &[&events[50]]);
    launch_only(&r, 2002, &[&events[95]]);
    assert_eq!(fixture.driver.waits(), 302, "50 is seen to be done by now");
    fixture.driver.run();
    let ran = fixture.driver.ran();
    let at = |label: u32| ran.iter().position(|ran| *ran == label).unwrap();
    assert!((0..300).all(|label| at(label) < at(1000 + label)));
    assert!(at(3) < at(2000) && at(95) < at(2002));
}

#[test]
fn independent_commands_spread_and_dependent_ones_follow() {
    let fixture = Fixture::<Tracked>::new();
    let queue = fixture.out_of_order();
    let heads: Vec<_> = (0..4).map(|label| launch(&queue, label, &[])).collect();
    assert_eq!(fixture.driver.loads(), [1, 1, 1, 1]);
    let tails: Vec<_> = heads
        .iter()
        .rev()
        .map(|head| launch(&queue, 10, &[head]))
        .collect();
    assert_eq!(fixture.driver.loads(), [2, 2, 2, 2]);
    assert_eq!(
        fixture.driver.waits(),
        0,
        "each follows on its dependency's lane"
    );
    launch_only(&queue, 20, &[]);
    assert_eq!(fixture.driver.loads().len(), 4, "no lane beyond the cap");
    let join = launch(&queue, 30, &[&tails[0], &tails[1], &tails[2], &tails[3]]);
    assert!((3..=4).contains(&fixture.driver.waits()));
    assert_eq!(status(&join), UR_EVENT_STATUS_SUBMITTED);
    fixture.driver.run();
    assert_eq!(status(&join), UR_EVENT_STATUS_COMPLETE);
    launch_only(&queue, 40, &[]);
    assert_eq!(
        fixture.driver.loads().len(),
        4,
        "an idle lane is used again"
    );
    fixture.driver.run();
}

fn barriers_block_later_commands<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let queue = fixture.out_of_order();
    let before: Vec<_> = (0..4).map(|label| launch(&queue, label, &[])).collect();
    let all = marker(&queue, &[]);
    let free = launch(&queue, 5, &[&before[0]]);
    let wall = barrier(&queue, &[]);
    let after = launch(&queue, 10, &[]);
    assert_eq!(status(&wall), UR_EVENT_STATUS_SUBMITTED);
    let numbers: Vec<_> = fixture
        .driver
        .lanes
        .lock()
        .unwrap()
        .iter()
        .map(|line| line.number)
        .collect();
    while fixture.driver.step(numbers[0]) {}
    assert_eq!(
        status(&free),
        UR_EVENT_STATUS_COMPLETE,
        "a marker holds nothing back"
    );
    assert_ne!(status(&after), UR_EVENT_STATUS_COMPLETE);
    assert_ne!(status(&all), UR_EVENT_STATUS_COMPLETE);
    fixture.driver.run();
    let ran = fixture.driver.ran();
    assert_eq!(ran.last(), Some(&10));
    for event in [&all, &wall, &after] {
        assert_eq!(status(event), UR_EVENT_STATUS_COMPLETE);
    }
    let waits = fixture.driver.waits();
    launch_only(&queue, 11, &[]);
    assert_eq!(
        fixture.driver.waits(),
        waits,
        "a barrier that is complete costs nothing"
    );
    fixture.driver.run();
}

#[test]
fn barriers_block_later_commands_when_tracked() {
    barriers_block_later_commands::<Tracked>();
}

#[test]
fn barriers_block_later_commands_when_polled() {
    barriers_block_later_commands::<Polled>();
}

#[test]
fn a_barrier_with_a_list_waits_for_that_list_only() {
    let fixture = Fixture::<Tracked>::new();
    let queue = fixture.out_of_order();
    let listed = launch(&queue, 1, &[]);
    let other = launch(&queue, 2, &[]);
    let wall = barrier(&queue, &[&listed]);
    let first = fixture.driver.lanes.lock().unwrap()[0].number;
    while fixture.driver.step(first) {}
    assert_eq!(status(&wall), UR_EVENT_STATUS_COMPLETE);
    assert_ne!(status(&other), UR_EVENT_STATUS_COMPLETE);
    fixture.driver.run();
}

#[test]
fn elided_commands_have_events_of_their_own() {
    let fixture = Fixture::<Tracked>::new();
    let queue = fixture.in_order();
    let work = launch(&queue, 1, &[]);
    let calls = fixture.driver.calls();
    let (one, two) = (marker(&queue, &[]), barrier(&queue, &[]));
    assert_eq!(
        fixture.driver.calls(),
        calls,
        "nothing to do for the driver"
    );
    assert!(!std::sync::Arc::ptr_eq(&one, &two));
    assert_eq!(
        (one.command(), two.command()),
        (UR_COMMAND_EVENTS_WAIT, UR_COMMAND_EVENTS_WAIT_WITH_BARRIER)
    );
    one.retain();
    one.retain();
    let refs = |event: &EventArc<Tracked>| {
        info::<u32>(|out| {
            hal::Event::<Tracked>::get_info(event, hal::EventInfo::ReferenceCount, out)
        })
    };
    assert_eq!((refs(&one), refs(&two)), (Ok(2), Ok(0)));
    assert_eq!((one.release(), one.release()), (Ok(()), Ok(())));
    drop(one);
    assert_eq!(
        (status(&two), status(&work)),
        (UR_EVENT_STATUS_SUBMITTED, UR_EVENT_STATUS_RUNNING)
    );
    fixture.driver.run();
    assert_eq!(status(&two), UR_EVENT_STATUS_COMPLETE);
    let of = |what| info::<usize>(|out| hal::Event::<Tracked>::get_info(&two, what, out));
    assert_eq!(of(hal::EventInfo::CommandQueue), Ok(queue.handle().addr()));
    assert_eq!(
        of(hal::EventInfo::Context),
        Ok(fixture.context.handle().addr())
    );
}

#[test]
fn an_in_order_wait_list_orders_all_later_commands() {
    let fixture = Fixture::<Tracked>::new();
    let (p, q) = (fixture.in_order(), fixture.in_order());
    let far = launch(&p, 1, &[]);
    marker(&q, &[&far]);
    launch_only(&q, 2, &[]);
    let q_line = fixture.driver.lanes.lock().unwrap()[1].number;
    assert!(!fixture.driver.step(q_line));
    fixture.driver.run();
    assert_eq!(fixture.driver.ran(), [1, 2]);
}

static CALLS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_event: ur_event_handle_t, status: ur_execution_info_t, data: *mut c_void) {
    assert_eq!(std::thread::current().name(), Some("ur-host"));
    assert_eq!(status.0 as usize, data.addr());
    CALLS.fetch_add(1 << (8 * status.0), Ordering::SeqCst);
}

#[test]
fn callbacks_run_once_on_our_own_threads() {
    let fixture = Fixture::<Tracked>::new();
    let queue = fixture.in_order();
    launch_only(&queue, 1, &[]);
    let event = launch(&queue, 2, &[]);
    let set = |what: ur_execution_info_t| {
        let data = std::ptr::without_provenance_mut(what.0 as usize);
        hal::Event::<Tracked>::set_callback(&event, what, count, data)
    };
    assert_eq!(
        code(set(UR_EXECUTION_INFO_QUEUED)),
        Some(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION)
    );
    set(UR_EXECUTION_INFO_COMPLETE).unwrap();
    set(UR_EXECUTION_INFO_RUNNING).unwrap();
    set(UR_EXECUTION_INFO_SUBMITTED).unwrap();
    let [complete, running, submitted] = [1, 1 << 8, 1 << 16];
    until(|| CALLS.load(Ordering::SeqCst) == submitted);
    let line = fixture.driver.lanes.lock().unwrap()[0].number;
    assert!(fixture.driver.step(line));
    until(|| CALLS.load(Ordering::SeqCst) == submitted + running);
    assert_eq!(status(&event), UR_EVENT_STATUS_RUNNING);
    assert!(fixture.driver.step(line));
    until(|| CALLS.load(Ordering::SeqCst) == submitted + running + complete);
    set(UR_EXECUTION_INFO_COMPLETE).unwrap();
    until(|| CALLS.load(Ordering::SeqCst) == submitted + running + 2 * complete);
    fixture.engine.shut_down();
    assert_eq!(
        CALLS.load(Ordering::SeqCst),
        submitted + running + 2 * complete
    );
}

#[test]
fn profiling_is_known_where_the_queue_has_it() {
    let fixture = Fixture::<Tracked>::new();
    let plain = fixture.in_order();
    let profiled = fixture.queue(UR_QUEUE_FLAG_PROFILING_ENABLE);
    let time = |event: &EventArc<Tracked>, what| {
        info::<u64>(|out| hal::Event::<Tracked>::get_profiling_info(event, what, out))
    };
    let without = launch(&plain, 1, &[]);
    let (end, unknown) = (
        hal::ProfilingInfo::CommandEnd,
        UR_RESULT_ERROR_PROFILING_INFO_NOT_AVAILABLE,
    );
    assert_eq!(code(time(&without, end)), Some(unknown));
    let with = launch(&profiled, 2, &[]);
    // A command without work of its own gets a marker for its times.
    let wait = marker(&profiled, &[]);
    let (_, alloc) = alloc(&profiled, None, 64, &[]).unwrap();
    assert_eq!(
        code(time(&with, hal::ProfilingInfo::CommandEnd)),
        Some(unknown)
    );
    fixture.driver.run();
    for event in [&with, &wait, &alloc] {
        let times = [
            time(event, hal::ProfilingInfo::CommandQueued).unwrap(),
            time(event, hal::ProfilingInfo::CommandSubmit).unwrap(),
            time(event, hal::ProfilingInfo::CommandStart).unwrap(),
            time(event, hal::ProfilingInfo::CommandEnd).unwrap(),
            time(event, hal::ProfilingInfo::CommandComplete).unwrap(),
        ];
        assert!(times.is_sorted() && times[0] > 0);
        assert_eq!(times[3], times[4]);
    }
}

/// A driver's marker has a start and an end; a recorded timestamp is one time.
#[test]
fn a_timestamp_is_one_time() {
    let fixture = Fixture::<Tracked>::new();
    for queue in [fixture.in_order(), fixture.out_of_order()] {
        let before = launch(&queue, 1, &[]);
        let recorded = with_event(&[&before], |waits, event| {
            hal::Queue::<Tracked>::timestamp_recording_exp(&queue, false, waits, event)
        });
        let ((), event) = recorded.unwrap();
        let time =
            |what| info::<u64>(|out| hal::Event::<Tracked>::get_profiling_info(&event, what, out));
        let start = || time(hal::ProfilingInfo::CommandStart);
        let unknown = UR_RESULT_ERROR_PROFILING_INFO_NOT_AVAILABLE;
        assert_eq!(code(start()), Some(unknown));
        fixture.driver.run();
        let start = start().unwrap();
        assert_eq!(start, time(hal::ProfilingInfo::CommandEnd).unwrap());
        assert!(time(hal::ProfilingInfo::CommandQueued).unwrap() < start);
    }
}

#[test]
fn a_lost_device_is_an_error_of_waits_and_queries() {
    let fixture = Fixture::<Polled>::new();
    let queue = fixture.in_order();
    let event = launch(&queue, 1, &[]);
    fixture.driver.broken.store(true, Ordering::Relaxed);
    let lost = UR_RESULT_ERROR_DEVICE_LOST;
    assert_eq!(code(event.wait_here()), Some(lost));
    assert_eq!(code(event.wait_here()), Some(lost));
    let status = info::<u32>(|out| {
        let what = hal::EventInfo::CommandExecutionStatus;
        <crate::stream::Event<Polled> as hal::Event<Polled>>::get_info(&event, what, out)
    });
    assert_eq!(code(status), Some(lost));
    let again = without(&[&event], |waits, out| {
        Queue::enqueue(&queue, UR_COMMAND_USM_FILL, waits, Work::Marker, out, false)
    });
    assert_eq!(code(again), Some(lost));
    let submit = without(&[], |waits, out| {
        Queue::enqueue(&queue, UR_COMMAND_USM_FILL, waits, Work::Marker, out, false)
    });
    assert_eq!(code(submit), Some(lost));
    assert_eq!(code(queue.finish_here()), Some(lost));
}

#[test]
fn blocking_commands_return_when_they_are_complete() {
    let fixture = Fixture::<Tracked>::new();
    let queue = fixture.in_order();
    launch_only(&queue, 1, &[]);
    without(&[], |waits, event| {
        Queue::enqueue(
            &queue,
            UR_COMMAND_USM_MEMCPY,
            waits,
            Work::Launch(2),
            event,
            true,
        )
    })
    .unwrap();
    assert_eq!(fixture.driver.ran(), [1, 2]);
}

#[test]
fn emptiness_follows_completion() {
    let fixture = Fixture::<Polled>::new();
    let queue = fixture.out_of_order();
    let empty = || info::<u8>(|out| Queue::info(&queue, hal::QueueInfo::Empty, out)).unwrap() == 1;
    assert!(empty());
    launch_only(&queue, 1, &[]);
    assert!(!empty());
    fixture.driver.run();
    assert!(empty());
}

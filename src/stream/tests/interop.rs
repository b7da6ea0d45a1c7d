//! Foreign work: on streams whose native handle was given out, and from native commands.

use crate::abi::*;
use crate::stream::Work;
use crate::stream::queue::native_command;
use crate::stream::testing::*;

/// A native command that puts foreign work on its lane, with its event.
fn native<D: AnyFake>(queue: &QueueArc<D>, label: u32, waits: &[&EventArc<D>]) -> EventArc<D> {
    let run = || queue.with_native(|lane| lane.foreign(label)).unwrap();
    let call = |waits: crate::object::Handles<'_, _>, event: crate::object::OutHandle<'_, _>| {
        native_command::enqueue(queue, None, waits, event, run)
    };
    with_event(waits, call).unwrap().1
}

fn a_native_command_is_ordered_with_its_queue<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let (queue, other) = (fixture.in_order(), fixture.in_order());
    let far = launch(&other, 1, &[]);
    let before = launch(&queue, 2, &[]);
    let command = native(&queue, 50, &[&far]);
    let after = launch(&queue, 3, &[]);
    assert_eq!(command.command(), UR_COMMAND_ENQUEUE_NATIVE_EXP);
    let line = fixture.driver.lanes.lock().unwrap()[0].number;
    while fixture.driver.step(line) {}
    assert_eq!(fixture.driver.ran(), [2], "it waits for its list");
    assert_eq!(status(&before), UR_EVENT_STATUS_COMPLETE);
    assert_eq!(status(&command), UR_EVENT_STATUS_SUBMITTED);
    fixture.driver.run();
    assert_eq!(fixture.driver.ran(), [2, 1, 50, 3]);
    // The query may have recorded a marker.
    status(&after);
    fixture.driver.run();
    let ends = [status(&command), status(&after)];
    assert_eq!(ends, [UR_EVENT_STATUS_COMPLETE; 2]);
}

#[test]
fn a_native_command_is_ordered_with_its_queue_when_tracked() {
    a_native_command_is_ordered_with_its_queue::<Tracked>();
}

#[test]
fn a_native_command_is_ordered_with_its_queue_when_polled() {
    a_native_command_is_ordered_with_its_queue::<Polled>();
}

/// On an out-of-order queue the function gets the lane that has its wait list.
///
/// A concurrent request for the stream gets the same lane, and no other command is placed there meanwhile.
fn an_out_of_order_queue_gives_a_native_command_one_lane<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let queue = fixture.out_of_order();
    let far = launch(&fixture.in_order(), 1, &[]);
    let mut leased = usize::MAX;
    let run = || {
        queue
            .with_native(|lane| {
                leased = lane.number();
                lane.foreign(50);
            })
            .unwrap();
        for label in 10..20 {
            launch_only(&queue, label, &[]);
        }
        let inner = native(&queue, 60, &[]);
        queue
            .with_native(|lane| assert_eq!(lane.number(), leased))
            .unwrap();
        let shown = std::thread::scope(|scope| {
            let ask = || queue.with_native(FakeLane::number).unwrap();
            scope.spawn(ask).join().unwrap()
        });
        assert_ne!(shown, leased, "another thread is not in the command");
        assert_ne!(status(&inner), UR_EVENT_STATUS_COMPLETE);
    };
    let ((), command) = with_event(&[&far], |waits, event| {
        native_command::enqueue(&queue, None, waits, event, run)
    })
    .unwrap();
    let far_line = fixture.driver.lanes.lock().unwrap()[0].number;
    let others = || -> Vec<usize> {
        let lanes = fixture.driver.lanes.lock().unwrap();
        let numbers = lanes.iter().map(|line| line.number);
        numbers.filter(|number| *number != far_line).collect()
    };
    while others().into_iter().any(|line| fixture.driver.step(line)) {}
    let mut ran = fixture.driver.ran();
    ran.sort_unstable();
    let independent: Vec<u32> = (10..20).chain([60]).collect();
    assert_eq!(ran, independent, "what is independent did not wait");
    assert_ne!(status(&command), UR_EVENT_STATUS_COMPLETE);
    queue.finish_here().unwrap();
    assert_eq!(fixture.driver.ran().last(), Some(&50));
    assert_eq!(status(&command), UR_EVENT_STATUS_COMPLETE);
}

#[test]
fn an_out_of_order_queue_gives_a_native_command_one_lane_when_tracked() {
    an_out_of_order_queue_gives_a_native_command_one_lane::<Tracked>();
}

#[test]
fn an_out_of_order_queue_gives_a_native_command_one_lane_when_polled() {
    an_out_of_order_queue_gives_a_native_command_one_lane::<Polled>();
}

/// Steps all lanes but one until none goes on. Returns the commands that have run.
fn run_besides<D: AnyFake>(fixture: &Fixture<D>, lane: usize) -> Vec<u32> {
    let others = || -> Vec<usize> {
        let lanes = fixture.driver.lanes.lock().unwrap();
        let numbers = lanes.iter().map(|line| line.number);
        numbers.filter(|number| *number != lane).collect()
    };
    while others().into_iter().any(|line| fixture.driver.step(line)) {}
    let mut ran = fixture.driver.ran();
    ran.sort_unstable();
    ran
}

/// A native command whose work has a stream that does not go on: with the number of that stream.
fn held<D: AnyFake>(
    queue: &QueueArc<D>,
    label: u32,
    waits: &[&EventArc<D>],
) -> (usize, EventArc<D>) {
    let mut number = usize::MAX;
    let run = || {
        let leased = |lane: &FakeLane| {
            number = lane.number();
            lane.foreign(label);
        };
        queue.with_native(leased).unwrap();
    };
    let ((), event) = with_event(waits, |waits, event| {
        native_command::enqueue(queue, None, waits, event, run)
    })
    .unwrap();
    (number, event)
}

/// Native work may wait for the program. Independent commands never go behind it, however many are
/// pending, nor behind a command that waits for it. They open no stream either, since a driver may
/// wait for the native work to do so.
fn native_work_holds_back_what_waits_for_it_only<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let queue = fixture.out_of_order();
    let (lane, command) = held(&queue, 50, &[]);
    let streams = fixture.driver.loads().len();
    for round in 0..10 {
        launch_only(&queue, 100 + round, &[&command]);
        let dependent = launch(&queue, 200 + round, &[&command]);
        launch_only(&queue, 300 + round, &[&dependent]);
        launch_only(&queue, round, &[]);
    }
    assert_eq!(fixture.driver.loads().len(), streams, "a stream was opened");
    assert_eq!(
        run_besides(&fixture, lane),
        Vec::from_iter(0..10),
        "what is independent, and nothing else"
    );
    queue.finish_here().unwrap();
    assert_eq!(fixture.driver.ran().len(), 41);
    assert_eq!(status(&command), UR_EVENT_STATUS_COMPLETE);
    // The lane is one of several again.
    let before = fixture.driver.loads();
    (0..5).for_each(|label| launch_only(&queue, label, &[]));
    let after = fixture.driver.loads();
    let taken = before.iter().zip(&after).filter(|(a, b)| b > a).count();
    assert_eq!((taken, after.len()), (5, 5));
    queue.finish_here().unwrap();
}

#[test]
fn native_work_holds_back_what_waits_for_it_only_when_tracked() {
    native_work_holds_back_what_waits_for_it_only::<Tracked>();
}

#[test]
fn native_work_holds_back_what_waits_for_it_only_when_polled() {
    native_work_holds_back_what_waits_for_it_only::<Polled>();
}

/// Each of several native commands has a lane of its own, and one lane is left for other commands,
/// with however many native ones.
fn independent_native_commands_have_lanes_of_their_own<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let queue = fixture.out_of_order();
    let all: Vec<_> = (50..54).map(|label| held(&queue, label, &[])).collect();
    let mut numbers: Vec<_> = all.iter().map(|(number, _)| *number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 4);
    for label in 60..80 {
        let (number, _) = held(&queue, label, &[]);
        assert!(numbers.contains(&number), "the last lane was taken");
    }
    assert_eq!(fixture.driver.loads().len(), 5);
    let free: Vec<_> = (0..10).map(|label| launch(&queue, label, &[])).collect();
    assert_eq!(fixture.driver.loads().len(), 5);
    let lines = fixture.driver.lanes.lock().unwrap().clone();
    let rest = lines.iter().find(|line| !numbers.contains(&line.number));
    let rest = rest.unwrap().number;
    while fixture.driver.step(rest) {}
    assert_eq!(fixture.driver.ran(), Vec::from_iter(0..10));
    drop((free, lines));
    queue.finish_here().unwrap();
    assert_eq!(fixture.driver.ran().len(), 34);
}

#[test]
fn independent_native_commands_have_lanes_of_their_own_when_tracked() {
    independent_native_commands_have_lanes_of_their_own::<Tracked>();
}

#[test]
fn independent_native_commands_have_lanes_of_their_own_when_polled() {
    independent_native_commands_have_lanes_of_their_own::<Polled>();
}

/// A command that waits for native work of another queue holds back nothing independent either.
fn native_work_of_another_queue_holds_back_what_waits_for_it<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let (queue, other) = (fixture.out_of_order(), fixture.in_order());
    let (lane, command) = held(&other, 50, &[]);
    let behind = launch(&other, 60, &[]);
    for round in 0..10 {
        launch_only(&queue, 100 + round, &[&command]);
        launch_only(&queue, 200 + round, &[&behind]);
        launch_only(&queue, round, &[]);
    }
    assert_eq!(run_besides(&fixture, lane), Vec::from_iter(0..10));
    queue.finish_here().unwrap();
    assert_eq!(fixture.driver.ran().len(), 32);
}

#[test]
fn native_work_of_another_queue_holds_back_what_waits_for_it_when_tracked() {
    native_work_of_another_queue_holds_back_what_waits_for_it::<Tracked>();
}

#[test]
fn native_work_of_another_queue_holds_back_what_waits_for_it_when_polled() {
    native_work_of_another_queue_holds_back_what_waits_for_it::<Polled>();
}

/// Memory that native work may use is not reused by others before that work is complete.
///
/// Once the command is over, the lane's fast paths are open again.
fn native_work_keeps_its_memory<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let pool = fixture.pool(0, usize::MAX);
    let (queue, other) = (fixture.in_order(), fixture.in_order());
    let block = alloc_only(&queue, Some(&pool), 4 << 20, &[]).unwrap();
    drop(native(&queue, 50, &[]));
    free_only(&queue, block, &[]).unwrap();
    let again = alloc_only(&other, Some(&pool), 4 << 20, &[]).unwrap();
    assert_ne!(block, again, "native work may still use it");
    let calls = fixture.driver.calls();
    let own = alloc_only(&queue, Some(&pool), 4 << 20, &[]).unwrap();
    free_only(&queue, own, &[]).unwrap();
    assert_eq!(own, block, "its own queue comes after all of it");
    assert_eq!(fixture.driver.calls(), calls, "and asks no driver");
    queue.finish_here().unwrap();
    assert_eq!(fixture.driver.ran(), [50]);
}

#[test]
fn native_work_keeps_its_memory_when_tracked() {
    native_work_keeps_its_memory::<Tracked>();
}

#[test]
fn native_work_keeps_its_memory_when_polled() {
    native_work_keeps_its_memory::<Polled>();
}

/// A queue whose native handle was given out stays open: every event and every free covers foreign work.
fn a_stream_with_its_native_handle_given_out_stays_open<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let pool = fixture.pool(0, usize::MAX);
    let (queue, other) = (fixture.in_order(), fixture.in_order());
    let block = alloc_only(&queue, Some(&pool), 4 << 20, &[]).unwrap();
    let early = launch(&queue, 1, &[]);
    queue.with_native(|lane| lane.foreign(50)).unwrap();
    let mark = marker(&queue, &[]);
    queue.with_native(|lane| lane.foreign(51)).unwrap();
    let freed = free(&queue, block, &[]).unwrap();
    launch_only(&other, 2, &[&mark]);
    let line = fixture.driver.lanes.lock().unwrap()[0].number;
    let ran_until =
        |label| while fixture.driver.ran().last() != Some(&label) && fixture.driver.step(line) {};
    ran_until(1);
    assert_ne!(status(&mark), UR_EVENT_STATUS_COMPLETE);
    assert_eq!(completes_alone(&fixture, &early), UR_EVENT_STATUS_COMPLETE);
    ran_until(50);
    assert_ne!(status(&freed), UR_EVENT_STATUS_COMPLETE);
    let again = alloc_only(&other, Some(&pool), 4 << 20, &[]).unwrap();
    assert_ne!(block, again, "foreign work may still use it");
    fixture.driver.run();
    assert_eq!(status(&freed), UR_EVENT_STATUS_COMPLETE);
    assert_eq!(fixture.driver.ran(), [1, 50, 51, 2]);
    queue.finish_here().unwrap();
}

/// Blocks freed on an open stream are its own queue's at once, and another queue's once all foreign work before
/// the free is complete.
fn an_open_stream_uses_its_blocks_again<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let pool = fixture.pool(0, usize::MAX);
    let (queue, other) = (fixture.in_order(), fixture.in_order());
    queue.with_native(|_| ()).unwrap();
    let block = alloc_only(&queue, Some(&pool), 4 << 20, &[]).unwrap();
    free_only(&queue, block, &[]).unwrap();
    for label in 50..60 {
        let again = alloc_only(&queue, Some(&pool), 4 << 20, &[]).unwrap();
        assert_eq!(again, block, "its own queue comes after all of it");
        queue.with_native(|lane| lane.foreign(label)).unwrap();
        free_only(&queue, block, &[]).unwrap();
    }
    let away = alloc_only(&other, Some(&pool), 4 << 20, &[]).unwrap();
    assert_ne!(away, block, "foreign work may still use it");
    let freed = marker(&queue, &[]);
    let taken = alloc(&other, Some(&pool), 4 << 20, &[&freed]).unwrap().0;
    assert_eq!(taken, block, "the other queue comes after the last free");
    fixture.driver.run();
    assert_eq!(fixture.driver.ran(), Vec::from_iter(50..60));
    queue.finish_here().unwrap();
}

#[test]
fn an_open_stream_uses_its_blocks_again_when_tracked() {
    an_open_stream_uses_its_blocks_again::<Tracked>();
}

#[test]
fn an_open_stream_uses_its_blocks_again_when_polled() {
    an_open_stream_uses_its_blocks_again::<Polled>();
}

/// The status of an event, after the records that the query may have made.
fn completes_alone<D: AnyFake>(fixture: &Fixture<D>, event: &EventArc<D>) -> ur_event_status_t {
    status(event);
    let line = fixture.driver.lanes.lock().unwrap()[0].number;
    fixture.driver.step(line);
    status(event)
}

#[test]
fn a_stream_with_its_native_handle_given_out_stays_open_when_tracked() {
    a_stream_with_its_native_handle_given_out_stays_open::<Tracked>();
}

#[test]
fn a_stream_with_its_native_handle_given_out_stays_open_when_polled() {
    a_stream_with_its_native_handle_given_out_stays_open::<Polled>();
}

#[test]
fn native_work_has_times_of_its_own() {
    let fixture = Fixture::<Tracked>::new();
    let queue = fixture.queue(UR_QUEUE_FLAG_PROFILING_ENABLE);
    let command = native(&queue, 50, &[]);
    let time = |what| {
        info::<u64>(|out| crate::hal::Event::<Tracked>::get_profiling_info(&command, what, out))
    };
    use crate::hal::ProfilingInfo::{CommandEnd, CommandQueued, CommandStart};
    assert!(time(CommandEnd).is_err());
    fixture.driver.run();
    let times = [CommandQueued, CommandStart, CommandEnd].map(|what| time(what).unwrap());
    assert!(times.is_sorted() && times[2] > times[1], "{times:?}");
}

#[test]
fn a_native_command_may_have_work_of_its_own() {
    let fixture = Fixture::<Polled>::new();
    let queue = fixture.in_order();
    let run = || queue.with_native(|lane| lane.foreign(50)).unwrap();
    without(&[], |waits, event| {
        native_command::enqueue(&queue, Some(Work::Launch(9)), waits, event, run)
    })
    .unwrap();
    queue.finish_here().unwrap();
    assert_eq!(fixture.driver.ran(), [9, 50]);
}

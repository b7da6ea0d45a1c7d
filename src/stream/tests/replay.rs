//! Command buffers: the submitted units, their order, and failed submissions.

use crate::abi::*;
use crate::hal;
use crate::object::{Handles, Object, Out, OutHandle, Result};
use crate::stream::queue::replay as submission;
use crate::stream::recording::command::Command;
use crate::stream::recording::command_buffer::Outputs;
use crate::stream::testing::*;
use crate::stream::{CommandBuffer, Event, RecordedCommand, Work};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering;

type BufferArc<D> = Arc<Object<CommandBuffer<D>>>;

fn buffer<D: AnyFake>(fixture: &Fixture<D>, in_order: bool) -> BufferArc<D> {
    let desc = ur_exp_command_buffer_desc_t {
        isUpdatable: 1,
        isInOrder: in_order.into(),
        ..Default::default()
    };
    CommandBuffer::create(&fixture.context, &fixture.device, &desc).unwrap()
}

/// Appends a command that leaves its label.
fn append<D: AnyFake>(
    buffer: &BufferArc<D>,
    label: u32,
    after: &[u32],
    waits: &[&EventArc<D>],
    wanted: bool,
) -> Result<(u32, Option<EventArc<D>>)> {
    let handles: Vec<_> = waits.iter().map(|event| event.handle()).collect();
    let (mut point, mut event) = (0, null_mut());
    // SAFETY: pointers that are not null outlive the call.
    let out = unsafe {
        Outputs {
            sync_point: Out::new(&raw mut point),
            event: OutHandle::new(if wanted { &raw mut event } else { null_mut() }),
            command: OutHandle::<RecordedCommand<D>>::new(null_mut()),
        }
    };
    let made = Command::new(UR_COMMAND_KERNEL_LAUNCH, Work::Launch(label));
    let waits = list::<D, Event<D>>(&handles);
    CommandBuffer::append(buffer, made, Handles::EMPTY, after, waits, out)?;
    // SAFETY: the event was written, and the node keeps it.
    let event = wanted.then(|| unsafe { Object::<Event<D>>::borrow(event, D::table()) });
    Ok((point, event.transpose()?.map(Object::arc)))
}

fn simply<D: AnyFake>(buffer: &BufferArc<D>, label: u32, after: &[u32]) -> u32 {
    append(buffer, label, after, &[], false).unwrap().0
}

fn enqueue<D: AnyFake>(
    buffer: &BufferArc<D>,
    queue: &QueueArc<D>,
    waits: &[&EventArc<D>],
) -> Result<EventArc<D>> {
    let done = with_event(waits, |waits, event| {
        submission::command_buffer(buffer, queue, waits, event)
    });
    done.map(|((), event)| event)
}

/// Runs everything. A driver that must be polled records a marker at the first query.
fn completes<D: AnyFake>(fixture: &Fixture<D>, event: &EventArc<D>) {
    until(|| {
        fixture.driver.run();
        status(event) == UR_EVENT_STATUS_COMPLETE
    });
}

on_both! {
    it_goes_on_one_lane_in_a_row independent_commands_spread submissions_follow_each_other
    events_stand_for_the_last_submission events_are_complete_before_it only_what_waits_is_held_back
    a_failure_on_the_way a_failure_on_the_way_of_several_lanes its_life its_objects_stay
    sync_points_are_its_own several_become_one what_is_made_of_several_changes
    events_keep_commands_apart work_that_runs_at_once_is_complete
}

fn it_goes_on_one_lane_in_a_row<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let (queue, other) = (fixture.in_order(), fixture.in_order());
    let buffer = buffer(&fixture, false);
    for label in 0..5 {
        simply(&buffer, label, &[]);
    }
    buffer.finalize().unwrap();
    launch_only(&queue, 10, &[]);
    let first = launch(&other, 11, &[]);
    let [submits, waits, ..] = fixture.driver.calls();
    let done = enqueue(&buffer, &queue, &[&first]).unwrap();
    assert_eq!(
        fixture.driver.calls()[0],
        submits + 5,
        "one submission a command"
    );
    assert_eq!(fixture.driver.calls()[1], waits + 1, "one wait for all");
    launch_only(&queue, 12, &[]);
    assert_eq!(status(&done), UR_EVENT_STATUS_SUBMITTED);
    completes(&fixture, &done);
    let ran = fixture.driver.ran();
    let own: Vec<_> = ran.into_iter().filter(|label| *label != 11).collect();
    assert_eq!(own, [10, 0, 1, 2, 3, 4, 12]);
}

fn independent_commands_spread<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let queue = fixture.out_of_order();
    let buffer = buffer(&fixture, false);
    let root = simply(&buffer, 0, &[]);
    let middle: Vec<_> = (1..4)
        .map(|label| simply(&buffer, label, &[root]))
        .collect();
    simply(&buffer, 4, &middle);
    buffer.finalize().unwrap();
    let done = enqueue(&buffer, &queue, &[]).unwrap();
    assert!(
        fixture.driver.loads().len() >= 3,
        "{:?}",
        fixture.driver.loads()
    );
    assert_eq!(status(&done), UR_EVENT_STATUS_SUBMITTED);
    completes(&fixture, &done);
    let ran = fixture.driver.ran();
    assert_eq!((ran[0], ran[4]), (0, 4));
}

fn submissions_follow_each_other<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let (p, q, r) = (
        fixture.in_order(),
        fixture.in_order(),
        fixture.out_of_order(),
    );
    let buffer = buffer(&fixture, false);
    let first = simply(&buffer, 0, &[]);
    simply(&buffer, 1, &[first]);
    buffer.finalize().unwrap();
    enqueue(&buffer, &p, &[]).unwrap();
    let waits = fixture.driver.waits();
    enqueue(&buffer, &p, &[]).unwrap();
    assert_eq!(fixture.driver.waits(), waits, "a lane orders its own");
    enqueue(&buffer, &q, &[]).unwrap();
    assert_eq!(
        fixture.driver.waits(),
        waits + 1,
        "and another waits for it"
    );
    let done = enqueue(&buffer, &r, &[]).unwrap();
    completes(&fixture, &done);
    assert_eq!(fixture.driver.ran(), [0, 1, 0, 1, 0, 1, 0, 1]);
}

fn events_stand_for_the_last_submission<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let (p, q) = (fixture.in_order(), fixture.in_order());
    let buffer = buffer(&fixture, true);
    let (_, event) = append(&buffer, 0, &[], &[], true).unwrap();
    let event = event.unwrap();
    simply(&buffer, 1, &[]);
    buffer.finalize().unwrap();
    for _ in 0..3 {
        assert_eq!(status(&event), UR_EVENT_STATUS_COMPLETE);
        enqueue(&buffer, &p, &[]).unwrap();
        assert_ne!(
            status(&event),
            UR_EVENT_STATUS_COMPLETE,
            "of the new submission"
        );
        let behind = launch(&q, 7, &[&event]);
        assert_eq!(status(&behind), UR_EVENT_STATUS_SUBMITTED);
        let line = fixture.driver.lanes.lock().unwrap()[0].number;
        while status(&event) != UR_EVENT_STATUS_COMPLETE {
            assert!(fixture.driver.step(line));
        }
        assert_ne!(
            fixture.driver.ran().last(),
            Some(&1),
            "its own command only"
        );
        completes(&fixture, &behind);
    }
}

/// Before the first submission a recorded command's event blocks nothing.
fn events_are_complete_before_it<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let (p, q) = (fixture.in_order(), fixture.in_order());
    let (buffer, other) = (buffer(&fixture, false), buffer(&fixture, false));
    let event = append(&buffer, 0, &[], &[], true).unwrap().1.unwrap();
    append(&other, 1, &[], &[&event], false).unwrap();
    other.finalize().unwrap();
    buffer.finalize().unwrap();
    assert_eq!(status(&event), UR_EVENT_STATUS_COMPLETE);
    event.wait_here().unwrap();
    let behind = [
        launch(&q, 2, &[&event]),
        enqueue(&other, &q, &[&event]).unwrap(),
    ];
    behind.iter().for_each(|behind| completes(&fixture, behind));
    assert_eq!(fixture.driver.ran(), [2, 1]);
    // From then on the event stands for the command in the submission.
    enqueue(&buffer, &p, &[]).unwrap();
    assert_ne!(status(&event), UR_EVENT_STATUS_COMPLETE);
    event.wait_here().unwrap();
    assert_eq!(
        fixture.driver.ran(),
        [2, 1, 0],
        "a wait before was another's"
    );
    let behind = enqueue(&other, &q, &[]).unwrap();
    completes(&fixture, &behind);
    assert_eq!(fixture.driver.ran(), [2, 1, 0, 1]);
}

fn only_what_waits_is_held_back<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let (p, q) = (fixture.in_order(), fixture.in_order());
    let buffer = buffer(&fixture, false);
    let one = launch(&q, 1, &[]);
    simply(&buffer, 0, &[]);
    append(&buffer, 2, &[], &[&one], false).unwrap();
    buffer.finalize().unwrap();
    let done = enqueue(&buffer, &p, &[]).unwrap();
    let line = fixture.driver.lanes.lock().unwrap()[0].number;
    while fixture.driver.step(line) {}
    assert_eq!(
        fixture.driver.ran(),
        [0],
        "only the one that waits is held back"
    );
    completes(&fixture, &done);
    assert_eq!(fixture.driver.ran(), [0, 1, 2]);
}

fn a_failure_on_the_way<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let queue = fixture.in_order();
    let buffer = buffer(&fixture, false);
    let event = |label| append(&buffer, label, &[], &[], true).unwrap().1.unwrap();
    let events = [event(0), event(1), event(2)];
    buffer.finalize().unwrap();
    *fixture.driver.fails_after.lock().unwrap() = Some(2);
    let failed = enqueue(&buffer, &queue, &[]);
    assert_eq!(code(failed), Some(UR_RESULT_ERROR_OUT_OF_RESOURCES));
    *fixture.driver.fails_after.lock().unwrap() = None;
    assert_eq!(status(&events[2]), UR_EVENT_STATUS_ERROR);
    let behind = without(&[&events[2]], |waits, event| {
        submission::command_buffer(&buffer, &queue, waits, event)
    });
    assert_eq!(
        code(behind),
        Some(UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS)
    );
    completes(&fixture, &events[1]);
    assert_eq!(fixture.driver.ran(), [0, 1], "what was given runs");
    let again = enqueue(&buffer, &queue, &[]).unwrap();
    completes(&fixture, &again);
    assert_eq!(status(&events[2]), UR_EVENT_STATUS_COMPLETE);
    assert_eq!(fixture.driver.ran(), [0, 1, 0, 1, 2]);
}

fn a_failure_on_the_way_of_several_lanes<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let (queue, other) = (fixture.out_of_order(), fixture.in_order());
    let buffer = buffer(&fixture, false);
    let roots = [simply(&buffer, 0, &[]), simply(&buffer, 1, &[])];
    simply(&buffer, 2, &roots);
    buffer.finalize().unwrap();
    *fixture.driver.fails_after.lock().unwrap() = Some(2);
    let failed = enqueue(&buffer, &queue, &[]);
    assert_eq!(code(failed), Some(UR_RESULT_ERROR_OUT_OF_RESOURCES));
    *fixture.driver.fails_after.lock().unwrap() = None;
    // The next submission follows the submitted part of this one.
    let waits = fixture.driver.waits();
    enqueue(&buffer, &other, &[]).unwrap();
    assert_eq!(fixture.driver.waits(), waits + 2);
    drop((buffer, queue));
    fixture.driver.run();
    until(|| fixture.driver.ran().len() == 5);
    let ran = fixture.driver.ran();
    assert_eq!(ran[2..], [0, 1, 2]);
}

fn its_life<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let queue = fixture.in_order();
    let buffer = buffer(&fixture, false);
    let refused = |result: Result<()>| {
        assert_eq!(code(result), Some(UR_RESULT_ERROR_INVALID_OPERATION));
    };
    refused(enqueue(&buffer, &queue, &[]).map(drop));
    buffer.finalize().unwrap();
    refused(buffer.finalize());
    refused(append(&buffer, 0, &[], &[], false).map(drop));
    // An empty command buffer acts as a marker.
    launch_only(&queue, 1, &[]);
    let done = enqueue(&buffer, &queue, &[]).unwrap();
    assert_eq!(status(&done), UR_EVENT_STATUS_SUBMITTED);
    completes(&fixture, &done);
    let foreign = Fixture::<D>::new();
    let elsewhere = enqueue(&buffer, &foreign.in_order(), &[]);
    assert_eq!(code(elsewhere), Some(UR_RESULT_ERROR_INVALID_QUEUE));
}

/// A submission keeps its objects until it has completed.
fn its_objects_stay<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let queue = fixture.in_order();
    let buffer = buffer(&fixture, false);
    let mem = Object::new(D::table(), FakeMem(64, 64));
    let made = buffer.target().buffer_fill(&mem, &[1], 0, 64).unwrap();
    // SAFETY: a null output is not written.
    let out = unsafe {
        Outputs {
            sync_point: Out::new(null_mut()),
            event: OutHandle::new(null_mut()),
            command: OutHandle::new(null_mut()),
        }
    };
    CommandBuffer::append(&buffer, made, Handles::EMPTY, &[], Handles::EMPTY, out).unwrap();
    buffer.finalize().unwrap();
    enqueue(&buffer, &queue, &[]).unwrap();
    let alive = Arc::downgrade(&mem);
    drop((mem, buffer));
    assert!(alive.upgrade().is_some());
    fixture.driver.run();
    until(|| alive.upgrade().is_none());
}

fn sync_points_are_its_own<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let (one, two) = (buffer(&fixture, false), buffer(&fixture, false));
    let point = simply(&one, 0, &[]);
    let own = simply(&two, 0, &[]);
    for wrong in [point, own.wrapping_add(1), own.wrapping_sub(1)] {
        let refused = append(&two, 1, &[wrong], &[], false);
        assert_eq!(
            code(refused),
            Some(UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_SYNC_POINT_EXP)
        );
    }
    let info: Result<ur_exp_command_buffer_desc_t> = info(|out| {
        let what = hal::CommandBufferInfo::Descriptor;
        <CommandBuffer<D> as hal::CommandBuffer<D>>::get_info_exp(&two, what, out)
    });
    assert_eq!(info.unwrap().isUpdatable, 1);
}

/// Commands that the backend can make one object of are one submission. All others are one submission each.
fn several_become_one<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    fixture.driver.compiles.store(3, Ordering::Relaxed);
    for queue in [fixture.in_order(), fixture.out_of_order()] {
        let buffer = buffer(&fixture, true);
        for label in 0..7 {
            simply(&buffer, label, &[]);
        }
        buffer.finalize().unwrap();
        let [submits, ..] = fixture.driver.calls();
        let done = enqueue(&buffer, &queue, &[]).unwrap();
        // Three commands, three commands, and one that is not worth an object.
        assert_eq!(fixture.driver.calls()[0], submits + 3);
        completes(&fixture, &done);
        let ran = std::mem::take(&mut *fixture.driver.ran.lock().unwrap());
        assert_eq!(ran, [0, 1, 2, 3, 4, 5, 6]);
    }
}

fn what_is_made_of_several_changes<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    fixture.driver.compiles.store(4, Ordering::Relaxed);
    let queue = fixture.in_order();
    let buffer = buffer(&fixture, true);
    for label in 0..4 {
        simply(&buffer, label, &[]);
    }
    buffer.finalize().unwrap();
    // The object takes over the first update, and is made anew for the second.
    for (at, label) in [(1, 40), (2, 60)] {
        let mut state = buffer.state();
        let replay = buffer.updated(&mut state).unwrap();
        let work = Work::Launch(label);
        let taken = replay.update(at, &work);
        replay.recording_mut().nodes[at].work = work;
        assert_eq!(taken, label < 50);
        if !taken {
            replay.plan(buffer.target(), true);
        }
    }
    let [submits, ..] = fixture.driver.calls();
    enqueue(&buffer, &queue, &[]).unwrap();
    assert_eq!(fixture.driver.calls()[0], submits + 1);
    fixture.driver.run();
    assert_eq!(fixture.driver.ran(), [0, 40, 60, 3]);
}

/// Other work may come between commands that wait for events or signal them.
fn events_keep_commands_apart<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    fixture.driver.compiles.store(9, Ordering::Relaxed);
    let queue = fixture.in_order();
    let buffer = buffer(&fixture, true);
    simply(&buffer, 0, &[]);
    append(&buffer, 1, &[], &[], true).unwrap();
    simply(&buffer, 2, &[]);
    buffer.finalize().unwrap();
    let [submits, ..] = fixture.driver.calls();
    enqueue(&buffer, &queue, &[]).unwrap();
    assert_eq!(fixture.driver.calls()[0], submits + 3);
    fixture.driver.run();
}

/// The dependents of a failed recorded command do not run, and the next submission does.
#[test]
fn a_failed_command_of_a_recording() {
    const BAD: u32 = 40;
    let failed = Some(UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS);
    for in_order in [true, false] {
        for place in 0..3 {
            let fixture = Fixture::<Polled>::new();
            let queue = match in_order {
                true => fixture.in_order(),
                false => fixture.out_of_order(),
            };
            let buffer = buffer(&fixture, false);
            let label = |at| if at == place { BAD } else { at };
            let mut after = Vec::new();
            let mut events = Vec::new();
            for at in 0..3 {
                let (point, event) = append(&buffer, label(at), &after, &[], true).unwrap();
                after = vec![point];
                events.extend(event);
            }
            buffer.finalize().unwrap();
            fixture.driver.failing.lock().unwrap().push(BAD);
            let done = enqueue(&buffer, &queue, &[]).unwrap();
            assert_eq!(code(queue.finish_here()), failed, "{place}");
            assert_eq!(code(done.wait_here()), failed, "{place}");
            assert_eq!(fixture.driver.ran(), Vec::from_iter(0..place));
            for (at, event) in (0..).zip(&events) {
                assert_eq!(event.wait_here().is_ok(), at < place, "{at}, {place}");
            }
            fixture.driver.failing.lock().unwrap().clear();
            fixture.driver.ran.lock().unwrap().clear();
            enqueue(&buffer, &queue, &[]).unwrap();
            assert_eq!(queue.finish_here(), Ok(()), "{place}");
            let all: Vec<_> = (0..3).map(label).collect();
            assert_eq!(fixture.driver.ran(), all, "{place}");
            assert!(events.iter().all(|event| event.wait_here().is_ok()));
        }
    }
}

/// A driver may run work within its submission. The command is complete then, also as one of a
/// command buffer; a command that waits is not run.
fn work_that_runs_at_once_is_complete<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let other = fixture.in_order();
    for queue in [fixture.in_order(), fixture.out_of_order()] {
        let buffer = buffer(&fixture, false);
        let first = simply(&buffer, 1, &[]);
        simply(&buffer, 2, &[first]);
        buffer.finalize().unwrap();
        fixture.driver.ran.lock().unwrap().clear();
        fixture.driver.immediate.store(true, Ordering::Relaxed);
        let alone = launch(&queue, 0, &[]);
        assert_eq!(status(&alone), UR_EVENT_STATUS_COMPLETE);
        let all = enqueue(&buffer, &queue, &[&alone]).unwrap();
        assert_eq!(status(&all), UR_EVENT_STATUS_COMPLETE);
        assert_eq!(fixture.driver.ran(), [0, 1, 2]);
        fixture.driver.immediate.store(false, Ordering::Relaxed);
        let pending = launch(&other, 3, &[]);
        fixture.driver.immediate.store(true, Ordering::Relaxed);
        let after = launch(&queue, 4, &[&pending]);
        assert_eq!(status(&after), UR_EVENT_STATUS_SUBMITTED);
        completes(&fixture, &after);
        assert_eq!(fixture.driver.ran(), [0, 1, 2, 3, 4]);
    }
}

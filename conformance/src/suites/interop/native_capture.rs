//! Captures of native queues: by the test, and by a capturing queue of work that the test submits there.

use super::native_command::{command, command_event};
use super::{SIZE, Setup, are_all, native};
use crate::fixture::Fixture;
use crate::kernels::IOTA;
use crate::native_work::Capture;
use crate::objects::{Arg, Event, Gate, Graph, Kind, Program, Queue};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_eq, check_items};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["native_capture";
        records_commands, records_on_adopted_queues, keeps_from_running, refuses_what_it_cannot_record, other_queues_go_on,
        joins_by_events, events_end_with_it, no_graph_is_captured_inside, foreign_work_is_captured, foreign_work_in_fork_and_join,
        native_commands_are_captured,
    ]
}

/// Begins a capture of a queue's native queue.
fn begin(setup: &Setup<'_>, queue: &Queue) -> Result<Box<dyn Capture>, Stop> {
    let capture = setup.backend.capture(native(queue)?);
    let capture = capture.ok_or_else(|| Stop::skipped("the backend has no captures"))?;
    capture.map_err(Stop::failed)
}

fn is_valid(capture: &dyn Capture) -> Done {
    let valid = capture.is_valid().map_err(Stop::failed)?;
    check!(valid, "a call made the capture useless");
    Ok(())
}

/// Ends a capture, and runs its commands.
fn run(capture: Box<dyn Capture>, times: usize) -> Done {
    let captured = capture.end().map_err(Stop::failed)?;
    (0..times).try_for_each(|_| captured.run().map_err(Stop::failed))
}

fn queues(setup: &Setup<'_>) -> Result<[Queue; 2], Stop> {
    Ok([setup.in_order()?, setup.out_of_order()?])
}

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: the tests pass a counter that outlives the executions.
    unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

fn count_on(queue: &Queue, counter: &AtomicU32) -> Done {
    let data = std::ptr::from_ref(counter).cast_mut().cast();
    let (list, event) = (null(), null_mut());
    queue
        .ur
        .urEnqueueHostTaskExp(queue.raw, Some(count), data, null(), 0, list, event)
        .ok()
}

/// Commands on a captured native queue are recorded in order, and run each time.
fn records_commands(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let program = Program::new(fixture, &setup.context)?;
    let iota = program.kernel(IOTA)?;
    let device = setup.context.usm(fixture, Kind::Device, SIZE)?;
    let numbers = setup.context.usm(fixture, Kind::Host, 4000)?;
    let calls = AtomicU32::new(0);
    for queue in queues(&setup)? {
        let capture = begin(&setup, &queue)?;
        queue.fill(device.ptr, 5_u8, SIZE, &[])?;
        queue.copy(setup.memory.ptr, device.ptr, SIZE, &[])?;
        // Patterns of the backend's own fills, and of the adapter's.
        queue.fill(device.ptr, [1_u8, 2, 3], 3 * 1000, &[])?;
        queue.launch(
            &iota,
            1000,
            &[Arg::Pointer(numbers.ptr), Arg::of(&7_u32)],
            &[],
        )?;
        queue.barrier(&[])?;
        command(&queue, &[], null_mut(), |_| {
            setup.fill(native(&queue)?, 6, &[], false).map(drop)
        })?;
        let (ur, list, none) = (fixture.ur, null(), null_mut());
        let flags = ur_usm_migration_flags_t(0);
        ur.urEnqueueUSMPrefetch(queue.raw, device.ptr, SIZE, flags, 0, list, none)
            .ok()?;
        count_on(&queue, &calls)?;
        is_valid(&*capture)?;
        let captured = capture.end().map_err(Stop::failed)?;
        for round in 0..3 {
            queue.fill(setup.memory.ptr, 9_u8, SIZE, &[])?;
            queue.fill(numbers.ptr, 9_u8, 4000, &[])?;
            queue.finish()?;
            captured.run().map_err(Stop::failed)?;
            setup.holds(6, "bytes after captured commands")?;
            check_items!(numbers.host::<u32>().to_vec(), 7..1007, "round {round}");
            check_eq!(
                calls.swap(0, Ordering::SeqCst),
                1,
                "calls of the host task, round {round}"
            );
        }
        let pattern = queue.read::<u8>(device.ptr, 6, &[])?;
        check_eq!(pattern, [1, 2, 3, 1, 2, 3], "bytes of a pattern");
    }
    Ok(())
}

/// A queue made from a captured native queue records, too.
fn records_on_adopted_queues(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let source = setup.in_order()?;
    let capture = begin(&setup, &source)?;
    let mut raw = null_mut();
    let (ur, context) = (fixture.ur, setup.context.raw);
    ur.urQueueCreateWithNativeHandle(native(&source)?, context, fixture.device, null(), &mut raw)
        .ok()?;
    let queue = Queue::adopt(ur, raw);
    queue.fill(setup.memory.ptr, 3_u8, SIZE, &[])?;
    source.fill(setup.memory.ptr, 4_u8, SIZE / 2, &[])?;
    is_valid(&*capture)?;
    run(capture, 2)?;
    let (first, second) = setup.memory.host::<u8>().split_at(SIZE / 2);
    are_all(second, 3, "bytes of the adopted queue's fill")?;
    are_all(first, 4, "bytes of the later fill")?;
    queue.finish()
}

/// A captured command does not run, and the queue works afterwards.
fn keeps_from_running(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    for queue in queues(&setup)? {
        queue.fill(setup.memory.ptr, 1_u8, SIZE, &[])?.wait()?;
        let capture = begin(&setup, &queue)?;
        let filled = queue.fill(setup.memory.ptr, 2_u8, SIZE, &[])?;
        check_eq!(
            filled.status()?,
            UR_EVENT_STATUS_QUEUED,
            "status of a captured command"
        );
        is_valid(&*capture)?;
        drop(capture);
        queue.finish()?;
        setup.holds(1, "bytes after a captured fill")?;
        queue.fill(setup.memory.ptr, 3_u8, SIZE, &[])?.wait()?;
        setup.holds(3, "bytes after the capture")?;
    }
    Ok(())
}

/// A command that cannot be recorded is refused, and the capture stays valid.
fn refuses_what_it_cannot_record(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let unsupported = UR_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED;
    let device = setup.context.usm(fixture, Kind::Device, SIZE)?;
    let buffer = setup.context.buffer(64)?;
    let far = setup.in_order()?;
    for queue in queues(&setup)? {
        let before = queue.fill(setup.memory.ptr, 1_u8, SIZE, &[])?;
        let gate = Gate::close(fixture, &far)?;
        let pending = far.fill(device.ptr, 1_u8, SIZE, &[])?;
        let capture = begin(&setup, &queue)?;
        let (ur, q, none, list) = (fixture.ur, queue.raw, null_mut(), null());
        let (dst, src) = (device.ptr, setup.memory.ptr);
        ur.urEnqueueUSMMemcpy(q, 1, dst, src, 32, 0, list, none)
            .fails(unsupported)?;
        ur.urQueueFinish(q).fails(unsupported)?;
        let (mut mapped, mut event, mut block) = (null_mut(), null_mut(), null_mut());
        let flags = UR_MAP_FLAG_READ;
        ur.urEnqueueMemBufferMap(q, buffer.raw, 0, flags, 0, 64, 0, list, none, &mut mapped)
            .fails(unsupported)?;
        ur.urEnqueueTimestampRecordingExp(q, 0, 0, list, &mut event)
            .fails(unsupported)?;
        let pool = null_mut();
        ur.urEnqueueUSMDeviceAllocExp(q, pool, 64, null(), 0, list, &mut block, none)
            .fails(unsupported)?;
        ur.urEnqueueUSMFreeExp(q, pool, device.ptr, 0, list, none)
            .fails(unsupported)?;
        // The graph could not wait for this command each time.
        ur.urEnqueueEventsWait(q, 1, &pending.raw, none)
            .fails(unsupported)?;
        check!(
            mapped.is_null() && event.is_null() && block.is_null(),
            "a refused command wrote a result"
        );
        is_valid(&*capture)?;
        // What has ended needs no wait.
        gate.open();
        pending.wait()?;
        before.wait()?;
        queue.fill(setup.memory.ptr, 4_u8, SIZE, &[&pending, &before])?;
        is_valid(&*capture)?;
        run(capture, 1)?;
        setup.holds(4, "bytes of the captured fill")?;
        queue.finish()?;
    }
    Ok(())
}

/// Other queues, memory and waits of the host work during a capture, which stays valid.
fn other_queues_go_on(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let (queue, other) = (setup.in_order()?, setup.out_of_order()?);
    let read = setup.context.usm(fixture, Kind::Host, SIZE)?;
    let capture = begin(&setup, &queue)?;
    queue.fill(setup.memory.ptr, 2_u8, SIZE, &[])?;
    for kind in [Kind::Device, Kind::Host, Kind::Shared] {
        let memory = setup.context.usm(fixture, kind, SIZE)?;
        let filled = other.fill(memory.ptr, 7_u8, SIZE, &[])?;
        // To memory that the backend knows: a copy to other memory may wait for it by itself.
        other.copy(read.ptr, memory.ptr, SIZE, &[&filled])?.wait()?;
        are_all(read.host(), 7, "bytes of another queue")?;
    }
    let calls = AtomicU32::new(0);
    count_on(&other, &calls)?;
    other.finish()?;
    check_eq!(calls.load(Ordering::SeqCst), 1, "calls of a host task");
    let third = setup.in_order()?;
    third.marker(&[])?.wait()?;
    is_valid(&*capture)?;
    run(capture, 1)?;
    setup.holds(2, "bytes of the captured fill")
}

/// A queue that waits for a captured command joins the capture.
fn joins_by_events(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    for other in queues(&setup)? {
        let queue = setup.in_order()?;
        let device = setup.context.usm(fixture, Kind::Device, SIZE)?;
        let earlier = other.fill(device.ptr, 1_u8, SIZE, &[])?;
        let capture = begin(&setup, &queue)?;
        let first = queue.fill(device.ptr, 2_u8, SIZE, &[])?;
        let second = other.copy(setup.memory.ptr, device.ptr, SIZE, &[&first])?;
        earlier.wait()?;
        queue.barrier(&[&second])?;
        queue.fill(setup.memory.ptr, 3_u8, SIZE / 2, &[])?;
        is_valid(&*capture)?;
        let captured = capture.end().map_err(Stop::failed)?;
        for _ in 0..2 {
            queue.fill(setup.memory.ptr, 9_u8, SIZE, &[])?.wait()?;
            captured.run().map_err(Stop::failed)?;
            let (first, second) = setup.memory.host::<u8>().split_at(SIZE / 2);
            are_all(second, 2, "bytes of the queue that joined")?;
            are_all(first, 3, "bytes behind it")?;
        }
        other.fill(setup.memory.ptr, 4_u8, SIZE, &[])?.wait()?;
        setup.holds(4, "bytes after the capture")?;
    }
    Ok(())
}

/// The event of a captured command cannot be waited for outside its capture.
fn events_end_with_it(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let queue = setup.in_order()?;
    let inside = UR_RESULT_ERROR_GRAPH_INTERNAL_EVENT;
    let capture = begin(&setup, &queue)?;
    let filled = queue.fill(setup.memory.ptr, 2_u8, SIZE, &[])?;
    let wait = |event: &Event| fixture.ur.urEventWait(1, &event.raw).fails(inside);
    wait(&filled)?;
    is_valid(&*capture)?;
    run(capture, 1)?;
    wait(&filled)?;
    setup.holds(2, "bytes of the captured fill")
}

/// A capture of the interface cannot begin on a queue whose native queue is captured.
fn no_graph_is_captured_inside(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    Graph::need(fixture, &setup.context)?;
    let (queue, other) = (setup.in_order()?, setup.in_order()?);
    let merge = UR_RESULT_ERROR_GRAPH_CAPTURE_MERGE_ATTEMPT;
    let graph = Graph::capture(&other, || other.marker(&[]).map(drop))?;
    let executable = graph.instantiate()?;
    let capture = begin(&setup, &queue)?;
    let ur = fixture.ur;
    ur.urQueueBeginGraphCaptureExp(queue.raw).fails(merge)?;
    ur.urEnqueueGraphExp(queue.raw, executable.raw, 0, null(), null_mut())
        .fails(UR_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED)?;
    let theirs = queue.fill(setup.memory.ptr, 2_u8, SIZE, &[])?;
    let ours = Graph::capture(&other, || {
        let own = other.marker(&[])?;
        ur.urEnqueueEventsWait(other.raw, 1, &theirs.raw, null_mut())
            .fails(merge)?;
        ur.urEnqueueEventsWait(queue.raw, 1, &own.raw, null_mut())
            .fails(merge)
    })?;
    check!(!ours.is_empty()?, "the capture of the interface is empty");
    is_valid(&*capture)?;
    run(capture, 1)?;
    setup.holds(2, "bytes of the captured fill")
}

/// Stops the test unless queues of the backend capture native work.
fn need_native(setup: &Setup<'_>) -> Done {
    Graph::need(setup.fixture, &setup.context)?;
    let queue = setup.in_order()?;
    drop(begin(setup, &queue)?);
    Ok(())
}

/// Native work on a capturing queue's native queue is recorded in its place, and runs each time.
fn foreign_work_is_captured(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    need_native(&setup)?;
    let copy = setup.context.usm(fixture, Kind::Host, SIZE)?;
    // The native handle is given out before the capture, and within.
    for early in [true, false] {
        let queue = setup.in_order()?;
        if early {
            native(&queue)?;
        }
        setup.memory_is(&queue, 1)?;
        let graph = Graph::capture(&queue, || {
            let handle = native(&queue)?;
            queue.fill(setup.memory.ptr, 2_u8, SIZE, &[])?;
            setup.fill(handle, 3, &[], false)?;
            queue.copy(copy.ptr, setup.memory.ptr, SIZE, &[])?;
            setup.fill(handle, 4, &[], false).map(drop)
        })?;
        queue.finish()?;
        setup.holds(1, "bytes before the graph runs")?;
        let executable = graph.instantiate()?;
        for queue in queues(&setup)? {
            for _ in 0..3 {
                queue.fill(copy.ptr, 9_u8, SIZE, &[])?.wait()?;
                executable.enqueue(&queue, &[])?.wait()?;
                setup.holds(4, "bytes of the last native work")?;
                are_all(copy.host(), 3, "bytes copied behind native work")?;
            }
        }
        // The queue and its native queue work afterwards.
        drop(setup.fill(native(&queue)?, 5, &[], false)?);
        queue.finish()?;
        setup.holds(5, "bytes of native work after the capture")?;
    }
    Ok(())
}

/// Native work on a queue that joined the capture is recorded, too.
fn foreign_work_in_fork_and_join(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    need_native(&setup)?;
    let (queue, side) = (setup.in_order()?, setup.in_order()?);
    let copy = setup.context.usm(fixture, Kind::Host, SIZE)?;
    native(&side)?;
    let graph = Graph::capture(&queue, || {
        let first = queue.fill(setup.memory.ptr, 2_u8, SIZE, &[])?;
        side.marker(&[&first])?;
        setup.fill(native(&side)?, 3, &[], false)?;
        let second = side.marker(&[])?;
        queue
            .copy(copy.ptr, setup.memory.ptr, SIZE, &[&second])
            .map(drop)
    })?;
    let executable = graph.instantiate()?;
    for _ in 0..3 {
        queue.fill(copy.ptr, 9_u8, SIZE, &[])?;
        executable.enqueue(&queue, &[])?.wait()?;
        are_all(
            copy.host(),
            3,
            "bytes copied behind native work of another queue",
        )?;
    }
    side.finish()
}

/// A native command in a capture follows its wait list, runs each time, and its event stands for it. Where the
/// backend cannot capture native work, the command is refused.
fn native_commands_are_captured(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    Graph::need(fixture, &setup.context)?;
    let captures = need_native(&setup).is_ok();
    let copy = setup.context.usm(fixture, Kind::Host, SIZE)?;
    for queue in queues(&setup)? {
        setup.memory_is(&queue, 1)?;
        let graph = Graph::capture(&queue, || {
            let first = queue.fill(setup.memory.ptr, 2_u8, SIZE, &[])?;
            if !captures {
                let call = command(&queue, &[&first], null_mut(), |_| Ok(()));
                check!(call.is_err(), "a native command was not refused");
                return Ok(());
            }
            let second = command_event(&queue, &[&first], |_| {
                setup.fill(native(&queue)?, 3, &[], false)?;
                command(&queue, &[], null_mut(), |_| {
                    setup.fill(native(&queue)?, 4, &[], false).map(drop)
                })
            })?;
            queue
                .copy(copy.ptr, setup.memory.ptr, SIZE, &[&second])
                .map(drop)
        })?;
        queue.finish()?;
        setup.holds(1, "bytes before the graph runs")?;
        if !captures {
            continue;
        }
        let executable = graph.instantiate()?;
        for _ in 0..3 {
            queue.fill(copy.ptr, 9_u8, SIZE, &[])?.wait()?;
            executable.enqueue(&queue, &[])?.wait()?;
            are_all(copy.host(), 4, "bytes copied behind a native command")?;
        }
    }
    Ok(())
}

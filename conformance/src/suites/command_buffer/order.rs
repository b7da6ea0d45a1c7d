//! The order of command buffers: sync points, queues, successive submissions, events and profiling.

use crate::fixture::Fixture;
use crate::kernels::{ADD, IOTA};
use crate::objects::{Arg, CommandBuffer, Context, Event, Gate, Kind, Program, Queue, Shape, With};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_all, check_eq};
use std::ptr::{null, null_mut};
use std::time::Duration;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["command_buffer_order";
        chain, in_order_ignores_points, diamond, submissions_run_in_order, across_queues,
        between_commands_of_a_queue, waits_for_its_list, does_not_block_independent_commands,
        signal_event, signal_event_before_submission, wait_events, events_between_buffers,
        events_of_own_commands, event_states, callback, profiling, profiling_by_the_buffer, release_while_running,
    ]
}

const SHORT: Duration = Duration::from_millis(30);
const LONG: Duration = Duration::from_secs(10);

fn need_events(fixture: &Fixture, context: &Context) -> Done {
    CommandBuffer::need(fixture, context)?;
    let buffer = CommandBuffer::new(fixture, context, Shape::default())?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let (pattern, mut event) = (1_u8, null_mut());
    fixture.require(UR_DEVICE_INFO_COMMAND_BUFFER_EVENT_SUPPORT_EXP, || {
        fixture.ur.urCommandBufferAppendUSMFillExp(
            buffer.raw,
            memory.ptr,
            (&raw const pattern).cast(),
            1,
            64,
            0,
            null(),
            0,
            null(),
            null_mut(),
            &mut event,
            null_mut(),
        )
    })
}

fn queues(fixture: &Fixture, context: &Context) -> Result<[Queue; 2], Stop> {
    Ok([context.in_order(fixture)?, context.out_of_order(fixture)?])
}

/// Sync points order a chain of launches and copies over two blocks.
fn chain(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::new(fixture, &context)?;
    let add = program.kernel(ADD)?;
    for queue in queues(fixture, &context)? {
        let [a, b] = [(); 2].map(|()| context.usm(fixture, Kind::Device, 4000));
        let (a, b) = (a?, b?);
        let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
        let mut last = buffer.fill(a.ptr, 0_u32, 4000, With::default())?.point;
        for _ in 0..20 {
            let args = [Arg::Pointer(a.ptr), Arg::of(&1_u32)];
            last = buffer
                .launch(&add, 1000, &args, With::after(&[last]))?
                .point;
            last = buffer.copy(b.ptr, a.ptr, 4000, With::after(&[last]))?.point;
            let args = [Arg::Pointer(b.ptr), Arg::of(&1_u32)];
            last = buffer
                .launch(&add, 1000, &args, With::after(&[last]))?
                .point;
            last = buffer.copy(a.ptr, b.ptr, 4000, With::after(&[last]))?.point;
        }
        buffer.finalize()?;
        for round in 0..5 {
            let done = buffer.enqueue(&queue, &[])?;
            let data: Vec<u32> = queue.read(a.ptr, 1000, &[&done])?;
            check_all!(data, 40, "words in round {round}");
        }
    }
    Ok(())
}

/// An in-order command buffer runs its commands in order without sync points.
fn in_order_ignores_points(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let shape = Shape {
        in_order: true,
        ..Shape::default()
    };
    for queue in queues(fixture, &context)? {
        let [a, b] = [(); 2].map(|()| context.usm(fixture, Kind::Device, 1 << 20));
        let (a, b) = (a?, b?);
        let buffer = CommandBuffer::new(fixture, &context, shape)?;
        for tag in 1..20_u8 {
            // An in-order buffer accepts a sync point and needs none.
            let filled = buffer.fill(a.ptr, tag, 1 << 20, With::default())?;
            buffer.copy(b.ptr, a.ptr, 1 << 20, With::after(&[filled.point]))?;
            buffer.copy(a.ptr, b.ptr, 1 << 20, With::default())?;
        }
        buffer.finalize()?;
        let done = buffer.enqueue(&queue, &[])?;
        let data: Vec<u8> = queue.read(a.ptr, 1 << 20, &[&done])?;
        check_all!(data, 19, "bytes after an in-order buffer");
    }
    Ok(())
}

/// Sync points order five branches between a common start and a common end.
fn diamond(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::new(fixture, &context)?;
    let (iota, add) = (program.kernel(IOTA)?, program.kernel(ADD)?);
    let items = 5000;
    for queue in queues(fixture, &context)? {
        let parts = (0..6)
            .map(|_| context.usm(fixture, Kind::Device, items * 4))
            .collect::<Result<Vec<_>, _>>()?;
        let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
        let first = [Arg::Pointer(parts[0].ptr), Arg::of(&1_u32)];
        let first = buffer.launch(&iota, items, &first, With::default())?.point;
        let mut ends = Vec::new();
        for (at, part) in parts.iter().enumerate().skip(1) {
            let copied = buffer.copy(part.ptr, parts[0].ptr, items * 4, With::after(&[first]))?;
            let amount = at as u32 * 1000;
            let args = [Arg::Pointer(part.ptr), Arg::of(&amount)];
            let added = buffer.launch(&add, items, &args, With::after(&[copied.point]))?;
            ends.push(added.point);
        }
        // After all branches the source may be written again.
        let args = [Arg::Pointer(parts[0].ptr), Arg::of(&5_u32)];
        buffer.launch(&add, items, &args, With::after(&ends))?;
        buffer.finalize()?;
        for round in 0..10 {
            let done = buffer.enqueue(&queue, &[])?;
            for (at, part) in parts.iter().enumerate() {
                let base = if at == 0 { 6 } else { 1 + at as u32 * 1000 };
                let data: Vec<u32> = queue.read(part.ptr, items, &[&done])?;
                let right = data.into_iter().eq(base..base + items as u32);
                check!(right, "words are wrong in round {round}, part {at}");
            }
        }
    }
    Ok(())
}

/// Submissions of one command buffer run one after another, also without events.
fn submissions_run_in_order(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::new(fixture, &context)?;
    let add = program.kernel(ADD)?;
    for queue in queues(fixture, &context)? {
        let memory = context.usm(fixture, Kind::Device, 400_000)?;
        let filled = queue.fill(memory.ptr, 0_u32, 400_000, &[])?;
        filled.wait()?;
        let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
        let args = [Arg::Pointer(memory.ptr), Arg::of(&1_u32)];
        buffer.launch(&add, 100_000, &args, With::default())?;
        buffer.finalize()?;
        for _ in 0..50 {
            buffer.enqueue_only(&queue)?;
        }
        queue.finish()?;
        let data: Vec<u32> = queue.read(memory.ptr, 100_000, &[])?;
        check_all!(data, 50, "words after 50 submissions");
    }
    Ok(())
}

/// Submissions of one command buffer to several queues run one after another.
fn across_queues(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::new(fixture, &context)?;
    let add = program.kernel(ADD)?;
    let [p, q] = queues(fixture, &context)?;
    let r = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 400_000)?;
    p.fill(memory.ptr, 0_u32, 400_000, &[])?.wait()?;
    let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
    let args = [Arg::Pointer(memory.ptr), Arg::of(&1_u32)];
    let first = buffer.launch(&add, 100_000, &args, With::default())?;
    buffer.launch(&add, 100_000, &args, With::after(&[first.point]))?;
    buffer.finalize()?;
    let gate = Gate::close(fixture, &p)?;
    let mut last = None;
    for round in 0..30 {
        let queue = [&p, &q, &r][round % 3];
        last = Some(buffer.enqueue(queue, &[])?);
    }
    let last = last.ok_or_else(|| Stop::failed("no submission"))?;
    check!(
        !last.completes_within(SHORT)?,
        "a submission overtook one on a blocked queue"
    );
    gate.open();
    last.wait()?;
    let data: Vec<u32> = r.read(memory.ptr, 100_000, &[])?;
    check_all!(data, 60, "words after 30 submissions of 2 launches");
    Ok(())
}

/// A submission keeps its place among the commands of an in-order queue.
fn between_commands_of_a_queue(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let [a, b] = [(); 2].map(|()| context.usm(fixture, Kind::Device, 1 << 20));
    let (a, b) = (a?, b?);
    let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
    buffer.copy(b.ptr, a.ptr, 1 << 20, With::default())?;
    buffer.finalize()?;
    for tag in 1..20_u8 {
        queue.fill(a.ptr, tag, 1 << 20, &[])?;
        buffer.enqueue_only(&queue)?;
        queue.fill(a.ptr, 0_u8, 1 << 20, &[])?;
        let data: Vec<u8> = queue.read(b.ptr, 1 << 20, &[])?;
        check_all!(data, tag, "round {tag}");
    }
    Ok(())
}

/// A submission waits for its wait list.
fn waits_for_its_list(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let other = context.in_order(fixture)?;
    for queue in queues(fixture, &context)? {
        let memory = context.usm(fixture, Kind::Device, 4000)?;
        let out = context.usm(fixture, Kind::Host, 4000)?;
        let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
        buffer.copy(out.ptr, memory.ptr, 4000, With::default())?;
        buffer.finalize()?;
        let gate = Gate::close(fixture, &other)?;
        let filled = other.fill(memory.ptr, 4_u8, 4000, &[])?;
        let done = buffer.enqueue(&queue, &[&filled])?;
        check!(
            !done.completes_within(SHORT)?,
            "the submission did not wait for its list"
        );
        gate.open();
        done.wait()?;
        check_all!(out.host::<u8>(), 4, "bytes copied after the wait list");
    }
    Ok(())
}

/// A blocked submission does not block independent commands of an out-of-order queue.
fn does_not_block_independent_commands(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let (other, queue) = (context.in_order(fixture)?, context.out_of_order(fixture)?);
    // Each command writes its own range, since nothing orders them.
    let memory = context.usm(fixture, Kind::Device, 9 * 4000)?;
    let part = |number: usize| memory.ptr.wrapping_byte_add(number * 4000);
    let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
    for number in 0..8 {
        buffer.fill(part(number), 1_u8, 4000, With::default())?;
    }
    buffer.finalize()?;
    let gate = Gate::close(fixture, &other)?;
    let done = buffer.enqueue(&queue, &[&gate.event])?;
    let free = queue.fill(part(8), 2_u8, 4000, &[])?;
    check!(free.completes_within(LONG)?, "an independent command waits");
    check!(!done.is_complete()?, "the submission did not wait");
    gate.open();
    done.wait()
}

/// A recorded command's event stands for the command in the present submission.
fn signal_event(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need_events(fixture, &context)?;
    let other = context.in_order(fixture)?;
    for queue in queues(fixture, &context)? {
        let [a, b] = [(); 2].map(|()| context.usm(fixture, Kind::Device, 4000));
        let (a, b) = (a?, b?);
        let out = context.usm(fixture, Kind::Host, 4000)?;
        let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
        let copied = buffer.copy(b.ptr, a.ptr, 4000, With::event())?;
        let point = copied.point;
        let copied = copied.into_event()?;
        buffer.fill(a.ptr, 0_u8, 4000, With::after(&[point]))?;
        buffer.finalize()?;
        check_eq!(
            copied.get::<ur_command_t>(UR_EVENT_INFO_COMMAND_TYPE)?,
            UR_COMMAND_USM_MEMCPY,
            "command type"
        );
        check_eq!(
            copied.get::<ur_context_handle_t>(UR_EVENT_INFO_CONTEXT)?,
            context.raw,
            "context"
        );
        for tag in 1..10_u8 {
            let gate = Gate::close(fixture, &other)?;
            let filled = other.fill(a.ptr, tag, 4000, &[])?;
            let done = buffer.enqueue(&queue, &[&filled])?;
            check!(
                !copied.is_complete()?,
                "the event of a pending command is complete"
            );
            let read = other.copy(out.ptr, b.ptr, 4000, &[&copied])?;
            gate.open();
            read.wait()?;
            check!(
                copied.is_complete()?,
                "the event of a completed command is not complete"
            );
            check_all!(out.host::<u8>(), tag, "round {tag}");
            done.wait()?;
        }
    }
    Ok(())
}

/// A recorded command's event is complete before the first submission.
fn signal_event_before_submission(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need_events(fixture, &context)?;
    let memory = context.usm(fixture, Kind::Device, 4000)?;
    let out = context.usm(fixture, Kind::Host, 4000)?;
    for queue in queues(fixture, &context)? {
        queue.fill(memory.ptr, 1_u8, 4000, &[])?.wait()?;
        let shape = Shape {
            profiled: true,
            ..Shape::default()
        };
        let buffer = CommandBuffer::new(fixture, &context, shape)?;
        let filled = buffer.fill(memory.ptr, 6_u8, 4000, With::event())?;
        let filled = filled.into_event()?;
        let other = CommandBuffer::new(fixture, &context, Shape::default())?;
        other.copy(out.ptr, memory.ptr, 4000, With::waits(&[&filled]))?;
        other.finalize()?;
        let holds_nothing = || -> Done {
            check!(
                filled.is_complete()?,
                "the event is not complete before a submission"
            );
            filled.wait()?;
            fixture
                .ur
                .urEnqueueEventsWait(queue.raw, 1, &filled.raw, null_mut())
                .ok()?;
            queue.barrier(&[&filled])?.wait()?;
            queue.copy(out.ptr, memory.ptr, 4000, &[&filled])?.wait()?;
            queue.fill(out.ptr, 0_u8, 4000, &[])?.wait()?;
            other.enqueue(&queue, &[&filled])?.wait()?;
            let read = out.host::<u8>().iter().all(|byte| *byte == 1);
            check!(read, "a copy did not see the earlier fill");
            let (mut time, property) = (0_u64, UR_PROFILING_INFO_COMMAND_END);
            fixture
                .ur
                .urEventGetProfilingInfo(
                    filled.raw,
                    property,
                    size_of::<u64>(),
                    (&raw mut time).cast(),
                    null_mut(),
                )
                .fails(UR_RESULT_ERROR_PROFILING_INFO_NOT_AVAILABLE)?;
            calls_back_at_once(fixture, &filled)
        };
        // The event's state does not depend on whether the buffer is finalized.
        holds_nothing()?;
        buffer.finalize()?;
        holds_nothing()?;
        let gate = Gate::close(fixture, &queue)?;
        buffer.enqueue(&queue, &[&gate.event])?;
        check!(
            !filled.is_complete()?,
            "the event is complete while its command is blocked"
        );
        gate.open();
        filled.wait()?;
        check!(
            filled.is_complete()?,
            "the event is not complete after the submission"
        );
        let [_, _, start, end] = times(&filled)?;
        check!(
            0 < start && start <= end,
            "the command ran from {start} to {end}"
        );
        queue.finish()?;
    }
    Ok(())
}

/// A recorded command waits for its events, and independent recorded commands do not.
fn wait_events(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need_events(fixture, &context)?;
    let other = context.in_order(fixture)?;
    for queue in queues(fixture, &context)? {
        let [a, b] = [(); 2].map(|()| context.usm(fixture, Kind::Host, 4000));
        let (a, b) = (a?, b?);
        let gate = Gate::close(fixture, &other)?;
        let source = other.fill(a.ptr, 3_u8, 4000, &[])?;
        let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
        let free = buffer.fill(b.ptr, 1_u8, 4000, With::event())?;
        let point = free.point;
        let free = free.into_event()?;
        buffer.copy(
            b.ptr,
            a.ptr,
            4000,
            With {
                after: &[point],
                waits: &[&source],
                ..With::default()
            },
        )?;
        buffer.finalize()?;
        let done = buffer.enqueue(&queue, &[])?;
        check!(
            free.completes_within(LONG)?,
            "an independent command did not complete"
        );
        check!(
            !done.completes_within(SHORT)?,
            "a command did not wait for its event"
        );
        gate.open();
        done.wait()?;
        check_all!(b.host::<u8>(), 3, "bytes copied after the event");
        // The event is complete now and blocks nothing.
        buffer.enqueue(&queue, &[])?.wait()?;
    }
    Ok(())
}

/// A command buffer waits for a command of another one at each submission.
fn events_between_buffers(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need_events(fixture, &context)?;
    let [p, q] = queues(fixture, &context)?;
    let program = Program::new(fixture, &context)?;
    let add = program.kernel(ADD)?;
    let memory = context.usm(fixture, Kind::Device, 4000)?;
    p.fill(memory.ptr, 0_u32, 4000, &[])?.wait()?;
    let one = CommandBuffer::new(fixture, &context, Shape::default())?;
    let args = [Arg::Pointer(memory.ptr), Arg::of(&1_u32)];
    let added = one.launch(&add, 1000, &args, With::event())?.into_event()?;
    one.finalize()?;
    let two = CommandBuffer::new(fixture, &context, Shape::default())?;
    let out = context.usm(fixture, Kind::Host, 4000)?;
    two.copy(out.ptr, memory.ptr, 4000, With::waits(&[&added]))?;
    two.finalize()?;
    for round in 1..20_u32 {
        one.enqueue_only(&p)?;
        two.enqueue(&q, &[])?.wait()?;
        check_all!(out.host::<u32>(), round, "round {round}");
    }
    Ok(())
}

/// An event of the buffer's own command orders as its sync point does.
fn events_of_own_commands(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need_events(fixture, &context)?;
    for queue in queues(fixture, &context)? {
        let [a, b] = [(); 2].map(|()| context.usm(fixture, Kind::Device, 1 << 20));
        let (a, b) = (a?, b?);
        let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
        let filled = buffer
            .fill(a.ptr, 7_u8, 1 << 20, With::event())?
            .into_event()?;
        let with = With {
            waits: &[&filled],
            event: true,
            ..With::default()
        };
        let copied = buffer.copy(b.ptr, a.ptr, 1 << 20, with)?.into_event()?;
        buffer.fill(a.ptr, 0_u8, 1 << 20, With::waits(&[&copied]))?;
        buffer.finalize()?;
        for round in 0..5 {
            queue.fill(b.ptr, 0_u8, 1 << 20, &[])?.wait()?;
            let done = buffer.enqueue(&queue, &[])?;
            let data: Vec<u8> = queue.read(b.ptr, 1 << 20, &[&done])?;
            check_all!(data, 7, "round {round}");
        }
    }
    Ok(())
}

/// The events of a submission and of its commands are complete exactly when those are.
fn event_states(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need_events(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
    let event = buffer
        .fill(memory.ptr, 1_u8, 64, With::event())?
        .into_event()?;
    buffer.finalize()?;
    check!(
        event.is_complete()?,
        "the event is not complete before the first submission"
    );
    let gate = Gate::close(fixture, &queue)?;
    let done = buffer.enqueue(&queue, &[])?;
    check!(
        !event.is_complete()? && !done.is_complete()?,
        "an event is complete while the queue is blocked"
    );
    gate.open();
    done.wait()?;
    event.wait()?;
    check!(
        event.is_complete()? && done.is_complete()?,
        "an event is not complete after the submission"
    );
    drop(buffer);
    check!(
        event.is_complete()?,
        "the event is not complete after its buffer's release"
    );
    Ok(())
}

extern "C" fn record_call(
    _: ur_event_handle_t,
    _: ur_execution_info_t,
    data: *mut std::ffi::c_void,
) {
    // SAFETY: the test passes a counter that it leaks.
    let seen = unsafe { &*data.cast::<std::sync::atomic::AtomicU32>() };
    seen.fetch_add(1, std::sync::atomic::Ordering::Release);
}

/// Checks that a callback on a complete event runs without another call.
fn calls_back_at_once(fixture: &Fixture, event: &Event) -> Done {
    let seen = crate::leak::leak(std::sync::atomic::AtomicU32::new(0));
    let data = std::ptr::from_ref(seen).cast_mut().cast();
    fixture
        .ur
        .urEventSetCallback(
            event.raw,
            UR_EXECUTION_INFO_COMPLETE,
            Some(record_call),
            data,
        )
        .ok()?;
    check_eq!(calls_of(seen), 1, "calls of a callback on a complete event");
    Ok(())
}

/// The number of a callback's calls, after a wait for the first.
fn calls_of(seen: &std::sync::atomic::AtomicU32) -> u32 {
    let calls = || seen.load(std::sync::atomic::Ordering::Acquire);
    let start = std::time::Instant::now();
    while calls() == 0 && start.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(1));
    }
    calls()
}

/// A callback on the event of a submission runs once, after completion.
fn callback(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    CommandBuffer::need(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
    buffer.fill(memory.ptr, 1_u8, 64, With::default())?;
    buffer.finalize()?;
    let seen = crate::leak::leak(std::sync::atomic::AtomicU32::new(0));
    let calls = || seen.load(std::sync::atomic::Ordering::Acquire);
    let gate = Gate::close(fixture, &queue)?;
    let done = buffer.enqueue(&queue, &[])?;
    let data = std::ptr::from_ref(seen).cast_mut().cast();
    fixture
        .ur
        .urEventSetCallback(
            done.raw,
            UR_EXECUTION_INFO_COMPLETE,
            Some(record_call),
            data,
        )
        .ok()?;
    check_eq!(calls(), 0, "calls while the queue is blocked");
    gate.open();
    check_eq!(calls_of(seen), 1, "calls after completion");
    Ok(())
}

fn times(event: &Event) -> Result<[u64; 4], Stop> {
    Ok([
        event.time(UR_PROFILING_INFO_COMMAND_QUEUED)?,
        event.time(UR_PROFILING_INFO_COMMAND_SUBMIT)?,
        event.time(UR_PROFILING_INFO_COMMAND_START)?,
        event.time(UR_PROFILING_INFO_COMMAND_END)?,
    ])
}

fn profiled(fixture: &Fixture, flags: ur_queue_flags_t, shape: Shape) -> Done {
    let context = Context::new(fixture)?;
    let queue = Queue::new(&context, fixture.device, flags)?;
    let [a, b] = [(); 2].map(|()| context.usm(fixture, Kind::Device, 8 << 20));
    let (a, b) = (a?, b?);
    let buffer = CommandBuffer::new(fixture, &context, shape)?;
    let filled = buffer.fill(a.ptr, 1_u8, 8 << 20, With::default())?.point;
    buffer.copy(b.ptr, a.ptr, 8 << 20, With::after(&[filled]))?;
    buffer.fill(b.ptr, 2_u8, 64, With::default())?;
    buffer.finalize()?;
    let mut before = 0;
    for round in 0..3 {
        let done = buffer.enqueue(&queue, &[])?;
        done.wait()?;
        let [queued, submitted, start, end] = times(&done)?;
        check!(
            before <= queued && queued <= submitted && submitted <= start && start < end,
            "times do not increase in round {round}: {before} {queued} {submitted} {start} {end}"
        );
        before = queued;
    }
    Ok(())
}

/// The times of a submission increase on a queue with profiling.
fn profiling(fixture: &Fixture) -> Done {
    for order in [
        ur_queue_flags_t(0),
        UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE,
    ] {
        profiled(
            fixture,
            order | UR_QUEUE_FLAG_PROFILING_ENABLE,
            Shape::default(),
        )?;
    }
    Ok(())
}

/// A command buffer with profiling has times on a queue without it.
fn profiling_by_the_buffer(fixture: &Fixture) -> Done {
    let shape = Shape {
        profiled: true,
        ..Shape::default()
    };
    for order in [
        ur_queue_flags_t(0),
        UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE,
    ] {
        profiled(fixture, order, shape)?;
    }
    Ok(())
}

/// A command buffer may be released while a submission is pending.
fn release_while_running(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    for queue in queues(fixture, &context)? {
        let out = context.usm(fixture, Kind::Host, 4096)?;
        let mem = context.buffer(4096)?;
        let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
        let (ur, pattern) = (fixture.ur, 5_u8);
        let filled = buffer.append(With::default(), |s| {
            let from = (&raw const pattern).cast();
            ur.urCommandBufferAppendMemBufferFillExp(
                buffer.raw, mem.raw, from, 1, 0, 4096, s.points.0, s.points.1, s.events.0,
                s.events.1, s.point, s.event, s.command,
            )
        })?;
        buffer.append(With::after(&[filled.point]), |s| {
            ur.urCommandBufferAppendMemBufferReadExp(
                buffer.raw, mem.raw, 0, 4096, out.ptr, s.points.0, s.points.1, s.events.0,
                s.events.1, s.point, s.event, s.command,
            )
        })?;
        buffer.finalize()?;
        let other = context.in_order(fixture)?;
        let gate = Gate::close(fixture, &other)?;
        let done = buffer.enqueue(&queue, &[&gate.event])?;
        drop((buffer, mem));
        gate.open();
        done.wait()?;
        check_all!(out.host::<u8>(), 5, "bytes read by the submission");
    }
    Ok(())
}

//! Events: status, waiting, and properties of every kind of command.

use crate::fixture::Fixture;
use crate::objects::{Context, Event, Gate, Kind, Queue, info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_all, check_eq, check_items};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::time::Duration;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let mut tests = crate::tests!["event";
        status_moves_to_complete, wait_blocks, wait_for_many, wait_for_several_queues,
        wait_refused, counts_references, release_before_completion, reports_its_context_and_queue, command_types,
        native_handle, null_native_handle, same_event_in_many_lists,
        reusable_event_is_signalled_again, reusable_event_keeps_times, reusable_event_takes_timestamps,
    ];
    let complete = |fixture: &Fixture| {
        let event = Context::new(fixture)?.in_order(fixture)?.marker(&[])?;
        event.wait()?;
        Ok(event)
    };
    tests.extend(info::tests(
        "event",
        "info_",
        ur_event_info_t::PROPERTIES,
        complete,
        |f, event, name, size, value, ret| {
            f.ur.urEventGetInfo(event.raw, ur_event_info_t(name), size, value, ret)
        },
    ));
    tests
}

/// A reusable event.
fn reusable(
    fixture: &Fixture,
    context: &Context,
    flags: ur_exp_event_flags_t,
) -> Result<Event, Stop> {
    let desc = ur_exp_event_desc_t {
        flags,
        ..Default::default()
    };
    let (ur, device, mut raw) = (fixture.ur, fixture.device, null_mut());
    let property = UR_DEVICE_INFO_REUSABLE_EVENTS_SUPPORT_EXP;
    fixture.require(property, || {
        ur.urEventCreateExp(context.raw, device, &desc, &mut raw)
    })?;
    ur.urEventCreateExp(context.raw, device, &desc, &mut raw)
        .ok()?;
    Ok(Event::adopt(ur, raw))
}

/// Enqueues a barrier that signals a reusable event.
fn signal(queue: &Queue, event: &Event) -> Done {
    let mut own = event.raw;
    queue
        .ur
        .urEnqueueEventsWaitWithBarrierExt(queue.raw, null(), 0, null(), &mut own)
        .ok()?;
    check!(own == event.raw, "a barrier replaced the reusable event");
    Ok(())
}

/// A reusable event stands for the last command that signalled it, whatever the queue.
fn reusable_event_is_signalled_again(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let event = reusable(fixture, &context, ur_exp_event_flags_t(0))?;
    check!(event.is_complete()?, "a new reusable event is not complete");
    event.wait()?;
    for queue in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
        for round in 0..3 {
            let gate = Gate::close(fixture, &queue)?;
            signal(&queue, &event)?;
            check!(
                !event.is_complete()?,
                "round {round}: complete before its barrier"
            );
            let other = context.in_order(fixture)?;
            let after = other.marker(&[&event])?;
            check!(
                !after.is_complete()?,
                "a command does not wait for the event"
            );
            gate.open();
            event.wait()?;
            after.wait()?;
            check!(
                event.is_complete()?,
                "round {round}: not complete after a wait"
            );
        }
    }
    check_eq!(
        event.get::<u32>(UR_EVENT_INFO_REFERENCE_COUNT)?,
        1,
        "references of a reusable event"
    );
    Ok(())
}

/// A reusable event made for it keeps the times of its command on a queue without profiling.
fn reusable_event_keeps_times(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let plain = reusable(fixture, &context, ur_exp_event_flags_t(0))?;
    if !fixture.supports(UR_DEVICE_INFO_PER_EVENT_PROFILING_SUPPORT_EXP)? {
        return Err(Stop::skipped("the device does not profile single events"));
    }
    signal(&queue, &plain)?;
    plain.wait()?;
    check!(
        plain.time(UR_PROFILING_INFO_COMMAND_END).is_err(),
        "an event without profiling has times"
    );
    let event = reusable(fixture, &context, UR_EXP_EVENT_FLAG_ENABLE_PROFILING)?;
    let mut last = 0;
    for _ in 0..2 {
        signal(&queue, &event)?;
        event.wait()?;
        let start = event.time(UR_PROFILING_INFO_COMMAND_START)?;
        let end = event.time(UR_PROFILING_INFO_COMMAND_END)?;
        check!(
            last <= start && start <= end,
            "times {last}, {start}, {end}"
        );
        last = end;
    }
    Ok(())
}

/// A reusable event takes one timestamp after another.
fn reusable_event_takes_timestamps(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let event = reusable(fixture, &context, ur_exp_event_flags_t(0))?;
    let mut last = 0;
    for blocking in [1, 0, 1] {
        let mut own = event.raw;
        let ur = fixture.ur;
        ur.urEnqueueTimestampRecordingExp(queue.raw, blocking, 0, null(), &mut own)
            .ok()?;
        check!(own == event.raw, "a timestamp replaced the reusable event");
        event.wait()?;
        let time = event.time(UR_PROFILING_INFO_COMMAND_END)?;
        check!(time >= last, "a time of {time} after {last}");
        last = time;
    }
    Ok(())
}

/// An event is queued or submitted while blocked, and complete after a wait.
fn status_moves_to_complete(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let gate = Gate::close(fixture, &queue)?;
    let event = queue.marker(&[])?;
    let status = event.status()?;
    check!(
        status == UR_EVENT_STATUS_QUEUED || status == UR_EVENT_STATUS_SUBMITTED,
        "a blocked command is {status:?}, expected queued or submitted"
    );
    gate.open();
    event.wait()?;
    check_eq!(
        event.status()?,
        UR_EVENT_STATUS_COMPLETE,
        "status after a wait"
    );
    Ok(())
}

/// `urEventWait` returns only when the command is complete.
fn wait_blocks(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let gate = Gate::close(fixture, &queue)?;
    let event = queue.marker(&[])?;
    gate.open_after(Duration::from_millis(30));
    event.wait()?;
    check!(
        gate.is_open(),
        "urEventWait returned while the command was blocked"
    );
    event.wait()
}

/// `urEventWait` waits for all of 256 events.
fn wait_for_many(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.out_of_order(fixture)?;
    let memory = context.usm(fixture, Kind::Host, 256 * 4)?;
    let mut events = Vec::new();
    for index in 0..256_u32 {
        let at = memory.ptr.wrapping_byte_add(index as usize * 4);
        events.push(queue.fill(at, index, 4, &[])?);
    }
    let raw: Vec<ur_event_handle_t> = events.iter().map(|event| event.raw).collect();
    fixture
        .ur
        .urEventWait(raw.len() as u32, raw.as_ptr())
        .ok()?;
    check_items!(
        memory.host::<u32>().iter().copied(),
        0..256,
        "words after the wait"
    );
    for event in &events {
        check!(
            event.is_complete()?,
            "an event is not complete after a wait for all"
        );
    }
    Ok(())
}

/// `urEventWait` takes events of several queues.
fn wait_for_several_queues(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let (first, second) = (context.in_order(fixture)?, context.out_of_order(fixture)?);
    let gate = Gate::close(fixture, &first)?;
    let events = [first.marker(&[])?, second.marker(&[&gate.event])?];
    gate.open_after(Duration::from_millis(10));
    let raw = events.each_ref().map(|event| event.raw);
    fixture.ur.urEventWait(2, raw.as_ptr()).ok()?;
    check!(gate.is_open(), "urEventWait returned early");
    Ok(())
}

/// `urEventWait` refuses a count of 0 and a null list.
fn wait_refused(fixture: &Fixture) -> Done {
    let event = Context::new(fixture)?.in_order(fixture)?.marker(&[])?;
    fixture
        .ur
        .urEventWait(0, &event.raw)
        .fails(UR_RESULT_ERROR_INVALID_VALUE)?;
    fixture
        .ur
        .urEventWait(1, null())
        .fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)
}

/// A retain and a release of an event change its reference count by one.
fn counts_references(fixture: &Fixture) -> Done {
    let event = Context::new(fixture)?.in_order(fixture)?.marker(&[])?;
    event.wait()?;
    let references = || event.get::<u32>(UR_EVENT_INFO_REFERENCE_COUNT);
    check_eq!(references()?, 1, "references of a new event");
    let second = event.share()?;
    check_eq!(references()?, 2, "references after a retain");
    drop(second);
    check_eq!(references()?, 1, "references after a release");
    Ok(())
}

/// A command runs though its event was released before it completed.
fn release_before_completion(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Host, 64)?;
    let gate = Gate::close(fixture, &queue)?;
    for _ in 0..20 {
        drop(queue.fill(memory.ptr, 0x44_u8, 64, &[&gate.event])?);
    }
    gate.open();
    queue.finish()?;
    check_all!(
        memory.host::<u8>(),
        0x44,
        "bytes of fills whose events were released"
    );
    Ok(())
}

/// An event reports its context and its queue.
fn reports_its_context_and_queue(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let event = queue.marker(&[])?;
    check_eq!(
        event.get::<ur_context_handle_t>(UR_EVENT_INFO_CONTEXT)?,
        context.raw,
        "context of the event"
    );
    check_eq!(
        event.get::<ur_queue_handle_t>(UR_EVENT_INFO_COMMAND_QUEUE)?,
        queue.raw,
        "queue of the event"
    );
    Ok(())
}

/// The event of each command reports the command's type.
fn command_types(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Shared, 128)?;
    let buffer = context.buffer(128)?;
    let ur = fixture.ur;
    let (q, b) = (queue.raw, buffer.raw);
    let mut host = [0_u8; 64];
    let host = host.as_mut_ptr().cast::<c_void>();
    let half = memory.ptr.wrapping_byte_add(64);
    let pattern = (&raw const PATTERN).cast();
    let events = [
        (UR_COMMAND_EVENTS_WAIT, queue.marker(&[])?),
        (UR_COMMAND_EVENTS_WAIT_WITH_BARRIER, queue.barrier(&[])?),
        (UR_COMMAND_USM_FILL, queue.fill(memory.ptr, 0_u8, 128, &[])?),
        (
            UR_COMMAND_USM_MEMCPY,
            queue.copy(half, memory.ptr, 64, &[])?,
        ),
        (
            UR_COMMAND_MEM_BUFFER_WRITE,
            queue.event(|e| ur.urEnqueueMemBufferWrite(q, b, 1, 0, 64, host, 0, null(), e))?,
        ),
        (
            UR_COMMAND_MEM_BUFFER_READ,
            queue.event(|e| ur.urEnqueueMemBufferRead(q, b, 1, 0, 64, host, 0, null(), e))?,
        ),
        (
            UR_COMMAND_MEM_BUFFER_COPY,
            queue.event(|e| ur.urEnqueueMemBufferCopy(q, b, b, 0, 64, 64, 0, null(), e))?,
        ),
        (
            UR_COMMAND_MEM_BUFFER_FILL,
            queue.event(|e| ur.urEnqueueMemBufferFill(q, b, pattern, 4, 0, 64, 0, null(), e))?,
        ),
        (
            UR_COMMAND_USM_PREFETCH,
            queue.event(|e| {
                let flags = UR_USM_MIGRATION_FLAG_HOST_TO_DEVICE;
                ur.urEnqueueUSMPrefetch(q, memory.ptr, 128, flags, 0, null(), e)
            })?,
        ),
        (
            UR_COMMAND_USM_ADVISE,
            queue.event(|e| {
                ur.urEnqueueUSMAdvise(q, memory.ptr, 128, UR_USM_ADVICE_FLAG_DEFAULT, e)
            })?,
        ),
    ];
    for (want, event) in &events {
        check_eq!(
            event.get::<ur_command_t>(UR_EVENT_INFO_COMMAND_TYPE)?,
            *want,
            "command type"
        );
    }
    queue.finish()
}

static PATTERN: u32 = 0x0102_0304;

/// An event can be made from the native handle of another one.
fn native_handle(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let event = context.in_order(fixture)?.marker(&[])?;
    let mut native = 0;
    let status = fixture.ur.urEventGetNativeHandle(event.raw, &mut native);
    if status.is_unsupported() {
        return Ok(());
    }
    status.ok()?;
    let mut raw = null_mut();
    let made = fixture
        .ur
        .urEventCreateWithNativeHandle(native, context.raw, null(), &mut raw);
    if made.is_unsupported() {
        return Ok(());
    }
    made.ok()?;
    Event::adopt(fixture.ur, raw).wait()
}

/// The native handle 0 makes an event that is complete and belongs to no queue.
fn null_native_handle(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let ur = fixture.ur;
    let properties = ur_event_native_properties_t {
        isNativeHandleOwned: 1,
        ..Default::default()
    };
    for properties in [null(), &raw const properties] {
        let mut raw = null_mut();
        ur.urEventCreateWithNativeHandle(0, context.raw, properties, &mut raw)
            .ok()?;
        let event = Event::adopt(ur, raw);
        check_eq!(event.status()?, UR_EVENT_STATUS_COMPLETE, "status");
        check_eq!(
            event.get::<ur_context_handle_t>(UR_EVENT_INFO_CONTEXT)?,
            context.raw,
            "context of the event"
        );
        check_eq!(
            event.get::<ur_queue_handle_t>(UR_EVENT_INFO_COMMAND_QUEUE)?,
            null_mut(),
            "queue of the event"
        );
        event.wait()?;
        for queue in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
            queue.marker(&[&event])?.wait()?;
            queue.barrier(&[&event])?.wait()?;
        }
        let mut time = 0_u64;
        let value = (&raw mut time).cast();
        let property = UR_PROFILING_INFO_COMMAND_END;
        ur.urEventGetProfilingInfo(event.raw, property, 8, value, null_mut())
            .fails(UR_RESULT_ERROR_PROFILING_INFO_NOT_AVAILABLE)?;
        let mut native = 0;
        let status = ur.urEventGetNativeHandle(event.raw, &mut native);
        if status.is_unsupported() {
            continue;
        }
        status.ok()?;
        // The event made from that event's native handle is complete, too.
        let mut again = null_mut();
        ur.urEventCreateWithNativeHandle(native, context.raw, null(), &mut again)
            .ok()?;
        let again = Event::adopt(ur, again);
        check_eq!(again.status()?, UR_EVENT_STATUS_COMPLETE, "status");
        again.wait()?;
    }
    Ok(())
}

/// One event may stand in many wait lists, and twice in one of them.
fn same_event_in_many_lists(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queues = [
        context.in_order(fixture)?,
        context.in_order(fixture)?,
        context.out_of_order(fixture)?,
    ];
    let gate = Gate::close(fixture, &queues[0])?;
    let mut waiting = Vec::new();
    for queue in queues.iter().cycle().take(60) {
        waiting.push(queue.marker(&[&gate.event, &gate.event])?);
    }
    check!(
        !waiting[59].is_complete()?,
        "a command did not wait for its list"
    );
    gate.open();
    queues.iter().try_for_each(Queue::finish)?;
    for event in &waiting {
        check!(
            event.is_complete()?,
            "an event is not complete after urQueueFinish"
        );
    }
    Ok(())
}

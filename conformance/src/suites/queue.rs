//! Queues.

use crate::fixture::Fixture;
use crate::objects::{Context, Gate, Kind, Queue, info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::status::Status;
use crate::{check, check_all, check_eq};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::time::Duration;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let mut tests = crate::tests!["queue";
        default_is_in_order, reports_its_flags, contradicting_flags, undefined_flags,
        counts_references, reports_its_context_and_device, finish_waits, flush, reports_whether_it_is_empty, release_with_pending_work, in_order,
        out_of_order_waits_for_events, out_of_order_commands_are_independent, enqueue_does_not_block,
        hint_flags, index_properties, native_handle, on_device_properties,
    ];
    let queue = |fixture: &Fixture| Context::new(fixture)?.in_order(fixture);
    tests.extend(info::tests(
        "queue",
        "info_",
        ur_queue_info_t::PROPERTIES,
        queue,
        get_info,
    ));
    // Only device-side queues have these properties.
    tests.retain(|test| !matches!(&*test.name, "info_device_default" | "info_size"));
    tests
}

fn get_info(
    fixture: &Fixture,
    queue: &Queue,
    name: u32,
    size: usize,
    value: *mut c_void,
    ret: *mut usize,
) -> Status {
    fixture
        .ur
        .urQueueGetInfo(queue.raw, ur_queue_info_t(name), size, value, ret)
}

/// Properties of device-side queues are answered only by devices with such queues.
fn on_device_properties(fixture: &Fixture) -> Done {
    let queue = Context::new(fixture)?.in_order(fixture)?;
    for property in ur_queue_info_t::PROPERTIES {
        let property_of_device_queues =
            [UR_QUEUE_INFO_DEVICE_DEFAULT.0, UR_QUEUE_INFO_SIZE.0].contains(&property.value);
        if property_of_device_queues {
            let query =
                |size, value, ret| get_info(fixture, &queue, property.value, size, value, ret);
            match offers_device_queues(fixture)? {
                true => info::protocol(property, query)?,
                false => {
                    let mut size = 0;
                    let status = query(0, null_mut(), &mut size);
                    let refusals = [
                        UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION,
                        UR_RESULT_ERROR_INVALID_QUEUE,
                    ];
                    check!(
                        status.is_ok() || refusals.contains(&status.code),
                        "{}: {status}",
                        property.name
                    );
                }
            }
        }
    }
    Ok(())
}

fn offers_device_queues(fixture: &Fixture) -> Result<bool, Stop> {
    let flags: ur_queue_flags_t = fixture.device_info(UR_DEVICE_INFO_QUEUE_ON_DEVICE_PROPERTIES)?;
    Ok(flags.intersects(UR_QUEUE_FLAG_ON_DEVICE | UR_QUEUE_FLAG_ON_DEVICE_DEFAULT))
}

/// A queue without properties is in order.
fn default_is_in_order(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let mut raw = null_mut();
    fixture
        .ur
        .urQueueCreate(context.raw, fixture.device, null(), &mut raw)
        .ok()?;
    let queue = Queue::adopt(fixture.ur, raw);
    let flags: ur_queue_flags_t = queue.get(UR_QUEUE_INFO_FLAGS)?;
    check!(
        !flags.contains(UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE),
        "the default queue is out-of-order"
    );
    Ok(())
}

/// A queue reports the flags that it was made with.
fn reports_its_flags(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let wanted = UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE | UR_QUEUE_FLAG_PROFILING_ENABLE;
    let queue = Queue::new(&context, fixture.device, wanted)?;
    let flags: ur_queue_flags_t = queue.get(UR_QUEUE_INFO_FLAGS)?;
    check!(
        flags.contains(wanted),
        "flags are {flags:?}, expected {wanted:?}"
    );
    Ok(())
}

fn create_with(fixture: &Fixture, flags: ur_queue_flags_t) -> Result<crate::status::Status, Stop> {
    let context = Context::new(fixture)?;
    let properties = ur_queue_properties_t {
        flags,
        ..Default::default()
    };
    let mut raw = null_mut();
    let status = fixture
        .ur
        .urQueueCreate(context.raw, fixture.device, &properties, &mut raw);
    check!(
        status.is_ok() != raw.is_null(),
        "urQueueCreate: {status} with the handle {raw:?}"
    );
    drop(Queue::adopt(fixture.ur, raw));
    Ok(status)
}

/// Flags that exclude each other are refused.
fn contradicting_flags(fixture: &Fixture) -> Done {
    let priorities = UR_QUEUE_FLAG_PRIORITY_HIGH | UR_QUEUE_FLAG_PRIORITY_LOW;
    create_with(fixture, priorities)?.fails(UR_RESULT_ERROR_INVALID_QUEUE_PROPERTIES)?;
    let submissions = UR_QUEUE_FLAG_SUBMISSION_BATCHED | UR_QUEUE_FLAG_SUBMISSION_IMMEDIATE;
    create_with(fixture, submissions)?.fails(UR_RESULT_ERROR_INVALID_QUEUE_PROPERTIES)
}

/// Undefined queue flags are refused.
fn undefined_flags(fixture: &Fixture) -> Done {
    create_with(fixture, ur_queue_flags_t(UR_QUEUE_FLAGS_MASK))?
        .fails(UR_RESULT_ERROR_INVALID_ENUMERATION)
}

/// Flags that are hints, such as priorities, are accepted.
fn hint_flags(fixture: &Fixture) -> Done {
    let hints = [
        UR_QUEUE_FLAG_PRIORITY_HIGH,
        UR_QUEUE_FLAG_PRIORITY_LOW,
        UR_QUEUE_FLAG_SUBMISSION_BATCHED,
        UR_QUEUE_FLAG_SUBMISSION_IMMEDIATE,
        UR_QUEUE_FLAG_DISCARD_EVENTS,
    ];
    hints
        .into_iter()
        .try_for_each(|hint| create_with(fixture, hint)?.ok())
}

/// A queue can be made with each compute queue index of the device.
fn index_properties(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let indices: u32 = fixture.device_info(UR_DEVICE_INFO_MAX_COMPUTE_QUEUE_INDICES)?;
    if indices == 0 {
        return Err(Stop::skipped("the device has no compute queue indices"));
    }
    (0..indices).try_for_each(|wanted| {
        let mut index = ur_queue_index_properties_t {
            computeIndex: wanted,
            ..Default::default()
        };
        let properties = ur_queue_properties_t {
            pNext: (&raw mut index).cast(),
            ..Default::default()
        };
        let mut raw = null_mut();
        fixture
            .ur
            .urQueueCreate(context.raw, fixture.device, &properties, &mut raw)
            .ok()?;
        Queue::adopt(fixture.ur, raw).finish()
    })
}

/// A retain and a release of a queue change its reference count by one.
fn counts_references(fixture: &Fixture) -> Done {
    let queue = Context::new(fixture)?.in_order(fixture)?;
    let references = || queue.get::<u32>(UR_QUEUE_INFO_REFERENCE_COUNT);
    check_eq!(references()?, 1, "references of a new queue");
    let second = queue.share()?;
    check_eq!(references()?, 2, "references after a retain");
    drop(second);
    check_eq!(references()?, 1, "references after a release");
    Ok(())
}

/// A queue reports its context and its device.
fn reports_its_context_and_device(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    check_eq!(
        queue.get::<ur_context_handle_t>(UR_QUEUE_INFO_CONTEXT)?,
        context.raw,
        "context of the queue"
    );
    check_eq!(
        queue.get::<ur_device_handle_t>(UR_QUEUE_INFO_DEVICE)?,
        fixture.device,
        "device of the queue"
    );
    Ok(())
}

/// `urQueueFinish` returns only when all commands are complete.
fn finish_waits(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    queue.finish()?;
    let gate = Gate::close(fixture, &queue)?;
    let last = queue.marker(&[])?;
    gate.open_after(Duration::from_millis(30));
    queue.finish()?;
    check!(
        gate.is_open(),
        "urQueueFinish returned while the queue was blocked"
    );
    check!(
        last.is_complete()?,
        "a command is not complete after urQueueFinish"
    );
    Ok(())
}

/// A command completes after `urQueueFlush` without another call.
fn flush(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    fixture.ur.urQueueFlush(queue.raw).ok()?;
    let event = queue.marker(&[])?;
    fixture.ur.urQueueFlush(queue.raw).ok()?;
    check!(
        event.completes_within(Duration::from_secs(10))?,
        "a flushed command did not complete without another call"
    );
    Ok(())
}

/// A queue reports that it is empty exactly when no command is pending.
fn reports_whether_it_is_empty(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let empty = || queue.get::<ur_bool_t>(UR_QUEUE_INFO_EMPTY);
    check_eq!(empty()?, 1, "whether a new queue is empty");
    let gate = Gate::close(fixture, &queue)?;
    check_eq!(empty()?, 0, "whether a blocked queue is empty");
    gate.open();
    queue.finish()?;
    check_eq!(empty()?, 1, "whether a queue is empty after urQueueFinish");
    Ok(())
}

/// Pending commands run after their queue was released.
fn release_with_pending_work(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Host, 4096)?;
    let gate = Gate::close(fixture, &queue)?;
    let event = queue.fill(memory.ptr, 0x3c_u8, 4096, &[])?;
    gate.open_after(Duration::from_millis(20));
    drop(queue);
    event.wait()?;
    check_all!(
        memory.host::<u8>(),
        0x3c,
        "bytes filled by a released queue"
    );
    Ok(())
}

/// Commands of an in-order queue run one after another.
fn in_order(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 1 << 20)?;
    let result = context.usm(fixture, Kind::Host, 1 << 20)?;
    for round in 0..50_u8 {
        queue.fill(memory.ptr, round, 1 << 20, &[])?;
        queue.copy(result.ptr, memory.ptr, 1 << 20, &[])?;
        if round % 10 == 9 {
            queue.finish()?;
            check_all!(
                result.host::<u8>(),
                round,
                "bytes in round {round} of commands in order"
            );
        }
    }
    Ok(())
}

/// Wait lists order the commands of an out-of-order queue.
fn out_of_order_waits_for_events(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.out_of_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 1 << 20)?;
    let result = context.usm(fixture, Kind::Host, 1 << 20)?;
    let mut before = queue.fill(memory.ptr, 0_u8, 1 << 20, &[])?;
    for round in 1..30_u8 {
        let filled = queue.fill(memory.ptr, round, 1 << 20, &[&before])?;
        before = queue.copy(result.ptr, memory.ptr, 1 << 20, &[&filled])?;
        before.wait()?;
        check_all!(
            result.host::<u8>(),
            round,
            "bytes in round {round} of commands with wait lists"
        );
    }
    Ok(())
}

/// A blocked command of an out-of-order queue does not block an independent one.
fn out_of_order_commands_are_independent(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.out_of_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 4096)?;
    let gate = Gate::close(fixture, &queue)?;
    let held = queue.fill(memory.ptr, 1_u8, 64, &[&gate.event])?;
    let free = queue.fill(memory.ptr, 2_u8, 4096, &[])?;
    check!(
        free.completes_within(Duration::from_secs(10))?,
        "an independent command waits for a blocked one"
    );
    check!(
        !held.is_complete()?,
        "a command completed before its wait list"
    );
    gate.open();
    queue.finish()?;
    check!(
        held.is_complete()?,
        "a command is not complete after urQueueFinish"
    );
    Ok(())
}

/// A call that enqueues a command returns while its wait list is pending.
fn enqueue_does_not_block(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    for queue in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
        let memory = context.usm(fixture, Kind::Device, 100 * 4096)?;
        let gate = Gate::close(fixture, &queue)?;
        for page in 0..100 {
            // Each fill has its own page, since an out-of-order queue may run them concurrently.
            let to = memory.ptr.wrapping_byte_add(page * 4096);
            queue.fill(to, 1_u8, 4096, &[&gate.event])?;
        }
        check!(
            !gate.is_open() && !gate.event.is_complete()?,
            "a call that enqueues waited for its wait list"
        );
        gate.open();
        queue.finish()?;
    }
    Ok(())
}

/// A queue can be made from the native handle of another one.
fn native_handle(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let mut native = 0;
    let status = fixture
        .ur
        .urQueueGetNativeHandle(queue.raw, null_mut(), &mut native);
    if status.is_unsupported() {
        return Ok(());
    }
    status.ok()?;
    let mut raw = null_mut();
    let ur = fixture.ur;
    let made =
        ur.urQueueCreateWithNativeHandle(native, context.raw, fixture.device, null(), &mut raw);
    if made.is_unsupported() {
        return Ok(());
    }
    made.ok()?;
    Queue::adopt(fixture.ur, raw).finish()
}

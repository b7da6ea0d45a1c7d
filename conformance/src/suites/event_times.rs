//! Callbacks on events, and the times of their commands.

use crate::fixture::Fixture;
use crate::leak::leak;
use crate::objects::{Context, Event, Gate, Kind, Queue};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_eq};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["event"; callback_on_completion, callback_after_completion, all_callbacks_run, callback_refused, profiling_times_increase, profiling_needs_queue_flag, timestamp_recording, timestamp_start_equals_end]
}

unsafe extern "C" fn count(
    _event: ur_event_handle_t,
    status: ur_execution_info_t,
    data: *mut c_void,
) {
    if status == UR_EXECUTION_INFO_COMPLETE {
        // SAFETY: the tests below pass counters that they leak.
        unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
    }
}

/// A counter that outlives any callback.
fn counter() -> &'static AtomicU32 {
    leak(AtomicU32::new(0))
}

fn watch(event: &Event, counter: &'static AtomicU32) -> Done {
    let data: *mut c_void = (&raw const *counter).cast_mut().cast();
    event
        .ur
        .urEventSetCallback(event.raw, UR_EXECUTION_INFO_COMPLETE, Some(count), data)
        .ok()
}

/// Waits up to 10 s for the count: a callback may run slightly after the event is complete.
fn reaches(counter: &AtomicU32, want: u32) -> bool {
    let end = Instant::now() + Duration::from_secs(10);
    while counter.load(Ordering::SeqCst) < want && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    counter.load(Ordering::SeqCst) == want
}

/// A callback runs once, after its command has completed.
fn callback_on_completion(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let gate = Gate::close(fixture, &queue)?;
    let event = queue.marker(&[])?;
    let counter = counter();
    watch(&event, counter)?;
    std::thread::sleep(Duration::from_millis(20));
    check_eq!(
        counter.load(Ordering::SeqCst),
        0,
        "callbacks run before completion"
    );
    gate.open();
    check!(reaches(counter, 1), "the callback did not run once");
    check!(
        event.is_complete()?,
        "the callback ran before the event was complete"
    );
    Ok(())
}

/// A callback that is set on a complete event runs once.
fn callback_after_completion(fixture: &Fixture) -> Done {
    let event = Context::new(fixture)?.in_order(fixture)?.marker(&[])?;
    event.wait()?;
    let counter = counter();
    watch(&event, counter)?;
    check!(
        reaches(counter, 1),
        "a callback set on a complete event did not run once"
    );
    Ok(())
}

/// All callbacks of an event run, also when the event was released.
fn all_callbacks_run(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let gate = Gate::close(fixture, &queue)?;
    let event = queue.marker(&[])?;
    let counter = counter();
    for _ in 0..10 {
        watch(&event, counter)?;
    }
    // The callbacks still run when the caller has released the event.
    drop(event);
    gate.open();
    check!(
        reaches(counter, 10),
        "{} of 10 callbacks ran",
        counter.load(Ordering::SeqCst)
    );
    Ok(())
}

/// A callback for another status than `COMPLETE` is refused.
fn callback_refused(fixture: &Fixture) -> Done {
    let event = Context::new(fixture)?.in_order(fixture)?.marker(&[])?;
    let set = |status| {
        fixture
            .ur
            .urEventSetCallback(event.raw, status, Some(count), null_mut())
    };
    set(UR_EXECUTION_INFO_QUEUED).fails(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION)?;
    set(ur_execution_info_t(99)).fails(UR_RESULT_ERROR_INVALID_ENUMERATION)
}

const TIMES: [ur_profiling_info_t; 4] = [
    UR_PROFILING_INFO_COMMAND_QUEUED,
    UR_PROFILING_INFO_COMMAND_SUBMIT,
    UR_PROFILING_INFO_COMMAND_START,
    UR_PROFILING_INFO_COMMAND_END,
];

/// The four times of a command increase, and in-order commands do not overlap.
fn profiling_times_increase(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = Queue::new(&context, fixture.device, UR_QUEUE_FLAG_PROFILING_ENABLE)?;
    let memory = context.usm(fixture, Kind::Device, 16 << 20)?;
    let first = queue.fill(memory.ptr, 1_u8, 16 << 20, &[])?;
    let second = queue.fill(memory.ptr, 2_u8, 16 << 20, &[])?;
    queue.finish()?;
    let mut last = 0;
    for event in [&first, &second] {
        let times = TIMES
            .iter()
            .map(|time| event.time(*time))
            .collect::<Result<Vec<u64>, Stop>>()?;
        check!(
            times.is_sorted(),
            "the times of a command decrease: {times:?}"
        );
        check!(
            times[3] > times[2],
            "a fill of 16 MiB started and ended at one time: {times:?}"
        );
        check!(
            times[2] >= last,
            "a command of an in-order queue started before its predecessor ended"
        );
        last = times[3];
    }
    Ok(())
}

/// An event of a queue without profiling refuses to report times.
fn profiling_needs_queue_flag(fixture: &Fixture) -> Done {
    let event = Context::new(fixture)?.in_order(fixture)?.marker(&[])?;
    event.wait()?;
    let mut time = 0_u64;
    let value = (&raw mut time).cast();
    let status = fixture.ur.urEventGetProfilingInfo(
        event.raw,
        UR_PROFILING_INFO_COMMAND_END,
        8,
        value,
        null_mut(),
    );
    status.fails(UR_RESULT_ERROR_PROFILING_INFO_NOT_AVAILABLE)
}

/// A recorded timestamp has its command type, and a blocking one is complete on return.
fn timestamp_recording(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let record = |blocking, event| {
        fixture
            .ur
            .urEnqueueTimestampRecordingExp(queue.raw, blocking, 0, null(), event)
    };
    let mut refused = null_mut();
    fixture.require(UR_DEVICE_INFO_TIMESTAMP_RECORDING_SUPPORT_EXP, || {
        record(0, &mut refused)
    })?;
    let first = queue.event(|event| record(0, event))?;
    let second = queue.event(|event| record(1, event))?;
    check!(
        second.is_complete()?,
        "a blocking recording returned before its event was complete"
    );
    let end = |event: &Event| event.time(UR_PROFILING_INFO_COMMAND_END);
    check!(
        end(&first)? <= end(&second)?,
        "the timestamps of an in-order queue decrease"
    );
    check_eq!(
        first.get::<ur_command_t>(UR_EVENT_INFO_COMMAND_TYPE)?,
        UR_COMMAND_TIMESTAMP_RECORDING_EXP,
        "command type"
    );
    Ok(())
}

/// A recorded timestamp is one time, and successive ones do not decrease.
fn timestamp_start_equals_end(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let plain = ur_queue_flags_t(0);
    let out_of_order = UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE;
    for order in [plain, out_of_order] {
        for profiling in [plain, UR_QUEUE_FLAG_PROFILING_ENABLE] {
            let queue = Queue::new(&context, fixture.device, order | profiling)?;
            let memory = context.usm(fixture, Kind::Device, 1 << 20)?;
            let record = |blocking, waits: &[ur_event_handle_t], event| {
                let (count, list) = match waits {
                    [] => (0, null()),
                    waits => (waits.len() as u32, waits.as_ptr()),
                };
                fixture
                    .ur
                    .urEnqueueTimestampRecordingExp(queue.raw, blocking, count, list, event)
            };
            let mut refused = null_mut();
            fixture.require(UR_DEVICE_INFO_TIMESTAMP_RECORDING_SUPPORT_EXP, || {
                record(0, &[], &mut refused)
            })?;
            let mut last = 0;
            for blocking in [0, 1] {
                // Records on an idle queue, and after a command.
                for fills in [false, true] {
                    let filled = match fills {
                        true => Some(queue.fill(memory.ptr, 1_u8, 1 << 20, &[])?),
                        false => None,
                    };
                    let waits: Vec<_> = filled.iter().map(|event| event.raw).collect();
                    let event = queue.event(|event| record(blocking, &waits, event))?;
                    event.wait()?;
                    let times = TIMES
                        .iter()
                        .map(|time| event.time(*time))
                        .collect::<Result<Vec<u64>, Stop>>()?;
                    check!(
                        times.is_sorted(),
                        "the times of a timestamp decrease: {times:?}"
                    );
                    check_eq!(
                        times[2],
                        times[3],
                        "start of a timestamp, compared with its end"
                    );
                    check!(
                        last <= times[2],
                        "a timestamp decreased from {last} to {}",
                        times[2]
                    );
                    last = times[3];
                }
            }
        }
    }
    Ok(())
}

//! Native commands: a function submits work to the queue while it is called.

use super::{SIZE, Setup, are_all, freed_while, native, need_async};
use crate::fixture::Fixture;
use crate::objects::{Context, Event, Gate, Kind, Queue};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::status::Status;
use crate::suites::enqueue::{LONG, pending};
use crate::{check, check_eq};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["native_command";
        function_runs_once_within_the_call, in_order, out_of_order, many_independent, waits_for_its_list,
        native_handle_is_stable, keeps_memory_objects, without_event, profiling_times, command_type, null_function_refused, freed_block_waits,
        from_two_threads, function_may_use_the_backend,
    ]
}

/// The data of a native command's function: a closure and the number of its calls.
struct Task<'a> {
    run: Box<dyn FnMut(ur_queue_handle_t) -> Done + 'a>,
    ran: u32,
    ended: Done,
}

unsafe extern "C" fn call(queue: ur_queue_handle_t, data: *mut c_void) {
    // SAFETY: `command` passes a task that it keeps until its call has returned.
    let task = unsafe { &mut *data.cast::<Task>() };
    task.ran += 1;
    task.ended = (task.run)(queue);
}

/// Enqueues a native command that runs a closure, with an event unless `event` is null.
pub(super) fn command<'a>(
    queue: &Queue,
    wait: &[&Event],
    event: *mut ur_event_handle_t,
    run: impl FnMut(ur_queue_handle_t) -> Done + 'a,
) -> Done {
    let list: Vec<_> = wait.iter().map(|event| event.raw).collect();
    let first = match list.is_empty() {
        true => null(),
        false => list.as_ptr(),
    };
    let mut task = Task {
        run: Box::new(run),
        ran: 0,
        ended: Ok(()),
    };
    let status = queue.ur.urEnqueueNativeCommandExp(
        queue.raw,
        Some(call),
        (&raw mut task).cast(),
        0,
        null(),
        null(),
        list.len() as u32,
        first,
        event,
    );
    status.ok()?;
    check_eq!(
        task.ran,
        1,
        "times that the function ran before the call returned"
    );
    task.ended
}

pub(super) fn command_event<'a>(
    queue: &Queue,
    wait: &[&Event],
    run: impl FnMut(ur_queue_handle_t) -> Done + 'a,
) -> Result<Event, Stop> {
    let mut raw = null_mut();
    command(queue, wait, &mut raw, run)?;
    check!(!raw.is_null(), "a native command gave no event");
    Ok(Event::adopt(queue.ur, raw))
}

/// Stops the test unless the device takes native commands.
fn need_commands(fixture: &Fixture) -> Done {
    let queue = Context::new(fixture)?.in_order(fixture)?;
    fixture.require(UR_DEVICE_INFO_ENQUEUE_NATIVE_COMMAND_SUPPORT_EXP, || {
        nothing(&queue, Some(ignore))
    })?;
    queue.finish()
}

unsafe extern "C" fn ignore(_: ur_queue_handle_t, _: *mut c_void) {}

fn nothing(queue: &Queue, run: ur_exp_enqueue_native_command_function_t) -> Status {
    let (none, event) = (null_mut(), null_mut());
    queue
        .ur
        .urEnqueueNativeCommandExp(queue.raw, run, none, 0, null(), null(), 0, null(), event)
}

fn command_bench(fixture: &Fixture) -> Result<Setup<'_>, Stop> {
    need_commands(fixture)?;
    Setup::new(fixture)
}

/// The function runs once, on the calling thread, before the call returns.
fn function_runs_once_within_the_call(fixture: &Fixture) -> Done {
    need_commands(fixture)?;
    let context = Context::new(fixture)?;
    for queue in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
        let here = std::thread::current().id();
        let event = command_event(&queue, &[], |given| {
            check_eq!(given, queue.raw, "queue given to the function");
            check_eq!(std::thread::current().id(), here, "thread of the function");
            Ok(())
        })?;
        event.wait()?;
        queue.finish()?;
    }
    Ok(())
}

/// The function may call the backend on a thread that has not used it before.
fn function_may_use_the_backend(fixture: &Fixture) -> Done {
    let setup = command_bench(fixture)?;
    let memory = setup.context.usm(fixture, Kind::Device, SIZE)?;
    for queue in [setup.in_order()?, setup.out_of_order()?] {
        queue.fill(memory.ptr, 3_u8, SIZE, &[])?;
        queue.finish()?;
        let mut read = vec![0_u8; SIZE];
        let (start, backend) = (memory.ptr.addr(), setup.backend);
        let on_thread = || {
            command(&queue, &[], null_mut(), |_| {
                let from = std::ptr::with_exposed_provenance(start);
                let copied = backend.copy(native(&queue)?, &mut read, from);
                let needed = || Stop::skipped("threads need no preparation on this backend");
                copied.ok_or_else(needed)?.map_err(Stop::failed)
            })
        };
        std::thread::scope(|scope| scope.spawn(on_thread).join())
            .map_err(|_| Stop::failed("the thread panicked"))??;
        are_all(&read, 3, "bytes copied by the function")?;
        queue.finish()?;
    }
    Ok(())
}

/// Native work on an in-order queue runs between the commands before and after it.
fn in_order(fixture: &Fixture) -> Done {
    let setup = command_bench(fixture)?;
    let queue = setup.in_order()?;
    let copy = setup.context.usm(fixture, Kind::Device, SIZE)?;
    let gate = Gate::close(fixture, &queue)?;
    queue.fill(setup.memory.ptr, 1_u8, SIZE, &[])?;
    let mut native_fill = None;
    let event = command_event(&queue, &[], |_| {
        native_fill = Some(setup.fill(native(&queue)?, 2, &[], true)?);
        Ok(())
    })?;
    let later = queue.copy(copy.ptr, setup.memory.ptr, SIZE, &[])?;
    pending(&event, "a native command overtook an earlier command")?;
    gate.open();
    pending(&event, "a native command completed before its native work")?;
    pending(&later, "a command overtook native work of its queue")?;
    setup.holds(1, "bytes before the native work")?;
    drop(native_fill);
    later.wait()?;
    check!(
        event.is_complete()?,
        "a native command is not complete, but a later command is"
    );
    let copied = queue.read(copy.ptr, SIZE, &[])?;
    are_all(&copied, 2, "bytes read after the native work")?;
    queue.finish()
}

/// Native work on an out-of-order queue orders only the commands that wait for it.
fn out_of_order(fixture: &Fixture) -> Done {
    let setup = command_bench(fixture)?;
    let queue = setup.out_of_order()?;
    let other = setup.context.usm(fixture, Kind::Device, SIZE)?;
    let mut native_fill = None;
    let event = command_event(&queue, &[], |_| {
        native_fill = Some(setup.fill(native(&queue)?, 2, &[], true)?);
        Ok(())
    })?;
    for _ in 0..8 {
        let independent = queue.fill(other.ptr, 1_u8, SIZE, &[])?;
        check!(
            independent.completes_within(LONG)?,
            "native work blocked an independent command"
        );
    }
    let dependent = queue.fill(other.ptr, 1_u8, SIZE, &[&event])?;
    let marker = queue.marker(&[])?;
    pending(&event, "a native command completed before its native work")?;
    pending(&dependent, "a command overtook the native work in its list")?;
    pending(&marker, "a marker did not wait for native work")?;
    drop(native_fill);
    queue.finish()?;
    setup.holds(2, "native work on an out-of-order queue")
}

/// However many independent commands are pending beside native work, none waits for it.
fn many_independent(fixture: &Fixture) -> Done {
    let setup = command_bench(fixture)?;
    let queue = setup.out_of_order()?;
    let other = setup.context.usm(fixture, Kind::Device, 2 * SIZE)?;
    let (free, behind) = (other.ptr, other.ptr.wrapping_byte_add(SIZE));
    let mut native_fill = None;
    let event = command_event(&queue, &[], |_| {
        native_fill = Some(setup.fill(native(&queue)?, 2, &[], true)?);
        Ok(())
    })?;
    let (mut independent, mut dependent) = (Vec::new(), Vec::new());
    for byte in 0..16_u8 {
        dependent.push(queue.fill(behind, byte, SIZE, &[&event])?);
        independent.push(queue.fill(free, byte, SIZE, &[])?);
    }
    for event in &independent {
        check!(
            event.completes_within(LONG)?,
            "native work blocked one of several independent commands"
        );
    }
    for event in &dependent {
        check!(
            !event.is_complete()?,
            "one of several commands overtook the native work in its list"
        );
    }
    drop(native_fill);
    queue.finish()?;
    setup.holds(2, "native work beside many commands")
}

/// Native work runs only after the command's wait list has completed.
fn waits_for_its_list(fixture: &Fixture) -> Done {
    let setup = command_bench(fixture)?;
    for queue in [setup.in_order()?, setup.out_of_order()?] {
        let other = setup.in_order()?;
        let gate = Gate::close(fixture, &other)?;
        let before = other.fill(setup.memory.ptr, 7_u8, SIZE, &[])?;
        let event = command_event(&queue, &[&before], |_| {
            setup.fill(native(&queue)?, 8, &[], false).map(drop)
        })?;
        pending(&event, "a native command did not wait for its list")?;
        gate.open();
        event.wait()?;
        setup.holds(8, "native work after a wait list")?;
    }
    Ok(())
}

/// The queue has one native handle throughout the function, also in a nested command.
fn native_handle_is_stable(fixture: &Fixture) -> Done {
    let setup = command_bench(fixture)?;
    for queue in [setup.in_order()?, setup.out_of_order()?] {
        let mut outer = 0;
        command(&queue, &[], null_mut(), |_| {
            outer = native(&queue)?;
            command(&queue, &[], null_mut(), |_| native(&queue).map(drop))?;
            check_eq!(
                native(&queue)?,
                outer,
                "native handle of the queue, second query"
            );
            Ok(())
        })?;
        check!(outer != 0, "the native handle of the queue is 0");
        queue.finish()?;
    }
    Ok(())
}

/// A native command takes a list of buffers and leaves their data as it was.
fn keeps_memory_objects(fixture: &Fixture) -> Done {
    need_commands(fixture)?;
    let context = Context::new(fixture)?;
    let mut data = vec![5_u8; SIZE];
    let buffer = crate::objects::Buffer::copied(&context, &mut data)?;
    let queue = context.in_order(fixture)?;
    let (none, mut raw) = (null_mut(), null_mut());
    fixture
        .ur
        .urEnqueueNativeCommandExp(
            queue.raw,
            Some(ignore),
            none,
            1,
            &buffer.raw,
            null(),
            0,
            null(),
            &mut raw,
        )
        .ok()?;
    let event = Event::adopt(fixture.ur, raw);
    let read = buffer.read::<u8>(&queue, 0, SIZE)?;
    check!(
        read == data,
        "a native command changed a buffer that it lists"
    );
    event.wait()
}

/// A native command without an event is covered by `urQueueFinish`.
fn without_event(fixture: &Fixture) -> Done {
    let setup = command_bench(fixture)?;
    for (byte, queue) in (1..).zip([setup.in_order()?, setup.out_of_order()?]) {
        command(&queue, &[], null_mut(), |_| {
            setup.fill(native(&queue)?, byte, &[], false).map(drop)
        })?;
        queue.finish()?;
        setup.holds(byte, "native work without an event, after a finish")?;
    }
    Ok(())
}

/// The profiling times of a native command increase.
fn profiling_times(fixture: &Fixture) -> Done {
    let setup = command_bench(fixture)?;
    let flags = UR_QUEUE_FLAG_PROFILING_ENABLE;
    let queue = Queue::new(&setup.context, fixture.device, flags)?;
    let event = command_event(&queue, &[], |_| {
        setup.fill(native(&queue)?, 1, &[], false).map(drop)
    })?;
    event.wait()?;
    let [queued, start, end] = [
        UR_PROFILING_INFO_COMMAND_QUEUED,
        UR_PROFILING_INFO_COMMAND_START,
        UR_PROFILING_INFO_COMMAND_END,
    ]
    .map(|what| event.time(what));
    let (queued, start, end) = (queued?, start?, end?);
    check!(
        queued > 0 && queued <= start && start <= end,
        "a native command was queued at {queued}, ran from {start} to {end}"
    );
    Ok(())
}

/// The event of a native command reports its command type.
fn command_type(fixture: &Fixture) -> Done {
    need_commands(fixture)?;
    let queue = Context::new(fixture)?.in_order(fixture)?;
    let event = command_event(&queue, &[], |_| Ok(()))?;
    check_eq!(
        event.get::<ur_command_t>(UR_EVENT_INFO_COMMAND_TYPE)?,
        UR_COMMAND_ENQUEUE_NATIVE_EXP,
        "command type"
    );
    event.wait()
}

/// A native command without a function is refused.
fn null_function_refused(fixture: &Fixture) -> Done {
    need_commands(fixture)?;
    let queue = Context::new(fixture)?.in_order(fixture)?;
    nothing(&queue, None).fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)
}

/// A freed block is not reused before native work on it has completed.
fn freed_block_waits(fixture: &Fixture) -> Done {
    let setup = command_bench(fixture)?;
    need_async(fixture)?;
    let queue = setup.in_order()?;
    let mut native_fill = None;
    freed_while(&setup, &queue, |block| {
        command(&queue, &[], null_mut(), |_| {
            let at = (block.ptr, block.size);
            native_fill = Some(setup.fill_at(native(&queue)?, at, 9, &[], true)?);
            Ok(())
        })?;
        native_fill
            .take()
            .ok_or_else(|| Stop::failed("the function submitted no native work"))
    })
}

/// Native commands of one queue from two threads do not disturb each other.
fn from_two_threads(fixture: &Fixture) -> Done {
    let setup = command_bench(fixture)?;
    for queue in [setup.in_order()?, setup.out_of_order()?] {
        let half = SIZE / 2;
        let work = |target: usize, byte: u8| -> Done {
            for _ in 0..50 {
                let at = (setup.memory.ptr.wrapping_byte_add(target), half);
                let event = command_event(&queue, &[], |_| {
                    setup
                        .fill_at(native(&queue)?, at, byte, &[], false)
                        .map(drop)
                })?;
                event.wait()?;
            }
            Ok(())
        };
        let (one, two) = std::thread::scope(|scope| {
            let other = scope.spawn(|| work(half, 2));
            let own = work(0, 1);
            let panicked = |_| Err(Stop::failed("a thread panicked"));
            (own, other.join().unwrap_or_else(panicked))
        });
        one.and(two)?;
        queue.finish()?;
        let bytes = setup.memory.host::<u8>();
        let right = bytes[..half].iter().all(|byte| *byte == 1)
            && bytes[half..].iter().all(|byte| *byte == 2);
        check!(right, "two threads' native commands left wrong bytes");
    }
    Ok(())
}

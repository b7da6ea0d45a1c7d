//! Failed commands.
//!
//! A dependent of a failed command does not run, its event reports the failure, and the wait that covers it
//! reports it once. The queue works afterwards. A command fails here because it waits for a failed event of
//! the backend.

use crate::fixture::Fixture;
use crate::kernels::IOTA;
use crate::native_work::{Pending, provider};
use crate::objects::{Arg, CommandBuffer, Context, Event, Kind, Program, Queue, Shape, Usm, With};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_eq};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["failures";
        propagate_to_dependents, propagate_to_every_command_type, propagate_to_command_buffers, propagate_to_native_commands, propagate_on_queues_with_native_handle, propagate_across_queues,
        do_not_affect_independent_commands, at_any_position_in_a_queue, reported_by_blocking_command, wait_list_with_failed_event,
    ]
}

const WORDS: usize = 64;
const BYTES: usize = WORDS * size_of::<u32>();
const FAILED: ur_result_t = UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS;

/// A context with host memory.
struct Setup<'a> {
    fixture: &'a Fixture,
    memory: Usm,
    context: Context,
}

/// An event that fails when the test calls `fail`.
struct FailingEvent {
    pending: Box<dyn Pending>,
    event: Event,
}

impl FailingEvent {
    fn fail(self) {
        self.pending.fail();
    }
}

impl<'a> Setup<'a> {
    fn new(fixture: &'a Fixture) -> Result<Self, Stop> {
        let context = Context::new(fixture)?;
        let mut memory = context.usm(fixture, Kind::Host, BYTES)?;
        memory.host_mut::<u32>().fill(0);
        Ok(Self {
            fixture,
            memory,
            context,
        })
    }

    fn queue(&self, in_order: bool) -> Result<Queue, Stop> {
        match in_order {
            true => self.context.in_order(self.fixture),
            false => self.context.out_of_order(self.fixture),
        }
    }

    fn failing_event(&self) -> Result<FailingEvent, Stop> {
        let ur = self.fixture.ur;
        let no_provider = || Stop::skipped("no provider makes failing events on this backend");
        let foreign = provider(self.fixture.backend).ok_or_else(no_provider)?;
        // This queue is made for the event alone, so that no other queue's native handle is given out.
        let queue = self.context.in_order(self.fixture)?;
        let mut native = 0;
        ur.urQueueGetNativeHandle(queue.raw, null_mut(), &mut native)
            .ok()?;
        let pending = foreign.pending(native).map_err(|_| no_provider())?;
        let event = self.context.adopt_event(pending.event())?;
        Ok(FailingEvent { pending, event })
    }

    /// Enqueues a fill of one word.
    fn set(&self, queue: &Queue, at: usize, waits: &[&Event]) -> Result<Event, Stop> {
        queue.fill(self.word(at), at as u32 + 1, size_of::<u32>(), waits)
    }

    fn word(&self, at: usize) -> *mut c_void {
        self.memory.ptr.wrapping_byte_add(at * size_of::<u32>())
    }

    fn ran(&self, at: usize) -> bool {
        self.memory.host::<u32>()[at] != 0
    }

    fn failed(&self, event: &Event, what: &str) -> Done {
        self.fixture.ur.urEventWait(1, &event.raw).fails(FAILED)?;
        check_eq!(event.status()?, UR_EVENT_STATUS_ERROR, "status of {what}");
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum Wait {
    Event,
    Queue,
    Device,
}

impl Wait {
    const ALL: [Self; 3] = [Self::Event, Self::Queue, Self::Device];

    fn reports(self, fixture: &Fixture, queue: &Queue, last: &Event) -> Done {
        let ur = fixture.ur;
        match self {
            Self::Event => ur.urEventWait(1, &last.raw),
            Self::Queue => ur.urQueueFinish(queue.raw),
            Self::Device => ur.urDeviceWaitExp(fixture.device),
        }
        .fails(FAILED)
    }
}

/// A failed command fails its dependents, and the wait that covers them reports it once.
///
/// Covered are queues of both orders, commands with and without an event, and every kind of wait.
fn propagate_to_dependents(fixture: &Fixture) -> Done {
    for in_order in [true, false] {
        for asked in [true, false] {
            for wait in Wait::ALL {
                let what = format!("in order {in_order}, an event {asked}, {wait:?}");
                let setup = Setup::new(fixture)?;
                let queue = setup.queue(in_order)?;
                let failing = setup.failing_event()?;
                let first = setup.set(&queue, 0, &[&failing.event])?;
                let behind = match asked {
                    true => setup.set(&queue, 1, &[&first])?,
                    false => {
                        drop(first);
                        let all = queue.barrier(&[])?;
                        setup.set(&queue, 1, &[&all])?
                    }
                };
                failing.fail();
                wait.reports(fixture, &queue, &behind)?;
                check!(!setup.ran(0) && !setup.ran(1), "a command ran: {what}");
                setup.failed(&behind, &what)?;
                // After the report, waits succeed and commands run.
                setup.set(&queue, 2, &[])?;
                queue.finish()?;
                check!(setup.ran(2), "a wait returned before its command: {what}");
                let last = setup.set(&queue, 3, &[])?;
                fixture.ur.urDeviceWaitExp(fixture.device).ok()?;
                check!(
                    setup.ran(3),
                    "a wait for the device returned before its command: {what}"
                );
                last.wait()?;
            }
        }
    }
    Ok(())
}

/// A fill, a copy, a launch and a host task do not run after a failed event.
fn propagate_to_every_command_type(fixture: &Fixture) -> Done {
    for in_order in [true, false] {
        let setup = Setup::new(fixture)?;
        let queue = setup.queue(in_order)?;
        let failing = setup.failing_event()?;
        let waits = [&failing.event];
        let kernel = Program::new(fixture, &setup.context)?.kernel(IOTA)?;
        let args = [Arg::Pointer(setup.word(8)), Arg::of(&1_u32)];
        let ran = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&ran);
        let count = move || {
            counted.fetch_add(1, Ordering::SeqCst);
        };
        let mut events = vec![
            ("a fill", setup.set(&queue, 0, &waits)?),
            (
                "a copy",
                queue.copy(setup.word(1), setup.word(40), 4, &waits)?,
            ),
            ("a launch", queue.launch(&kernel, 8, &args, &waits)?),
            ("a host task", queue.host_task(count, &waits)?),
        ];
        let last = setup.set(&queue, 2, &[&events[3].1])?;
        events.push(("a fill after a host task", last));
        failing.fail();
        fixture.ur.urQueueFinish(queue.raw).fails(FAILED)?;
        for (what, event) in &events {
            setup.failed(event, what)?;
        }
        check!(
            (0..40).all(|at| !setup.ran(at)),
            "a dependent of a failed event ran"
        );
        check_eq!(ran.load(Ordering::SeqCst), 0, "host tasks that ran");
        queue.finish()?;
    }
    Ok(())
}

unsafe extern "C" fn called(_: ur_queue_handle_t, calls: *mut c_void) {
    // SAFETY: `propagate_to_native_commands` passes its counter, which outlives its commands.
    unsafe { &*calls.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

/// The event of a native command after a failed command fails, and so do its dependents.
///
/// The function is called as the command is enqueued, unless the failure is known by then. A host task
/// that did not run comes before it in half of the cases: a queue whose native handle was given out waits
/// for a host task in another way.
fn propagate_to_native_commands(fixture: &Fixture) -> Done {
    let ur = fixture.ur;
    for in_order in [true, false] {
        for task in [false, true] {
            let what = format!("in order {in_order}, behind a host task {task}");
            let setup = Setup::new(fixture)?;
            let queue = setup.queue(in_order)?;
            let failing = setup.failing_event()?;
            let first = match task {
                false => setup.set(&queue, 0, &[&failing.event])?,
                true => queue.host_task(|| {}, &[&failing.event])?,
            };
            let saved = setup.set(&queue, 1, &[&first])?;
            let calls = AtomicU32::new(0);
            let native = queue.event(|event| {
                let data = (&raw const calls).cast_mut().cast();
                let (run, wait) = (Some(called as _), &saved.raw);
                ur.urEnqueueNativeCommandExp(
                    queue.raw,
                    run,
                    data,
                    0,
                    null(),
                    null(),
                    1,
                    wait,
                    event,
                )
            })?;
            let behind = setup.set(&queue, 2, &[&native])?;
            failing.fail();
            ur.urQueueFinish(queue.raw).fails(FAILED)?;
            for (name, event) in [("before", &saved), ("it", &native), ("behind", &behind)] {
                setup.failed(event, &format!("a native command, {name}, {what}"))?;
            }
            check!(!setup.ran(2), "a dependent ran: {what}");
            check!(
                calls.load(Ordering::SeqCst) <= 1,
                "the function was called twice: {what}"
            );
            queue.finish()?;
            setup.set(&queue, 3, &[])?.wait()?;
            check!(setup.ran(3), "a wait returned before its command: {what}");
        }
    }
    Ok(())
}

/// A command buffer does not run after a failed event and can be submitted again later.
fn propagate_to_command_buffers(fixture: &Fixture) -> Done {
    for in_order in [true, false] {
        let setup = Setup::new(fixture)?;
        CommandBuffer::need(fixture, &setup.context)?;
        let queue = setup.queue(in_order)?;
        let failing = setup.failing_event()?;
        let buffer = CommandBuffer::new(fixture, &setup.context, Shape::default())?;
        for at in 0..4 {
            let (word, value) = (setup.word(at), at as u32 + 1);
            buffer.fill(word, value, size_of::<u32>(), With::default())?;
        }
        buffer.finalize()?;
        let done = buffer.enqueue(&queue, &[&failing.event])?;
        let behind = setup.set(&queue, 4, &[&done])?;
        failing.fail();
        setup.failed(&behind, "a fill after a command buffer")?;
        setup.failed(&done, "a command buffer")?;
        check!(
            (0..5).all(|at| !setup.ran(at)),
            "a dependent of a failed event ran"
        );
        // The wait for the dependent has reported the failure.
        queue.finish()?;
        buffer.enqueue(&queue, &[])?.wait()?;
        check!(
            (0..4).all(|at| setup.ran(at)),
            "a recorded command did not run"
        );
    }
    Ok(())
}

/// After a failed host task, events fail also on a queue whose native handle was given out.
///
/// Such a queue waits for the host in the driver, which may run the commands after a host task that did
/// not run.
fn propagate_on_queues_with_native_handle(fixture: &Fixture) -> Done {
    for in_order in [true, false] {
        let what = format!("behind a host task, in order {in_order}");
        let setup = Setup::new(fixture)?;
        let queue = setup.queue(in_order)?;
        let failing = setup.failing_event()?;
        let mut native = 0;
        let ur = fixture.ur;
        ur.urQueueGetNativeHandle(queue.raw, null_mut(), &mut native)
            .ok()?;
        let task = queue.host_task(|| {}, &[&failing.event])?;
        let behind = setup.set(&queue, 0, &[&task])?;
        failing.fail();
        ur.urQueueFinish(queue.raw).fails(FAILED)?;
        setup.failed(&task, "a host task")?;
        setup.failed(&behind, &what)?;
        queue.finish()?;
    }
    Ok(())
}

/// A failure reaches dependents on other queues and in other contexts.
fn propagate_across_queues(fixture: &Fixture) -> Done {
    let (setup, other) = (Setup::new(fixture)?, Setup::new(fixture)?);
    let queues = [setup.queue(true)?, setup.queue(false)?, other.queue(true)?];
    let failing = setup.failing_event()?;
    let first = setup.set(&queues[0], 0, &[&failing.event])?;
    let second = setup.set(&queues[1], 1, &[&first])?;
    let third = other.set(&queues[2], 2, &[&second])?;
    failing.fail();
    setup.failed(&third, "a command of another context")?;
    setup.failed(&second, "a command of another queue")?;
    check!(
        !setup.ran(0) && !setup.ran(1) && !other.ran(2),
        "a dependent of a failed event ran"
    );
    for queue in &queues {
        // This call reports a failure that no wait has covered yet.
        let _ = fixture.ur.urQueueFinish(queue.raw);
        queue.finish()?;
    }
    Ok(())
}

/// A failed command does not affect commands that do not depend on it.
fn do_not_affect_independent_commands(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let (queue, healthy) = (setup.queue(false)?, setup.queue(true)?);
    let failing = setup.failing_event()?;
    let before: Vec<_> = (0..10)
        .map(|at| setup.set(&queue, at, &[]))
        .collect::<Result<_, Stop>>()?;
    let bad = setup.set(&queue, 20, &[&failing.event])?;
    let beside: Vec<_> = (10..20)
        .map(|at| setup.set(&queue, at, &[]))
        .collect::<Result<_, Stop>>()?;
    failing.fail();
    let other = setup.set(&healthy, 21, &[])?;
    for event in before.iter().chain(&beside).chain([&other]) {
        event.wait()?;
    }
    check!(
        (0..20).all(|at| setup.ran(at)),
        "an independent command did not run"
    );
    setup.failed(&bad, "the dependent fill")?;
    check!(!setup.ran(20), "a dependent of a failed event ran");
    healthy.finish()?;
    queue.finish()
}

/// Commands before the failed one of an in-order queue run, and those after it fail.
fn at_any_position_in_a_queue(fixture: &Fixture) -> Done {
    const COUNT: usize = 6;
    for failed_index in 0..COUNT {
        let setup = Setup::new(fixture)?;
        let queue = setup.queue(true)?;
        let failing = setup.failing_event()?;
        let mut events = Vec::new();
        for at in 0..COUNT {
            let waits = [&failing.event];
            let waits = if at == failed_index { &waits[..] } else { &[] };
            events.push(setup.set(&queue, at, waits)?);
        }
        failing.fail();
        fixture.ur.urQueueFinish(queue.raw).fails(FAILED)?;
        for (at, event) in events.iter().enumerate() {
            check_eq!(
                setup.ran(at),
                at < failed_index,
                "whether command {at} ran when {failed_index} fails"
            );
            match at < failed_index {
                true => event.wait()?,
                false => setup.failed(event, "a later command")?,
            }
        }
        queue.finish()?;
    }
    Ok(())
}

/// A blocking copy after a failed command returns the failure.
fn reported_by_blocking_command(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let queue = setup.queue(true)?;
    let failing = setup.failing_event()?;
    let first = setup.set(&queue, 0, &[&failing.event])?;
    failing.fail();
    let ur = fixture.ur;
    let (to, from) = (setup.word(1), setup.word(40));
    ur.urEnqueueUSMMemcpy(queue.raw, 1, to, from, 4, 0, null(), null_mut())
        .fails(FAILED)?;
    setup.failed(&first, "an earlier fill")?;
    queue.finish()
}

/// A wait list with an event that is known to have failed is refused.
fn wait_list_with_failed_event(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let queue = setup.queue(true)?;
    let failing = setup.failing_event()?;
    let raw = failing.event.raw;
    let FailingEvent { pending, event } = failing;
    pending.fail();
    setup.failed(&event, "an event of the backend's")?;
    let ur = fixture.ur;
    ur.urEnqueueEventsWait(queue.raw, 1, &raw, null_mut())
        .fails(FAILED)?;
    setup.set(&queue, 0, &[])?.wait()?;
    check!(setup.ran(0), "a command after the refused one did not run");
    queue.finish()
}

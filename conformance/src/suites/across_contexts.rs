//! Wait lists with events of another context order like any other, and no call blocks for them.

use super::enqueue::{LONG, pending};
use crate::fixture::Fixture;
use crate::kernels::ADD;
use crate::objects::{Arg, Context, Event, Gate, Kind, Pool, Program, Queue, Usm};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_all, check_eq, check_items};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["across_contexts";
        commands_wait, kernels_wait, markers_and_barriers_wait, barriers_block_later_commands, host_tasks_wait,
        chain_alternates_contexts, wait_list_mixes_contexts, free_waits, allocation_waits,
        released_event_still_orders, complete_event_does_not_block, host_waits_for_both_contexts,
    ]
}

/// A context with a blocked queue, and the event of a command that waits for the gate.
struct Remote {
    gate: Gate,
    event: Event,
    _memory: Usm,
    _queue: Queue,
    _context: Context,
}

impl Remote {
    fn new(fixture: &Fixture) -> Result<Self, Stop> {
        let context = Context::new(fixture)?;
        let queue = context.in_order(fixture)?;
        let memory = context.usm(fixture, Kind::Host, 4096)?;
        let gate = Gate::close(fixture, &queue)?;
        let event = queue.fill(memory.ptr, 1_u8, 4096, &[])?;
        Ok(Self {
            gate,
            event,
            _memory: memory,
            _queue: queue,
            _context: context,
        })
    }

    /// Fails unless a command waits for the event and completes once the gate opens.
    fn holds(&self, waiting: &Event, what: &str) -> Done {
        pending(waiting, what)?;
        check!(!self.gate.is_open(), "the gate opened by itself");
        self.gate.open();
        check!(
            waiting.completes_within(LONG)?,
            "{what}: it did not complete after the other context's command"
        );
        check!(self.event.is_complete()?, "{what}");
        Ok(())
    }
}

/// A context with an in-order and an out-of-order queue.
fn local_queues(fixture: &Fixture) -> Result<(Context, [Queue; 2]), Stop> {
    let context = Context::new(fixture)?;
    let queues = [context.in_order(fixture)?, context.out_of_order(fixture)?];
    Ok((context, queues))
}

/// A fill and a copy wait for an event of another context.
fn commands_wait(fixture: &Fixture) -> Done {
    let (context, queues) = local_queues(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 4096)?;
    for queue in queues {
        let remote = Remote::new(fixture)?;
        let filled = queue.fill(memory.ptr, 7_u8, 4096, &[&remote.event])?;
        let read = context.usm(fixture, Kind::Host, 4096)?;
        let copied = queue.copy(read.ptr, memory.ptr, 4096, &[&filled])?;
        remote.holds(&copied, "a copy after a command of another context")?;
        check_all!(read.host::<u8>(), 7, "what the commands left");
    }
    Ok(())
}

/// A kernel launch waits for an event of another context.
fn kernels_wait(fixture: &Fixture) -> Done {
    let (context, queues) = local_queues(fixture)?;
    let kernel = Program::new(fixture, &context)?.kernel(ADD)?;
    let memory = context.usm(fixture, Kind::Host, 400)?;
    let zeroed = queues[0].fill(memory.ptr, 0_u32, 400, &[])?;
    zeroed.wait()?;
    for (round, queue) in (1..).zip(queues) {
        let remote = Remote::new(fixture)?;
        let args = [Arg::Pointer(memory.ptr), Arg::of(&1_u32)];
        let added = queue.launch(&kernel, 100, &args, &[&remote.event])?;
        remote.holds(&added, "a kernel after a command of another context")?;
        check_all!(memory.host::<u32>(), round, "what the kernel left");
    }
    Ok(())
}

/// A marker and a barrier wait for an event of another context.
fn markers_and_barriers_wait(fixture: &Fixture) -> Done {
    let (_context, queues) = local_queues(fixture)?;
    for queue in queues {
        let remote = Remote::new(fixture)?;
        let marker = queue.marker(&[&remote.event])?;
        remote.holds(&marker, "a marker after a command of another context")?;
        let remote = Remote::new(fixture)?;
        let barrier = queue.barrier(&[&remote.event])?;
        remote.holds(&barrier, "a barrier after a command of another context")?;
    }
    Ok(())
}

/// A barrier that waits for another context blocks the later commands of its queue.
fn barriers_block_later_commands(fixture: &Fixture) -> Done {
    let (context, queues) = local_queues(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 4096)?;
    for queue in queues {
        let remote = Remote::new(fixture)?;
        queue.barrier(&[&remote.event])?;
        let later = queue.fill(memory.ptr, 1_u8, 4096, &[])?;
        remote.holds(
            &later,
            "a fill after a barrier that waits for another context",
        )?;
        queue.finish()?;
    }
    Ok(())
}

/// A host task waits for an event of another context and runs once.
fn host_tasks_wait(fixture: &Fixture) -> Done {
    let (_context, queues) = local_queues(fixture)?;
    for queue in queues {
        let remote = Remote::new(fixture)?;
        let ran = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&ran);
        let task = move || _ = seen.fetch_add(1, Ordering::SeqCst);
        let done = queue.host_task(task, &[&remote.event])?;
        remote.holds(&done, "a host task after a command of another context")?;
        check_eq!(ran.load(Ordering::SeqCst), 1, "times that the task ran");
    }
    Ok(())
}

/// A chain of host tasks that changes its context at every step runs in order.
fn chain_alternates_contexts(fixture: &Fixture) -> Done {
    let (one, two) = (local_queues(fixture)?, local_queues(fixture)?);
    let queues: Vec<&Queue> = one.1.iter().chain(&two.1).collect();
    let gate = Gate::close(fixture, queues[0])?;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut last: Option<Event> = None;
    for step in 0..100 {
        let seen = Arc::clone(&order);
        let append = move || {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.push(step);
        };
        let queue = queues[[0, 2, 1, 3][step % 4]];
        let wait = last.as_ref();
        last = Some(queue.host_task(append, wait.as_slice())?);
    }
    gate.open();
    queues.into_iter().try_for_each(Queue::finish)?;
    let order = order.lock().unwrap_or_else(PoisonError::into_inner);
    check_items!(
        order.iter().copied(),
        0..100,
        "a chain over two contexts ran in the order {order:?}"
    );
    Ok(())
}

/// A wait list may name events of its own context and of another one.
fn wait_list_mixes_contexts(fixture: &Fixture) -> Done {
    let (context, [queue, other]) = local_queues(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 4096)?;
    let remote = Remote::new(fixture)?;
    let gate = Gate::close(fixture, &other)?;
    let event = queue.fill(memory.ptr, 1_u8, 4096, &[&gate.event, &remote.event])?;
    pending(&event, "a fill after two gates")?;
    gate.open();
    remote.holds(&event, "a fill after an event of each context")
}

fn need_async(fixture: &Fixture) -> Done {
    match fixture.supports(UR_DEVICE_INFO_ASYNC_USM_ALLOCATIONS_SUPPORT_EXP)? {
        true => Ok(()),
        false => Err(Stop::skipped("the device has no asynchronous allocation")),
    }
}

/// A block whose free waits for another context is not reused before that free completes.
fn free_waits(fixture: &Fixture) -> Done {
    need_async(fixture)?;
    let (context, queues) = local_queues(fixture)?;
    for queue in queues {
        let pool = Pool::new(fixture, &context)?;
        let remote = Remote::new(fixture)?;
        let (block, ready) = queue.alloc_event(Kind::Device, &pool, 1 << 20, &[])?;
        ready.wait()?;
        let freed = queue.free_event(block, &[&remote.event])?;
        let other = context.in_order(fixture)?;
        let early = other.alloc(Kind::Device, &pool, 1 << 20, &[])?;
        check!(
            !early.overlaps(&block),
            "a block was reused before another context's command completed"
        );
        other.free(early, &[])?;
        remote.holds(&freed, "a free after a command of another context")?;
        queue.finish()?;
        other.finish()?;
    }
    Ok(())
}

/// An asynchronous allocation waits for an event of another context.
fn allocation_waits(fixture: &Fixture) -> Done {
    need_async(fixture)?;
    let (context, queues) = local_queues(fixture)?;
    for queue in queues {
        let pool = Pool::new(fixture, &context)?;
        let remote = Remote::new(fixture)?;
        let (block, ready) = queue.alloc_event(Kind::Device, &pool, 1 << 20, &[&remote.event])?;
        remote.holds(&ready, "an allocation after a command of another context")?;
        queue.free(block, &[])?;
        queue.finish()?;
    }
    Ok(())
}

/// A command waits for an event of another context that was released after the call.
fn released_event_still_orders(fixture: &Fixture) -> Done {
    let (context, queues) = local_queues(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    for queue in queues {
        let Remote {
            gate,
            event,
            _memory: remote_memory,
            _queue: remote_queue,
            _context: remote_context,
        } = Remote::new(fixture)?;
        let later = queue.fill(memory.ptr, 1_u8, 64, &[&event])?;
        drop(event);
        pending(&later, "a command overtook a released event")?;
        gate.open();
        check!(
            later.completes_within(LONG)?,
            "a command waits forever for a released event"
        );
        drop((remote_memory, remote_queue, remote_context));
    }
    Ok(())
}

/// A complete event of another context does not block a command.
fn complete_event_does_not_block(fixture: &Fixture) -> Done {
    let (context, queues) = local_queues(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    for queue in queues {
        let remote = Remote::new(fixture)?;
        remote.gate.open();
        remote.event.wait()?;
        queue.fill(memory.ptr, 1_u8, 64, &[&remote.event])?.wait()?;
    }
    Ok(())
}

/// `urEventWait` takes events of two contexts and returns when both are complete.
fn host_waits_for_both_contexts(fixture: &Fixture) -> Done {
    let (context, [queue, _]) = local_queues(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let remote = Remote::new(fixture)?;
    let own = queue.fill(memory.ptr, 1_u8, 64, &[&remote.event])?;
    remote.gate.open_after(std::time::Duration::from_millis(20));
    let both: [ur_event_handle_t; 2] = [own.raw, remote.event.raw];
    fixture.ur.urEventWait(2, both.as_ptr()).ok()?;
    check!(
        own.is_complete()? && remote.event.is_complete()?,
        "an event is not complete after a wait for events of two contexts"
    );
    Ok(())
}

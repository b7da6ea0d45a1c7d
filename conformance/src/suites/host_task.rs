//! Host tasks: functions of the program as commands of a queue.

use super::enqueue::{LONG, pending};
use crate::fixture::Fixture;
use crate::objects::{Context, Gate, Kind, Queue};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_all, check_eq, check_items};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["host_task"; runs_once, in_order_tasks, reads_and_writes_data, waits_for_list, in_order_task_blocks_later_commands, tasks_run_concurrently, blocked_tasks_do_not_block_other_queues, null_function_refused, command_type]
}

/// Stops the test unless the device runs host tasks.
fn need_tasks(fixture: &Fixture, queue: &Queue) -> Done {
    unsafe extern "C" fn nothing(_: *mut c_void) {}
    let property = UR_DEVICE_INFO_ENQUEUE_HOST_TASK_SUPPORT_EXP;
    let ur = fixture.ur;
    fixture.require(property, || {
        ur.urEnqueueHostTaskExp(
            queue.raw,
            Some(nothing),
            null_mut(),
            null(),
            0,
            null(),
            null_mut(),
        )
    })
}

/// A host task runs once before its event completes.
fn runs_once(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    for queue in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
        need_tasks(fixture, &queue)?;
        let count = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&count);
        let event = queue.host_task(move || _ = seen.fetch_add(1, Ordering::SeqCst), &[])?;
        event.wait()?;
        check_eq!(
            count.load(Ordering::SeqCst),
            1,
            "times that a host task ran"
        );
        queue.finish()?;
        check_eq!(
            count.load(Ordering::SeqCst),
            1,
            "times that a host task ran"
        );
    }
    Ok(())
}

/// Host tasks of an in-order queue run in order.
fn in_order_tasks(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    need_tasks(fixture, &queue)?;
    let order = Arc::new(Mutex::new(Vec::new()));
    for index in 0..100 {
        let seen = Arc::clone(&order);
        queue.host_task(
            move || {
                seen.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(index)
            },
            &[],
        )?;
    }
    queue.finish()?;
    let order = order.lock().unwrap_or_else(PoisonError::into_inner);
    check_items!(
        order.iter().copied(),
        0..100,
        "host tasks of an in-order queue ran in the order {order:?}"
    );
    Ok(())
}

/// A host task sees earlier commands' data, and later commands see what it wrote.
fn reads_and_writes_data(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    need_tasks(fixture, &queue)?;
    let (memory, result) = (
        context.usm(fixture, Kind::Host, 4096)?,
        context.usm(fixture, Kind::Host, 4096)?,
    );
    queue.fill(memory.ptr, 5_u32, 4096, &[])?;
    let wrong = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&wrong);
    let block = crate::objects::Block {
        ptr: memory.ptr,
        size: 4096,
    };
    let task = move || {
        for word in block.host::<u32>() {
            seen.fetch_add(u32::from(*word != 5), Ordering::SeqCst);
            *word += 1;
        }
    };
    queue.host_task(task, &[])?;
    queue.copy(result.ptr, memory.ptr, 4096, &[])?;
    queue.finish()?;
    check_eq!(
        wrong.load(Ordering::SeqCst),
        0,
        "words that a host task saw before they were written"
    );
    check_all!(result.host::<u32>(), 6, "words written by a host task");
    Ok(())
}

/// A host task runs only after its wait list has completed.
fn waits_for_list(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let (queue, other) = (context.out_of_order(fixture)?, context.in_order(fixture)?);
    need_tasks(fixture, &queue)?;
    let gate = Gate::close(fixture, &other)?;
    let count = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&count);
    let event = queue.host_task(
        move || _ = seen.fetch_add(1, Ordering::SeqCst),
        &[&gate.event],
    )?;
    pending(&event, "a host task did not wait for its list")?;
    check_eq!(
        count.load(Ordering::SeqCst),
        0,
        "times that a host task ran before its list completed"
    );
    gate.open();
    event.wait()?;
    check_eq!(
        count.load(Ordering::SeqCst),
        1,
        "times that a host task ran"
    );
    Ok(())
}

/// A pending host task blocks the later commands of its in-order queue.
fn in_order_task_blocks_later_commands(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    need_tasks(fixture, &queue)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let gate = Gate::close(fixture, &queue)?;
    let later = queue.fill(memory.ptr, 1_u8, 64, &[])?;
    pending(
        &later,
        "a command overtook a host task of its in-order queue",
    )?;
    gate.open();
    later.wait()
}

/// Independent host tasks of four queues run at the same time.
fn tasks_run_concurrently(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queues = (0..4)
        .map(|_| context.in_order(fixture))
        .collect::<Result<Vec<Queue>, Stop>>()?;
    need_tasks(fixture, &queues[0])?;
    let running = Arc::new(AtomicU32::new(0));
    let mut events = Vec::new();
    for queue in &queues {
        let seen = Arc::clone(&running);
        let meet = move || {
            seen.fetch_add(1, Ordering::SeqCst);
            let end = std::time::Instant::now() + LONG;
            while seen.load(Ordering::SeqCst) < 4 && std::time::Instant::now() < end {
                std::thread::yield_now();
            }
            // The task that runs out of time marks the count as wrong.
            if seen.load(Ordering::SeqCst) < 4 {
                seen.store(1000, Ordering::SeqCst);
            }
        };
        events.push(queue.host_task(meet, &[])?);
    }
    queues.iter().try_for_each(Queue::finish)?;
    check_eq!(
        running.load(Ordering::SeqCst),
        4,
        "host tasks of four queues that ran at the same time"
    );
    Ok(())
}

/// Sixteen blocked host tasks do not block the commands of another queue.
fn blocked_tasks_do_not_block_other_queues(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let blocked = (0..16)
        .map(|_| context.in_order(fixture))
        .collect::<Result<Vec<Queue>, Stop>>()?;
    need_tasks(fixture, &blocked[0])?;
    let gates = blocked
        .iter()
        .map(|queue| Gate::close(fixture, queue))
        .collect::<Result<Vec<Gate>, Stop>>()?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 4096)?;
    let filled = queue.fill(memory.ptr, 1_u8, 4096, &[])?;
    check!(
        filled.completes_within(LONG)?,
        "16 blocked host tasks stopped another queue"
    );
    gates.iter().for_each(Gate::open);
    blocked.iter().try_for_each(Queue::finish)
}

/// A host task without a function is refused.
fn null_function_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    need_tasks(fixture, &queue)?;
    let ur = fixture.ur;
    let none = ur.urEnqueueHostTaskExp(queue.raw, None, null_mut(), null(), 0, null(), null_mut());
    none.fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)
}

/// The event of a host task reports its command type.
fn command_type(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    need_tasks(fixture, &queue)?;
    let event = queue.host_task(|| {}, &[])?;
    check_eq!(
        event.get::<ur_command_t>(UR_EVENT_INFO_COMMAND_TYPE)?,
        UR_COMMAND_HOST_TASK_EXP,
        "command type"
    );
    event.wait()
}

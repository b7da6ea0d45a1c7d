//! Markers, barriers and host tasks, and what wait lists promise between queues.

use crate::fixture::Fixture;
use crate::objects::{Context, Event, Gate, Kind, Queue};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_eq};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let mut tests = crate::tests!["enqueue";
        marker_covers_what_came_before, marker_waits_for_its_list_only, marker_does_not_hold_back,
        barrier_covers_what_came_before, barrier_holds_back, barrier_with_list_holds_back, wait_list_between_queues,
        in_order_wait_list_holds_back, long_chain_between_queues, wide_wait_list, without_events,
    ];
    tests.extend(crate::tests!["host_task";
        runs_once, in_order_tasks, sees_and_makes_data, waits_for_list, task_holds_back_in_order, many_tasks_at_once,
        tasks_do_not_block_kernels_of_others, task_refused, task_type,
    ]);
    tests
}

/// A short time in which what must not happen would have happened.
const MOMENT: Duration = Duration::from_millis(25);
const LONG: Duration = Duration::from_secs(10);

fn pending(event: &Event, what: &str) -> Done {
    check!(!event.completes_within(MOMENT)?, "{what}");
    Ok(())
}

fn marker_covers_what_came_before(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    for queue in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
        let gate = Gate::close(fixture, &queue)?;
        let marker = queue.marker(&[])?;
        pending(&marker, "a marker without a list did not wait for an earlier command")?;
        gate.open();
        marker.wait()?;
    }
    Ok(())
}

fn marker_waits_for_its_list_only(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.out_of_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let gate = Gate::close(fixture, &queue)?;
    let other = queue.fill(memory.ptr, 1_u8, 64, &[])?;
    let marker = queue.marker(&[&other])?;
    check!(marker.completes_within(LONG)?, "a marker with a list waited for more than that");
    check!(!gate.event.is_complete()?, "the gate opened by itself");
    Ok(())
}

fn marker_does_not_hold_back(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.out_of_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let gate = Gate::close(fixture, &queue)?;
    let marker = queue.marker(&[&gate.event])?;
    let later = queue.fill(memory.ptr, 1_u8, 64, &[])?;
    check!(later.completes_within(LONG)?, "a marker held back a later command of an out-of-order queue");
    check!(!marker.is_complete()?, "the marker did not wait");
    Ok(())
}

fn barrier_covers_what_came_before(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    for queue in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
        let gate = Gate::close(fixture, &queue)?;
        let barrier = queue.barrier(&[])?;
        pending(&barrier, "a barrier without a list did not wait for an earlier command")?;
        gate.open();
        barrier.wait()?;
    }
    Ok(())
}

fn barrier_holds_back(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    for queue in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
        let memory = context.usm(fixture, Kind::Device, 64)?;
        let gate = Gate::close(fixture, &queue)?;
        queue.barrier(&[])?;
        let events = [queue.fill(memory.ptr, 1_u8, 32, &[])?, queue.marker(&[])?];
        for event in &events {
            pending(event, "a command overtook a barrier")?;
        }
        gate.open();
        queue.finish()?;
    }
    Ok(())
}

fn barrier_with_list_holds_back(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let other = context.in_order(fixture)?;
    for queue in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
        let memory = context.usm(fixture, Kind::Device, 64)?;
        let gate = Gate::close(fixture, &other)?;
        queue.barrier(&[&gate.event])?;
        let later = queue.fill(memory.ptr, 1_u8, 64, &[])?;
        pending(&later, "a command overtook a barrier that waits for another queue")?;
        gate.open();
        later.wait()?;
    }
    Ok(())
}

fn wait_list_between_queues(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queues = [context.in_order(fixture)?, context.out_of_order(fixture)?];
    for first in &queues {
        for second in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
            let size = 1 << 20;
            let (memory, result) = (context.usm(fixture, Kind::Device, size)?, context.usm(fixture, Kind::Host, size)?);
            let gate = Gate::close(fixture, first)?;
            let filled = first.fill(memory.ptr, 0x5e_u8, size, &[&gate.event])?;
            let copied = second.copy(result.ptr, memory.ptr, size, &[&filled])?;
            pending(&copied, "a command did not wait for an event of another queue")?;
            gate.open();
            copied.wait()?;
            check!(result.host::<u8>().iter().all(|byte| *byte == 0x5e), "data from another queue");
        }
    }
    Ok(())
}

/// On an in-order queue a wait list orders all later commands too.
fn in_order_wait_list_holds_back(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let (queue, other) = (context.in_order(fixture)?, context.in_order(fixture)?);
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let gate = Gate::close(fixture, &other)?;
    queue.marker(&[&gate.event])?;
    let later = queue.fill(memory.ptr, 1_u8, 64, &[])?;
    pending(&later, "a command overtook an earlier one of its in-order queue")?;
    gate.open();
    later.wait()
}

fn long_chain_between_queues(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queues = [context.in_order(fixture)?, context.out_of_order(fixture)?, context.in_order(fixture)?];
    let memory = context.usm(fixture, Kind::Host, 4 * 301)?;
    let gate = Gate::close(fixture, &queues[0])?;
    let mut last = queues[0].fill(memory.ptr, 7_u32, 4, &[])?;
    for step in 0..300 {
        let at = memory.ptr.wrapping_byte_add(step * 4);
        last = queues[step % 3].copy(at.wrapping_byte_add(4), at, 4, &[&last])?;
    }
    pending(&last, "a chain did not wait for its start")?;
    gate.open();
    last.wait()?;
    check!(memory.host::<u32>().iter().all(|word| *word == 7), "a chain of 300 copies over three queues");
    Ok(())
}

fn wide_wait_list(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queues = (0..6).map(|_| context.in_order(fixture)).collect::<Result<Vec<Queue>, Stop>>()?;
    let memory = context.usm(fixture, Kind::Host, 4 * 120)?;
    let gate = Gate::close(fixture, &queues[5])?;
    let mut events = vec![queues[5].marker(&[])?];
    for index in 0..120 {
        let at = memory.ptr.wrapping_byte_add(index * 4);
        events.push(queues[index % 5].fill(at, index as u32, 4, &[])?);
    }
    let result = context.usm(fixture, Kind::Host, 4 * 120)?;
    let list: Vec<&Event> = events.iter().collect();
    let joined = queues[0].copy(result.ptr, memory.ptr, 4 * 120, &list)?;
    pending(&joined, "a command did not wait for all of its list")?;
    gate.open();
    joined.wait()?;
    check!(result.host::<u32>().iter().copied().eq(0..120), "a join of 121 events");
    Ok(())
}

/// Nobody has to ask for events.
fn without_events(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Host, 64)?;
    let ur = fixture.ur;
    for round in 0..100_u8 {
        let pattern = (&raw const round).cast();
        ur.urEnqueueUSMFill(queue.raw, memory.ptr, 1, pattern, 64, 0, null(), null_mut()).ok()?;
        ur.urEnqueueEventsWaitWithBarrier(queue.raw, 0, null(), null_mut()).ok()?;
        ur.urEnqueueEventsWait(queue.raw, 0, null(), null_mut()).ok()?;
    }
    queue.finish()?;
    check!(memory.host::<u8>().iter().all(|byte| *byte == 99), "100 fills without an event");
    Ok(())
}

/// Goes on only if the device runs host tasks.
fn need_tasks(fixture: &Fixture, queue: &Queue) -> Done {
    unsafe extern "C" fn nothing(_: *mut c_void) {}
    let property = UR_DEVICE_INFO_ENQUEUE_HOST_TASK_SUPPORT_EXP;
    let ur = fixture.ur;
    fixture.require(property, || ur.urEnqueueHostTaskExp(queue.raw, Some(nothing), null_mut(), null(), 0, null(), null_mut()))
}

fn runs_once(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    for queue in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
        need_tasks(fixture, &queue)?;
        let count = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&count);
        let event = queue.host_task(move || _ = seen.fetch_add(1, Ordering::SeqCst), &[])?;
        event.wait()?;
        check_eq!(count.load(Ordering::SeqCst), 1, "times that a host task ran");
        queue.finish()?;
        check_eq!(count.load(Ordering::SeqCst), 1, "times that a host task ran");
    }
    Ok(())
}

fn in_order_tasks(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    need_tasks(fixture, &queue)?;
    let order = Arc::new(Mutex::new(Vec::new()));
    for index in 0..100 {
        let seen = Arc::clone(&order);
        queue.host_task(move || seen.lock().unwrap_or_else(PoisonError::into_inner).push(index), &[])?;
    }
    queue.finish()?;
    let order = order.lock().unwrap_or_else(PoisonError::into_inner);
    check!(order.iter().copied().eq(0..100), "host tasks of an in-order queue ran in the order {order:?}");
    Ok(())
}

fn sees_and_makes_data(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    need_tasks(fixture, &queue)?;
    let (memory, result) = (context.usm(fixture, Kind::Host, 4096)?, context.usm(fixture, Kind::Host, 4096)?);
    queue.fill(memory.ptr, 5_u32, 4096, &[])?;
    let wrong = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&wrong);
    let block = crate::objects::Block { ptr: memory.ptr, size: 4096 };
    let task = move || {
        for word in block.host::<u32>() {
            seen.fetch_add(u32::from(*word != 5), Ordering::SeqCst);
            *word += 1;
        }
    };
    queue.host_task(task, &[])?;
    queue.copy(result.ptr, memory.ptr, 4096, &[])?;
    queue.finish()?;
    check_eq!(wrong.load(Ordering::SeqCst), 0, "words that a host task saw before they were written");
    check!(result.host::<u32>().iter().all(|word| *word == 6), "what a host task wrote");
    Ok(())
}

fn waits_for_list(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let (queue, other) = (context.out_of_order(fixture)?, context.in_order(fixture)?);
    need_tasks(fixture, &queue)?;
    let gate = Gate::close(fixture, &other)?;
    let count = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&count);
    let event = queue.host_task(move || _ = seen.fetch_add(1, Ordering::SeqCst), &[&gate.event])?;
    pending(&event, "a host task did not wait for its list")?;
    check_eq!(count.load(Ordering::SeqCst), 0, "times that a host task ran before its list completed");
    gate.open();
    event.wait()?;
    check_eq!(count.load(Ordering::SeqCst), 1, "times that a host task ran");
    Ok(())
}

fn task_holds_back_in_order(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    need_tasks(fixture, &queue)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let gate = Gate::close(fixture, &queue)?;
    let later = queue.fill(memory.ptr, 1_u8, 64, &[])?;
    pending(&later, "a command overtook a host task of its in-order queue")?;
    gate.open();
    later.wait()
}

/// Independent host tasks never wait for each other: each of these waits for all.
fn many_tasks_at_once(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queues = (0..4).map(|_| context.in_order(fixture)).collect::<Result<Vec<Queue>, Stop>>()?;
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
            // All met, or time ran out: then this one says so.
            if seen.load(Ordering::SeqCst) < 4 {
                seen.store(1000, Ordering::SeqCst);
            }
        };
        events.push(queue.host_task(meet, &[])?);
    }
    queues.iter().try_for_each(Queue::finish)?;
    check_eq!(running.load(Ordering::SeqCst), 4, "host tasks of four queues that ran at the same time");
    Ok(())
}

fn tasks_do_not_block_kernels_of_others(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let blocked = (0..16).map(|_| context.in_order(fixture)).collect::<Result<Vec<Queue>, Stop>>()?;
    need_tasks(fixture, &blocked[0])?;
    let gates = blocked.iter().map(|queue| Gate::close(fixture, queue)).collect::<Result<Vec<Gate>, Stop>>()?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 4096)?;
    let filled = queue.fill(memory.ptr, 1_u8, 4096, &[])?;
    check!(filled.completes_within(LONG)?, "16 blocked host tasks stopped another queue");
    gates.iter().for_each(Gate::open);
    blocked.iter().try_for_each(Queue::finish)
}

fn task_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    need_tasks(fixture, &queue)?;
    let ur = fixture.ur;
    let none = ur.urEnqueueHostTaskExp(queue.raw, None, null_mut(), null(), 0, null(), null_mut());
    none.fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)
}

fn task_type(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    need_tasks(fixture, &queue)?;
    let event = queue.host_task(|| {}, &[])?;
    check_eq!(event.get::<ur_command_t>(UR_EVENT_INFO_COMMAND_TYPE)?, UR_COMMAND_HOST_TASK_EXP, "command type");
    event.wait()
}

//! Many pending host tasks, callbacks and commands.
//!
//! The cost of each must not depend on how many are pending, or a test exceeds its time limit. `UR_LONG=1`
//! raises their number from 300 to 20,000.

use crate::fixture::Fixture;
use crate::objects::{Context, Event, Gate, Kind, Queue};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_eq, check_items};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["backlog";
        ordered_host_tasks, unordered_host_tasks, host_tasks_between_commands, commands_after_one_host_task,
        commands_after_many_host_tasks, callbacks, waits_without_later_commands,
    ]
}

fn count() -> usize {
    match std::env::var_os("UR_LONG") {
        Some(_) => 20_000,
        None => 300,
    }
}

/// Numbers in the order in which the host tasks ran.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<usize>>>);

impl Seen {
    /// Enqueues a host task that records its number.
    fn task(&self, queue: &Queue, number: usize, wait: &[&Event]) -> Result<Event, Stop> {
        let seen = self.clone();
        queue.host_task(move || seen.lock().push(number), wait)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn are_all(&self, count: usize) -> Done {
        let mut seen = self.lock().clone();
        seen.sort_unstable();
        check_items!(seen, 0..count, "host tasks that ran, sorted");
        Ok(())
    }
}

/// Many pending host tasks of an in-order queue run in order, each once.
fn ordered_host_tasks(fixture: &Fixture) -> Done {
    let queue = Context::new(fixture)?.in_order(fixture)?;
    let (gate, seen) = (Gate::close(fixture, &queue)?, Seen::default());
    for number in 0..count() {
        drop(seen.task(&queue, number, &[])?);
    }
    check!(
        seen.lock().is_empty(),
        "a host task ran before the gate opened"
    );
    gate.open();
    queue.finish()?;
    let seen = seen.lock();
    check_items!(seen.iter().copied(), 0..count(), "order of the host tasks");
    Ok(())
}

/// Many pending host tasks of an out-of-order queue run once each after their wait list.
fn unordered_host_tasks(fixture: &Fixture) -> Done {
    let queue = Context::new(fixture)?.out_of_order(fixture)?;
    let (gate, seen) = (Gate::close(fixture, &queue)?, Seen::default());
    for number in 0..count() {
        drop(seen.task(&queue, number, &[&gate.event])?);
    }
    check!(
        seen.lock().is_empty(),
        "a host task ran before its wait list completed"
    );
    gate.open();
    queue.finish()?;
    seen.are_all(count())
}

/// Each host task among many commands sees the write of the command before it.
fn host_tasks_between_commands(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let word = context.usm(fixture, Kind::Host, 4)?;
    let (gate, wrong) = (Gate::close(fixture, &queue)?, Arc::new(AtomicUsize::new(0)));
    for number in 0..count() {
        drop(queue.fill(word.ptr, number as u32, 4, &[])?);
        let (address, wrong) = (word.ptr.expose_provenance(), Arc::clone(&wrong));
        let task = move || {
            let word = std::ptr::with_exposed_provenance::<u32>(address);
            // SAFETY: host memory that lives until the queue has finished. No other command accesses it now.
            let found = unsafe { word.read_volatile() };
            wrong.fetch_add(usize::from(found != number as u32), Ordering::Relaxed);
        };
        drop(queue.host_task(task, &[])?);
    }
    gate.open();
    queue.finish()?;
    check_eq!(
        wrong.load(Ordering::Relaxed),
        0,
        "host tasks that saw a wrong word"
    );
    Ok(())
}

/// Many commands wait for one host task, and an independent command does not.
fn commands_after_one_host_task(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.out_of_order(fixture)?;
    let words = context.usm(fixture, Kind::Host, 4 * count())?;
    let gate = Gate::close(fixture, &queue)?;
    for number in 0..count() {
        let word = words.ptr.wrapping_byte_add(4 * number);
        drop(queue.fill(word, number as u32, 4, &[&gate.event])?);
    }
    // A command without dependencies does not wait for them.
    let free = context.usm(fixture, Kind::Host, 4)?;
    let past = queue.fill(free.ptr, 7_u32, 4, &[])?;
    check!(
        past.completes_within(Duration::from_secs(10))?,
        "an independent command did not complete"
    );
    check!(!gate.is_open(), "the gate opened by itself");
    gate.open();
    queue.finish()?;
    let words = queue.read::<u32>(words.ptr, count(), &[])?;
    check_items!(words, 0..count() as u32, "words written after the task");
    Ok(())
}

/// Many commands wait for one host task each, and the queue still works afterwards.
fn commands_after_many_host_tasks(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let (queue, count) = (context.out_of_order(fixture)?, count().min(500));
    let words = context.usm(fixture, Kind::Host, 4 * count)?;
    let (gate, seen) = (Gate::close(fixture, &queue)?, Seen::default());
    for number in 0..count {
        let task = seen.task(&queue, number, &[&gate.event])?;
        let word = words.ptr.wrapping_byte_add(4 * number);
        drop(queue.fill(word, number as u32, 4, &[&task])?);
    }
    gate.open();
    queue.finish()?;
    // The queue works once nothing is blocked.
    let last = queue.fill(words.ptr, 0_u32, 4, &[])?;
    let words = queue.read::<u32>(words.ptr, count, &[&last])?;
    check_items!(words, 0..count as u32, "words written after the tasks");
    seen.are_all(count)
}

/// The callbacks of many pending events run once each, and only after completion.
fn callbacks(fixture: &Fixture) -> Done {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn called(_: ur_event_handle_t, _: ur_execution_info_t, _: *mut c_void) {
        CALLS.fetch_add(1, Ordering::SeqCst);
    }
    let context = Context::new(fixture)?;
    let words = context.usm(fixture, Kind::Device, 4 * count())?;
    for queue in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
        let gate = Gate::close(fixture, &queue)?;
        CALLS.store(0, Ordering::SeqCst);
        for number in 0..count() {
            // Each fill has its own word, since the second queue does not order them.
            let word = words.ptr.wrapping_byte_add(4 * number);
            let event = queue.fill(word, number as u32, 4, &[&gate.event])?;
            let complete = UR_EXECUTION_INFO_COMPLETE;
            let set = fixture
                .ur
                .urEventSetCallback(event.raw, complete, Some(called), null_mut());
            set.ok()?;
        }
        check_eq!(
            CALLS.load(Ordering::SeqCst),
            0,
            "callbacks run for pending events"
        );
        gate.open();
        queue.finish()?;
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while CALLS.load(Ordering::SeqCst) < count() && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        check_eq!(CALLS.load(Ordering::SeqCst), count(), "callbacks run");
    }
    Ok(())
}

/// A queue may hold many waits for another queue's events and no command.
fn waits_without_later_commands(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let (queue, other) = (context.in_order(fixture)?, context.in_order(fixture)?);
    let word = context.usm(fixture, Kind::Host, 4)?;
    for number in 0..count() {
        let written = other.fill(word.ptr, number as u32, 4, &[])?;
        let wait = fixture
            .ur
            .urEnqueueEventsWait(queue.raw, 1, &written.raw, null_mut());
        wait.ok()?;
    }
    queue.finish()?;
    let word = queue.read::<u32>(word.ptr, 1, &[])?;
    check_eq!(word[0] as usize, count() - 1, "word after the last wait");
    Ok(())
}

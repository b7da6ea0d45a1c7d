//! The execution of commands: each queue in order, each command once its wait list is complete. Commands take
//! no time.

use std::collections::{BTreeMap, VecDeque};

use opencl_sys::*;

use crate::driver::{Answer, FakeDriver, Kind};

type Callback = unsafe extern "C" fn(cl_event, cl_int, *mut std::ffi::c_void);

/// A callback to call.
pub struct Due {
    pub run: Callback,
    pub event: usize,
    pub status: cl_int,
    pub data: usize,
}

/// A command that has not run.
struct Command {
    event: usize,
    kind: cl_command_type,
    waits: Vec<usize>,
    run: Box<dyn FnOnce() + Send>,
    /// Whether an earlier command of its queue failed.
    behind_failed: bool,
}

#[derive(Default)]
pub struct Commands {
    queues: BTreeMap<usize, VecDeque<Command>>,
    callbacks: Vec<(usize, Callback, usize)>,
    due: Vec<Due>,
}

/// A wait list as a caller passes it.
///
/// # Safety
/// `count` events, or null for none.
pub unsafe fn list(
    driver: &mut FakeDriver,
    count: cl_uint,
    waits: *const cl_event,
) -> Answer<Vec<usize>> {
    if waits.is_null() != (count == 0) {
        driver
            .script
            .broken("a wait list against its count".to_owned());
        return Err(CL_INVALID_EVENT_WAIT_LIST);
    }
    if count == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the caller passes `count` readable events.
    let waits = unsafe { std::slice::from_raw_parts(waits, count as usize) };
    let waits: Vec<usize> = waits.iter().map(|event| event.addr()).collect();
    for event in &waits {
        driver
            .get(Kind::Event, *event)
            .map_err(|_| CL_INVALID_EVENT_WAIT_LIST)?;
    }
    Ok(waits)
}

impl FakeDriver {
    /// Enqueues a command. Its event's one reference is the caller's if it wants the event.
    ///
    /// # Safety
    /// `waits` is `count` events or null, and `event` an output for one or null.
    pub unsafe fn enqueue(
        &mut self,
        queue: cl_command_queue,
        kind: cl_command_type,
        (count, waits, event): (cl_uint, *const cl_event, *mut cl_event),
        run: impl FnOnce() + Send + 'static,
    ) -> Answer {
        let queue = queue.addr();
        let context = self.get(Kind::Queue, queue)?.context;
        // SAFETY: the caller passes `count` readable events.
        let waits = unsafe { list(self, count, waits) }?;
        for wait in &waits {
            if self.get(Kind::Event, *wait)?.context != context {
                self.script
                    .broken("a wait list names another context".to_owned());
                return Err(CL_INVALID_CONTEXT);
            }
        }
        let queued = self.tick();
        let own = self.make(Kind::Event, |own| {
            (own.context, own.queue, own.bits) = (context, queue, u64::from(kind));
            own.status = CL_QUEUED;
            own.times[0] = queued;
        });
        // The device retains the objects that the command uses.
        for kept in waits.iter().chain([&own]) {
            self.retain(Kind::Event, *kept)?;
        }
        self.retain(Kind::Queue, queue)?;
        let command = Command {
            event: own,
            kind,
            waits,
            run: Box::new(run),
            behind_failed: false,
        };
        self.commands
            .queues
            .entry(queue)
            .or_default()
            .push_back(command);
        match event.is_null() {
            true => self.release(Kind::Event, own),
            false => {
                // SAFETY: the caller passes room for an event.
                unsafe { event.write(own as cl_event) };
                Ok(())
            }
        }
    }

    /// Runs all commands that can run and returns the callbacks to call.
    pub fn run(&mut self) -> Vec<Due> {
        loop {
            let ready = self.commands.queues.iter().find_map(|(queue, commands)| {
                let front = commands.front()?;
                let done = |event: &usize| self.status_of(*event) <= CL_COMPLETE;
                front.waits.iter().all(done).then_some(*queue)
            });
            let Some(queue) = ready else { break };
            let line = self.commands.queues.get_mut(&queue);
            if let Some(command) = line.and_then(VecDeque::pop_front) {
                self.step(queue, command);
            }
        }
        std::mem::take(&mut self.commands.due)
    }

    fn status_of(&self, event: usize) -> cl_int {
        self.peek(event).map_or(CL_COMPLETE, |event| event.status)
    }

    fn step(&mut self, queue: usize, command: Command) {
        let mut waits = command.waits.iter();
        let failed = command.behind_failed || waits.any(|event| self.status_of(*event) < 0);
        let own = self.script.runs_command(command.kind);
        let (start, end) = (self.tick(), self.tick());
        if let Some(event) = self.find(command.event) {
            event.times = [event.times[0], event.times[0], start, end];
        }
        let status = match own {
            _ if failed => CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
            Some(code) => code,
            None => {
                (command.run)();
                CL_COMPLETE
            }
        };
        if status < 0 {
            // Commands that are in the queue now depend on this one. Later ones do not.
            let rest = self.commands.queues.get_mut(&queue).into_iter().flatten();
            rest.for_each(|later| later.behind_failed = true);
        }
        self.complete(command.event, status);
        for event in command.waits.iter().chain([&command.event]) {
            // The device retained these objects.
            let _ = self.release(Kind::Event, *event);
        }
        let _ = self.release(Kind::Queue, queue);
    }

    /// Completes an event.
    pub fn complete(&mut self, handle: usize, status: cl_int) {
        if let Some(event) = self.find(handle) {
            event.status = status;
        }
        let callbacks = std::mem::take(&mut self.commands.callbacks);
        let (now, later) = callbacks
            .into_iter()
            .partition(|(event, ..)| *event == handle);
        self.commands.callbacks = later;
        let now: Vec<(usize, Callback, usize)> = now;
        let due = now.into_iter().map(|(event, run, data)| Due {
            run,
            event,
            status,
            data,
        });
        self.commands.due.extend(due);
    }

    pub fn call_back(&mut self, event: usize, run: Callback, data: usize) {
        let status = self.status_of(event);
        match status <= CL_COMPLETE {
            true => self.commands.due.push(Due {
                run,
                event,
                status,
                data,
            }),
            false => self.commands.callbacks.push((event, run, data)),
        }
    }

    /// Whether a queue has no pending command.
    pub fn is_idle(&self, queue: usize) -> bool {
        let line = self.commands.queues.get(&queue);
        line.is_none_or(VecDeque::is_empty)
    }
}

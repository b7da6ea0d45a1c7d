//! One command: collected from its call, recorded before the adapter gets it, and completed with
//! the call's result.
//!
//! It is recorded before the call, since a freed block may be allocated again as soon as the
//! adapter has the free. A refused command is reverted.

use std::ffi::c_void;
use std::sync::Arc;

use ur::abi::*;
use ur::timeline::Prune;

use super::blocks::{Access, Finding, Free, Freed, OnQueue, Operation, Range, Step};
use super::order::{Enqueued, Kind, Order};
use super::watched::BELOW;
use super::{KnownObjects, QueueProperties, report, report_findings, state, state_on_success};

/// A command that is being submitted.
pub struct Command {
    queue: ur_queue_handle_t,
    what: Operation,
    kind: Kind,
    waits: Vec<usize>,
    uses: Vec<(Range, Access)>,
    frees: Option<usize>,
    buffer: Option<usize>,
    in_order: bool,
    enqueued: Option<Enqueued>,
    freed: Option<Freed>,
    /// Findings about a free, which are reported if the adapter accepts it.
    findings: Vec<Finding>,
    /// Whether the event may be an existing one.
    again: bool,
    /// Whether the call returns after the command has run.
    blocking: bool,
}

impl Command {
    /// A command of `queue` that waits for a list of events.
    ///
    /// # Safety
    /// The wait list is null or has `count` elements.
    pub unsafe fn new(
        function: &'static str,
        queue: ur_queue_handle_t,
        kind: Kind,
        (count, list): (u32, *const ur_event_handle_t),
        event: bool,
    ) -> Command {
        let count = if list.is_null() { 0 } else { count as usize };
        // SAFETY: not null, and the caller guarantees `count` elements.
        let waits = (0..count).map(|at| unsafe { *list.add(at) }.addr());
        Command {
            queue,
            what: Operation {
                function,
                kernel: None,
                queue: None,
                event,
                place: None,
            },
            kind,
            waits: waits.collect(),
            uses: Vec::new(),
            frees: None,
            buffer: None,
            in_order: true,
            enqueued: None,
            freed: None,
            findings: Vec::new(),
            again: false,
            blocking: false,
        }
    }

    /// Adds memory that the command uses; `size` in bytes, if it is known.
    pub fn uses(&mut self, pointer: *const c_void, size: Option<u64>, access: Access) {
        if !pointer.is_null() {
            let address = pointer.addr();
            let size = size.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
            self.uses.push((Range { address, size }, access));
        }
    }

    /// Sets the kernel that is launched, and adds the memory of its arguments.
    ///
    /// # Safety
    /// The kernel is null or live; the list is null or has `count` elements with the right type
    /// tags.
    pub unsafe fn launches(
        &mut self,
        kernel: ur_kernel_handle_t,
        count: u32,
        list: *const ur_exp_kernel_arg_properties_t,
    ) {
        self.what.kernel = Some(name_of(kernel));
        // SAFETY: the caller guarantees `count` elements with the right type tags.
        for address in unsafe { pointers_among(count, list) } {
            let size = None;
            self.uses.push((Range { address, size }, Access::Usm));
        }
    }

    /// Sets the command buffer that is submitted, with the memory that its commands use.
    pub fn submits(&mut self, buffer: ur_exp_command_buffer_handle_t) {
        self.buffer = Some(buffer.addr());
    }

    /// Sets the block that is freed.
    pub fn frees(&mut self, memory: *const c_void) {
        self.frees = Some(memory.addr());
    }

    /// The event may be an existing one, which the command signals anew.
    pub fn may_keep_event(&mut self) {
        self.again = true;
    }

    /// Sets whether the call returns after the command has run.
    pub fn blocks(&mut self, blocking: bool) {
        self.blocking = blocking;
    }

    /// Records the command and calls the adapter.
    ///
    /// Returns the call's result, or the error for which the adapter was not called.
    ///
    /// # Safety
    /// After a success `event` is null or points to the event.
    pub unsafe fn run(
        &mut self,
        event: *const ur_event_handle_t,
        call: &mut dyn FnMut() -> ur_result_t,
    ) -> ur_result_t {
        if let Err(error) = self.begin() {
            return error;
        }
        let result = call();
        // SAFETY: the caller guarantees the event after a success.
        unsafe { self.end(result, event) };
        result
    }

    /// Runs a command that allocates a block.
    ///
    /// # Safety
    /// After a success `event` is null or points to the event, and `created` is null or points to the
    /// block's address.
    pub unsafe fn run_alloc(
        &mut self,
        created: *const *mut c_void,
        size: usize,
        event: *const ur_event_handle_t,
        call: &mut dyn FnMut() -> ur_result_t,
    ) -> ur_result_t {
        if let Err(error) = self.begin() {
            return error;
        }
        let result = call();
        // SAFETY: the caller guarantees both outputs after a success.
        unsafe {
            self.allocated(result, created, size);
            self.end(result, event);
        }
        result
    }

    /// Runs a host task. `call` forwards a wrapper that runs the task and marks what precedes it
    /// complete.
    ///
    /// # Safety
    /// After a success `event` is null or points to the event. The task and its data are writable,
    /// and `call` reads them.
    pub unsafe fn run_task(
        &mut self,
        function: *mut ur_exp_host_task_function_t,
        data: *mut *mut c_void,
        event: *const ur_event_handle_t,
        call: &mut dyn FnMut() -> ur_result_t,
    ) -> ur_result_t {
        if let Err(error) = self.begin() {
            return error;
        }
        // SAFETY: the caller guarantees writable arguments. A task that the adapter refused will
        // not run.
        unsafe {
            let task = self.task(*function, *data);
            *function = task.task;
            *data = task.data;
            let result = call();
            if result != UR_RESULT_SUCCESS {
                task.refused();
            }
            self.end(result, event);
            result
        }
    }

    /// Records the command and reports findings. The adapter must not be called after an error.
    fn begin(&mut self) -> Result<(), ur_result_t> {
        let queue = self.queue.addr();
        let is_known =
            state_on_success(UR_RESULT_SUCCESS).map(|state| state.queues.contains_key(&queue));
        match is_known.filter(|_| queue != 0) {
            None => return Ok(()),
            Some(true) => {}
            Some(false) => {
                let properties = QueueProperties::query(self.queue);
                state().add_queue(queue, properties);
            }
        }
        self.what.place = report::location().map(Arc::from);
        let mut findings = Vec::new();
        let outcome = self.record(&mut state(), &mut findings);
        report_findings(findings);
        outcome
    }

    fn record(
        &mut self,
        state: &mut KnownObjects,
        findings: &mut Vec<Finding>,
    ) -> Result<(), ur_result_t> {
        let mut waits = Order::default();
        for event in &self.waits {
            waits.join(&state.order_of(*event));
        }
        if let Some(recorded) = self.buffer.and_then(|at| state.command_buffers.get(&at)) {
            // Submissions of one command buffer run one after another.
            waits.join(&recorded.last);
            let uses = recorded.uses.iter().map(|(address, used)| Range {
                address: *address,
                size: used.size,
            });
            self.uses.extend(uses.map(|range| (range, Access::Usm)));
        }
        waits.prune();
        let Some(known) = state.queues.get_mut(&self.queue.addr()) else {
            return Ok(());
        };
        let enqueued = known.queue.enqueue(&waits, self.kind);
        known.commands += 1;
        self.what.queue = Some(OnQueue {
            queue: known.handle,
            command: known.commands,
        });
        self.in_order = known.queue.is_in_order();
        let step = || Step {
            what: self.what.clone(),
            mark: Some(enqueued.mark.clone()),
            implied_by: None,
        };
        for (range, access) in &self.uses {
            let access = if known.system { Access::Any } else { *access };
            let used = state.blocks.used(*range, access, step(), &enqueued.before);
            findings.extend(used);
        }
        if let Some(address) = self.frees {
            let mut found = Vec::new();
            let blocks = &mut state.blocks;
            match blocks.freed(address, step(), &enqueued.before, &mut found) {
                Free::Unknown => {}
                Free::Recorded(freed) => self.freed = Some(freed),
                Free::AlreadyFreed => {
                    findings.append(&mut found);
                    return Err(UR_RESULT_ERROR_INVALID_MEM_OBJECT);
                }
            }
            self.findings = found;
        }
        self.enqueued = Some(enqueued);
        Ok(())
    }

    /// The wrapper of a host task. When it runs, all commands that precede it are complete.
    ///
    /// A task is not wrapped if the queue captures, since a captured task runs once for each
    /// execution of its graph. Nor is it after unknown commands, which may include a capture.
    fn task(&self, task: ur_exp_host_task_function_t, data: *mut c_void) -> HostTask {
        let enqueued = self.enqueued.as_ref().filter(|enqueued| {
            task.is_some() && !enqueued.before.is_unknown() && !captures(self.queue)
        });
        let Some(enqueued) = enqueued else {
            let is_wrapper = false;
            return HostTask {
                task,
                data,
                is_wrapper,
            };
        };
        let before = enqueued.before.clone();
        let boxed = Box::new(Task { task, data, before });
        HostTask {
            task: Some(run),
            data: Box::into_raw(boxed).cast(),
            is_wrapper: true,
        }
    }

    /// Records the block that the command allocated.
    ///
    /// # Safety
    /// After a success the pointer has the address.
    unsafe fn allocated(&self, result: ur_result_t, created: *const *mut c_void, size: usize) {
        let Some(enqueued) = self.enqueued.as_ref().filter(|_| !created.is_null()) else {
            return;
        };
        if let Some(mut state) = state_on_success(result) {
            let allocation = Step {
                what: self.what.clone(),
                mark: Some(enqueued.mark.clone()),
                // On an out-of-order queue, no command can wait for an allocation without an event.
                implied_by: (!self.in_order && !self.what.event).then(|| enqueued.before.clone()),
            };
            // SAFETY: not null, and the caller guarantees the address after a success.
            let address = unsafe { *created }.addr();
            state.blocks.allocated(address, size, allocation);
        }
    }

    /// Completes the record with the adapter's result.
    ///
    /// # Safety
    /// After a success `event` is null or points to the event.
    unsafe fn end(&mut self, result: ur_result_t, event: *const ur_event_handle_t) {
        let Some(enqueued) = &self.enqueued else {
            return;
        };
        let Some(mut state) = state_on_success(UR_RESULT_SUCCESS) else {
            return;
        };
        if result != UR_RESULT_SUCCESS {
            for (range, _) in &self.uses {
                state.blocks.remove_use(range.address, &enqueued.mark);
            }
            if let Some(freed) = &self.freed {
                state.blocks.revert_free(freed);
            }
            return;
        }
        if let Some(freed) = &self.freed {
            state.blocks.complete_free(freed);
        }
        // SAFETY: the caller guarantees the event after a success.
        let created = unsafe { event.as_ref() }.filter(|event| !event.is_null());
        if let Some(event) = created {
            state.signalled(event.addr(), enqueued.event.clone(), self.again);
        }
        if let Some(recorded) = self
            .buffer
            .and_then(|at| state.command_buffers.get_mut(&at))
        {
            recorded.last = enqueued.event.clone();
        }
        if self.blocking {
            enqueued.event.complete();
        }
        drop(state);
        report_findings(std::mem::take(&mut self.findings));
    }
}

/// The host task that the adapter gets.
struct HostTask {
    task: ur_exp_host_task_function_t,
    data: *mut c_void,
    /// Whether `data` is a boxed `Task`.
    is_wrapper: bool,
}

impl HostTask {
    /// Frees the wrapper of a host task that was refused.
    ///
    /// # Safety
    /// The adapter refused the task, so that it will not run.
    unsafe fn refused(self) {
        if self.is_wrapper {
            // SAFETY: `Command::task` boxed it, and the refused task has the only pointer.
            drop(unsafe { Box::from_raw(self.data.cast::<Task>()) });
        }
    }
}

/// The application's host task, and the order of its command.
struct Task {
    task: ur_exp_host_task_function_t,
    data: *mut c_void,
    before: Order,
}

unsafe extern "C" fn run(task: *mut c_void) {
    // SAFETY: `Command::task` boxed it, and the adapter runs a host task once.
    let task = unsafe { Box::from_raw(task.cast::<Task>()) };
    task.before.complete();
    if let Some(function) = task.task {
        // SAFETY: the application passed the function to be called with its data.
        unsafe { function(task.data) };
    }
}

/// Whether the queue's commands are captured into a graph.
fn captures(queue: ur_queue_handle_t) -> bool {
    let query = BELOW
        .table()
        .and_then(|table| table.QueueExp.pfnIsGraphCaptureEnabledExp);
    let mut answer = 0;
    // SAFETY: the application passed a live queue; the answer is a local variable.
    let code = query.map(|query| unsafe { query(queue, &mut answer) });
    code == Some(UR_RESULT_SUCCESS) && answer != 0
}

/// The non-null USM pointers in a kernel's arguments.
///
/// # Safety
/// The list is null or has `count` elements with the right type tags.
pub unsafe fn pointers_among(
    count: u32,
    list: *const ur_exp_kernel_arg_properties_t,
) -> Vec<usize> {
    let count = if list.is_null() { 0 } else { count as usize };
    let mut addresses = Vec::new();
    for at in 0..count {
        // SAFETY: not null, and the caller guarantees `count` elements.
        let argument = unsafe { &*list.add(at) };
        if argument.r#type == UR_EXP_KERNEL_ARG_TYPE_POINTER {
            // SAFETY: the caller guarantees that the tag names the union's member.
            let pointer = unsafe { argument.value.pointer };
            addresses.extend((!pointer.is_null()).then(|| pointer.addr()));
        }
    }
    addresses
}

/// A kernel's name, from its creation or from a query.
fn name_of(kernel: ur_kernel_handle_t) -> Arc<str> {
    if let Some(name) = state().kernels.get(&kernel.addr()) {
        return Arc::clone(name);
    }
    let name: Arc<str> = Arc::from(query_name(kernel).unwrap_or_else(|| "of no name".to_owned()));
    state().kernels.insert(kernel.addr(), Arc::clone(&name));
    name
}

fn query_name(kernel: ur_kernel_handle_t) -> Option<String> {
    let get = BELOW.table()?.Kernel.pfnGetInfo?;
    let mut text = vec![0u8; 1024];
    let mut size = 0;
    let what = UR_KERNEL_INFO_FUNCTION_NAME;
    // SAFETY: the value has `text.len()` bytes, and the application passed a live kernel.
    let result = unsafe {
        get(
            kernel,
            what,
            text.len(),
            text.as_mut_ptr().cast(),
            &mut size,
        )
    };
    text.truncate(text.iter().position(|byte| *byte == 0)?);
    (result == UR_RESULT_SUCCESS).then(|| String::from_utf8_lossy(&text).into_owned())
}

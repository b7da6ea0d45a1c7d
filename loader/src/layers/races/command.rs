//! One call that a queue takes: gathered, noted before the adapter gets it, and settled with its
//! answer.
//!
//! Noted before, because a free's block may be another's as soon as the adapter has it; what the
//! adapter refuses is taken back.

use std::ffi::c_void;
use std::sync::Arc;

use ur::abi::*;
use ur::timeline::Prune;

use super::blocks::{Access, Finding, Free, Freed, Step, What};
use super::order::{Enqueued, Kind, Order};
use super::watched::BELOW;
use super::{QueueFacts, State, after, report, report_findings, state};

/// A command on its way into a queue.
pub struct Command {
    queue: ur_queue_handle_t,
    what: What,
    kind: Kind,
    waits: Vec<usize>,
    uses: Vec<(usize, Access)>,
    frees: Option<usize>,
    buffer: Option<usize>,
    in_order: bool,
    enqueued: Option<Enqueued>,
    freed: Option<Freed>,
    /// What is wrong with a free, if the adapter takes it.
    findings: Vec<Finding>,
    /// The event may be one that was there before.
    again: bool,
    /// The call returns once the command has run.
    blocking: bool,
}

impl Command {
    /// # Safety
    /// The wait list is null or has that many elements.
    pub unsafe fn new(
        function: &'static str,
        queue: ur_queue_handle_t,
        kind: Kind,
        (count, list): (u32, *const ur_event_handle_t),
        event: bool,
    ) -> Command {
        let count = if list.is_null() { 0 } else { count as usize };
        // SAFETY: the caller's promise.
        let waits = (0..count).map(|at| unsafe { *list.add(at) }.addr());
        Command {
            queue,
            what: What {
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

    pub fn uses(&mut self, pointer: *const c_void, access: Access) {
        if !pointer.is_null() {
            self.uses.push((pointer.addr(), access));
        }
    }

    /// A launch of a kernel with its arguments.
    ///
    /// # Safety
    /// The kernel is null or live; the list is null or has that many elements, whose tags are right.
    pub unsafe fn launches(
        &mut self,
        kernel: ur_kernel_handle_t,
        count: u32,
        list: *const ur_exp_kernel_arg_properties_t,
    ) {
        self.what.kernel = Some(name_of(kernel));
        // SAFETY: the caller's promise.
        for address in unsafe { pointers_among(count, list) } {
            self.uses.push((address, Access::Usm));
        }
    }

    /// A submission of a command buffer, which uses what its commands use.
    pub fn submits(&mut self, buffer: ur_exp_command_buffer_handle_t) {
        self.buffer = Some(buffer.addr());
    }

    pub fn frees(&mut self, memory: *const c_void) {
        self.frees = Some(memory.addr());
    }

    pub fn may_keep_event(&mut self) {
        self.again = true;
    }

    pub fn blocks(&mut self, blocking: bool) {
        self.blocking = blocking;
    }

    /// Has the adapter take the command. The result is the call's, or the error for which the adapter
    /// does not get it.
    ///
    /// # Safety
    /// After a success of the call the event's pointer is null or has the event.
    pub unsafe fn run(
        &mut self,
        event: *const ur_event_handle_t,
        call: &mut dyn FnMut() -> ur_result_t,
    ) -> ur_result_t {
        if let Err(error) = self.begin() {
            return error;
        }
        let result = call();
        // SAFETY: the caller's promise.
        unsafe { self.end(result, event) };
        result
    }

    /// [`Command::run`] for one that allocates a block.
    ///
    /// # Safety
    /// The promise of [`Command::run`], and `made` is null or has the block's address after a success.
    pub unsafe fn run_alloc(
        &mut self,
        made: *const *mut c_void,
        size: usize,
        event: *const ur_event_handle_t,
        call: &mut dyn FnMut() -> ur_result_t,
    ) -> ur_result_t {
        if let Err(error) = self.begin() {
            return error;
        }
        let result = call();
        // SAFETY: the caller's promise.
        unsafe {
            self.allocated(result, made, size);
            self.end(result, event);
        }
        result
    }

    /// [`Command::run`] for a host task: what `call` passes on is another, which runs it.
    ///
    /// # Safety
    /// The promise of [`Command::run`]; the task and its data are writable, and `call` reads them.
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
        // SAFETY: the caller's promise; a task that the adapter refused will not run.
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

    /// Notes the command and tells what is wrong with it. An error: it must not reach the adapter.
    fn begin(&mut self) -> Result<(), ur_result_t> {
        let queue = self.queue.addr();
        let is_known = after(UR_RESULT_SUCCESS).map(|state| state.queues.contains_key(&queue));
        match is_known.filter(|_| queue != 0) {
            None => return Ok(()),
            Some(true) => {}
            Some(false) => {
                let facts = QueueFacts::query(self.queue);
                state().add_queue(queue, facts);
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
        state: &mut State,
        findings: &mut Vec<Finding>,
    ) -> Result<(), ur_result_t> {
        let mut waits = Order::default();
        for event in &self.waits {
            waits.join(&state.order_of(*event));
        }
        if let Some(recorded) = self.buffer.and_then(|at| state.command_buffers.get(&at)) {
            // Submissions of one command buffer come one after another.
            waits.join(&recorded.last);
            let uses = recorded.uses.keys();
            self.uses
                .extend(uses.map(|address| (*address, Access::Usm)));
        }
        waits.prune();
        let Some(known) = state.queues.get_mut(&self.queue.addr()) else {
            return Ok(());
        };
        let enqueued = known.queue.enqueue(&waits, self.kind);
        self.what.queue = Some(known.number);
        self.in_order = known.queue.is_in_order();
        let step = || Step {
            what: self.what.clone(),
            mark: Some(enqueued.mark.clone()),
            instead: None,
        };
        for (address, access) in &self.uses {
            let access = if known.system { Access::Any } else { *access };
            let used = state
                .blocks
                .used(*address, access, step(), &enqueued.before);
            findings.extend(used);
        }
        if let Some(address) = self.frees {
            let mut found = Vec::new();
            let blocks = &mut state.blocks;
            match blocks.freed(address, step(), &enqueued.before, &mut found) {
                Free::Unknown => {}
                Free::Noted(freed) => self.freed = Some(freed),
                Free::Twice => {
                    findings.append(&mut found);
                    return Err(UR_RESULT_ERROR_INVALID_MEM_OBJECT);
                }
            }
            self.findings = found;
        }
        self.enqueued = Some(enqueued);
        Ok(())
    }

    /// What runs instead of a host task: by then, all that comes before it is complete. A captured one
    /// runs as often as its graph does, and stays as it is; so does what comes after things unseen, which
    /// may be a capture.
    fn task(&self, task: ur_exp_host_task_function_t, data: *mut c_void) -> HostTask {
        let enqueued = self.enqueued.as_ref().filter(|enqueued| {
            task.is_some() && !enqueued.before.is_unknown() && !captures(self.queue)
        });
        let Some(enqueued) = enqueued else {
            let own = false;
            return HostTask { task, data, own };
        };
        let before = enqueued.before.clone();
        let boxed = Box::new(Task { task, data, before });
        HostTask {
            task: Some(run),
            data: Box::into_raw(boxed).cast(),
            own: true,
        }
    }

    /// The command allocated a block.
    ///
    /// # Safety
    /// After a success the pointer has the address.
    unsafe fn allocated(&self, result: ur_result_t, made: *const *mut c_void, size: usize) {
        let Some(enqueued) = self.enqueued.as_ref().filter(|_| !made.is_null()) else {
            return;
        };
        if let Some(mut state) = after(result) {
            let born = Step {
                what: self.what.clone(),
                mark: Some(enqueued.mark.clone()),
                // Nothing could wait for it, on an out-of-order queue.
                instead: (!self.in_order && !self.what.event).then(|| enqueued.before.clone()),
            };
            // SAFETY: the caller's promise.
            let address = unsafe { *made }.addr();
            state.blocks.allocated(address, size, born);
        }
    }

    /// The adapter's answer.
    ///
    /// # Safety
    /// After a success the event's pointer is null or has the event.
    unsafe fn end(&mut self, result: ur_result_t, event: *const ur_event_handle_t) {
        let Some(enqueued) = &self.enqueued else {
            return;
        };
        let Some(mut state) = after(UR_RESULT_SUCCESS) else {
            return;
        };
        if result != UR_RESULT_SUCCESS {
            for (address, _) in &self.uses {
                state.blocks.unused(*address, &enqueued.mark);
            }
            if let Some(freed) = &self.freed {
                state.blocks.restore(freed);
            }
            return;
        }
        if let Some(freed) = &self.freed {
            state.blocks.settle(freed);
        }
        // SAFETY: the caller's promise.
        let made = unsafe { event.as_ref() }.filter(|event| !event.is_null());
        if let Some(event) = made {
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

/// What is enqueued for a host task of the application's.
struct HostTask {
    task: ur_exp_host_task_function_t,
    data: *mut c_void,
    /// `data` is a `Task`.
    own: bool,
}

impl HostTask {
    /// # Safety
    /// The adapter refused it, so that it will not run.
    unsafe fn refused(self) {
        if self.own {
            // SAFETY: `Command::task` boxed it, and no one else has it.
            drop(unsafe { Box::from_raw(self.data.cast::<Task>()) });
        }
    }
}

/// A host task of the application's.
struct Task {
    task: ur_exp_host_task_function_t,
    data: *mut c_void,
    before: Order,
}

unsafe extern "C" fn run(task: *mut c_void) {
    // SAFETY: `Command::task` boxed it, and a host task runs once.
    let task = unsafe { Box::from_raw(task.cast::<Task>()) };
    task.before.complete();
    if let Some(function) = task.task {
        // SAFETY: the application's function, with the application's argument.
        unsafe { function(task.data) };
    }
}

/// Whether commands of the queue go into a graph.
fn captures(queue: ur_queue_handle_t) -> bool {
    let query = BELOW
        .table()
        .and_then(|table| table.QueueExp.pfnIsGraphCaptureEnabledExp);
    let mut answer = 0;
    // SAFETY: the queue takes a command of the application's; room for the answer.
    let code = query.map(|query| unsafe { query(queue, &mut answer) });
    code == Some(UR_RESULT_SUCCESS) && answer != 0
}

/// The addresses among a kernel's arguments.
///
/// # Safety
/// The list is null or has that many elements, whose tags are right.
pub unsafe fn pointers_among(
    count: u32,
    list: *const ur_exp_kernel_arg_properties_t,
) -> Vec<usize> {
    let count = if list.is_null() { 0 } else { count as usize };
    let mut addresses = Vec::new();
    for at in 0..count {
        // SAFETY: the caller's promise.
        let argument = unsafe { &*list.add(at) };
        if argument.r#type == UR_EXP_KERNEL_ARG_TYPE_POINTER {
            // SAFETY: the type says which member is meant.
            let pointer = unsafe { argument.value.pointer };
            addresses.extend((!pointer.is_null()).then(|| pointer.addr()));
        }
    }
    addresses
}

/// A kernel's name, from its creation or from the adapter.
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
    // SAFETY: the value has that much room; the application launches the kernel.
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

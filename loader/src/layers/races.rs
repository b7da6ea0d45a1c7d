//! `UR_LAYER_ASYNC_ALLOC_VALIDATION`: memory that is used or freed without being ordered after its
//! allocation and before its free, on any adapter.
//!
//! Owns what the layer knows of one initialisation: queues, events and command buffers as orders
//! (`order`), blocks (`blocks`). The functions that it watches are generated. It tells what it finds and
//! lets the call go on, except for a second free, which is `INVALID_MEM_OBJECT`.
//!
//! What the program ordered is program order on in-order queues, wait lists, barriers and what the
//! host saw complete: waits, blocking calls, queries, callbacks, host tasks. Where it may have ordered
//! more than is seen, nothing is said. Memory that a kernel reaches through other pointers than its
//! arguments is neither reported nor cleared.
//!
//! One lock, the state's own; nothing outside is called while it is held.

mod blocks;
mod command;
mod order;

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use ur::abi::*;
use ur::object::log::Level;

use self::blocks::{Blocks, Finding, Free, Step, What};
use self::order::{Order, Queue};
use super::{Layer, LayerContext, report};
use crate::generated::layers::races as generated;

pub use self::blocks::Access;
pub use self::command::Command;
pub use self::order::Kind;

static ON: AtomicBool = AtomicBool::new(false);
static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct State {
    queues: HashMap<usize, Known>,
    /// How many queues were seen.
    numbers: u64,
    events: HashMap<usize, Event>,
    kernels: HashMap<usize, Arc<str>>,
    command_buffers: HashMap<usize, Recorded>,
    blocks: Blocks,
    /// What queues that are gone had taken, by device.
    retired: HashMap<usize, Order>,
}

/// A queue by its handle.
struct Known {
    queue: Queue,
    number: u64,
    device: usize,
    /// Commands may use memory that is no USM.
    system: bool,
}

struct Event {
    order: Order,
    references: u32,
}

/// A command buffer: what its commands use, and what its last submission stands for.
#[derive(Default)]
struct Recorded {
    /// By address; `true` if a kernel's argument, which may be updated.
    uses: BTreeMap<usize, bool>,
    last: Order,
}

struct Races;

pub fn make() -> Box<dyn Layer> {
    Box::new(Races)
}

impl Layer for Races {
    fn wrap(
        &mut self,
        table: &mut ur_dditable_t,
        _: &[&'static str],
        context: &LayerContext,
    ) -> Result<(), ur_result_t> {
        report::begin(context);
        *state() = State::default();
        ON.store(true, Ordering::Release);
        generated::wrap(table);
        Ok(())
    }

    fn teardown(&mut self) {
        ON.store(false, Ordering::Release);
        *state() = State::default();
        report::end();
    }
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state, if the layer is on and the call succeeded.
fn after(result: ur_result_t) -> Option<MutexGuard<'static, State>> {
    (result == UR_RESULT_SUCCESS && ON.load(Ordering::Acquire)).then(state)
}

fn tell(findings: Vec<Finding>) {
    for finding in findings {
        report::finding(Level::Error, format_args!("{finding}"));
    }
}

impl State {
    /// What an event stands for.
    fn order_of(&self, event: usize) -> Order {
        let known = self.events.get(&event);
        known.map_or_else(Order::unknown, |event| event.order.clone())
    }

    fn complete(&self, event: usize) {
        if let Some(event) = self.events.get(&event) {
            event.order.complete();
        }
    }

    /// A new event, or one that is signalled again.
    fn signalled(&mut self, event: usize, order: Order, again: bool) {
        match self.events.get_mut(&event).filter(|_| again) {
            Some(known) => known.order = order,
            None => {
                let references = 1;
                self.events.insert(event, Event { order, references });
            }
        }
    }

    fn add_queue(&mut self, queue: usize, facts: QueueFacts) {
        self.numbers += 1;
        let mut new = Queue::new(facts.in_order);
        if facts.open {
            new.open();
        }
        let known = Known {
            queue: new,
            number: self.numbers,
            device: facts.device,
            system: facts.system,
        };
        if let Some(old) = self.queues.insert(queue, known) {
            let retired = self.retired.entry(old.device).or_default();
            retired.join(&old.queue.all());
        }
    }
}

/// What the layer has to know of a queue.
struct QueueFacts {
    device: usize,
    in_order: bool,
    open: bool,
    system: bool,
}

impl QueueFacts {
    fn new(device: ur_device_handle_t, flags: ur_queue_flags_t) -> QueueFacts {
        let has = |flag: ur_queue_flags_t| flags.0 & flag.0 != 0;
        QueueFacts {
            device: device.addr(),
            in_order: !has(UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE),
            // Ordered with streams that are not seen.
            open: has(UR_QUEUE_FLAG_USE_DEFAULT_STREAM)
                || has(UR_QUEUE_FLAG_SYNC_WITH_DEFAULT_STREAM),
            system: system_memory(device),
        }
    }

    /// Of a queue whose making was not seen.
    fn ask(queue: ur_queue_handle_t) -> QueueFacts {
        let get = generated::BELOW
            .table()
            .and_then(|table| table.Queue.pfnGetInfo);
        let mut device: ur_device_handle_t = std::ptr::null_mut();
        let mut flags = ur_queue_flags_t(0);
        let answered = get.is_some_and(|get| {
            let value = (&raw mut device).cast();
            let none = std::ptr::null_mut();
            // SAFETY: the values have the sizes of their properties; the application uses the queue.
            let results = unsafe {
                [
                    get(
                        queue,
                        UR_QUEUE_INFO_DEVICE,
                        size_of_val(&device),
                        value,
                        none,
                    ),
                    get(
                        queue,
                        UR_QUEUE_INFO_FLAGS,
                        size_of_val(&flags),
                        (&raw mut flags).cast(),
                        none,
                    ),
                ]
            };
            results == [UR_RESULT_SUCCESS; 2]
        });
        let mut facts = QueueFacts::new(device, flags);
        facts.open |= !answered;
        facts
    }
}

/// Whether commands of a device may use any memory of the process; so too when it does not say.
fn system_memory(device: ur_device_handle_t) -> bool {
    let get = generated::BELOW
        .table()
        .and_then(|table| table.Device.pfnGetInfo);
    let Some(get) = get.filter(|_| !device.is_null()) else {
        return true;
    };
    let mut access = ur_device_usm_access_capability_flags_t(0);
    let what = UR_DEVICE_INFO_USM_SYSTEM_SHARED_SUPPORT;
    let value = (&raw mut access).cast();
    // SAFETY: the value has the property's size; the application uses the device.
    let result = unsafe {
        get(
            device,
            what,
            size_of_val(&access),
            value,
            std::ptr::null_mut(),
        )
    };
    result != UR_RESULT_SUCCESS || access.0 != 0
}

/// # Safety
/// After a success the pointer has the queue; the properties are null or readable.
pub unsafe fn queue_made(
    result: ur_result_t,
    made: *const ur_queue_handle_t,
    device: ur_device_handle_t,
    properties: *const ur_queue_properties_t,
) {
    if result != UR_RESULT_SUCCESS || made.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    let flags = unsafe { properties.as_ref() }.map_or(ur_queue_flags_t(0), |given| given.flags);
    let facts = QueueFacts::new(device, flags);
    if let Some(mut state) = after(result) {
        // SAFETY: the caller's promise.
        state.add_queue(unsafe { *made }.addr(), facts);
    }
}

/// A queue that the application may reach by other ways: from or with a native handle, or recording
/// what it takes.
pub fn queue_opened(result: ur_result_t, queue: ur_queue_handle_t) {
    if let Some(mut state) = after(result)
        && let Some(known) = state.queues.get_mut(&queue.addr())
    {
        known.queue.open();
    }
}

/// # Safety
/// After a success the pointer has the queue.
pub unsafe fn open_queue_made(
    result: ur_result_t,
    made: *const ur_queue_handle_t,
    device: ur_device_handle_t,
) {
    // SAFETY: the caller's promise.
    unsafe { queue_made(result, made, device, std::ptr::null()) };
    if result == UR_RESULT_SUCCESS && !made.is_null() {
        // SAFETY: the caller's promise.
        queue_opened(result, unsafe { *made });
    }
}

pub fn queue_finished(result: ur_result_t, queue: ur_queue_handle_t) {
    if let Some(mut state) = after(result)
        && let Some(known) = state.queues.get_mut(&queue.addr())
    {
        known.queue.complete();
    }
}

/// # Safety
/// After a success the value is null or has the property.
pub unsafe fn queue_told(
    result: ur_result_t,
    queue: ur_queue_handle_t,
    what: ur_queue_info_t,
    value: *const c_void,
) {
    if result == UR_RESULT_SUCCESS && what == UR_QUEUE_INFO_EMPTY && !value.is_null() {
        // SAFETY: the property is a `ur_bool_t`.
        if unsafe { value.cast::<ur_bool_t>().read() } != 0 {
            queue_finished(result, queue);
        }
    }
}

pub fn device_waited(result: ur_result_t, device: ur_device_handle_t) {
    let Some(mut state) = after(result) else {
        return;
    };
    for known in state.queues.values_mut() {
        // A queue that does not know its device stays out of it.
        if known.device == device.addr() {
            known.queue.complete();
        }
    }
    if let Some(retired) = state.retired.remove(&device.addr()) {
        retired.complete();
    }
}

/// # Safety
/// The list is null or has that many elements.
pub unsafe fn events_waited(result: ur_result_t, count: u32, list: *const ur_event_handle_t) {
    if list.is_null() {
        return;
    }
    if let Some(state) = after(result) {
        for at in 0..count as usize {
            // SAFETY: the caller's promise.
            state.complete(unsafe { *list.add(at) }.addr());
        }
    }
}

/// Someone saw an event complete, or may see it without being seen.
pub fn event_seen(result: ur_result_t, event: ur_event_handle_t) {
    if let Some(state) = after(result) {
        state.complete(event.addr());
    }
}

/// # Safety
/// After a success the value is null or has the property.
pub unsafe fn event_told(
    result: ur_result_t,
    event: ur_event_handle_t,
    what: ur_event_info_t,
    value: *const c_void,
) {
    let is_status = what == UR_EVENT_INFO_COMMAND_EXECUTION_STATUS && !value.is_null();
    if result == UR_RESULT_SUCCESS && is_status {
        // SAFETY: the property is a `ur_event_status_t`.
        let status = unsafe { value.cast::<ur_event_status_t>().read() };
        if status == UR_EVENT_STATUS_COMPLETE {
            event_seen(result, event);
        }
    }
}

pub fn event_timed(result: ur_result_t, event: ur_event_handle_t, what: ur_profiling_info_t) {
    if matches!(
        what,
        UR_PROFILING_INFO_COMMAND_END | UR_PROFILING_INFO_COMMAND_COMPLETE
    ) {
        event_seen(result, event);
    }
}

/// An event whose command is not seen.
///
/// # Safety
/// The pointer is null or, after a success, has the event.
pub unsafe fn event_unknown(result: ur_result_t, made: *const ur_event_handle_t) {
    if made.is_null() {
        return;
    }
    if let Some(mut state) = after(result) {
        // SAFETY: the caller's promise.
        let event = unsafe { *made }.addr();
        state.signalled(event, Order::unknown(), false);
    }
}

pub fn event_retained(result: ur_result_t, event: ur_event_handle_t) {
    if let Some(mut state) = after(result)
        && let Some(known) = state.events.get_mut(&event.addr())
    {
        known.references = known.references.saturating_add(1);
    }
}

/// To be called before the adapter is: afterwards the address may be another event's.
pub fn event_released(event: ur_event_handle_t) {
    let Some(mut state) = after(UR_RESULT_SUCCESS) else {
        return;
    };
    if let Some(known) = state.events.get_mut(&event.addr()) {
        known.references -= 1;
        if known.references == 0 {
            state.events.remove(&event.addr());
        }
    }
}

/// # Safety
/// After a success the pointer has the kernel; the name is null or a C string.
pub unsafe fn kernel_made(
    result: ur_result_t,
    made: *const ur_kernel_handle_t,
    name: *const std::ffi::c_char,
) {
    if made.is_null() || name.is_null() {
        return;
    }
    if let Some(mut state) = after(result) {
        // SAFETY: the caller's promise.
        let (kernel, name) = unsafe { (*made, std::ffi::CStr::from_ptr(name)) };
        let name = Arc::from(name.to_string_lossy());
        state.kernels.insert(kernel.addr(), name);
    }
}

/// Memory that the application got at once.
///
/// # Safety
/// After a success the pointer has the address.
pub unsafe fn allocated(
    function: &'static str,
    result: ur_result_t,
    made: *const *mut c_void,
    size: usize,
) {
    if made.is_null() {
        return;
    }
    let what = host(function);
    if let Some(mut state) = after(result) {
        // SAFETY: the caller's promise.
        let address = unsafe { *made }.addr();
        let born = Step::host(what);
        state.blocks.allocated(address, size, born);
    }
}

/// Memory of another kind: what was there is gone.
///
/// # Safety
/// After a success the pointer is null or has the address.
pub unsafe fn replaced(result: ur_result_t, made: *const *mut c_void) {
    if made.is_null() {
        return;
    }
    if let Some(mut state) = after(result) {
        // SAFETY: the caller's promise.
        let address = unsafe { *made }.addr();
        state.blocks.forget(address, 1);
    }
}

/// A free that takes effect on the host. An error: it must not reach the adapter.
pub fn freed(function: &'static str, memory: *const c_void) -> Result<HostFree, ur_result_t> {
    let what = host(function);
    let Some(mut state) = after(UR_RESULT_SUCCESS) else {
        return Ok(HostFree(None));
    };
    let step = Step::host(what);
    let mut findings = Vec::new();
    let nothing = Order::default();
    let free = state
        .blocks
        .freed(memory.addr(), step, &nothing, &mut findings);
    drop(state);
    tell(findings);
    match free {
        Free::Unknown => Ok(HostFree(None)),
        Free::Noted(freed) => Ok(HostFree(Some(freed))),
        Free::Twice => Err(UR_RESULT_ERROR_INVALID_MEM_OBJECT),
    }
}

pub struct HostFree(Option<blocks::Freed>);

impl HostFree {
    pub fn ended(self, result: ur_result_t) {
        let Some(freed) = &self.0 else { return };
        let Some(mut state) = after(UR_RESULT_SUCCESS) else {
            return;
        };
        match result {
            UR_RESULT_SUCCESS => state.blocks.settle(freed),
            _ => state.blocks.restore(freed),
        }
    }
}

/// The host itself uses memory.
pub fn used_by_host(function: &'static str, pointers: &[*const c_void]) {
    let what = host(function);
    let Some(mut state) = after(UR_RESULT_SUCCESS) else {
        return;
    };
    let mut findings = Vec::new();
    for pointer in pointers {
        let step = Step::host(what.clone());
        let nothing = Order::default();
        findings.extend(
            state
                .blocks
                .used(pointer.addr(), Access::Any, step, &nothing),
        );
    }
    drop(state);
    tell(findings);
}

fn host(function: &'static str) -> What {
    What {
        function,
        kernel: None,
        queue: None,
        event: false,
        place: report::location().map(Arc::from),
    }
}

/// # Safety
/// The pointer is null or, after a success, has the command buffer.
pub unsafe fn command_buffer_made(
    result: ur_result_t,
    made: *const ur_exp_command_buffer_handle_t,
) {
    if made.is_null() {
        return;
    }
    if let Some(mut state) = after(result) {
        // SAFETY: the caller's promise.
        let buffer = unsafe { *made }.addr();
        state.command_buffers.insert(buffer, Recorded::default());
    }
}

/// A command was appended to a command buffer.
///
/// # Safety
/// The list is null or has that many elements, whose tags are right.
pub unsafe fn appended(
    result: ur_result_t,
    buffer: ur_exp_command_buffer_handle_t,
    pointers: &[*const c_void],
    arguments: (u32, *const ur_exp_kernel_arg_properties_t),
) {
    let Some(mut state) = after(result) else {
        return;
    };
    let Some(recorded) = state.command_buffers.get_mut(&buffer.addr()) else {
        return;
    };
    for pointer in pointers {
        recorded.uses.entry(pointer.addr()).or_insert(false);
    }
    // SAFETY: the caller's promise.
    for address in unsafe { command::pointers_among(arguments.0, arguments.1) } {
        recorded.uses.entry(address).or_insert(true);
    }
}

/// Kernels of a command buffer have other arguments now: which ones is not followed.
pub fn updated(result: ur_result_t, buffer: ur_exp_command_buffer_handle_t) {
    if let Some(mut state) = after(result)
        && let Some(recorded) = state.command_buffers.get_mut(&buffer.addr())
    {
        recorded.uses.retain(|_, kernel| !*kernel);
    }
}

/// A callback of the application's that also tells that an event is complete.
struct Watched {
    callback: ur_event_callback_t,
    data: *mut c_void,
    order: Order,
}

/// What is registered for a callback of the application's.
pub struct Registration {
    pub callback: ur_event_callback_t,
    pub data: *mut c_void,
    /// `data` is a `Watched`.
    own: bool,
}

pub fn watch(
    event: ur_event_handle_t,
    callback: ur_event_callback_t,
    data: *mut c_void,
) -> Registration {
    let Some(state) = after(UR_RESULT_SUCCESS).filter(|_| callback.is_some()) else {
        let own = false;
        return Registration {
            callback,
            data,
            own,
        };
    };
    let order = state.order_of(event.addr());
    let watched = Box::new(Watched {
        callback,
        data,
        order,
    });
    Registration {
        callback: Some(notify),
        data: Box::into_raw(watched).cast(),
        own: true,
    }
}

impl Registration {
    /// # Safety
    /// The adapter refused it, so that it will not be called.
    pub unsafe fn refused(self) {
        if self.own {
            // SAFETY: `watch` boxed it, and no one else has it.
            drop(unsafe { Box::from_raw(self.data.cast::<Watched>()) });
        }
    }
}

unsafe extern "C" fn notify(
    event: ur_event_handle_t,
    status: ur_execution_info_t,
    watched: *mut c_void,
) {
    // SAFETY: `watch` boxed it, and each registration is called once.
    let watched = unsafe { Box::from_raw(watched.cast::<Watched>()) };
    if status == UR_EXECUTION_INFO_COMPLETE {
        watched.order.complete();
    }
    if let Some(callback) = watched.callback {
        // SAFETY: the application's callback, with the application's argument.
        unsafe { callback(event, status, watched.data) };
    }
}

#[cfg(test)]
mod tests;

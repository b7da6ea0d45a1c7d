//! What the layer is told of beside commands: objects made and gone, what the host waits for and
//! sees, memory that is there or gone at once.

use std::ffi::c_void;
use std::sync::Arc;

use ur::abi::*;

use super::blocks::{Access, Free, Freed, Step, What};
use super::order::Order;
use super::{QueueFacts, Recorded, after, command, report, report_findings};

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
pub unsafe fn queue_queried(
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
        retired.all.complete();
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
pub unsafe fn event_queried(
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
    report_findings(findings);
    match free {
        Free::Unknown => Ok(HostFree(None)),
        Free::Noted(freed) => Ok(HostFree(Some(freed))),
        Free::Twice => Err(UR_RESULT_ERROR_INVALID_MEM_OBJECT),
    }
}

pub struct HostFree(Option<Freed>);

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
    report_findings(findings);
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

pub fn wrap_callback(
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
            // SAFETY: `wrap_callback` boxed it, and no one else has it.
            drop(unsafe { Box::from_raw(self.data.cast::<Watched>()) });
        }
    }
}

unsafe extern "C" fn notify(
    event: ur_event_handle_t,
    status: ur_execution_info_t,
    watched: *mut c_void,
) {
    // SAFETY: `wrap_callback` boxed it, and each registration is called once.
    let watched = unsafe { Box::from_raw(watched.cast::<Watched>()) };
    if status == UR_EXECUTION_INFO_COMPLETE {
        watched.order.complete();
    }
    if let Some(callback) = watched.callback {
        // SAFETY: the application's callback, with the application's argument.
        unsafe { callback(event, status, watched.data) };
    }
}

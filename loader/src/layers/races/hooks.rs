//! Records of calls that are no commands: objects created and released, completion that the host
//! waits for or observes, and memory allocated or freed at once.

use std::ffi::c_void;
use std::sync::Arc;

use ur::abi::*;

use super::blocks::{Access, Free, Freed, Operation, Range, Step};
use super::order::Order;
use super::{
    CommandBuffer, QueueProperties, RecordedUse, command, report, report_findings, state_on_success,
};

/// Records a new queue.
///
/// # Safety
/// After a success the pointer has the queue; the properties are null or readable.
pub unsafe fn queue_created(
    result: ur_result_t,
    created: *const ur_queue_handle_t,
    device: ur_device_handle_t,
    properties: *const ur_queue_properties_t,
) {
    if result != UR_RESULT_SUCCESS || created.is_null() {
        return;
    }
    // SAFETY: the caller guarantees null or readable properties.
    let flags = unsafe { properties.as_ref() }.map_or(ur_queue_flags_t(0), |given| given.flags);
    let properties = QueueProperties::new(device, flags);
    if let Some(mut state) = state_on_success(result) {
        // SAFETY: not null, and the caller guarantees the queue after a success.
        state.add_queue(unsafe { *created }.addr(), properties);
    }
}

/// Records that commands may reach the queue unseen: it shares a native handle, or captures.
pub fn queue_opened(result: ur_result_t, queue: ur_queue_handle_t) {
    if let Some(mut state) = state_on_success(result)
        && let Some(known) = state.queues.get_mut(&queue.addr())
    {
        known.queue.open();
    }
}

/// Records a new queue that shares a native handle.
///
/// # Safety
/// After a success the pointer has the queue.
pub unsafe fn open_queue_created(
    result: ur_result_t,
    created: *const ur_queue_handle_t,
    device: ur_device_handle_t,
) {
    // SAFETY: the caller guarantees the queue after a success.
    unsafe { queue_created(result, created, device, std::ptr::null()) };
    if result == UR_RESULT_SUCCESS && !created.is_null() {
        // SAFETY: not null, and the caller guarantees the queue after a success.
        queue_opened(result, unsafe { *created });
    }
}

/// Records that all commands of the queue were observed complete.
pub fn queue_finished(result: ur_result_t, queue: ur_queue_handle_t) {
    if let Some(mut state) = state_on_success(result)
        && let Some(known) = state.queues.get_mut(&queue.addr())
    {
        known.queue.complete();
    }
}

/// Records a query of a queue: an empty queue has only complete commands.
///
/// # Safety
/// After a success the value is null or has the property.
pub unsafe fn queue_queried(
    result: ur_result_t,
    queue: ur_queue_handle_t,
    what: ur_queue_info_t,
    value: *const c_void,
) {
    if result == UR_RESULT_SUCCESS && what == UR_QUEUE_INFO_EMPTY && !value.is_null() {
        // SAFETY: not null, and the caller guarantees the property, which is a `ur_bool_t`.
        if unsafe { value.cast::<ur_bool_t>().read() } != 0 {
            queue_finished(result, queue);
        }
    }
}

/// Records that all commands of the device were observed complete.
pub fn device_waited(result: ur_result_t, device: ur_device_handle_t) {
    let Some(mut state) = state_on_success(result) else {
        return;
    };
    for known in state.queues.values_mut() {
        // Queues whose device is unknown are left as they are.
        if known.device == device.addr() {
            known.queue.complete();
        }
    }
    if let Some(retired) = state.retired.remove(&device.addr()) {
        retired.all.complete();
    }
}

/// Records that events were observed complete.
///
/// # Safety
/// The list is null or has `count` elements.
pub unsafe fn events_waited(result: ur_result_t, count: u32, list: *const ur_event_handle_t) {
    if list.is_null() {
        return;
    }
    if let Some(state) = state_on_success(result) {
        for at in 0..count as usize {
            // SAFETY: not null, and the caller guarantees `count` elements.
            state.complete(unsafe { *list.add(at) }.addr());
        }
    }
}

/// Records that an event was observed complete, or may be observed without the loader.
pub fn event_seen(result: ur_result_t, event: ur_event_handle_t) {
    if let Some(state) = state_on_success(result) {
        state.complete(event.addr());
    }
}

/// Records a query of an event, which may show completion.
///
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
        // SAFETY: not null, and the caller guarantees the property, which is a `ur_event_status_t`.
        let status = unsafe { value.cast::<ur_event_status_t>().read() };
        if status == UR_EVENT_STATUS_COMPLETE {
            event_seen(result, event);
        }
    }
}

/// Records a query of a timestamp. The end's timestamps show completion.
pub fn event_timed(result: ur_result_t, event: ur_event_handle_t, what: ur_profiling_info_t) {
    if matches!(
        what,
        UR_PROFILING_INFO_COMMAND_END | UR_PROFILING_INFO_COMMAND_COMPLETE
    ) {
        event_seen(result, event);
    }
}

/// Records an event whose command the layer does not see.
///
/// # Safety
/// The pointer is null or, after a success, has the event.
pub unsafe fn event_unknown(result: ur_result_t, created: *const ur_event_handle_t) {
    if created.is_null() {
        return;
    }
    if let Some(mut state) = state_on_success(result) {
        // SAFETY: not null, and the caller guarantees the event after a success.
        let event = unsafe { *created }.addr();
        state.signalled(event, Order::unknown(), false);
    }
}

/// Records a retain of an event.
pub fn event_retained(result: ur_result_t, event: ur_event_handle_t) {
    if let Some(mut state) = state_on_success(result)
        && let Some(known) = state.events.get_mut(&event.addr())
    {
        known.references = known.references.saturating_add(1);
    }
}

/// Records a release of an event. Must be called before the adapter, since another event may get
/// the address after it.
pub fn event_released(event: ur_event_handle_t) {
    let Some(mut state) = state_on_success(UR_RESULT_SUCCESS) else {
        return;
    };
    if let Some(known) = state.events.get_mut(&event.addr()) {
        known.references -= 1;
        if known.references == 0 {
            state.events.remove(&event.addr());
        }
    }
}

/// Records the name of a new kernel.
///
/// # Safety
/// After a success the pointer has the kernel; the name is null or a C string.
pub unsafe fn kernel_created(
    result: ur_result_t,
    created: *const ur_kernel_handle_t,
    name: *const std::ffi::c_char,
) {
    if created.is_null() || name.is_null() {
        return;
    }
    if let Some(mut state) = state_on_success(result) {
        // SAFETY: not null, and the caller guarantees the kernel after a success and a C string.
        let (kernel, name) = unsafe { (*created, std::ffi::CStr::from_ptr(name)) };
        let name = Arc::from(name.to_string_lossy());
        state.kernels.insert(kernel.addr(), name);
    }
}

/// Records a block that was allocated at once.
///
/// # Safety
/// The pointer is null or, after a success, has the address.
pub unsafe fn allocated(
    function: &'static str,
    result: ur_result_t,
    created: *const *mut c_void,
    size: usize,
) {
    if created.is_null() {
        return;
    }
    let what = host(function);
    if let Some(mut state) = state_on_success(result) {
        // SAFETY: not null, and the caller guarantees the address after a success.
        let address = unsafe { *created }.addr();
        let allocation = Step::host(what);
        state.blocks.allocated(address, size, allocation);
    }
}

/// Removes the block at the address of memory that is not tracked.
///
/// # Safety
/// The pointer is null or, after a success, has the address.
pub unsafe fn replaced(result: ur_result_t, created: *const *mut c_void) {
    if created.is_null() {
        return;
    }
    if let Some(mut state) = state_on_success(result) {
        // SAFETY: not null, and the caller guarantees the address after a success.
        let address = unsafe { *created }.addr();
        state.blocks.forget(address, 1);
    }
}

/// Records a free on the host. The adapter must not be called after an error.
pub fn freed(function: &'static str, memory: *const c_void) -> Result<HostFree, ur_result_t> {
    let what = host(function);
    let Some(mut state) = state_on_success(UR_RESULT_SUCCESS) else {
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
        Free::Recorded(freed) => Ok(HostFree(Some(freed))),
        Free::AlreadyFreed => Err(UR_RESULT_ERROR_INVALID_MEM_OBJECT),
    }
}

/// A free on the host whose adapter call is in progress.
pub struct HostFree(Option<Freed>);

impl HostFree {
    /// Completes the free, or reverts it if the adapter refused it.
    pub fn ended(self, result: ur_result_t) {
        let Some(freed) = &self.0 else { return };
        let Some(mut state) = state_on_success(UR_RESULT_SUCCESS) else {
            return;
        };
        match result {
            UR_RESULT_SUCCESS => state.blocks.complete_free(freed),
            _ => state.blocks.revert_free(freed),
        }
    }
}

/// Records that the host uses memory, `size` bytes from each pointer.
pub fn used_by_host(function: &'static str, pointers: &[*const c_void], size: usize) {
    let what = host(function);
    let Some(mut state) = state_on_success(UR_RESULT_SUCCESS) else {
        return;
    };
    let mut findings = Vec::new();
    for pointer in pointers {
        let step = Step::host(what.clone());
        let nothing = Order::default();
        let range = Range {
            address: pointer.addr(),
            size: Some(size),
        };
        findings.extend(state.blocks.used(range, Access::Any, step, &nothing));
    }
    drop(state);
    report_findings(findings);
}

/// A description of an operation of the host.
fn host(function: &'static str) -> Operation {
    Operation {
        function,
        kernel: None,
        queue: None,
        event: false,
        place: report::location().map(Arc::from),
    }
}

/// Records a new command buffer.
///
/// # Safety
/// The pointer is null or, after a success, has the command buffer.
pub unsafe fn command_buffer_created(
    result: ur_result_t,
    created: *const ur_exp_command_buffer_handle_t,
) {
    if created.is_null() {
        return;
    }
    if let Some(mut state) = state_on_success(result) {
        // SAFETY: not null, and the caller guarantees the command buffer after a success.
        let buffer = unsafe { *created }.addr();
        state
            .command_buffers
            .insert(buffer, CommandBuffer::default());
    }
}

/// Records the memory that an appended command uses: pointers with sizes in bytes, if these are
/// known, and a kernel's arguments.
///
/// # Safety
/// The list of arguments is null or has that many elements with the right type tags.
pub unsafe fn appended(
    result: ur_result_t,
    buffer: ur_exp_command_buffer_handle_t,
    pointers: &[(*const c_void, Option<u64>)],
    arguments: (u32, *const ur_exp_kernel_arg_properties_t),
) {
    let Some(mut state) = state_on_success(result) else {
        return;
    };
    let Some(recorded) = state.command_buffers.get_mut(&buffer.addr()) else {
        return;
    };
    for (pointer, size) in pointers {
        let size = size.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        let used = recorded.uses.entry(pointer.addr());
        let used = used.or_insert(RecordedUse {
            size,
            argument: false,
        });
        used.size = used.size.zip(size).map(|(one, other)| one.max(other));
        used.argument = false;
    }
    // SAFETY: the caller guarantees the list with the right type tags.
    for address in unsafe { command::pointers_among(arguments.0, arguments.1) } {
        let used = recorded.uses.entry(address);
        let used = used.or_insert(RecordedUse {
            size: None,
            argument: true,
        });
        used.size = None;
    }
}

/// Drops the kernel arguments of a command buffer that was updated, since updates are not tracked.
pub fn updated(result: ur_result_t, buffer: ur_exp_command_buffer_handle_t) {
    if let Some(mut state) = state_on_success(result)
        && let Some(recorded) = state.command_buffers.get_mut(&buffer.addr())
    {
        recorded.uses.retain(|_, used| !used.argument);
    }
}

/// The application's event callback, and the order that its event stands for.
struct Watched {
    callback: ur_event_callback_t,
    data: *mut c_void,
    order: Order,
}

/// The event callback that the adapter gets.
pub struct Registration {
    pub callback: ur_event_callback_t,
    pub data: *mut c_void,
    /// Whether `data` is a boxed `Watched`.
    is_wrapper: bool,
}

/// Wraps the application's event callback, so that its call marks the event complete.
pub fn wrap_callback(
    event: ur_event_handle_t,
    callback: ur_event_callback_t,
    data: *mut c_void,
) -> Registration {
    let Some(state) = state_on_success(UR_RESULT_SUCCESS).filter(|_| callback.is_some()) else {
        let is_wrapper = false;
        return Registration {
            callback,
            data,
            is_wrapper,
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
        is_wrapper: true,
    }
}

impl Registration {
    /// Frees the wrapper of a callback that was refused.
    ///
    /// # Safety
    /// The adapter refused the callback, so that it will not call it.
    pub unsafe fn refused(self) {
        if self.is_wrapper {
            // SAFETY: `wrap_callback` boxed it, and the refused registration has the only pointer.
            drop(unsafe { Box::from_raw(self.data.cast::<Watched>()) });
        }
    }
}

unsafe extern "C" fn notify(
    event: ur_event_handle_t,
    status: ur_execution_info_t,
    watched: *mut c_void,
) {
    // SAFETY: `wrap_callback` boxed it, and the adapter calls a registration once.
    let watched = unsafe { Box::from_raw(watched.cast::<Watched>()) };
    if status == UR_EXECUTION_INFO_COMPLETE {
        watched.order.complete();
    }
    if let Some(callback) = watched.callback {
        // SAFETY: the application registered the callback to be called with its data.
        unsafe { callback(event, status, watched.data) };
    }
}

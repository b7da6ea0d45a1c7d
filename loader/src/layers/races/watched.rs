//! The functions that this layer wraps: commands, by `ur::for_each_command!`, and others by name.

use std::ffi::c_void;

use ur::abi::*;

use super::hooks::*;
use super::{Access, Command, Kind};
use crate::layers::wrappers::{COUNT, number, wrappers};

/// The code around a call, which takes the parameter struct and the call.
pub type Around = unsafe fn(*const c_void, &mut dyn FnMut() -> ur_result_t) -> ur_result_t;

/// A table of code around calls: `urX params_struct |p, call| { ... result }`.
///
/// `p` points to the wrapper's own arguments. A replaced argument reaches the adapter if it is
/// written before `call()`.
macro_rules! around {
    ($(#[$meta:meta])* $table:ident: $(
        $name:ident $params:ident |$p:ident, $call:ident| $body:block
    )*) => {
        $(#[$meta])*
        static $table: [Option<Around>; COUNT] = {
            let mut rows: [Option<Around>; COUNT] = [None; COUNT];
            $(
                rows[number::$name] = Some({
                    #[inline(always)]
                    unsafe fn around(
                        params: *const c_void,
                        $call: &mut dyn FnMut() -> ur_result_t,
                    ) -> ur_result_t {
                        // SAFETY: the wrapper passes the function's parameter struct, whose
                        // arguments meet the specification's contract. After a success the adapter
                        // has written its outputs.
                        unsafe {
                            let $p = &*params.cast::<$params>();
                            $body
                        }
                    }
                    around
                });
            )*
            rows
        };
    };
}

/// A table of code that follows calls only: `urX params_struct |p, result| { ... }`.
macro_rules! after {
    ($(#[$meta:meta])* $table:ident: $(
        $name:ident $params:ident |$p:ident, $result:ident| $body:block
    )*) => {
        around! {
            $(#[$meta])*
            $table:
            $( $name $params |$p, call| {
                let $result = call();
                $body
                $result
            } )*
        }
    };
}

after! {
    /// Functions that are recorded after the call.
    ANSWERS:
    urQueueCreate ur_queue_create_params_t |p, result| {
        queue_created(result, *p.pphQueue, *p.phDevice, *p.ppProperties);
    }
    urQueueCreateWithNativeHandle ur_queue_create_with_native_handle_params_t |p, result| {
        open_queue_created(result, *p.pphQueue, *p.phDevice);
    }
    urQueueGetNativeHandle ur_queue_get_native_handle_params_t |p, result| {
        queue_opened(result, *p.phQueue);
    }
    urQueueBeginGraphCaptureExp ur_queue_begin_graph_capture_exp_params_t |p, result| {
        queue_opened(result, *p.phQueue);
    }
    urQueueBeginCaptureIntoGraphExp ur_queue_begin_capture_into_graph_exp_params_t |p, result| {
        queue_opened(result, *p.phQueue);
    }
    urQueueFinish ur_queue_finish_params_t |p, result| {
        queue_finished(result, *p.phQueue);
    }
    urQueueGetInfo ur_queue_get_info_params_t |p, result| {
        queue_queried(result, *p.phQueue, *p.ppropName, *p.ppPropValue);
    }
    urDeviceWaitExp ur_device_wait_exp_params_t |p, result| {
        device_waited(result, *p.phDevice);
    }
    urEventWait ur_event_wait_params_t |p, result| {
        events_waited(result, *p.pnumEvents, *p.pphEventWaitList);
    }
    urEventGetInfo ur_event_get_info_params_t |p, result| {
        event_queried(result, *p.phEvent, *p.ppropName, *p.ppPropValue);
    }
    urEventGetProfilingInfo ur_event_get_profiling_info_params_t |p, result| {
        event_timed(result, *p.phEvent, *p.ppropName);
    }
    urEventGetNativeHandle ur_event_get_native_handle_params_t |p, result| {
        event_seen(result, *p.phEvent);
    }
    urIPCGetEventHandleExp ur_ipc_get_event_handle_exp_params_t |p, result| {
        event_seen(result, *p.phEvent);
    }
    urEventRetain ur_event_retain_params_t |p, result| {
        event_retained(result, *p.phEvent);
    }
    urKernelCreate ur_kernel_create_params_t |p, result| {
        kernel_created(result, *p.pphKernel, *p.ppKernelName);
    }
    urUSMHostAlloc ur_usm_host_alloc_params_t |p, result| {
        allocated("urUSMHostAlloc", result, (*p.pppMem).cast(), *p.psize);
    }
    urUSMDeviceAlloc ur_usm_device_alloc_params_t |p, result| {
        allocated("urUSMDeviceAlloc", result, (*p.pppMem).cast(), *p.psize);
    }
    urUSMSharedAlloc ur_usm_shared_alloc_params_t |p, result| {
        allocated("urUSMSharedAlloc", result, (*p.pppMem).cast(), *p.psize);
    }
    urCommandBufferCreateExp ur_command_buffer_create_exp_params_t |p, result| {
        command_buffer_created(result, *p.pphCommandBuffer);
    }
    urCommandBufferUpdateKernelLaunchExp ur_command_buffer_update_kernel_launch_exp_params_t |p, result| {
        updated(result, *p.phCommandBuffer);
    }
}

ur::for_each_command! {
    around
    /// What stands around commands, and around calls whose outputs are not followed.
    COMMANDS:
}

around! {
    /// Functions that are recorded before the call, or whose arguments are replaced.
    CALLS:
    urEventRelease ur_event_release_params_t |p, call| {
        event_released(*p.phEvent);
        call()
    }
    urEventSetCallback ur_event_set_callback_params_t |p, call| {
        let watched = wrap_callback(*p.phEvent, *p.ppfnNotify, *p.ppUserData);
        *p.ppfnNotify = watched.callback;
        *p.ppUserData = watched.data;
        let result = call();
        if result != UR_RESULT_SUCCESS {
            watched.refused();
        }
        result
    }
    urUSMFree ur_usm_free_params_t |p, call| {
        match freed("urUSMFree", *p.ppMem) {
            Ok(freed) => {
                let result = call();
                freed.ended(result);
                result
            }
            Err(error) => error,
        }
    }
    urUSMContextMemcpyExp ur_usm_context_memcpy_exp_params_t |p, call| {
        let pointers = [(*p.ppDst).cast_const(), *p.ppSrc];
        used_by_host("urUSMContextMemcpyExp", &pointers, *p.psize);
        call()
    }
}

/// The code around a function's calls. Each function is in one table only.
const fn row(number: usize) -> Option<Around> {
    match (COMMANDS[number], ANSWERS[number], CALLS[number]) {
        (Some(row), None, None) | (None, Some(row), None) | (None, None, Some(row)) => Some(row),
        (None, None, None) => None,
        _ => panic!("a function stands in two tables"),
    }
}

/// Functions that the layer wraps.
const fn wants(number: usize) -> bool {
    assert!(number < COUNT);
    row(number).is_some()
}

/// The body of a function of this layer.
macro_rules! watched {
    ($name:ident $params:ident $leader:tt $below:ident (
        $( $arg:ident : $ty:ty = $field:ident $form:tt ),*
    )) => {{
        let params = $params { $( $field: &raw mut $arg ),* };
        // SAFETY: the arguments meet the specification's contract, or are the layer's replacements.
        let mut call = || unsafe { $below($( params.$field.read() ),*) };
        match const { row(number::$name) } {
            // SAFETY: `params` is the function's parameter struct.
            Some(around) => unsafe { around((&raw const params).cast(), &mut call) },
            None => call(),
        }
    }};
}
ur::for_each_function! { wrappers watched }

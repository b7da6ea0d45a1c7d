//! User functions as commands.

use crate::abi::ur_exp_host_task_function_t;
use crate::hal::Unwrapped;
use std::ffi::c_void;

/// The function of a host task.
pub type HostFunction = <ur_exp_host_task_function_t as Unwrapped>::Fn;

/// A user's function and its data.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub run: HostFunction,
    pub data: *mut c_void,
}

// SAFETY: the caller of the enqueue promises that the function may run on another thread.
unsafe impl Send for Call {}
// SAFETY: shared references only copy the pointers. A captured task runs once an execution, and
// executions are ordered.
unsafe impl Sync for Call {}

//! Launches of kernels, and their arguments.

use std::ffi::c_void;
use std::ptr::null;

use ur::abi::*;

use super::fake_driver::ur;

pub type Arg = ur_exp_kernel_arg_properties_t;

/// Memory at an address.
pub fn pointer(index: u32, memory: *mut c_void) -> Arg {
    let mut arg = Arg {
        r#type: UR_EXP_KERNEL_ARG_TYPE_POINTER,
        index,
        size: size_of::<usize>(),
        ..Default::default()
    };
    arg.value.pointer = memory;
    arg
}

/// A number, which has to live until the launch.
pub fn number(index: u32, number: &u32) -> Arg {
    let mut arg = Arg {
        r#type: UR_EXP_KERNEL_ARG_TYPE_VALUE,
        index,
        size: size_of::<u32>(),
        ..Default::default()
    };
    arg.value.value = std::ptr::from_ref(number).cast();
    arg
}

pub fn memory_object(index: u32, buffer: ur_mem_handle_t, flags: ur_mem_flags_t) -> Arg {
    let mut arg = Arg {
        r#type: UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ,
        index,
        size: size_of::<usize>(),
        ..Default::default()
    };
    arg.value.memObjTuple = ur_exp_kernel_arg_mem_obj_tuple_t {
        hMem: buffer,
        flags,
    };
    arg
}

/// Launches that many items in one dimension, after the events.
pub fn launch(
    queue: ur_queue_handle_t,
    kernel: ur_kernel_handle_t,
    items: usize,
    args: &[Arg],
    waits: &[ur_event_handle_t],
    event: *mut ur_event_handle_t,
) -> ur_result_t {
    let waits_at = match waits {
        [] => null(),
        _ => waits.as_ptr(),
    };
    ur!(EnqueueExp.pfnKernelLaunchWithArgsExp(
        queue,
        kernel,
        1,
        null(),
        &items,
        null(),
        args.len() as u32,
        args.as_ptr(),
        null(),
        waits.len() as u32,
        waits_at,
        event
    ))
}

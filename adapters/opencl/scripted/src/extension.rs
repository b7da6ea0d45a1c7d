//! Extension functions that a platform returns by name: USM and host pipes.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use opencl_sys::*;

use crate::command::{filler, mover, pattern};
use crate::driver::{Kind, code, enter, hold, made};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetExtensionFunctionAddressForPlatform(
    _: cl_platform_id,
    name: *const c_char,
) -> *mut c_void {
    if hold().script.shape.no_extensions {
        return null_mut();
    }
    // SAFETY: the caller's C string.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    match name {
        b"clHostMemAllocINTEL" => host_alloc as *mut c_void,
        b"clDeviceMemAllocINTEL" => device_alloc as *mut c_void,
        b"clSharedMemAllocINTEL" => shared_alloc as *mut c_void,
        b"clMemFreeINTEL" | b"clMemBlockingFreeINTEL" => free as *mut c_void,
        b"clSetKernelArgMemPointerINTEL" => set_pointer as *mut c_void,
        b"clEnqueueMemFillINTEL" => fill as *mut c_void,
        b"clEnqueueMemcpyINTEL" => copy as *mut c_void,
        b"clEnqueueReadHostPipeINTEL" => read_pipe as *mut c_void,
        b"clEnqueueWriteHostPipeINTEL" => write_pipe as *mut c_void,
        _ => null_mut(),
    }
}

fn alloc(name: &'static str, context: cl_context, bytes: usize, ret: *mut cl_int) -> *mut c_void {
    let answer = enter(name, |driver| {
        driver.get(Kind::Context, context.addr())?;
        match bytes {
            0 => Err(CL_INVALID_BUFFER_SIZE),
            _ => Ok(driver.alloc(bytes, true)),
        }
    });
    made(answer, ret)
}

unsafe extern "C" fn host_alloc(
    context: cl_context,
    _: *const cl_mem_properties_intel,
    bytes: usize,
    _: cl_uint,
    ret: *mut cl_int,
) -> *mut c_void {
    alloc("clHostMemAllocINTEL", context, bytes, ret)
}

unsafe extern "C" fn device_alloc(
    context: cl_context,
    _: cl_device_id,
    _: *const cl_mem_properties_intel,
    bytes: usize,
    _: cl_uint,
    ret: *mut cl_int,
) -> *mut c_void {
    alloc("clDeviceMemAllocINTEL", context, bytes, ret)
}

unsafe extern "C" fn shared_alloc(
    context: cl_context,
    _: cl_device_id,
    _: *const cl_mem_properties_intel,
    bytes: usize,
    _: cl_uint,
    ret: *mut cl_int,
) -> *mut c_void {
    alloc("clSharedMemAllocINTEL", context, bytes, ret)
}

unsafe extern "C" fn free(context: cl_context, at: *mut c_void) -> cl_int {
    code(enter("clMemFreeINTEL", |driver| {
        driver.get(Kind::Context, context.addr())?;
        if driver.free(at.addr()) {
            return Ok(());
        }
        driver.script.broken(format!("{at:?} is freed twice"));
        Err(CL_INVALID_VALUE)
    }))
}

unsafe extern "C" fn set_pointer(kernel: cl_kernel, _: cl_uint, _: *const c_void) -> cl_int {
    code(enter("clSetKernelArgMemPointerINTEL", |driver| {
        driver.get(Kind::Kernel, kernel.addr()).map(drop)
    }))
}

unsafe extern "C" fn fill(
    queue: cl_command_queue,
    to: *mut c_void,
    from: *const c_void,
    size: usize,
    bytes: usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code(enter("clEnqueueMemFillINTEL", |driver| {
        // SAFETY: the caller's pattern.
        let pattern = unsafe { pattern(from, size) };
        let run = filler(to.expose_provenance(), pattern, bytes);
        // SAFETY: the caller promises readable lists of the given lengths.
        unsafe { driver.enqueue(queue, CL_COMMAND_MEMFILL_INTEL, (count, waits, event), run) }
    }))
}

unsafe extern "C" fn copy(
    queue: cl_command_queue,
    _: cl_bool,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code(enter("clEnqueueMemcpyINTEL", |driver| {
        let run = mover(to.expose_provenance(), from.expose_provenance(), bytes);
        // SAFETY: the caller promises readable lists of the given lengths.
        unsafe { driver.enqueue(queue, CL_COMMAND_MEMCPY_INTEL, (count, waits, event), run) }
    }))
}

/// The contents of each pipe, by name.
static PIPES: Mutex<Option<HashMap<CString, Vec<u8>>>> = Mutex::new(None);

fn pipe<R>(name: CString, with: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    let mut pipes = PIPES.lock().unwrap_or_else(PoisonError::into_inner);
    with(pipes.get_or_insert_default().entry(name).or_default())
}

/// Takes bytes out of a pipe. Missing bytes are zero.
unsafe extern "C" fn read_pipe(
    queue: cl_command_queue,
    program: cl_program,
    name: *const c_char,
    _: cl_bool,
    to: *mut c_void,
    bytes: usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code(enter("clEnqueueReadHostPipeINTEL", |driver| {
        driver.get(Kind::Program, program.addr())?;
        // SAFETY: the caller's C string.
        let name = unsafe { CStr::from_ptr(name) }.to_owned();
        let to = to.expose_provenance();
        let run = move || {
            let read: Vec<u8> = pipe(name, |pipe| {
                let capacity = pipe.len().min(bytes);
                pipe.drain(..capacity).collect()
            });
            for (at, byte) in read.iter().enumerate() {
                // SAFETY: the caller of the enqueue function keeps the range until the command has run.
                unsafe { ((to + at) as *mut u8).write(*byte) };
            }
        };
        // SAFETY: the caller promises readable lists of the given lengths.
        unsafe { driver.enqueue(queue, 0x4214, (count, waits, event), run) }
    }))
}

/// Puts bytes into a pipe.
unsafe extern "C" fn write_pipe(
    queue: cl_command_queue,
    program: cl_program,
    name: *const c_char,
    _: cl_bool,
    from: *const c_void,
    bytes: usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code(enter("clEnqueueWriteHostPipeINTEL", |driver| {
        driver.get(Kind::Program, program.addr())?;
        // SAFETY: the caller's C string.
        let name = unsafe { CStr::from_ptr(name) }.to_owned();
        let from = from.expose_provenance();
        let run = move || {
            // SAFETY: the caller of the enqueue function keeps the range until the command has run.
            let data = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) };
            pipe(name, |pipe| pipe.extend_from_slice(data));
        };
        // SAFETY: the caller promises readable lists of the given lengths.
        unsafe { driver.enqueue(queue, 0x4215, (count, waits, event), run) }
    }))
}

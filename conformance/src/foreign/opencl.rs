//! OpenCL's own commands, through its library.

use super::{Command, Fill, Foreign};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null;
use std::sync::OnceLock;
use ur::abi::ur_native_handle_t;

pub struct OpenCl;

type SetBytes = unsafe extern "C" fn(
    queue: usize,
    memory: *mut c_void,
    pattern: *const c_void,
    pattern_size: usize,
    size: usize,
    count: u32,
    waits: *const usize,
    event: *mut usize,
) -> i32;

ur::dl::symbols! {
    struct Library {
        required {
            clGetCommandQueueInfo: unsafe extern "C" fn(
                queue: usize, what: u32, size: usize, value: *mut c_void, ret: *mut usize,
            ) -> i32,
            clGetDeviceInfo: unsafe extern "C" fn(
                device: usize, what: u32, size: usize, value: *mut c_void, ret: *mut usize,
            ) -> i32,
            clGetExtensionFunctionAddressForPlatform:
                unsafe extern "C" fn(platform: usize, name: *const c_char) -> *const c_void,
            clCreateUserEvent: unsafe extern "C" fn(context: usize, code: *mut i32) -> usize,
            clSetUserEventStatus: unsafe extern "C" fn(event: usize, status: i32) -> i32,
            clReleaseEvent: unsafe extern "C" fn(event: usize) -> i32,
            clFlush: unsafe extern "C" fn(queue: usize) -> i32,
        }
        optional {
            clEnqueueSVMMemFill: SetBytes,
        }
    }
}

const QUEUE_CONTEXT: u32 = 0x1090;
const QUEUE_DEVICE: u32 = 0x1091;
const DEVICE_PLATFORM: u32 = 0x1031;
const FILL: &CStr = c"clEnqueueMemFillINTEL";

fn library() -> Result<&'static Library, String> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    let load = || Library::load(&["libOpenCL.so.1"]).map_err(|error| error.to_string());
    LIBRARY.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn checked(code: i32, call: &str) -> Result<(), String> {
    match code {
        0 => Ok(()),
        code => Err(format!("{call} failed with {code}")),
    }
}

/// A property that is a handle.
fn handle(
    ask: impl FnOnce(usize, *mut c_void, *mut usize) -> i32,
    call: &str,
) -> Result<usize, String> {
    let mut handle = 0_usize;
    let to = (&raw mut handle).cast();
    checked(ask(size_of::<usize>(), to, std::ptr::null_mut()), call)?;
    Ok(handle)
}

impl Library {
    fn of_queue(&self, queue: usize, what: u32) -> Result<usize, String> {
        // SAFETY: a live queue, by the test.
        let ask = |size, value, ret| unsafe {
            (self.clGetCommandQueueInfo)(queue, what, size, value, ret)
        };
        handle(ask, "clGetCommandQueueInfo")
    }

    /// What sets bytes of USM: Intel's extension, else shared virtual memory.
    fn set_bytes(&self, queue: usize) -> Result<SetBytes, String> {
        let device = self.of_queue(queue, QUEUE_DEVICE)?;
        // SAFETY: a live device.
        let ask = |size, value, ret| unsafe {
            (self.clGetDeviceInfo)(device, DEVICE_PLATFORM, size, value, ret)
        };
        let platform = handle(ask, "clGetDeviceInfo")?;
        // SAFETY: a live platform, and the function's type is the extension's.
        let own = unsafe {
            let address = (self.clGetExtensionFunctionAddressForPlatform)(platform, FILL.as_ptr());
            ur::dl::function::<SetBytes>(address)
        };
        let either = own.or(self.clEnqueueSVMMemFill);
        either.ok_or_else(|| "OpenCL has no command on USM".to_owned())
    }

    fn user_event(&'static self, queue: usize) -> Result<Event, String> {
        let context = self.of_queue(queue, QUEUE_CONTEXT)?;
        let mut code = 0;
        // SAFETY: a live context.
        let raw = unsafe { (self.clCreateUserEvent)(context, &mut code) };
        checked(code, "clCreateUserEvent")?;
        Ok(Event { library: self, raw })
    }
}

/// One reference to an event.
struct Event {
    library: &'static Library,
    raw: usize,
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: our own reference.
        unsafe { (self.library.clReleaseEvent)(self.raw) };
    }
}

/// A fill, and what holds it.
struct Filled {
    gate: Option<Event>,
    event: Event,
}

impl Command for Filled {
    fn let_go(&mut self) {
        if let Some(gate) = self.gate.take() {
            // SAFETY: a live user event, completed once.
            unsafe { (gate.library.clSetUserEventStatus)(gate.raw, 0) };
        }
    }

    fn event(&self) -> ur_native_handle_t {
        self.event.raw
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Foreign for OpenCl {
    fn events_know_queues(&self) -> bool {
        true
    }

    fn fill(&self, fill: &Fill) -> Result<Box<dyn Command + Send>, String> {
        let library = library()?;
        let set = library.set_bytes(fill.queue)?;
        let gate = match fill.held {
            Some(_) => Some(library.user_event(fill.queue)?),
            None => None,
        };
        let held = gate.iter().map(|gate| gate.raw);
        let waits: Vec<usize> = fill.waits.iter().copied().chain(held).collect();
        let list = match waits.is_empty() {
            true => null(),
            false => waits.as_ptr(),
        };
        let mut event = 0;
        // SAFETY: a live queue and events; the test keeps the memory.
        let code = unsafe {
            set(
                fill.queue,
                fill.memory,
                (&raw const fill.byte).cast(),
                1,
                fill.bytes,
                waits.len() as u32,
                list,
                &mut event,
            )
        };
        checked(code, "setting bytes")?;
        let event = Event {
            library,
            raw: event,
        };
        // SAFETY: a live queue.
        checked(unsafe { (library.clFlush)(fill.queue) }, "clFlush")?;
        Ok(Box::new(Filled { gate, event }))
    }
}

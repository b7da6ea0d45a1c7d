//! OpenCL's own commands, through its library.

use super::{Command, Fill, NativeWork, Pending, Recorded};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
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

type SetPointer = unsafe extern "C" fn(kernel: usize, at: u32, pointer: *const c_void) -> i32;

/// `clCommandNDRangeKernelKHR`, of any version.
type RecordLaunch = unsafe extern "C" fn(
    recording: usize,
    queue: usize,
    properties: *const c_void,
    kernel: usize,
    dims: u32,
    offset: *const usize,
    global: *const usize,
    local: *const usize,
    count: u32,
    waits: *const u32,
    point: *mut u32,
    command: *mut usize,
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
            clGetContextInfo: unsafe extern "C" fn(
                context: usize, what: u32, size: usize, value: *mut c_void, ret: *mut usize,
            ) -> i32,
            clCreateProgramWithSource: unsafe extern "C" fn(
                context: usize, count: u32, lines: *const *const c_char, lengths: *const usize, code: *mut i32,
            ) -> usize,
            clBuildProgram: unsafe extern "C" fn(
                program: usize, count: u32, devices: *const usize, options: *const c_char,
                then: *const c_void, data: *mut c_void,
            ) -> i32,
            clCreateKernel: unsafe extern "C" fn(program: usize, name: *const c_char, code: *mut i32) -> usize,
            clSetKernelArg:
                unsafe extern "C" fn(kernel: usize, at: u32, size: usize, value: *const c_void) -> i32,
            clReleaseKernel: unsafe extern "C" fn(kernel: usize) -> i32,
            clReleaseProgram: unsafe extern "C" fn(program: usize) -> i32,
        }
        optional {
            clEnqueueSVMMemFill: SetBytes,
            clSetKernelArgSVMPointer: SetPointer,
        }
    }
}

const QUEUE_CONTEXT: u32 = 0x1090;
const QUEUE_DEVICE: u32 = 0x1091;
const DEVICE_PLATFORM: u32 = 0x1031;
const CONTEXT_DEVICES: u32 = 0x1081;
const FILL: &CStr = c"clEnqueueMemFillINTEL";
const SET_POINTER: &CStr = c"clSetKernelArgMemPointerINTEL";
const RECORD_LAUNCH: &CStr = c"clCommandNDRangeKernelKHR";

/// The kernel that sets bytes. Recordings of every version accept a launch, and it may access USM.
const SOURCE: &CStr =
    c"kernel void set(global uchar *to, uchar byte) { to[get_global_id(0)] = byte; }";

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

/// A property whose value is a handle.
fn handle(
    get_info: impl FnOnce(usize, *mut c_void, *mut usize) -> i32,
    call: &str,
) -> Result<usize, String> {
    let mut handle = 0_usize;
    let to = (&raw mut handle).cast();
    checked(get_info(size_of::<usize>(), to, std::ptr::null_mut()), call)?;
    Ok(handle)
}

impl Library {
    fn of_queue(&self, queue: usize, what: u32) -> Result<usize, String> {
        // SAFETY: a live queue, by the test.
        let get_info = |size, value, ret| unsafe {
            (self.clGetCommandQueueInfo)(queue, what, size, value, ret)
        };
        handle(get_info, "clGetCommandQueueInfo")
    }

    /// The function that fills USM: Intel's extension, or that for shared virtual memory.
    fn set_bytes(&self, queue: usize) -> Result<SetBytes, String> {
        let device = self.of_queue(queue, QUEUE_DEVICE)?;
        // SAFETY: the function's type is the extension's.
        let own = unsafe { self.extension::<SetBytes>(device, FILL) }?;
        let either = own.or(self.clEnqueueSVMMemFill);
        either.ok_or_else(|| "OpenCL has no command on USM".to_owned())
    }

    /// A function of the extensions of a device's platform.
    ///
    /// # Safety
    /// The function has the type `F`.
    unsafe fn extension<F: Copy>(&self, device: usize, name: &CStr) -> Result<Option<F>, String> {
        // SAFETY: a live device.
        let get_info = |size, value, ret| unsafe {
            (self.clGetDeviceInfo)(device, DEVICE_PLATFORM, size, value, ret)
        };
        let platform = handle(get_info, "clGetDeviceInfo")?;
        // SAFETY: the platform is alive, and the caller gives the type of the function with this name.
        Ok(unsafe {
            let address = (self.clGetExtensionFunctionAddressForPlatform)(platform, name.as_ptr());
            ur::dl::function::<F>(address)
        })
    }

    /// A context's first device.
    fn device_of(&self, context: usize) -> Result<usize, String> {
        let mut devices = [0_usize; 64];
        let (size, to) = (size_of_val(&devices), devices.as_mut_ptr().cast());
        // SAFETY: a live context, by the test, and an output of this size.
        let code =
            unsafe { (self.clGetContextInfo)(context, CONTEXT_DEVICES, size, to, null_mut()) };
        checked(code, "clGetContextInfo").map(|()| devices[0])
    }

    /// The kernel that sets bytes.
    fn kernel(&'static self, context: usize) -> Result<Kernel, String> {
        let (line, mut code) = (SOURCE.as_ptr(), 0);
        // SAFETY: a live context and one string, then a live program.
        unsafe {
            let program = (self.clCreateProgramWithSource)(context, 1, &line, null(), &mut code);
            checked(code, "clCreateProgramWithSource")?;
            let built = (self.clBuildProgram)(program, 0, null(), null(), null(), null_mut());
            let kernel = (self.clCreateKernel)(program, c"set".as_ptr(), &mut code);
            (self.clReleaseProgram)(program);
            checked(built, "clBuildProgram")?;
            checked(code, "clCreateKernel")?;
            Ok(Kernel {
                library: self,
                raw: kernel,
            })
        }
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

/// One reference to a kernel.
struct Kernel {
    library: &'static Library,
    raw: usize,
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: the one reference of this value.
        unsafe { (self.library.clReleaseKernel)(self.raw) };
    }
}

/// One reference to an event.
struct Event {
    library: &'static Library,
    raw: usize,
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the one reference of this value.
        unsafe { (self.library.clReleaseEvent)(self.raw) };
    }
}

/// A fill, and the user event that blocks it.
struct Filled {
    gate: Option<Event>,
    event: Event,
}

impl Command for Filled {
    fn release(&mut self) {
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
        self.release();
    }
}

/// A user event that is not complete yet.
struct Undecided(Option<Event>);

impl Undecided {
    fn decide(&mut self, status: i32) {
        if let Some(event) = self.0.take() {
            // SAFETY: a live user event, completed once.
            unsafe { (event.library.clSetUserEventStatus)(event.raw, status) };
        }
    }
}

impl Pending for Undecided {
    fn event(&self) -> ur_native_handle_t {
        self.0.as_ref().map_or(0, |event| event.raw)
    }

    fn fail(mut self: Box<Self>) {
        const OUT_OF_RESOURCES: i32 = -5;
        self.decide(OUT_OF_RESOURCES);
    }
}

impl Drop for Undecided {
    fn drop(&mut self) {
        self.decide(0);
    }
}

impl NativeWork for OpenCl {
    fn pending(&self, queue: ur_native_handle_t) -> Result<Box<dyn Pending>, String> {
        let event = library()?.user_event(queue)?;
        Ok(Box::new(Undecided(Some(event))))
    }

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

    fn record(&self, what: &Recorded) -> Result<(), String> {
        let library = library()?;
        let device = library.device_of(what.context)?;
        // SAFETY: the functions' types are the extensions'.
        let (pointer, launch) = unsafe {
            (
                library.extension::<SetPointer>(device, SET_POINTER)?,
                library.extension::<RecordLaunch>(device, RECORD_LAUNCH)?,
            )
        };
        let pointer = pointer.or(library.clSetKernelArgSVMPointer);
        let (Some(pointer), Some(launch)) = (pointer, launch) else {
            return Err("OpenCL records no launch on USM".to_owned());
        };
        let kernel = library.kernel(what.context)?;
        let byte = (&raw const what.byte).cast();
        let (size, none) = (what.bytes, null());
        // SAFETY: a live kernel and recording, by the test, which keeps the memory for each submission. The
        // recording keeps the kernel with its arguments.
        unsafe {
            checked(pointer(kernel.raw, 0, what.memory), "setting a pointer")?;
            checked(
                (library.clSetKernelArg)(kernel.raw, 1, 1, byte),
                "clSetKernelArg",
            )?;
            let code = launch(
                what.recording,
                0,
                null(),
                kernel.raw,
                1,
                none,
                &size,
                none,
                0,
                null(),
                null_mut(),
                null_mut(),
            );
            checked(code, "clCommandNDRangeKernelKHR")
        }
    }
}

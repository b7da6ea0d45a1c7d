//! CUDA's own commands, through the driver's library.

use super::{Command, Fill, NativeWork, Recorded};
use std::ffi::c_void;
use std::ptr::null;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use ur::abi::ur_native_handle_t;

pub struct Cuda;

ur::dl::symbols! {
    struct Library {
        required {
            cuStreamGetCtx: unsafe extern "C" fn(stream: usize, context: *mut usize) -> u32,
            cuCtxPushCurrent = "cuCtxPushCurrent_v2": unsafe extern "C" fn(context: usize) -> u32,
            cuCtxPopCurrent = "cuCtxPopCurrent_v2": unsafe extern "C" fn(context: *mut usize) -> u32,
            cuMemsetD8Async: unsafe extern "C" fn(to: u64, value: u8, bytes: usize, stream: usize) -> u32,
            cuMemcpyAsync: unsafe extern "C" fn(to: u64, from: u64, bytes: usize, stream: usize) -> u32,
            cuStreamSynchronize: unsafe extern "C" fn(stream: usize) -> u32,
            cuStreamWaitValue32 = "cuStreamWaitValue32_v2": unsafe extern "C" fn(stream: usize, word: u64, value: u32, flags: u32) -> u32,
            cuStreamWaitEvent: unsafe extern "C" fn(stream: usize, event: usize, flags: u32) -> u32,
            cuEventCreate: unsafe extern "C" fn(event: *mut usize, flags: u32) -> u32,
            cuEventRecord: unsafe extern "C" fn(event: usize, stream: usize) -> u32,
        }
        optional {
            cuStreamBeginCapture = "cuStreamBeginCapture_v2": unsafe extern "C" fn(stream: usize, mode: i32) -> u32,
            cuStreamEndCapture: unsafe extern "C" fn(stream: usize, graph: *mut usize) -> u32,
            cuStreamIsCapturing: unsafe extern "C" fn(stream: usize, status: *mut i32) -> u32,
            cuGraphInstantiateWithFlags: unsafe extern "C" fn(made: *mut usize, graph: usize, flags: u64) -> u32,
            cuGraphLaunch: unsafe extern "C" fn(made: usize, stream: usize) -> u32,
            cuGraphExecDestroy: unsafe extern "C" fn(made: usize) -> u32,
            cuGraphDestroy: unsafe extern "C" fn(graph: usize) -> u32,
            cuGraphAddMemsetNode: unsafe extern "C" fn(node: *mut usize, graph: usize, after: *const usize, count: usize, what: *const Set, context: usize) -> u32,
        }
    }
}

/// The functions of captures.
#[derive(Clone, Copy)]
struct Captures {
    begin: unsafe extern "C" fn(usize, i32) -> u32,
    end: unsafe extern "C" fn(usize, *mut usize) -> u32,
    status: unsafe extern "C" fn(usize, *mut i32) -> u32,
    make: unsafe extern "C" fn(*mut usize, usize, u64) -> u32,
    launch: unsafe extern "C" fn(usize, usize) -> u32,
    destroy_made: unsafe extern "C" fn(usize) -> u32,
    destroy: unsafe extern "C" fn(usize) -> u32,
}

impl Library {
    fn captures(&self) -> Option<Captures> {
        Some(Captures {
            begin: self.cuStreamBeginCapture?,
            end: self.cuStreamEndCapture?,
            status: self.cuStreamIsCapturing?,
            make: self.cuGraphInstantiateWithFlags?,
            launch: self.cuGraphLaunch?,
            destroy_made: self.cuGraphExecDestroy?,
            destroy: self.cuGraphDestroy?,
        })
    }
}

/// A capture in the global mode, the driver's default, which forbids the most calls.
struct CaptureOf {
    library: &'static Library,
    calls: Captures,
    stream: usize,
    open: bool,
}

impl CaptureOf {
    fn end_it(&mut self) -> Result<Graph, String> {
        self.open = false;
        let _current = Current::of(self.library, self.stream)?;
        let (mut graph, mut made) = (0, 0);
        // SAFETY: a live stream, and room for a handle.
        let code = unsafe { (self.calls.end)(self.stream, &mut graph) };
        checked(code, "cuStreamEndCapture")?;
        // SAFETY: a live graph, and room for a handle.
        let code = unsafe { (self.calls.make)(&mut made, graph, 0) };
        // SAFETY: the graph is destroyed once.
        unsafe { (self.calls.destroy)(graph) };
        checked(code, "cuGraphInstantiateWithFlags")?;
        Ok(Graph {
            library: self.library,
            calls: self.calls,
            stream: self.stream,
            made,
        })
    }
}

impl super::Capture for CaptureOf {
    fn is_valid(&self) -> Result<bool, String> {
        let _current = Current::of(self.library, self.stream)?;
        let mut status = 0;
        // SAFETY: a live stream, and room for the status: 1 for a valid capture.
        let code = unsafe { (self.calls.status)(self.stream, &mut status) };
        checked(code, "cuStreamIsCapturing").map(|()| status == 1)
    }

    fn end(mut self: Box<Self>) -> Result<Box<dyn super::Captured>, String> {
        let graph = self.end_it()?;
        Ok(Box::new(graph))
    }
}

impl Drop for CaptureOf {
    fn drop(&mut self) {
        if self.open {
            drop(self.end_it());
        }
    }
}

/// An executable graph.
struct Graph {
    library: &'static Library,
    calls: Captures,
    stream: usize,
    made: usize,
}

impl super::Captured for Graph {
    fn run(&self) -> Result<(), String> {
        let _current = Current::of(self.library, self.stream)?;
        // SAFETY: a live graph and stream; the test keeps what the commands use.
        unsafe {
            checked((self.calls.launch)(self.made, self.stream), "cuGraphLaunch")?;
            checked(
                (self.library.cuStreamSynchronize)(self.stream),
                "cuStreamSynchronize",
            )
        }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the one reference of this value; each run was waited for.
        unsafe { (self.calls.destroy_made)(self.made) };
    }
}

/// The driver's description of a fill in a graph.
#[repr(C)]
struct Set {
    to: u64,
    pitch: usize,
    value: u32,
    unit: u32,
    width: usize,
    height: usize,
}

fn library() -> Result<&'static Library, String> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    let load = || Library::load(&["libcuda.so.1"]).map_err(|error| error.to_string());
    LIBRARY.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn checked(code: u32, call: &str) -> Result<(), String> {
    match code {
        0 => Ok(()),
        code => Err(format!("{call} failed with {code}")),
    }
}

/// A stream's context, current on this thread while the value lives.
struct Current(&'static Library);

impl Current {
    fn of(library: &'static Library, stream: usize) -> Result<Self, String> {
        let mut context = 0;
        // SAFETY: a live stream, by the test.
        unsafe {
            let code = (library.cuStreamGetCtx)(stream, &mut context);
            checked(code, "cuStreamGetCtx")?;
        }
        Self::enter(library, context)
    }

    fn enter(library: &'static Library, context: usize) -> Result<Self, String> {
        // SAFETY: a live context.
        let code = unsafe { (library.cuCtxPushCurrent)(context) };
        checked(code, "cuCtxPushCurrent").map(|()| Self(library))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let mut own = 0;
        // SAFETY: the constructor pushed the context.
        unsafe { (self.0.cuCtxPopCurrent)(&mut own) };
    }
}

/// A word that a stream waits for.
struct Gate(usize);

impl Gate {
    fn open(&self) {
        // SAFETY: the test's word, which outlives this value and is accessed through atomics only.
        let word = unsafe { AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(self.0)) };
        word.store(1, Ordering::Release);
    }
}

/// A fill, and the word that blocks it.
struct Filled {
    gate: Option<Gate>,
    event: usize,
}

impl Command for Filled {
    fn release(&mut self) {
        if let Some(gate) = &self.gate {
            gate.open();
        }
    }

    fn event(&self) -> ur_native_handle_t {
        self.event
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        // The event is not destroyed: an adopter relies on it, and the driver counts no references.
        self.release();
    }
}

impl NativeWork for Cuda {
    fn capture(
        &self,
        stream: ur_native_handle_t,
    ) -> Option<Result<Box<dyn super::Capture>, String>> {
        /// `CU_STREAM_CAPTURE_MODE_GLOBAL`
        const GLOBAL: i32 = 0;
        let library = library().ok()?;
        let calls = library.captures()?;
        let begin = || {
            let _current = Current::of(library, stream)?;
            // SAFETY: a live stream.
            let code = unsafe { (calls.begin)(stream, GLOBAL) };
            checked(code, "cuStreamBeginCapture")?;
            let open = true;
            #[rustfmt::skip]
            let capture = CaptureOf { library, calls, stream, open };
            Ok(Box::new(capture) as Box<dyn super::Capture>)
        };
        Some(begin())
    }

    fn fill(&self, fill: &Fill) -> Result<Box<dyn Command + Send>, String> {
        let library = library()?;
        let _current = Current::of(library, fill.queue)?;
        let gate = fill.held.map(|word| Gate(word.expose_provenance()));
        let mut event = 0;
        // SAFETY: room for a handle; flag 2 disables timing.
        let code = unsafe { (library.cuEventCreate)(&mut event, 2) };
        checked(code, "cuEventCreate")?;
        let filled = Filled { gate, event };
        // SAFETY: a live stream and events; the test keeps the memory and the word.
        unsafe {
            for wait in fill.waits {
                let code = (library.cuStreamWaitEvent)(fill.queue, *wait, 0);
                checked(code, "cuStreamWaitEvent")?;
            }
            if let Some(gate) = &filled.gate {
                let code = (library.cuStreamWaitValue32)(fill.queue, gate.0 as u64, 1, 0);
                checked(code, "cuStreamWaitValue32")?;
            }
            let to = fill.memory.addr() as u64;
            let code = (library.cuMemsetD8Async)(to, fill.byte, fill.bytes, fill.queue);
            checked(code, "cuMemsetD8Async")?;
            checked((library.cuEventRecord)(event, fill.queue), "cuEventRecord")?;
        }
        Ok(Box::new(filled))
    }

    fn copy(
        &self,
        queue: ur_native_handle_t,
        to: &mut [u8],
        from: *const c_void,
    ) -> Option<Result<(), String>> {
        let mut copy = || {
            let library = library()?;
            let (start, from) = (to.as_mut_ptr().addr() as u64, from.addr() as u64);
            // SAFETY: a live stream; both memories have that size, by the test.
            unsafe {
                let code = (library.cuMemcpyAsync)(start, from, to.len(), queue);
                checked(code, "cuMemcpyAsync")?;
                checked((library.cuStreamSynchronize)(queue), "cuStreamSynchronize")
            }
        };
        Some(copy())
    }

    fn record(&self, what: &Recorded) -> Result<(), String> {
        let library = library()?;
        let add = library
            .cuGraphAddMemsetNode
            .ok_or("the driver has no graphs")?;
        let set = Set {
            to: what.memory.addr() as u64,
            pitch: 0,
            value: what.byte.into(),
            unit: 1,
            width: what.bytes,
            height: 1,
        };
        let _current = Current::enter(library, what.context)?;
        let mut node = 0;
        // SAFETY: a live graph and context; the test keeps the memory.
        let code = unsafe { add(&mut node, what.recording, null(), 0, &set, what.context) };
        checked(code, "cuGraphAddMemsetNode")
    }
}

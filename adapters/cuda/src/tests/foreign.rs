//! Foreign code: a program's own calls of the driver, with streams and graphs of its own.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::AtomicU32;

use ur::dl::{Binding, Library};

use super::fake_driver::library;

type Handle = *mut c_void;

ur::dl::symbols! {
    struct Driver {
        required {
            cuDevicePrimaryCtxRetain: unsafe extern "C" fn(*mut Handle, i32) -> u32,
            cuDevicePrimaryCtxRelease_v2: extern "C" fn(i32) -> u32,
            cuCtxPushCurrent_v2: unsafe extern "C" fn(Handle) -> u32,
            cuCtxPopCurrent_v2: unsafe extern "C" fn(*mut Handle) -> u32,
            cuStreamCreateWithPriority: unsafe extern "C" fn(*mut Handle, u32, i32) -> u32,
            cuStreamDestroy_v2: extern "C" fn(Handle) -> u32,
            cuStreamSynchronize: extern "C" fn(Handle) -> u32,
            cuStreamWaitValue32_v2: extern "C" fn(Handle, u64, u32, u32) -> u32,
            cuStreamWaitEvent: extern "C" fn(Handle, Handle, u32) -> u32,
            cuEventCreate: unsafe extern "C" fn(*mut Handle, u32) -> u32,
            cuEventRecord: extern "C" fn(Handle, Handle) -> u32,
            cuEventDestroy_v2: extern "C" fn(Handle) -> u32,
            cuStreamIsCapturing: unsafe extern "C" fn(Handle, *mut i32) -> u32,
            cuStreamBeginCapture_v2: extern "C" fn(Handle, i32) -> u32,
            cuStreamEndCapture: unsafe extern "C" fn(Handle, *mut Handle) -> u32,
            cuMemAlloc_v2: unsafe extern "C" fn(*mut u64, usize) -> u32,
            cuMemFree_v2: extern "C" fn(u64) -> u32,
            cuMemsetD8Async: extern "C" fn(u64, u8, usize, Handle) -> u32,
            cuGraphInstantiateWithFlags: unsafe extern "C" fn(*mut Handle, Handle, u64) -> u32,
            cuGraphLaunch: extern "C" fn(Handle, Handle) -> u32,
            cuGraphExecDestroy: extern "C" fn(Handle) -> u32,
            cuGraphDestroy: extern "C" fn(Handle) -> u32,
        }
        optional {}
    }
}

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`, which forbids the most.
const GLOBAL: i32 = 0;

/// A program that uses the first device's primary context, current on this thread.
pub struct Foreign {
    driver: Driver,
}

fn ok(code: u32) {
    assert_eq!(code, 0, "a call of foreign code");
}

fn handle(name: usize) -> Handle {
    std::ptr::with_exposed_provenance_mut(name)
}

impl Foreign {
    pub fn new() -> Self {
        let library = Library::open(library(), Binding::Usual).expect("the scripted library");
        let driver = Driver::from_library(library).expect("its functions");
        let mut context = null_mut();
        // SAFETY: room for a handle, and a retained context.
        unsafe {
            ok((driver.cuDevicePrimaryCtxRetain)(&mut context, 0));
            ok((driver.cuCtxPushCurrent_v2)(context));
        }
        Self { driver }
    }

    pub fn stream(&self) -> usize {
        let mut stream = null_mut();
        // SAFETY: room for a handle.
        ok(unsafe { (self.driver.cuStreamCreateWithPriority)(&mut stream, 1, 0) });
        stream.expose_provenance()
    }

    /// Makes a stream wait until a word of the host is 1.
    pub fn hold(&self, stream: usize, word: &AtomicU32) {
        let at = std::ptr::from_ref(word).expose_provenance() as u64;
        ok((self.driver.cuStreamWaitValue32_v2)(
            handle(stream),
            at,
            1,
            0,
        ));
    }

    /// A new event, recorded on a stream.
    pub fn event(&self, stream: usize) -> usize {
        let mut event = null_mut();
        // SAFETY: room for a handle; flag 2 disables timing.
        ok(unsafe { (self.driver.cuEventCreate)(&mut event, 2) });
        ok((self.driver.cuEventRecord)(event, handle(stream)));
        event.expose_provenance()
    }

    pub fn destroy_event(&self, event: usize) {
        ok((self.driver.cuEventDestroy_v2)(handle(event)));
    }

    pub fn alloc(&self, bytes: usize) -> usize {
        let mut start = 0;
        // SAFETY: room for an address.
        ok(unsafe { (self.driver.cuMemAlloc_v2)(&mut start, bytes) });
        start as usize
    }

    pub fn free(&self, start: usize) {
        ok((self.driver.cuMemFree_v2)(start as u64));
    }

    pub fn destroy(&self, stream: usize) {
        ok((self.driver.cuStreamDestroy_v2)(handle(stream)));
    }

    pub fn begin(&self, stream: usize) {
        ok((self.driver.cuStreamBeginCapture_v2)(
            handle(stream),
            GLOBAL,
        ));
    }

    /// As [`Foreign::begin`]. False if the driver refuses.
    pub fn try_begin(&self, stream: usize) -> bool {
        (self.driver.cuStreamBeginCapture_v2)(handle(stream), GLOBAL) == 0
    }

    /// As [`Foreign::fill`]. False if the driver refuses.
    pub fn try_fill(&self, stream: usize, at: *mut c_void, byte: u8, bytes: usize) -> bool {
        let at = at.expose_provenance() as u64;
        (self.driver.cuMemsetD8Async)(at, byte, bytes, handle(stream)) == 0
    }

    /// What the driver says of a stream: 0 if it is not captured, 1 if it is, 2 if the capture is of no use.
    pub fn status(&self, stream: usize) -> i32 {
        let mut status = 0;
        // SAFETY: room for the status.
        ok(unsafe { (self.driver.cuStreamIsCapturing)(handle(stream), &mut status) });
        status
    }

    /// Ends a capture. The error is the driver's code.
    pub fn try_end(&self, stream: usize) -> Result<usize, u32> {
        let mut graph = null_mut();
        // SAFETY: room for a handle.
        match unsafe { (self.driver.cuStreamEndCapture)(handle(stream), &mut graph) } {
            0 => Ok(graph.expose_provenance()),
            code => Err(code),
        }
    }

    pub fn end(&self, stream: usize) -> usize {
        self.try_end(stream).expect("a capture that is still valid")
    }

    pub fn fill(&self, stream: usize, at: *mut c_void, byte: u8, bytes: usize) {
        let at = at.expose_provenance() as u64;
        ok((self.driver.cuMemsetD8Async)(
            at,
            byte,
            bytes,
            handle(stream),
        ));
    }

    pub fn wait(&self, stream: usize, event: usize) {
        ok((self.driver.cuStreamWaitEvent)(
            handle(stream),
            handle(event),
            0,
        ));
    }

    /// Runs a graph once on a stream, and waits for it.
    pub fn run(&self, graph: usize, stream: usize) {
        let mut ready = null_mut();
        // SAFETY: room for a handle.
        ok(unsafe { (self.driver.cuGraphInstantiateWithFlags)(&mut ready, handle(graph), 0) });
        ok((self.driver.cuGraphLaunch)(ready, handle(stream)));
        ok((self.driver.cuStreamSynchronize)(handle(stream)));
        ok((self.driver.cuGraphExecDestroy)(ready));
    }

    /// Runs an executable graph of somebody else's once, and waits for it.
    pub fn run_made(&self, ready: usize, stream: usize) {
        ok((self.driver.cuGraphLaunch)(handle(ready), handle(stream)));
        ok((self.driver.cuStreamSynchronize)(handle(stream)));
    }

    pub fn destroy_graph(&self, graph: usize) {
        ok((self.driver.cuGraphDestroy)(handle(graph)));
    }

    pub fn end_use(self) {
        let mut context = null_mut();
        // SAFETY: room for a handle.
        ok(unsafe { (self.driver.cuCtxPopCurrent_v2)(&mut context) });
        ok((self.driver.cuDevicePrimaryCtxRelease_v2)(0));
    }
}

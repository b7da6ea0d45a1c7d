//! The fake driver as a test uses it, and tests in processes of their own.

use std::ffi::{c_char, c_void};
use std::ops::Deref;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::ptr::{null, null_mut};

use scripted::{Answer, Scripted, beside};
use scripted_cuda::Fault;
use ur::abi::*;
use ur::dl::{Binding, Library};

use crate::Cuda;

/// Calls a function of the adapter's table: `ur!(Queue.pfnFinish(queue))`.
macro_rules! ur {
    ($($call:tt)*) => {
        scripted::call!(crate::Cuda, $($call)*)
    };
}
pub(super) use ur;

ur::dl::symbols! {
    struct Control {
        required {
            scripted_fail: unsafe extern "C" fn(Fault, *const c_char),
            scripted_devices: extern "C" fn(usize),
            scripted_anywhere: extern "C" fn(bool),
            cuGraphAddMemsetNode: unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const *mut c_void, usize, *const Set, *mut c_void) -> u32,
            scripted_peers: extern "C" fn(bool),
            scripted_pages: extern "C" fn(bool),
            scripted_elsewhere: extern "C" fn(usize, usize),
            scripted_capture: extern "C" fn(usize),
            scripted_external_memory: extern "C" fn(usize) -> i32,
            scripted_semaphore: extern "C" fn(bool) -> i32,
            scripted_semaphore_count: extern "C" fn(i32) -> u64,
            scripted_semaphore_set: extern "C" fn(i32, u64),
            scripted_edges: extern "C" fn() -> u64,
            scripted_query: extern "C" fn() -> Answer,
            scripted_report: unsafe extern "C" fn(*mut c_char, usize),
            cuCtxGetCurrent: unsafe extern "C" fn(*mut *mut c_void) -> u32,
            cuDevicePrimaryCtxRetain: unsafe extern "C" fn(*mut *mut c_void, i32) -> u32,
            cuDevicePrimaryCtxRelease_v2: extern "C" fn(i32) -> u32,
            cuCtxEnablePeerAccess: extern "C" fn(*mut c_void, u32) -> u32,
            cuCtxDisablePeerAccess: extern "C" fn(*mut c_void) -> u32,
            cuCtxPopCurrent_v2: unsafe extern "C" fn(*mut *mut c_void) -> u32,
            cuCtxPushCurrent_v2: unsafe extern "C" fn(*mut c_void) -> u32,
            cuCtxSetCurrent: unsafe extern "C" fn(*mut c_void) -> u32,
        }
        optional {}
    }
}

/// The driver's structure for a fill.
#[repr(C)]
pub struct Set {
    pub dst: u64,
    pub pitch: usize,
    pub value: u32,
    pub unit: u32,
    pub width: usize,
    pub height: usize,
}

/// The open fake driver. From now on, a search for the driver in this process finds it.
pub struct FakeDriver(Control, Scripted<u32>);

impl Deref for FakeDriver {
    type Target = Scripted<u32>;

    fn deref(&self) -> &Self::Target {
        &self.1
    }
}

pub fn library() -> PathBuf {
    beside("libscripted_cuda.so")
}

impl FakeDriver {
    pub fn open() -> Self {
        let library = Library::open(library(), Binding::Usual).expect("the scripted library");
        let control = Control::from_library(library).expect("its functions");
        let scripted = Scripted {
            fail: control.scripted_fail,
            query: control.scripted_query,
            report: control.scripted_report,
        };
        Self(control, scripted)
    }

    /// Total dependencies of the graph nodes added since the script was set.
    pub fn edges(&self) -> u64 {
        (self.0.scripted_edges)()
    }

    /// Sets the number of devices. It must be called before the adapter looks for them.
    pub fn devices(&self, count: usize) {
        (self.0.scripted_devices)(count);
    }

    /// Sets whether streams and events are accepted under any current context, as newer drivers do.
    pub fn anywhere(&self, anywhere: bool) {
        (self.0.scripted_anywhere)(anywhere);
    }

    /// Sets whether devices have links between them, before the adapter looks for them.
    pub fn peers(&self, can_peer: bool) {
        (self.0.scripted_peers)(can_peer);
    }

    /// Sets whether devices have pages that can be mapped.
    pub fn pages(&self, pages: bool) {
        (self.0.scripted_pages)(pages);
    }

    /// Declares a range of memory to be the second device's, which other devices' streams cannot access.
    pub fn elsewhere(&self, start: *mut c_void, bytes: usize) {
        (self.0.scripted_elsewhere)(start.expose_provenance(), bytes);
    }

    /// Begins or ends a capture by foreign code, of a stream of the adapter or of another one.
    pub fn capture(&self, stream: Option<usize>) {
        (self.0.scripted_capture)(stream.unwrap_or(0));
    }

    /// Memory of another interface.
    pub fn external_memory(&self, bytes: usize) -> OwnedFd {
        let descriptor = (self.0.scripted_external_memory)(bytes);
        assert!(descriptor >= 0, "a file");
        // SAFETY: a descriptor of the caller's.
        unsafe { OwnedFd::from_raw_fd(descriptor) }
    }

    /// A semaphore of another interface: one that counts, or a binary one.
    pub fn semaphore(&self, counts: bool) -> OwnedFd {
        let descriptor = (self.0.scripted_semaphore)(counts);
        assert!(descriptor >= 0, "a file");
        // SAFETY: a descriptor of the caller's.
        unsafe { OwnedFd::from_raw_fd(descriptor) }
    }

    pub fn semaphore_count(&self, semaphore: &OwnedFd) -> u64 {
        (self.0.scripted_semaphore_count)(semaphore.as_raw_fd())
    }

    /// Sets the count of a semaphore, as the other interface does.
    pub fn set_semaphore(&self, semaphore: &OwnedFd, count: u64) {
        (self.0.scripted_semaphore_set)(semaphore.as_raw_fd(), count);
    }

    /// Adds a fill without dependencies to a graph, as an application may.
    pub fn add_set(&self, graph: usize, set: &Set) {
        let (mut node, mut context) = (null_mut(), null_mut());
        let mut primary = null_mut();
        let graph = std::ptr::with_exposed_provenance_mut(graph);
        // SAFETY: room for handles, a live graph, and a readable description.
        let code = unsafe {
            (self.0.cuDevicePrimaryCtxRetain)(&mut primary, 0);
            (self.0.cuCtxPushCurrent_v2)(primary);
            let code = (self.0.cuGraphAddMemsetNode)(&mut node, graph, null(), 0, set, primary);
            (self.0.cuCtxPopCurrent_v2)(&mut context);
            (self.0.cuDevicePrimaryCtxRelease_v2)(0);
            code
        };
        assert_eq!(code, 0);
    }

    /// Enables or disables access of the first device to the second between their retained primary contexts, as
    /// an application may. Returns the driver's code.
    pub fn link(&self, on: bool) -> u32 {
        let (mut contexts, mut popped) = ([null_mut(); 2], null_mut());
        for (device, context) in contexts.iter_mut().enumerate() {
            // SAFETY: room for a handle.
            unsafe { (self.0.cuDevicePrimaryCtxRetain)(context, device as i32) };
        }
        // SAFETY: the first context is retained here.
        unsafe { (self.0.cuCtxPushCurrent_v2)(contexts[0]) };
        let code = match on {
            true => (self.0.cuCtxEnablePeerAccess)(contexts[1], 0),
            false => (self.0.cuCtxDisablePeerAccess)(contexts[1]),
        };
        // SAFETY: room for a handle.
        unsafe { (self.0.cuCtxPopCurrent_v2)(&mut popped) };
        for device in [0, 1] {
            (self.0.cuDevicePrimaryCtxRelease_v2)(device);
        }
        code
    }

    /// The calling thread's current context.
    pub fn current(&self) -> usize {
        let mut context = null_mut();
        // SAFETY: room for a handle.
        unsafe { (self.0.cuCtxGetCurrent)(&mut context) };
        context.addr()
    }

    /// Makes a context current, as an application may.
    pub fn make_current(&self, context: usize) {
        // SAFETY: the scripted library does not access contexts.
        unsafe { (self.0.cuCtxPushCurrent_v2)(std::ptr::without_provenance_mut(context)) };
    }

    /// Replaces the current context.
    pub fn set_current(&self, context: usize) {
        // SAFETY: the scripted library does not access contexts.
        unsafe { (self.0.cuCtxSetCurrent)(std::ptr::without_provenance_mut(context)) };
    }
}

/// The one adapter, with a reference.
pub fn adapter() -> ur_adapter_handle_t {
    scripted::adapter::<Cuda>().expect("a driver")
}

/// The first device of the one platform.
pub fn device(adapter: ur_adapter_handle_t) -> ur_device_handle_t {
    devices(adapter)[0]
}

/// All its devices.
pub fn devices(adapter: ur_adapter_handle_t) -> Vec<ur_device_handle_t> {
    // SAFETY: tests keep their adapter.
    unsafe { scripted::devices::<Cuda>(adapter) }
}

/// Runs a test in a process of its own. `name` is its path in this crate.
pub fn alone(name: &str, test: impl FnOnce()) {
    alone_with(name, &[], test);
}

/// Runs a test in a process with these variables. Returns what the process wrote, and within it nothing.
pub fn alone_with(name: &str, variables: &[(&str, &str)], test: impl FnOnce()) -> Option<String> {
    let prepare = |command: &mut Command| {
        command.envs(variables.iter().copied());
    };
    scripted::alone(name, prepare, test)
}

//! The fake driver as a test uses it, and tests in processes of their own.

use std::env;
use std::ffi::{CStr, CString, c_char, c_void};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use scripted_cuda::{Answer, EACH, Fault};
use ur::abi::*;
use ur::dl::{Binding, Library};

/// Calls a function of the adapter's table: `ur!(Queue.pfnFinish(queue))`.
macro_rules! ur {
    ($table:ident.$slot:ident($($arg:expr),* $(,)?)) => {{
        let table = <crate::Cuda as ur::hal::Exported>::table();
        let function = table.$table.$slot.expect("no slot is null");
        // SAFETY: live handles and pointers, or ones that the call refuses.
        unsafe { function($($arg),*) }
    }};
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
pub struct FakeDriver(Control);

/// Cargo puts the library beside this program.
pub fn library() -> PathBuf {
    let own = env::current_exe().expect("this program");
    let folder = own.parent().expect("a folder").to_owned();
    folder.join("libscripted_cuda.so")
}

impl FakeDriver {
    pub fn open() -> Self {
        let library = Library::open(library(), Binding::Usual).expect("the scripted library");
        Self(Control::from_library(library).expect("its functions"))
    }

    /// Makes the nth call from now fail, and resets the state.
    pub fn fail(&self, nth: u64, code: u32) {
        // SAFETY: the name is null.
        unsafe { (self.0.scripted_fail)(Fault { nth, code }, null()) };
    }

    /// Makes every call of one function fail.
    pub fn fail_each(&self, name: &str, code: u32) {
        let name = CString::new(name).expect("a name");
        // SAFETY: a C string.
        unsafe { (self.0.scripted_fail)(Fault { nth: EACH, code }, name.as_ptr()) };
    }

    /// Makes the nth call of one function from now fail, and counts the calls of this function alone.
    pub fn fail_nth(&self, name: &str, nth: u64, code: u32) {
        let name = CString::new(name).expect("a name");
        // SAFETY: a C string.
        unsafe { (self.0.scripted_fail)(Fault { nth, code }, name.as_ptr()) };
    }

    /// Counts the calls of one function from now on.
    pub fn count(&self, name: &str) {
        self.fail_nth(name, 0, 0);
    }

    /// The number of driver calls while `run` runs. None of them may be a forbidden one.
    pub fn calls(&self, name: &str, run: impl FnOnce()) -> u64 {
        self.count(name);
        run();
        let seen = self.query();
        assert_eq!(seen.broken, 0, "{}", self.report());
        self.reset();
        seen.calls
    }

    /// Makes every call succeed again.
    pub fn reset(&self) {
        self.fail(0, 0);
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

    pub fn query(&self) -> Answer {
        (self.0.scripted_query)()
    }

    pub fn report(&self) -> String {
        let mut buffer = vec![0; 4096];
        // SAFETY: the output has room for this many bytes.
        unsafe { (self.0.scripted_report)(buffer.as_mut_ptr(), buffer.len()) };
        // SAFETY: the call terminates the text with a NUL.
        let text = unsafe { CStr::from_ptr(buffer.as_ptr()) };
        text.to_string_lossy().into_owned()
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

    /// Checks that no object is alive, once the adapter's threads have ended, and that no call was forbidden.
    pub fn check_end(&self, when: &str) {
        let end = Instant::now() + Duration::from_secs(10);
        while self.query().live > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        let seen = self.query();
        assert!(
            seen.live == 0 && seen.broken == 0,
            "{when}: {}",
            self.report()
        );
    }
}

/// The one adapter, with a reference.
pub fn adapter() -> ur_adapter_handle_t {
    let (mut adapter, mut count) = (null_mut(), 0);
    let code = ur!(Adapter.pfnGet(1, &mut adapter, &mut count));
    assert_eq!((code, count), (UR_RESULT_SUCCESS, 1));
    adapter
}

/// The first device of the one platform.
pub fn device(adapter: ur_adapter_handle_t) -> ur_device_handle_t {
    devices(adapter)[0]
}

/// All its devices.
pub fn devices(adapter: ur_adapter_handle_t) -> Vec<ur_device_handle_t> {
    let (mut platform, mut count) = (null_mut(), 0);
    let code = ur!(Platform.pfnGet(adapter, 1, &mut platform, null_mut()));
    assert_eq!(code, UR_RESULT_SUCCESS);
    let all = UR_DEVICE_TYPE_ALL;
    let code = ur!(Device.pfnGet(platform, all, 0, null_mut(), &mut count));
    assert_eq!(code, UR_RESULT_SUCCESS);
    let mut devices = vec![null_mut(); count as usize];
    let code = ur!(Device.pfnGet(platform, all, count, devices.as_mut_ptr(), null_mut()));
    assert_eq!(code, UR_RESULT_SUCCESS);
    devices
}

const ALONE: &str = "SCRIPTED_ALONE";

/// Runs a test in a process of its own. `name` is its path in this crate.
pub fn alone(name: &str, test: impl FnOnce()) {
    alone_with(name, &[], test);
}

/// Runs a test in a process with these environment variables.
///
/// Returns the standard error of that process. Within that process itself it returns `None`.
pub fn alone_with(name: &str, variables: &[(&str, &str)], test: impl FnOnce()) -> Option<String> {
    if env::var_os(ALONE).is_some_and(|own| own == name) {
        test();
        return None;
    }
    let mut command = Command::new(env::current_exe().expect("this program"));
    command
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, name)
        .envs(variables.iter().copied());
    let output = command.output().expect("a process");
    let reported = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{reported}{errors}");
    assert!(
        reported.contains("1 passed"),
        "no test is called {name}: {reported}"
    );
    Some(errors.into_owned())
}

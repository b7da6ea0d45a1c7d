//! The fake OpenCL library as a test uses it, and tests in processes of their own.

use std::env;
use std::ffi::{CStr, CString, OsString, c_char};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use opencl_sys::{cl_command_type, cl_int};
use scripted_opencl::{Answer, EACH, Fault, Shape};
use ur::abi::*;
use ur::dl::{Binding, Library};

/// Calls a function of the adapter's table: `ur!(Queue.pfnFinish(queue))`.
macro_rules! ur {
    ($table:ident.$slot:ident($($arg:expr),* $(,)?)) => {{
        let table = <crate::OpenCl as ur::hal::Exported>::table();
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
            scripted_fail_command: extern "C" fn(cl_command_type, Fault),
            scripted_shape: extern "C" fn(Shape),
            scripted_query: extern "C" fn() -> Answer,
            scripted_report: unsafe extern "C" fn(*mut c_char, usize),
        }
        optional {}
    }
}

/// The open fake library. From now on, a search for OpenCL in this process finds it.
pub struct FakeDriver(Control);

/// Cargo puts the library beside this program.
pub fn library() -> PathBuf {
    let own = env::current_exe().expect("this program");
    let folder = own.parent().expect("a folder").to_owned();
    folder.join("libscripted_opencl.so")
}

impl FakeDriver {
    pub fn open() -> Self {
        let library = Library::open(library(), Binding::Usual).expect("the scripted library");
        Self(Control::from_library(library).expect("its functions"))
    }

    pub fn shape(&self, shape: Shape) {
        (self.0.scripted_shape)(shape);
    }

    /// Makes the nth call from now fail, and resets the state.
    pub fn fail(&self, nth: u64, code: cl_int) {
        // SAFETY: the name is null.
        unsafe { (self.0.scripted_fail)(Fault { nth, code }, null()) };
    }

    /// Makes the nth command of a type from now fail when it runs.
    pub fn fail_command(&self, kind: cl_command_type, nth: u64, code: cl_int) {
        (self.0.scripted_fail_command)(kind, Fault { nth, code });
    }

    /// Makes every call of one function fail.
    pub fn fail_each(&self, name: &str, code: cl_int) {
        let name = CString::new(name).expect("a name");
        // SAFETY: a C string.
        unsafe { (self.0.scripted_fail)(Fault { nth: EACH, code }, name.as_ptr()) };
    }

    /// Makes every call succeed again.
    pub fn reset(&self) {
        self.fail(0, 0);
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

    /// Checks that no object is alive and that no call was forbidden.
    pub fn check_end(&self, when: &str) {
        self.check_live(0, when);
    }

    /// Checks the number of live objects, once the adapter's threads have ended, and that no call was
    /// forbidden.
    pub fn check_live(&self, live: usize, when: &str) {
        let end = Instant::now() + Duration::from_secs(10);
        while self.query().live > live && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        let seen = self.query();
        assert_eq!(
            (seen.live, seen.broken),
            (live, 0),
            "{when}: {}",
            self.report()
        );
    }
}

/// The one adapter, if OpenCL has a device for it.
pub fn adapter() -> Option<ur_adapter_handle_t> {
    let (mut adapter, mut count) = (null_mut(), 0);
    let code = ur!(Adapter.pfnGet(1, &mut adapter, &mut count));
    assert_eq!(code, UR_RESULT_SUCCESS);
    (count > 0).then_some(adapter)
}

/// The one device of the one platform.
pub fn device(adapter: ur_adapter_handle_t) -> ur_device_handle_t {
    let (mut platform, mut device) = (null_mut(), null_mut());
    let code = ur!(Platform.pfnGet(adapter, 1, &mut platform, null_mut()));
    assert_eq!(code, UR_RESULT_SUCCESS);
    let all = UR_DEVICE_TYPE_ALL;
    let code = ur!(Device.pfnGet(platform, all, 1, &mut device, null_mut()));
    assert_eq!(code, UR_RESULT_SUCCESS);
    device
}

const ALONE: &str = "SCRIPTED_ALONE";

/// Runs a test in a process of its own.
///
/// `name` is its path in this crate; `variables` are the process's environment variables.
pub fn alone(name: &str, variables: &[(&str, OsString)], test: impl FnOnce()) {
    if env::var_os(ALONE).is_some_and(|own| own == name) {
        return test();
    }
    let mut command = Command::new(env::current_exe().expect("this program"));
    command
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, name);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let output = command.output().expect("a process");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("1 passed"),
        "no test is called {name}: {text}"
    );
}

/// A folder with a file by OpenCL's name, and the variable that makes the loader find it first. It is removed
/// on drop.
pub struct Folder(PathBuf);

impl Folder {
    pub fn with(name: &str, bytes: &[u8]) -> Self {
        let folder = env::temp_dir().join(format!("scripted-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        for name in ["libOpenCL.so.1", "libOpenCL.so"] {
            fs::write(folder.join(name), bytes).expect("a file");
        }
        Self(folder)
    }

    pub fn variable(&self) -> (&'static str, OsString) {
        ("LD_LIBRARY_PATH", self.0.clone().into())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The removal may fail, which leaves a file in the temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

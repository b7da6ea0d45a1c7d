//! The fake OpenCL library as a test uses it, and tests in processes of their own.

use std::env;
use std::ffi::{OsString, c_char};
use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;

use opencl_sys::{cl_command_type, cl_int};
use scripted::{Answer, Scripted, beside};
use scripted_opencl::{Fault, Shape};
use ur::abi::*;
use ur::dl::{Binding, Library};

use crate::OpenCl;

/// Calls a function of the adapter's table: `ur!(Queue.pfnFinish(queue))`.
macro_rules! ur {
    ($($call:tt)*) => {
        scripted::call!(crate::OpenCl, $($call)*)
    };
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
pub struct FakeDriver(Control, Scripted<cl_int>);

impl Deref for FakeDriver {
    type Target = Scripted<cl_int>;

    fn deref(&self) -> &Self::Target {
        &self.1
    }
}

pub fn library() -> PathBuf {
    beside("libscripted_opencl.so")
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

    pub fn shape(&self, shape: Shape) {
        (self.0.scripted_shape)(shape);
    }

    /// Makes the nth command of a type from now fail when it runs.
    pub fn fail_command(&self, kind: cl_command_type, nth: u64, code: cl_int) {
        (self.0.scripted_fail_command)(kind, Fault { nth, code });
    }

    /// Checks the number of live objects, once the adapter's threads have ended, and that no call was
    /// forbidden.
    pub fn check_live(&self, live: usize, when: &str) {
        assert_eq!(self.end_with(live), None, "{when}");
        assert_eq!(self.query().live, live, "{when}: {}", self.report());
    }
}

/// The one adapter, if OpenCL has a device for it.
pub fn adapter() -> Option<ur_adapter_handle_t> {
    scripted::adapter::<OpenCl>()
}

/// The one device of the one platform.
pub fn device(adapter: ur_adapter_handle_t) -> ur_device_handle_t {
    // SAFETY: tests keep their adapter.
    let devices = unsafe { scripted::devices::<OpenCl>(adapter) };
    devices[0]
}

/// Runs a test in a process with these variables. `name` is its path in this crate.
pub fn alone(name: &str, variables: &[(&str, OsString)], test: impl FnOnce()) {
    let prepare = |command: &mut Command| {
        command.envs(variables.iter().map(|(name, value)| (name, value)));
    };
    scripted::alone(name, prepare, test);
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

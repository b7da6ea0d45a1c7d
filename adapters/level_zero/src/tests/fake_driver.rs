//! The scripted driver as a test uses it, and tests in processes of their own.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{c_char, c_void};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use scripted::{Answer, Scripted, beside};
use scripted_level_zero::Fault;
use ur::abi::*;
use ur::dl::{Binding, Library};

use crate::LevelZero;
use crate::lz::ze_device_mem_alloc_desc_t;

/// Calls a function of the adapter's table: `ur!(Queue.pfnFinish(queue))`.
macro_rules! ur {
    ($($call:tt)*) => {
        scripted::call!(crate::LevelZero, $($call)*)
    };
}
pub(super) use ur;

ur::dl::symbols! {
    struct Control {
        required {
            scripted_fail: unsafe extern "C" fn(Fault, *const c_char),
            scripted_fail_from: extern "C" fn(Fault),
            scripted_lose_device: extern "C" fn(usize),
            scripted_query: extern "C" fn() -> Answer,
            scripted_report: unsafe extern "C" fn(*mut c_char, usize),
            scripted_counts: unsafe extern "C" fn(*mut c_char, usize),
            zeMemAllocDevice: unsafe extern "C" fn(
                *mut c_void, *const ze_device_mem_alloc_desc_t, usize, usize, *mut c_void, *mut *mut c_void,
            ) -> u32,
            zeCommandListImmediateGetIndex: unsafe extern "C" fn(*mut c_void, *mut u32) -> u32,
        }
        optional {
            zeCommandListBeginGraphCaptureExt: unsafe extern "C" fn(*mut c_void, *const c_void) -> u32,
            zeCommandListEndGraphCaptureExt: unsafe extern "C" fn(
                *mut c_void, *const c_void, *mut *mut c_void,
            ) -> u32,
            zeGraphDestroyExt: unsafe extern "C" fn(*mut c_void) -> u32,
        }
    }
}

/// The open driver. From now on, a search for the loader in this process finds it.
pub struct FakeDriver(Control, Scripted<u32>);

/// Functions that the library lacks in this process: names with commas between.
pub const LACKS: &str = "SCRIPTED_TEST_LACKS";

impl Deref for FakeDriver {
    type Target = Scripted<u32>;

    fn deref(&self) -> &Self::Target {
        &self.1
    }
}

fn library() -> PathBuf {
    beside("libscripted_level_zero.so")
}

/// A copy of the library in which these functions have other names: a search for them finds nothing.
fn without(names: &str) -> PathBuf {
    let mut bytes = std::fs::read(library()).expect("the scripted library");
    for name in names.split(',') {
        let text = [b"\0", name.as_bytes(), b"\0"].concat();
        let found = bytes.windows(text.len()).position(|part| part == text);
        // The first place is the list of names of the dynamic linker.
        bytes[found.expect("an exported name") + 1] = b'_';
    }
    let name = format!("scripted-level-zero-{}.so", std::process::id());
    let path = env::temp_dir().join(name);
    std::fs::write(&path, bytes).expect("a writable folder");
    path
}

impl FakeDriver {
    pub fn open() -> Self {
        let lacks = env::var(LACKS).unwrap_or_default();
        let path = match lacks.is_empty() {
            true => library(),
            false => without(&lacks),
        };
        let opened = Library::open(&path, Binding::Usual).expect("the scripted library");
        if !lacks.is_empty() {
            std::fs::remove_file(path).expect("it is there");
        }
        watch();
        let control = Control::from_library(opened).expect("its functions");
        let scripted = Scripted {
            fail: control.scripted_fail,
            query: control.scripted_query,
            report: control.scripted_report,
        };
        Self(control, scripted)
    }

    /// Makes the nth call from now fail, and each one after it that frees nothing.
    pub fn fail_from(&self, nth: u64, code: u32) {
        (self.0.scripted_fail_from)(Fault { nth, code });
    }

    pub fn lose_device(&self, index: usize) {
        (self.0.scripted_lose_device)(index);
    }

    /// The index of the queue that a native immediate list submits to.
    pub fn list_index(&self, native: ur_native_handle_t) -> u32 {
        let mut index = u32::MAX;
        let list = std::ptr::with_exposed_provenance_mut(native);
        // SAFETY: a live list of a test's.
        let code = unsafe { (self.0.zeCommandListImmediateGetIndex)(list, &mut index) };
        assert_eq!(code, 0, "zeCommandListImmediateGetIndex");
        index
    }

    /// Device memory that nobody but the driver knows, by native handles.
    pub fn device_memory(
        &self,
        context: ur_native_handle_t,
        device: ur_native_handle_t,
        bytes: usize,
    ) -> usize {
        let [context, device] = [context, device].map(std::ptr::with_exposed_provenance_mut);
        let (desc, mut at) = (ze_device_mem_alloc_desc_t::default(), null_mut());
        // SAFETY: live handles, a description with its tag, and room for the address.
        let code = unsafe { (self.0.zeMemAllocDevice)(context, &desc, bytes, 0, device, &mut at) };
        assert_eq!(code, 0, "zeMemAllocDevice");
        at.expose_provenance()
    }

    /// Captures a native list as foreign code does, while `run` runs.
    pub fn captured(&self, native: ur_native_handle_t, run: impl FnOnce()) {
        let list = std::ptr::with_exposed_provenance_mut(native);
        let (calls, mut graph) = (&self.0, null_mut());
        let begin = calls.zeCommandListBeginGraphCaptureExt.expect("captures");
        let end = calls.zeCommandListEndGraphCaptureExt.expect("captures");
        let destroy = calls.zeGraphDestroyExt.expect("captures");
        // SAFETY: a live list of a test's, and room for the graph.
        unsafe {
            assert_eq!(begin(list, null()), 0);
            run();
            assert_eq!(end(list, null(), &mut graph), 0);
            assert_eq!(destroy(graph), 0);
        }
    }

    /// The calls since the last script, by function.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let text = self.text(self.0.scripted_counts);
        let line = |line: &str| {
            let (name, count) = line.split_once(' ').expect("a name and a number");
            (name.to_owned(), count.parse().expect("a number"))
        };
        text.lines().map(line).collect()
    }
}

/// A case that runs, and until when.
static CASE: Mutex<Option<(String, Instant)>> = Mutex::new(None);

/// The longest that a case may take, on a machine that others use too.
const LIMIT: Duration = Duration::from_secs(60);

/// Names the case that runs from now on. The process ends with its name if it takes too long.
pub fn case(name: &str) {
    *CASE.lock().expect("no panic") = Some((name.to_owned(), Instant::now() + LIMIT));
}

/// Starts the watchdog.
fn watch() {
    case("start");
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let Ok(case) = CASE.lock() else { return };
            if let Some((name, end)) = &*case
                && Instant::now() > *end
            {
                eprintln!("hangs: {name}");
                std::process::abort();
            }
        }
    });
}

/// The one adapter, with a reference. Null if there is none.
pub fn adapter() -> ur_adapter_handle_t {
    scripted::adapter::<LevelZero>().unwrap_or(null_mut())
}

/// The devices of the one platform.
pub fn devices(adapter: ur_adapter_handle_t) -> Vec<ur_device_handle_t> {
    // SAFETY: tests keep their adapter.
    unsafe { scripted::devices::<LevelZero>(adapter) }
}

/// Runs a test in a process of its own, on two devices. `name` is its path in this crate.
pub fn alone(name: &str, test: impl FnOnce()) {
    alone_with(name, &[], test);
}

/// Runs a test in a process with these variables. Returns what the process wrote, and within it nothing.
pub fn alone_with(name: &str, variables: &[(&str, &str)], test: impl FnOnce()) -> Option<String> {
    let prepare = |command: &mut Command| {
        command
            .env("SCRIPTED_LEVEL_ZERO_DEVICES", "2")
            // No OpenCL driver: compilers take their time.
            .env("OCL_ICD_VENDORS", "/nonexistent")
            .env_remove("OCL_ICD_FILENAMES")
            .envs(variables.iter().copied());
    };
    scripted::alone(name, prepare, test)
}

/// The folder of Intel's OpenCL driver. None, said aloud, if it was not fetched.
pub fn opencl() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let repository = here.ancestors().nth(2).unwrap_or(here);
    let given = env::var_os("UR_DRIVERS").map(PathBuf::from);
    let drivers = given.unwrap_or_else(|| repository.join("target/drivers"));
    let entries = std::fs::read_dir(&drivers).into_iter().flatten().flatten();
    let mut folders = entries.map(|entry| entry.path().join("lib"));
    let found = folders.find(|lib| lib.join("libintelocl.so").exists());
    if found.is_none() {
        println!(
            "skipped: no Intel OpenCL driver in {}: scripts/drivers.sh has not run",
            drivers.display()
        );
    }
    found
}

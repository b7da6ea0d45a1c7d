//! The scripted driver as a test uses it, and tests in processes of their own.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use scripted_level_zero::{Answer, EACH, Fault};
use ur::abi::*;
use ur::dl::{Binding, Library};

/// Calls a function of the adapter's table: `ur!(Queue.pfnFinish(queue))`.
macro_rules! ur {
    ($table:ident.$slot:ident($($arg:expr),* $(,)?)) => {{
        let table = <crate::LevelZero as ur::hal::Exported>::table();
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
            scripted_fail_from: extern "C" fn(Fault),
            scripted_lose_device: extern "C" fn(usize),
            scripted_query: extern "C" fn() -> Answer,
            scripted_report: unsafe extern "C" fn(*mut c_char, usize),
            scripted_counts: unsafe extern "C" fn(*mut c_char, usize),
        }
        optional {}
    }
}

/// The open driver. From now on, a search for the loader in this process finds it.
pub struct FakeDriver(Control);

/// Functions that the library lacks in this process: names with commas between.
pub const LACKS: &str = "SCRIPTED_TEST_LACKS";

/// Cargo puts the library beside this program.
fn library() -> PathBuf {
    let own = env::current_exe().expect("this program");
    let folder = own.parent().expect("a folder").to_owned();
    folder.join("libscripted_level_zero.so")
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
        Self(Control::from_library(opened).expect("its functions"))
    }

    /// Makes every call succeed again, and counts from 0.
    pub fn reset(&self) {
        self.fail_call(null(), 0, 0);
    }

    /// Makes the nth call of one function from now fail.
    pub fn fail(&self, name: &str, nth: u64, code: u32) {
        let name = CString::new(name).expect("a name");
        self.fail_call(name.as_ptr(), nth, code);
    }

    /// Makes every call of one function fail.
    pub fn fail_each(&self, name: &str, code: u32) {
        self.fail(name, EACH, code);
    }

    /// Makes the nth call from now fail, of any function.
    pub fn fail_nth(&self, nth: u64, code: u32) {
        self.fail_call(null(), nth, code);
    }

    fn fail_call(&self, name: *const c_char, nth: u64, code: u32) {
        // SAFETY: the name is null or a C string.
        unsafe { (self.0.scripted_fail)(Fault { nth, code }, name) };
    }

    /// Makes the nth call from now fail, and each one after it that frees nothing.
    pub fn fail_from(&self, nth: u64, code: u32) {
        (self.0.scripted_fail_from)(Fault { nth, code });
    }

    pub fn lose_device(&self, index: usize) {
        (self.0.scripted_lose_device)(index);
    }

    pub fn query(&self) -> Answer {
        (self.0.scripted_query)()
    }

    pub fn report(&self) -> String {
        self.text(self.0.scripted_report)
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

    fn text(&self, write: unsafe extern "C" fn(*mut c_char, usize)) -> String {
        let mut buffer = vec![0; 1 << 16];
        // SAFETY: the output has room for this many bytes.
        unsafe { write(buffer.as_mut_ptr(), buffer.len()) };
        // SAFETY: the call terminates the text with a NUL.
        let text = unsafe { CStr::from_ptr(buffer.as_ptr()) };
        text.to_string_lossy().into_owned()
    }

    /// The state if more than `known` objects are alive once the adapter's threads have ended, or if a call was
    /// forbidden.
    pub fn end_with(&self, known: usize) -> Option<String> {
        let end = Instant::now() + Duration::from_secs(2);
        while self.query().live > known && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(200));
        }
        let seen = self.query();
        let clean = seen.live <= known && seen.broken == 0 && seen.missed == 0;
        (!clean).then(|| self.report())
    }

    /// Checks that no object is alive, once the adapter's threads have ended, and that no call was forbidden.
    pub fn check_end(&self, when: &str) {
        assert_eq!(self.end_with(0), None, "{when}");
    }
}

/// A case that runs, and until when.
static CASE: Mutex<Option<(String, Instant)>> = Mutex::new(None);

/// The longest that a case may take.
const LIMIT: Duration = Duration::from_secs(10);

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
    let (mut adapter, mut count) = (null_mut(), 0);
    let code = ur!(Adapter.pfnGet(1, &mut adapter, &mut count));
    assert_eq!(code, UR_RESULT_SUCCESS);
    adapter
}

/// The devices of the one platform.
pub fn devices(adapter: ur_adapter_handle_t) -> Vec<ur_device_handle_t> {
    let (mut platform, mut platforms, mut count) = (null_mut(), 0, 0);
    let code = ur!(Platform.pfnGet(adapter, 1, &mut platform, &mut platforms));
    assert_eq!((code, platforms), (UR_RESULT_SUCCESS, 1));
    let all = UR_DEVICE_TYPE_ALL;
    let code = ur!(Device.pfnGet(platform, all, 0, null_mut(), &mut count));
    assert_eq!(code, UR_RESULT_SUCCESS);
    let mut devices = vec![null_mut(); count as usize];
    let code = ur!(Device.pfnGet(platform, all, count, devices.as_mut_ptr(), null_mut()));
    assert_eq!(code, UR_RESULT_SUCCESS);
    devices
}

const ALONE: &str = "SCRIPTED_ALONE";

/// Runs a test in a process of its own, on two devices. `name` is its path in this crate.
pub fn alone(name: &str, test: impl FnOnce()) {
    alone_with(name, &[], test);
}

/// Runs a test in a process with these variables. Returns what the process wrote, and within it nothing.
pub fn alone_with(name: &str, variables: &[(&str, &str)], test: impl FnOnce()) -> Option<String> {
    if env::var_os(ALONE).is_some_and(|own| own == name) {
        test();
        return None;
    }
    let mut command = Command::new(env::current_exe().expect("this program"));
    command
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, name)
        .env("SCRIPTED_LEVEL_ZERO_DEVICES", "2")
        // No OpenCL driver: compilers take their time.
        .env("OCL_ICD_VENDORS", "/nonexistent")
        .env_remove("OCL_ICD_FILENAMES")
        .envs(variables.iter().copied());
    let output = command.output().expect("a process");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{variables:?}: {text}");
    assert!(
        text.contains("1 passed"),
        "no test is called {name}: {text}"
    );
    Some(text)
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

//! The test's side: an open driver.

use std::env;
use std::ffi::{CStr, CString, c_char};
use std::fmt::{Debug, Display};
use std::path::PathBuf;
use std::ptr::null;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::script::{Answer, EACH, Fault};

/// The longest time that an adapter's threads take to end their objects.
const END: Duration = Duration::from_secs(5);

/// A library that Cargo puts beside this program.
pub fn beside(library: &str) -> PathBuf {
    let own = env::current_exe().expect("this program");
    own.with_file_name(library)
}

/// The failed steps of a workload, and whether the data that it read back is right.
pub type Outcome<Step> = (Vec<Step>, bool);

/// The functions of an open driver that every script has.
pub struct Scripted<Code> {
    pub fail: unsafe extern "C" fn(Fault<Code>, *const c_char),
    pub query: extern "C" fn() -> Answer,
    pub report: unsafe extern "C" fn(*mut c_char, usize),
}

impl<Code: Default + Copy + Display> Scripted<Code> {
    /// Runs a workload without a failure, then once for each of its calls, of which there are `least` or more, with
    /// that call failing. The adapter's threads make up to `beyond` more.
    ///
    /// No failure may leak an object, use a released one or return a wrong result as a success. Nobody may keep it
    /// silent but where the function is in `silent`, which names each with a reason.
    pub fn fail_each_call<Step: Debug>(
        &self,
        code: Code,
        (least, beyond): (u64, u64),
        silent: &[(&str, &str)],
        play: impl Fn() -> Outcome<Step>,
    ) {
        self.reset();
        let (failed, right) = play();
        assert!(failed.is_empty() && right, "{failed:?}, right: {right}");
        self.check_end("a workload");
        let calls = self.query().calls;
        assert!(calls > least, "{calls} calls that could fail");
        let mut met = 0;
        for nth in 1..=calls + beyond {
            self.fail(nth, code);
            let (failed, right) = play();
            let when = format!("call {nth} failed with {code}: {failed:?}");
            self.check_end(&when);
            let hit = self.query().met;
            met += u64::from(hit);
            let is_silent = failed.is_empty();
            assert!(!is_silent || right, "{when}: {}", self.report());
            assert!(hit || is_silent, "nothing failed, but {when}");
            let reported = !hit || !is_silent || self.failed_one_of(silent);
            assert!(reported, "nobody reported: {}", self.report());
        }
        assert!(met >= calls - 10, "{met} of {calls} faults were met");
    }
}

impl<Code: Default> Scripted<Code> {
    /// Makes the nth call from now fail, and resets the state.
    pub fn fail(&self, nth: u64, code: Code) {
        // SAFETY: the name is null.
        unsafe { (self.fail)(Fault { nth, code }, null()) };
    }

    /// Makes the nth call of one function from now fail, and counts the calls of this function alone.
    pub fn fail_nth(&self, name: &str, nth: u64, code: Code) {
        let name = CString::new(name).expect("a name");
        // SAFETY: a C string.
        unsafe { (self.fail)(Fault { nth, code }, name.as_ptr()) };
    }

    /// Makes every call of one function fail.
    pub fn fail_each(&self, name: &str, code: Code) {
        self.fail_nth(name, EACH, code);
    }

    /// Makes every call succeed again, and counts from 0.
    pub fn reset(&self) {
        self.fail(0, Code::default());
    }

    /// Counts the calls of one function from now on.
    pub fn count(&self, name: &str) {
        self.fail_nth(name, 0, Code::default());
    }

    /// The number of calls of one function while `run` runs. No call may be a forbidden one.
    pub fn calls(&self, name: &str, run: impl FnOnce()) -> u64 {
        self.count(name);
        run();
        let seen = self.query();
        assert_eq!(seen.broken, 0, "{}", self.report());
        self.reset();
        seen.calls
    }

    pub fn query(&self) -> Answer {
        (self.query)()
    }

    pub fn report(&self) -> String {
        self.text(self.report)
    }

    /// Whether the function whose call failed last is in a list of names, each with a reason.
    pub fn failed_one_of(&self, list: &[(&str, &str)]) -> bool {
        let report = self.report();
        let is = |(name, _): &(&str, _)| report.starts_with(&format!("failed: {name};"));
        list.iter().any(is)
    }

    /// What a function of the driver writes.
    pub fn text(&self, write: unsafe extern "C" fn(*mut c_char, usize)) -> String {
        let mut buffer = vec![0; 1 << 16];
        // SAFETY: the output has room for this many bytes.
        unsafe { write(buffer.as_mut_ptr(), buffer.len()) };
        // SAFETY: the call terminates the text with a NUL.
        let text = unsafe { CStr::from_ptr(buffer.as_ptr()) };
        text.to_string_lossy().into_owned()
    }

    /// The state if more than `known` objects are alive once the adapter's threads have ended, or if a call was
    /// forbidden or missing.
    pub fn end_with(&self, known: usize) -> Option<String> {
        let end = Instant::now() + END;
        while self.query().live > known && Instant::now() < end {
            sleep(Duration::from_micros(200));
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

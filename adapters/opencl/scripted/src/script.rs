//! The interface through which a test controls the library and queries it.

use std::ffi::{CStr, c_char};

use opencl_sys::{cl_command_type, cl_int};

use crate::driver::hold;

/// A call that fails.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Fault {
    /// The index of the call from now, from 1; 0 for none, [`EACH`] for every one.
    pub nth: u64,
    /// OpenCL's error code.
    pub code: cl_int,
}

/// Every call fails.
pub const EACH: u64 = u64::MAX;

/// The state that a test can see.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Answer {
    /// Number of calls since the script was set that could fail.
    pub calls: u64,
    /// Whether the fault was reached.
    pub met: bool,
    /// Number of live objects.
    pub live: usize,
    /// Number of calls that OpenCL forbids: with dead handles or bad lists.
    pub broken: u64,
}

/// The script and its progress.
#[derive(Default)]
pub struct Script {
    fault: Fault,
    /// If not empty, only calls of this name count.
    only: String,
    calls: u64,
    met: Option<&'static str>,
    broken: Vec<String>,
    /// A type of command of which one fails when it runs, and how many of the type have run.
    command: (cl_command_type, Fault),
    commands: u64,
    pub shape: Shape,
}

/// The properties of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct Shape {
    pub no_platform: bool,
    pub no_device: bool,
    /// The device is an accelerator.
    pub accelerator: bool,
    /// The platform returns no extension function.
    pub no_extensions: bool,
    /// The device can access every host address.
    pub shared_addresses: bool,
}

/// Calls that never fail by script, since a caller could not recover the objects that a failure would leak.
fn is_spared(name: &str) -> bool {
    let spared = [
        "clRetain",
        "clRelease",
        "clSetUserEventStatus",
        "clMemFree",
        "clSVMFree",
    ];
    spared.iter().any(|start| name.starts_with(start))
}

impl Script {
    /// Counts a call and returns the code that it must fail with.
    pub fn called(&mut self, name: &'static str) -> Option<cl_int> {
        if is_spared(name) || (!self.only.is_empty() && self.only != name) {
            return None;
        }
        self.calls += 1;
        let hit = self.fault.nth == self.calls || self.fault.nth == EACH;
        if hit {
            self.met = Some(name);
        }
        hit.then_some(self.fault.code)
    }

    /// Counts a command that runs and returns the status that it must fail with.
    pub fn runs_command(&mut self, kind: cl_command_type) -> Option<cl_int> {
        let (wanted, fault) = self.command;
        if kind != wanted {
            return None;
        }
        self.commands += 1;
        (fault.nth == self.commands).then_some(fault.code)
    }

    pub fn broken(&mut self, what: String) {
        self.broken.push(what);
    }
}

/// Sets the fault, for calls of one name or of any, and resets the count.
///
/// # Safety
/// `only` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scripted_fail(fault: Fault, only: *const c_char) {
    let mut driver = hold();
    let script = &mut driver.script;
    script.fault = fault;
    script.only = match only.is_null() {
        true => String::new(),
        // SAFETY: the caller passes null or a C string.
        false => unsafe { CStr::from_ptr(only) }
            .to_string_lossy()
            .into_owned(),
    };
    (script.calls, script.met) = (0, None);
    script.broken.clear();
}

/// Makes the nth command of a type from now fail when it runs.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_fail_command(kind: cl_command_type, fault: Fault) {
    let mut driver = hold();
    (driver.script.command, driver.script.commands) = ((kind, fault), 0);
}

/// Sets the properties of the machine.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_shape(shape: Shape) {
    hold().script.shape = shape;
}

/// Returns the state.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_query() -> Answer {
    let driver = hold();
    Answer {
        calls: driver.script.calls,
        met: driver.script.met.is_some(),
        live: driver.live(),
        broken: driver.script.broken.len() as u64,
    }
}

/// Writes a description of the state, cut to the buffer and terminated with a NUL.
///
/// # Safety
/// `buffer` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scripted_report(buffer: *mut c_char, size: usize) {
    let driver = hold();
    let script = &driver.script;
    let met = script.met.unwrap_or("nothing");
    let text = format!(
        "failed: {met}; broken: {:?}; alive: {}",
        script.broken,
        driver.report()
    );
    let bytes = &text.as_bytes()[..text.len().min(size.saturating_sub(1))];
    // SAFETY: the caller passes `size` writable bytes; one byte more is left.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len());
        buffer.add(bytes.len()).write(0);
    }
}

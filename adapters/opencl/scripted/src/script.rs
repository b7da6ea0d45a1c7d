//! The interface through which a test controls the library and queries it.

use std::ffi::c_char;

use opencl_sys::{cl_command_type, cl_int};
use scripted::{Answer, Faults, write_text};

use crate::driver::hold;

pub type Fault = scripted::Fault<cl_int>;

/// The script and its progress.
#[derive(Default)]
pub struct Script {
    faults: Faults<cl_int>,
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
        self.faults.called(name, is_spared)
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
    // SAFETY: as the caller promises.
    driver.script.faults = unsafe { Faults::new(fault, only) };
    driver.script.broken.clear();
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
    let faults = &driver.script.faults;
    Answer {
        calls: faults.calls,
        met: faults.met.is_some(),
        live: driver.live(),
        broken: driver.script.broken.len() as u64,
        missed: 0,
    }
}

/// Writes a description of the state, cut to the buffer and terminated with a NUL.
///
/// # Safety
/// `buffer` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scripted_report(buffer: *mut c_char, size: usize) {
    let driver = hold();
    let text = format!(
        "failed: {}; broken: {:?}; alive: {}",
        driver.script.faults.failed(),
        driver.script.broken,
        driver.report()
    );
    // SAFETY: as the caller promises.
    unsafe { write_text(&text, buffer, size) };
}

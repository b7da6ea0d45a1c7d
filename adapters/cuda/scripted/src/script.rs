//! What a test tells the library, and asks of it.

use std::ffi::{CStr, c_char};

use crate::driver::{MAX_DEVICES, hold};

/// A call that fails.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Fault {
    /// The how-manieth call from now, counted from 1; 0 for none, [`EACH`] for every one.
    pub nth: u64,
    /// The driver's code.
    pub code: u32,
}

/// Every call fails.
pub const EACH: u64 = u64::MAX;

/// What there is to see.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Answer {
    /// Calls since the script was set that could fail.
    pub calls: u64,
    /// Whether the fault was met.
    pub met: bool,
    /// Objects alive.
    pub live: usize,
    /// Calls that the driver forbids: with dead handles, without the right context.
    pub broken: u64,
    /// Since the script was set: how many nodes nodes of graphs were put behind, all together.
    pub edges: u64,
}

/// The script, and how far it has come.
#[derive(Default)]
pub struct Script {
    fault: Fault,
    /// If not empty, only calls of this name count.
    only: String,
    pub calls: u64,
    met: Option<&'static str>,
    pub broken: Vec<String>,
    pub edges: u64,
}

/// Calls that never fail by script: what a failure would lose, nobody could give back.
fn is_spared(name: &str) -> bool {
    let spared = [
        "cuCtx",
        "cuGetErrorName",
        "cuDevicePrimaryCtxRelease",
        "cuEventDestroy",
        "cuStreamDestroy",
        "cuMemFree",
        "cuMemHostUnregister",
        "cuMemRelease",
        "cuMemUnmap",
        "cuMemPoolDestroy",
        "cuGraphDestroy",
        "cuGraphExecDestroy",
        "cuMemAddressFree",
        "cuModuleUnload",
        "cuLinkDestroy",
    ];
    spared.iter().any(|start| name.starts_with(start))
}

impl Script {
    /// Counts a call; the code that it is to fail with.
    pub fn called(&mut self, name: &'static str) -> Option<u32> {
        let chosen = !self.only.is_empty();
        if (!chosen && is_spared(name)) || (chosen && self.only != name) {
            return None;
        }
        self.calls += 1;
        let hit = self.fault.nth == self.calls || self.fault.nth == EACH;
        if hit {
            self.met = Some(name);
        }
        hit.then_some(self.fault.code)
    }
}

/// Sets the fault, of calls of any name or of one, and starts to count anew.
///
/// # Safety
/// `only` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scripted_fail(fault: Fault, only: *const c_char) {
    let mut driver = hold();
    let only = match only.is_null() {
        true => String::new(),
        // SAFETY: promised by the caller.
        false => unsafe { CStr::from_ptr(only) }
            .to_string_lossy()
            .into_owned(),
    };
    driver.script = Script {
        fault,
        only,
        ..Script::default()
    };
}

/// Has so many devices, from 1 to 4, from the next look for them on.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_devices(count: usize) {
    hold().more_devices = count.clamp(1, MAX_DEVICES) - 1;
}

/// Has devices say that they have so much memory. Half of it is always free.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_memory(bytes: usize) {
    hold().memory = Some(bytes);
}

/// Whether streams and events are taken whatever context is current, as newer drivers do.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_anywhere(anywhere: bool) {
    hold().anywhere = anywhere;
}

/// Has so many bytes be memory of the second device, which streams of others do not reach.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_elsewhere(start: usize, bytes: usize) {
    hold().elsewhere = start..start + bytes;
}

/// Has a thread capture a stream in the global mode: one of ours by its handle, or with 1 some other; with
/// 0 none does any longer.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_capture(stream: usize) {
    hold().captured = (stream != 0).then_some(stream);
}

/// Looks.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_query() -> Answer {
    let driver = hold();
    Answer {
        calls: driver.script.calls,
        met: driver.script.met.is_some(),
        live: driver.live(),
        broken: driver.script.broken.len() as u64,
        edges: driver.script.edges,
    }
}

/// Writes what there is to say about it, cut to the buffer and ended with zero.
///
/// # Safety
/// `buffer` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scripted_report(buffer: *mut c_char, size: usize) {
    let driver = hold();
    let script = &driver.script;
    let met = script.met.unwrap_or("nothing");
    let text = format!(
        "failed: {met}; broken: {:?}; alive: {:?}",
        script.broken,
        driver.report()
    );
    let bytes = &text.as_bytes()[..text.len().min(size.saturating_sub(1))];
    // SAFETY: promised by the caller; one byte more is left.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len());
        buffer.add(bytes.len()).write(0);
    }
}

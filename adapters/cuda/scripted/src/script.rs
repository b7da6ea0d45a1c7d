//! The interface through which a test controls the library and queries it.

use std::ffi::{CStr, c_char};

use crate::driver::{MAX_DEVICES, hold};

/// A call that fails.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Fault {
    /// The index of the call from now, from 1; 0 for none, [`EACH`] for every one.
    pub nth: u64,
    /// The driver's error code.
    pub code: u32,
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
    /// Number of calls that the driver forbids: with dead handles or without the right context.
    pub broken: u64,
    /// Total dependencies of the graph nodes added since the script was set.
    pub edges: u64,
}

/// The script and its progress.
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

/// Calls that never fail by script, since a caller could not recover the objects that a failure would leak.
fn is_spared(name: &str) -> bool {
    let spared = [
        "cuCtxGet",
        "cuCtxPush",
        "cuCtxPop",
        "cuCtxSet",
        "cuCtxDisablePeerAccess",
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
        "cuArrayDestroy",
        "cuDestroyExternal",
        "cuMipmappedArrayDestroy",
        "cuTexObjectDestroy",
        "cuSurfObjectDestroy",
    ];
    spared.iter().any(|start| name.starts_with(start))
}

impl Script {
    /// Counts a call and returns the code that it must fail with.
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

/// Sets the fault, for calls of one name or of any, and resets the count.
///
/// # Safety
/// `only` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scripted_fail(fault: Fault, only: *const c_char) {
    let mut driver = hold();
    let only = match only.is_null() {
        true => String::new(),
        // SAFETY: the caller passes null or a C string.
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

/// Sets the number of devices, 1 to 4, from the next enumeration on.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_devices(count: usize) {
    hold().more_devices = count.clamp(1, MAX_DEVICES) - 1;
}

/// Sets the memory size that devices report. Half of it is always free.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_memory(bytes: usize) {
    hold().memory = Some(bytes);
}

/// Sets whether streams and events are accepted under any current context, as newer drivers do.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_anywhere(anywhere: bool) {
    hold().anywhere = anywhere;
}

/// Sets whether devices have links between them, from the next enumeration on. They have at first.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_peers(can_peer: bool) {
    hold().can_peer = can_peer;
}

/// Sets whether devices have pages that can be mapped, from the next retain on. They have at first.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_pages(pages: bool) {
    hold().without_pages = !pages;
}

/// Declares a range of memory to be the second device's, which other devices' streams cannot access.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_elsewhere(start: usize, bytes: usize) {
    hold().elsewhere = start..start + bytes;
}

/// Makes a thread capture a stream in the global mode.
///
/// The stream is given by its handle. 1 stands for a stream of foreign code, 0 ends the capture.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_capture(stream: usize) {
    hold().captured = (stream != 0).then_some(stream);
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
        edges: driver.script.edges,
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
        "failed: {met}; broken: {:?}; alive: {:?}",
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

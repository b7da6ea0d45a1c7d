//! The interface through which a test controls the library and queries it.

use std::ffi::c_char;

use scripted::{Answer, Faults, write_text};

use crate::driver::{MAX_DEVICES, hold};

pub type Fault = scripted::Fault<u32>;

/// The script and its progress.
#[derive(Default)]
pub struct Script {
    faults: Faults<u32>,
    pub broken: Vec<String>,
    /// Total dependencies of the graph nodes added since the script was set.
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
        self.faults.called(name, is_spared)
    }
}

/// Sets the fault, for calls of one name or of any, and resets the count.
///
/// # Safety
/// `only` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scripted_fail(fault: Fault, only: *const c_char) {
    hold().script = Script {
        // SAFETY: as the caller promises.
        faults: unsafe { Faults::new(fault, only) },
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

/// Total dependencies of the graph nodes added since the script was set.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_edges() -> u64 {
    hold().script.edges
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
        "failed: {}; broken: {:?}; alive: {:?}",
        driver.script.faults.failed(),
        driver.script.broken,
        driver.report()
    );
    // SAFETY: as the caller promises.
    unsafe { write_text(&text, buffer, size) };
}

//! The interface through which a test controls the library and queries it.
//!
//! A program that cannot call it is controlled by variables, read once:
//!
//! | variable | meaning |
//! |---|---|
//! | `SCRIPTED_LEVEL_ZERO_DEVICES` | number of devices, 1 to 4 |
//! | `SCRIPTED_LEVEL_ZERO_PEERS` | 0: no device reaches another one's memory |
//! | `SCRIPTED_LEVEL_ZERO_TILES` | number of tiles of a card, up to 4; by default none |
//! | `SCRIPTED_LEVEL_ZERO_COMPUTE_QUEUES` | number of compute queues of a device, which then has the id of a Ponte Vecchio; by default 1 |
//! | `SCRIPTED_LEVEL_ZERO_COMBINED` | 1: tiles are listed as devices, and have their card as root |
//! | `SCRIPTED_LEVEL_ZERO_INTEGRATED` | 1: devices share the host's memory |
//! | `SCRIPTED_LEVEL_ZERO_MAX_ALLOC` | the largest allocation without relaxed limits, in MiB; by default all memory |
//! | `SCRIPTED_LEVEL_ZERO_VERSION` | the interface's version that the driver has, as `1.3` |
//! | `SCRIPTED_LEVEL_ZERO_WITHOUT` | functions and extensions that are not there, with commas between |
//! | `SCRIPTED_LEVEL_ZERO_FAIL` | `FUNCTION:NTH:CODE`: that call of the function fails; `*` is every function |
//! | `SCRIPTED_LEVEL_ZERO_REPORT` | 1: writes to stderr at exit what `scripted_report` tells |
//! | `SCRIPTED_LEVEL_ZERO_TRACE` | a file, to which each call and its result are added |

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use scripted::{Answer, Faults, write_text};
use ze::*;

use crate::device::MAX_DEVICES;
use crate::entry::Answer as Outcome;
use crate::object::hold;

/// The code `ZE_RESULT_ERROR_DEVICE_LOST` loses the devices for good.
pub type Fault = scripted::Fault<u32>;

/// The script and its progress.
#[derive(Default)]
struct Script {
    faults: Faults<u32>,
    /// Whether every call after the fault fails too, but for those that are spared.
    lasts: bool,
    /// The calls since the script was set, by name.
    counts: BTreeMap<&'static str, u64>,
    /// Descriptions of calls that are forbidden, and of functions that are missing, each with its number.
    broken: BTreeMap<String, u64>,
    missed: BTreeMap<&'static str, u64>,
}

static LOST: AtomicBool = AtomicBool::new(false);

/// A bit for each device that is lost alone.
static LOST_ALONE: AtomicU64 = AtomicU64::new(0);

/// How often each device was lost. Lists from before a loss stay lost.
static LOSSES: [AtomicU64; MAX_DEVICES] = [const { AtomicU64::new(0) }; MAX_DEVICES];

pub fn losses(device: usize) -> u64 {
    LOSSES[device].load(Ordering::Acquire)
}

/// Whether the devices are lost: commands are not executed, waits and submissions fail.
pub fn is_lost() -> bool {
    LOST.load(Ordering::Acquire)
}

/// An error if the devices are lost.
pub fn present() -> Outcome {
    match is_lost() {
        true => Err(ZE_RESULT_ERROR_DEVICE_LOST),
        false => Ok(()),
    }
}

/// An error if a device is lost, by its index.
pub fn device_present(index: usize) -> Outcome {
    match LOST_ALONE.load(Ordering::Acquire) >> index & 1 {
        0 => present(),
        _ => Err(ZE_RESULT_ERROR_DEVICE_LOST),
    }
}

fn script() -> &'static Mutex<Script> {
    static SCRIPT: OnceLock<Mutex<Script>> = OnceLock::new();
    SCRIPT.get_or_init(|| Mutex::new(Script::of_environment()))
}

pub fn variable(name: &str) -> Option<String> {
    std::env::var(format!("SCRIPTED_LEVEL_ZERO_{name}")).ok()
}

/// Whether a function or extension is taken away.
pub fn is_without(name: &str) -> bool {
    static WITHOUT: OnceLock<Vec<String>> = OnceLock::new();
    let all = WITHOUT.get_or_init(|| {
        let list = variable("WITHOUT").unwrap_or_default();
        list.split(',').map(|one| one.trim().to_owned()).collect()
    });
    all.iter().any(|one| one == name)
}

/// Calls that never fail by script, since a caller could not recover the objects that a failure would leak.
fn is_spared(name: &str) -> bool {
    let spared = [
        "Destroy",
        "Free",
        "Close",
        "PutIpcHandle",
        "Unmap",
        "Evict",
        "Release",
    ];
    spared.iter().any(|part| name.contains(part)) && name != "zeCommandListClose"
}

impl Script {
    fn of_environment() -> Self {
        let mut script = Self::default();
        let given = variable("FAIL").unwrap_or_default();
        let parts: Vec<_> = given.split(':').collect();
        if let [name, nth, code] = parts[..] {
            let code = code.trim_start_matches("0x");
            script.faults.fault = Fault {
                nth: nth.parse().unwrap_or(0),
                code: u32::from_str_radix(code, 16).unwrap_or(ZE_RESULT_ERROR_UNKNOWN.0),
            };
            if name != "*" {
                script.faults.only = name.to_owned();
            }
        }
        script
    }
}

/// Counts a call. Returns the error that the script gives it.
pub fn called(name: &'static str) -> Outcome {
    if is_without(name) {
        return Err(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
    }
    let mut script = hold(script());
    *script.counts.entry(name).or_default() += 1;
    if script.lasts && script.faults.met.is_some() && !is_spared(name) {
        return Err(ze_result_t(script.faults.fault.code));
    }
    let Some(code) = script.faults.called(name, is_spared) else {
        return Ok(());
    };
    let code = ze_result_t(code);
    drop(script);
    if code == ZE_RESULT_ERROR_DEVICE_LOST {
        lose(true);
    }
    Err(code)
}

/// Writes a call to the file that a variable names.
pub fn trace(name: &str, code: ze_result_t) {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let open = || {
        File::options()
            .append(true)
            .create(true)
            .open(variable("TRACE")?)
            .ok()
    };
    if let Some(mut file) = FILE.get_or_init(open).as_ref() {
        let (process, thread) = (std::process::id(), std::thread::current().id());
        // A line that cannot be written is no reason to fail the call.
        let _ = writeln!(file, "{process} {thread:?} {name}: {code:?}");
    }
}

pub fn broken(what: String) {
    *hold(script()).broken.entry(what).or_default() += 1;
}

pub fn missed(name: &'static str) {
    *hold(script()).missed.entry(name).or_default() += 1;
}

pub fn lose(lost: bool) {
    if lost {
        for one in &LOSSES {
            one.fetch_add(1, Ordering::AcqRel);
        }
    }
    LOST.store(lost, Ordering::Release);
}

/// All kinds of objects that are alive, with their numbers.
fn alive() -> Vec<(&'static str, usize)> {
    let all = [
        crate::context::CONTEXTS.kind_and_count(),
        crate::memory::count(),
        crate::host_memory::count(),
        crate::pages::PHYSICAL.kind_and_count(),
        crate::pages::count_ranges(),
        crate::pages::count_maps(),
        crate::event::POOLS.kind_and_count(),
        crate::event::EVENTS.kind_and_count(),
        crate::external::SEMAPHORES.kind_and_count(),
        crate::list::LISTS.kind_and_count(),
        crate::queue::QUEUES.kind_and_count(),
        crate::queue::FENCES.kind_and_count(),
        crate::module::MODULES.kind_and_count(),
        crate::module::LOGS.kind_and_count(),
        crate::kernel::KERNELS.kind_and_count(),
        crate::image::IMAGES.kind_and_count(),
        crate::image::SAMPLERS.kind_and_count(),
        crate::graph::GRAPHS.kind_and_count(),
        crate::graph::EXECUTABLES.kind_and_count(),
    ];
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}

impl<T> crate::object::Objects<T> {
    pub fn kind_and_count(&self) -> (&'static str, usize) {
        (self.kind(), self.count())
    }
}

fn report() -> String {
    let script = hold(script());
    format!(
        "failed: {}; broken: {:?}; missing: {:?}; alive: {:?}",
        script.faults.failed(),
        script.broken,
        script.missed,
        alive()
    )
}

/// Sets the fault, for calls of one name or of any, and resets the count. Found devices again.
///
/// # Safety
/// `only` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scripted_fail(fault: Fault, only: *const c_char) {
    *hold(script()) = Script {
        // SAFETY: as the caller promises.
        faults: unsafe { Faults::new(fault, only) },
        ..Script::default()
    };
    lose(false);
    LOST_ALONE.store(0, Ordering::Release);
}

/// Sets the fault as [`scripted_fail`] does, and every call after it fails too, but for those that free something.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_fail_from(fault: Fault) {
    // SAFETY: the name is null.
    unsafe { scripted_fail(fault, std::ptr::null()) };
    hold(script()).lasts = true;
}

/// Loses the devices, or finds them again.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_lose(lost: bool) {
    lose(lost);
}

/// Loses one device, by its index: its commands are not executed, and its lists and its status answer that it is lost.
/// Events that its commands would signal stay as they are.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_lose_device(index: usize) {
    if let Some(losses) = LOSSES.get(index) {
        losses.fetch_add(1, Ordering::AcqRel);
        LOST_ALONE.fetch_or(1 << index, Ordering::AcqRel);
    }
}

/// Returns the state.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_query() -> Answer {
    let live = alive().iter().map(|(_, count)| count).sum();
    let script = hold(script());
    Answer {
        calls: script.faults.calls,
        met: script.faults.met.is_some(),
        live,
        broken: script.broken.values().sum(),
        missed: script.missed.values().sum(),
    }
}

/// Writes a description of the state, cut to the buffer and terminated with a NUL.
///
/// # Safety
/// `buffer` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scripted_report(buffer: *mut c_char, size: usize) {
    // SAFETY: as the caller promises.
    unsafe { write_text(&report(), buffer, size) };
}

/// Writes the calls since the script was set: a line for each function, with its name and the number.
///
/// # Safety
/// `buffer` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scripted_counts(buffer: *mut c_char, size: usize) {
    let script = hold(script());
    let lines = script.counts.iter();
    let text: String = lines
        .map(|(name, count)| format!("{name} {count}\n"))
        .collect();
    drop(script);
    // SAFETY: as the caller promises.
    unsafe { write_text(&text, buffer, size) };
}

/// Has the state written at exit, if a variable asks for it.
pub fn report_at_exit() {
    extern "C" fn write() {
        eprintln!("scripted Level Zero: {}", report());
    }
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        if variable("REPORT").is_some_and(|value| value == "1") {
            // SAFETY: the function takes nothing, and the library is never unloaded.
            unsafe { libc::atexit(write) };
        }
    });
}

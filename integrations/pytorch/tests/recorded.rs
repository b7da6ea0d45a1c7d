//! What recorded PyTorch programs make the allocator hold, over the CUDA adapter and a fake driver.
//!
//! Placement and growth depend on the requests alone, so the figures are a GPU's. Each program runs in a process of its
//! own, since the allocator opens its loader once.

#[allow(dead_code)]
#[path = "../../../conformance/tests/support/mod.rs"]
mod support;

use flate2::read::GzDecoder;
use std::collections::HashMap;
use std::ffi::c_void;
use std::fs::File;
use std::io::Read as _;
use std::ptr::null_mut;
use support::{clean, success};
use ur::dl::{Binding, Library};
use ur_pytorch::*;

ur::dl::symbols! {
    struct Driver {
        required {
            scripted_memory: unsafe extern "C" fn(usize),
            cuCtxSetCurrent: unsafe extern "C" fn(*mut c_void) -> u32,
            cuDevicePrimaryCtxRetain: unsafe extern "C" fn(*mut *mut c_void, i32) -> u32,
        }
        optional {}
    }
}

const MIB: u64 = 1 << 20;

/// Each program, and the peak in MiB that PyTorch's expandable segments reserve for it (H100, PyTorch 2.11).
const PROGRAMS: [(&str, u64); 3] = [("gpt", 4828), ("resnet", 3166), ("decode", 1762)];

/// The program that this process replays.
const PROGRAM: &str = "UR_PYTORCH_TEST_PROGRAM";

/// Whether to allocate, the block and its bytes, in the program's order.
fn recorded(name: &str) -> Vec<(bool, usize, isize)> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/traces/pytorch");
    let file = File::open(format!("{root}/{name}.trace.gz")).expect("the trace is in the tree");
    let mut text = String::new();
    let read = GzDecoder::new(file).read_to_string(&mut text);
    read.expect("the trace is text");
    let op = |line: &str| {
        let mut words = line.split(' ');
        let made = words.next() == Some("a");
        let mut number = || words.next()?.parse::<usize>().ok();
        Some((made, number()?, number()? as isize))
    };
    let ops: Option<Vec<_>> = text.lines().map(op).collect();
    ops.expect("lines of operations")
}

/// Replays the program on the default stream, and prints the peak of reserved bytes in MiB.
fn replay(name: &str) {
    let own = std::env::current_exe().expect("this program");
    let path = own.with_file_name("libscripted_cuda.so");
    let library = Library::open(path, Binding::Usual).expect("the scripted library");
    let driver = Driver::from_library(library).expect("its functions");
    let mut context = null_mut();
    // SAFETY: the output is a local variable, and the context is live.
    unsafe {
        (driver.scripted_memory)(80 << 30);
        (driver.cuDevicePrimaryCtxRetain)(&mut context, 0);
        (driver.cuCtxSetCurrent)(context);
    }
    let mut live = HashMap::new();
    for (made, id, bytes) in recorded(name) {
        if made {
            let memory = ur_pytorch_alloc(bytes, 0, null_mut());
            assert!(!memory.is_null(), "block {id} of {name}");
            live.insert(id, memory);
        } else {
            let memory = live.remove(&id).expect("it was made");
            ur_pytorch_free(memory, bytes, 0, null_mut());
        }
    }
    let mut stats = Stats::default();
    // SAFETY: the output is a local variable.
    assert_eq!(unsafe { ur_pytorch_stats(0, &mut stats) }, 0);
    println!("reserved {}", stats.reserved_high / MIB);
}

/// The peak of a program with these variables of the environment, in MiB.
fn peak(test: &str, name: &str, variables: &[(&str, &str)]) -> u64 {
    let built = support::build(&["ur-loader", "ur-adapter-cuda"]);
    let mut command = clean(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", test, "--nocapture"])
        .env(PROGRAM, name)
        .envs(variables.iter().copied())
        .env(
            "UR_ADAPTERS_FORCE_LOAD",
            built.join("libur_adapter_cuda.so"),
        );
    let reported = success(&mut command);
    let mut lines = reported.lines();
    let figure = lines.find_map(|line| line.split_once("reserved "));
    let figure = figure.and_then(|(_, figure)| figure.trim().parse().ok());
    figure.unwrap_or_else(|| panic!("no figure: {reported}"))
}

#[test]
fn no_more_is_reserved_than_by_expandable_segments() {
    if let Ok(name) = std::env::var(PROGRAM) {
        return replay(&name);
    }
    let test = "no_more_is_reserved_than_by_expandable_segments";
    for (name, most) in PROGRAMS {
        let held = peak(test, name, &[]);
        println!("{name}: {held} MiB, expandable segments {most}");
        assert!(held <= most, "{name}: {held} MiB, not {most}");
    }
    // The decoder needs each of these.
    let (name, most) = PROGRAMS[2];
    let ahead = [("UR_POOL_GROWTH_SHARE", "32"), ("UR_POOL_GROWTH_MIB", "16")];
    for variables in [&ahead[..], &[("UR_POOL_COALESCING", "0")]] {
        let held = peak(test, name, variables);
        assert!(held > most, "{name}: {held} MiB with {variables:?}");
    }
}

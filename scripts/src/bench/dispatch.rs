//! `cargo xtask bench dispatch`: the cost that the loader adds to a call.
//!
//! Measures nanoseconds beside Intel's loader, or instructions against the limits in this file.

use super::{circumstances, fetch, instructions};
use crate::build;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Args)]
pub struct Dispatch {
    /// Counts instructions under valgrind, and fails if they exceed the committed limits
    #[arg(long)]
    instructions: bool,
    /// Path of a loader to compare with, instead of the one of the package intel-cmplr-lib-ur
    #[arg(long)]
    peer: Option<PathBuf>,
    /// Passed on to ur-dispatch: --processes, --rounds
    #[arg(last = true)]
    rest: Vec<String>,
}

/// Intel's loader with what it is linked to.
const PEER: [&str; 2] = [
    "intel-cmplr-lib-ur==2026.2.0",
    "intel-cmplr-lib-rt==2026.2.0",
];

const LAYERS: [&str; 7] = [
    "UR_LAYER_TRACING",
    "UR_LAYER_PARAMETER_VALIDATION",
    "UR_LAYER_BOUNDS_CHECKING",
    "UR_LAYER_LEAK_CHECKING",
    "UR_LAYER_LIFETIME_VALIDATION",
    "UR_LAYER_ASYNC_ALLOC_VALIDATION",
    "UR_LAYER_FULL_VALIDATION",
];

/// Limit on the instructions that the loader adds to a call without layers, for any number of adapters.
/// Counted on x86_64 with Rust 1.95. Another compiler may need another limit.
const LIMITS: [(&str, f64); 4] = [
    ("urQueueRetain, 1 argument", 18.0),
    ("urContextGetInfo, 5 arguments", 18.0),
    ("urEnqueueUSMMemcpy, 8 arguments, refused", 15.0),
    (
        "urEnqueueKernelLaunchWithArgsExp, 12 arguments, refused",
        14.0,
    ),
];

/// Calls that are counted. The start-up before them varies by thousands of instructions.
const TIMES: u64 = 1_000_000;

pub(super) fn run(root: &Path, options: &Dispatch) -> Result<()> {
    let packages = [
        "ur-loader",
        "ur-adapter-native-cpu",
        "ur-adapter-mock",
        "ur-conformance",
    ];
    let built = build::packages(root, &packages, true)?;
    if options.instructions {
        return gate(&built);
    }
    let (loader, libraries) = match &options.peer {
        Some(peer) => (peer.clone(), None),
        None => {
            let folder = build::target_dir(root)?.join("bench/intel-loader-2026.2.0");
            let lib = fetch(&folder, &PEER)?.join("lib");
            (lib.join("libur_loader.so.0"), Some(lib))
        }
    };
    console::outln!("{}\n", circumstances()?);
    let mut command = program(&built, 2);
    command.arg(loader);
    command.args(["--layers", &LAYERS.join(",")]);
    command.args(&options.rest);
    if let Some(libraries) = libraries {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    build::run(&mut command)
}

/// Runs `ur-dispatch` on our loader with the native_cpu adapter, and with the mock's as a second one if
/// asked.
fn program(built: &Path, adapters: usize) -> Command {
    let mut command = Command::new(built.join("ur-dispatch"));
    prepare(&mut command, built, adapters);
    command
}

fn prepare(command: &mut Command, built: &Path, adapters: usize) {
    let libraries = ["native_cpu", "mock"].map(|name| {
        let library = built.join(format!("libur_adapter_{name}.so"));
        library.display().to_string()
    });
    let libraries = libraries[..adapters].join(",");
    command.env_remove("UR_ENABLE_LAYERS");
    command.env("UR_ADAPTERS_FORCE_LOAD", &libraries);
    command.arg("--adapters").arg(libraries);
    command.arg(built.join("libur_loader.so"));
}

fn gate(built: &Path) -> Result<()> {
    if let Some(why) = instructions::cannot() {
        console::outln!("dispatch: SKIPPED: {why}; instructions are NOT checked");
        return Ok(());
    }
    let mut over = Vec::new();
    console::outln!("| call | one adapter | two | limit |\n|---|---|---|---|");
    for (call, limit) in LIMITS {
        let direct = count(built, 1, call, true)?;
        let mut cells = String::new();
        for adapters in [1, 2] {
            let direct = match adapters {
                1 => direct,
                _ => count(built, adapters, call, true)?,
            };
            let added = count(built, adapters, call, false)?.saturating_sub(direct);
            let added = added as f64 / TIMES as f64;
            cells += &format!(" {added:.2} |");
            // Starts of the program differ by about a tenth of an instruction per call.
            if added > limit + 0.1 {
                over.push(format!("{call}: {added:.2} with {adapters}, not {limit}"));
            }
        }
        console::outln!("| {call} |{cells} {limit} |");
    }
    if !over.is_empty() {
        bail!(
            "the loader adds more instructions:\n  {}",
            over.join("\n  ")
        );
    }
    Ok(())
}

/// Instructions of a whole run.
fn count(built: &Path, adapters: usize, call: &str, direct: bool) -> Result<u64> {
    let mut command = Command::new(built.join("ur-dispatch"));
    prepare(&mut command, built, adapters);
    command.args(["--repeat", call, "--times", &TIMES.to_string()]);
    if direct {
        command.arg("--direct");
    }
    instructions::of(&command).with_context(|| call.to_owned())
}

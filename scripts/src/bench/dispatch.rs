//! `cargo xtask bench dispatch`: what the loader adds to a call. In nanoseconds beside Intel's loader,
//! or in instructions against the limits that stand here.

use super::{circumstances, fetch, instructions};
use crate::build;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Args)]
pub struct Dispatch {
    /// Counts instructions under valgrind, and fails if they are more than is committed
    #[arg(long)]
    instructions: bool,
    /// Another loader than that of intel-cmplr-lib-ur
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

/// Instructions that the loader may add to a call without layers, whatever the number of adapters.
/// They were counted on x86_64 with Rust 1.95; a compiler may need other limits, a change of ours not.
const LIMITS: [(&str, f64); 4] = [
    ("urQueueRetain, 1 argument", 18.0),
    ("urContextGetInfo, 5 arguments", 18.0),
    ("urEnqueueUSMMemcpy, 8 arguments, refused", 15.0),
    (
        "urEnqueueKernelLaunchWithArgsExp, 12 arguments, refused",
        14.0,
    ),
];

/// Calls that are counted; what comes before them differs by thousands of instructions between runs.
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

/// `ur-dispatch` on our loader with the native CPU's adapter, and with the mock's too if there are to be
/// two.
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
            // A tenth of an instruction is how the start differs between runs.
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

/// The instructions of a whole run.
fn count(built: &Path, adapters: usize, call: &str, direct: bool) -> Result<u64> {
    let mut command = Command::new(built.join("ur-dispatch"));
    prepare(&mut command, built, adapters);
    command.args(["--repeat", call, "--times", &TIMES.to_string()]);
    if direct {
        command.arg("--direct");
    }
    instructions::of(&command).with_context(|| call.to_owned())
}

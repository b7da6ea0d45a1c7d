//! `cargo xtask bench pool --ablation`: the pool's mechanisms, each turned off in turn, on native_cpu.
//!
//! The programs are recorded ones, which repeat, and synthetic ones, which never do. A synthetic program
//! draws sizes and lifetimes from a recorded one and runs on 1, 4 or 8 queues, or is a steady mix of sizes. `adapters/cuda/bench/peers.cu`
//! runs the same files on a GPU, where the slack rule and the sizes of pages and of growth act too. They change
//! nothing on native_cpu, since its pages have no price and old addresses do not stay. `UR_POOL_EXTENT_CACHE` has no
//! row: only copies and fills use that cache, and the times here are of allocations and frees. `bench submit` has it.

use crate::build;
use anyhow::{Context as _, Result, ensure};
use flate2::read::GzDecoder;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Iterations of a program. The first is reported apart.
const ITERATIONS: u64 = 6;
/// Allocations in an iteration of a program that never repeats.
const ALLOCATIONS: u64 = 4000;
/// Bytes that the fill behind each operation writes while memory is measured.
const WORK: &str = "4096";
const QUEUES: [u64; 3] = [1, 4, 8];
/// The largest blocks of steady mixes, of 144 such units that are live, and operations of an iteration.
const STEADY: [u64; 5] = [6, 12, 24, 48, 96];
const STEADY_OPERATIONS: u64 = 3000;
/// The rows: each with the mechanism that it turns off.
const ROWS: &[(&str, &[(&str, &str)])] = &[
    ("default", &[]),
    ("replay off", &[("UR_POOL_REPLAY", "0")]),
    ("shared replay off", &[("UR_POOL_SHARED_REPLAY", "0")]),
    ("compaction: always", &[("UR_POOL_COMPACTION", "always")]),
    ("compaction: never", &[("UR_POOL_COMPACTION", "never")]),
    ("growth by what is needed", &[("UR_POOL_GROWTH_SHARE", "0")]),
    (
        "coalescing in the place of replay",
        &[("UR_POOL_REPLAY", "0"), ("UR_POOL_COALESCING", "1")],
    ),
    ("small requests empty caches", &[("UR_POOL_SMALL_KIB", "0")]),
    ("sizes in least steps", &[("UR_POOL_ROUNDING_KIB", "0")]),
    (
        "sizes in steps up to 1 MiB",
        &[("UR_POOL_ROUNDING_KIB", "1024")],
    ),
];

/// A program: its name, and the trace of each iteration.
struct Program {
    name: String,
    iterations: Vec<PathBuf>,
}

/// Writes the programs that never repeat to a folder and prints each as `NAME=TRACE,TRACE,...`, so that other
/// benchmarks can run them.
pub(super) fn write_programs(root: &Path, folder: &Path) -> Result<()> {
    for program in programs(&root.join("tools/traces"), folder)? {
        let mut paths = program.iterations;
        paths.dedup();
        if paths.len() > 1 {
            let paths: Vec<String> = paths
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            console::outln!("{}={}", program.name, paths.join(","));
        }
    }
    Ok(())
}

/// Prints the table.
pub(super) fn run(root: &Path, folder: &Path) -> Result<()> {
    let crates = ["ur-loader", "ur-adapter-native-cpu", "ur-tools"];
    let built = build::packages(root, &crates, true)?;
    let programs = programs(&root.join("tools/traces"), folder)?;
    console::outln!(
        "## Ablation: ns an operation of the first iteration, median of the {} after it, reserved / live",
        ITERATIONS - 1
    );
    let names: Vec<&str> = programs.iter().map(|own| own.name.as_str()).collect();
    console::outln!("| mechanisms | {} |", names.join(" | "));
    console::outln!("|---|{}", "---|".repeat(names.len()));
    for (row, variables) in ROWS {
        let mut cells = Vec::new();
        for program in &programs {
            let measure = |work: &str| -> Result<Value> {
                let mut command = Command::new(built.join("urreplay"));
                command
                    .arg("--loader")
                    .arg(built.join("libur_loader.so"))
                    .args(["--iterations", "--work", work])
                    .args(&program.iterations)
                    .env(
                        "UR_ADAPTERS_FORCE_LOAD",
                        built.join("libur_adapter_native_cpu.so"),
                    )
                    .envs(variables.iter().copied());
                let output = command.output()?;
                let said = String::from_utf8_lossy(&output.stderr);
                ensure!(output.status.success(), "{}: {said}", program.name);
                Ok(serde_json::from_slice(&output.stdout)?)
            };
            let (timed, worked) = (measure("0")?, measure(WORK)?);
            let times = timed["ns"].as_array().context("times")?;
            let times: Vec<f64> = times.iter().filter_map(Value::as_f64).collect();
            let (first, later) = times.split_first().context("an iteration")?;
            let mut later = later.to_vec();
            later.sort_by(f64::total_cmp);
            let again = later[later.len() / 2];
            let figure = |key: &str| worked[key].as_f64().context("a figure");
            let held = figure("reserved_high")? / figure("peak_live")?;
            cells.push(format!("{first:.0} / {again:.0} / {held:.3}"));
        }
        console::outln!("| {row} | {} |", cells.join(" | "));
    }
    Ok(())
}

/// The programs' files, made in `folder` where they are not recorded.
fn programs(traces: &Path, folder: &Path) -> Result<Vec<Program>> {
    fs::create_dir_all(folder)?;
    let mut programs = Vec::new();
    for name in super::pool::TRACES {
        let path = traces.join(format!("{name}.trace.gz"));
        programs.push(Program {
            name: name.to_owned(),
            iterations: vec![path; ITERATIONS as usize],
        });
    }
    for name in super::pool::TRACES {
        let mut text = String::new();
        let file = File::open(traces.join(format!("{name}.trace.gz")))?;
        GzDecoder::new(file).read_to_string(&mut text)?;
        for queues in QUEUES {
            let name = format!("{name}-drawn-{queues}");
            let iteration = |seed| -> Result<PathBuf> {
                let path = folder.join(format!("{name}-{seed}.trace"));
                let drawn = super::synthetic::drawn(&text, queues, seed, ALLOCATIONS)?;
                fs::write(&path, drawn)?;
                Ok(path)
            };
            let iterations = (0..ITERATIONS).map(iteration).collect::<Result<_>>()?;
            programs.push(Program { name, iterations });
        }
    }
    for largest in STEADY {
        let name = format!("steady-{largest}");
        let iteration = |seed| -> Result<PathBuf> {
            let path = folder.join(format!("{name}-{seed}.trace"));
            fs::write(
                &path,
                super::synthetic::steady(largest, seed, STEADY_OPERATIONS)?,
            )?;
            Ok(path)
        };
        let iterations = (0..ITERATIONS).map(iteration).collect::<Result<_>>()?;
        programs.push(Program { name, iterations });
    }
    Ok(programs)
}

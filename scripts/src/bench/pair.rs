//! Builds and runs the benchmark `adapters/native_cpu/benches/pair`, and checks its instructions against the
//! limits in this file.

use super::instructions;
use crate::build;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The benchmark's cases: its name for the case, the name in reports, and the limit on instructions.
///
/// A limit is 3 % above the count on x86_64 with Rust 1.95. Machines differ by that much: libc's `malloc` and
/// `memcpy` choose by the processor, and the compiler's inlining depends on path names. Another compiler may
/// need other limits.
const LIMITS: [(&str, &str, f64); 9] = [
    ("pair 4096", "allocation and free, 4 KiB", 362.0),
    ("pair 1048576", "allocation and free, 1 MiB", 362.0),
    (
        "turns 16777216",
        "the same, 16 MiB, four queues in turns of 200",
        406.0,
    ),
    (
        "random 4",
        "the same, random sizes of up to 16 MiB, four queues",
        5704.0,
    ),
    (
        "events 4096",
        "the same, each with an event, released",
        874.0,
    ),
    ("clock 4", "order of an enqueue after two, 4 queues", 550.0),
    ("clock 16", "the same, 16 queues", 1346.0),
    ("clock 64", "the same, 64 queues", 4135.0),
    (
        "clock-running 64",
        "the same, four commands of each outstanding",
        3645.0,
    ),
];

/// Repetitions before the counted ones. The first ones fill a lane's own caches.
const TIMES: u64 = 10_000;

/// Fails if any case exceeds its limit.
pub(super) fn gate(program: &Path) -> Result<()> {
    if let Some(why) = instructions::cannot() {
        console::outln!("pool: SKIPPED: {why}; instructions are NOT checked");
        return Ok(());
    }
    console::outln!("| what | instructions | limit |\n|---|---|---|");
    let mut over = Vec::new();
    for (case, name, limit) in LIMITS {
        let run = |times: u64| {
            let mut command = Command::new(program);
            command.args(["--repeat", case, &times.to_string()]);
            instructions::of(&command).with_context(|| case.to_owned())
        };
        let each = run(2 * TIMES)?.saturating_sub(run(TIMES)?) as f64 / TIMES as f64;
        console::outln!("| {name} | {each:.1} | {limit} |");
        if each > limit {
            over.push(format!("{name}: {each:.1}, not {limit}"));
        }
    }
    if !over.is_empty() {
        bail!("the pool takes more instructions:\n  {}", over.join("\n  "));
    }
    Ok(())
}

/// The benchmark's figures by name.
pub(super) fn figures(program: &Path) -> Result<Vec<(String, f64)>> {
    let output = Command::new(program).arg("--figures").output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "--figures: {errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = |line: &str| {
        let (name, value) = line.split_once('\t').context("a name and a figure")?;
        Ok((name.to_owned(), value.parse()?))
    };
    text.lines().map(line).collect()
}

/// Builds the benchmark with the loader and the adapter that it opens. Returns the program's path.
pub(super) fn build(root: &Path) -> Result<PathBuf> {
    let packages = ["ur-loader", "ur-adapter-native-cpu"];
    benchmark(root, &packages, "ur-adapter-native-cpu", "pair")
}

/// Builds a package's benchmark after the libraries that it opens. Returns the program's path.
pub(super) fn benchmark(
    root: &Path,
    opened: &[&str],
    package: &str,
    name: &str,
) -> Result<PathBuf> {
    build::packages(root, opened, true)?;
    let mut cargo = build::cargo(root);
    cargo.args(["bench", "--package", package, "--bench", name]);
    cargo.args(["--no-run", "--message-format", "json"]);
    let output = cargo.stderr(std::process::Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter_map(|message| {
        let path = message["executable"].as_str().map(PathBuf::from)?;
        (message["target"]["name"] == name).then_some(path)
    });
    programs.next().context("the benchmark was not built")
}

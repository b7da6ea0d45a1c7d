//! `cargo xtask bench submit`: what the CUDA adapter adds to a launch, a copy and a fill, in instructions
//! over what it asks of the driver, against the limits that stand here. A scripted driver answers.

use super::{instructions, pair};
use anyhow::{Context as _, Result, bail};
use std::path::Path;
use std::process::Command;

/// What is repeated, by the benchmark's name for it; and the instructions that may come on top of the
/// driver's, the loader's among them. They are 3 % more than was counted: see `pair`. A joined copy
/// waits for two other queues': what that takes of the scripted driver, more than half, counts too. A
/// loose launch is one with an event on an out-of-order queue; a chained one stands between an allocation
/// and its free there, each after the other by an event. To grow is to allocate what has to be mapped first.
const LIMITS: [(&str, f64); 10] = [
    ("launch", 473.0),
    ("copy", 230.0),
    ("fill", 231.0),
    ("event launch", 831.0),
    ("event copy", 584.0),
    ("event fill", 586.0),
    ("joined copy", 7944.0),
    ("loose launch", 1916.0),
    ("chained launch", 8478.0),
    ("grow", 7329.0),
];

/// Often enough that no single one counts, and seldom enough that there are addresses to grow at.
const TIMES: u64 = 700;

/// Fails if anything takes more than it may.
pub(super) fn run(root: &Path) -> Result<()> {
    if let Some(why) = instructions::cannot() {
        console::outln!("submit: SKIPPED: {why}; instructions are NOT checked");
        return Ok(());
    }
    let packages = ["ur-loader", "ur-adapter-cuda"];
    let program = pair::benchmark(root, &packages, "ur-adapter-cuda", "submit")?;
    console::outln!("| command | instructions | limit |\n|---|---|---|");
    let mut over = Vec::new();
    for (case, limit) in LIMITS {
        let name = case.rsplit(' ').next().unwrap_or(case);
        let each = each(&program, case)? - each(&program, &format!("driver {name}"))?;
        console::outln!("| {case} | {each:.1} | {limit} |");
        if each > limit {
            over.push(format!("{case}: {each:.1}, not {limit}"));
        }
    }
    if !over.is_empty() {
        bail!(
            "the adapter adds more instructions:\n  {}",
            over.join("\n  ")
        );
    }
    Ok(())
}

/// The instructions of one repetition.
fn each(program: &Path, case: &str) -> Result<f64> {
    let run = |times: u64| {
        let mut command = Command::new(program);
        command.args(["--repeat", case, &times.to_string()]);
        instructions::of(&command).with_context(|| case.to_owned())
    };
    Ok(run(TIMES)?.saturating_sub(run(0)?) as f64 / TIMES as f64)
}

//! `cargo xtask bench submit`: instructions that the CUDA adapter adds to a launch, a copy and a fill.
//!
//! Subtracts the driver's instructions and checks the rest against the limits in this file. A scripted driver
//! answers. Copies and fills are counted without the extent cache too, which `bench pool --ablation` cannot show: it
//! times allocations and frees.

use super::{instructions, pair};
use anyhow::{Context as _, Result, bail};
use std::path::Path;
use std::process::Command;

/// The benchmark's cases, each with the limit on instructions above the driver's, the loader's included. A
/// limit is 3 % above the count; see `pair` for the reason.
///
/// A joined copy waits for two other queues; the scripted driver's share of that, more than half, counts too.
/// A loose launch has an event on an out-of-order queue. A chained launch stands between an allocation and
/// its free, each ordered by an event. An open pair is an allocation and its free on a queue whose native stream
/// the program has; each asks the driver whether that is captured. Growth is an allocation for which pages are mapped.
const LIMITS: [(&str, f64); 11] = [
    ("launch", 500.0),
    ("copy", 290.0),
    ("fill", 274.0),
    ("event launch", 858.0),
    ("event copy", 642.0),
    ("event fill", 628.0),
    ("joined copy", 10098.0),
    ("loose launch", 2013.0),
    ("chained launch", 8860.0),
    ("open pair", 2056.0),
    ("grow", 4010.0),
];

/// The commands that check that they stay inside their allocations, and the switch that has the pools asked for
/// their ends each time.
const EXTENT_CACHE: ([&str; 2], (&str, &str)) = (["copy", "fill"], ("UR_POOL_EXTENT_CACHE", "0"));

/// Repetitions: enough to average, and few enough that addresses remain to grow at.
const TIMES: u64 = 700;

/// Fails if any case exceeds its limit.
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
        let each = each(&program, case, None)? - each(&program, &format!("driver {name}"), None)?;
        console::outln!("| {case} | {each:.1} | {limit} |");
        if each > limit {
            over.push(format!("{case}: {each:.1}, not {limit}"));
        }
    }
    let (cases, switch) = EXTENT_CACHE;
    for case in cases {
        let driver = each(&program, &format!("driver {case}"), None)?;
        let each = each(&program, case, Some(switch))? - driver;
        let (name, value) = switch;
        console::outln!("| {case}, `{name}={value}` | {each:.1} | none |");
    }
    if !over.is_empty() {
        bail!(
            "the adapter adds more instructions:\n  {}",
            over.join("\n  ")
        );
    }
    Ok(())
}

/// The instructions of one repetition, with a variable of the environment.
fn each(program: &Path, case: &str, variable: Option<(&str, &str)>) -> Result<f64> {
    let run = |times: u64| {
        let mut command = Command::new(program);
        command.args(["--repeat", case, &times.to_string()]);
        command.envs(variable);
        instructions::of(&command).with_context(|| case.to_owned())
    };
    Ok(run(TIMES)?.saturating_sub(run(0)?) as f64 / TIMES as f64)
}

//! Times of the pair's benchmark: tables, plots for the README, verdicts.

use super::pair;
use super::plot::{self, Axis, Line, Scale, bytes};
use super::verdicts::Verdicts;
use crate::build;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Times of a pair by its size, and the other figures of the benchmark's `--figures`.
pub(super) fn measure(
    program: &Path,
    folder: &Path,
    plots: &Path,
    verdicts: &mut Verdicts,
) -> Result<()> {
    console::outln!("## An allocation and its free through the C interface, beside heaps");
    // Criterion writes its results to this folder.
    let results = folder.join("criterion");
    let mut command = Command::new(program);
    command
        .env("CRITERION_HOME", &results)
        .env_remove("UR_ADAPTERS_FORCE_LOAD");
    build::run(command.args(["--bench", "--quick"]))?;
    console::outln!("");
    sizes(&results.join("pair"), plots, verdicts)?;
    figures(program, plots, verdicts)
}

/// The measurements by size: the benchmark's name, and the name in reports.
const KINDS: [(&str, &str); 3] = [
    ("async", "allocation and free"),
    ("mimalloc", "mimalloc"),
    ("malloc", "C library"),
];

fn sizes(results: &Path, plots: &Path, verdicts: &mut Verdicts) -> Result<()> {
    let sizes: Vec<u64> = (8..=28).step_by(4).map(|shift| 1 << shift).collect();
    let heads: String = sizes
        .iter()
        .map(|size| format!(" {} |", bytes(*size)))
        .collect();
    console::outln!("| ns |{heads}\n|---|{}", "---|".repeat(sizes.len()));
    let mut lines = Vec::new();
    for (folder, name) in KINDS {
        let point = |size: &u64| -> Result<(f64, f64)> {
            let found = median(&results.join(folder).join(size.to_string()))?;
            Ok((*size as f64, found))
        };
        let points: Vec<_> = sizes.iter().map(point).collect::<Result<_>>()?;
        let cells: String = points.iter().map(|(_, ns)| format!(" {ns:.1} |")).collect();
        console::outln!("| {name} |{cells}");
        lines.push(Line::new(name, points));
    }
    let add = median(&results.join("atomic add"))?;
    console::outln!("\nAn uncontended atomic add: {add:.1} ns\n");
    for (size, (_, ns)) in sizes.iter().zip(&lines[0].points) {
        verdicts.at_most(&format!("pair, {}, ns", bytes(*size)), *ns, 60.0);
    }
    let beside = lines[0].points[1].1 / lines[1].points[1].1;
    verdicts.at_most("pair beside mimalloc's, 4 KiB", beside, 4.0);
    plot::draw(
        &plots.join("pair.svg"),
        "a pair on one queue, no wait list, no event",
        [Axis("size", Scale::Bytes), Axis("ns", Scale::Tens)],
        &lines,
    )
}

/// Threads, tails, and the order of an enqueue.
fn figures(program: &Path, plots: &Path, verdicts: &mut Verdicts) -> Result<()> {
    let found = pair::figures(program)?;
    let (mut tail, mut rows) = ((0.0, 0.0), Vec::<Threads>::new());
    for (name, value) in found {
        match name.split_once(' ') {
            Some(("rate", threads)) => rows.push(Threads {
                threads: threads.parse()?,
                rate: value,
                ..Threads::default()
            }),
            Some(("pairs", _)) => rows.last_mut().context("a rate before")?.made = value,
            Some(("arithmetic", _)) => rows.last_mut().context("a rate before")?.alone = value,
            Some(("beside", _)) => rows.last_mut().context("a rate before")?.beside = value,
            Some(("clock", queues)) => {
                let what = format!("order of an enqueue after two, {queues} queues, ns");
                verdicts.at_most(&what, value, 50.0);
            }
            _ if name == "median" => tail.0 = value,
            _ => tail.1 = value,
        }
    }
    let slowest = "p99.9 of a pair beside its median, 2 threads";
    verdicts.at_most(slowest, tail.1 / tail.0, 10.0);
    threads(&rows, plots, verdicts)
}

/// The throughput of a number of threads, each on its own queue.
#[derive(Default)]
struct Threads {
    threads: u32,
    /// Pairs a second, of all threads together.
    rate: f64,
    /// The ratio to one thread's throughput.
    made: f64,
    /// That ratio for a loop that touches no memory.
    alone: f64,
    /// Two measurements that alternate in one run.
    beside: f64,
}

fn threads(rows: &[Threads], plots: &Path, verdicts: &mut Verdicts) -> Result<()> {
    console::outln!("## Pairs of 4 KiB from threads, each on its own queue");
    console::outln!("| threads | million pairs a second | times one thread's | arithmetic alone |");
    console::outln!("|--------:|-----------------------:|-------------------:|-----------------:|");
    for row in rows {
        let (rate, made, alone) = (row.rate / 1e6, row.made, row.alone);
        console::outln!("| {} | {rate:.1} | {made:.2} | {alone:.2} |", row.threads);
    }
    console::outln!("");
    for row in rows.iter().skip(1) {
        let what = format!("scaling beside arithmetic's, {} threads", row.threads);
        verdicts.least(&what, row.beside, 0.9);
    }
    let one = rows.first().map_or(0.0, |row| row.rate) / 1e6;
    let line = |name: &str, of: &dyn Fn(&Threads) -> f64| {
        let points = rows.iter().map(|row| (f64::from(row.threads), of(row)));
        Line::new(name, points.collect())
    };
    plot::draw(
        &plots.join("threads.svg"),
        "pairs of 4 KiB from threads, each on its own queue",
        [
            Axis("threads", Scale::Whole),
            Axis("million pairs a second", Scale::Even),
        ],
        &[
            line("allocation and free", &|row| row.rate / 1e6),
            line("one thread's, scaled as arithmetic", &|row| row.alone * one),
        ],
    )
}

/// The median in nanoseconds that criterion wrote to a folder.
fn median(folder: &Path) -> Result<f64> {
    let path = folder.join("new/estimates.json");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let found: Value = serde_json::from_str(&text)?;
    found["median"]["point_estimate"]
        .as_f64()
        .context("a median")
}

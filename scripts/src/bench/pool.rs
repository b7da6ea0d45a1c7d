//! `cargo xtask bench pool`: the pool on native_cpu.
//!
//! Replays recorded programs, runs programs with many queues, and measures an allocation with its free.
//! Writes tables and plots for the README.

use super::plot::{self, Axis, Line, Scale};
use super::verdicts::Verdicts;
use super::{ablation, pair, synthetic, times};
use crate::build;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Args)]
pub struct Pool {
    /// Folder of MiniMalloc's instances to replay: `*.csv` with a capacity of 1,048,576
    #[arg(long)]
    minimalloc: Option<PathBuf>,
    /// Skips measurements of time: pairs, threads, the steps of an enqueue
    #[arg(long)]
    no_pairs: bool,
    /// Runs measurements of time only, without the replays, which take minutes
    #[arg(long, conflicts_with = "no_pairs")]
    only_pairs: bool,
    /// Counts instructions under valgrind only, and fails if they exceed the committed limits
    #[arg(long)]
    instructions: bool,
    /// Writes the programs that never repeat to a folder only
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Prints the table of the pool's mechanisms only
    #[arg(long)]
    ablation: bool,
    /// The folder for the plots
    #[arg(long, default_value = "docs/src/plots")]
    plots: PathBuf,
}

/// Factor on the random programs' sizes, 4 KiB to 32 MiB. Exact reuse knows no pages, so small sizes would
/// compare pages.
const WIDER: &str = "16";
/// Number of random programs of each kind.
const PROGRAMS: u64 = 8;
/// Factor on small sizes, so that pages of 2 MiB are a small part of them.
const SCALE: u64 = 1024;
const CAPACITY: u64 = 1 << 20;
pub(super) const TRACES: [&str; 4] = [
    "gpt2_train",
    "llama_decode",
    "multistream",
    "resnet50_train",
];

pub fn run(root: &Path, options: &Pool) -> Result<()> {
    if options.instructions {
        return pair::gate(&pair::build(root)?);
    }
    if let Some(folder) = &options.programs {
        return ablation::write_programs(root, folder);
    }
    if options.ablation {
        let folder = build::target_dir(root)?.join("bench/ablation");
        return ablation::run(root, &folder);
    }
    let crates = ["ur-loader", "ur-adapter-native-cpu", "ur-tools"];
    let built = build::packages(root, &crates, true)?;
    let folder = build::target_dir(root)?.join("bench");
    let plots = root.join(&options.plots);
    fs::create_dir_all(&folder)?;
    fs::create_dir_all(&plots)?;
    let bench = Bench {
        built,
        folder,
        plots,
    };
    console::outln!("{}\n", super::circumstances()?);
    let mut verdicts = Verdicts::default();
    if !options.only_pairs {
        bench.traces(&root.join("tools/traces"))?;
        bench.queues()?;
    }
    if let Some(folder) = &options.minimalloc {
        bench.minimalloc(folder)?;
    }
    if !options.no_pairs {
        let program = pair::build(root)?;
        times::measure(&program, &bench.folder, &bench.plots, &mut verdicts)?;
    }
    verdicts.print();
    Ok(())
}

struct Bench {
    built: PathBuf,
    folder: PathBuf,
    plots: PathBuf,
}

impl Bench {
    fn replay(&self) -> Command {
        let mut command = Command::new(self.built.join("urreplay"));
        command
            .arg("--loader")
            .arg(self.built.join("libur_loader.so"));
        let adapter = self.built.join("libur_adapter_native_cpu.so");
        command.env("UR_ADAPTERS_FORCE_LOAD", adapter);
        command
    }

    fn outcomes(&self, command: &mut Command) -> Result<Vec<Value>> {
        let output = command.arg("--json").output()?;
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    fn traces(&self, from: &Path) -> Result<()> {
        console::outln!(
            "## Recorded programs, each operation followed by a fill of 4 KiB on its queue"
        );
        let paths = TRACES.map(|name| from.join(format!("{name}.trace.gz")));
        build::run(self.replay().args(&paths))?;
        console::outln!(
            "\n## The same at the pace of a program that takes 100 us between operations"
        );
        build::run(
            self.replay()
                .args(["--mode", "completed", "--pace", "100"])
                .arg(&paths[2]),
        )?;
        console::outln!("");
        let mut lines = Vec::new();
        for (mode, pace) in [("ordered", "0"), ("completed", "100")] {
            let series = self.folder.join(format!("multistream-{mode}.csv"));
            let mut command = self.replay();
            command
                .args(["--mode", mode, "--pace", pace])
                .arg("--series")
                .arg(&series);
            self.outcomes(command.arg(&paths[2]))?;
            let text = fs::read_to_string(&series)?;
            if lines.is_empty() {
                lines.push(Line::new("live", column(&text, 2)));
            }
            lines.push(Line::new(
                &format!("reserved, {mode} reuse"),
                column(&text, 1),
            ));
        }
        let path = self.plots.join("multistream.svg");
        plot::draw(
            &path,
            "multistream: four queues",
            [Axis("operation", Scale::Even), Axis("MiB", Scale::Even)],
            &lines,
        )
    }

    /// Random programs over several queues, with their dependencies and without, beside the memory of exact
    /// reuse. Programs differ by a tenth in that ratio.
    fn queues(&self) -> Result<()> {
        console::outln!(
            "## Random programs: joins 0.1, frees 0.1; reserved / live, means of {PROGRAMS} programs"
        );
        console::outln!(
            "| allocations | queues | same queue only | by dependencies | exact reuse | beside it, least to most | with completion |"
        );
        console::outln!(
            "|------------:|-------:|----------------:|----------------:|------------:|------------------------:|----------------:|"
        );
        let mut lines = [Vec::new(), Vec::new(), Vec::new()];
        for allocations in [10, 30] {
            for queues in [2, 4, 8, 16] {
                let (mut paths, mut exact) = (Vec::new(), Vec::new());
                for seed in 0..PROGRAMS {
                    let program = synthetic::program(queues, allocations, seed, 20_000);
                    let name = format!("queues-{queues}-{allocations}-{seed}.trace");
                    let path = self.folder.join(name);
                    fs::write(&path, &program)?;
                    paths.push(path);
                    exact.push(synthetic::exact(&program)?);
                }
                let ratios = |arguments: &[&str]| -> Result<Vec<f64>> {
                    let mut command = self.replay();
                    command.args(arguments).args(["--scale", WIDER]);
                    let found = self.outcomes(command.args(&paths))?;
                    let figure = |of: &Value, key: &str| of[key].as_f64().context("a figure");
                    let ratio = |of| Ok(figure(of, "reserved_high")? / figure(of, "peak_live")?);
                    found.iter().map(ratio).collect()
                };
                let same = mean(&ratios(&["--mode", "ordered", "--same-queue"])?);
                let each = ratios(&["--mode", "ordered"])?;
                let completed = mean(&ratios(&["--mode", "completed"])?);
                let beside = each.iter().zip(&exact).map(|(held, exact)| held / exact);
                let mut beside: Vec<f64> = beside.collect();
                beside.sort_by(f64::total_cmp);
                let (ordered, exact, ratio) = (mean(&each), mean(&exact), mean(&beside));
                let (least, most) = (beside[0], beside[beside.len() - 1]);
                let share = allocations as f64 / 100.0;
                console::outln!(
                    "| {share} | {queues} | {same:.2} | {ordered:.2} | {exact:.2} | {ratio:.2}, {least:.2} to {most:.2} | {completed:.2} |"
                );
                if allocations == 30 {
                    let found = [same, ordered, exact];
                    let point = |ratio| (f64::from(queues), ratio);
                    lines
                        .iter_mut()
                        .zip(found)
                        .for_each(|(line, ratio)| line.push(point(ratio)));
                }
            }
        }
        console::outln!("");
        let names = ["same queue only", "by dependencies", "exact reuse"];
        let lines: Vec<Line> = names
            .iter()
            .zip(lines)
            .map(|(name, line)| Line::new(name, line))
            .collect();
        let path = self.plots.join("queues.svg");
        plot::draw(
            &path,
            "memory held beside memory needed",
            [
                Axis("queues", Scale::Even),
                Axis("reserved / live", Scale::Even),
            ],
            &lines,
        )
    }

    fn minimalloc(&self, folder: &Path) -> Result<()> {
        let mut paths: Vec<PathBuf> = fs::read_dir(folder)?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<_>>()?;
        paths.retain(|path| path.extension().is_some_and(|end| end == "csv"));
        paths.sort();
        let mut command = self.replay();
        command.args(["--mode", "ordered", "--scale", &SCALE.to_string()]);
        let found = self.outcomes(command.args(&paths))?;
        console::outln!(
            "## MiniMalloc's instances in order of time; reserved / what suffices offline"
        );
        let mut text = String::new();
        for outcome in &found {
            let reserved = outcome["reserved_high"].as_f64().context("a figure")?;
            let name = outcome["trace"].as_str().unwrap_or_default();
            let name = name.split('.').next().unwrap_or_default();
            write!(text, "{name} {:.3}  ", reserved / (CAPACITY * SCALE) as f64)?;
        }
        console::outln!("{}\n", text.trim_end());
        Ok(())
    }
}

/// One column of a series in MiB.
fn column(text: &str, at: usize) -> Vec<(f64, f64)> {
    let rows = text.lines().skip(1).zip(0..);
    rows.filter_map(|(row, x)| {
        let bytes: f64 = row.split(',').nth(at)?.parse().ok()?;
        Some((f64::from(x), bytes / f64::from(1 << 20)))
    })
    .collect()
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len().max(1) as f64
}

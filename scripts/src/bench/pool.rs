//! `cargo xtask bench pool`: the pool on the native CPU. Replays, programs of many queues, and the time
//! of a pair; tables to read, plots for the README.

use super::plot::{self, Line};
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
    /// A folder of MiniMalloc's instances, `*.csv` with a capacity of 1,048,576, to replay as well
    #[arg(long)]
    minimalloc: Option<PathBuf>,
    /// Leaves out what cargo bench measures: the time of a pair
    #[arg(long)]
    no_pairs: bool,
    /// Where the plots go
    #[arg(long, default_value = "tools/plots")]
    plots: PathBuf,
}

/// Small sizes are made that much larger, so that pages of 2 MiB are no large part of them.
const SCALE: u64 = 1024;
const CAPACITY: u64 = 1 << 20;
const TRACES: [&str; 4] = [
    "gpt2_train",
    "llama_decode",
    "multistream",
    "resnet50_train",
];

pub fn run(root: &Path, options: &Pool) -> Result<()> {
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
    println!("{}\n", super::circumstances()?);
    bench.traces(&root.join("tools/traces"))?;
    bench.queues()?;
    if let Some(folder) = &options.minimalloc {
        bench.minimalloc(folder)?;
    }
    if !options.no_pairs {
        bench.pairs(root)?;
    }
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
        println!("## Recorded programs, each operation followed by a fill of 4 KiB on its queue");
        let paths = TRACES.map(|name| from.join(format!("{name}.trace.gz")));
        build::run(self.replay().args(&paths))?;
        println!("\n## The same at the pace of a program that takes 100 us between operations");
        build::run(
            self.replay()
                .args(["--mode", "completed", "--pace", "100"])
                .arg(&paths[2]),
        )?;
        println!();
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
            ("operation", "MiB"),
            &lines,
            false,
        )
    }

    /// Random programs over several queues, with their dependencies and without.
    fn queues(&self) -> Result<()> {
        println!("## Random programs: joins 0.1, allocations 0.3, frees 0.1; reserved / live");
        println!("| queues | same queue only | by dependencies | with completion |");
        println!("|-------:|----------------:|----------------:|----------------:|");
        let mut lines = [Vec::new(), Vec::new()];
        for queues in [2, 4, 8, 16] {
            let path = self.folder.join(format!("queues-{queues}.trace"));
            fs::write(&path, program(queues, 20_000))?;
            let ratio = |arguments: &[&str]| -> Result<f64> {
                let found = self.outcomes(self.replay().args(arguments).arg(&path))?;
                let figure = |key: &str| found[0][key].as_f64().context("a figure");
                Ok(figure("reserved_high")? / figure("peak_live")?)
            };
            let same = ratio(&["--mode", "ordered", "--same-queue"])?;
            let ordered = ratio(&["--mode", "ordered"])?;
            let completed = ratio(&["--mode", "completed"])?;
            println!("| {queues} | {same:.2} | {ordered:.2} | {completed:.2} |");
            lines[0].push((f64::from(queues), same));
            lines[1].push((f64::from(queues), ordered));
        }
        println!();
        let [same, ordered] = lines;
        let lines = [
            Line::new("same queue only", same),
            Line::new("by dependencies", ordered),
        ];
        let path = self.plots.join("queues.svg");
        plot::draw(
            &path,
            "memory held beside memory needed",
            ("queues", "reserved / live"),
            &lines,
            false,
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
        println!("## MiniMalloc's instances in order of time; reserved / what suffices offline");
        let mut text = String::new();
        for outcome in &found {
            let reserved = outcome["reserved_high"].as_f64().context("a figure")?;
            let name = outcome["trace"].as_str().unwrap_or_default();
            let name = name.split('.').next().unwrap_or_default();
            write!(text, "{name} {:.3}  ", reserved / (CAPACITY * SCALE) as f64)?;
        }
        println!("{}\n", text.trim_end());
        Ok(())
    }

    fn pairs(&self, root: &Path) -> Result<()> {
        println!("## An allocation and its free through the C interface, ns");
        let mut command = Command::new("cargo");
        command.current_dir(root);
        command.args([
            "bench",
            "--quiet",
            "-p",
            "ur-adapter-native-cpu",
            "--bench",
            "pair",
        ]);
        build::run(command.args(["--", "--quick"]))?;
        let results = build::target_dir(root)?.join("criterion/pair");
        let mut line = Vec::new();
        for shift in (8..=28).step_by(4) {
            let bytes = 1_u64 << shift;
            line.push((
                f64::from(shift),
                median(&results.join(format!("async/{bytes}")))?,
            ));
        }
        let peer = median(&results.join("mimalloc_4096"))
            .or_else(|_| median(&results.join("mimalloc/4096")))?;
        let lines = [
            Line::new("allocation and free", line),
            Line::new("mimalloc, 4 KiB", vec![(8.0, peer), (28.0, peer)]),
        ];
        let path = self.plots.join("pair.svg");
        plot::draw(
            &path,
            "one queue, no wait list, no event",
            ("log2 of bytes", "ns"),
            &lines,
            true,
        )
    }
}

/// The median that criterion left in a folder, in nanoseconds.
fn median(folder: &Path) -> Result<f64> {
    let path = folder.join("new/estimates.json");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let found: Value = serde_json::from_str(&text)?;
    found["median"]["point_estimate"]
        .as_f64()
        .context("a median")
}

/// A column of a series over its rows, in MiB.
fn column(text: &str, at: usize) -> Vec<(f64, f64)> {
    let rows = text.lines().skip(1).zip(0..);
    rows.filter_map(|(row, x)| {
        let bytes: f64 = row.split(',').nth(at)?.parse().ok()?;
        Some((f64::from(x), bytes / f64::from(1 << 20)))
    })
    .collect()
}

/// A random program of so many operations: at each a queue joins another with probability 0.1; with 0.3
/// it allocates; each live block is freed with 0.1, on a queue that follows its allocation.
fn program(queues: u32, operations: u32) -> String {
    let mut random = Random(0x5eed + u64::from(queues));
    let count = queues as usize;
    // What each queue comes after, by queue; its own entry is its last command.
    let mut after = vec![vec![0_u64; count]; count];
    let mut live: Vec<(u64, u64, usize, u64)> = Vec::new();
    let (mut text, mut next, mut written) = (String::new(), 0_u64, 0);
    while written < operations {
        let queue = random.below(count as u64) as usize;
        if count > 1 && random.chance(10) {
            let other = random.below(count as u64) as usize;
            let theirs = after[other].clone();
            let own = after[queue][queue];
            after[queue]
                .iter_mut()
                .zip(theirs)
                .for_each(|(own, new)| *own = new.max(*own));
            after[queue][queue] = own.max(after[queue][queue]);
        }
        if random.chance(30) {
            let bytes = 4096 << random.below(14);
            line(&mut text, 'a', next, bytes, queue, &mut after[queue]);
            live.push((next, bytes, queue, after[queue][queue]));
            next += 1;
            written += 1;
        }
        let follows = |block: &(u64, u64, usize, u64)| after[queue][block.2] >= block.3;
        if let Some(at) = live
            .iter()
            .position(|block| follows(block) && random.chance(10))
        {
            let (id, bytes, ..) = live.swap_remove(at);
            line(&mut text, 'f', id, bytes, queue, &mut after[queue]);
            written += 1;
        }
    }
    text
}

/// One operation as a command of its queue.
fn line(text: &mut String, op: char, id: u64, bytes: u64, queue: usize, after: &mut [u64]) {
    after[queue] += 1;
    let points = after.iter().enumerate().filter(|(_, epoch)| **epoch > 0);
    let points: Vec<String> = points
        .map(|(lane, epoch)| format!("{lane}@{epoch}"))
        .collect();
    let points = if points.is_empty() {
        "-".to_owned()
    } else {
        points.join(",")
    };
    // Writing into a string cannot fail.
    let _ = writeln!(text, "{op} {id} {bytes} {queue} {points} -");
}

/// Steele's and Vigna's SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_free_what_they_follow() {
        let text = program(4, 2000);
        let mut born = std::collections::HashMap::new();
        let mut foreign = 0;
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let point = |lane: &str| {
                let mut points = words[4]
                    .split(',')
                    .filter_map(|point| point.split_once('@'));
                points
                    .find(|(own, _)| *own == lane)
                    .and_then(|(_, epoch)| epoch.parse::<u64>().ok())
            };
            let own = point(words[3]).unwrap_or_default();
            match words[0] {
                "a" => assert!(
                    born.insert(words[1].to_owned(), (words[3].to_owned(), own))
                        .is_none()
                ),
                _ => {
                    let (queue, epoch) = born.remove(words[1]).expect("it lives");
                    assert!(point(&queue).unwrap_or_default() >= epoch, "{line}");
                    foreign += u32::from(queue != words[3]);
                }
            }
        }
        assert!(foreign > 20 && text.lines().count() >= 2000);
    }
}

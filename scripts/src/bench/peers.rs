//! `cargo xtask bench peers`: the CUDA adapter beside other stream-ordered allocators.
//!
//! Reads the measurements that `adapters/cuda/bench/peers.sh` made on a machine with a GPU. Writes tables,
//! plots for the README, and verdicts.

use super::plot::{self, Axis, Line, Scale, bytes};
use super::verdicts::Verdicts;
use anyhow::{Context as _, Result};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Peers {
    /// The output of peers.sh
    #[arg(default_value = "adapters/cuda/bench/h200.tsv")]
    records: PathBuf,
    /// The folder for the plots
    #[arg(long, default_value = "docs/src/plots")]
    plots: PathBuf,
}

/// Limit on reserved memory, as a multiple of live memory.
const MAX_RESERVED_RATIO: [(&str, f64); 4] = [
    ("gpt2_train", 1.05),
    ("llama_decode", 1.05),
    ("multistream", 1.40),
    ("resnet50_train", 1.06),
];

/// The driver's pool, as peers.cu calls it.
const DRIVER: &str = "the driver's pool";

pub fn run(root: &Path, options: &Peers) -> Result<()> {
    let path = root.join(&options.records);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let plots = root.join(&options.plots);
    fs::create_dir_all(&plots)?;
    let records = Records::read(&text)?;
    console::outln!("{}\n", records.circumstances);
    for (measure, what) in [
        ("pair", "An allocation and its free on one queue, ns"),
        ("threads", "Pairs of 4 KiB from threads, millions a second"),
        ("chain", "200 times 64 MiB over four queues, in order"),
        ("growth", "16 GiB in steps of 64 MiB, from nothing"),
        ("held", "Bytes held beside bytes live, with work"),
        ("first", "A program's first run, ns an operation"),
        ("again", "Its second, ns an operation"),
    ] {
        console::outln!("## {what}\n{}", records.table(measure));
    }
    records.verdicts()?.print();
    records.draw(&plots)
}

/// One figure: its measure, its allocator, and its subject.
struct Record<'a> {
    measure: &'a str,
    who: &'a str,
    of: &'a str,
    value: f64,
}

struct Records<'a> {
    circumstances: &'a str,
    all: Vec<Record<'a>>,
}

impl<'a> Records<'a> {
    fn read(text: &'a str) -> Result<Self> {
        let (first, rest) = text.split_once('\n').context("a first line")?;
        let all = rest.lines().map(|line| {
            let mut fields = line.split('\t');
            let mut field = || {
                fields
                    .next()
                    .with_context(|| format!("four fields: {line}"))
            };
            Ok(Record {
                measure: field()?,
                who: field()?,
                of: field()?,
                value: field()?.parse().with_context(|| line.to_owned())?,
            })
        });
        Ok(Self {
            circumstances: first.trim_start_matches("# "),
            all: all.collect::<Result<_>>()?,
        })
    }

    fn of_measure(&self, measure: &str) -> impl Iterator<Item = &Record<'a>> {
        self.all
            .iter()
            .filter(move |record| record.measure == measure)
    }

    fn value(&self, measure: &str, who: &str, of: &str) -> Option<f64> {
        let mut all = self.of_measure(measure);
        let found = all.find(|record| record.who == who && record.of == of);
        found.map(|record| record.value)
    }

    /// The allocators, in the order of the input.
    fn names(&self, measure: &str, name: impl Fn(&Record<'a>) -> &'a str) -> Vec<&'a str> {
        let mut names = Vec::new();
        for name in self.of_measure(measure).map(name) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    fn table(&self, measure: &str) -> String {
        let whats = self.names(measure, |record| record.of);
        let head = |of: &&str| match (measure, of.parse()) {
            ("pair", Ok(size)) => bytes(size),
            _ => (*of).to_owned(),
        };
        let heads: Vec<String> = whats.iter().map(head).collect();
        let line = "---|".repeat(whats.len());
        let mut table = format!("| | {} |\n|---|{line}\n", heads.join(" | "));
        for who in self.names(measure, |record| record.who) {
            let cell = |of: &&str| match self.value(measure, who, of) {
                Some(value) if measure == "held" => format!("{value:.3}"),
                Some(value) if value < 10.0 && value.fract() != 0.0 => format!("{value:.2}"),
                Some(value) => format!("{value:.0}"),
                None => String::new(),
            };
            let cells: Vec<String> = whats.iter().map(cell).collect();
            table += &format!("| {who} | {} |\n", cells.join(" | "));
        }
        table
    }

    fn verdicts(&self) -> Result<Verdicts> {
        let mut verdicts = Verdicts::default();
        for record in self.all.iter().filter(|record| record.who == "ours") {
            let (of, value) = (record.of, record.value);
            match record.measure {
                "pair" => {
                    verdicts.at_most(&format!("pair, {}, ns", bytes(of.parse()?)), value, 35.0)
                }
                "threads" if of == "8" => {
                    verdicts.least("pairs from 8 threads, M/s", value, 100.0);
                }
                "chain" if of == "blocks" => verdicts.at_most("chain, blocks", value, 1.0),
                "chain" if of == "beside alone" => {
                    verdicts.at_most("chain beside itself without allocations", value, 1.02);
                }
                "growth" if of == "beside mapping" => {
                    verdicts.at_most("growth beside mapping alone", value, 1.1);
                }
                "again" => verdicts.at_most(&format!("{of}, second run, ns"), value, 60.0),
                "first" => {
                    let driver = self.value("first", DRIVER, of);
                    let driver = driver.context("the driver's pool beside it")?;
                    verdicts.at_most(
                        &format!("{of}, first run beside the driver's pool"),
                        value / driver,
                        1.0,
                    );
                }
                "held" => {
                    let limit = MAX_RESERVED_RATIO.iter().find(|(trace, _)| *trace == of);
                    let (_, limit) = limit.with_context(|| format!("a target for {of}"))?;
                    verdicts.at_most(&format!("{of}, held"), value, *limit);
                }
                _ => {}
            }
        }
        Ok(verdicts)
    }

    /// Each allocator's figures, at the horizontal positions that `position` gives their subjects.
    fn lines(&self, measure: &str, position: impl Fn(&str) -> Option<f64>) -> Vec<Line> {
        let whose = |who: &str| {
            let own = self.of_measure(measure).filter(|record| record.who == who);
            let points = own.filter_map(|record| Some((position(record.of)?, record.value)));
            Line::new(who, points.collect())
        };
        let names = self.names(measure, |record| record.who);
        names.into_iter().map(whose).collect()
    }

    fn draw(&self, plots: &Path) -> Result<()> {
        let number = |of: &str| of.parse().ok();
        plot::draw(
            &plots.join("peers-pair.svg"),
            "an allocation and its free on one queue",
            [Axis("size", Scale::Bytes), Axis("ns", Scale::Tens)],
            &self.lines("pair", number),
        )?;
        plot::draw(
            &plots.join("peers-threads.svg"),
            "pairs of 4 KiB from threads, each on its own queue",
            [
                Axis("threads", Scale::Whole),
                Axis("million pairs a second", Scale::Tens),
            ],
            &self.lines("threads", number),
        )?;
        let traces = self.names("again", |record| record.of);
        let position = |of: &str| traces.iter().position(|trace| *trace == of);
        let position = |of: &str| position(of).map(|at| at as f64);
        for (measure, title, axis) in [
            (
                "again",
                "a program's second run",
                Axis("ns an operation", Scale::Tens),
            ),
            (
                "held",
                "with work behind each operation",
                Axis("bytes held beside bytes live", Scale::Even),
            ),
        ] {
            let path = plots.join(format!("peers-{measure}.svg"));
            plot::bars(&path, title, axis, &traces, &self.lines(measure, position))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_records_answer_every_target() {
        let text = include_str!("../../../adapters/cuda/bench/h200.tsv");
        let verdicts = Records::read(text).unwrap().verdicts().unwrap();
        assert_eq!(verdicts.count(), 22);
    }
}

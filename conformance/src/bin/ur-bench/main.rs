//! `ur-bench`: the cost of calls through two loaders, side by side in one run.
//!
//! Each loader has its own process. The two take turns with short samples, so that other load on the machine
//! affects both. A start-up sample takes a new process. The program uses `ur::abi` and `ur::dl` and knows no
//! adapter.

mod calls;
mod kernel;
mod measures;
mod samples;
mod side;

use clap::Parser;
use measures::{MEASURES, STARTS, SYCL, SYCL_START, Targets};
use samples::Table;
use side::Side;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measures calls of the Unified Runtime through a loader, beside another one in the same run.
///
/// The environment applies to both, ONEAPI_DEVICE_SELECTOR above all. With --adapter our side also gets
/// UR_ADAPTERS_FORCE_LOAD. Exits with 0 if every target was met, 1 if not, 2 if it could not measure.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// The loader to measure
    ours: PathBuf,
    /// The loader to compare it with
    theirs: Option<PathBuf>,
    /// Adapter library that our loader is to load, and no other
    #[arg(long)]
    adapter: Option<PathBuf>,
    /// Names of the two sides in the table, separated by a comma
    #[arg(long, value_delimiter = ',', default_values = ["ours", "theirs"])]
    names: Vec<String>,
    /// Samples of each call on each side, in each process
    #[arg(long, default_value_t = 21)]
    rounds: usize,
    /// Processes on each side: the placement of memory and threads differs between them
    #[arg(long, default_value_t = 11)]
    processes: usize,
    /// Start-up samples on each side, each in its own process
    #[arg(long, default_value_t = 21)]
    starts: usize,
    /// Measures only names that contain this; may be given several times
    #[arg(long)]
    filter: Vec<String>,
    /// The SYCL program (conformance/sycl/bench) on a libsycl with a loader in it: measured over our adapter
    /// and over libsycl's own
    #[arg(long, requires = "adapter")]
    sycl: Option<PathBuf>,
    /// The backend whose targets apply
    #[arg(long, value_enum, default_value_t = Targets::Opencl)]
    targets: Targets,
    /// Answers requests on standard input, for the process that compares
    #[arg(long, hide = true)]
    worker: bool,
    /// Libraries that a worker loads before it measures the start of its loader
    #[arg(long, hide = true)]
    beside: Vec<PathBuf>,
    /// Runs one measure this many times and prints nothing, for profilers
    #[arg(long, hide = true)]
    repeat: Option<usize>,
}

const MISSED: u8 = 1;
const CANNOT_RUN: u8 = 2;

fn main() -> ExitCode {
    let cli: Cli = match console::parse(CANNOT_RUN) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let ended = if cli.worker {
        side::serve(&cli.ours, &cli.beside).map(|()| true)
    } else if let Some(times) = cli.repeat {
        cli.profile(times).map(|()| true)
    } else {
        cli.compare()
    };
    let code = match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(MISSED),
        Err(reason) => {
            console::errln!("ur-bench: {reason}");
            ExitCode::from(CANNOT_RUN)
        }
    };
    console::end("ur-bench", code, CANNOT_RUN)
}

impl Cli {
    fn wants(&self, name: &str) -> bool {
        self.filter.is_empty() || self.filter.iter().any(|part| name.contains(part.as_str()))
    }

    fn compare(&self) -> Result<bool, String> {
        let loaders: Vec<&Path> = [Some(&self.ours), self.theirs.as_ref()]
            .into_iter()
            .flatten()
            .map(PathBuf::as_path)
            .collect();
        let theirs = || {
            self.theirs
                .iter()
                .map(|path| Side::new(path, None, &loaders))
        };
        let ours = Side::new(&self.ours, self.adapter.as_deref(), &loaders);
        let mut sides: Vec<Side> = std::iter::once(ours).chain(theirs()).collect();
        let mut table = Table::new(sides.len(), self.targets);
        sides.extend(theirs());
        for names in STARTS {
            self.start(names, &mut sides, &mut table)?;
        }
        sides.truncate(table.sides());
        let calls: Vec<_> = MEASURES.iter().map(|one| one.name).collect();
        for _ in 0..self.processes {
            self.sample(&mut sides, &calls, &mut table)?;
        }
        if let Some(program) = &self.sycl {
            self.compare_sycl(program, &mut table)?;
        }
        console::out!("{}", table.text(&self.names));
        Ok(table.met())
    }

    /// Measures through libsycl, with its own loader and adapter on the other side.
    fn compare_sycl(&self, program: &Path, table: &mut Table) -> Result<(), String> {
        let kernel = program.with_extension("spv");
        let words = kernel::words().map_err(|error| error.to_string())?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        std::fs::write(&kernel, bytes).map_err(|error| error.to_string())?;
        let adapters = [self.adapter.as_deref(), None];
        let side = |adapter| Side::sycl(program, adapter, &kernel);
        let [ours, theirs] = adapters.map(side);
        let mut sides = [ours, theirs, side(None)];
        self.start(SYCL_START, &mut sides, table)?;
        let sides = &mut sides[..2];
        for _ in 0..self.processes {
            self.sample(sides, &SYCL, table)?;
        }
        Ok(())
    }

    /// Start-up samples in turns: one of each side, and a second one of the other side as a control.
    fn start(
        &self,
        (name, again): (&'static str, &'static str),
        sides: &mut [Side],
        table: &mut Table,
    ) -> Result<(), String> {
        if !self.wants(name) {
            return Ok(());
        }
        for round in 0..self.starts {
            let mut found = vec![None; sides.len()];
            take_turns(round, sides, |at, side| {
                found[at] = side.start(name)?;
                Ok(())
            })?;
            for (at, sample) in found.iter().take(2).enumerate() {
                table.add(name, at, *sample);
            }
            if let [_, first, second] = found[..] {
                table.add(again, 0, second);
                table.add(again, 1, first);
            }
        }
        Ok(())
    }

    /// Takes samples of these calls in new processes.
    fn sample(
        &self,
        sides: &mut [Side],
        calls: &[&'static str],
        table: &mut Table,
    ) -> Result<(), String> {
        let chosen: Vec<_> = calls.iter().filter(|name| self.wants(name)).collect();
        if chosen.is_empty() {
            return Ok(());
        }
        for side in &mut *sides {
            side.open()?;
        }
        // The first round warms up caches and is discarded.
        for round in 0..=self.rounds {
            for name in &chosen {
                take_turns(round, sides, |at, side| {
                    let sample = side.sample(name)?;
                    if round > 0 {
                        table.add(name, at, sample);
                    }
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    fn profile(&self, times: usize) -> Result<(), String> {
        let calls = calls::Calls::open(&self.ours)?;
        let setup = measures::Setup::new(calls)?;
        for measure in MEASURES.iter().filter(|one| self.wants(one.name)) {
            for _ in 0..times {
                (measure.sample)(&setup)?;
            }
        }
        Ok(())
    }
}

/// One sample of each side. The side that goes first alternates between rounds.
fn take_turns(
    round: usize,
    sides: &mut [Side],
    mut turn: impl FnMut(usize, &mut Side) -> Result<(), String>,
) -> Result<(), String> {
    let count = sides.len();
    for at in 0..count {
        let at = if round.is_multiple_of(2) {
            at
        } else {
            count - 1 - at
        };
        turn(at, &mut sides[at])?;
    }
    Ok(())
}

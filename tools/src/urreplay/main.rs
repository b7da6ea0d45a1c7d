//! `urreplay`: runs a trace of allocations again, on any adapter, and tells what the pool made of it.
//!
//! It may use `ur::abi` and `ur::dl`, and is a consumer like any other. `trace` reads, `api` calls,
//! `run` replays, `outcome` is what a run gives, `perfetto` shows a trace in time. Each way of running
//! has a process of its own, since an adapter reads its environment once.

mod api;
mod outcome;
mod perfetto;
mod run;
mod trace;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Parser, ValueEnum};
use outcome::Outcome;
use trace::Trace;

/// Runs recorded allocations and frees again through Unified Runtime, each followed by work on its
/// queue, and prints what that cost: time, memory held beside memory needed, what was reused and why.
///
/// A trace is what UR_POOL_TRACE writes, or its first four columns, as text, gzip or MiniMalloc's CSV.
/// Ordered reuse alone is what an adapter does under UR_POOL_DETERMINISTIC=1, where nothing is reused
/// because it was seen complete; other adapters than this project's may not know that variable.
#[derive(Parser)]
#[command(name = "urreplay", version)]
struct Cli {
    /// Loader library; by default libur_loader.so.0 beside this program, in ../lib or of the system
    #[arg(long, value_name = "PATH")]
    loader: Option<PathBuf>,
    /// What may be reused; by default each in turn
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Bytes of a fill behind each operation; 0 for no work
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    work: usize,
    /// Microseconds from one operation's start to the next one's, at least: how long the program itself
    /// takes between them
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    pace: u64,
    /// Leaves the traces' dependencies between queues out; each block dies on the queue it was made on
    #[arg(long)]
    same_queue: bool,
    /// Makes all sizes so many times larger
    #[arg(long, value_name = "TIMES", default_value_t = 1)]
    scale: u64,
    /// Lists the dependencies whose lack cost most memory
    #[arg(long)]
    explain: bool,
    /// Prints JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Writes reserved and live bytes after each operation, as CSV
    #[arg(long, value_name = "FILE", requires = "mode")]
    series: Option<PathBuf>,
    /// Runs the traces one after the other in this process, as iterations of one program, and prints JSON:
    /// nanoseconds an operation of each, and the most bytes reserved and live
    #[arg(long, conflicts_with_all = ["mode", "explain", "series", "perfetto"])]
    iterations: bool,
    /// Writes the trace itself for ui.perfetto.dev, and runs nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["mode", "explain", "json"])]
    perfetto: Option<PathBuf>,
    /// Runs here and prints one outcome: how this program calls itself
    #[arg(long = "here", hide = true)]
    in_process: bool,
    /// The traces
    #[arg(required = true)]
    traces: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Reuse that the program's own order allows
    Ordered,
    /// That, and of memory whose use was seen complete
    Completed,
}

const MODES: [Mode; 2] = [Mode::Ordered, Mode::Completed];
const LOADERS: [&str; 2] = ["libur_loader.so.0", "libur_loader.so"];
const DETERMINISTIC: &str = "UR_POOL_DETERMINISTIC";
const TRACE: &str = "UR_POOL_TRACE";

const FAULT: u8 = 1;

type Answer<T> = Result<T, String>;

fn main() -> ExitCode {
    let cli: Cli = match console::parse(FAULT) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let code = match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            console::errln!("urreplay: {reason}");
            ExitCode::from(FAULT)
        }
    };
    console::end("urreplay", code, FAULT)
}

impl Cli {
    fn run(&self) -> Answer<()> {
        if let Some(path) = &self.perfetto {
            let [trace] = &self.traces[..] else {
                return Err("one trace makes one file".to_owned());
            };
            let text = perfetto::json(&Trace::read(trace, self.scale)?);
            return write(path, &text);
        }
        if self.iterations {
            return self.run_iterations();
        }
        if self.in_process {
            return self.run_in_process();
        }
        let modes = self.mode.map_or(MODES.to_vec(), |mode| vec![mode]);
        let mut outcomes = Vec::new();
        for trace in &self.traces {
            for mode in &modes {
                outcomes.push(self.child(trace, *mode)?);
            }
        }
        let text = match self.json {
            // Strings and numbers only: nothing that JSON could not take.
            true => serde_json::to_string_pretty(&outcomes).unwrap_or_default() + "\n",
            false => outcome::table(&outcomes, self.explain),
        };
        console::out!("{text}");
        Ok(())
    }

    /// Runs in this process, whose environment says how.
    fn run_in_process(&self) -> Answer<()> {
        let path = self.loader.clone();
        let path = path.unwrap_or_else(|| ur::dl::near_program(&LOADERS));
        let mut trace = Trace::read(&self.traces[0], self.scale)?;
        if self.same_queue {
            trace.forget_dependencies();
        }
        let loader = api::Loader::open(&path)?;
        let (outcome, series) = run::replay(&loader, &trace, self.work, self.pace)?;
        if let Some(path) = &self.series {
            write(path, &series)?;
        }
        console::outln!("{}", serde_json::to_string(&outcome).unwrap_or_default());
        Ok(())
    }

    fn run_iterations(&self) -> Answer<()> {
        let path = self.loader.clone();
        let path = path.unwrap_or_else(|| ur::dl::near_program(&LOADERS));
        let read = |path: &PathBuf| {
            let mut trace = Trace::read(path, self.scale)?;
            trace.free_all();
            Ok(trace)
        };
        let traces: Vec<Trace> = self.traces.iter().map(read).collect::<Answer<_>>()?;
        let found = run::iterate(&api::Loader::open(&path)?, &traces, self.work)?;
        console::outln!("{}", serde_json::to_string(&found).unwrap_or_default());
        Ok(())
    }

    fn child(&self, trace: &Path, mode: Mode) -> Answer<Outcome> {
        let mut outcome = self.child_once(trace, mode, None)?;
        if self.explain {
            // Apart from the run that is measured: writing takes time.
            let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
            let own = folder.path().join("trace");
            self.child_once(trace, mode, Some(&own))?;
            if own.exists() {
                let input = Trace::read(trace, self.scale)?;
                outcome.lacks = outcome::lacks(&Trace::read(&own, 1)?, &input);
            }
        }
        Ok(outcome)
    }

    fn child_once(&self, trace: &Path, mode: Mode, traced: Option<&Path>) -> Answer<Outcome> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command
            .arg("--here")
            .args(["--work", &self.work.to_string()]);
        command.args(["--scale", &self.scale.to_string()]);
        command.args(["--pace", &self.pace.to_string()]);
        command.args(self.same_queue.then_some("--same-queue"));
        if let Some(loader) = &self.loader {
            command.arg("--loader").arg(loader);
        }
        if let (Some(series), None) = (&self.series, traced) {
            command
                .args(["--mode", "ordered"])
                .arg("--series")
                .arg(series);
        }
        command.env(DETERMINISTIC, if mode == Mode::Ordered { "1" } else { "0" });
        command.env_remove(TRACE);
        if let Some(path) = traced {
            command.env(TRACE, path);
        }
        let output = command
            .arg(trace)
            .output()
            .map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let _ = io::stderr().write_all(&output.stderr);
        if !output.status.success() {
            return Err(format!("{}: {}", trace.display(), output.status));
        }
        let mut outcome: Outcome =
            serde_json::from_str(&text).map_err(|error| format!("its own answer: {error}"))?;
        outcome.trace = outcome::name(trace);
        outcome.ordered_alone = mode == Mode::Ordered;
        Ok(outcome)
    }
}

fn write(path: &Path, text: &str) -> Answer<()> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

//! `urreplay`: replays a trace of allocations on any adapter, and reports how the pool served it.
//!
//! It may use `ur::abi` and `ur::dl`, and opens the loader at run time. `trace` parses traces, `api`
//! wraps the interface, `run` replays, `outcome` has the results and `perfetto` draws a trace over
//! time. Each mode runs in its own process, since an adapter reads its environment once.

mod api;
mod outcome;
mod perfetto;
mod run;
mod trace;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Parser, ValueEnum};
use console::progress::Progress;
use outcome::{Outcome, Outcomes};
use trace::Trace;

/// Replays recorded allocations and frees through Unified Runtime, each followed by work on its
/// queue, and prints their cost: times, reserved and live memory, and how allocations were served.
///
/// A trace is the output of UR_POOL_TRACE, or its first four columns, as text or gzip, or MiniMalloc's
/// CSV. The mode `ordered` sets UR_POOL_DETERMINISTIC=1, under which memory is not reused because its
/// use was observed complete. Adapters of other projects may ignore that variable.
#[derive(Parser)]
#[command(name = "urreplay", version)]
struct Cli {
    /// Loader library; by default libur_loader.so.0 beside this program, in ../lib or of the system
    #[arg(long, value_name = "PATH")]
    loader: Option<PathBuf>,
    /// Memory that may be reused; by default both modes run in turn
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Bytes of a fill after each operation; 0 for no work
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    work: usize,
    /// Least microseconds between the starts of two operations, as the program's own time
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    pace: u64,
    /// Ignores dependencies between queues; each block is freed on the queue of its allocation
    #[arg(long)]
    same_queue: bool,
    /// Multiplies all sizes
    #[arg(long, value_name = "TIMES", default_value_t = 1)]
    scale: u64,
    /// Lists the missing dependencies that cost most memory
    #[arg(long)]
    explain: bool,
    /// Prints JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Writes reserved and live bytes after each operation, as CSV
    #[arg(long, value_name = "FILE", requires = "mode")]
    series: Option<PathBuf>,
    /// Runs the traces one after the other in this process, as iterations of one program. Prints JSON:
    /// nanoseconds per operation of each trace, and the maximum of reserved and live bytes
    #[arg(long, conflicts_with_all = ["mode", "explain", "series", "perfetto"])]
    iterations: bool,
    /// Converts the trace for ui.perfetto.dev, and runs nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["mode", "explain", "json"])]
    perfetto: Option<PathBuf>,
    /// Runs in this process and prints one outcome; for this program's child processes
    #[arg(long = "here", hide = true)]
    in_process: bool,
    /// The traces
    #[arg(required = true)]
    traces: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Memory whose last use precedes the request in the program's order
    Ordered,
    /// Memory whose last use precedes the request, or was observed complete
    Completed,
}

const MODES: [Mode; 2] = [Mode::Ordered, Mode::Completed];
const LOADERS: [&str; 2] = ["libur_loader.so.0", "libur_loader.so"];
const DETERMINISTIC: &str = "UR_POOL_DETERMINISTIC";
const TRACE: &str = "UR_POOL_TRACE";

const FAULT: u8 = 1;
/// The reason of a failure that a child has told already.
const SAID: &str = "";

type Answer<T> = Result<T, String>;

fn main() -> ExitCode {
    let cli: Cli = match console::parse_with_schema::<Cli, Outcomes>(FAULT) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let code = match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            if reason != SAID {
                console::errln!("urreplay: {reason}");
            }
            ExitCode::from(FAULT)
        }
    };
    console::end("urreplay", code, FAULT)
}

impl Cli {
    fn run(&self) -> Answer<()> {
        if let Some(path) = &self.perfetto {
            let [trace] = &self.traces[..] else {
                return Err("--perfetto takes one trace".to_owned());
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
        if let Some(series) = &self.series {
            console::files::try_write(series)?;
        }
        let modes = self.mode.map_or(MODES.to_vec(), |mode| vec![mode]);
        let mut outcomes = Vec::new();
        let runs = self.traces.len() * modes.len();
        for trace in &self.traces {
            for mode in &modes {
                let run = format!("{} of {runs}, {}", outcomes.len() + 1, trace.display());
                let text = move |seconds| format!("urreplay: replay {run}: {seconds} s");
                let _progress = Progress::start(text);
                outcomes.push(self.child(trace, *mode)?);
            }
        }
        let text = match self.json {
            // Outcomes have strings and numbers only, so that the conversion cannot fail.
            true => serde_json::to_string_pretty(&Outcomes(outcomes)).unwrap_or_default() + "\n",
            false => outcome::table(&outcomes, self.explain),
        };
        console::out!("{text}");
        Ok(())
    }

    /// Replays in this process, whose environment sets the mode.
    fn run_in_process(&self) -> Answer<()> {
        let path = self.loader.clone();
        let path = path.unwrap_or_else(|| ur::dl::near_program(&LOADERS));
        let mut trace = Trace::read(&self.traces[0], self.scale)?;
        if self.same_queue {
            trace.drop_dependencies();
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
        let _progress = Progress::start(|seconds| format!("urreplay: iterations: {seconds} s"));
        let found = run::iterate(&api::Loader::open(&path)?, &traces, self.work)?;
        console::outln!("{}", serde_json::to_string(&found).unwrap_or_default());
        Ok(())
    }

    fn child(&self, trace: &Path, mode: Mode) -> Answer<Outcome> {
        let mut outcome = self.child_once(trace, mode, None)?;
        if self.explain {
            // A separate run, since writing a trace takes time.
            let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
            let own = folder.path().join("trace");
            self.child_once(trace, mode, Some(&own))?;
            if own.exists() {
                let input = Trace::read(trace, self.scale)?;
                outcome.lacks = outcome::missing_dependencies(&Trace::read(&own, 1)?, &input);
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
        match output.status.code() {
            Some(0) => {}
            Some(code) if code == i32::from(FAULT) => return Err(SAID.to_owned()),
            _ => return Err(format!("{}: {}", trace.display(), output.status)),
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

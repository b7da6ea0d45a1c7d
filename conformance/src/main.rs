//! `ur-conformance`: runs the suites of the specification on a device of any loader and adapter.
//!
//! It may use `ur::abi`, `ur::object` and `ur::dl`. It knows adapters only through the kernel
//! provider of their backend and their expectations file.

mod api;
mod calls;
mod coverage;
mod expectations;
mod fixture;
mod foreign;
mod fresh;
#[rustfmt::skip]
mod generated;
mod kernels;
mod leak;
mod locate;
mod objects;
mod outcome;
mod registry;
mod report;
mod runner;
mod scripted;
mod second;
mod status;
mod suites;
mod worker;

use api::FUNCTIONS;
use clap::{Parser, ValueEnum};
use console::progress::Progress;
use coverage::Coverage;
use expectations::{Expectations, Verdict};
use fixture::Target;
use indicatif::{ProgressBar, ProgressStyle};
use registry::Test;
use report::{Row, Run, Totals};
use runner::{Ended, Plan};
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Checks a Unified Runtime loader and an adapter against the specification.
///
/// Without --adapter the environment chooses: UR_ADAPTERS_FORCE_LOAD, UR_ADAPTERS_SEARCH_PATH and
/// ONEAPI_DEVICE_SELECTOR. Exits with 0 if every test ended as expected, 1 if not, 2 if no test could run or
/// the output could not be written. A reader that closes its end of the output is no error.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Loader library; by default libur_loader.so.0 beside this program, in ../lib or of the system
    #[arg(long)]
    loader: Option<PathBuf>,
    /// Adapter to load, by name, from the loader's folder
    #[arg(long)]
    adapter: Option<String>,
    /// Device to test, counted over all platforms of all adapters
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// Runs tests whose `suite::name` contains this; may be given several times
    #[arg(long)]
    filter: Vec<String>,
    /// Lists the tests and runs none
    #[arg(long)]
    list: bool,
    /// Writes the kernels as SPIR-V to a file, for other programs, and runs no test
    #[arg(long, value_name = "FILE")]
    write_kernels: Option<PathBuf>,
    /// Writes JUnit XML to a file
    #[arg(long)]
    junit: Option<PathBuf>,
    /// Writes results and the calls made to a file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Prints the functions called with valid arguments, the declared error conditions provoked, and the
    /// reasons for the rest
    #[arg(long)]
    coverage: bool,
    /// With --coverage: prints the coverage of an earlier run beside, from the file that its --json wrote;
    /// may be given several times
    #[arg(long, value_name = "JSON", requires = "coverage")]
    with: Vec<PathBuf>,
    /// The label of this run in the coverage, instead of the adapter's name
    #[arg(long, value_name = "NAME")]
    label: Option<String>,
    /// With --coverage: fails unless all functions were called with valid arguments, and this percentage of
    /// the declared error conditions was provoked, by all the runs together
    #[arg(long, value_name = "PERCENT", requires = "coverage")]
    goal: Option<f64>,
    /// Expectations file, instead of the one that comes with this program for the adapter; may be
    /// given several times
    #[arg(long)]
    expectations: Vec<PathBuf>,
    /// Processes that run tests at the same time
    #[arg(long)]
    jobs: Option<usize>,
    /// Seconds after which a test counts as hung; by default 60, or 600 with UR_LONG
    #[arg(long)]
    timeout: Option<u64>,
    /// Prints every test, not only those that did not pass
    #[arg(long, short)]
    verbose: bool,
    /// Runs all tests in this process, for debuggers and checkers
    #[arg(long)]
    in_process: bool,
    #[arg(long, hide = true)]
    worker: Option<WorkerKind>,
    /// The role of a test's second process.
    #[arg(long, hide = true)]
    second: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WorkerKind {
    /// The worker initialises the loader for all tests.
    Ready,
    /// The one test initialises the loader.
    Fresh,
}

const FAILED: u8 = 1;
const CANNOT_RUN: u8 = 2;

fn main() -> ExitCode {
    let cli: Cli = match console::parse(CANNOT_RUN) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    console::end("ur-conformance", cli.start(), CANNOT_RUN)
}

fn cannot_run(reason: &str) -> ExitCode {
    console::errln!("ur-conformance: {reason}");
    ExitCode::from(CANNOT_RUN)
}

impl Cli {
    fn start(&self) -> ExitCode {
        if let Some(path) = &self.write_kernels {
            return match std::fs::write(path, kernels::spirv()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(reason) => cannot_run(&format!("{}: {reason}", path.display())),
            };
        }
        let tests = suites::all();
        let chosen: Vec<usize> = (0..tests.len())
            .filter(|index| self.wants(&tests[*index]))
            .collect();
        if self.list {
            for index in chosen {
                console::outln!("{}", tests[index].full_name());
            }
            return ExitCode::SUCCESS;
        }
        match self.run(&tests, chosen) {
            Ok(code) => code,
            Err(reason) => cannot_run(&reason),
        }
    }

    fn wants(&self, test: &Test) -> bool {
        let name = test.full_name();
        self.filter.is_empty()
            || self
                .filter
                .iter()
                .any(|filter| name.contains(filter.as_str()))
    }

    fn run(&self, tests: &[Test], chosen: Vec<usize>) -> Result<ExitCode, String> {
        let loader = locate::loader(self.loader.as_deref())?;
        let target = Target {
            loader,
            device: self.device,
        };
        if let Some(role) = &self.second {
            return Self::second(role, &target);
        }
        if let Some(kind) = self.worker {
            worker::serve(tests, &target, kind == WorkerKind::Fresh)
                .map_err(|error| error.to_string())?;
            return Ok(ExitCode::SUCCESS);
        }
        if chosen.is_empty() {
            return Err("no test has such a name".to_owned());
        }
        let environment = match &self.adapter {
            Some(name) => vec![(
                "UR_ADAPTERS_FORCE_LOAD".to_owned(),
                locate::adapter(&target.loader, name)?,
            )],
            None => Vec::new(),
        };
        let jobs = self
            .jobs
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let usual = match std::env::var_os("UR_LONG") {
            Some(_) => 600,
            None => 60,
        };
        let timeout = Duration::from_secs(self.timeout.unwrap_or(usual));
        let plan = Plan {
            tests,
            chosen,
            target: &target,
            environment,
            jobs,
            timeout,
        };
        let run = if self.in_process {
            self.run_here(&plan)?
        } else {
            self.run_apart(&plan)?
        };
        self.conclude(&run)
    }

    /// Is the second process of a test.
    fn second(role: &str, target: &Target) -> Result<ExitCode, String> {
        let fixture = fixture::Fixture::open(target)?;
        let first = second::First;
        let done = suites::sharing::second(role, &fixture, &first);
        let passed = first.ended(&done) && fixture.close().is_ok();
        Ok(if passed {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(FAILED)
        })
    }

    /// Runs tests in worker processes.
    fn run_apart(&self, plan: &Plan) -> Result<Run, String> {
        let start = Instant::now();
        let identity = self.identify(plan)?;
        let expected = self.expectations(&identity.adapter, plan.tests)?;
        self.begin(plan, &identity);
        let bar = progress(plan.chosen.len());
        let (shown, count) = (bar.clone(), plan.chosen.len());
        let lines = Progress::start(move |seconds| {
            let done = shown.position();
            format!("ur-conformance: {done} of {count} tests done, {seconds} s")
        });
        let rows = Mutex::new(Vec::new());
        let calls = plan.run(&|ended| {
            let row = judge(plan.tests, &expected, ended);
            bar.inc(1);
            self.report(&bar, &row);
            rows.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(row);
        });
        drop(lines);
        bar.finish_and_clear();
        let tests = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
        let loader = plan.target.loader.display().to_string();
        let totals = Totals::of(&tests);
        Ok(Run {
            loader,
            label: self.label(&identity),
            identity,
            totals,
            seconds: start.elapsed().as_secs_f64(),
            tests,
            coverage: Coverage::of(&calls),
            calls,
        })
    }

    /// Runs tests in this process, one after another.
    fn run_here(&self, plan: &Plan) -> Result<Run, String> {
        let start = Instant::now();
        for (name, value) in &plan.environment {
            // SAFETY: this process has one thread so far.
            unsafe { std::env::set_var(name, value) };
        }
        let environment = worker::Environment::Ready(fixture::Fixture::open(plan.target)?);
        let mut identity = environment.identity().unwrap_or_else(|| fixture::Identity {
            adapter: String::new(),
            device: String::new(),
        });
        self.name_adapter(&mut identity);
        let expected = self.expectations(&identity.adapter, plan.tests)?;
        self.begin(plan, &identity);
        let bar = ProgressBar::hidden();
        let mut tests = Vec::new();
        for &test in &plan.chosen {
            let begun = Instant::now();
            let outcome = match plan.tests[test].needs_own_process() {
                true => outcome::Raw::Skipped("needs a process of its own".to_owned()),
                false => environment.run(&plan.tests[test]),
            };
            let row = judge(
                plan.tests,
                &expected,
                Ended {
                    test,
                    outcome,
                    time: begun.elapsed(),
                    output: String::new(),
                },
            );
            self.report(&bar, &row);
            tests.push(row);
        }
        let loader = plan.target.loader.display().to_string();
        let calls = environment.calls();
        environment.end();
        let (totals, seconds) = (Totals::of(&tests), start.elapsed().as_secs_f64());
        Ok(Run {
            loader,
            label: self.label(&identity),
            identity,
            totals,
            seconds,
            tests,
            coverage: Coverage::of(&calls),
            calls,
        })
    }

    fn label(&self, identity: &fixture::Identity) -> String {
        self.label.as_ref().unwrap_or(&identity.adapter).clone()
    }

    fn identify(&self, plan: &Plan) -> Result<fixture::Identity, String> {
        let mut identity = plan.identify()?;
        self.name_adapter(&mut identity);
        Ok(identity)
    }

    /// An adapter that was given by name has this name, whatever its backend reports.
    fn name_adapter(&self, identity: &mut fixture::Identity) {
        if let Some(name) = &self.adapter {
            identity.adapter.clone_from(name);
        }
    }

    fn expectations(&self, adapter: &str, tests: &[Test]) -> Result<Expectations, String> {
        let mut expected = Expectations::default();
        for path in &self.expectations {
            let text = std::fs::read_to_string(path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            let more = Expectations::parse(&text)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            expected.append(more);
        }
        if self.expectations.is_empty() {
            expected = Expectations::embedded(adapter)?;
        }
        let names: Vec<String> = tests.iter().map(Test::full_name).collect();
        match expected.unused(&names).as_slice() {
            [] => Ok(expected),
            unused => Err(format!(
                "expectations that match no test: {}",
                unused.join(", ")
            )),
        }
    }

    fn begin(&self, plan: &Plan, identity: &fixture::Identity) {
        let count = plan.chosen.len();
        console::outln!(
            "{count} tests on {} ({}), through {}",
            identity.device,
            identity.adapter,
            plan.target.loader.display()
        );
    }

    fn report(&self, bar: &ProgressBar, row: &Row) {
        let quiet = matches!(
            row.verdict,
            Verdict::Passed | Verdict::Unsupported(_) | Verdict::ExpectedFailure(_)
        );
        if self.verbose || !quiet {
            bar.suspend(|| console::outln!("{}", row.line()));
        }
    }

    fn conclude(&self, run: &Run) -> Result<ExitCode, String> {
        if let Some(path) = &self.junit {
            run.write_junit(path)?;
        }
        if let Some(path) = &self.json {
            run.write_json(path)?;
        }
        let reached = if self.coverage {
            Coverage::report(run, &self.with, self.goal)?
        } else {
            true
        };
        console::outln!(
            "{} of {} functions called, {:.1} s",
            run.calls.len(),
            FUNCTIONS.len(),
            run.seconds
        );
        console::outln!("{}", run.totals);
        Ok(if run.totals.failed == 0 && reached {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(FAILED)
        })
    }
}

fn judge(tests: &[Test], expected: &Expectations, ended: Ended) -> Row {
    let test = &tests[ended.test];
    let verdict = expected.judge(&test.full_name(), ended.outcome);
    let (suite, name) = (test.suite.to_owned(), test.name.to_string());
    Row {
        suite,
        test: name,
        verdict,
        seconds: ended.time.as_secs_f64(),
        output: ended.output,
    }
}

/// A progress bar on a terminal. Elsewhere [`Progress`] writes lines, and the bar counts only.
fn progress(count: usize) -> ProgressBar {
    if !std::io::stdout().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(count as u64);
    match ProgressStyle::with_template("{bar:40} {pos}/{len} {elapsed}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

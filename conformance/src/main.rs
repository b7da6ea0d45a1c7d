//! `ur-conformance`: runs the suites of the specification on a device of any loader and adapter.
//!
//! It may use `ur::abi`, `ur::object` and `ur::dl`. It knows adapters only through the kernel
//! provider of their backend and their expectations file.

mod api;
mod calls;
mod coverage;
mod expectations;
mod fixture;
mod fresh;
mod in_progress;
mod kernels;
mod leak;
mod locate;
mod native_work;
mod objects;
mod outcome;
mod registry;
mod report;
mod rules;
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
    /// Lists the tests and runs none; with --verbose each with the rule that it checks
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
    /// File of what the adapter is known to lack or to do wrong; may be given several times
    ///
    /// Each entry names tests, as `suite::test` with `*` for any text, and has a reason. `unsupported`: the
    /// adapter refuses the feature, and no query tells that it lacks it. `fails`: the test is known to fail.
    /// Such tests do not fail the run. It fails when one of them passes, so that the file stays true.
    /// A name such as `opencl-pocl` is that of an installed file. Without this option the file that is compiled
    /// into this program for the adapter applies, if there is one: for cuda, level_zero, native_cpu and opencl.
    #[arg(long, value_name = "FILE")]
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

/// The reason why tests are skipped on a device whose commands have no effects.
const NO_EXECUTION: &str = "the device executes nothing";
const LAYERS: &str = "UR_ENABLE_LAYERS";
const VALIDATION: &str = "UR_LAYER_FULL_VALIDATION";

const FAILED: u8 = 1;
const CANNOT_RUN: u8 = 2;

fn main() -> ExitCode {
    let cli: Cli = match console::parse_with_schema::<Cli, Run>(CANNOT_RUN) {
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
            self.print_list(&tests, &chosen);
            return ExitCode::SUCCESS;
        }
        match self.run(&tests, chosen) {
            Ok(code) => code,
            Err(reason) => cannot_run(&reason),
        }
    }

    /// One line for each test. With `--verbose` each has its rule, and each suite a line before its tests.
    fn print_list(&self, tests: &[Test], chosen: &[usize]) {
        let mut suite = "";
        for &index in chosen {
            let test = &tests[index];
            if !self.verbose {
                console::outln!("{}", test.full_name());
                continue;
            }
            if test.suite != suite {
                suite = test.suite;
                console::outln!("{suite}: {}", rules::head(suite).unwrap_or_default());
            }
            console::outln!("{}: {}", test.full_name(), test.rule());
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
            let timeout = self.timeout.map(Duration::from_secs);
            worker::serve(tests, &target, kind == WorkerKind::Fresh, timeout)
                .map_err(|error| error.to_string())?;
            return Ok(ExitCode::SUCCESS);
        }
        if chosen.is_empty() {
            return Err("no test has such a name".to_owned());
        }
        for output in [&self.junit, &self.json].into_iter().flatten() {
            console::files::try_write(output)?;
        }
        let other_runs = self.with.iter().map(|path| Coverage::read(path));
        let other_runs = other_runs.collect::<Result<_, _>>()?;
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
        let mut plan = Plan {
            tests,
            chosen,
            target: &target,
            environment,
            jobs,
            timeout,
        };
        let run = if self.in_process {
            self.run_here(&mut plan)?
        } else {
            self.run_apart(&mut plan)?
        };
        self.conclude(&run, other_runs)
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
    fn run_apart(&self, plan: &mut Plan) -> Result<Run, String> {
        let start = Instant::now();
        let identity = self.identify(plan)?;
        let expected = self.expectations(&identity.adapter, plan.tests)?;
        let skipped = self.begin(plan, &identity);
        let plan = &*plan;
        let bar = progress(plan.chosen.len());
        let (shown, count) = (bar.clone(), plan.chosen.len());
        let lines = Progress::start(move |seconds| {
            let done = shown.position();
            format!("ur-conformance: {done} of {count} tests done, {seconds} s")
        });
        let rows = Mutex::new(skipped);
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
    fn run_here(&self, plan: &mut Plan) -> Result<Run, String> {
        let start = Instant::now();
        set_environment(plan);
        let mut fixture = fixture::Fixture::open(plan.target)?;
        let mut identity = fixture.identity();
        self.name_adapter(&mut identity);
        let expected = self.expectations(&identity.adapter, plan.tests)?;
        let mut tests = self.begin(plan, &identity);
        if !identity.executes {
            // The loader reads its layers when it is initialised.
            let closed = fixture.close();
            closed.map_err(|_| "the loader cannot be initialised again".to_owned())?;
            set_environment(plan);
            fixture = fixture::Fixture::open(plan.target)?;
        }
        let plan = &*plan;
        let environment = worker::Environment::Ready(fixture);
        let bar = ProgressBar::hidden();
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
            let path = &locate::expectations(path);
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

    /// Says what runs on which device. On a device that executes nothing only the tests of the interface
    /// run, with the loader's layers to check the arguments; returns the rows of the others.
    fn begin(&self, plan: &mut Plan, identity: &fixture::Identity) -> Vec<Row> {
        console::outln!(
            "{} tests on {} ({}), through {}",
            plan.chosen.len(),
            identity.device,
            identity.adapter,
            plan.target.loader.display()
        );
        if identity.executes {
            return Vec::new();
        }
        let (chosen, left_out): (Vec<_>, Vec<_>) = std::mem::take(&mut plan.chosen)
            .into_iter()
            .partition(|&index| suites::is_interface(&plan.tests[index]));
        plan.chosen = chosen;
        console::outln!(
            "{NO_EXECUTION}, so {} tests of the interface run and {} are skipped",
            plan.chosen.len(),
            left_out.len()
        );
        if std::env::var_os(LAYERS).is_none() {
            console::outln!("the loader checks arguments: {LAYERS}={VALIDATION}");
            plan.environment
                .push((LAYERS.to_owned(), VALIDATION.to_owned()));
        }
        let none = Expectations::default();
        let skipped = |test| Ended {
            test,
            outcome: outcome::Raw::Skipped(NO_EXECUTION.to_owned()),
            time: Duration::ZERO,
            output: String::new(),
        };
        left_out
            .into_iter()
            .map(|test| judge(plan.tests, &none, skipped(test)))
            .collect()
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

    fn conclude(&self, run: &Run, other_runs: Vec<(String, Coverage)>) -> Result<ExitCode, String> {
        if let Some(path) = &self.junit {
            run.write_junit(path)?;
        }
        if let Some(path) = &self.json {
            run.write_json(path)?;
        }
        let reached = if self.coverage {
            Coverage::report(run, other_runs, self.goal)
        } else {
            true
        };
        console::outln!(
            "{} of {} functions called, {:.1} s",
            run.calls.len(),
            FUNCTIONS.len(),
            run.seconds
        );
        console::outln!("{}", run.summary());
        Ok(if run.totals.as_expected() && reached {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(FAILED)
        })
    }
}

/// Gives the environment of the workers to this process, which runs the tests itself.
fn set_environment(plan: &Plan) {
    for (name, value) in &plan.environment {
        // SAFETY: no test runs yet, and the loader's and the adapter's threads read no variables.
        unsafe { std::env::set_var(name, value) };
    }
}

fn judge(tests: &[Test], expected: &Expectations, ended: Ended) -> Row {
    let test = &tests[ended.test];
    let verdict = expected.judge(&test.full_name(), ended.outcome);
    let (suite, name) = (test.suite.to_owned(), test.name.to_string());
    Row {
        suite,
        test: name,
        rule: test.rule().into_owned(),
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

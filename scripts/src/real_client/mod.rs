//! `cargo xtask real-client`: runs programs that know nothing of this project on its installed files.
//!
//! The programs are those of conformance/sycl and dpctl's tests, on two releases of Intel's libsycl, over
//! each of our adapters. A missing requirement skips a run with its reason, or fails it with `--strict`. May
//! run Python, compilers and scripts/drivers.sh. Knows adapters by name only.

mod dpctl;
mod environment;
mod expect;
mod ours;
mod output;
mod process;
mod program;
mod report;
mod setup;

use crate::build;
use anyhow::{Result, bail};
use environment::{Environment, Runtime};
use report::{Outcome, Report, Row};
use setup::{Setup, Target};
use std::path::{Path, PathBuf};

/// Runs SYCL programs and dpctl's tests on Intel's libsycl, over our adapters.
#[derive(clap::Args)]
pub struct Options {
    /// The folder of installed libraries; without it they are built and installed below target/
    #[arg(long)]
    prefix: Option<PathBuf>,
    /// The folder of scripts/drivers.sh for OpenCL drivers; below target/ without it
    #[arg(long)]
    drivers: Option<PathBuf>,
    /// The folder of scripts/level_zero.sh for Level Zero's loader; below target/ without it
    #[arg(long)]
    level_zero: Option<PathBuf>,
    /// A release of libsycl; every release without it
    #[arg(long, value_enum)]
    runtime: Vec<Runtime>,
    /// Fails if a requirement is missing here
    #[arg(long)]
    strict: bool,
    /// Intel's loader and adapters in place of ours, for comparison; their failures do not count
    #[arg(long)]
    reference: bool,
    /// Programs of conformance/sycl by name, `mock`, `urtrace`, `ur-env`, `dpctl`; all without it
    names: Vec<String>,
}

/// A client.
enum Client {
    /// A source of conformance/sycl.
    Program(PathBuf),
    Mock,
    Trace,
    Env,
    Dpctl,
}

impl Client {
    /// All clients, in the order of their runs.
    fn all(root: &Path) -> Result<Vec<Client>> {
        let programs = program::sources(root)?.into_iter().map(Client::Program);
        let others = [Client::Mock, Client::Trace, Client::Env, Client::Dpctl];
        Ok(programs.chain(others).collect())
    }

    fn name(&self) -> String {
        match self {
            Client::Program(source) => program::name(source),
            Client::Mock => "mock".to_owned(),
            Client::Trace => "urtrace".to_owned(),
            Client::Env => "ur-env".to_owned(),
            Client::Dpctl => "dpctl".to_owned(),
        }
    }

    fn targets(&self, reference: bool) -> &'static [Target] {
        match (self, reference) {
            (Client::Program(_), true) => &[Target::Reference, Target::ReferenceLevelZero],
            (Client::Dpctl, true) => &[Target::Reference],
            (Client::Mock | Client::Trace | Client::Env, true) => &[],
            (Client::Program(_), false) => &[
                Target::NativeCpu,
                Target::Intel,
                Target::Pocl,
                Target::LevelZero,
                Target::LevelZeroAlone,
            ],
            (Client::Mock, false) => &[Target::Mock],
            (Client::Trace, false) => &[Target::NativeCpu],
            // dpctl's kernels are SPIR-V, which only these drivers take here.
            (Client::Dpctl, false) => &[Target::Intel, Target::LevelZero],
            // On this driver libsycl has a default device without us.
            (Client::Env, false) => &[Target::Intel],
        }
    }

    fn run(&self, setup: &Setup<'_>, environment: &Environment, target: Target) -> Result<Outcome> {
        let dpctl = match self {
            Client::Dpctl => environment.dpctl.as_ref().err(),
            _ => None,
        };
        let compiler = setup.compiler.as_ref().err();
        if let Some(missing) = setup.missing_driver(target).or(compiler).or(dpctl) {
            return Ok(setup.missing(missing));
        }
        match self {
            Client::Program(source) => program::run(setup, environment, target, source),
            Client::Mock => ours::mock(setup, environment),
            Client::Trace => ours::trace(setup, environment),
            Client::Env => ours::default_device(setup, environment),
            Client::Dpctl => dpctl::run(setup, environment, target),
        }
    }
}

/// The SYCL program of `cargo xtask bench`, for the release of libsycl that has Intel's loader and OpenCL
/// adapter.
pub fn measured(root: &Path) -> Result<PathBuf> {
    let compiler = environment::compiler().map_err(anyhow::Error::msg)?;
    let work = build::target_dir(root)?.join("real-client");
    std::fs::create_dir_all(&work)?;
    let environment = Environment::prepare(&work, Runtime::V2026_2_0)?;
    let binary = environment.programs().join("bench-submit");
    let source = root.join("conformance/sycl/bench/submit.cpp");
    let mut compiler = std::process::Command::new(compiler);
    program::link(&mut compiler, &environment, &source, &binary);
    // Only the driver is on its library path.
    let rpath = format!(
        "-Wl,--disable-new-dtags,-rpath,{}",
        environment.lib().display()
    );
    program::compile(compiler.arg(rpath), &binary)?;
    Ok(binary)
}

/// Runs the clients that the options name. Returns whether all passed.
pub fn run(root: &Path, options: &Options) -> Result<bool> {
    let mut clients = Client::all(root)?;
    for name in &options.names {
        if !clients.iter().any(|client| client.name() == *name) {
            let known: Vec<String> = clients.iter().map(Client::name).collect();
            bail!("{name} is none of {}", known.join(", "));
        }
    }
    clients.retain(|client| options.names.is_empty() || options.names.contains(&client.name()));
    let work = build::target_dir(root)?.join("real-client");
    std::fs::create_dir_all(&work)?;
    let setup = Setup::prepare(root, &work, options)?;
    let mut report = Report::default();
    for runtime in Runtime::ALL {
        if !options.runtime.is_empty() && !options.runtime.contains(&runtime) {
            continue;
        }
        let environment = Environment::prepare(&work, runtime);
        if let Ok(environment) = &environment {
            let _step = build::step(&format!(
                "builds the SYCL programs for libsycl {}",
                runtime.version()
            ));
            program::build_all(&setup, environment, &clients);
        }
        for client in &clients {
            for &target in client.targets(options.reference) {
                let column = format!("{} {}", runtime.version(), target.name());
                let _progress = build::goes_on(&format!("{} on {column}", client.name()));
                let outcome = match &environment {
                    Ok(environment) => client
                        .run(&setup, environment, target)
                        .unwrap_or_else(|error| Outcome::Failed(format!("{error:#}"))),
                    Err(missing) => setup.missing(&format!("{missing:#}")),
                };
                report.add(Row {
                    client: client.name(),
                    column,
                    outcome,
                });
            }
        }
    }
    report.print();
    Ok(options.reference || !report.failed())
}

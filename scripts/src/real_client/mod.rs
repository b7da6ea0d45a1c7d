//! `cargo xtask real-client`: programs that know nothing of this project, on what it installs. The
//! SYCL programs of conformance/sycl and dpctl's own tests, on two releases of Intel's libsycl, each
//! over our adapters.
//!
//! What the machine lacks is skipped with its reason; `--strict` makes that a failure. May run
//! Python, the C++ compiler and scripts/drivers.sh; knows adapters by their names only.

mod dpctl;
mod environment;
mod expect;
mod output;
mod process;
mod program;
mod report;

use crate::{build, install};
use anyhow::{Result, bail};
use environment::{Drivers, Environment, Runtime};
use expect::Expectations;
use report::{Outcome, Report, Row};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs SYCL programs and dpctl's tests on Intel's libsycl, over our adapters.
#[derive(clap::Args)]
pub struct Options {
    /// Where `install` put the libraries; without it they are built and installed below target/
    #[arg(long)]
    prefix: Option<PathBuf>,
    /// Where scripts/drivers.sh puts the OpenCL drivers; below target/ without it
    #[arg(long)]
    drivers: Option<PathBuf>,
    /// A release of libsycl; all without it
    #[arg(long, value_enum)]
    runtime: Vec<Runtime>,
    /// What is missing here is a failure
    #[arg(long)]
    strict: bool,
    /// Intel's own loader and OpenCL adapter in place of ours, to compare; what fails fails nothing
    #[arg(long)]
    reference: bool,
    /// Programs of conformance/sycl by name, and `dpctl`; all without it
    names: Vec<String>,
}

/// What a client runs on: one of our adapters with what is beneath it, or Intel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    NativeCpu,
    Intel,
    Pocl,
    /// Intel's adapter on Intel's driver.
    Reference,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Target::NativeCpu => "native_cpu",
            Target::Intel => "opencl/intel",
            Target::Pocl => "opencl/pocl",
            Target::Reference => "reference",
        }
    }

    /// The adapter's name, as libraries and the device selector have it.
    fn adapter(self) -> &'static str {
        match self {
            Target::NativeCpu => "native_cpu",
            _ => "opencl",
        }
    }

    /// The driver's name, as scripts/drivers.sh has it.
    fn driver(self) -> Option<&'static str> {
        match self {
            Target::NativeCpu => None,
            Target::Intel | Target::Reference => Some("intel"),
            Target::Pocl => Some("pocl"),
        }
    }
}

/// Something that runs on a runtime and a target.
enum Client {
    Program(PathBuf),
    Dpctl,
}

impl Client {
    /// All that there are, in the order in which they run.
    fn all(root: &Path) -> Result<Vec<Client>> {
        let programs = program::sources(root)?.into_iter().map(Client::Program);
        Ok(programs.chain([Client::Dpctl]).collect())
    }

    fn name(&self) -> String {
        match self {
            Client::Program(source) => program::name(source),
            Client::Dpctl => "dpctl".to_owned(),
        }
    }

    fn targets(&self, reference: bool) -> &'static [Target] {
        match (self, reference) {
            (_, true) => &[Target::Reference],
            (Client::Program(_), false) => &[Target::NativeCpu, Target::Intel, Target::Pocl],
            // Its kernels are SPIR-V, which of these only Intel's driver takes.
            (Client::Dpctl, false) => &[Target::Intel],
        }
    }
}

/// What all runs share.
struct Bench<'a> {
    root: &'a Path,
    lib: PathBuf,
    drivers: Drivers,
    kernels: PathBuf,
    expectations: Expectations,
    strict: bool,
}

/// Runs what the options name; says whether all went as it should.
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
    let bench = Bench::prepare(root, &work, options)?;
    let mut report = Report::default();
    for runtime in Runtime::ALL {
        if options.runtime.is_empty() || options.runtime.contains(&runtime) {
            bench.run(&work, runtime, &clients, options.reference, &mut report)?;
        }
    }
    report.print();
    Ok(options.reference || !report.failed())
}

impl<'a> Bench<'a> {
    fn prepare(root: &'a Path, work: &Path, options: &Options) -> Result<Self> {
        let prefix = match &options.prefix {
            Some(prefix) => prefix.clone(),
            None => install::below_target(root)?,
        };
        let prefix = std::fs::canonicalize(prefix)?;
        let kernels = work.join("kernels.spv");
        let mut writer = Command::new(prefix.join("bin/ur-conformance"));
        build::run(writer.arg("--write-kernels").arg(&kernels))?;
        let drivers = match &options.drivers {
            Some(folder) => folder.clone(),
            None => build::target_dir(root)?.join("drivers"),
        };
        Ok(Self {
            root,
            lib: prefix.join("lib"),
            drivers: Drivers::prepare(root, &drivers)?,
            kernels,
            expectations: match options.reference {
                true => Expectations::default(),
                false => Expectations::load(root)?,
            },
            strict: options.strict,
        })
    }

    /// All clients on one runtime.
    fn run(
        &self,
        work: &Path,
        runtime: Runtime,
        clients: &[Client],
        reference: bool,
        report: &mut Report,
    ) -> Result<()> {
        let environment = Environment::prepare(work, runtime);
        if let Ok(environment) = &environment {
            program::build_all(self.root, environment, clients)?;
        }
        for client in clients {
            for &target in client.targets(reference) {
                let outcome = match &environment {
                    Ok(environment) => self.launch(environment, client, target)?,
                    Err(missing) => self.missing(&format!("{missing:#}")),
                };
                report.add(Row {
                    client: client.name(),
                    column: format!("{} {}", runtime.version(), target.name()),
                    outcome,
                });
            }
        }
        Ok(())
    }

    fn launch(
        &self,
        environment: &Environment,
        client: &Client,
        target: Target,
    ) -> Result<Outcome> {
        if let Some(missing) = target.driver().and_then(|name| self.drivers.lack(name)) {
            return Ok(self.missing(missing));
        }
        match client {
            Client::Program(source) => program::run(self, environment, target, source),
            Client::Dpctl => match &environment.dpctl {
                Ok(()) => dpctl::run(self, environment, target),
                Err(missing) => Ok(self.missing(missing)),
            },
        }
    }

    /// What cannot run on this machine.
    fn missing(&self, reason: &str) -> Outcome {
        match self.strict {
            true => Outcome::Failed(format!("cannot run here: {reason}")),
            false => Outcome::Skipped(format!("cannot run here: {reason}")),
        }
    }

    /// A command in which a client sees this runtime and this target, and nothing else of what the
    /// caller's environment says about devices.
    fn command(&self, environment: &Environment, target: Target, program: &Path) -> Command {
        let mut command = match target.driver() {
            Some(driver) => self.drivers.launcher(driver, program),
            None => Command::new(program),
        };
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["UR_", "SYCL_", "ONEAPI_", "OCL_ICD_"]
                .iter()
                .any(|start| text.starts_with(start))
            {
                command.env_remove(&name);
            }
        }
        let mut folders = vec![environment.lib()];
        match (target, environment.runtime.links_loader()) {
            (Target::Reference, _) => {}
            // Our loader and adapter lie where the dynamic linker looks first.
            (_, true) => folders.insert(0, self.lib.clone()),
            // The loader is within libsycl; it takes an adapter by path.
            (_, false) => {
                command.env("UR_ADAPTERS_FORCE_LOAD", self.adapter(target));
            }
        }
        let folders: Vec<String> = folders
            .iter()
            .map(|folder| folder.display().to_string())
            .collect();
        command
            .env("LD_LIBRARY_PATH", folders.join(":"))
            .env("ONEAPI_DEVICE_SELECTOR", format!("{}:*", target.adapter()));
        command
    }

    /// Our adapter's library.
    fn adapter(&self, target: Target) -> PathBuf {
        self.lib
            .join(format!("libur_adapter_{}.so.0", target.adapter()))
    }

    /// Whether a client loaded what it was meant to; libraries are named as the kernel names them.
    fn check_libraries(
        &self,
        environment: &Environment,
        target: Target,
        loaded: &[String],
    ) -> Result<(), String> {
        if target == Target::Reference {
            return Ok(());
        }
        let mut wanted = vec![self.adapter(target)];
        if environment.runtime.links_loader() {
            wanted.push(self.lib.join("libur_loader.so.0"));
        }
        let mut wanted: Vec<String> = wanted
            .iter()
            .map(|path| {
                std::fs::canonicalize(path)
                    .unwrap_or_else(|_| path.clone())
                    .display()
                    .to_string()
            })
            .collect();
        wanted.sort();
        match loaded == wanted {
            true => Ok(()),
            false => Err(format!(
                "ran on [{}], not on [{}]",
                loaded.join(", "),
                wanted.join(", ")
            )),
        }
    }
}

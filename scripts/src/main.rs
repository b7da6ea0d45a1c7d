//! `cargo xtask`: the project's own tools.

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::{Command as Process, ExitCode};
use xtask::{
    bench, build, docs, expand, generate, install, model, package, real_client, repository, tidy,
};

#[derive(Parser)]
#[command(about = "Tools of the Unified Runtime project")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Generates code and headers from spec/.
    Gen {
        /// Changes nothing, and fails if a file would change.
        #[arg(long)]
        check: bool,
    },
    /// Prints everything that is made from one function of the interface.
    Expand {
        /// The C name, such as urEnqueueUSMFill.
        name: String,
    },
    /// Fails if the table of supported functions denies an adapter a function that a conformance run used.
    Supported {
        /// Files that `ur-conformance --json` wrote.
        #[arg(required = true)]
        reports: Vec<PathBuf>,
    },
    /// Fails if the table of what the conformance runs exercise differs from their reports.
    Coverage {
        /// Files that `scripts/coverage.sh` wrote.
        #[arg(required = true)]
        reports: Vec<PathBuf>,
        /// Replaces the table.
        #[arg(long)]
        write: bool,
    },
    /// Checks the design's invariants on the source text.
    Tidy,
    /// Builds the book: docs/, and pages made from the specification, the tools and the tests.
    Docs(docs::Options),
    /// Builds everything, then runs the conformance suite and a C program on an adapter through the loader.
    Demo {
        #[arg(long, default_value = "native_cpu")]
        adapter: String,
    },
    /// Builds everything and installs it under a prefix: lib, include, bin, share.
    Install {
        #[arg(long)]
        prefix: PathBuf,
    },
    /// Builds everything and makes Debian packages and a Python wheel.
    Package(package::Options),
    /// Runs SYCL programs and dpctl's tests on Intel's libsycl, over our adapters.
    RealClient(real_client::Options),
    /// Measures our libraries beside others, in one run.
    Bench {
        #[command(subcommand)]
        bench: bench::Bench,
    },
}

const FAULT: u8 = 1;

fn main() -> ExitCode {
    let cli: Cli = match console::parse(FAULT) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let code = run(cli.command).unwrap_or_else(|error| {
        console::errln!("Error: {error:?}");
        ExitCode::from(FAULT)
    });
    console::end("xtask", code, FAULT)
}

fn run(command: Command) -> Result<ExitCode> {
    let root = repository();
    match command {
        Command::Gen { check } => {
            let spec = model::Spec::load(&root.join("spec"))?;
            let files = generate::all(&spec, &root)?;
            if check {
                generate::check(&root, &files)?;
                console::outln!("{} generated files are fresh", files.len());
            } else {
                let changed = generate::write(&root, &files)?;
                console::outln!("{changed} of {} generated files changed", files.len());
            }
        }
        Command::Expand { name } => {
            let spec = model::Spec::load(&root.join("spec"))?;
            console::out!("{}", expand::expand(&spec, &root, &name)?);
        }
        Command::Supported { reports } => {
            let spec = model::Spec::load(&root.join("spec"))?;
            generate::support::check(&spec, &root, &reports)?;
            console::outln!(
                "{} reports agree with {}",
                reports.len(),
                generate::support::PAGE
            );
        }
        Command::Coverage { reports, write } => {
            docs::coverage::check(&root, &reports, write)?;
            let page = docs::coverage::PAGE;
            console::outln!("{page} has the numbers of {} reports", reports.len());
        }
        Command::Tidy => {
            tidy::check(&root)?;
            console::outln!("tidy");
        }
        Command::Docs(options) => {
            let book = docs::run(&root, &options)?;
            console::outln!("{}", book.display());
        }
        Command::Demo { adapter } => demo(&adapter)?,
        Command::Install { prefix } => {
            let built = build::workspace(&root, true)?;
            install::install(&root, &built, &prefix)?;
            console::outln!("installed to {}", prefix.display());
        }
        Command::Package(options) => package::run(&root, &options)?,
        Command::RealClient(options) => {
            if !real_client::run(&root, &options)? {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Bench { bench } => bench::run(&root, &bench)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the conformance suite and a C program on an installed tree.
fn demo(adapter: &str) -> Result<()> {
    let root = repository();
    let prefix = install::below_target(&root)?;
    build::run(Process::new(prefix.join("bin/ur-conformance")).args(["--adapter", adapter]))?;
    let program = prefix.join("bin/async_alloc");
    build::c_program(
        &root,
        &root.join("examples/async_alloc.c"),
        &prefix.join("lib"),
        &program,
    )?;
    let selector = format!("{adapter}:*");
    build::run(
        Process::new(program)
            .env("ONEAPI_DEVICE_SELECTOR", selector)
            .env_remove("UR_ADAPTERS_FORCE_LOAD"),
    )
}

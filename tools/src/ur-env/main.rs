//! `ur-env`: sets the environment in which a SYCL program runs on this installation's adapters.
//!
//! Owns the variables that each `libsycl` needs, and the search for `libsycl`. It opens no loader
//! and knows no adapter by name but the mock and native_cpu; the adapters are the files beside the
//! loader.

mod installation;
mod plan;
mod runtime;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Parser;
use installation::Installation;
use plan::{Plan, VARIABLES, Variable};
use runtime::Runtime;

/// Prints the variables that run an installed libsycl on this installation's adapters, for `eval
/// "$(ur-env)"`, or runs a command with them.
///
/// Loaders get the adapters by path. A libsycl that links libur_loader.so.0, such as 2026.1, also
/// gets this installation's loader, first on LD_LIBRARY_PATH. A libsycl with its own loader inside,
/// such as 2026.2, keeps it.
///
/// A program's default device does not change: with libsycl 2026.2 and no GPU it is the CPU through
/// OpenCL. Of devices with equal scores libsycl takes the first adapter's, and native_cpu comes
/// last. It is the default if there is no other device, with --adapter native_cpu, or if
/// ONEAPI_DEVICE_SELECTOR selects it, for example by native_cpu:cpu.
///
/// Exits with 1 if a named adapter or libsycl does not exist, with 127 if the command does not
/// exist, and with 126 if it cannot be run.
#[derive(Parser)]
#[command(name = "ur-env", version, after_long_help = variables_help())]
struct Cli {
    /// Adapters to use, in this order, such as native_cpu; by default all installed ones but the
    /// mock, with native_cpu last
    #[arg(long, short, value_name = "NAMES", value_delimiter = ',')]
    adapter: Vec<String>,
    /// The libsycl to run on; by default the first in LD_LIBRARY_PATH or in the lib folder of the
    /// active virtual environment, conda environment or compiler
    #[arg(long, value_name = "PATH")]
    libsycl: Option<PathBuf>,
    /// A folder to search for libsycl before all others
    #[arg(long, value_name = "FOLDER", hide = true)]
    search: Vec<PathBuf>,
    /// The command to run, with its arguments
    #[arg(trailing_var_arg = true)]
    command: Vec<OsString>,
}

const FAULT: u8 = 1;
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

fn main() -> ExitCode {
    let cli: Cli = match console::parse(FAULT) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let code = cli.run().unwrap_or_else(|error| {
        console::errln!("ur-env: {error}");
        ExitCode::from(FAULT)
    });
    console::end("ur-env", code, FAULT)
}

impl Cli {
    fn run(&self) -> Result<ExitCode, String> {
        let installation = Installation::find()?;
        let runtime = match &self.libsycl {
            Some(path) => Some(Runtime::read(path)?),
            None => Runtime::search(&self.search, |name| std::env::var_os(name)),
        };
        if runtime.is_none() {
            console::errln!(
                "ur-env: found no libsycl; the variables suit every version, --libsycl PATH names one"
            );
        }
        let plan = Plan {
            installation: &installation,
            runtime: runtime.as_ref(),
            adapters: &self.adapter,
        };
        let variables = plan.variables(|name| std::env::var_os(name))?;
        if let Some(warning) = plan.layers_warning(|name| std::env::var_os(name)) {
            console::errln!("ur-env: {warning}");
        }
        match self.command.split_first() {
            Some((program, arguments)) => Ok(exec(program, arguments, &variables)),
            None => {
                print(&variables);
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// A paragraph for each variable that may be set.
fn variables_help() -> String {
    let mut text = "Variables:".to_owned();
    for Variable { name, why } in VARIABLES {
        text += &format!("\n  {name}\n          {why}");
    }
    text
}

/// Prints each variable as a shell command, after a comment with its reason.
fn print(variables: &[(Variable, OsString)]) {
    for (Variable { name, why }, value) in variables {
        let mut lines = format!("# {why}\nexport {name}='").into_bytes();
        for byte in value.as_bytes() {
            match byte {
                // A quote is written as `'\''`: end of quoting, the quote, start of quoting.
                b'\'' => lines.extend(b"'\\''"),
                byte => lines.push(*byte),
            }
        }
        lines.extend(b"'\n");
        console::write(&lines);
    }
}

/// Replaces this process by the command. Returns an exit code only on failure.
fn exec(
    program: &OsString,
    arguments: &[OsString],
    variables: &[(Variable, OsString)],
) -> ExitCode {
    let mut command = Command::new(program);
    command.args(arguments);
    for (variable, value) in variables {
        command.env(variable.name, value);
    }
    let error = command.exec();
    console::errln!("ur-env: {}: {error}", program.display());
    let missing = error.kind() == io::ErrorKind::NotFound;
    ExitCode::from(if missing { NOT_FOUND } else { NOT_RUN })
}

//! `ur-env`: the environment in which a SYCL program runs on this installation's adapters.
//!
//! Owns what has to be set for which `libsycl`, and where that is looked for. It opens no loader and
//! knows no adapter: what lies beside the loader is what there is.

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
use plan::{Plan, Variable};
use runtime::Runtime;

/// Prints the variables that put this installation's adapters under an installed libsycl, for
/// `eval "$(ur-env)"`, or runs a command with them.
///
/// Loaders are told of the adapters by path. For a libsycl that links libur_loader.so.0, as 2026.1's,
/// rather than having a loader of its own inside, as 2026.2's, this installation's loader comes first
/// on LD_LIBRARY_PATH.
///
/// A program's default device stays what it was, with libsycl 2026.2 and no GPU the CPU through OpenCL:
/// of devices that it scores alike, libsycl takes that of the first adapter, and native_cpu comes last.
/// It is the default where there is no other device, with --adapter native_cpu, or where
/// ONEAPI_DEVICE_SELECTOR selects it, as native_cpu:cpu does.
///
/// Exits with 1 if a named adapter or libsycl is not there, with 127 or 126 if there
/// is no such command or it cannot be run.
#[derive(Parser)]
#[command(name = "ur-env", version)]
struct Cli {
    /// Adapters to use, in this order, such as native_cpu; by default all that are installed but the
    /// mock, native_cpu last
    #[arg(long, short, value_name = "NAMES", value_delimiter = ',')]
    adapter: Vec<String>,
    /// The libsycl to run on; by default the first in LD_LIBRARY_PATH or the lib folder of the virtual
    /// environment, conda environment or compiler that is active
    #[arg(long, value_name = "PATH")]
    libsycl: Option<PathBuf>,
    /// A folder in which libsycl is looked for before all others
    #[arg(long, value_name = "FOLDER", hide = true)]
    search: Vec<PathBuf>,
    /// Command to run, with its arguments
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
                "ur-env: found no libsycl; these variables serve all, --libsycl PATH names one"
            );
        }
        let plan = Plan {
            installation: &installation,
            runtime: runtime.as_ref(),
            adapters: &self.adapter,
        };
        let variables = plan.variables(|name| std::env::var_os(name))?;
        match self.command.split_first() {
            Some((program, arguments)) => Ok(exec(program, arguments, &variables)),
            None => {
                print(&variables);
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

fn print(variables: &[Variable]) {
    for (name, value) in variables {
        let mut line = format!("export {name}='").into_bytes();
        for byte in value.as_bytes() {
            match byte {
                // A quote ends the quoting, stands for itself, and begins it again.
                b'\'' => line.extend(b"'\\''"),
                byte => line.push(*byte),
            }
        }
        line.extend(b"'\n");
        console::write(&line);
    }
}

/// Becomes the command; returns only if that fails.
fn exec(program: &OsString, arguments: &[OsString], variables: &[Variable]) -> ExitCode {
    let mut command = Command::new(program);
    command.args(arguments);
    for (name, value) in variables {
        command.env(name, value);
    }
    let error = command.exec();
    console::errln!("ur-env: {}: {error}", program.display());
    let missing = error.kind() == io::ErrorKind::NotFound;
    ExitCode::from(if missing { NOT_FOUND } else { NOT_RUN })
}

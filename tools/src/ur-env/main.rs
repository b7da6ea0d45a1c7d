//! `ur-env`: the environment in which a SYCL program runs on this installation's adapters.
//!
//! Owns what has to be set for which `libsycl`, and where that is looked for. It opens no loader and
//! knows no adapter: what lies beside the loader is what there is.

mod installation;
mod plan;
mod runtime;

use std::ffi::OsString;
use std::io::{self, Write as _};
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
/// on LD_LIBRARY_PATH. Exits with 1 if a named adapter or libsycl is not there, with 127 or 126 if there
/// is no such command or it cannot be run.
#[derive(Parser)]
#[command(name = "ur-env", version)]
struct Cli {
    /// Adapters to use, such as native_cpu; by default all that are installed but the mock
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
    let cli = Cli::parse();
    match cli.run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ur-env: {error}");
            ExitCode::from(FAULT)
        }
    }
}

impl Cli {
    fn run(&self) -> Result<ExitCode, String> {
        let installation = Installation::find()?;
        let runtime = match &self.libsycl {
            Some(path) => Some(Runtime::read(path)?),
            None => Runtime::search(&self.search, |name| std::env::var_os(name)),
        };
        if runtime.is_none() {
            eprintln!(
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
                print(&variables).map_err(|error| error.to_string())?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

fn print(variables: &[Variable]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (name, value) in variables {
        write!(out, "export {name}='")?;
        // A quote ends the quoting, stands for itself, and begins it again.
        let mut parts = value.as_bytes().split(|byte| *byte == b'\'');
        out.write_all(parts.next().unwrap_or_default())?;
        for part in parts {
            out.write_all(b"'\\''")?;
            out.write_all(part)?;
        }
        out.write_all(b"'\n")?;
    }
    out.flush()
}

/// Becomes the command; returns only if that fails.
fn exec(program: &OsString, arguments: &[OsString], variables: &[Variable]) -> ExitCode {
    let mut command = Command::new(program);
    command.args(arguments);
    for (name, value) in variables {
        command.env(name, value);
    }
    let error = command.exec();
    eprintln!("ur-env: {}: {error}", program.display());
    let missing = error.kind() == io::ErrorKind::NotFound;
    ExitCode::from(if missing { NOT_FOUND } else { NOT_RUN })
}

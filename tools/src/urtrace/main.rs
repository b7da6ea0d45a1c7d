//! `urtrace`: runs a program with the loader's tracing layer enabled, and summarises its calls.
//!
//! Owns the mapping from options to the layer's environment variables, whose meaning the layer
//! defines. The program and its child processes inherit them.

mod summary;

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use console::files::is_special;
use summary::Summary;

/// Runs a command with every Unified Runtime call traced, then prints a table of the calls.
///
/// Arguments are shown when a call starts; its result, outputs and time when it ends. A command
/// that uses libur_loader.so.0 gets the loader of this installation: SYCL programs on libsycl
/// 2026.1 do. libsycl 2026.2 has its own loader inside, which has no tracing layer, so that nothing
/// is traced.
///
/// Exits as the command does: with its code, or with 128 and the number of the signal that ended
/// it. Exits with 127 if the command does not exist, and with 126 if it cannot be run.
#[derive(Parser)]
#[command(name = "urtrace", version)]
struct Cli {
    /// Output of the trace: a file (%p is the process id), stderr or stdout. By default stderr, or
    /// urtrace-%p.json for Perfetto
    #[arg(long, short)]
    output: Option<String>,
    /// Format of the trace
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Functions to trace: names with * and ?, separated by commas; those after ! are excluded
    #[arg(long, value_name = "GLOBS")]
    functions: Option<String>,
    /// Adapters to trace, such as native_cpu or !opencl
    #[arg(long, value_name = "GLOBS")]
    adapters: Option<String>,
    /// Shows only calls that took at least this long, such as 10us or 1.5ms; the table counts all
    #[arg(long, value_name = "TIME", value_parser = min_time)]
    min_time: Option<Duration>,
    /// Prints only the table
    #[arg(long, short, conflicts_with_all = ["output", "format", "no_summary", "min_time"])]
    summary: bool,
    /// Prints no table
    #[arg(long)]
    no_summary: bool,
    /// Loader library; by default libur_loader.so.0 beside this program, in ../lib or of the system
    #[arg(long, value_name = "PATH", conflicts_with = "keep_loader")]
    loader: Option<PathBuf>,
    /// Does not change LD_LIBRARY_PATH: the command finds its own loader
    #[arg(long)]
    keep_loader: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Text lines
    Text,
    /// JSON of the Chrome trace format, for ui.perfetto.dev
    #[value(alias = "json")]
    Perfetto,
}

const LAYER: &str = "UR_LAYER_TRACING";
const LOADERS: [&str; 2] = ["libur_loader.so.0", "libur_loader.so"];
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;
const OWN_FAULT: u8 = 125;

fn main() -> ExitCode {
    let cli: Cli = match console::parse(OWN_FAULT) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    cli.run().unwrap_or_else(|error| {
        console::errln!("urtrace: {error}");
        ExitCode::from(OWN_FAULT)
    })
}

impl Cli {
    /// Runs the command and returns its exit code. An error names the path that it is about.
    fn run(&self) -> Result<ExitCode, String> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Ok(ExitCode::from(OWN_FAULT));
        };
        let folder = tempfile::Builder::new().prefix("urtrace-").tempdir();
        let folder = folder.map_err(|error| error.to_string())?;
        let output = self.output();
        let mut command = Command::new(program);
        command.args(arguments);
        self.configure(&mut command, folder.path(), &output)?;
        prepare(&output)?;
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                console::errln!("urtrace: {}: {error}", program.display());
                let missing = error.kind() == io::ErrorKind::NotFound;
                return Ok(ExitCode::from(if missing { NOT_FOUND } else { NOT_RUN }));
            }
        };
        wait_through_signals(child.id());
        let status = child.wait();
        let status = status.map_err(|error| format!("{}: {error}", program.display()))?;
        self.report(&Summary::read(folder.path()), status, &output);
        Ok(code(status))
    }

    fn output(&self) -> String {
        match (&self.output, self.format) {
            _ if self.summary => "none".to_owned(),
            (Some(output), _) => output.clone(),
            (None, Format::Text) => "stderr".to_owned(),
            (None, Format::Perfetto) => "urtrace-%p.json".to_owned(),
        }
    }

    /// Sets the layer's variables. Relative paths become absolute, since the command may change its
    /// directory.
    fn configure(&self, command: &mut Command, folder: &Path, output: &str) -> Result<(), String> {
        let mut layers = std::env::var("UR_ENABLE_LAYERS").unwrap_or_default();
        if !layers.split(',').any(|layer| layer == LAYER) {
            layers.push_str(if layers.is_empty() { "" } else { "," });
            layers.push_str(LAYER);
        }
        let format = match self.format {
            Format::Text => "text",
            Format::Perfetto => "json",
        };
        let output = match output {
            stream if is_stream(stream) => stream.into(),
            path => std::path::absolute(path).map_err(|error| fault(path.as_ref(), error))?,
        };
        command
            .env("UR_ENABLE_LAYERS", layers)
            .env("UR_TRACE_FORMAT", format)
            .env("UR_TRACE_OUTPUT", output)
            .env("UR_TRACE_SUMMARY", folder.join("%p.json"));
        let min_time = self.min_time.map(|time| format!("{}ns", time.as_nanos()));
        for (name, value) in [
            ("UR_TRACE_FUNCTIONS", &self.functions),
            ("UR_TRACE_ADAPTERS", &self.adapters),
            ("UR_TRACE_MIN_TIME", &min_time),
        ] {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if !self.keep_loader {
            command.env("LD_LIBRARY_PATH", self.library_path(folder)?);
        }
        Ok(())
    }

    /// A search path that starts with a folder which has only the loader, under the names that
    /// programs open.
    fn library_path(&self, folder: &Path) -> Result<OsString, String> {
        let loader = self.loader.clone();
        let loader = loader.unwrap_or_else(|| ur::dl::near_program(&LOADERS));
        let mut path = OsString::new();
        // The system finds a bare name by itself.
        if loader.components().count() > 1 || loader.exists() {
            let loader = std::fs::canonicalize(&loader).map_err(|error| fault(&loader, error))?;
            for name in LOADERS {
                let link = folder.join(name);
                symlink(&loader, &link).map_err(|error| fault(&link, error))?;
            }
            path.push(folder);
        }
        if let Some(old) = std::env::var_os("LD_LIBRARY_PATH").filter(|old| !old.is_empty()) {
            path.push(if path.is_empty() { "" } else { ":" });
            path.push(old);
        }
        Ok(path)
    }

    fn report(&self, summary: &Summary, status: ExitStatus, output: &str) {
        if summary.processes.is_empty() {
            console::errln!(
                "urtrace: nothing was traced: no process of the command used a loader that has {LAYER} \
                 (the one inside of libsycl 2026.2 lacks it)"
            );
            return;
        }
        if self.format == Format::Perfetto && !is_stream(output) {
            for process in &summary.processes {
                let path = output.replace("%p", &process.to_string());
                match is_written(path.as_ref()) {
                    true => console::errln!("urtrace: process {process} is in {path}"),
                    false => console::errln!("urtrace: {path}: process {process} wrote no trace"),
                }
            }
        }
        if self.no_summary {
            return;
        }
        match (summary.is_empty(), status.signal()) {
            (false, _) => console::errln!("{}", summary.table()),
            (true, Some(_)) => {
                console::errln!("urtrace: the program ended before its summary was written")
            }
            (true, None) => {
                console::errln!("urtrace: no call was made, or none that passes the filters")
            }
        }
    }
}

/// Whether the trace goes to a stream, or nowhere, and to no file.
fn is_stream(output: &str) -> bool {
    matches!(output, "none" | "stderr" | "stdout")
}

/// Tries before the run whether the trace can be written.
///
/// A file that all processes share is emptied, since the layer appends lines to it. For a file of
/// each process, a temporary file in the same folder is the test.
fn prepare(output: &str) -> Result<(), String> {
    let path = Path::new(output);
    // Opening a pipe here would end its reader's input.
    if is_stream(output) || is_special(path) {
        return Ok(());
    }
    if !output.contains("%p") {
        let created = std::fs::File::create(path);
        return created.map(drop).map_err(|error| fault(path, error));
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // The command may make a folder that has the process id as its name.
    if folder.to_string_lossy().contains("%p") {
        return Ok(());
    }
    let tried = tempfile::tempfile_in(folder);
    tried.map(drop).map_err(|error| fault(path, error))
}

/// Whether a process has written its trace.
fn is_written(path: &Path) -> bool {
    is_special(path) || std::fs::metadata(path).is_ok_and(|found| found.len() > 0)
}

fn fault(path: &Path, error: io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// A time: a number with its unit.
fn min_time(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 4] = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let parse = || {
        let mut units = UNITS.iter();
        let (number, scale) =
            units.find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
        let number: f64 = number.trim().parse().ok()?;
        Duration::try_from_secs_f64(number * scale).ok()
    };
    parse().ok_or_else(|| "accepted: a time such as 10us or 1.5ms, in ns, us, ms or s".to_owned())
}

fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    ExitCode::from(
        code.and_then(|code| u8::try_from(code).ok())
            .unwrap_or(OWN_FAULT),
    )
}

/// The command's process, to which signals are forwarded.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// Keeps this process alive until the command ends. A terminal's signals reach the command
/// directly; SIGTERM and SIGHUP to this process are forwarded.
fn wait_through_signals(child: u32) {
    CHILD.store(i32::try_from(child).unwrap_or(0), Ordering::Relaxed);
    let forward = forward as extern "C" fn(i32);
    // SAFETY: the handler only loads an atomic and calls `kill`, which POSIX allows in signal
    // handlers.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGQUIT, libc::SIG_IGN);
        libc::signal(libc::SIGTERM, forward as libc::sighandler_t);
        libc::signal(libc::SIGHUP, forward as libc::sighandler_t);
    }
}

extern "C" fn forward(signal: i32) {
    let child = CHILD.load(Ordering::Relaxed);
    if child > 0 {
        // SAFETY: `kill` takes numbers only.
        unsafe { libc::kill(child, signal) };
    }
}

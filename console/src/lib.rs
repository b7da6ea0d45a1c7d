//! Output of this project's programs to their standard streams, without a panic.
//!
//! Owns the handling of write errors. If the reader of standard output has closed it, as in
//! `program | head -1`, the rest is dropped and the exit code does not change. After any other
//! error, such as a full disk, the program continues. [`end`] then reports the error and returns
//! the program's exit code for faults. Errors of standard error are ignored, since they cannot be
//! reported.
//!
//! Its modules have what the programs share besides: the explanation of a loader without devices,
//! the trial of output paths, progress, man pages, completion scripts and JSON schemas.

pub mod discovery;
pub mod files;
mod generate;
pub mod progress;

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::OnceLock;

/// The first error of standard output.
static WRITE_ERROR: OnceLock<io::Error> = OnceLock::new();

/// Prints formatted text to standard output.
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::write_out(format_args!($($text)*)) };
}

/// Prints a formatted line to standard output.
#[macro_export]
macro_rules! outln {
    ($($text:tt)*) => { $crate::out!("{}\n", format_args!($($text)*)) };
}

/// Prints a formatted line to standard error.
#[macro_export]
macro_rules! errln {
    ($($text:tt)*) => { $crate::write_error(format_args!($($text)*)) };
}

/// Writes bytes, which may be invalid UTF-8, to standard output.
pub fn write(bytes: &[u8]) {
    if WRITE_ERROR.get().is_none() {
        record(io::stdout().write_all(bytes));
    }
}

/// Writes formatted text to standard output, for [`out`].
pub fn write_out(text: fmt::Arguments<'_>) {
    if WRITE_ERROR.get().is_none() {
        record(io::stdout().write_fmt(text));
    }
}

/// Writes a line to standard error, for [`errln`]. A line is one write, so that lines of several
/// processes do not mix.
pub fn write_error(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Parses the command line. After a help text, a version or an error it returns the exit code.
///
/// With the hidden first argument `--generate=man|bash|zsh|fish` it prints the man page or the
/// completion script, and returns success. `fault` is the program's exit code for faults.
pub fn parse<C: clap::Parser>(fault: u8) -> Result<C, ExitCode> {
    parse_or(fault, |_| None)
}

/// Parses as [`parse`]. With `--generate=schema` it prints the JSON schema of `T`, which the program
/// writes as JSON.
pub fn parse_with_schema<C: clap::Parser, T: schemars::JsonSchema>(
    fault: u8,
) -> Result<C, ExitCode> {
    parse_or(fault, |argument| {
        generate::is_schema(argument).then(generate::schema::<T>)
    })
}

/// Parses as [`parse`]. A text of `other` for the first argument is printed instead.
fn parse_or<C: clap::Parser>(
    fault: u8,
    other: impl Fn(&OsStr) -> Option<String>,
) -> Result<C, ExitCode> {
    let first = std::env::args_os().nth(1);
    if let Some(text) = first.as_deref().and_then(other) {
        write(text.as_bytes());
        return Err(end(C::command().get_name(), ExitCode::SUCCESS, fault));
    }
    if let Some(target) = first.as_deref().and_then(generate::target) {
        write(&target.text(C::command()));
        return Err(end(C::command().get_name(), ExitCode::SUCCESS, fault));
    }
    C::try_parse().map_err(|result| {
        let printed = result.print();
        if !result.use_stderr() {
            record(printed);
        }
        let code = u8::try_from(result.exit_code()).unwrap_or(fault);
        end(C::command().get_name(), ExitCode::from(code), fault)
    })
}

/// The exit code of `program`: `code`, or `fault` if output was lost.
pub fn end(program: &str, code: ExitCode, fault: u8) -> ExitCode {
    record(io::stdout().flush());
    match WRITE_ERROR.get() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => {
            errln!("{program}: standard output: {error}");
            ExitCode::from(fault)
        }
        _ => code,
    }
}

/// Stores the first error.
fn record(result: io::Result<()>) {
    if let Err(error) = result {
        let _ = WRITE_ERROR.set(error);
    }
}

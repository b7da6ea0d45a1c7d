//! What this project's programs write to their standard streams, without a panic.
//!
//! Owns what a stream means that takes no more. Standard output whose reader has gone, as in
//! `program | head -1`, is no fault: the rest is not written, and the program ends with the code that
//! it would have ended with. Any other failure is one, such as a full disk: the program goes on, and
//! [`end`] tells of it and gives the program's exit code for faults. Where standard error takes
//! nothing, nobody is left to be told.

use std::fmt;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::OnceLock;

/// Why standard output takes no more.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Formats a text to standard output.
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::write_out(format_args!($($text)*)) };
}

/// Formats a line to standard output.
#[macro_export]
macro_rules! outln {
    ($($text:tt)*) => { $crate::out!("{}\n", format_args!($($text)*)) };
}

/// Formats a line to standard error.
#[macro_export]
macro_rules! errln {
    ($($text:tt)*) => { $crate::write_error(format_args!($($text)*)) };
}

/// Writes bytes, which need not be UTF-8, to standard output.
pub fn write(bytes: &[u8]) {
    if LOST.get().is_none() {
        keep(io::stdout().write_all(bytes));
    }
}

/// What [`out`] does.
pub fn write_out(text: fmt::Arguments<'_>) {
    if LOST.get().is_none() {
        keep(io::stdout().write_fmt(text));
    }
}

/// What [`errln`] does. A line is one write, so that those of several processes stay whole.
pub fn write_error(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// The command line; or, after a help text, a version or a complaint, the code to exit with. `fault`
/// is the program's code for what goes wrong.
pub fn parse<C: clap::Parser>(fault: u8) -> Result<C, ExitCode> {
    C::try_parse().map_err(|result| {
        let printed = result.print();
        if !result.use_stderr() {
            keep(printed);
        }
        let code = u8::try_from(result.exit_code()).unwrap_or(fault);
        end(C::command().get_name(), ExitCode::from(code), fault)
    })
}

/// The code that `program` exits with: `code`, or `fault` if something it wrote is lost.
pub fn end(program: &str, code: ExitCode, fault: u8) -> ExitCode {
    keep(io::stdout().flush());
    match LOST.get() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => {
            errln!("{program}: standard output: {error}");
            ExitCode::from(fault)
        }
        _ => code,
    }
}

/// The first failure is the one that is told.
fn keep(result: io::Result<()>) {
    if let Err(error) = result {
        let _ = LOST.set(error);
    }
}

//! Calls as text: a line when a call starts, a line when it ends.
//!
//! ```text
//! seconds since the trace began, thread, adapter if there are several, call
//!     0.001234 4242 ---> urQueueRetain(.hQueue = 0x55d0c0de)
//!     0.001239 4242 <--- urQueueRetain() -> UR_RESULT_SUCCESS in 2.1 us
//! ```
//! Owns the form of the lines and their output. A line is one `write`, without a lock or a buffer.
//! Owns the lines' form and where they go. Each is one `write`, without a lock or a buffer.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::time::Duration;

use ur::abi::ur_result_t;

use super::settings::Output;
use super::span::{CallInfo, Timestamp};
use super::{NAMES, result_name, thread};

pub struct Lines {
    file: File,
    began: Timestamp,
}

impl Lines {
    /// Opens the output. None without an output, or on an error, which is logged.
    pub fn open(output: &Output) -> Option<Lines> {
        let file = open(output, OpenOptions::new().create(true).append(true))?;
        let began = Timestamp::now();
        Some(Lines { file, began })
    }

    /// Writes the line of a call that starts.
    pub fn enter(&self, info: &CallInfo, inputs: &str) {
        let source = info.source.as_deref();
        let source = source.map_or_else(String::new, |source| format!(" at {source}"));
        self.write(info, &format!("---> {}({inputs}){source}", name(info)));
    }

    /// Writes the line of a call that ended.
    pub fn leave(&self, info: &CallInfo, shown: &str, result: ur_result_t, time: Duration) {
        let result = result_name(result);
        let line = format!(
            "<--- {}({shown}) -> {result} in {}",
            name(info),
            Shown(time)
        );
        self.write(info, &line);
    }

    fn write(&self, info: &CallInfo, text: &str) {
        let now = Timestamp::now().since(self.began).as_secs_f64();
        let adapter = info
            .adapter
            .map_or_else(String::new, |name| format!(" {name}"));
        let indent = "  ".repeat(info.depth.min(16));
        let line = format!("{now:12.6} {}{adapter} {indent}{text}\n", thread());
        // A failed write loses the trace, not the program.
        let _ = (&self.file).write_all(line.as_bytes());
    }
}

/// The file of an output. `how` are the options for opening a path. None without an output, or on
/// an error, which is logged.
pub fn open(output: &Output, how: &mut OpenOptions) -> Option<File> {
    let opened = match output {
        Output::Nothing => return None,
        Output::Stderr => io::stderr().as_fd().try_clone_to_owned().map(File::from),
        Output::Stdout => io::stdout().as_fd().try_clone_to_owned().map(File::from),
        Output::File(path) => how.open(path),
    };
    let report = |error: &io::Error| {
        ur::object::log::once(&format!("UR_TRACE_OUTPUT: {output:?}: {error}; no trace"));
    };
    opened.inspect_err(report).ok()
}

fn name(info: &CallInfo) -> &'static str {
    NAMES.get(info.function).copied().unwrap_or("?")
}

/// Prints a time with three digits and the unit that fits.
struct Shown(Duration);

impl std::fmt::Display for Shown {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nanos = self.0.as_nanos();
        let seconds = self.0.as_secs_f64();
        match nanos {
            0..1_000 => write!(out, "{nanos} ns"),
            1_000..1_000_000 => write!(out, "{:.1} us", seconds * 1e6),
            1_000_000..1_000_000_000 => write!(out, "{:.2} ms", seconds * 1e3),
            _ => write!(out, "{seconds:.3} s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_fits() {
        let shown = |nanos| Shown(Duration::from_nanos(nanos)).to_string();
        assert_eq!(shown(0), "0 ns");
        assert_eq!(shown(999), "999 ns");
        assert_eq!(shown(1_000), "1.0 us");
        assert_eq!(shown(12_340), "12.3 us");
        assert_eq!(shown(5_600_000), "5.60 ms");
        assert_eq!(shown(61_000_000_000), "61.000 s");
    }
}

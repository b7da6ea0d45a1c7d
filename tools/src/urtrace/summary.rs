//! The statistics of all traced processes, as a table.
//!
//! Owns reading and merging the files that the tracing layer writes to UR_TRACE_SUMMARY.

use std::collections::BTreeMap;
use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};
use serde::Deserialize;

/// The file of one process.
#[derive(Debug, Deserialize)]
struct Process {
    pid: u32,
    functions: Vec<Function>,
}

/// The statistics of a function. Times are in nanoseconds.
#[derive(Debug, Deserialize)]
struct Function {
    name: String,
    calls: u64,
    failed: u64,
    total_ns: u64,
    max_ns: u64,
    /// Pairs of a time and the number of calls that took about that long.
    times: Vec<(u64, u64)>,
}

/// The merged statistics of all traced processes.
#[derive(Debug, Default)]
pub struct Summary {
    /// The ids of the traced processes.
    pub processes: Vec<u32>,
    functions: BTreeMap<String, Merged>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Merged {
    calls: u64,
    failed: u64,
    total_ns: u64,
    max_ns: u64,
    times: BTreeMap<u64, u64>,
}

impl Summary {
    /// Reads every file of a folder. Unreadable files are reported and skipped.
    pub fn read(folder: &Path) -> Summary {
        let mut summary = Summary::default();
        let Ok(files) = std::fs::read_dir(folder) else {
            return summary;
        };
        for path in files.flatten().map(|file| file.path()) {
            if path.extension().is_none_or(|end| end != "json") {
                continue;
            }
            let text = std::fs::read_to_string(&path).map_err(|error| error.to_string());
            let process = text.and_then(|text| {
                serde_json::from_str::<Process>(&text).map_err(|error| error.to_string())
            });
            match process {
                Ok(process) => summary.add(process),
                Err(reason) => console::errln!("urtrace: {}: {reason}", path.display()),
            }
        }
        summary.processes.sort_unstable();
        summary
    }

    fn add(&mut self, process: Process) {
        self.processes.push(process.pid);
        for function in process.functions {
            let merged = self.functions.entry(function.name).or_default();
            merged.calls += function.calls;
            merged.failed += function.failed;
            merged.total_ns += function.total_ns;
            merged.max_ns = merged.max_ns.max(function.max_ns);
            for (time, calls) in function.times {
                *merged.times.entry(time).or_default() += calls;
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// One row per function, by descending total time, and a row for all.
    pub fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(["function", "calls", "failed", "total", "mean", "p99", "max"]);
        let mut sorted: Vec<_> = self.functions.iter().collect();
        sorted.sort_by_key(|(name, merged)| (std::cmp::Reverse(merged.total_ns), *name));
        let mut all = Merged::default();
        for (name, merged) in sorted {
            table.add_row(merged.row(name));
            all.add(merged);
        }
        table.add_row(all.row("all"));
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

impl Merged {
    fn add(&mut self, other: &Merged) {
        self.calls += other.calls;
        self.failed += other.failed;
        self.total_ns += other.total_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        for (time, calls) in &other.times {
            *self.times.entry(*time).or_default() += calls;
        }
    }

    fn row(&self, name: &str) -> [String; 7] {
        [
            name.to_owned(),
            self.calls.to_string(),
            self.failed.to_string(),
            shown(self.total_ns),
            shown(self.total_ns / self.calls.max(1)),
            shown(self.percentile(99)),
            shown(self.max_ns),
        ]
    }

    /// The time in nanoseconds that `percent` of the calls did not exceed.
    fn percentile(&self, percent: u64) -> u64 {
        let rank = self.calls.saturating_mul(percent).div_ceil(100);
        let mut seen = 0;
        for (time, calls) in &self.times {
            seen += calls;
            if seen >= rank {
                return (*time).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

/// A time with three digits and the unit that fits.
fn shown(nanos: u64) -> String {
    #[allow(clippy::cast_precision_loss)] // Three digits are shown.
    let value = nanos as f64;
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.2} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", value / 1e6),
        _ => format!("{:.3} s", value / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = r#"{"pid": 7, "functions": [
        {"name": "urB", "calls": 98, "failed": 1, "total_ns": 9800, "max_ns": 100, "times": [[100, 98]]},
        {"name": "urA", "calls": 1, "failed": 0, "total_ns": 2000000, "max_ns": 2000000, "times": [[2031615, 1]]}]}"#;
    const TWO: &str = r#"{"pid": 9, "functions": [
        {"name": "urB", "calls": 2, "failed": 0, "total_ns": 1200, "max_ns": 900, "times": [[300, 1], [927, 1]]}]}"#;

    #[test]
    fn processes_are_merged_and_sorted_by_total() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, text) in [("1.json", ONE), ("2.json", TWO), ("not-one", "x")] {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        let summary = Summary::read(folder.path());
        assert_eq!(summary.processes, [7, 9]);
        let table = summary.table().to_string();
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(|line| {
                line.split('|')
                    .map(str::trim)
                    .filter(|cell| !cell.is_empty())
                    .collect()
            })
            .collect();
        assert_eq!(
            rows[2],
            ["urA", "1", "0", "2.00 ms", "2.00 ms", "2.00 ms", "2.00 ms"],
            "{table}"
        );
        assert_eq!(
            rows[3],
            ["urB", "100", "1", "11.00 us", "110 ns", "300 ns", "900 ns"],
            "{table}"
        );
        assert_eq!(
            rows[4],
            [
                "all", "101", "1", "2.01 ms", "19.91 us", "927 ns", "2.00 ms"
            ],
            "{table}"
        );
    }

    #[test]
    fn percentiles_are_ranks() {
        let times = BTreeMap::from([(10, 1), (20, 1), (30, 1)]);
        let figures = Merged {
            calls: 3,
            max_ns: 29,
            times,
            ..Merged::default()
        };
        assert_eq!(figures.percentile(1), 10);
        assert_eq!(figures.percentile(66), 20);
        assert_eq!(figures.percentile(99), 29);
        assert_eq!(Merged::default().percentile(99), 0);
    }
}

//! Results of replays, as a table and as JSON.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::trace::{Kind, Trace};

/// The replay of a trace. Times are nanoseconds an operation, memory is in bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// The trace's file name without its endings.
    pub trace: String,
    /// Whether the run was in the mode `ordered`.
    pub ordered_alone: bool,
    pub device: String,
    pub operations: u64,
    pub mean_ns: f64,
    pub median_ns: u64,
    pub p999_ns: u64,
    /// The mean of a second pass without work, timed as a whole.
    pub warm_ns: Option<f64>,
    /// None if the adapter does not tell.
    pub reserved_high: Option<u64>,
    pub peak_live: u64,
    pub reuse: Option<Reuse>,
    /// Missing dependencies, by descending bytes.
    pub lacks: Vec<MissingDependency>,
}

/// A replay for each trace and mode.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "urreplay --json")]
pub struct Outcomes(pub Vec<Outcome>);

/// Results of several iterations.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Iterations {
    /// Nanoseconds per operation of each iteration.
    pub ns: Vec<f64>,
    /// None if the adapter does not tell.
    pub reserved_high: Option<u64>,
    pub peak_live: u64,
}

/// Numbers of allocations by how they were served.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Reuse {
    pub own: u64,
    pub ordered: u64,
    pub completed: u64,
    pub waited: u64,
    pub grown: u64,
}

/// A dependency that the program lacks, with the memory that it would have saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingDependency {
    /// The queue that did not wait; -1 is the host.
    pub stream: i64,
    /// The queue that it did not wait for.
    pub lane: u64,
    /// The number of allocations that grew the pool, waited or failed without the dependency.
    pub allocations: u64,
    /// The bytes of these allocations.
    pub bytes: u64,
    /// The largest of these allocations.
    pub largest: u64,
    /// The bytes of the largest allocation.
    pub largest_bytes: u64,
    /// The epoch of `lane` that the largest allocation lacked.
    pub epoch: u64,
    /// The allocations whose memory the largest one could have reused.
    pub owners: Vec<u64>,
}

/// Sums up the missing dependencies in the trace of a replay by pairs of queues, by descending bytes.
/// Queues and blocks have the numbers of `input`, the replayed trace.
pub fn missing_dependencies(trace: &Trace, input: &Trace) -> Vec<MissingDependency> {
    // The replay's own memory is allocated first, one block per queue.
    let before = input.streams().len() as u64;
    let on_queue = |trace: &Trace| -> Vec<u64> {
        let ops = trace.ops.iter().filter(|op| op.kind != Kind::Wait);
        ops.filter_map(|op| op.stream).collect()
    };
    let queues: HashMap<u64, u64> = on_queue(trace).into_iter().zip(on_queue(input)).collect();
    let queue = |own: u64| queues.get(&own).copied().unwrap_or(own);
    let mut all: HashMap<(i64, u64), MissingDependency> = HashMap::new();
    for op in trace.ops.iter().filter(|op| op.kind == Kind::Alloc) {
        let Some((wait, owners)) = &op.missing else {
            continue;
        };
        let stream = op.stream.map_or(-1, |stream| queue(stream) as i64);
        let id = op.id.saturating_sub(before);
        for point in wait {
            let lane = queue(point.lane);
            let missing = all
                .entry((stream, lane))
                .or_insert_with(|| MissingDependency {
                    stream,
                    lane,
                    allocations: 0,
                    bytes: 0,
                    largest: id,
                    largest_bytes: 0,
                    epoch: point.epoch,
                    owners: Vec::new(),
                });
            missing.allocations += 1;
            missing.bytes = missing.bytes.saturating_add(op.bytes);
            if op.bytes > missing.largest_bytes {
                (missing.largest, missing.largest_bytes, missing.epoch) =
                    (id, op.bytes, point.epoch);
                let owners = owners.iter().map(|id| id.saturating_sub(before));
                missing.owners = owners.collect();
            }
        }
    }
    let mut all: Vec<MissingDependency> = all.into_values().collect();
    all.sort_by_key(|missing| {
        (
            std::cmp::Reverse(missing.bytes),
            missing.stream,
            missing.lane,
        )
    });
    all
}

/// A trace's name: its file name without the endings `.gz`, `.trace` and `.csv`.
pub fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.trim_end_matches(".gz").trim_end_matches(".trace");
    name.trim_end_matches(".csv").to_owned()
}

pub fn table(outcomes: &[Outcome], explain: bool) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "trace",
        "reuse",
        "ops",
        "ns/op",
        "median",
        "p99.9",
        "warm",
        "reserved MiB",
        "live MiB",
        "reserved/live",
        "own",
        "ordered",
        "completed",
        "waited",
        "grown",
    ]);
    for outcome in outcomes {
        let mode = if outcome.ordered_alone {
            "ordered"
        } else {
            "completed"
        };
        let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
        let unknown = || "-".to_owned();
        let ratio = |high: u64| format!("{:.3}", high as f64 / outcome.peak_live.max(1) as f64);
        let count = |of: fn(&Reuse) -> u64| {
            outcome
                .reuse
                .as_ref()
                .map_or_else(unknown, |reuse| of(reuse).to_string())
        };
        table.add_row([
            outcome.trace.clone(),
            mode.to_owned(),
            outcome.operations.to_string(),
            format!("{:.0}", outcome.mean_ns),
            outcome.median_ns.to_string(),
            outcome.p999_ns.to_string(),
            outcome
                .warm_ns
                .map_or_else(unknown, |ns| format!("{ns:.0}")),
            outcome.reserved_high.map_or_else(unknown, mib),
            mib(outcome.peak_live),
            outcome.reserved_high.map_or_else(unknown, ratio),
            count(|reuse| reuse.own),
            count(|reuse| reuse.ordered),
            count(|reuse| reuse.completed),
            count(|reuse| reuse.waited),
            count(|reuse| reuse.grown),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let device = outcomes.first().map_or("", |outcome| &outcome.device);
    let mut text = format!("{device}\n{table}\n");
    for outcome in outcomes.iter().filter(|_| explain) {
        text.push_str(&explained(outcome));
    }
    text
}

fn explained(outcome: &Outcome) -> String {
    let reuse = if outcome.ordered_alone {
        "ordered"
    } else {
        "completed"
    };
    let mut text = format!("\n{}, {reuse} reuse: ", outcome.trace);
    if outcome.lacks.is_empty() {
        return text + "no dependency would have saved memory\n";
    }
    text.push_str("dependencies that the program lacks\n");
    for missing in outcome.lacks.iter().take(5) {
        let owners: Vec<String> = missing.owners.iter().take(4).map(u64::to_string).collect();
        let _ = writeln!(
            text,
            "  queue {} for queue {}: {} allocations of {} bytes; allocation {} of {} bytes, after \
             {}@{}, would have had the memory of {}",
            missing.stream,
            missing.lane,
            missing.allocations,
            missing.bytes,
            missing.largest,
            missing.largest_bytes,
            missing.lane,
            missing.epoch,
            if owners.is_empty() {
                "no earlier block".to_owned()
            } else {
                owners.join(", ")
            },
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_dependencies_add_up_by_pairs_of_queues() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("one.trace");
        // The queues were 7, 5 and 6. Each has a block of the replay, allocated first.
        let text = "a 0 1 -1 - grown\na 1 1 -1 - grown\na 2 1 -1 - grown\n\
                    a 3 8 1 - grown\nf 3 8 1 1@1 -\na 4 4 2 - grown lacks=1@1:3\n\
                    a 5 6 2 - grown lacks=1@1:3\na 6 1 3 - grown\n";
        let input = "a 0 8 7\nf 0 8 7\na 1 4 5\na 2 6 5\na 3 1 6\n";
        let read = |text: &str| {
            std::fs::write(&path, text).expect("written");
            Trace::read(&path, 1).expect("it can be read")
        };
        let found = missing_dependencies(&read(text), &read(input));
        assert_eq!(found.len(), 1);
        let missing = &found[0];
        assert_eq!(
            (
                missing.stream,
                missing.lane,
                missing.allocations,
                missing.bytes
            ),
            (5, 7, 2, 10)
        );
        assert_eq!(
            (missing.largest, missing.epoch, &missing.owners[..]),
            (2, 1, &[0][..])
        );
    }
}

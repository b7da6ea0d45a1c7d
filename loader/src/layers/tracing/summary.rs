//! Statistics of each function: calls, failures, total and maximum time, and a histogram of times.
//!
//! Owns counters that live as long as the process. The layer may be enabled several times, and the
//! file is always about the whole process. Counting takes no lock.
//!
//! ```text
//! {"pid": 1, "functions": [{"name": "urQueueRetain", "calls": 2, "failed": 0, "total_ns": 300,
//!   "max_ns": 200, "times": [[100, 1], [203, 1]]}]}
//! ```
//! `times` are pairs of a time in nanoseconds and the number of calls that took that long or up to
//! 3 % less.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ur::abi::{UR_RESULT_SUCCESS, ur_result_t};

use super::NAMES;

/// Significant bits of a time: a bucket's width is at most 1/32 of its times.
const PRECISION: u32 = 5;
const STEPS: usize = 1 << PRECISION;
const BUCKETS: usize = (u64::BITS - PRECISION + 1) as usize * STEPS;

static STATISTICS: [OnceLock<Box<Statistics>>; NAMES.len()] =
    [const { OnceLock::new() }; NAMES.len()];

/// Whether statistics are written after every call, because the process is ending.
static UNBUFFERED: AtomicBool = AtomicBool::new(false);

struct Statistics {
    calls: AtomicU64,
    failed: AtomicU64,
    total_ns: AtomicU64,
    max_ns: AtomicU64,
    histogram: [AtomicU64; BUCKETS],
}

impl Statistics {
    fn new() -> Box<Statistics> {
        Box::new(Statistics {
            calls: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            total_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
            histogram: [const { AtomicU64::new(0) }; BUCKETS],
        })
    }
}

/// Has the statistics written after every later call.
pub fn disable_buffering() {
    UNBUFFERED.store(true, Ordering::Relaxed);
}

pub fn is_unbuffered() -> bool {
    UNBUFFERED.load(Ordering::Relaxed)
}

/// Counts a call.
pub fn count(function: usize, time: Duration, result: ur_result_t) {
    let Some(statistics) = STATISTICS.get(function) else {
        return;
    };
    let statistics = statistics.get_or_init(Statistics::new);
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    statistics.calls.fetch_add(1, Ordering::Relaxed);
    if result != UR_RESULT_SUCCESS {
        statistics.failed.fetch_add(1, Ordering::Relaxed);
    }
    statistics.total_ns.fetch_add(nanos, Ordering::Relaxed);
    statistics.max_ns.fetch_max(nanos, Ordering::Relaxed);
    if let Some(bucket) = statistics.histogram.get(bucket(nanos)) {
        bucket.fetch_add(1, Ordering::Relaxed);
    }
}

/// Replaces the file at `path` with the current statistics.
pub fn write(path: &str) {
    if let Err(error) = std::fs::write(path, text()) {
        ur::object::log::once(&format!("UR_TRACE_SUMMARY: {path}: {error}"));
    }
}

fn text() -> String {
    let mut out = format!("{{\"pid\":{},\"functions\":[", std::process::id());
    let mut separator = "";
    for (name, statistics) in NAMES.iter().zip(&STATISTICS) {
        let Some(statistics) = statistics.get() else {
            continue;
        };
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let _ = write!(
            out,
            "{separator}\n{{\"name\":\"{name}\",\"calls\":{},\"failed\":{},\"total_ns\":{},\"max_ns\":{},\"times\":[",
            read(&statistics.calls),
            read(&statistics.failed),
            read(&statistics.total_ns),
            read(&statistics.max_ns),
        );
        let histogram = statistics.histogram.iter().enumerate();
        let filled = histogram.map(|(at, count)| (at, read(count)));
        let times = filled
            .filter(|(_, count)| *count > 0)
            .map(|(at, count)| format!("[{},{count}]", max_of(at)));
        out.push_str(&times.collect::<Vec<_>>().join(","));
        out.push_str("]}");
        separator = ",";
    }
    out.push_str("\n]}\n");
    out
}

/// The bucket of a time: each power of two has `STEPS` buckets.
fn bucket(nanos: u64) -> usize {
    let magnitude = (u64::BITS - nanos.leading_zeros()).saturating_sub(PRECISION + 1);
    let step = usize::try_from(nanos >> magnitude).unwrap_or(0);
    magnitude as usize * STEPS + step
}

/// The maximum time of a bucket in nanoseconds.
fn max_of(bucket: usize) -> u64 {
    let magnitude = (bucket / STEPS).saturating_sub(1);
    let step = bucket - magnitude * STEPS;
    let next = (step as u128 + 1) << magnitude;
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_cover_every_time() {
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(63), 63);
        assert_eq!(max_of(63), 63);
        assert_eq!(bucket(64), 64);
        assert_eq!(max_of(64), 65);
        assert!(bucket(u64::MAX) < BUCKETS);
        assert_eq!(max_of(bucket(u64::MAX)), u64::MAX);
    }

    proptest! {
        #[test]
        fn a_time_is_in_its_bucket(nanos in any::<u64>(), shift in 0_u32..64) {
            let nanos = nanos >> shift;
            let max_ns = max_of(bucket(nanos));
            prop_assert!(max_ns >= nanos);
            prop_assert!(max_ns - nanos <= nanos / 32);
            prop_assert!(bucket(max_ns) == bucket(nanos));
            prop_assert!(max_ns == u64::MAX || bucket(max_ns + 1) == bucket(nanos) + 1);
        }
    }
}

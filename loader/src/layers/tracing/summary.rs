//! The figures of each function: calls, failures, total and longest time, and how times spread.
//!
//! Owns counters that live as long as the process, over several lives of the layer, so that a file
//! of figures is always about the whole process. Counting takes no lock.
//!
//! ```text
//! {"pid": 1, "functions": [{"name": "urQueueRetain", "calls": 2, "failed": 0, "total_ns": 300,
//!   "max_ns": 200, "times": [[100, 1], [203, 1]]}]}
//! ```
//! `times` are pairs of a time in nanoseconds and the calls that took that long or up to 3 % less.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ur::abi::{UR_RESULT_SUCCESS, ur_result_t};

use super::NAMES;

/// Bits of a time that are kept: buckets are at most 1/32 wide.
const PRECISION: u32 = 5;
const STEPS: usize = 1 << PRECISION;
const BUCKETS: usize = (u64::BITS - PRECISION + 1) as usize * STEPS;

static FIGURES: [OnceLock<Box<Figures>>; NAMES.len()] = [const { OnceLock::new() }; NAMES.len()];

/// The process is ending: figures that change are written at once.
static UNHELD: AtomicBool = AtomicBool::new(false);

struct Figures {
    calls: AtomicU64,
    failed: AtomicU64,
    total: AtomicU64,
    longest: AtomicU64,
    spread: [AtomicU64; BUCKETS],
}

impl Figures {
    fn new() -> Box<Figures> {
        Box::new(Figures {
            calls: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            total: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            spread: [const { AtomicU64::new(0) }; BUCKETS],
        })
    }
}

pub fn hold_nothing_back() {
    UNHELD.store(true, Ordering::Relaxed);
}

pub fn is_unheld() -> bool {
    UNHELD.load(Ordering::Relaxed)
}

pub fn count(function: usize, time: Duration, result: ur_result_t) {
    let Some(figures) = FIGURES.get(function) else {
        return;
    };
    let figures = figures.get_or_init(Figures::new);
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    figures.calls.fetch_add(1, Ordering::Relaxed);
    if result != UR_RESULT_SUCCESS {
        figures.failed.fetch_add(1, Ordering::Relaxed);
    }
    figures.total.fetch_add(nanos, Ordering::Relaxed);
    figures.longest.fetch_max(nanos, Ordering::Relaxed);
    if let Some(bucket) = figures.spread.get(bucket(nanos)) {
        bucket.fetch_add(1, Ordering::Relaxed);
    }
}

/// Replaces the file at `path` with the figures as they are.
pub fn write(path: &str) {
    if let Err(error) = std::fs::write(path, text()) {
        ur::object::log::once(&format!("UR_TRACE_SUMMARY: {path}: {error}"));
    }
}

fn text() -> String {
    let mut out = format!("{{\"pid\":{},\"functions\":[", std::process::id());
    let mut separator = "";
    for (name, figures) in NAMES.iter().zip(&FIGURES) {
        let Some(figures) = figures.get() else {
            continue;
        };
        let read = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let _ = write!(
            out,
            "{separator}\n{{\"name\":\"{name}\",\"calls\":{},\"failed\":{},\"total_ns\":{},\"max_ns\":{},\"times\":[",
            read(&figures.calls),
            read(&figures.failed),
            read(&figures.total),
            read(&figures.longest),
        );
        let spread = figures.spread.iter().enumerate();
        let filled = spread.map(|(at, count)| (at, read(count)));
        let times = filled
            .filter(|(_, count)| *count > 0)
            .map(|(at, count)| format!("[{},{count}]", longest_in(at)));
        out.push_str(&times.collect::<Vec<_>>().join(","));
        out.push_str("]}");
        separator = ",";
    }
    out.push_str("\n]}\n");
    out
}

/// The bucket of a time: each power of two has as many as there are steps.
fn bucket(nanos: u64) -> usize {
    let magnitude = (u64::BITS - nanos.leading_zeros()).saturating_sub(PRECISION + 1);
    let step = usize::try_from(nanos >> magnitude).unwrap_or(0);
    magnitude as usize * STEPS + step
}

/// The longest time of a bucket.
fn longest_in(bucket: usize) -> u64 {
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
        assert_eq!(longest_in(63), 63);
        assert_eq!(bucket(64), 64);
        assert_eq!(longest_in(64), 65);
        assert!(bucket(u64::MAX) < BUCKETS);
        assert_eq!(longest_in(bucket(u64::MAX)), u64::MAX);
    }

    proptest! {
        #[test]
        fn a_time_is_in_its_bucket(nanos in any::<u64>(), shift in 0_u32..64) {
            let nanos = nanos >> shift;
            let longest = longest_in(bucket(nanos));
            prop_assert!(longest >= nanos);
            prop_assert!(longest - nanos <= nanos / 32);
            prop_assert!(bucket(longest) == bucket(nanos));
            prop_assert!(longest == u64::MAX || bucket(longest + 1) == bucket(nanos) + 1);
        }
    }
}

//! Files of the layer: JSON events, their loss in a crash, and the summary.

use super::{CALLS_A_THREAD, Willing, fresh, lines, read, text, traced};
use crate::common::{child, child_output, loader, table};
use serde_json::Value;
use ur::abi::*;

/// The complete events of a trace: its calls.
pub(super) fn spans(trace: &Value) -> Vec<&Value> {
    let events = trace.as_array().expect("a list of events");
    events.iter().filter(|event| event["ph"] == "X").collect()
}

/// Start and end in nanoseconds.
fn extent(span: &Value) -> (u64, u64) {
    let nanos = |name: &str| (span[name].as_f64().expect("a number") * 1000.0).round() as u64;
    (nanos("ts"), nanos("ts") + nanos("dur"))
}

/// Checks that any two spans of a thread are disjoint or nested.
fn check_nesting(trace: &Value) -> usize {
    let spans = spans(trace);
    let mut nested = 0;
    for (at, one) in spans.iter().enumerate() {
        for other in &spans[at + 1..] {
            if one["tid"] != other["tid"] {
                continue;
            }
            let ((a, b), (c, d)) = (extent(one), extent(other));
            let inside = (a <= c && d <= b) || (c <= a && b <= d);
            assert!(b <= c || d <= a || inside, "{one} and {other} overlap");
            nested += usize::from(inside);
        }
    }
    nested
}

#[test]
fn events_are_valid_json_and_nest() {
    let adapter = Willing::build("tracing-events");
    for (lives, more) in [("1", None), ("3", None), ("1", Some(("NO_TEARDOWN", "1")))] {
        let path = fresh("tracing-events", "trace.json");
        let mut variables = traced(
            &adapter,
            &[
                ("UR_TRACE_FORMAT", "json"),
                ("UR_TRACE_OUTPUT", text(&path)),
                ("LIVES", lives),
            ],
        );
        variables.extend(more);
        child("tracing::scenario_calls", &variables);
        let trace: Value = serde_json::from_str(&read(&path)).expect("valid JSON");
        let spans = spans(&trace);
        let lives: usize = lives.parse().expect("a number");
        assert_eq!(spans.len(), lives * 2 * CALLS_A_THREAD);
        assert!(
            check_nesting(&trace) >= lives * 4,
            "two calls inside of one, in two threads"
        );
        let retain = spans
            .iter()
            .find(|span| span["name"] == "urQueueRetain")
            .expect("there");
        assert_eq!(retain["args"]["hQueue"], "nullptr");
        assert_eq!(
            retain["args"]["result"],
            "UR_RESULT_ERROR_INVALID_NULL_HANDLE"
        );
        let got = spans
            .iter()
            .find(|span| span["name"] == "urAdapterGet")
            .expect("there");
        let count = got["args"]["pNumAdapters"].as_str().expect("text");
        assert!(count.ends_with(" (1)"), "{count}");
        let names = trace
            .as_array()
            .expect("a list")
            .iter()
            .filter(|event| event["name"] == "process_name");
        assert_eq!(names.count(), 1);
    }
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_crash() {
    assert_eq!(loader().init(), UR_RESULT_SUCCESS);
    let willing = Willing::open();
    let table = table();
    // SAFETY: the handles are live.
    unsafe {
        for _ in 0..3000 {
            table.Queue.pfnRetain.expect("traced")(willing.queue());
        }
        table.DeviceExp.pfnWaitExp.expect("traced")(willing.handle().cast());
    }
}

#[test]
fn a_crash_loses_a_buffer_of_events_and_no_line() {
    let adapter = Willing::build("tracing-crash");
    let path = fresh("tracing-crash", "trace.json");
    let variables = traced(
        &adapter,
        &[
            ("UR_TRACE_FORMAT", "json"),
            ("UR_TRACE_OUTPUT", text(&path)),
        ],
    );
    assert!(
        !child_output("tracing::files::scenario_crash", &variables)
            .status
            .success()
    );
    let written = read(&path);
    let whole = written
        .trim_end()
        .rsplit_once(",\n")
        .expect("several events")
        .0;
    let trace: Value = serde_json::from_str(&format!("{whole}]")).expect("valid but for its end");
    let count = spans(&trace).len();
    // 64 KiB hold about 400 events.
    assert!((2000..3000).contains(&count), "{count}");

    let path = fresh("tracing-crash", "trace.txt");
    let variables = traced(&adapter, &[("UR_TRACE_OUTPUT", text(&path))]);
    assert!(
        !child_output("tracing::files::scenario_crash", &variables)
            .status
            .success()
    );
    let written = read(&path);
    assert_eq!(lines(&written).len(), 6001);
    assert!(
        written
            .lines()
            .next_back()
            .expect("lines")
            .contains("---> urDeviceWaitExp(.hDevice = 0x")
    );
}

#[test]
fn the_summary_counts_every_call() {
    let adapter = Willing::build("tracing-summary");
    for more in [None, Some(("NO_TEARDOWN", "1"))] {
        let path = fresh("tracing-summary", "summary.json");
        let mut variables = traced(
            &adapter,
            &[
                ("UR_TRACE_OUTPUT", "none"),
                ("UR_TRACE_SUMMARY", text(&path)),
                ("UR_TRACE_MIN_TIME", "1s"),
                ("LIVES", "2"),
            ],
        );
        variables.extend(more);
        child("tracing::scenario_calls", &variables);
        let summary: Value = serde_json::from_str(&read(&path)).expect("valid JSON");
        let functions = summary["functions"].as_array().expect("a list");
        let figures = |name: &str| {
            let found = functions.iter().find(|one| one["name"] == name);
            found.unwrap_or_else(|| panic!("no {name} in {summary}"))
        };
        let number = |value: &Value| value.as_u64().expect("a number");
        let retain = figures("urQueueRetain");
        assert_eq!(
            (number(&retain["calls"]), number(&retain["failed"])),
            (40, 12)
        );
        let native = figures("urEnqueueNativeCommandExp");
        assert_eq!(
            (number(&native["calls"]), number(&native["failed"])),
            (4, 0)
        );
        assert!(number(&native["total_ns"]) >= 80_000_000, "{native}");
        assert!(number(&native["max_ns"]) >= 20_000_000, "{native}");
        assert_eq!(functions.len(), 5, "{summary}");
        for one in functions {
            let times = one["times"].as_array().expect("a list");
            let calls: u64 = times.iter().map(|pair| number(&pair[1])).sum();
            assert_eq!(calls, number(&one["calls"]), "{one}");
        }
    }
}

//! Converts a trace to JSON for Chrome and ui.perfetto.dev: a span for each block's lifetime, an
//! instant for each request, and a counter of live bytes for each queue.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::trace::{Kind, Op, Trace};

pub fn json(trace: &Trace) -> String {
    let mut events: Vec<Value> = Vec::new();
    let mut live: HashMap<i64, u64> = HashMap::new();
    // A block may be freed on another queue than it was allocated on.
    let mut alloc_queues: HashMap<u64, i64> = HashMap::new();
    for (at, op) in (0..).zip(&trace.ops) {
        // Operations without a time are one microsecond apart.
        let ts = op.ns.map_or(at as f64, |ns| ns as f64 / 1000.0);
        let tid = op.stream.map_or(-1, |stream| stream as i64);
        match op.kind {
            Kind::Alloc => {
                alloc_queues.insert(op.id, tid);
                let bytes = live.entry(tid).or_default();
                *bytes = bytes.saturating_add(op.bytes);
                events.push(instant(op, ts, tid));
                events.push(span("b", op, ts, tid));
            }
            Kind::Free => {
                let home = alloc_queues.remove(&op.id).unwrap_or(tid);
                let bytes = live.entry(home).or_default();
                *bytes = bytes.saturating_sub(op.bytes);
                events.push(span("e", op, ts, home));
            }
            Kind::Wait => {
                events.push(json!({
                    "name": "the host waits", "ph": "i", "s": "p", "pid": 1, "tid": tid, "ts": ts,
                }));
                continue;
            }
        }
        let counter: serde_json::Map<String, Value> = live
            .iter()
            .map(|(queue, bytes)| (format!("queue {queue}"), json!(bytes)))
            .collect();
        events.push(json!({
            "name": "live bytes", "ph": "C", "pid": 1, "ts": ts, "args": counter,
        }));
    }
    json!({ "traceEvents": events, "displayTimeUnit": "ns" }).to_string()
}

fn instant(op: &Op, ts: f64, tid: i64) -> Value {
    let after: Vec<String> = op
        .after
        .iter()
        .map(|p| format!("{}@{}", p.lane, p.epoch))
        .collect();
    let lacks = op.missing.as_ref().map(|(_, owners)| owners);
    json!({
        "name": op.reuse.as_deref().unwrap_or("alloc"), "ph": "i", "s": "t",
        "pid": 1, "tid": tid, "ts": ts,
        "args": { "id": op.id, "bytes": op.bytes, "after": after, "lacked": lacks },
    })
}

fn span(ph: &str, op: &Op, ts: f64, tid: i64) -> Value {
    json!({
        "name": format!("{} bytes", op.bytes), "cat": "memory", "ph": ph, "id": op.id,
        "pid": 1, "tid": tid, "ts": ts, "args": { "id": op.id },
    })
}

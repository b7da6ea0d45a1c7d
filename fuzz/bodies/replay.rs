//! Fuzz body for the traces that urreplay reads: lines of `UR_POOL_TRACE`, shorter lines,
//! MiniMalloc's CSV.
//!
//! The file that includes this module includes urreplay's `trace`, `outcome` and `perfetto` as
//! well, since they are in no library.

use std::collections::HashSet;

use crate::trace::{self, Kind, Trace};
use crate::{outcome, perfetto};

/// Parses to a trace that can be replayed, or to an error.
pub fn trace(bytes: &[u8]) {
    let Ok(mut trace) = Trace::parse(bytes.to_vec()) else {
        return;
    };
    let (mut live, mut largest) = (HashSet::new(), 0);
    for op in &trace.ops {
        match op.kind {
            Kind::Alloc => assert!(live.insert(op.id)),
            Kind::Free => assert!(live.remove(&op.id)),
            Kind::Wait => assert_eq!(op.stream, None),
        }
        largest = largest.max(op.bytes * u64::from(op.kind == Kind::Alloc));
    }
    assert!(trace.peak_live() >= largest);
    let waits = trace::dependencies(&trace);
    assert_eq!(waits.len(), trace.ops.len());
    for (at, waits) in waits.iter().enumerate() {
        assert!(waits.iter().all(|other| *other < at));
        assert!(waits.is_sorted());
    }
    let shown: serde_json::Value = serde_json::from_str(&perfetto::json(&trace)).expect("JSON");
    let events = shown["traceEvents"].as_array().map_or(0, Vec::len);
    assert!(events >= trace.ops.len());
    for missing in outcome::missing_dependencies(&trace, &trace) {
        assert!(missing.allocations > 0);
    }
    trace.drop_dependencies();
    assert!(
        trace
            .ops
            .iter()
            .all(|op| op.after.is_empty() && op.kind != Kind::Wait)
    );
    assert!(trace::dependencies(&trace).iter().all(Vec::is_empty));
}

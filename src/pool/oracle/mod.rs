//! The slow truth that the pool is tested against.
//!
//! Owns a model that keeps, for every command of a program, the set of all commands before it
//! (program order, waits, the order that lanes enforce), and what was observed complete. Owns also a small
//! engine that gives queues, events and waits to a [`Pool`](super::Pool) as the real one does, and a
//! one-line notation for programs. For tests and tools: nothing else may depend on it.
//!
//! | statement | meaning |
//! |---|---|
//! | `pool max 4096 chunk 0 align 64 waits never threshold 0` | properties, at the head, all optional |
//! | `pool page 128 mapped 1` | memory in pages; the addresses that they leave lead there for long |
//! | `pool deterministic 1` | only what the program awaits counts as complete; run twice, see `run_with` |
//! | `pool blocks 1` | before an allocation fails the host waits, as the pool says, and it is repeated |
//! | `a0 = alloc q0 64 align 256 after f1 nowait` | an allocation, perhaps without leave to wait |
//! | `f0 = free q1 a0 after k0` | a free |
//! | `k0 = run q0 a0 a1 after f0` | a command that uses blocks |
//! | `b0 = barrier q0 after k0` | comes after all before it on the queue, and before all after it |
//! | `wait k0`, `finish q0` | the host observes completion |
//! | `settle`, `trim 64`, `threshold 64` | the pool's own |
//!
//! `q0` is an in-order queue, `o0` an out-of-order one, `host` the synchronous calls. Each in-order
//! queue has one command in flight from the start. Names are optional except for blocks.

mod fake;
mod judge;
mod model;
mod random;
mod report;
mod run;
mod script;
mod shrink;

pub use fake::FakeProvider;
pub use random::{Random, Rng};
pub use report::{How, Outcome, Report};
pub use run::{run, run_with};
pub use script::{QueueName, Script, Setup, Step};
pub use shrink::shrink;

/// Runs a script on the pool and the model and compares its outcomes with an expectation. Outcomes are joined by
/// `;`: `a1 grows`, `a1 = a0` (or `a1 = a0, no wait`), `a1 = a0, waits`, `a1 in a0` (and `, waits`), `a1 fresh`,
/// `a1 served`, `a1 exhausted`, `f1 unknown`. `, blocks 2` stands for a wait of the host for two lanes. The error says what was found instead.
pub fn check(script: &str, expectation: &str) -> Result<(), String> {
    let script = Script::parse(script)?;
    let report = run(&script)?;
    for claim in expectation
        .split(';')
        .map(str::trim)
        .filter(|c| !c.is_empty())
    {
        report
            .holds(&script, claim)
            .map_err(|found| format!("{claim}: {found} in `{script}`"))?;
    }
    Ok(())
}

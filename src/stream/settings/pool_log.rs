//! The figures of a pool as one line of text, on the sink of `UR_LOG_POOL`.

use crate::object::log::{Level, LevelFilter, Sink};
use crate::pool::{Counters, Figures};
use std::sync::OnceLock;

/// The figures of one pool.
pub(crate) struct Report {
    /// Number of the pool, in the order of creation.
    pub number: u64,
    pub figures: Figures,
    pub counters: Counters,
}

impl Report {
    pub fn line(&self) -> String {
        let (f, c) = (&self.figures, &self.counters);
        format!(
            "pool {}: reserved {} high {}, used {} high {}; {} served: own {}, ordered {}, \
             completed {}, waited {} ({} waits), grown {}; {} failed; {} freed; {} growths of {} \
             bytes, {} trims of {} bytes, {} compactions of {} bytes; {} replayed by {} plans",
            self.number,
            f.reserved,
            f.reserved_high,
            f.used,
            f.used_high,
            c.served(),
            c.own_lane,
            c.ordered,
            c.completed,
            c.waited,
            c.waits,
            c.grown,
            c.failed,
            c.releases,
            c.growths,
            c.grown_bytes,
            c.trims,
            c.trimmed_bytes,
            c.compactions,
            c.compacted_bytes,
            c.replayed,
            c.replay_plans,
        )
    }
}

/// Whether [`write`] would write a line: figures take locks to read.
pub(crate) fn is_wanted() -> bool {
    sink().enabled(Level::Info)
}

pub(crate) fn write(report: &Report) {
    sink().log(Level::Info, format_args!("{}", report.line()));
}

fn sink() -> &'static Sink {
    static SINK: OnceLock<Sink> = OnceLock::new();
    SINK.get_or_init(|| Sink::open("pool", LevelFilter::Off))
}

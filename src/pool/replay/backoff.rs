//! Exponential backoff of allocation traces.

use crate::pool::options::{BACKOFF_FACTOR_LOG2, MAX_BACKOFF_LEVEL};

/// How many misses of a pool pass untraced before a stream may begin an allocation trace.
///
/// The wait is a multiple of the allocations that the failed trace or replay plan had, eight times as large
/// with each failure in a row. So a program that never repeats traces a share of its requests that tends to
/// zero, and one that begins to repeat late is traced after eight times the requests that it made before.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    level: u32,
    /// Misses still to pass.
    wait: u64,
}

impl Backoff {
    /// Counts a miss. True if it must not begin a trace.
    pub fn waits(&mut self) -> bool {
        let waits = self.wait > 0;
        self.wait = self.wait.saturating_sub(1);
        waits
    }

    /// A trace or a plan of so many allocations came to nothing. Streams that fail together count once.
    pub fn failed(&mut self, allocations: u64) {
        if self.wait == 0 {
            self.level = (self.level + 1).min(MAX_BACKOFF_LEVEL);
        }
        let wait = allocations << (BACKOFF_FACTOR_LOG2 * self.level);
        self.wait = self.wait.max(wait);
    }

    /// A plan served at least an iteration.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }
}

//! When a queue is flushed.
//!
//! OpenCL may hold enqueued commands until a flush. A flush after each command is safe but costs a good
//! part of a small command, as it wakes the device's threads. Without flushes the device idles until a
//! thread blocks. So a queue is flushed
//!
//! * behind the first command after all earlier ones were seen complete, so that the device starts at
//!   once, unless the command moves [so few bytes](SMALL_COPY_BYTES) that the wake-up takes longer;
//! * behind every [`MAX_UNFLUSHED_COMMANDS`]th command since;
//! * before another lane, a callback or the owner of a native event depends on a command, and when a
//!   query finds it incomplete;
//! * when the user flushes.
//!
//! A blocking wait flushes by itself, and so does closing the queue.
//!
//! This module only counts; `submissions` calls the driver.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Most commands enqueued behind a flush.
const MAX_UNFLUSHED_COMMANDS: u64 = 64;

/// A copy of at most so many bytes does not start an idle device.
pub(super) const SMALL_COPY_BYTES: usize = 1 << 10;

/// How far a queue was flushed. Commands are counted from 1.
pub(super) struct FlushPolicy {
    submitted: AtomicU64,
    flushed: AtomicU64,
    /// All commands up to this number were seen complete.
    ended: AtomicU64,
    /// Whether all commands were complete at the last query.
    idle: AtomicBool,
}

impl FlushPolicy {
    pub fn new() -> Self {
        Self {
            submitted: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            idle: AtomicBool::new(true),
        }
    }

    /// The number of the last command.
    pub fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Relaxed)
    }

    /// Counts one more command and returns its number. The caller holds the lane's lock.
    pub fn count(&self) -> u64 {
        let at = self.submitted() + 1;
        self.submitted.store(at, Ordering::Relaxed);
        at
    }

    /// The number up to which to flush now, if a flush is due. `small`: whether the last command alone
    /// is not worth one.
    pub fn due(&self, small: bool) -> Option<u64> {
        let (submitted, flushed) = (self.submitted(), self.flushed.load(Ordering::Relaxed));
        let starts = !small && self.idle.load(Ordering::Relaxed);
        if !starts && submitted - flushed.min(submitted) < MAX_UNFLUSHED_COMMANDS {
            return None;
        }
        self.idle.store(false, Ordering::Relaxed);
        Some(submitted)
    }

    /// Whether the queue was flushed since the command with this number.
    pub fn is_flushed(&self, at: u64) -> bool {
        self.flushed.load(Ordering::Relaxed) >= at
    }

    /// The queue was flushed behind the command with this number.
    pub fn record_flush(&self, at: u64) {
        self.flushed.fetch_max(at, Ordering::Relaxed);
    }

    /// Whether all commands were seen complete. Exact while the caller keeps others from submitting.
    pub fn is_quiet(&self) -> bool {
        self.ended.load(Ordering::Acquire) == self.submitted()
    }

    /// The command with this number was seen complete, and so all before it.
    pub fn record_end(&self, at: u64) {
        self.flushed.fetch_max(at, Ordering::Relaxed);
        // Not `fetch_max`, which the thread sanitizer does not see.
        let later = |ended| (ended < at).then_some(at);
        let _ = self
            .ended
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, later);
        if self.submitted() == at {
            self.idle.store(true, Ordering::Relaxed);
        }
    }
}

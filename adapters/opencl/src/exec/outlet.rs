//! When commands leave for the device.
//!
//! OpenCL may keep what was enqueued until the queue is flushed. To flush after each command is safe
//! and costs a good part of a small command, the more so as it wakes the device's threads; not to flush
//! at all leaves the device idle until someone waits. So a queue is flushed
//!
//! * behind the first command after all before it was seen complete, so that the device starts at
//!   once, unless that moves [so few bytes](LITTLE) that to wake a thread for them takes longer;
//! * behind every [`MOST_HELD`]th command since;
//! * before anyone depends on a command without blocking for it: another lane, a call back, a query
//!   that finds it incomplete, someone who was given its native event;
//! * when the user says so.
//!
//! Blocking for a command flushes by itself, and so does closing the queue.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use opencl_sys::CL_SUCCESS;
use ur::object::Result;

use crate::cl::{QueueRef, check};

/// Most commands that wait for a flush.
const MOST_HELD: u64 = 64;

/// Bytes whose copy is not worth starting the device for.
pub(super) const LITTLE: usize = 1 << 10;

/// A command queue and how far it was flushed. Commands are counted from 1.
pub(super) struct Outlet {
    pub queue: QueueRef,
    given: AtomicU64,
    flushed: AtomicU64,
    /// The number of the last command that was seen complete, and all before it with it.
    ended: AtomicU64,
    /// Whether all commands were seen complete when last looked at.
    idle: AtomicBool,
}

impl Outlet {
    pub fn new(queue: QueueRef) -> Self {
        Self {
            queue,
            given: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            idle: AtomicBool::new(true),
        }
    }

    /// The number of the last command.
    pub fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }

    /// One command more. Called under the lane's lock, in the order of the commands.
    pub fn give(&self) {
        self.given.store(self.given() + 1, Ordering::Relaxed);
    }

    /// Flushes if it is time to. `little`: whether the last command alone is not worth it.
    pub fn start(&self, little: bool) -> Result<()> {
        let (given, flushed) = (self.given(), self.flushed.load(Ordering::Relaxed));
        let starts = !little && self.idle.load(Ordering::Relaxed);
        if !starts && given - flushed.min(given) < MOST_HELD {
            return Ok(());
        }
        self.idle.store(false, Ordering::Relaxed);
        self.flush(given)
    }

    /// Flushes unless that was done since the command with this number.
    pub fn flush(&self, at: u64) -> Result<()> {
        if self.flushed.load(Ordering::Relaxed) >= at {
            return Ok(());
        }
        // SAFETY: a live queue.
        let code = unsafe { (self.queue.api().core.clFlush)(self.queue.raw()) };
        if code == CL_SUCCESS {
            self.flushed.fetch_max(at, Ordering::Relaxed);
        }
        check(code, "clFlush")
    }

    /// Whether all commands were seen complete. Exact for who keeps others from giving more.
    pub fn is_quiet(&self) -> bool {
        self.ended.load(Ordering::Acquire) == self.given()
    }

    /// The command with this number was seen complete.
    pub fn note_end(&self, at: u64) {
        self.flushed.fetch_max(at, Ordering::Relaxed);
        // Not `fetch_max`, which the thread sanitizer does not see.
        let later = |ended| (ended < at).then_some(at);
        let _ = self
            .ended
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, later);
        if self.given() == at {
            self.idle.store(true, Ordering::Relaxed);
        }
    }
}

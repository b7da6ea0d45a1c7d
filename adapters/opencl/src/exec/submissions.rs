//! A command queue with its submitted commands: how far it was flushed, and how they ended.

use std::time::Duration;

use opencl_sys::CL_SUCCESS;
use ur::object::Result;

use super::flush::FlushPolicy;
use super::outcomes::{Outcomes, Watched};
use crate::cl::{QueueRef, check};

/// The first pause between two queries whether a command has ended. Each pause is twice the last.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
/// The longest pause between two queries whether a command has ended.
const MAX_PAUSE: Duration = Duration::from_millis(1);

pub(super) struct Submissions {
    pub queue: QueueRef,
    pub outcomes: Outcomes,
    flush: FlushPolicy,
}

impl Submissions {
    /// `chained`: whether each command depends on the one before.
    pub fn new(queue: QueueRef, chained: bool) -> Self {
        Self {
            queue,
            outcomes: Outcomes::new(chained),
            flush: FlushPolicy::new(),
        }
    }

    /// The number of the last command. Commands are counted from 1.
    pub fn last(&self) -> u64 {
        self.flush.submitted()
    }

    /// Records one more command. The caller holds the lane's lock.
    pub fn record(&self, epoch: u64, what: Watched) {
        let at = self.flush.count();
        self.outcomes.watch(at, epoch, what);
    }

    /// The command with this number was seen complete.
    pub fn record_end(&self, at: u64) {
        self.flush.record_end(at);
    }

    /// Whether all commands were seen complete. Exact while the caller keeps others from submitting.
    pub fn is_quiet(&self) -> bool {
        self.flush.is_quiet()
    }

    /// Blocks until the commands up to this epoch have ended, failed ones too.
    pub fn settle(&self, epoch: u64) -> Result<()> {
        let running = self.outcomes.running(epoch);
        // `clWaitForEvents` of PoCL never returns for a command that has failed.
        self.flush(self.last())?;
        let mut pause = FIRST_PAUSE;
        for watched in &running {
            while watched.is_running()? {
                std::thread::sleep(pause);
                pause = (2 * pause).min(MAX_PAUSE);
            }
        }
        Ok(())
    }

    /// Flushes if a flush is due. `small`: whether the last command alone is not worth one.
    pub fn flush_if_due(&self, small: bool) -> Result<()> {
        match self.flush.due(small) {
            Some(at) => self.flush(at),
            None => Ok(()),
        }
    }

    /// Flushes unless the queue was flushed since the command with this number.
    pub fn flush(&self, at: u64) -> Result<()> {
        if self.flush.is_flushed(at) {
            return Ok(());
        }
        // SAFETY: `QueueRef` holds a reference to the queue.
        let code = unsafe { (self.queue.api().core.clFlush)(self.queue.raw()) };
        if code == CL_SUCCESS {
            self.flush.record_flush(at);
        }
        check(code, "clFlush")
    }
}

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

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use opencl_sys::CL_SUCCESS;
use ur::object::Result;
use ur::timeline::sync::{Mutex, MutexGuard};

use super::Position;
use super::marker::{is_running, outcome};
use crate::cl::{EventRef, QueueRef, check};

/// Most commands that wait for a flush.
const MOST_HELD: u64 = 64;

/// How long to sleep between two questions whether commands before a failed one have ended: at first,
/// doubled from one to the next, and at most.
const SETTLES_AFTER: Duration = Duration::from_micros(20);
const SETTLES_WITHIN: Duration = Duration::from_millis(1);

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
    /// Whether each command depends on the one before.
    pub chained: bool,
    pending: Mutex<Pending>,
}

/// Commands that were not seen to end, and whether one has failed.
#[derive(Default)]
struct Pending {
    events: VecDeque<Given>,
    /// Where each command depends on the one before: the number of the first that failed.
    failed: Option<u64>,
    /// Elsewhere: the epochs of those that failed and that nobody was told of.
    untold: Vec<u64>,
}

struct Given {
    at: u64,
    epoch: u64,
    what: Watched,
}

/// What tells how a command ended.
#[derive(Clone)]
pub(super) enum Watched {
    Command(EventRef),
    /// What it waits for: a driver may run it though that fails.
    Wait(Position),
}

impl Watched {
    fn outcome(&self) -> Option<Result<()>> {
        match self {
            Self::Command(event) => outcome(event),
            Self::Wait(position) => position.outcome(),
        }
    }

    fn is_running(&self) -> Result<bool> {
        match self {
            Self::Command(event) => is_running(event),
            Self::Wait(position) => position.is_running(),
        }
    }
}

impl Outlet {
    pub fn new(queue: QueueRef, chained: bool) -> Self {
        Self {
            queue,
            given: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            idle: AtomicBool::new(true),
            chained,
            pending: Mutex::default(),
        }
    }

    /// The number of the last command.
    pub fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }

    /// One command more. Called under the lane's lock, in the order of the commands.
    pub fn give(&self, epoch: u64, what: Watched) {
        let at = self.given() + 1;
        self.given.store(at, Ordering::Relaxed);
        self.pending().events.push_back(Given { at, epoch, what });
    }

    /// Whether a command up to this one failed that the next one depends on. Some drivers let what is
    /// given later run, so that every command has to be asked, once.
    pub fn has_failed(&self, upto: u64) -> bool {
        let mut pending = self.pending();
        self.look(&mut pending, upto);
        pending.failed.is_some_and(|at| at <= upto)
    }

    /// The epochs of the commands that failed and that nobody was told of: see `Driver::failed`.
    pub fn untold(&self) -> Vec<u64> {
        let mut pending = self.pending();
        self.look(&mut pending, u64::MAX);
        std::mem::take(&mut pending.untold)
    }

    fn look(&self, pending: &mut Pending, upto: u64) {
        while let Some(first) = pending.events.front()
            && first.at <= upto
            && let Some(ended) = first.what.outcome()
        {
            let (at, epoch) = (first.at, first.epoch);
            match ended.is_err() {
                true if self.chained => {
                    pending.failed.get_or_insert(at);
                }
                true => pending.untold.push(epoch),
                false => {}
            }
            pending.events.pop_front();
        }
    }

    /// Blocks until the commands up to this epoch have ended, well or not.
    pub fn settle(&self, epoch: u64) -> Result<()> {
        let upto: Vec<_> = {
            let pending = self.pending();
            let upto = pending
                .events
                .iter()
                .take_while(|given| given.epoch <= epoch);
            upto.map(|given| given.what.clone()).collect()
        };
        // Not `clWaitForEvents`: PoCL's never returns for a command that failed before.
        self.flush(self.given())?;
        let mut pause = SETTLES_AFTER;
        for watched in &upto {
            while watched.is_running()? {
                std::thread::sleep(pause);
                pause = (2 * pause).min(SETTLES_WITHIN);
            }
        }
        Ok(())
    }

    /// Forgets the failures of what has ended. Whether there was one.
    pub fn recover(&self) -> bool {
        self.has_failed(u64::MAX);
        self.pending().failed.take().is_some()
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock()
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

//! A command that several threads share. Each claims pieces until none are left. The thread that ends
//! the last piece completes the command.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use ur::sync::{Mutex, MutexGuard};

use super::Stamp;
use super::command::{Command, Plan};
use super::lane::{LaneCore, Run, TimeSlice};
use super::scratch::Scratch;

pub struct Job {
    pub core: Arc<LaneCore>,
    epoch: u64,
    plan: Plan,
    needs_local: bool,
    /// The first unclaimed piece.
    next: AtomicUsize,
    /// Pieces that have not ended.
    unfinished: AtomicUsize,
    /// The completing thread drops it before the epoch is raised.
    command: Mutex<Option<Arc<Command>>>,
    stamp: Option<Arc<dyn Stamp>>,
}

impl Job {
    pub fn new(core: &Arc<LaneCore>, run: Run, plan: Plan) -> Arc<Self> {
        Arc::new(Self {
            core: Arc::clone(core),
            epoch: run.epoch,
            plan,
            needs_local: run.command.needs_local(),
            next: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(plan.pieces),
            command: Mutex::new(Some(Arc::new(run.command))),
            stamp: run.stamp,
        })
    }

    /// Whether all pieces are claimed.
    pub fn is_exhausted(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.plan.pieces
    }

    /// Runs pieces until none are left or the time slice is over. True if this thread completed the
    /// command and so owns the lane.
    pub fn join(&self, scratch: &mut Scratch, time_slice: TimeSlice) -> bool {
        let Plan { pieces, chunk } = self.plan;
        if self.needs_local && !scratch.provide() {
            // Only a helping thread can lack local memory. The workers will run the pieces.
            return false;
        }
        let mut command: Option<Arc<Command>> = None;
        let mut ended = 0;
        while !self.is_exhausted() {
            let from = self.next.fetch_add(chunk, Ordering::Relaxed);
            if from >= pieces {
                break;
            }
            let to = (from + chunk).min(pieces);
            // The command lives until its last piece ends, and this piece has not ended.
            let command = command.get_or_insert_with(|| self.command());
            command.run(from..to, scratch);
            ended += to - from;
            if time_slice.is_over(&self.core) {
                break;
            }
        }
        drop(command);
        // Acquire and release: the last thread sees the writes of all others.
        if ended == 0 || self.unfinished.fetch_sub(ended, Ordering::AcqRel) != ended {
            return false;
        }
        let command = self.lock_command().take();
        let stamp = self.stamp.as_deref();
        self.core.complete_job(self.epoch, command, stamp);
        true
    }

    fn command(&self) -> Arc<Command> {
        let command = self.lock_command();
        command
            .as_ref()
            .map_or_else(|| Arc::new(Command::Nothing), Arc::clone)
    }

    fn lock_command(&self) -> MutexGuard<'_, Option<Arc<Command>>> {
        self.command.lock()
    }
}

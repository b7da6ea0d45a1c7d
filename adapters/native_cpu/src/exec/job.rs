//! A command that several threads share: each takes pieces until there are none, and the one that
//! ends the last piece completes the command.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use ur::timeline::sync::{Mutex, MutexGuard};

use super::Stamp;
use super::command::{Command, Plan};
use super::lane::{Run, Track, Turn};
use super::scratch::Scratch;

pub struct Job {
    pub track: Arc<Track>,
    epoch: u64,
    plan: Plan,
    needs_local: bool,
    /// The first piece that nobody has taken.
    next: AtomicUsize,
    /// Pieces that have not ended.
    left: AtomicUsize,
    /// Taken out by the thread that completes it, so that what it holds goes before its epoch is
    /// raised.
    command: Mutex<Option<Arc<Command>>>,
    stamp: Option<Arc<dyn Stamp>>,
}

impl Job {
    pub fn new(track: &Arc<Track>, run: Run, plan: Plan) -> Arc<Self> {
        Arc::new(Self {
            track: Arc::clone(track),
            epoch: run.epoch,
            plan,
            needs_local: run.command.needs_local(),
            next: AtomicUsize::new(0),
            left: AtomicUsize::new(plan.pieces),
            command: Mutex::new(Some(Arc::new(run.command))),
            stamp: run.stamp,
        })
    }

    /// Whether all pieces are taken.
    pub fn is_taken(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.plan.pieces
    }

    /// Runs pieces as long as there are any and the turn lasts. True if this thread completed the
    /// command and thereby owns the lane.
    pub fn join(&self, scratch: &mut Scratch, turn: Turn) -> bool {
        let Plan { pieces, grain } = self.plan;
        if self.needs_local && !scratch.provide() {
            // A guest's failure: the workers, who have theirs, will do it.
            return false;
        }
        let mut command: Option<Arc<Command>> = None;
        let mut ended = 0;
        while !self.is_taken() {
            let from = self.next.fetch_add(grain, Ordering::Relaxed);
            if from >= pieces {
                break;
            }
            let to = (from + grain).min(pieces);
            // There is a command as long as a piece of it has not ended, and this one has not.
            let command = command.get_or_insert_with(|| self.command());
            command.run(from..to, scratch);
            ended += to - from;
            if turn.is_over(&self.track) {
                break;
            }
        }
        drop(command);
        // Acquire and release: the last one sees what all the others wrote.
        if ended == 0 || self.left.fetch_sub(ended, Ordering::AcqRel) != ended {
            return false;
        }
        let command = self.lock_command().take();
        let stamp = self.stamp.as_deref();
        self.track.complete_job(self.epoch, command, stamp);
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

//! Lanes: in-order queues of commands and waits. The states are on top of `exec`.

use std::collections::VecDeque;
use std::sync::Arc;

use ur::object::has_usual_stack;
use ur::timeline::Clock;
use ur::timeline::sync::{Mutex, MutexGuard};

use super::command::Command;
use super::crew::Crew;
use super::fence::{Fence, Marker};
use super::job::Job;
use super::mask::Span;
use super::scratch::Scratch;
use super::{Failure, Stamp, now};

/// The submitting side. Dropping it lets what was submitted run to its end.
pub struct Lane {
    track: Arc<Track>,
}

/// A lane as threads see it.
pub struct Track {
    fence: Arc<Fence>,
    crew: Arc<Crew>,
    span: Span,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    items: VecDeque<Item>,
    /// The command that is running now, if threads share it.
    job: Option<Arc<Job>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Idle,
    Ready,
    Running,
    Waiting,
}

enum Item {
    Wait(Marker),
    Run(Run),
}

/// A command with its place and what to tell.
pub struct Run {
    pub epoch: u64,
    pub command: Command,
    pub stamp: Option<Arc<dyn Stamp>>,
}

/// How long a thread may stay with a lane.
#[derive(Clone, Copy)]
pub enum Turn {
    /// A worker's, since then: a fair share if others wait for workers.
    Since(u64),
    /// A blocked thread's: until that epoch is reached.
    Until(u64),
}

/// A worker's turn, in nanoseconds.
const TURN_NS: u64 = 200_000;

impl Turn {
    pub fn is_over(self, track: &Track) -> bool {
        match self {
            Turn::Since(start) => track.crew.has_work() && now() - start > TURN_NS,
            Turn::Until(epoch) => track.fence.reached(epoch),
        }
    }
}

impl Lane {
    /// A lane whose commands run on the workers of `span`, and which raises `clock`.
    pub fn open(crew: &Arc<Crew>, span: Span, clock: &Arc<Clock>) -> Result<Self, Failure> {
        crew.check()?;
        let fence = Fence::new(crew, clock);
        let track = Arc::new(Track {
            fence: Arc::clone(&fence),
            crew: Arc::clone(crew),
            span,
            state: Mutex::new(State {
                phase: Phase::Idle,
                items: VecDeque::new(),
                job: None,
            }),
        });
        fence.belongs_to(&track);
        Ok(Self { track })
    }

    /// Adds a command; `epoch` rises from one to the next.
    pub fn submit(
        &self,
        epoch: u64,
        command: Command,
        stamp: Option<Arc<dyn Stamp>>,
    ) -> Result<(), Failure> {
        self.track.push(Item::Run(Run {
            epoch,
            command,
            stamp,
        }))
    }

    /// What is submitted from now on waits for the marker.
    pub fn wait(&self, marker: &Marker) -> Result<(), Failure> {
        // Its own past needs no waiting for.
        if marker.is_of(&self.track.fence) || marker.reached() {
            return self.track.crew.check();
        }
        self.track.push(Item::Wait(marker.clone()))
    }

    /// Whether nothing that it was given is left to run or to wait for, and more would be taken.
    pub fn is_idle(&self) -> bool {
        self.track.lock().phase == Phase::Idle && self.track.crew.check().is_ok()
    }

    /// The end of everything up to `epoch`.
    pub fn mark(&self, epoch: u64) -> Marker {
        Marker::new(&self.track.fence, epoch)
    }
}

impl Track {
    pub fn span(&self) -> Span {
        self.span
    }

    fn push(self: &Arc<Self>, item: Item) -> Result<(), Failure> {
        self.crew.check()?;
        let mut state = self.lock();
        state.items.push_back(item);
        if state.phase != Phase::Idle {
            return Ok(());
        }
        state.phase = Phase::Ready;
        drop(state);
        self.crew.add_lane(Arc::clone(self));
        Ok(())
    }

    /// The fence that the lane waited for is reached.
    pub fn wake(self: Arc<Self>) {
        self.lock().phase = Phase::Ready;
        let crew = Arc::clone(&self.crew);
        crew.add_lane(self);
    }

    /// Makes the calling thread the lane's owner, if it is ready.
    pub fn claim(&self) -> bool {
        let mut state = self.lock();
        let ready = state.phase == Phase::Ready;
        if ready {
            state.phase = Phase::Running;
        }
        ready
    }

    /// Runs the lane, which the calling thread owns, and gives it up.
    pub fn run(self: &Arc<Self>, scratch: &mut Scratch, turn: Turn) {
        loop {
            if turn.is_over(self) {
                return self.give_up();
            }
            let Some(run) = self.next() else { return };
            if run.command.needs_local() && !scratch.provide() {
                // Only a guest lacks it; workers have theirs from the start.
                self.lock().items.push_front(Item::Run(run));
                return self.give_up();
            }
            if !self.execute(run, scratch, turn) {
                return;
            }
        }
    }

    /// Runs a command, alone or as a job. False if another thread completes it and owns the lane.
    fn execute(self: &Arc<Self>, run: Run, scratch: &mut Scratch, turn: Turn) -> bool {
        if let Some(stamp) = &run.stamp {
            stamp.started(now());
        }
        let plan = run.command.plan(self.span.count);
        if plan.pieces > plan.grain && self.span.count > 1 {
            let job = Job::new(self, run, plan);
            self.lock().job = Some(Arc::clone(&job));
            self.crew.add_job(&job);
            return job.join(scratch, turn);
        }
        run.command.run(0..plan.pieces, scratch);
        self.complete(run.epoch, run.command, run.stamp.as_deref());
        true
    }

    /// The next command that can run; `None` if there is none and the lane is no longer owned.
    fn next(self: &Arc<Self>) -> Option<Run> {
        loop {
            let mut state = self.lock();
            match state.items.pop_front() {
                None => {
                    state.phase = Phase::Idle;
                    return None;
                }
                Some(Item::Run(run)) => return Some(run),
                Some(Item::Wait(marker)) if marker.reached() => {}
                Some(Item::Wait(marker)) => {
                    state.phase = Phase::Waiting;
                    drop(state);
                    if marker.wake_later(self) {
                        return None;
                    }
                    // Nobody else touches a lane that waits and is not registered.
                    self.lock().phase = Phase::Running;
                }
            }
        }
    }

    /// Leaves the rest to the workers.
    fn give_up(self: &Arc<Self>) {
        let mut state = self.lock();
        if state.items.is_empty() {
            state.phase = Phase::Idle;
            return;
        }
        state.phase = Phase::Ready;
        drop(state);
        self.crew.add_lane(Arc::clone(self));
    }

    /// A command has run: drops it, then tells everybody.
    fn complete<T>(&self, epoch: u64, command: T, stamp: Option<&dyn Stamp>) {
        drop(command);
        if let Some(stamp) = stamp {
            stamp.ended(now());
        }
        self.fence.raise(epoch);
    }

    /// As `complete`, for a command that threads shared.
    pub fn complete_job<T>(&self, epoch: u64, command: T, stamp: Option<&dyn Stamp>) {
        let job = self.lock().job.take();
        drop(job);
        self.complete(epoch, command, stamp);
    }

    /// What a thread blocked on `epoch` does meanwhile: the lane's own work, unless the lane is
    /// confined to a part of the workers, or the thread has less stack than a worker.
    pub fn help(self: &Arc<Self>, epoch: u64) {
        if self.span.count < self.crew.width() || !has_usual_stack() {
            return;
        }
        let turn = Turn::Until(epoch);
        let mut scratch = Scratch::default();
        if self.claim() {
            return self.run(&mut scratch, turn);
        }
        let job = self.lock().job.clone();
        if job.is_some_and(|job| job.join(&mut scratch, turn)) {
            self.run(&mut scratch, turn);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

//! Lanes: in-order queues of commands and waits. The states are on top of `exec`.

use std::collections::VecDeque;
use std::sync::Arc;

use ur::object::has_usual_stack;
use ur::sync::{Mutex, MutexGuard};
use ur::timeline::Clock;

use super::command::Command;
use super::completion::{Completion, Marker};
use super::job::Job;
use super::scratch::Scratch;
use super::thread_pool::ThreadPool;
use super::workers::WorkerRange;
use super::{Failure, Stamp, now};

/// The submitting side. After its drop, submitted commands still run to their end.
pub struct Lane {
    core: Arc<LaneCore>,
}

/// The part of a lane that threads share.
pub struct LaneCore {
    completion: Arc<Completion>,
    thread_pool: Arc<ThreadPool>,
    workers: WorkerRange,
    state: Mutex<ItemQueue>,
}

struct ItemQueue {
    phase: Phase,
    items: VecDeque<Item>,
    /// The running command, if several threads share it.
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

/// A command with its epoch and its timestamps.
pub struct Run {
    pub epoch: u64,
    pub command: Command,
    pub stamp: Option<Arc<dyn Stamp>>,
}

/// How long a thread may stay with a lane.
#[derive(Clone, Copy)]
pub enum TimeSlice {
    /// A worker's, from this time in nanoseconds: limited while other work waits for a worker.
    Since(u64),
    /// A blocked thread's: until this epoch is reached.
    Until(u64),
}

/// A worker's time slice, in nanoseconds.
const TIME_SLICE_NS: u64 = 200_000;

impl TimeSlice {
    pub fn is_over(self, core: &LaneCore) -> bool {
        match self {
            TimeSlice::Since(start) => core.thread_pool.has_work() && now() - start > TIME_SLICE_NS,
            TimeSlice::Until(epoch) => core.completion.reached(epoch),
        }
    }
}

impl Lane {
    /// A lane whose commands run on `workers` and which raises `clock`.
    pub fn open(
        thread_pool: &Arc<ThreadPool>,
        workers: WorkerRange,
        clock: &Arc<Clock>,
    ) -> Result<Self, Failure> {
        thread_pool.check()?;
        let completion = Completion::new(thread_pool, clock);
        let core = Arc::new(LaneCore {
            completion: Arc::clone(&completion),
            thread_pool: Arc::clone(thread_pool),
            workers,
            state: Mutex::new(ItemQueue {
                phase: Phase::Idle,
                items: VecDeque::new(),
                job: None,
            }),
        });
        completion.belongs_to(&core);
        Ok(Self { core })
    }

    /// Adds a command; `epoch` rises from one to the next.
    pub fn submit(
        &self,
        epoch: u64,
        command: Command,
        stamp: Option<Arc<dyn Stamp>>,
    ) -> Result<(), Failure> {
        self.core.push(Item::Run(Run {
            epoch,
            command,
            stamp,
        }))
    }

    /// Later submissions wait for the marker.
    pub fn wait(&self, marker: &Marker) -> Result<(), Failure> {
        // An in-order lane need not wait for its own past.
        if marker.is_of(&self.core.completion) || marker.reached() {
            return self.core.thread_pool.check();
        }
        self.core.push(Item::Wait(marker.clone()))
    }

    /// Whether no submission is pending and the lane accepts more.
    pub fn is_idle(&self) -> bool {
        self.core.lock().phase == Phase::Idle && self.core.thread_pool.check().is_ok()
    }

    /// A marker of all commands up to `epoch`.
    pub fn mark(&self, epoch: u64) -> Marker {
        Marker::new(&self.core.completion, epoch)
    }
}

impl LaneCore {
    pub fn workers(&self) -> WorkerRange {
        self.workers
    }

    fn push(self: &Arc<Self>, item: Item) -> Result<(), Failure> {
        self.thread_pool.check()?;
        let mut state = self.lock();
        state.items.push_back(item);
        if state.phase != Phase::Idle {
            return Ok(());
        }
        state.phase = Phase::Ready;
        drop(state);
        self.thread_pool.add_lane(Arc::clone(self));
        Ok(())
    }

    /// The completion that the lane waited for is reached.
    pub fn wake(self: Arc<Self>) {
        self.lock().phase = Phase::Ready;
        let thread_pool = Arc::clone(&self.thread_pool);
        thread_pool.add_lane(self);
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

    /// Runs the lane on the calling thread, which owns it, and releases it.
    pub fn run(self: &Arc<Self>, scratch: &mut Scratch, time_slice: TimeSlice) {
        loop {
            if time_slice.is_over(self) {
                return self.give_up();
            }
            let Some(run) = self.next() else { return };
            if run.command.needs_local() && !scratch.provide() {
                // Only a helping thread can lack local memory. Workers allocate theirs at their start.
                self.lock().items.push_front(Item::Run(run));
                return self.give_up();
            }
            if !self.execute(run, scratch, time_slice) {
                return;
            }
        }
    }

    /// Runs a command, alone or as a job. False if another thread completes it and owns the lane.
    fn execute(self: &Arc<Self>, run: Run, scratch: &mut Scratch, time_slice: TimeSlice) -> bool {
        if let Some(stamp) = &run.stamp {
            stamp.started(now());
        }
        let plan = run.command.plan(self.workers.count);
        if plan.pieces > plan.chunk && self.workers.count > 1 {
            let job = Job::new(self, run, plan);
            self.lock().job = Some(Arc::clone(&job));
            self.thread_pool.add_job(&job);
            return job.join(scratch, time_slice);
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
                    // No other thread reaches a waiting lane that is not registered.
                    self.lock().phase = Phase::Running;
                }
            }
        }
    }

    /// Returns the lane to the workers' queue.
    fn give_up(self: &Arc<Self>) {
        let mut state = self.lock();
        if state.items.is_empty() {
            state.phase = Phase::Idle;
            return;
        }
        state.phase = Phase::Ready;
        drop(state);
        self.thread_pool.add_lane(Arc::clone(self));
    }

    /// Completes a command: drops it, records its end and raises the epoch.
    fn complete<T>(&self, epoch: u64, command: T, stamp: Option<&dyn Stamp>) {
        drop(command);
        if let Some(stamp) = stamp {
            stamp.ended(now());
        }
        self.completion.raise(epoch);
    }

    /// Completes a command that several threads shared.
    pub fn complete_job<T>(&self, epoch: u64, command: T, stamp: Option<&dyn Stamp>) {
        let job = self.lock().job.take();
        drop(job);
        self.complete(epoch, command, stamp);
    }

    /// Runs the lane's work on a thread blocked on `epoch`. It does nothing if the lane is confined to
    /// a part of the workers, or if the thread has less stack than a worker.
    pub fn help(self: &Arc<Self>, epoch: u64) {
        if self.workers.count < self.thread_pool.width() || !has_usual_stack() {
            return;
        }
        let time_slice = TimeSlice::Until(epoch);
        let mut scratch = Scratch::default();
        if self.claim() {
            return self.run(&mut scratch, time_slice);
        }
        let job = self.lock().job.clone();
        if job.is_some_and(|job| job.join(&mut scratch, time_slice)) {
            self.run(&mut scratch, time_slice);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ItemQueue> {
        self.state.lock()
    }
}

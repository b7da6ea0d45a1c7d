//! The workers: threads that run ready lanes and shared jobs. A worker without work spins for a while,
//! then sleeps.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};

use super::completion::SPIN_NS;
use super::job::Job;
use super::lane::{LaneCore, TimeSlice};
use super::scratch::Scratch;
use super::workers::{Mask, WorkerRange};
use super::{Failure, now};
use ur::object::{Origin, stack_bytes};
use ur::sync::{Mutex, MutexGuard};

/// The workers' queue and state, shared with lanes and completions.
pub struct ThreadPool {
    width: usize,
    origin: Origin,
    /// Workers may spin before they sleep: there is more than one core.
    spins: bool,
    stopping: AtomicBool,
    ready: Mutex<Ready>,
    /// Entries in `ready`, readable without the lock.
    entries: AtomicUsize,
    /// Rises with each entry added.
    version: AtomicU64,
    spinning: Mask,
    spinners: AtomicUsize,
    asleep: Mask,
    threads: OnceLock<Vec<Thread>>,
}

#[derive(Default)]
struct Ready {
    lanes: VecDeque<Arc<LaneCore>>,
    jobs: VecDeque<Arc<Job>>,
}

enum Task {
    Lane(Arc<LaneCore>),
    Job(Arc<Job>),
}

/// Starts and ends the threads.
pub struct Executor {
    thread_pool: Arc<ThreadPool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Executor {
    /// Starts `width` workers.
    pub fn start(width: usize) -> Result<Self, Failure> {
        let thread_pool = Arc::new(ThreadPool {
            width,
            origin: Origin::here(),
            spins: thread::available_parallelism().is_ok_and(|cores| cores.get() > 1),
            stopping: AtomicBool::new(false),
            ready: Mutex::default(),
            entries: AtomicUsize::new(0),
            version: AtomicU64::new(0),
            spinning: Mask::new(width),
            spinners: AtomicUsize::new(0),
            asleep: Mask::new(width),
            threads: OnceLock::new(),
        });
        let executor = Self {
            thread_pool: Arc::clone(&thread_pool),
            threads: Mutex::new(Vec::with_capacity(width)),
        };
        for worker in 0..width {
            let scratch = Scratch::new().ok_or(Failure::Exhausted)?;
            let thread_pool = Arc::clone(&thread_pool);
            let name = format!("ur-cpu-{worker}");
            // After a failure, the executor's drop ends the threads started so far.
            let thread = spawn(&name, move || thread_pool.work(worker, scratch))
                .map_err(|_| Failure::Exhausted)?;
            executor.lock().push(thread);
        }
        let threads = executor
            .lock()
            .iter()
            .map(|one| one.thread().clone())
            .collect();
        // Workers that started earlier check the queue once more before they sleep.
        let _ = thread_pool.threads.set(threads);
        Ok(executor)
    }

    pub fn thread_pool(&self) -> &Arc<ThreadPool> {
        &self.thread_pool
    }

    /// Runs all ready work, then ends all threads but the calling one. Work that waits for an unsignalled
    /// point is abandoned.
    pub fn stop(&self) {
        if self.thread_pool.forked() {
            // The threads are the parent's.
            return;
        }
        self.thread_pool.stopping.store(true, Ordering::SeqCst);
        let threads = std::mem::take(&mut *self.lock());
        for thread in &threads {
            thread.thread().unpark();
        }
        let own = thread::current().id();
        for thread in threads {
            if thread.thread().id() != own {
                // A worker that panicked has said so already.
                let _ = thread.join();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock()
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ThreadPool {
    pub fn width(&self) -> usize {
        self.width
    }

    pub(super) fn spins(&self) -> bool {
        self.spins
    }

    /// Whether this process is a fork of the workers' own.
    pub fn forked(&self) -> bool {
        self.origin.is_forked()
    }

    /// An error if there are no workers any more.
    pub fn check(&self) -> Result<(), Failure> {
        if self.forked() || self.stopping.load(Ordering::Relaxed) {
            return Err(Failure::Lost);
        }
        Ok(())
    }

    /// Whether something waits for a worker.
    pub(super) fn has_work(&self) -> bool {
        self.entries.load(Ordering::Relaxed) > 0
    }

    pub(super) fn add_lane(&self, core: Arc<LaneCore>) {
        let workers = core.workers();
        self.add(workers, |ready| ready.lanes.push_back(core));
    }

    /// Offers a job to other workers; the caller runs it too.
    pub(super) fn add_job(&self, job: &Arc<Job>) {
        self.add(job.core.workers(), |ready| {
            ready.jobs.push_back(Arc::clone(job));
        });
    }

    fn add(&self, workers: WorkerRange, insert: impl FnOnce(&mut Ready)) {
        let mut ready = self.lock();
        insert(&mut ready);
        self.update_entries(&ready);
        self.version.fetch_add(1, Ordering::Release);
        drop(ready);
        self.call(workers);
    }

    /// Ensures that a worker of the range checks the queue.
    fn call(&self, workers: WorkerRange) {
        // With the orderings of `Mask`: a worker that stops spinning checks the queue once more.
        fence(Ordering::SeqCst);
        if self.spinning.intersects(workers) {
            return;
        }
        let Some(threads) = self.threads.get() else {
            return;
        };
        if let Some(worker) = self.asleep.remove_first(workers) {
            threads[worker].unpark();
        }
    }

    fn work(self: &Arc<Self>, worker: usize, mut scratch: Scratch) {
        let mut lanes_first = true;
        while let Some(task) = self.next(worker, lanes_first) {
            lanes_first = !lanes_first;
            let time_slice = TimeSlice::Since(now());
            match task {
                Task::Lane(core) => {
                    if core.claim() {
                        core.run(&mut scratch, time_slice);
                    }
                }
                Task::Job(job) => {
                    if job.join(&mut scratch, time_slice) {
                        job.core.run(&mut scratch, time_slice);
                    }
                }
            }
        }
    }

    /// Waits for something to do; `None` at the end.
    fn next(&self, worker: usize, lanes_first: bool) -> Option<Task> {
        loop {
            let seen = self.version.load(Ordering::Acquire);
            let stopping = self.stopping.load(Ordering::SeqCst);
            let found = self.dequeue(worker, lanes_first, stopping);
            if found.is_some() || stopping {
                return found;
            }
            if self.spin(worker, seen) {
                continue;
            }
            self.asleep.insert(worker);
            let found = self.dequeue(worker, lanes_first, false);
            if found.is_none()
                && !self.stopping.load(Ordering::SeqCst)
                && self.threads.get().is_some()
            {
                thread::park();
            }
            self.asleep.remove(worker);
            if found.is_some() {
                return found;
            }
        }
    }

    /// Spins on the queue's version for a while. True if an entry was added.
    fn spin(&self, worker: usize, seen: u64) -> bool {
        if !self.spins {
            return false;
        }
        let mut came = false;
        if self.spinners.fetch_add(1, Ordering::Relaxed) < self.width.div_ceil(2) {
            self.spinning.insert(worker);
            let until = now() + SPIN_NS;
            while !came && now() < until && !self.stopping.load(Ordering::Relaxed) {
                for _ in 0..16 {
                    std::hint::spin_loop();
                }
                came = self.version.load(Ordering::Acquire) != seen;
            }
            self.spinning.remove(worker);
        }
        self.spinners.fetch_sub(1, Ordering::Relaxed);
        came
    }

    /// A task for this worker. `anything`: also one of another range, whose workers may have ended.
    fn dequeue(&self, worker: usize, lanes_first: bool, anything: bool) -> Option<Task> {
        let mut ready = self.lock();
        ready.jobs.retain(|job| !job.is_exhausted());
        let mine = |workers: WorkerRange| anything || workers.contains(worker);
        let lane = |ready: &mut Ready| {
            let at = ready.lanes.iter().position(|core| mine(core.workers()))?;
            ready.lanes.remove(at).map(Task::Lane)
        };
        let job = |ready: &mut Ready| {
            // The job moves to the back, so that workers spread over the jobs.
            let at = ready.jobs.iter().position(|job| mine(job.core.workers()))?;
            let job = ready.jobs.remove(at)?;
            ready.jobs.push_back(Arc::clone(&job));
            Some(Task::Job(job))
        };
        let found = if lanes_first {
            lane(&mut ready).or_else(|| job(&mut ready))
        } else {
            job(&mut ready).or_else(|| lane(&mut ready))
        };
        self.update_entries(&ready);
        // A worker with a task calls the next worker if more entries are left.
        let more = found.is_some().then(|| ready.first_workers()).flatten();
        drop(ready);
        if let Some(workers) = more {
            self.call(workers);
        }
        found
    }

    fn update_entries(&self, ready: &Ready) {
        let entries = ready.lanes.len() + ready.jobs.len();
        self.entries.store(entries, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Ready> {
        self.ready.lock()
    }
}

impl Ready {
    fn first_workers(&self) -> Option<WorkerRange> {
        let lane = self.lanes.front().map(|core| core.workers());
        lane.or_else(|| self.jobs.front().map(|job| job.core.workers()))
    }
}

/// Starts a thread with a main thread's stack size. Signals are left to the program's own threads.
fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let previous = block_signals();
    let thread = thread::Builder::new()
        .name(name.to_owned())
        .stack_size(stack_bytes())
        .spawn(body);
    // SAFETY: `block_signals` filled `previous`, this thread's mask.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const previous, std::ptr::null_mut()) };
    thread
}

/// Blocks all signals but those that the thread's own instructions raise.
fn block_signals() -> libc::sigset_t {
    let mut previous = std::mem::MaybeUninit::zeroed();
    let mut set = std::mem::MaybeUninit::zeroed();
    // SAFETY: both sets are ours; `sigfillset` and `pthread_sigmask` fill them before they are read.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        for own in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGTRAP,
            libc::SIGPROF,
        ] {
            libc::sigdelset(set.as_mut_ptr(), own);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), previous.as_mut_ptr());
        previous.assume_init()
    }
}

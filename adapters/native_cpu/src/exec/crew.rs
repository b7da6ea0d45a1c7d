//! The workers: threads that take ready lanes and shared jobs, look for a while when there are
//! none, and then sleep.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};

use super::fence::SPIN_NS;
use super::job::Job;
use super::lane::{Track, Turn};
use super::mask::{Mask, Span};
use super::scratch::Scratch;
use super::{Failure, now};
use ur::object::{Origin, stack_bytes};
use ur::timeline::sync::{Mutex, MutexGuard};

/// What lanes and fences know of the workers.
pub struct Crew {
    width: usize,
    origin: Origin,
    /// Workers may look for work instead of sleeping: there is more than one core.
    spins: bool,
    stopping: AtomicBool,
    ready: Mutex<Ready>,
    /// Entries in `ready`, as far as a glance is enough.
    entries: AtomicUsize,
    /// Rises with each entry added.
    version: AtomicU64,
    looking: Mask,
    lookers: AtomicUsize,
    asleep: Mask,
    threads: OnceLock<Vec<Thread>>,
}

#[derive(Default)]
struct Ready {
    lanes: VecDeque<Arc<Track>>,
    jobs: VecDeque<Arc<Job>>,
}

enum Task {
    Lane(Arc<Track>),
    Job(Arc<Job>),
}

/// Starts and ends the threads.
pub struct Executor {
    crew: Arc<Crew>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Executor {
    /// Starts `width` workers.
    pub fn start(width: usize) -> Result<Self, Failure> {
        let crew = Arc::new(Crew {
            width,
            origin: Origin::here(),
            spins: thread::available_parallelism().is_ok_and(|cores| cores.get() > 1),
            stopping: AtomicBool::new(false),
            ready: Mutex::default(),
            entries: AtomicUsize::new(0),
            version: AtomicU64::new(0),
            looking: Mask::new(width),
            lookers: AtomicUsize::new(0),
            asleep: Mask::new(width),
            threads: OnceLock::new(),
        });
        let executor = Self {
            crew: Arc::clone(&crew),
            threads: Mutex::new(Vec::with_capacity(width)),
        };
        for worker in 0..width {
            let scratch = Scratch::new().ok_or(Failure::Exhausted)?;
            let crew = Arc::clone(&crew);
            let name = format!("ur-cpu-{worker}");
            // What was started before a failure ends as the executor is dropped.
            let thread =
                spawn(&name, move || crew.work(worker, scratch)).map_err(|_| Failure::Exhausted)?;
            executor.lock().push(thread);
        }
        let threads = executor
            .lock()
            .iter()
            .map(|one| one.thread().clone())
            .collect();
        // Workers that came here first found nothing and will look once more before they sleep.
        let _ = crew.threads.set(threads);
        Ok(executor)
    }

    pub fn crew(&self) -> &Arc<Crew> {
        &self.crew
    }

    /// Runs what can run, then ends all threads but the calling one. What waits for a point that
    /// nobody signals is abandoned.
    pub fn stop(&self) {
        if self.crew.forked() {
            // The threads are the parent's.
            return;
        }
        self.crew.stopping.store(true, Ordering::SeqCst);
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

impl Crew {
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

    pub(super) fn add_lane(&self, track: Arc<Track>) {
        let span = track.span();
        self.add(span, |ready| ready.lanes.push_back(track));
    }

    /// Offers a job to other workers; the caller runs it too.
    pub(super) fn add_job(&self, job: &Arc<Job>) {
        self.add(job.track.span(), |ready| {
            ready.jobs.push_back(Arc::clone(job));
        });
    }

    fn add(&self, span: Span, put: impl FnOnce(&mut Ready)) {
        let mut ready = self.lock();
        put(&mut ready);
        self.note(&ready);
        self.version.fetch_add(1, Ordering::Release);
        drop(ready);
        self.call(span);
    }

    /// Sees to it that a worker of the span comes to look at the queue.
    fn call(&self, span: Span) {
        // With the orderings of `Mask`: a worker that stops looking looks once more afterwards.
        fence(Ordering::SeqCst);
        if self.looking.intersects(span) {
            return;
        }
        let Some(threads) = self.threads.get() else {
            return;
        };
        if let Some(worker) = self.asleep.take_one(span) {
            threads[worker].unpark();
        }
    }

    fn work(self: &Arc<Self>, worker: usize, mut scratch: Scratch) {
        let mut lanes_first = true;
        while let Some(task) = self.next(worker, lanes_first) {
            lanes_first = !lanes_first;
            let turn = Turn::Since(now());
            match task {
                Task::Lane(track) => {
                    if track.claim() {
                        track.run(&mut scratch, turn);
                    }
                }
                Task::Job(job) => {
                    if job.join(&mut scratch, turn) {
                        job.track.run(&mut scratch, turn);
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
            let found = self.take(worker, lanes_first, stopping);
            if found.is_some() || stopping {
                return found;
            }
            if self.look(worker, seen) {
                continue;
            }
            self.asleep.insert(worker);
            let found = self.take(worker, lanes_first, false);
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

    /// Watches the queue for a while; true if something came.
    fn look(&self, worker: usize, seen: u64) -> bool {
        if !self.spins {
            return false;
        }
        let mut came = false;
        if self.lookers.fetch_add(1, Ordering::Relaxed) < self.width.div_ceil(2) {
            self.looking.insert(worker);
            let until = now() + SPIN_NS;
            while !came && now() < until && !self.stopping.load(Ordering::Relaxed) {
                for _ in 0..16 {
                    std::hint::spin_loop();
                }
                came = self.version.load(Ordering::Acquire) != seen;
            }
            self.looking.remove(worker);
        }
        self.lookers.fetch_sub(1, Ordering::Relaxed);
        came
    }

    /// Takes what the worker may run, or anything at the end, when others may have left.
    fn take(&self, worker: usize, lanes_first: bool, anything: bool) -> Option<Task> {
        let mut ready = self.lock();
        ready.jobs.retain(|job| !job.is_taken());
        let mine = |span: Span| anything || span.contains(worker);
        let lane = |ready: &mut Ready| {
            let at = ready.lanes.iter().position(|track| mine(track.span()))?;
            ready.lanes.remove(at).map(Task::Lane)
        };
        let job = |ready: &mut Ready| {
            // To the back, so that workers spread over the jobs.
            let at = ready.jobs.iter().position(|job| mine(job.track.span()))?;
            let job = ready.jobs.remove(at)?;
            ready.jobs.push_back(Arc::clone(&job));
            Some(Task::Job(job))
        };
        let found = if lanes_first {
            lane(&mut ready).or_else(|| job(&mut ready))
        } else {
            job(&mut ready).or_else(|| lane(&mut ready))
        };
        self.note(&ready);
        // Whoever takes something calls the next worker, if there is more.
        let more = found.is_some().then(|| ready.first_span()).flatten();
        drop(ready);
        if let Some(span) = more {
            self.call(span);
        }
        found
    }

    fn note(&self, ready: &Ready) {
        let entries = ready.lanes.len() + ready.jobs.len();
        self.entries.store(entries, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Ready> {
        self.ready.lock()
    }
}

impl Ready {
    fn first_span(&self) -> Option<Span> {
        let lane = self.lanes.front().map(|track| track.span());
        lane.or_else(|| self.jobs.front().map(|job| job.track.span()))
    }
}

/// Starts a thread that has the stack of a main thread, and leaves signals to the program's own threads.
fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let old = block_signals();
    let thread = thread::Builder::new()
        .name(name.to_owned())
        .stack_size(stack_bytes())
        .spawn(body);
    // SAFETY: the mask is the one that this thread had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, std::ptr::null_mut()) };
    thread
}

/// Blocks all signals that do not come from the thread's own doing.
fn block_signals() -> libc::sigset_t {
    let mut old = std::mem::MaybeUninit::zeroed();
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
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), old.as_mut_ptr());
        old.assume_init()
    }
}

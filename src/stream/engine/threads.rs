//! The engine's threads, which run user code.
//!
//! A job may block, so a job that finds no idle thread gets a new one. Threads end after
//! [`MAX_IDLE`], and all of them before [`Threads::shut_down`] returns.

use crate::abi::UR_RESULT_ERROR_OUT_OF_RESOURCES;
use crate::object::{Error, Result};
use crate::sync::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) type Job = Box<dyn FnOnce() + Send>;

const MAX_IDLE: Duration = Duration::from_secs(2);

#[derive(Default)]
struct ThreadsState {
    jobs: VecDeque<Job>,
    idle: usize,
    live: usize,
    /// Reserved jobs. While there are any, the last thread stays.
    reserved: usize,
    closed: bool,
    handles: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<ThreadsState>,
    wake: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, ThreadsState> {
        self.state.lock()
    }
}

#[derive(Clone, Default)]
pub(crate) struct Threads(Arc<Shared>);

impl Threads {
    /// Reserves a later [`Threads::push`], and starts a thread for it if there is none.
    pub fn reserve(&self) -> Result<()> {
        let mut state = self.0.lock();
        if state.live == 0 && (state.closed || !self.grow(&mut state)) {
            return Err(Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES));
        }
        state.reserved += 1;
        Ok(())
    }

    /// Queues a reserved job. After shut-down the job is dropped. Never blocks.
    pub fn push(&self, job: Job) {
        let mut state = self.0.lock();
        debug_assert!(state.reserved > 0, "a job without a reservation");
        state.reserved = state.reserved.saturating_sub(1);
        if state.closed && state.live == 0 {
            drop(state);
            return drop(job);
        }
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() {
            // If no thread can be started now, a thread kept by the reservation runs the job.
            self.grow(&mut state);
        }
        drop(state);
        self.0.wake.notify_one();
    }

    /// Waits for all queued jobs and ends all threads, except a calling one.
    pub fn shut_down(&self) {
        let handles = {
            let mut state = self.0.lock();
            state.closed = true;
            std::mem::take(&mut state.handles)
        };
        self.0.wake.notify_all();
        for handle in handles {
            if handle.thread().id() != std::thread::current().id() {
                // A job that panicked has ended too.
                let _ = handle.join();
            }
        }
    }

    #[cfg(test)]
    pub fn live(&self) -> usize {
        self.0.lock().live
    }

    fn grow(&self, state: &mut ThreadsState) -> bool {
        let shared = Arc::clone(&self.0);
        let spawned = std::thread::Builder::new()
            .name("ur-host".into())
            .stack_size(crate::object::stack_bytes())
            .spawn(move || run_jobs(&shared));
        let Ok(handle) = spawned else { return false };
        state.live += 1;
        state.handles.retain(|handle| !handle.is_finished());
        state.handles.push(handle);
        true
    }
}

/// Decrements the number of live threads, even if a job panics.
struct Live<'a>(&'a Shared);

impl Drop for Live<'_> {
    fn drop(&mut self) {
        self.0.lock().live -= 1;
    }
}

fn run_jobs(shared: &Shared) {
    let live = Live(shared);
    let mut state = shared.lock();
    loop {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            job();
            state = shared.lock();
            continue;
        }
        if state.closed {
            break;
        }
        state.idle += 1;
        let (again, timed_out) = shared.wake.wait_timeout(state, MAX_IDLE);
        state = again;
        state.idle -= 1;
        let last = state.live == 1 && state.reserved > 0;
        if timed_out && state.jobs.is_empty() && !last {
            break;
        }
    }
    // The lock is held since the decision, so that two last threads do not both end.
    state.live -= 1;
    drop(state);
    std::mem::forget(live);
}

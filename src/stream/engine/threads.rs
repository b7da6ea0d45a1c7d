//! The engine's own threads, on which user code runs.
//!
//! A job may block, so none waits for another: a job that finds no idle thread gets a new one.
//! Threads end after idling, and all of them before [`Threads::shut_down`] returns.

use crate::abi::UR_RESULT_ERROR_OUT_OF_RESOURCES;
use crate::object::{Error, Result};
use crate::timeline::sync::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) type Job = Box<dyn FnOnce() + Send>;

const IDLE: Duration = Duration::from_secs(2);

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    live: usize,
    /// Jobs that will be pushed later; while there are any, the last thread stays.
    promised: usize,
    closed: bool,
    handles: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[derive(Clone, Default)]
pub(crate) struct Threads(Arc<Shared>);

impl Threads {
    /// Promises a later [`Threads::push`] and makes sure that some thread will be there for it.
    pub fn promise(&self) -> Result<()> {
        let mut state = self.0.lock();
        if state.live == 0 && (state.closed || !self.grow(&mut state)) {
            return Err(Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES));
        }
        state.promised += 1;
        Ok(())
    }

    /// Gives a promised job to a thread. After the end it is dropped instead. Never blocks.
    pub fn push(&self, job: Job) {
        let mut state = self.0.lock();
        state.promised = state.promised.saturating_sub(1);
        if state.closed && state.live == 0 {
            drop(state);
            return drop(job);
        }
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() {
            // If no thread can be made now, one of those that the promise kept comes to it.
            self.grow(&mut state);
        }
        drop(state);
        self.0.wake.notify_one();
    }

    /// Waits for the jobs that were pushed and ends all threads, a calling one of them excepted.
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

    fn grow(&self, state: &mut State) -> bool {
        let shared = Arc::clone(&self.0);
        let made = std::thread::Builder::new()
            .name("ur-host".into())
            .stack_size(crate::object::stack_bytes())
            .spawn(move || work(&shared));
        let Ok(handle) = made else { return false };
        state.live += 1;
        state.handles.retain(|handle| !handle.is_finished());
        state.handles.push(handle);
        true
    }
}

/// Keeps the count of live threads right even if a job panics.
struct Live<'a>(&'a Shared);

impl Drop for Live<'_> {
    fn drop(&mut self) {
        self.0.lock().live -= 1;
    }
}

fn work(shared: &Shared) {
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
        let (again, timed_out) = shared.wake.wait_timeout(state, IDLE);
        state = again;
        state.idle -= 1;
        let last = state.live == 1 && state.promised > 0;
        if timed_out && state.jobs.is_empty() && !last {
            break;
        }
    }
    // Under the lock that the decision was made under, so that two last threads do not both go.
    state.live -= 1;
    drop(state);
    std::mem::forget(live);
}

//! The executor: worker threads that run commands of in-order lanes, and completions to wait for.
//!
//! Owns threads, lanes, completions, the splitting of commands over workers and the way a kernel's
//! function is called. Uses `std`, `libc`, the identity and clock of a lane from `ur::timeline`,
//! the host's clock, and `ur::stream` for pitched regions and to move bytes. Must never know an object of Unified Runtime, an event, a pool or
//! an error code.
//!
//! | a lane is | which means | it leaves by |
//! |---|---|---|
//! | idle | nothing queued; the submitting thread may do the work instead | [`Lane::submit`] -> ready |
//! | ready | in the thread pool's queue | a worker, or a thread blocked on it, claims it -> running |
//! | running | one thread at a time, or the job made of its command, owns it | its queue is empty -> idle; its head waits for a completion -> waiting; its time slice is over -> ready |
//! | waiting | registered with the completion that its head waits for | the completion is raised -> ready |
//!
//! A command's epoch is raised after its last byte is written and the command is dropped. Only
//! [`Marker::block`] blocks a thread: a worker that meets an unreached completion registers the lane
//! with it. No lock is held while another is taken, and none while foreign code runs.

mod command;
mod completion;
mod job;
mod kernel;
mod lane;
mod scratch;
#[cfg(test)]
mod tests;
mod thread_pool;
mod workers;

pub use command::Command;
pub use completion::{Completion, Marker, Signal};
#[cfg(test)]
pub use kernel::WorkItemState;
pub use kernel::{Args, Form, Function, Launch, NdRange};
pub use lane::Lane;
pub use scratch::LOCAL_BYTES;
pub use thread_pool::{Executor, ThreadPool};
pub use ur::object::host_time as now;
pub use workers::WorkerRange;

/// Why the executor could not do as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The executor's threads are gone: it was stopped, or this process is a fork of the one they run in.
    Lost,
    /// The system gave no thread or no memory for the executor.
    Exhausted,
}

/// Records when a command starts and ends, in nanoseconds of [`now`].
pub trait Stamp: Send + Sync {
    fn started(&self, at: u64);
    fn ended(&self, at: u64);
}

//! Native work: commands that tests submit to a backend itself. Each backend has one provider.

mod cuda;
mod level_zero;
mod opencl;

use std::ffi::c_void;
use ur::abi::*;

/// A fill that the backend itself runs as a command.
#[derive(Clone, Copy)]
pub struct Fill<'a> {
    /// The backend's queue, and its context.
    pub queue: ur_native_handle_t,
    pub context: ur_native_handle_t,
    /// Address of USM.
    pub memory: *mut c_void,
    pub byte: u8,
    pub bytes: usize,
    /// The backend's events that it waits for.
    pub waits: &'a [ur_native_handle_t],
    /// Blocks the command until the test releases it.
    ///
    /// For backends whose queues wait for memory this is a word of host USM. It is 0, used by nothing else,
    /// and outlives the command.
    pub held: Option<*mut u32>,
}

/// A fill that the backend itself records.
#[derive(Clone, Copy)]
pub struct Recorded {
    /// The backend's recording, and its context.
    pub recording: ur_native_handle_t,
    pub context: ur_native_handle_t,
    pub memory: *mut c_void,
    pub byte: u8,
    pub bytes: usize,
}

/// An enqueued command of the backend. Dropping it releases and forgets the command.
pub trait Command {
    /// Releases a blocked command.
    fn release(&mut self);
    /// The backend's event of the command, without a reference for the caller.
    fn event(&self) -> ur_native_handle_t;
}

/// An event of the backend that is neither complete nor failed. Dropping it completes the event.
pub trait Pending {
    /// The backend's event, without a reference for the caller.
    fn event(&self) -> ur_native_handle_t;
    fn fail(self: Box<Self>);
}

/// A capture of the backend's queue, begun by the test. Dropping it ends the capture.
pub trait Capture {
    /// Whether no call has made the capture useless.
    fn is_valid(&self) -> Result<bool, String>;
    fn end(self: Box<Self>) -> Result<Box<dyn Captured>, String>;
}

/// Captured commands.
pub trait Captured {
    /// Runs them once on the queue that was captured, and waits.
    fn run(&self) -> Result<(), String>;
}

pub trait NativeWork: Sync {
    /// Begins a capture of the backend's queue, by which its commands are recorded and do not run. None on
    /// backends without captures.
    fn capture(&self, queue: ur_native_handle_t) -> Option<Result<Box<dyn Capture>, String>> {
        let _ = queue;
        None
    }

    /// An event that can be made to fail, in the context of the backend's queue.
    fn pending(&self, queue: ur_native_handle_t) -> Result<Box<dyn Pending>, String> {
        let _ = queue;
        Err("nothing can be made to fail here".to_owned())
    }

    fn fill(&self, fill: &Fill) -> Result<Box<dyn Command + Send>, String>;

    /// Copies USM to memory unknown to the backend and returns when the copy is complete.
    ///
    /// The call uses the calling thread's state as it is. Returns `None` on backends without thread state.
    fn copy(
        &self,
        queue: ur_native_handle_t,
        to: &mut [u8],
        from: *const c_void,
    ) -> Option<Result<(), String>> {
        let _ = (queue, to, from);
        None
    }

    /// Whether the backend's events know their queue.
    fn events_know_queues(&self) -> bool {
        false
    }

    /// Records a fill of USM into the backend's own recording, without dependencies.
    fn record(&self, what: &Recorded) -> Result<(), String> {
        let _ = what;
        Err("the backend's own recordings are unknown here".to_owned())
    }
}

/// The provider for a backend, if there is one.
pub fn provider(backend: ur_backend_t) -> Option<&'static dyn NativeWork> {
    match backend {
        UR_BACKEND_CUDA => Some(&cuda::Cuda),
        UR_BACKEND_OPENCL => Some(&opencl::OpenCl),
        UR_BACKEND_LEVEL_ZERO => Some(&level_zero::LevelZero),
        _ => None,
    }
}

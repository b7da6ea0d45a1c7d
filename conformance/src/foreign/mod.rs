//! Work that tests put on a backend's own queue, past the interface: one provider a backend.

mod cuda;
mod opencl;

use std::ffi::c_void;
use ur::abi::*;

/// Bytes that the backend itself is to set, as a command of its own.
#[derive(Clone, Copy)]
pub struct Fill<'a> {
    /// The backend's queue.
    pub queue: ur_native_handle_t,
    /// USM.
    pub memory: *mut c_void,
    pub byte: u8,
    pub bytes: usize,
    /// The backend's events that it waits for.
    pub waits: &'a [ur_native_handle_t],
    /// Whether it stays where it is until the test lets it go. For backends whose queues wait for memory
    /// it is a word of host USM, 0 and nobody else's, which outlives the command.
    pub held: Option<*mut u32>,
}

/// Bytes that the backend itself is to set, as a command of a recording.
#[derive(Clone, Copy)]
pub struct Recorded {
    /// The backend's recording, and its context.
    pub recording: ur_native_handle_t,
    pub context: ur_native_handle_t,
    pub memory: *mut c_void,
    pub byte: u8,
    pub bytes: usize,
}

/// A command of the backend's that was enqueued. Dropping it lets it go and forgets it.
pub trait Command {
    /// Lets a held one run.
    fn let_go(&mut self);
    /// The backend's event of it; the caller gets no reference.
    fn event(&self) -> ur_native_handle_t;
}

/// An event of the backend's that is neither complete nor failed. Dropping it completes it.
pub trait Pending {
    /// The backend's event; the caller gets no reference.
    fn event(&self) -> ur_native_handle_t;
    fn fail(self: Box<Self>);
}

pub trait Foreign: Sync {
    /// An event that can be made to fail, in the context of the backend's queue.
    fn pending(&self, queue: ur_native_handle_t) -> Result<Box<dyn Pending>, String> {
        let _ = queue;
        Err("nothing can be made to fail here".to_owned())
    }

    fn fill(&self, fill: &Fill) -> Result<Box<dyn Command + Send>, String>;

    /// Copies USM to memory that the backend knows nothing of, and is done when it returns. It takes the
    /// calling thread as it is. None where nothing about a thread has to be made ready for that.
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

    /// Has the backend's own recording set bytes of USM, behind nothing that is in it.
    fn record(&self, what: &Recorded) -> Result<(), String> {
        let _ = what;
        Err("the backend's own recordings are unknown here".to_owned())
    }
}

/// The provider for a backend, if there is one.
pub fn provider(backend: ur_backend_t) -> Option<&'static dyn Foreign> {
    match backend {
        UR_BACKEND_CUDA => Some(&cuda::Cuda),
        UR_BACKEND_OPENCL => Some(&opencl::OpenCl),
        _ => None,
    }
}

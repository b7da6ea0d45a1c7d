//! Captures of streams by foreign code, and the calls that must leave them alone.
//!
//! While a thread captures a stream in the global mode, the default, most queries of any thread fail and end
//! the capture. A thread in the relaxed mode may query, except for the captured stream itself.

use std::cell::Cell;
use std::marker::PhantomData;

use cudarc::driver::sys::{CUcontext, CUstream};

use super::{Api, Code, on_stream};

/// `CU_STREAM_CAPTURE_MODE_RELAXED`
pub const RELAXED: i32 = 2;

/// Whether a capture can take the stream: it is none of the names of the legacy default stream.
pub fn is_capturable(stream: CUstream) -> bool {
    stream.addr() > 1
}

/// Whether a stream of the context is captured. False if the driver has no captures.
pub fn is_captured(api: &Api, context: CUcontext, stream: CUstream) -> bool {
    let status = Cell::new(0);
    let query = api.cuStreamIsCapturing.filter(|_| is_capturable(stream));
    query.is_some_and(|query| {
        let code = on_stream(api, context, stream, || {
            // SAFETY: the stream is alive, and `status` has room.
            unsafe { query(stream, status.as_ptr()) }
        });
        code.is_success() && status.get() != 0
    })
}

thread_local! {
    /// Whether the thread is in the relaxed mode by one of its [`RelaxedCapture`]s.
    static IS_RELAXED: Cell<bool> = const { Cell::new(false) };
}

/// Puts the thread into the relaxed mode until dropped: its queries leave captures of other streams alone. Within
/// another one of the thread it does nothing.
pub struct RelaxedCapture<'a> {
    api: &'a Api,
    /// The thread's mode before, if it was changed here.
    before: Option<i32>,
    /// Not `Send`: each thread has its own mode.
    _thread: PhantomData<*const ()>,
}

impl<'a> RelaxedCapture<'a> {
    pub fn new(api: &'a Api) -> Self {
        let before = match IS_RELAXED.get() {
            true => None,
            false => exchange(api, RELAXED),
        };
        if before.is_some() {
            IS_RELAXED.set(true);
        }
        Self {
            api,
            before,
            _thread: PhantomData,
        }
    }

    /// Whether this stream of the context is captured, so that no query of it is allowed. False if the driver
    /// has no captures.
    pub fn is_captured(&self, context: CUcontext, stream: CUstream) -> bool {
        let status = Cell::new(0);
        self.api.cuStreamIsCapturing.is_some_and(|query| {
            let code = on_stream(self.api, context, stream, || {
                // SAFETY: the stream is alive, and `status` has room.
                unsafe { query(stream, status.as_ptr()) }
            });
            !code.is_success() || status.get() != 0
        })
    }
}

impl Drop for RelaxedCapture<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            IS_RELAXED.set(false);
            exchange(self.api, before);
        }
    }
}

/// Sets the thread's mode. Returns the one before, none if the driver has no modes.
fn exchange(api: &Api, mode: i32) -> Option<i32> {
    let mut mode = mode;
    // SAFETY: `mode` is a valid mode, and has room for the one before.
    let code = api
        .cuThreadExchangeStreamCaptureMode
        .map(|exchange| unsafe { exchange(&mut mode) });
    (code == Some(Code::SUCCESS)).then_some(mode)
}

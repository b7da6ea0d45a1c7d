//! Queries of the driver while foreign code may capture a stream.
//!
//! While any thread captures a stream in the global mode, which is the usual one, most queries are
//! forbidden on every thread and end that capture. The relaxed mode of the querying thread allows them. A
//! query of the captured stream itself stays forbidden.

use std::cell::Cell;
use std::marker::PhantomData;

use cudarc::driver::sys::{CUcontext, CUstream};

use super::{Api, Code, on_stream};

/// `CU_STREAM_CAPTURE_MODE_RELAXED`
const RELAXED: i32 = 2;

/// While this lives, this thread's queries do not disturb captures of other streams.
pub struct Asking<'a> {
    api: &'a Api,
    /// The thread's mode before, if it was changed.
    before: Option<i32>,
    /// The mode belongs to the thread.
    _thread: PhantomData<*const ()>,
}

impl<'a> Asking<'a> {
    pub fn new(api: &'a Api) -> Self {
        Self {
            api,
            before: exchange(api, RELAXED),
            _thread: PhantomData,
        }
    }

    /// Whether this stream itself is captured, so that it must not be queried. False with a driver that has
    /// no captures.
    pub fn is_captured(&self, context: CUcontext, stream: CUstream) -> bool {
        let status = Cell::new(0);
        self.api.cuStreamIsCapturing.is_some_and(|query| {
            let code = on_stream(self.api, context, stream, || {
                // SAFETY: the caller passes a live stream, and the status is writable.
                unsafe { query(stream, status.as_ptr()) }
            });
            !code.is_success() || status.get() != 0
        })
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            exchange(self.api, before);
        }
    }
}

/// Sets the thread's mode. Returns the mode before.
fn exchange(api: &Api, mode: i32) -> Option<i32> {
    let mut mode = mode;
    // SAFETY: the driver exchanges the valid mode in `mode`.
    let code = api
        .cuThreadExchangeStreamCaptureMode
        .map(|exchange| unsafe { exchange(&mut mode) });
    (code == Some(Code::SUCCESS)).then_some(mode)
}

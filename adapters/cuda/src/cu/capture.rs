//! What we ask of the driver beside what a caller asked for, while somebody may capture a stream.
//!
//! Most questions are forbidden to a thread while any thread captures a stream in the global mode, which
//! is the usual one, and they end that capture. The thread may say beforehand that it knows; what is
//! asked of the captured stream itself is forbidden even then.

use std::cell::Cell;
use std::marker::PhantomData;

use cudarc::driver::sys::{CUcontext, CUstream};

use super::{Api, Code, on_stream};

/// `CU_STREAM_CAPTURE_MODE_RELAXED`
const RELAXED: i32 = 2;

/// Captures of other streams do not mind this thread's questions as long as this lives.
pub struct Asking<'a> {
    api: &'a Api,
    /// The thread's mode before, if it was changed.
    before: Option<i32>,
    /// The mode is a thread's.
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

    /// Whether the stream of this context itself is captured, so that nothing may be asked of it. A driver
    /// that knows of no captures has none.
    pub fn is_captured(&self, context: CUcontext, stream: CUstream) -> bool {
        let status = Cell::new(0);
        self.api.cuStreamIsCapturing.is_some_and(|query| {
            let code = on_stream(self.api, context, stream, || {
                // SAFETY: a live stream, and room for a word.
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

/// Puts another mode in place: the one before.
fn exchange(api: &Api, mode: i32) -> Option<i32> {
    let mut mode = mode;
    // SAFETY: a word with a mode, for which another is given.
    let code = api
        .cuThreadExchangeStreamCaptureMode
        .map(|exchange| unsafe { exchange(&mut mode) });
    (code == Some(Code::SUCCESS)).then_some(mode)
}

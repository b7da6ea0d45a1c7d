//! Streams: opened by us, or the user's own.

use std::ptr::null_mut;
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Result};
use ur::stream::{Stamps, Work};

use super::gpu::{Event, Gpu};
use super::marker::Marker;
use super::times;
use super::work;
use crate::Cuda;
use crate::cu::sys::CUstream;

/// An in-order stream.
pub struct Lane {
    gpu: Arc<Gpu>,
    stream: CUstream,
    /// Whether it ends with the lane.
    own: bool,
}

// SAFETY: the driver's objects may be used from any thread.
unsafe impl Send for Lane {}
// SAFETY: as above.
unsafe impl Sync for Lane {}

/// `CU_STREAM_NON_BLOCKING`: does not wait for the default stream, nor that for it.
const NON_BLOCKING: u32 = 1;

/// `CU_STREAM_WAIT_VALUE_GEQ`
const AT_LEAST: u32 = 0;

impl Lane {
    pub fn open(gpu: &Arc<Gpu>, flags: ur_queue_flags_t) -> Result<Self> {
        let _current = gpu.enter()?;
        if flags.contains(UR_QUEUE_FLAG_USE_DEFAULT_STREAM) {
            return Ok(Self::adopt(gpu, null_mut(), false));
        }
        let blocking = flags.contains(UR_QUEUE_FLAG_SYNC_WITH_DEFAULT_STREAM);
        let (mut lowest, mut highest) = (0, 0);
        // SAFETY: room for both.
        let code = unsafe { (gpu.api.cuCtxGetStreamPriorityRange)(&mut lowest, &mut highest) };
        gpu.check(code, "cuCtxGetStreamPriorityRange")?;
        let priority = match (
            flags.contains(UR_QUEUE_FLAG_PRIORITY_HIGH),
            flags.contains(UR_QUEUE_FLAG_PRIORITY_LOW),
        ) {
            (true, _) => highest,
            (_, true) => lowest,
            _ => 0,
        };
        let kind = if blocking { 0 } else { NON_BLOCKING };
        let mut stream = null_mut();
        // SAFETY: room for one handle.
        let code = unsafe { (gpu.api.cuStreamCreateWithPriority)(&mut stream, kind, priority) };
        gpu.check(code, "cuStreamCreateWithPriority")?;
        Ok(Self::adopt(gpu, stream, true))
    }

    /// A stream that others made; `own` if it is to end with the lane.
    pub fn adopt(gpu: &Arc<Gpu>, stream: CUstream, own: bool) -> Self {
        Self {
            gpu: Arc::clone(gpu),
            stream,
            own,
        }
    }

    pub fn stream(&self) -> CUstream {
        self.stream
    }

    pub fn submit(&self, work: Work<Cuda>, stamps: Option<Arc<Stamps>>) -> Result<()> {
        let _current = self.gpu.enter()?;
        let Some(stamps) = stamps else {
            return work::give(&self.gpu, self.stream, work);
        };
        self.gpu.sync_clock()?;
        let [start, end] = [self.gpu.event(true)?, self.gpu.event(true)?];
        start.record(self.stream)?;
        work::give(&self.gpu, self.stream, work)?;
        end.record(self.stream)?;
        times::fill(&stamps, &self.gpu, start, end);
        Ok(())
    }

    /// A marker of everything submitted so far.
    pub fn mark(&self) -> Result<Marker> {
        let _current = self.gpu.enter()?;
        let event: Event = self.gpu.event(false)?;
        event.record(self.stream)?;
        Ok(Marker::Event(Arc::new(event)))
    }

    /// Later commands wait for the marker.
    pub fn wait(&self, marker: &Marker) -> Result<()> {
        let _current = self.gpu.enter()?;
        let api = self.gpu.api;
        match marker {
            Marker::Event(event) => {
                // SAFETY: a live stream and event.
                let code = unsafe { (api.cuStreamWaitEvent)(self.stream, event.raw(), 0) };
                self.gpu.check(code, "cuStreamWaitEvent")
            }
            Marker::Host(point) if point.is_signalled() => Ok(()),
            Marker::Host(point) => {
                let wait = api.cuStreamWaitValue32.ok_or(Error::unsupported())?;
                let word = point.word;
                // SAFETY: a live stream; the word stays as long as the context.
                let code = unsafe { wait(self.stream, word.addr as u64, word.value, AT_LEAST) };
                self.gpu.check(code, "cuStreamWaitValue32")
            }
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if self.own
            && let Ok(_current) = self.gpu.enter()
        {
            // SAFETY: our stream, to which nobody gives anything any more.
            unsafe { (self.gpu.api.cuStreamDestroy)(self.stream) };
        }
    }
}

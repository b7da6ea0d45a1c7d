//! Streams: opened by us, or the user's own.
//!
//! What waits for the host is kept back by the host (`ur::stream::deferred`), since the driver puts
//! streams on few channels, and one that waits stops all on its channel; and while any does, calls that
//! wait for the device, such as freeing memory, do not return.

mod plain;

use std::ptr::null_mut;
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Result};
use ur::stream::{Deferred, HostPoint, Timestamps, Work};

use super::fill;
use super::gpu::{Event, Gpu};
use super::marker::{Marker, Point};
use super::posts::{Post, Posts};
use super::times;
use super::work;
use crate::Cuda;
use crate::cu::sys::{CUcontext, CUstream};
use crate::cu::{Api, Asking, Code, on_stream};
use crate::kernel::{Kernel, Ready};

/// An in-order stream, with what nearly every command needs of it in place.
pub struct Lane {
    api: &'static Api,
    context: CUcontext,
    raw: CUstream,
    stream: Arc<Stream>,
}

// SAFETY: the driver's objects may be used from any thread.
unsafe impl Send for Lane {}
// SAFETY: as above.
unsafe impl Sync for Lane {}

pub struct Stream {
    gpu: Arc<Gpu>,
    raw: CUstream,
    /// Whether it ends with the lane.
    own: bool,
    deferred: Deferred<Self>,
    /// Whether all that its work comes after is given through us, and by itself.
    alone: bool,
    /// Whether each command depends on the one before: it is an in-order queue's.
    chained: bool,
    posts: Posts,
}

// SAFETY: the driver's objects may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

/// `CU_STREAM_NON_BLOCKING`: does not wait for the default stream, nor that for it.
const NON_BLOCKING: u32 = 1;

/// `CU_STREAM_WAIT_VALUE_GEQ`
const AT_LEAST: u32 = 0;

impl Lane {
    pub fn open(gpu: &Arc<Gpu>, flags: ur_queue_flags_t) -> Result<Self> {
        let _current = gpu.enter()?;
        let chained = !flags.contains(UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE);
        if flags.contains(UR_QUEUE_FLAG_USE_DEFAULT_STREAM) {
            return Ok(Self::new(gpu, null_mut(), (false, false), chained));
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
        Ok(Self::new(gpu, stream, (true, !blocking), chained))
    }

    /// A stream that others made; `own` if it is to end with the lane.
    pub fn adopt(gpu: &Arc<Gpu>, raw: CUstream, own: bool) -> Self {
        Self::new(gpu, raw, (own, false), true)
    }

    fn new(gpu: &Arc<Gpu>, raw: CUstream, (own, alone): (bool, bool), chained: bool) -> Self {
        Self {
            api: gpu.api,
            context: gpu.context(),
            raw,
            stream: Arc::new(Stream {
                gpu: Arc::clone(gpu),
                raw,
                own,
                deferred: Deferred::default(),
                alone,
                chained,
                posts: Posts::default(),
            }),
        }
    }

    pub fn stream(&self) -> CUstream {
        self.raw
    }

    pub fn submit(&self, work: Work<Cuda>, stamps: Option<Arc<Timestamps>>) -> Result<()> {
        if stamps.is_none() && !self.stream.keeps() {
            return self.stream.give(work, None);
        }
        self.submit_slowly(work, stamps)
    }

    /// As [`Lane::submit`], where work is kept back or its times are wanted.
    #[inline(never)]
    fn submit_slowly(&self, work: Work<Cuda>, stamps: Option<Arc<Timestamps>>) -> Result<()> {
        if !self.stream.keeps() {
            return self.stream.give(work, stamps);
        }
        let now = |(work, stamps)| self.stream.give(work, stamps);
        self.stream.deferred.submit((work, stamps), now, Ok)
    }

    /// As [`Lane::launch_plain`], of a launch that was checked in full.
    pub fn launch(
        &self,
        kernel: &Kernel,
        ready: &Ready,
        stamps: Option<Arc<Timestamps>>,
    ) -> Result<()> {
        if stamps.is_none() && !self.stream.keeps() {
            let gpu = &self.stream.gpu;
            let _current = gpu.enter()?;
            return ready.enqueue(kernel.code_of(ready), gpu, self.raw);
        }
        self.launch_slowly(kernel, ready, stamps)
    }

    #[inline(never)]
    fn launch_slowly(
        &self,
        kernel: &Kernel,
        ready: &Ready,
        stamps: Option<Arc<Timestamps>>,
    ) -> Result<()> {
        let stream = &self.stream;
        let now = |stamps| {
            let code = kernel.code_of(ready);
            stream.give_with(stamps, |gpu, raw| ready.enqueue(code, gpu, raw))
        };
        let later = |stamps| {
            let kept = Work::Launch(Arc::new(kernel.keep(ready.clone())));
            Ok((kept, stamps))
        };
        stream.deferred.submit(stamps, now, later)
    }

    /// Has the stream do something now that answers with a value. Where the lane keeps its work back,
    /// `aside` does it instead, a stream on which nothing waits, and what follows waits for that.
    pub fn ask<R>(
        &self,
        aside: impl FnOnce() -> Result<CUstream>,
        give: impl FnOnce(CUstream) -> Result<R>,
        undo: impl FnOnce(R, CUstream),
    ) -> Result<R> {
        let _current = self.stream.gpu.enter()?;
        let mut give = Some(give);
        let now = self.stream.deferred.with_state(|keeps| {
            let give = give.take_if(|_| !keeps)?;
            self.stream.posts.pass();
            Some(give(self.raw))
        });
        if let Some(answer) = now {
            return answer;
        }
        let give = give.ok_or(Error::unsupported())?;
        let aside = aside()?;
        let answer = give(aside)?;
        let wait = || {
            let event = self.stream.gpu.event(false)?;
            event.record(aside)?;
            self.wait(&Marker::Event(Arc::new(event)))
        };
        match wait() {
            Ok(()) => Ok(answer),
            Err(error) => {
                undo(answer, aside);
                Err(error)
            }
        }
    }

    /// Whether everything submitted so far has completed.
    pub fn is_idle(&self) -> Result<bool> {
        let stream = &self.stream;
        if stream.keeps() {
            return Ok(false);
        }
        let gpu = &stream.gpu;
        let _asking = Asking::new(gpu.api);
        let code = on_stream(gpu.api, gpu.context(), stream.raw, || {
            // SAFETY: a live stream.
            unsafe { (gpu.api.cuStreamQuery)(stream.raw) }
        });
        match code == Code::NOT_READY {
            true => Ok(false),
            false => gpu.check(code, "cuStreamQuery").map(|()| true),
        }
    }

    /// Whether a marker of this stream's has been reached, as far as that may be asked now.
    pub fn is_seen_done(&self, marker: &Marker) -> Result<bool> {
        let asking = Asking::new(self.api);
        match asking.is_captured(self.context, self.raw) {
            true => Ok(false),
            false => marker.is_done(),
        }
    }

    /// A marker of everything submitted so far.
    pub fn mark(&self) -> Result<Marker> {
        Deferred::mark(&self.stream)
    }

    /// Later commands wait for the marker.
    pub fn wait(&self, marker: &Marker) -> Result<()> {
        Deferred::wait(&self.stream, marker)
    }

    /// Others put work on the stream from now on, or no longer.
    pub fn set_open(&self, open: bool) -> Result<()> {
        self.stream.posts.pass();
        Deferred::set_open(&self.stream, open)
    }

    /// The failure that the stream's markers tell of was recorded. Whether there was any.
    pub fn recover(&self) -> bool {
        self.stream.deferred.recover()
    }
}

impl Stream {
    #[inline]
    fn keeps(&self) -> bool {
        self.deferred.is_deferring()
    }

    fn fill(&self, epoch: u64, dst: usize, pattern: &[u8], bytes: usize) -> Result<()> {
        let (gpu, raw) = (&self.gpu, self.raw);
        let alone = || {
            let _current = gpu.enter()?;
            fill::linear(gpu, raw, dst, pattern, bytes)
        };
        match Post::of(dst, pattern, bytes) {
            Some(post) if self.alone && !self.deferred.is_open() => {
                self.posts.fill(gpu, (raw, epoch), post, alone)
            }
            _ => {
                self.posts.pass();
                alone()
            }
        }
    }

    /// Gives work to the stream.
    fn give(&self, work: Work<Cuda>, stamps: Option<Arc<Timestamps>>) -> Result<()> {
        self.give_with(stamps, |gpu, stream| work::give(gpu, stream, work))
    }

    /// Has `give` do so, between two events if the times are wanted. The context is current for it.
    #[inline]
    fn give_with(
        &self,
        stamps: Option<Arc<Timestamps>>,
        give: impl FnOnce(&Gpu, CUstream) -> Result<()>,
    ) -> Result<()> {
        self.posts.pass();
        let gpu = &self.gpu;
        let _current = gpu.enter()?;
        let Some(stamps) = stamps else {
            return give(gpu, self.raw);
        };
        gpu.sync_clock()?;
        let [start, end] = [gpu.event(true)?, gpu.event(true)?];
        start.record(self.raw)?;
        give(gpu, self.raw)?;
        end.record(self.raw)?;
        times::fill(&stamps, gpu, start, end);
        Ok(())
    }
}

impl ur::stream::Stream for Stream {
    type Work = (Work<Cuda>, Option<Arc<Timestamps>>);
    type Event = Arc<Event>;
    type Point = Point;

    fn deferred(&self) -> &Deferred<Self> {
        &self.deferred
    }

    fn is_chained(&self) -> bool {
        self.chained
    }

    fn submit(&self, (work, stamps): Self::Work) -> Result<()> {
        Stream::give(self, work, stamps)
    }

    fn record(&self) -> Result<Arc<Event>> {
        // It covers nothing that comes later.
        self.posts.pass();
        let event = self.gpu.event(false)?;
        event.record(self.raw)?;
        Ok(Arc::new(event))
    }

    fn wait(&self, event: &Arc<Event>) -> Result<()> {
        self.posts.pass();
        let gpu = &self.gpu;
        let code = on_stream(gpu.api, gpu.context(), self.raw, || {
            // SAFETY: a live stream and event.
            unsafe { (gpu.api.cuStreamWaitEvent)(self.raw, event.raw(), 0) }
        });
        gpu.check(code, "cuStreamWaitEvent")
    }

    fn wait_point(&self, point: &Arc<HostPoint<Self>>) -> Result<()> {
        self.posts.pass();
        let wait = self.gpu.api.cuStreamWaitValue32;
        let wait = wait.ok_or(Error::unsupported())?;
        let word = point.point.word;
        let _current = self.gpu.enter()?;
        // SAFETY: a live stream; the word stays as long as the context.
        let code = unsafe { wait(self.raw, word.addr as u64, word.value, AT_LEAST) };
        self.gpu.check(code, "cuStreamWaitValue32")
    }

    fn signal(point: &Point) {
        // SAFETY: the words are those of the context that the point holds.
        unsafe { point.word.signal() };
    }

    fn is_done(event: &Arc<Event>) -> Result<bool> {
        event.is_done()
    }

    fn block(event: &Arc<Event>) -> Result<()> {
        event.block()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.posts.end(&self.gpu);
        if self.own
            && let Ok(_current) = self.gpu.enter()
        {
            // SAFETY: our stream, to which nobody gives anything any more.
            unsafe { (self.gpu.api.cuStreamDestroy)(self.raw) };
        }
    }
}

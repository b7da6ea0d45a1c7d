//! Streams: opened by us, or the user's own.
//!
//! Work that waits for the host is deferred by the host (`ur::stream::deferred`). The driver maps streams to
//! few channels, and a waiting stream stops all others on its channel. While one waits, calls that wait
//! for the device, such as freeing memory, do not return.

mod submit;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Result};
use ur::stream::{Deferred, HostFunction, HostPoint, Timestamps, Work};

use super::fill;
use super::gpu::{Event, Gpu};
use super::graph;
use super::mailbox::{self, MailboxFills, SmallFill};
use super::marker::{Marker, Point};
use super::times;
use super::work;
use crate::Cuda;
use crate::vendor::{
    Api, Code, RELAXED, RawContext, RawStream, RelaxedCapture, is_capturable, is_captured,
    on_stream,
};

/// An in-order stream. The fields that nearly every command reads are copies.
pub struct Lane {
    api: &'static Api,
    context: RawContext,
    raw: RawStream,
    stream: Arc<Stream>,
}

// SAFETY: the driver's objects may be used from any thread.
unsafe impl Send for Lane {}
// SAFETY: the driver's objects may be used from any thread.
unsafe impl Sync for Lane {}

pub struct Stream {
    gpu: Arc<Gpu>,
    raw: RawStream,
    /// Whether the lane owns the stream and destroys it.
    own: bool,
    deferred: Deferred<Self>,
    /// Whether only this adapter submits to the stream, and it does not wait for the default stream.
    alone: bool,
    /// Whether each command depends on the one before: it is an in-order queue's.
    chained: bool,
    mailbox_fills: MailboxFills,
}

// SAFETY: the driver's objects may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: the driver's objects may be used from any thread.
unsafe impl Sync for Stream {}

/// `CU_STREAM_NON_BLOCKING`: does not wait for the default stream, nor that for it.
const NON_BLOCKING: u32 = 1;

/// `CU_STREAM_WAIT_VALUE_GEQ`
const AT_LEAST: u32 = 0;

impl Lane {
    pub fn open(gpu: &Arc<Gpu>, flags: ur_queue_flags_t) -> Result<Self> {
        let _current = gpu.enter()?;
        let _relaxed = RelaxedCapture::new(gpu.api);
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

    /// A foreign stream; `own` if the lane destroys it.
    pub fn adopt(gpu: &Arc<Gpu>, raw: RawStream, own: bool) -> Self {
        Self::new(gpu, raw, (own, false), true)
    }

    fn new(gpu: &Arc<Gpu>, raw: RawStream, (own, alone): (bool, bool), chained: bool) -> Self {
        gpu.begin_lane(raw);
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
                mailbox_fills: MailboxFills::default(),
            }),
        }
    }

    pub fn stream(&self) -> RawStream {
        self.raw
    }

    /// Calls `run` with the stream and returns its result. If the lane defers its work, `run` gets
    /// `utility_stream`, on which nothing waits, and later commands wait for that.
    pub fn run_now<R>(
        &self,
        utility_stream: impl FnOnce() -> Result<RawStream>,
        run: impl FnOnce(RawStream) -> Result<R>,
        undo: impl FnOnce(R, RawStream),
    ) -> Result<R> {
        let _current = self.stream.gpu.enter()?;
        let mut run = Some(run);
        let now = self.stream.deferred.with_state(|is_deferring| {
            let run = run.take_if(|_| !is_deferring)?;
            self.stream.mailbox_fills.pass();
            Some(run(self.raw))
        });
        if let Some(answer) = now {
            return answer;
        }
        let run = run.ok_or(Error::unsupported())?;
        let utility_stream = utility_stream()?;
        let answer = run(utility_stream)?;
        let wait = || {
            let event = self.stream.gpu.event(false)?;
            event.record(utility_stream)?;
            self.wait(&Marker::Event(Arc::new(event)))
        };
        match wait() {
            Ok(()) => Ok(answer),
            Err(error) => {
                undo(answer, utility_stream);
                Err(error)
            }
        }
    }

    /// Whether everything submitted so far has completed.
    pub fn is_idle(&self) -> Result<bool> {
        let stream = &self.stream;
        if stream.is_deferring() {
            return Ok(false);
        }
        let gpu = &stream.gpu;
        let _relaxed = RelaxedCapture::new(gpu.api);
        let code = on_stream(gpu.api, gpu.context(), stream.raw, || {
            // SAFETY: a live stream.
            unsafe { (gpu.api.cuStreamQuery)(stream.raw) }
        });
        match code == Code::NOT_READY {
            true => Ok(false),
            false => gpu.check(code, "cuStreamQuery").map(|()| true),
        }
    }

    /// Whether a marker of this stream is reached. False while a capture forbids the query.
    pub fn is_seen_done(&self, marker: &Marker) -> Result<bool> {
        let relaxed = RelaxedCapture::new(self.api);
        match relaxed.is_captured(self.context, self.raw) {
            true => Ok(false),
            false => marker.is_done(),
        }
    }

    /// Whether the stream is captured, by foreign code or by [`Lane::begin_capture`].
    pub fn is_captured(&self) -> bool {
        is_captured(self.api, self.context, self.raw)
    }

    /// Begins a capture of the stream. False if it cannot be captured.
    pub fn begin_capture(&self) -> Result<bool> {
        let begin = self.api.cuStreamBeginCapture;
        let Some(begin) = begin.filter(|_| is_capturable(self.raw)) else {
            return Ok(false);
        };
        let _current = self.stream.gpu.enter()?;
        self.stream.mailbox_fills.pass();
        // The captured library may initialise itself, and another thread may end the capture.
        // SAFETY: a live stream.
        let code = unsafe { begin(self.raw, RELAXED) };
        let call = "cuStreamBeginCapture";
        self.stream.gpu.check(code, call).map(|()| true)
    }

    /// Ends that capture. Returns its commands as one, none if there are none.
    pub fn end_capture(&self) -> Result<Option<Work<Cuda>>> {
        let gpu = &self.stream.gpu;
        let end = self.api.cuStreamEndCapture.ok_or(Error::unsupported())?;
        let _current = gpu.enter()?;
        let mut graph = null_mut();
        // SAFETY: a live stream, and room for a handle.
        let code = unsafe { end(self.raw, &mut graph) };
        gpu.check(code, "cuStreamEndCapture")?;
        let recorded = graph::captured(gpu, graph)?;
        Ok(recorded.map(Work::Native))
    }

    /// Submits a host function as a command of the stream.
    pub fn host_function(&self, run: HostFunction, data: *mut c_void) -> Result<()> {
        let launch = self.api.cuLaunchHostFunc.ok_or(Error::unsupported())?;
        let code = on_stream(self.api, self.context, self.raw, || {
            // SAFETY: a live stream; the caller of the enqueue promises the function and its data for each
            // launch of the graph that the stream is captured into.
            unsafe { launch(self.raw, Some(run), data) }
        });
        self.stream.gpu.check(code, "cuLaunchHostFunc")
    }

    /// A marker of everything submitted so far.
    pub fn mark(&self) -> Result<Marker> {
        Deferred::mark(&self.stream)
    }

    /// Later commands wait for the marker.
    pub fn wait(&self, marker: &Marker) -> Result<()> {
        Deferred::wait(&self.stream, marker)
    }

    /// `open = true`: foreign code may submit to this stream, so waits must be enqueued on it at once.
    pub fn set_open(&self, open: bool) -> Result<()> {
        self.stream.mailbox_fills.pass();
        Deferred::set_open(&self.stream, open)
    }

    /// Forgets the failure that the stream's markers report. Whether there was one.
    pub fn recover(&self) -> bool {
        self.stream.deferred.recover()
    }
}

impl Stream {
    #[inline]
    fn is_deferring(&self) -> bool {
        self.deferred.is_deferring()
    }

    fn fill(&self, epoch: u64, dst: usize, pattern: &[u8], bytes: usize) -> Result<()> {
        let (gpu, raw) = (&self.gpu, self.raw);
        let alone = || {
            let _current = gpu.enter()?;
            work::fill(gpu, raw, dst, pattern, bytes)
        };
        match SmallFill::of(dst, pattern, bytes) {
            Some(small_fill) if self.alone && !self.deferred.is_open() && mailbox::is_enabled() => {
                self.mailbox_fills
                    .fill(gpu, (raw, epoch), small_fill, alone)
            }
            _ => {
                self.mailbox_fills.pass();
                alone()
            }
        }
    }

    /// Enqueues work on the stream.
    fn enqueue(&self, work: Work<Cuda>, timestamps: Option<Arc<Timestamps>>) -> Result<()> {
        if matches!((&work, &timestamps), (Work::Marker, None)) {
            // Stands for the work before it, and is no call of the driver.
            self.mailbox_fills.pass();
            return Ok(());
        }
        self.enqueue_with(timestamps, |gpu, stream| work::enqueue(gpu, stream, work))
    }

    /// Calls `run` with the context current, between two events if the times are wanted.
    #[inline]
    fn enqueue_with(
        &self,
        timestamps: Option<Arc<Timestamps>>,
        run: impl FnOnce(&Arc<Gpu>, RawStream) -> Result<()>,
    ) -> Result<()> {
        self.mailbox_fills.pass();
        let gpu = &self.gpu;
        let _current = gpu.enter()?;
        let Some(timestamps) = timestamps else {
            return run(gpu, self.raw);
        };
        gpu.sync_clock()?;
        let [start, end] = [gpu.event(true)?, gpu.event(true)?];
        start.record(self.raw)?;
        run(gpu, self.raw)?;
        end.record(self.raw)?;
        times::fill(&timestamps, gpu, start, end);
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

    fn submit(&self, (work, timestamps): Self::Work) -> Result<()> {
        Stream::enqueue(self, work, timestamps)
    }

    fn record(&self) -> Result<Arc<Event>> {
        // The event must not cover later fills.
        self.mailbox_fills.pass();
        let event = self.gpu.event(false)?;
        event.record(self.raw)?;
        Ok(Arc::new(event))
    }

    fn wait(&self, event: &Arc<Event>) -> Result<()> {
        self.mailbox_fills.pass();
        self.gpu.wait_on(self.raw, event)
    }

    fn wait_point(&self, point: &Arc<HostPoint<Self>>) -> Result<()> {
        self.mailbox_fills.pass();
        let wait = self.gpu.api.cuStreamWaitValue32;
        let wait = wait.ok_or(Error::unsupported())?;
        let word = point.point.word;
        let _current = self.gpu.enter()?;
        // SAFETY: `self` keeps the stream alive, and the context keeps the word.
        let code = unsafe { wait(self.raw, word.addr as u64, word.value, AT_LEAST) };
        self.gpu.check(code, "cuStreamWaitValue32")
    }

    fn signal(point: &Point) {
        // SAFETY: the point holds the context, which closes its words on its drop.
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
        self.mailbox_fills.end(&self.gpu);
        self.gpu.end_lane(self.raw);
        if self.own
            && let Ok(_current) = self.gpu.enter()
        {
            // SAFETY: the lane owns the stream, and no submission can follow the drop.
            unsafe { (self.gpu.api.cuStreamDestroy)(self.raw) };
        }
    }
}

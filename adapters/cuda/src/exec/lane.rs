//! Streams: opened by us, or the user's own.
//!
//! A stream could wait for the host by itself, but the driver puts streams on few channels, and one
//! that waits stops all on its channel; and while any does, calls that wait for the device, such as
//! freeing memory, do not return. So a lane that waits for the host keeps back what it is given from
//! then on, and who signals gives it to the stream. A marker of what is kept back is a promise of an
//! event. Only where others put work on the stream, too, must it wait by itself.
//!
//! | a lane | until |
//! |---|---|
//! | gives work to its stream at once | it has to wait for a point or promise that is not there yet |
//! | keeps work back | all that it waits for is there, or it is opened to others |

mod plain;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ur::abi::*;
use ur::object::{Error, Result};
use ur::stream::{Stamps, Work};

use super::fill;
use super::gpu::{Event, Gpu};
use super::marker::{Marker, Promise};
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
    /// Whether anything is kept back. What is given to the lane comes one at a time, by the engine's
    /// promise, and nothing else is ever kept back: who gives and finds nothing here needs no lock.
    keeps: AtomicBool,
    /// Whether all that its work comes after is given through us, and by itself.
    alone: bool,
    posts: Posts,
    held: Mutex<Held>,
}

// SAFETY: the driver's objects may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

#[derive(Default)]
struct Held {
    /// What is kept back, in order. The first is always something to wait for.
    steps: VecDeque<Step>,
    /// Whether others put work on the stream.
    open: bool,
    /// Why kept-back work failed. All that follows comes after that work, so every later marker tells
    /// of it: the first to ask may be a thread of ours.
    failed: Option<Error>,
}

enum Step {
    Work(Work<Cuda>, Option<Arc<Stamps>>),
    Wait(Marker),
    Mark(Arc<Promise>),
}

thread_local! {
    /// Lanes that this thread is to let go on, while it does so.
    static LINE: RefCell<Option<VecDeque<Arc<Stream>>>> = const { RefCell::new(None) };
}

/// `CU_STREAM_NON_BLOCKING`: does not wait for the default stream, nor that for it.
const NON_BLOCKING: u32 = 1;

/// `CU_STREAM_WAIT_VALUE_GEQ`
const AT_LEAST: u32 = 0;

impl Lane {
    pub fn open(gpu: &Arc<Gpu>, flags: ur_queue_flags_t) -> Result<Self> {
        let _current = gpu.enter()?;
        if flags.contains(UR_QUEUE_FLAG_USE_DEFAULT_STREAM) {
            return Ok(Self::new(gpu, null_mut(), (false, false)));
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
        Ok(Self::new(gpu, stream, (true, !blocking)))
    }

    /// A stream that others made; `own` if it is to end with the lane.
    pub fn adopt(gpu: &Arc<Gpu>, raw: CUstream, own: bool) -> Self {
        Self::new(gpu, raw, (own, false))
    }

    fn new(gpu: &Arc<Gpu>, raw: CUstream, (own, alone): (bool, bool)) -> Self {
        Self {
            api: gpu.api,
            context: gpu.context(),
            raw,
            stream: Arc::new(Stream {
                gpu: Arc::clone(gpu),
                raw,
                own,
                keeps: AtomicBool::new(false),
                alone,
                posts: Posts::default(),
                held: Mutex::default(),
            }),
        }
    }

    pub fn stream(&self) -> CUstream {
        self.raw
    }

    pub fn submit(&self, work: Work<Cuda>, stamps: Option<Arc<Stamps>>) -> Result<()> {
        if stamps.is_none() && !self.stream.keeps() {
            return self.stream.give(work, None);
        }
        self.submit_slowly(work, stamps)
    }

    /// As [`Lane::submit`], where work is kept back or its times are wanted.
    #[inline(never)]
    fn submit_slowly(&self, work: Work<Cuda>, stamps: Option<Arc<Stamps>>) -> Result<()> {
        if !self.stream.keeps() {
            return self.stream.give(work, stamps);
        }
        let mut held = self.stream.held();
        if held.steps.is_empty() {
            return self.stream.give(work, stamps);
        }
        self.stream.keep(&mut held, Step::Work(work, stamps));
        Ok(())
    }

    /// As [`Lane::launch_plain`], of a launch that was checked in full.
    pub fn launch(
        &self,
        kernel: &Kernel,
        ready: &Ready,
        stamps: Option<Arc<Stamps>>,
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
        stamps: Option<Arc<Stamps>>,
    ) -> Result<()> {
        let mut held = self.stream.held();
        if held.steps.is_empty() {
            let code = kernel.code_of(ready);
            return self
                .stream
                .give_with(stamps, |gpu, stream| ready.enqueue(code, gpu, stream));
        }
        let kept = Work::Launch(Arc::new(kernel.keep(ready.clone())));
        held.steps.push_back(Step::Work(kept, stamps));
        Ok(())
    }

    /// Has the stream do something now that answers with a value. Where the lane keeps its work back,
    /// `aside` does it instead, a stream on which nothing waits, and what follows waits for that.
    pub fn ask<R>(
        &self,
        aside: impl FnOnce() -> Result<CUstream>,
        give: impl FnOnce(CUstream) -> Result<R>,
        undo: impl FnOnce(R, CUstream),
    ) -> Result<R> {
        let held = self.stream.held();
        let _current = self.stream.gpu.enter()?;
        if held.steps.is_empty() {
            self.stream.posts.pass();
            return give(self.raw);
        }
        drop(held);
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
        if !self.stream.keeps() {
            return Ok(Marker::Event(self.stream.record()?));
        }
        let mut held = self.stream.held();
        if held.steps.is_empty() {
            let event = held.failed.map_or_else(|| self.stream.record(), Err)?;
            return Ok(Marker::Event(event));
        }
        let promise = Promise::new(&self.stream);
        self.stream
            .keep(&mut held, Step::Mark(Arc::clone(&promise)));
        Ok(Marker::Promise(promise))
    }

    /// Later commands wait for the marker.
    pub fn wait(&self, marker: &Marker) -> Result<()> {
        if let Marker::Event(_) = marker
            && !self.stream.keeps()
        {
            return self.stream.wait(marker, false).map(drop);
        }
        let mut held = self.stream.held();
        if held.open
            && let Marker::Promise(promise) = marker
        {
            // What others put on the stream cannot be kept back behind it.
            drop(held);
            promise.force()?;
            held = self.stream.held();
        }
        if held.steps.is_empty() && self.stream.wait(marker, held.open)? {
            return Ok(());
        }
        self.stream.keep(&mut held, Step::Wait(marker.clone()));
        drop(held);
        let stream = Arc::downgrade(&self.stream);
        marker.when_there(Box::new(move || {
            if let Some(stream) = stream.upgrade() {
                stream.let_go_on();
            }
        }));
        Ok(())
    }

    /// Others put work on the stream from now on, or no longer.
    pub fn set_open(&self, open: bool) -> Result<()> {
        self.stream.posts.pass();
        self.stream.held().open = open;
        if open { self.stream.force() } else { Ok(()) }
    }
}

impl Stream {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn keeps(&self) -> bool {
        self.keeps.load(Ordering::Acquire)
    }

    fn keep(&self, held: &mut Held, step: Step) {
        held.steps.push_back(step);
        self.keeps.store(true, Ordering::Relaxed);
    }

    fn fill(&self, epoch: u64, dst: usize, pattern: &[u8], bytes: usize) -> Result<()> {
        let (gpu, raw) = (&self.gpu, self.raw);
        let alone = || {
            let _current = gpu.enter()?;
            fill::linear(gpu, raw, dst, pattern, bytes)
        };
        match Post::of(dst, pattern, bytes) {
            Some(post) if self.alone && !self.held().open => {
                self.posts.fill(gpu, (raw, epoch), post, alone)
            }
            _ => {
                self.posts.pass();
                alone()
            }
        }
    }

    /// Gives work to the stream.
    fn give(&self, work: Work<Cuda>, stamps: Option<Arc<Stamps>>) -> Result<()> {
        self.give_with(stamps, |gpu, stream| work::give(gpu, stream, work))
    }

    /// Has `give` do so, between two events if the times are wanted. The context is current for it.
    #[inline]
    fn give_with(
        &self,
        stamps: Option<Arc<Stamps>>,
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

    fn record(&self) -> Result<Arc<Event>> {
        // It covers nothing that comes later.
        self.posts.pass();
        let event = self.gpu.event(false)?;
        event.record(self.raw)?;
        Ok(Arc::new(event))
    }

    /// Has the stream wait, if it can without keeping anything else from going on; or anyway, if
    /// `alone`. False if it cannot.
    fn wait(&self, marker: &Marker, alone: bool) -> Result<bool> {
        self.posts.pass();
        let event = match marker {
            Marker::Event(event) => event,
            Marker::Promise(promise) => match promise.event()? {
                Some(event) => event,
                None => return Ok(false),
            },
            Marker::Host(point) if point.is_signalled() => return Ok(true),
            Marker::Host(_) if !alone => return Ok(false),
            Marker::Host(point) => {
                let wait = self.gpu.api.cuStreamWaitValue32;
                let wait = wait.ok_or(Error::unsupported())?;
                let word = point.word;
                let _current = self.gpu.enter()?;
                // SAFETY: a live stream; the word stays as long as the context.
                let code = unsafe { wait(self.raw, word.addr as u64, word.value, AT_LEAST) };
                self.gpu.check(code, "cuStreamWaitValue32")?;
                return Ok(true);
            }
        };
        let gpu = &self.gpu;
        let code = on_stream(gpu.api, gpu.context(), self.raw, || {
            // SAFETY: a live stream and event.
            unsafe { (gpu.api.cuStreamWaitEvent)(self.raw, event.raw(), 0) }
        });
        gpu.check(code, "cuStreamWaitEvent")?;
        Ok(true)
    }

    /// As [`Stream::go_on`], and then those that it lets go on, one after the other: chains of them may
    /// be long.
    fn let_go_on(self: Arc<Self>) {
        let join = |line: &RefCell<Option<VecDeque<_>>>| match &mut *line.borrow_mut() {
            Some(line) => {
                line.push_back(Arc::clone(&self));
                true
            }
            none => {
                *none = Some(VecDeque::new());
                false
            }
        };
        // Without a line, in a thread that ends, they go on within each other.
        if LINE.try_with(join).unwrap_or(false) {
            return;
        }
        let mut next = Some(self);
        while let Some(stream) = next {
            stream.go_on();
            let pop = |line: &RefCell<Option<VecDeque<_>>>| match &mut *line.borrow_mut() {
                Some(line) => line.pop_front(),
                None => None,
            };
            next = LINE.try_with(pop).unwrap_or_default();
        }
        // A thread that ends has none.
        let _ = LINE.try_with(|line| *line.borrow_mut() = None);
    }

    /// Gives the stream what was kept back, as far as what it waits for is there. Failures are told
    /// with the markers behind them.
    fn go_on(self: &Arc<Self>) {
        let mut kept = Vec::new();
        {
            let mut held = self.held();
            while let Some(step) = held.steps.pop_front() {
                let done = match step {
                    Step::Work(work, stamps) => self.give(work, stamps),
                    Step::Wait(marker) => match self.wait(&marker, held.open) {
                        Ok(true) => Ok(()),
                        Ok(false) => {
                            held.steps.push_front(Step::Wait(marker));
                            break;
                        }
                        Err(error) => Err(error),
                    },
                    Step::Mark(promise) => {
                        let event = held.failed.map_or_else(|| self.record(), Err);
                        kept.push((promise, event));
                        Ok(())
                    }
                };
                if let Err(error) = done {
                    log::error!("work that was kept back failed: {:?}", error.code());
                    held.failed.get_or_insert(error);
                }
            }
            // Whoever sees that it keeps nothing gives behind all this.
            let keeps = !held.steps.is_empty() || held.failed.is_some();
            self.keeps.store(keeps, Ordering::Release);
        }
        // Others may go on now, and no lock of ours is held while they do.
        for (promise, event) in kept {
            promise.keep(event);
        }
    }

    /// Gives the stream everything, which then waits by itself: others look at it.
    pub fn force(self: &Arc<Self>) -> Result<()> {
        loop {
            let broken_off = |step: &Step| match step {
                Step::Wait(Marker::Promise(promise)) if !promise.is_there() => {
                    Some(Arc::clone(promise))
                }
                _ => None,
            };
            let other = self.held().steps.iter().find_map(broken_off);
            match other {
                // What waits for what forms no circle.
                Some(promise) => promise.force()?,
                None => break,
            }
        }
        let was = std::mem::replace(&mut self.held().open, true);
        self.go_on();
        self.held().open = was;
        Ok(())
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

//! Lanes: immediate command lists, in-order and asynchronous.
//!
//! Work that waits for the host is deferred by the host (`ur::stream::deferred`): a list that waits on the device for
//! the host occupies its engine, which the kernel's driver resets after a while. A wait for another lane is a command
//! of its own and never an argument of a copy: the driver would wait for those arguments in the calling thread.
//!
//! The engine calls a lane from one thread at a time, as the driver asks of a list. Completion is asked of events, which
//! other threads may do; `zeCommandListHostSynchronize` changes the list, so that only a submission calls it.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ur::abi::*;
use ur::object::{Object, Result};
use ur::stream::{Deferred, HostFunction, HostPoint, Timestamps, Work};
use ur::sync::{Mutex, rank};

use super::batch::{Batch, Kept};
use super::compiled::holds;
use super::event::{Event, Kind, Markers, Waits};
use super::list::List;
use super::point::{Marker, Point};
use super::work::Native;
use super::{graph, times, work};
use crate::LevelZero;
use crate::context::NativeContext;
use crate::device::{ComputeQueue, Device};
use crate::lz::*;
use crate::platform::{Platform, Version};
use crate::settings::Settings;

pub struct Lane {
    stream: Arc<Stream>,
}

pub struct Stream {
    // Dropped before the context.
    pub list: List,
    pub context: Arc<NativeContext>,
    /// Whether each command depends on the one before: it is an in-order queue's.
    chained: bool,
    waits: Mutex<Waits, { rank::LEAF }>,
    /// Whether the list was given a wait after its last marker. Changed by the submitter alone.
    ends_with_wait: AtomicBool,
    markers: Mutex<Markers, { rank::LEAF }>,
    /// Of a queue that batches its commands.
    batch: Option<Batch>,
    deferred: Deferred<Self>,
}

/// The first driver whose lists keep the order.
const IN_ORDER: Version = Version::new(1, 6, 32149);
/// The first driver that takes the hint of copies on another engine.
const COPY_OFFLOAD: Version = Version::new(1, 14, 0);

/// Whether the driver keeps the order of a list.
pub(super) fn keeps_order(platform: &Platform) -> bool {
    Settings::get().in_order_lists && platform.version() >= IN_ORDER
}

impl Lane {
    /// A lane on any queue of the device.
    pub fn open(
        context: &Arc<NativeContext>,
        device: &Object<Device>,
        flags: ur_queue_flags_t,
    ) -> Result<Self> {
        Self::on(context, device, device.compute_queue(None)?, flags)
    }

    pub fn on(
        context: &Arc<NativeContext>,
        device: &Object<Device>,
        queue: ComputeQueue,
        flags: ur_queue_flags_t,
    ) -> Result<Self> {
        let settings = Settings::get();
        let is_in_order = keeps_order(device.platform());
        let mut hints = 0;
        if is_in_order {
            hints |= ZE_COMMAND_QUEUE_FLAG_IN_ORDER;
        }
        if settings.copy_offload && device.platform().version() >= COPY_OFFLOAD {
            hints |= ZE_COMMAND_QUEUE_FLAG_COPY_OFFLOAD_HINT;
        }
        let high = flags.contains(UR_QUEUE_FLAG_PRIORITY_HIGH);
        let low = flags.contains(UR_QUEUE_FLAG_PRIORITY_LOW);
        let desc = ze_command_queue_desc_t {
            ordinal: queue.ordinal,
            index: queue.index,
            flags: hints,
            mode: match settings.synchronous {
                true => ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
                false => ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
            },
            priority: match (high, low) {
                (true, _) => ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH,
                (_, true) => ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_LOW,
                _ => ZE_COMMAND_QUEUE_PRIORITY_NORMAL,
            },
            ..Default::default()
        };
        let api = context.api;
        let mut list = ze_command_list_handle_t::NULL;
        // SAFETY: the description has its tag, and there is room for the handle.
        unsafe {
            call!(
                api,
                zeCommandListCreateImmediate(context.raw, device.raw(), &desc, &mut list)
            )
        }?;
        let chained = !flags.contains(UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE);
        let list = List::immediate(api, device, list, is_in_order, true);
        let is_batched = flags.contains(UR_QUEUE_FLAG_SUBMISSION_BATCHED);
        let batch = is_batched.then(|| Batch::of(context, device)).flatten();
        Ok(Self::new(context, list, chained, batch))
    }

    /// A foreign list; `own` if the lane destroys it.
    pub fn adopt(
        context: &Arc<NativeContext>,
        device: &Object<Device>,
        list: ze_command_list_handle_t,
        is_in_order: bool,
        own: bool,
    ) -> Self {
        let list = List::immediate(context.api, device, list, is_in_order, own);
        Self::new(context, list, true, None)
    }

    fn new(context: &Arc<NativeContext>, list: List, chained: bool, batch: Option<Batch>) -> Self {
        Self {
            stream: Arc::new(Stream {
                context: Arc::clone(context),
                list,
                chained,
                waits: Mutex::default(),
                ends_with_wait: AtomicBool::new(false),
                markers: Mutex::default(),
                batch,
                deferred: Deferred::default(),
            }),
        }
    }

    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Whether work is kept back, since the lane waits for the host.
    #[inline]
    pub fn is_deferring(&self) -> bool {
        self.stream.deferred.is_deferring()
    }

    /// Submits work, or defers it while the lane waits for the host.
    pub fn submit(&self, work: Work<LevelZero>, timestamps: Option<Arc<Timestamps>>) -> Result<()> {
        let stream = &self.stream;
        if !stream.deferred.is_deferring() {
            return stream.give(work, timestamps);
        }
        let now = |(work, timestamps)| stream.give(work, timestamps);
        stream.deferred.submit((work, timestamps), now, Ok)
    }

    #[inline(always)]
    pub fn copy(&self, dst: usize, src: usize, bytes: usize) -> Result<()> {
        let stream = &self.stream;
        if stream.batch.is_none() && !stream.deferred.is_deferring() {
            return work::copy(&stream.list, ze_event_handle_t::NULL, dst, src, bytes);
        }
        self.submit(Work::Copy { dst, src, bytes }, None)
    }

    /// Appends a plain launch, which uses this code, on a lane that defers nothing.
    #[inline(always)]
    pub fn launch(
        &self,
        code: impl FnOnce() -> Kept,
        append: impl FnOnce(&List) -> Result<()>,
    ) -> Result<()> {
        let stream = &self.stream;
        match &stream.batch {
            None => append(&stream.list),
            Some(batch) if batch.takes_commands() => batch.add(stream, code, append),
            Some(batch) => {
                batch.submit(stream)?;
                append(&stream.list)
            }
        }
    }

    /// Submits what is batched.
    pub fn flush(&self) -> Result<()> {
        self.stream.flush()
    }

    pub fn mark(&self) -> Result<Marker> {
        Deferred::mark(&self.stream)
    }

    pub fn wait(&self, marker: &Marker) -> Result<()> {
        Deferred::wait(&self.stream, marker)
    }

    /// Foreign code that once had the list may use it at any time, so that batching ends.
    pub fn set_open(&self, open: bool) -> Result<()> {
        if open {
            self.stream.end_batches()?;
        }
        Deferred::set_open(&self.stream, open)
    }

    pub fn recover(&self) -> bool {
        self.stream.deferred.recover()
    }

    /// Whether the list is captured, by foreign code or by [`Lane::begin_capture`].
    pub fn is_captured(&self) -> bool {
        graph::is_captured(&self.stream.list)
    }

    /// Begins a capture of the list. False if it cannot be captured.
    pub fn begin_capture(&self) -> Result<bool> {
        self.stream.end_batches()?;
        graph::begin(&self.stream.list)
    }

    /// Ends that capture. Returns its commands as one, none if there are none.
    pub fn end_capture(&self) -> Result<Option<Work<LevelZero>>> {
        let stream = &self.stream;
        let captured = graph::end(&stream.context, &stream.list)?;
        Ok(captured.map(|graph| Work::Native(Native::Graph(graph))))
    }

    /// Submits a host function as a command of the list, which is captured.
    pub fn host_function(&self, run: HostFunction, data: *mut c_void) -> Result<()> {
        graph::host_function(&self.stream.list, run, data)
    }
}

impl Stream {
    /// Submits work, or adds it to the lane's batch.
    fn give(
        self: &Arc<Self>,
        work: Work<LevelZero>,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<()> {
        match &self.batch {
            // A marker stands for the work before it.
            Some(_) if matches!(work, Work::Marker) && timestamps.is_none() => Ok(()),
            Some(batch) if batch.takes_commands() && holds(&self.context, &work) => {
                let kept = || Kept::of(&work);
                batch.add(self, kept, |list| {
                    self.append(list, work.clone(), timestamps)
                })
            }
            _ => self.enqueue(work, timestamps),
        }
    }

    /// Submits work now, behind what is batched.
    fn enqueue(&self, work: Work<LevelZero>, timestamps: Option<Arc<Timestamps>>) -> Result<()> {
        self.flush()?;
        work::prepare(self, &work)?;
        self.append(&self.list, work, timestamps)
    }

    /// Submits what is batched. Any thread may call it.
    pub fn flush(&self) -> Result<()> {
        match &self.batch {
            Some(batch) => batch.submit(self),
            None => Ok(()),
        }
    }

    /// Submits what is batched, and batches nothing any more.
    fn end_batches(&self) -> Result<()> {
        if let Some(batch) = &self.batch {
            batch.finish();
        }
        self.flush()
    }

    /// Appends work to the lane's list or to its batch.
    fn append(
        &self,
        list: &List,
        work: Work<LevelZero>,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<()> {
        let Some(timestamps) = timestamps else {
            // A marker stands for the work before it, and is no call of the driver.
            return work::append(list, ze_event_handle_t::NULL, work);
        };
        let last = self.timed()?;
        let first = match work::is_one_command(&work) {
            true => {
                work::append(list, last.raw, work)?;
                last.is_appended();
                Arc::clone(&last)
            }
            false => {
                let first = self.timed()?;
                signal(list, &first)?;
                list.keep_order()?;
                work::append(list, ze_event_handle_t::NULL, work)?;
                signal(list, &last)?;
                list.keep_order()?;
                first
            }
        };
        times::fill(&timestamps, first, last);
        Ok(())
    }

    fn timed(&self) -> Result<Arc<Event>> {
        let event = Event::new(&self.context, &self.list.device, Kind::Timed)?;
        Ok(Arc::new(event))
    }

    /// An event that nobody else uses.
    fn marker(&self) -> Result<Arc<Event>> {
        if let Some(unused) = self.markers.lock().unused() {
            return Ok(unused);
        }
        let event = Event::new(&self.context, &self.list.device, Kind::Marker)?;
        let event = Arc::new(event);
        self.markers.lock().keep(&event);
        Ok(event)
    }

    /// Signals a marker behind all submitted commands.
    pub fn stamp(&self, event: &Arc<Event>) -> Result<()> {
        // No barrier follows: nothing may be left of a list that is destroyed once its last marker is complete.
        signal(&self.list, event)?;
        self.ends_with_wait.store(false, Ordering::Relaxed);
        let passed = self.waits.lock().mark(event);
        drop(passed);
        Ok(())
    }
}

impl Drop for Stream {
    /// What a list waits for last has ended, but the list may not have come to its wait: it is destroyed after that.
    fn drop(&mut self) {
        if self.list.api.is_torn_down() {
            return;
        }
        if let Some(batch) = &self.batch {
            batch.end(self);
        }
        if !self.list.own || !*self.ends_with_wait.get_mut() {
            return;
        }
        let ended = ur::stream::Stream::record(self).and_then(|event| event.block());
        if let Err(error) = ended {
            log::error!("a list is destroyed that may wait: {:?}", error.code());
        }
    }
}

fn signal(list: &List, event: &Event) -> Result<()> {
    // SAFETY: a live list and a live event of the same context.
    unsafe {
        call!(
            list.api,
            zeCommandListAppendSignalEvent(list.raw, event.raw)
        )
    }?;
    event.is_appended();
    Ok(())
}

impl ur::stream::Stream for Stream {
    type Work = (Work<LevelZero>, Option<Arc<Timestamps>>);
    type Event = Arc<Event>;
    type Point = Point;

    fn deferred(&self) -> &Deferred<Self> {
        &self.deferred
    }

    fn is_chained(&self) -> bool {
        self.chained
    }

    fn submit(&self, (work, timestamps): Self::Work) -> Result<()> {
        self.enqueue(work, timestamps)
    }

    fn record(&self) -> Result<Arc<Event>> {
        if let Some(batch) = &self.batch
            && let Some(end) = batch.marker()
        {
            return Ok(end);
        }
        let event = self.marker()?;
        self.stamp(&event)?;
        Ok(event)
    }

    fn wait(&self, event: &Arc<Event>) -> Result<()> {
        let mut raw = event.raw()?;
        self.flush()?;
        self.ends_with_wait.store(true, Ordering::Relaxed);
        // SAFETY: a live list and a live event of the same context.
        unsafe {
            call!(
                self.list.api,
                zeCommandListAppendWaitOnEvents(self.list.raw, 1, &mut raw)
            )
        }?;
        self.list.keep_order()?;
        if !event.is_counter_based && self.waits.lock().keep(event) {
            self.record()?;
        }
        Ok(())
    }

    fn wait_point(&self, point: &Arc<HostPoint<Self>>) -> Result<()> {
        match point.point.event()? {
            Some(event) => self.wait(&event),
            None => Ok(()),
        }
    }

    fn signal(point: &Point) {
        point.signal();
    }

    fn is_done(event: &Arc<Event>) -> Result<bool> {
        event.is_done()
    }

    fn block(event: &Arc<Event>) -> Result<()> {
        event.block()
    }
}

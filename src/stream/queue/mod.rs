//! Queues: the lane of each command, and its dependencies.
//!
//! An in-order queue is one lane. An out-of-order queue has a few. Its lock makes the choice of a
//! lane and the submission one step, so that no command slips onto a lane that was just made to
//! wait for the host.
//!
//! Owns the handle and the way of each kind of command to a lane: `enqueue` of work, `alloc` as
//! bookkeeping, `host_task`, `native_command`, `replay` of a recording. Owns the ways around a lane, too:
//! `capture` into a `graph`, and `stream_capture` by foreign code. Uses every folder below `api`. Must
//! never know a backend.

pub(crate) mod alloc;
pub(crate) mod capture;
pub(crate) mod enqueue;
pub(crate) mod graph;
pub(crate) mod host_task;
pub(crate) mod mapping;
mod native_alloc;
pub(crate) mod native_command;
pub(crate) mod out_of_order;
pub(crate) mod replay;
pub(crate) mod reusable;
pub(crate) mod stream_capture;

use crate::abi::*;
use crate::hal::{self, QueueInfo};
use crate::object::{Body, Error, Handles, InfoOut, Object, OutHandle, Result, ensure};
use crate::stream::engine::dependencies::{Dependencies, EventDependencies};
use crate::stream::engine::leases::Leases;
use crate::stream::engine::{HostPoint, HostSignal};
use crate::sync::{Mutex, rank};

use crate::stream::engine::Failures;
use crate::stream::event::{CommandQueue, Event, Times};
use crate::stream::lane::LaneCore;
use crate::stream::queue::capture::{Capture, CaptureOrder};
use crate::stream::queue::out_of_order::OutOfOrder;
use crate::stream::recording::command::Command;
use crate::stream::recording::command::Target;
use crate::stream::settings::pool_trace::Trace;
use crate::stream::{Context, Driver, Engine, QueueOptions, Timestamps, Work};
use crate::timeline::{Clock, Failure, Frontier, LaneId};
use std::ffi::c_void;
use std::sync::Arc;

/// A queue's handle. Fields that every command reads come first, on as few cache lines as possible:
/// the driver evicts most of ours between two commands.
#[repr(C)]
pub struct Queue<D: Driver> {
    pub(crate) shape: Shape<D>,
    context: Arc<Object<Context<D>>>,
    device: Arc<Object<D::Device>>,
    options: QueueOptions,
    pub(crate) capture: Capture<D>,
    /// The device of the context that this device is, or is a part of. Its pools serve the queue.
    home: Arc<Object<D::Device>>,
    /// Index of `home` in the context.
    home_at: usize,
    /// Lanes leased to native commands, with the threads that run their functions.
    pub(crate) leased: Leases<LaneCore<D>>,
    /// Failures of its host tasks.
    failures: Failures,
    /// The queue's number in a trace of pools; none without a trace. An in-order queue has its
    /// lane's.
    pub(crate) watched: Option<LaneId>,
}

pub(crate) enum Shape<D: Driver> {
    InOrder(Arc<LaneCore<D>>),
    OutOfOrder(Box<Mutex<OutOfOrder<D>, { rank::OUT_OF_ORDER }>>),
}

/// What takes a command in place of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recorder {
    /// A graph of ours: see `capture`.
    Graph,
    /// A capture of the native stream by foreign code: see `stream_capture`.
    Stream,
}

impl<D: Driver> Body for Queue<D> {
    const KIND: crate::object::Kind = crate::object::Kind::Queue;

    fn released(this: &Object<Self>) {
        // Captured commands may hold events of the queue, and so the queue.
        if this.capture.is_on() {
            this.capture.clear();
        }
        // An adopted stream may end from here on, although events keep the queue.
        let leave = |lane: &LaneCore<D>| {
            if lane.is_native_shared() {
                lane.leave_stream();
            }
        };
        match &this.shape {
            Shape::InOrder(lane) => leave(lane),
            Shape::OutOfOrder(lanes) => lanes.lock().lanes().for_each(leave),
        }
    }
}

impl<D: Driver> Queue<D> {
    pub(crate) fn create(
        context: &Object<Context<D>>,
        device: &Object<D::Device>,
        options: QueueOptions,
    ) -> Result<Arc<Object<Self>>> {
        context.domain().engine().check()?;
        let home_at = context.index(device)?;
        let home = context.device(device)?;
        D::check_options(device, &options)?;
        let device = device.arc();
        let context = context.arc();
        let is_out_of_order = UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE;
        let shape = if options.flags.contains(is_out_of_order) {
            Shape::OutOfOrder(Box::new(Mutex::new(OutOfOrder::new(
                &context, &device, options,
            ))))
        } else {
            Shape::InOrder(LaneCore::open(
                Arc::clone(&context) as _,
                &device,
                &options,
                true,
            )?)
        };
        Ok(Self::made(Self {
            context,
            device,
            home,
            home_at,
            options,
            watched: watched(&shape),
            shape,
            leased: Leases::default(),
            failures: Failures::default(),
            capture: Capture::default(),
        }))
    }

    /// A queue over an existing stream of the backend, which may have foreign work on it. `captured`: it may
    /// be captured while commands are enqueued.
    pub fn adopt(
        context: &Object<Context<D>>,
        device: &Object<D::Device>,
        flags: ur_queue_flags_t,
        lane: D::Lane,
        captured: bool,
    ) -> Result<Arc<Object<Self>>> {
        context.domain().engine().check()?;
        let home_at = context.index(device)?;
        let home = context.device(device)?;
        let (device, context) = (device.arc(), context.arc());
        let lane = LaneCore::over(Arc::clone(&context) as _, &device, true, |_| Ok(lane))?;
        lane.share_native()?;
        let shape = Shape::InOrder(lane);
        let capture = Capture::default();
        if captured {
            capture.share();
        }
        Ok(Self::made(Self {
            context,
            device,
            home,
            home_at,
            options: flags.into(),
            watched: watched(&shape),
            shape,
            leased: Leases::default(),
            failures: Failures::default(),
            capture,
        }))
    }

    fn made(queue: Self) -> Arc<Object<Self>> {
        let domain = Arc::clone(queue.context.domain());
        let made = hal::new::<D, _>(queue);
        domain.add_queue(&made);
        made
    }

    /// The queue of a context that has a stream for which `is` is true.
    pub fn find(
        context: &Object<Context<D>>,
        is: impl Fn(&D::Lane) -> bool,
    ) -> Option<Arc<Object<Self>>> {
        let has = |queue: &Arc<Object<Self>>| match &queue.shape {
            Shape::InOrder(lane) => is(lane.native()),
            Shape::OutOfOrder(lanes) => lanes.lock().lanes().any(|lane| is(lane.native())),
        };
        context.domain().queues().into_iter().find(has)
    }

    /// Calls `look` with the native stream, one of several on an out-of-order queue. Foreign work
    /// that is submitted there from now on is waited for like the queue's own, or recorded if the queue
    /// captures. In the function of a native command it is that command's stream, for the duration of the
    /// command.
    pub fn with_native<R>(&self, look: impl FnOnce(&D::Lane) -> R) -> Result<R> {
        if let Some(lane) = self.leased_here() {
            return Ok(look(lane.leased()));
        }
        let lane = self.share_lane()?;
        if D::CAPTURES_STREAMS && self.capture.is_on() {
            self.capture.watch(&lane)?;
        }
        Ok(look(lane.native()))
    }

    /// The lane whose stream foreign code submits to.
    pub(crate) fn native_lane(&self) -> Result<Arc<LaneCore<D>>> {
        match &self.shape {
            Shape::InOrder(lane) => Ok(Arc::clone(lane)),
            Shape::OutOfOrder(lanes) => lanes.lock().shown().map(Arc::clone),
        }
    }

    /// That lane, open to foreign code for good.
    pub(crate) fn share_lane(&self) -> Result<Arc<LaneCore<D>>> {
        let lane = match &self.shape {
            Shape::InOrder(lane) => {
                lane.share_native()?;
                Arc::clone(lane)
            }
            Shape::OutOfOrder(lanes) => {
                let mut lanes = lanes.lock();
                let lane = lanes.shown()?;
                lane.share_native()?;
                Arc::clone(lane)
            }
        };
        self.capture.share();
        Ok(lane)
    }

    /// An error if the command would be captured, for commands that cannot be.
    #[inline]
    pub(crate) fn live(&self, waits: Handles<'_, Event<D>>) -> Result<()> {
        match self.recorder(waits)? {
            None => Ok(()),
            Some(Recorder::Graph) => Err(capture::NOT_CAPTURABLE),
            Some(Recorder::Stream) => Err(stream_capture::NOT_CAPTURABLE),
        }
    }

    /// Where a command with this wait list is recorded, none if it goes to the device.
    #[inline(always)]
    pub(crate) fn recorder(&self, waits: Handles<'_, Event<D>>) -> Result<Option<Recorder>> {
        match self.capture.is_possible() || !waits.is_empty() && Self::are_captured(waits) {
            true => self.find_recorder(waits),
            false => Ok(None),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_recorder(&self, waits: Handles<'_, Event<D>>) -> Result<Option<Recorder>> {
        let joins_graph = || waits.iter().any(|event| event.is_in_graph());
        let joins_stream = || {
            waits
                .iter()
                .any(|event| event.in_capture_of_stream().is_some())
        };
        let own = match (self.capture.is_on(), self.is_stream_captured()) {
            (true, _) => Some(Recorder::Graph),
            (_, true) => Some(Recorder::Stream),
            _ => None,
        };
        let (graph, stream) = (joins_graph(), joins_stream());
        let merges = match own {
            Some(Recorder::Graph) => stream,
            Some(Recorder::Stream) => graph,
            None => graph && stream,
        };
        ensure(!merges, UR_RESULT_ERROR_GRAPH_CAPTURE_MERGE_ATTEMPT)?;
        let joined = graph.then_some(Recorder::Graph);
        let joined = joined.or(stream.then_some(Recorder::Stream));
        Ok(own.or(joined))
    }

    /// Whether the queue captures, or foreign code captures its native stream.
    #[inline(always)]
    fn is_captured(&self) -> bool {
        self.capture.is_possible() && self.is_captured_now()
    }

    #[cold]
    #[inline(never)]
    fn is_captured_now(&self) -> bool {
        self.capture.is_on() || self.is_stream_captured()
    }

    /// Whether the native stream is captured, by foreign code unless the queue captures.
    pub(crate) fn is_stream_captured(&self) -> bool {
        if !D::CAPTURES_STREAMS || !self.capture.is_shared() {
            return false;
        }
        match &self.shape {
            Shape::InOrder(lane) => lane.is_stream_captured(),
            Shape::OutOfOrder(lanes) => {
                let lanes = lanes.lock();
                let mut shared = lanes.lanes().filter(|lane| lane.is_native_shared());
                shared.any(|lane| lane.is_stream_captured())
            }
        }
    }

    fn are_captured(waits: Handles<'_, Event<D>>) -> bool {
        waits.iter().any(|event| event.is_captured())
    }

    /// The lane of the innermost native command whose function runs on this thread.
    fn leased_here(&self) -> Option<Arc<LaneCore<D>>> {
        self.leased.innermost()
    }

    pub(crate) fn target(&self) -> Target<'_, D> {
        Target {
            context: self.context(),
            device: self.device(),
        }
    }

    pub fn context(&self) -> &Arc<Object<Context<D>>> {
        &self.context
    }

    pub fn device(&self) -> &Arc<Object<D::Device>> {
        &self.device
    }

    pub(crate) fn home(&self) -> &Arc<Object<D::Device>> {
        &self.home
    }

    pub(crate) fn home_at(&self) -> usize {
        self.home_at
    }

    pub fn flags(&self) -> ur_queue_flags_t {
        self.options.flags
    }

    pub(crate) fn engine(&self) -> &Arc<Engine<D>> {
        self.context.domain().engine()
    }

    /// Submits work after `waits` and after what the queue's own order demands.
    pub(crate) fn submit(
        &self,
        waits: &Dependencies,
        work: Work<D>,
        times: Option<&Times>,
        wanted: bool,
    ) -> Result<Option<EventDependencies>> {
        self.engine().check()?;
        let timestamps = times.map(|times| Arc::clone(&times.timestamps));
        match &self.shape {
            Shape::InOrder(lane) => lane.submit(waits, work, timestamps, wanted),
            Shape::OutOfOrder(lanes) => lanes.lock().submit(waits, work, timestamps, wanted),
        }
    }

    #[inline]
    pub(crate) fn is_profiled(&self) -> bool {
        self.flags().contains(UR_QUEUE_FLAG_PROFILING_ENABLE)
    }

    /// Timestamps of a profiled command, if the queue profiles or `always` is set.
    pub(crate) fn times(&self, always: bool) -> Result<Option<Times>> {
        if !always && !self.is_profiled() {
            return Ok(None);
        }
        let queued = D::now(&self.device)?;
        Ok(Some(Times {
            queued,
            timestamps: Arc::new(Timestamps::default()),
        }))
    }

    /// Returns the event of a command without work: an event wait, a barrier, an allocation, a
    /// free. It needs the device only for timestamps.
    pub(crate) fn deliver_bookkeeping(
        this: &Object<Self>,
        command: ur_command_t,
        deps: Option<EventDependencies>,
        event: OutHandle<'_, Event<D>>,
    ) -> Result<()> {
        let Some(deps) = deps.filter(|_| event.wanted()) else {
            return Ok(());
        };
        let (deps, times) = this.timed(deps)?;
        Self::deliver(this, command, Some(deps), times, event, false)
    }

    /// `urEnqueueTimestampRecordingExp`
    pub(crate) fn timestamp(
        this: &Object<Self>,
        blocking: bool,
        waits: Handles<'_, Event<D>>,
        event: OutHandle<'_, Event<D>>,
    ) -> Result<()> {
        this.live(waits)?;
        let waits = Event::join_list(this.context(), waits)?;
        let times = this.times(true)?;
        let deps = this.submit(&waits, Work::Marker, times.as_ref(), true)?;
        let times = times.map(|Times { queued, timestamps }| Times {
            queued,
            timestamps: Timestamps::one(timestamps),
        });
        let command = UR_COMMAND_TIMESTAMP_RECORDING_EXP;
        Self::deliver(this, command, deps, times, event, blocking)
    }

    /// These dependencies with timestamps, where the queue profiles: a marker command carries them then.
    pub(crate) fn timed(
        &self,
        deps: EventDependencies,
    ) -> Result<(EventDependencies, Option<Times>)> {
        let times = self.times(false)?;
        let marked = match &times {
            Some(_) => self.submit(&deps, Work::Marker, times.as_ref(), true)?,
            None => None,
        };
        Ok((marked.unwrap_or(deps), times))
    }

    /// An event wait: after the list or, with an empty list, after all earlier commands. A barrier
    /// also delays later commands.
    pub(crate) fn join_events(
        this: &Object<Self>,
        command: ur_command_t,
        list: Handles<'_, Event<D>>,
        event: OutHandle<'_, Event<D>>,
        barrier: bool,
    ) -> Result<()> {
        this.engine().check()?;
        if let Some(recorder) = this.recorder(list)? {
            let order = match (list.is_empty(), barrier) {
                (true, true) => CaptureOrder::FullBarrier,
                (true, false) => CaptureOrder::Everything,
                (false, true) => CaptureOrder::Barrier,
                (false, false) => CaptureOrder::Command,
            };
            let made = Command::new(command, Work::Marker);
            return match recorder {
                Recorder::Graph => capture::record(this, made, list, event, order),
                Recorder::Stream => stream_capture::submit(this, made, list, event),
            };
        }
        let waits = Event::join_list(this.context(), list)?;
        let deps = match &this.shape {
            Shape::InOrder(lane) => {
                let mut state = lane.after(&waits)?;
                event.wanted().then(|| lane.dependencies(&mut state))
            }
            Shape::OutOfOrder(lanes) => {
                let everything = list.is_empty();
                Some(
                    lanes
                        .lock()
                        .join_events(&waits, everything, barrier)?
                        .into(),
                )
            }
        };
        Self::deliver_bookkeeping(this, command, deps, event)
    }

    /// Adds a host-signalled point to the queue. Returns the point and the dependencies of the
    /// host.
    pub(crate) fn hold(
        &self,
        waits: &Dependencies,
        signal: HostSignal<D>,
    ) -> Result<(HostPoint<D>, Dependencies)> {
        match &self.shape {
            Shape::InOrder(lane) => lane.hold(waits, signal),
            Shape::OutOfOrder(lanes) => Ok(lanes.lock().hold(waits, signal)),
        }
    }

    /// Everything enqueued so far.
    pub(crate) fn everything(&self) -> Frontier {
        match &self.shape {
            Shape::InOrder(lane) => lane.tip(),
            Shape::OutOfOrder(lanes) => lanes.lock().everything(),
        }
    }

    pub(crate) fn flush_here(&self) -> Result<()> {
        self.engine().check()?;
        match &self.shape {
            Shape::InOrder(lane) => lane.flush(),
            Shape::OutOfOrder(lanes) => lanes.lock().flush(),
        }
    }

    /// Releases markers up to `done`, which is complete and held by no event.
    pub(crate) fn forget(&self, done: &Frontier) {
        match &self.shape {
            Shape::InOrder(lane) => lane.forget(),
            Shape::OutOfOrder(lanes) => lanes.lock().forget(done),
        }
    }

    pub(crate) fn finish_here(&self) -> Result<()> {
        self.engine().check()?;
        let mut all = self.everything();
        if let Shape::InOrder(lane) = &self.shape {
            // Commands dropped behind a failure end before an earlier host task.
            all.join(&self.engine().unsignalled(&lane.waited()));
            let pools = || self.context.domain().memory.pools();
            lane.plan(|keys, cache, order| {
                pools()
                    .iter()
                    .for_each(|core| core.plan(keys, cache, order));
            });
        }
        let waited = self.engine().wait(&all);
        let failed = match &self.shape {
            Shape::InOrder(lane) => lane.report(),
            Shape::OutOfOrder(lanes) => lanes.lock().report(),
        };
        self.context.domain().settle();
        let tasks = self.failures.report();
        waited.and(failed).and(tasks)
    }

    /// Records a host task that did not run since a dependency failed.
    pub(crate) fn add_failure(&self, why: &Arc<Failure>) {
        self.failures.add(why);
        self.context.domain().add_failure(why);
    }

    pub(crate) fn info(this: &Object<Self>, what: QueueInfo, out: InfoOut<'_>) -> Result<()> {
        let on_device = || Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
        match what {
            QueueInfo::Context => out.handle(Some(&*this.context)),
            QueueInfo::Device => out.handle(Some(&*this.device)),
            QueueInfo::DeviceDefault | QueueInfo::Size => Err(on_device()),
            QueueInfo::Flags => out.value(this.flags()),
            QueueInfo::ReferenceCount => out.value(this.api_refs()),
            QueueInfo::Empty => out.boolean(this.engine().is_done(&this.everything())?),
        }
    }
}

impl<D: Driver> CommandQueue<D> for Object<Queue<D>> {
    #[inline]
    fn context(&self) -> &Arc<Object<Context<D>>> {
        &self.context
    }

    fn device(&self) -> &Object<D::Device> {
        &self.device
    }

    fn handle(&self) -> *mut c_void {
        Object::handle(self)
    }

    fn mark(&self, after: &Dependencies) -> Result<Option<EventDependencies>> {
        self.submit(after, Work::Marker, None, true)
    }

    fn forget(&self, done: &Frontier) {
        Queue::forget(self, done);
    }
}

fn watched<D: Driver>(shape: &Shape<D>) -> Option<LaneId> {
    Trace::get()?;
    Some(match shape {
        Shape::InOrder(lane) => lane.clock.id(),
        // A lane identity that no lane has.
        Shape::OutOfOrder(_) => Clock::new().id(),
    })
}

impl<D: Driver> Drop for Queue<D> {
    fn drop(&mut self) {
        match &self.shape {
            Shape::InOrder(lane) => Arc::clone(lane).retire(),
            Shape::OutOfOrder(lanes) => lanes.lock().retire(),
        }
    }
}

//! Events: handles on the completion of commands.
//!
//! | state | when |
//! |---|---|
//! | queued | always, for a captured command, by a capture of ours or of the native stream |
//! | submitted | a dependency of the command is not complete |
//! | running | all dependencies are complete, the command is not |
//! | complete | the command was observed complete; also a recorded command that was not submitted yet: see `execution` |
//! | error | the command failed or did not run since a dependency failed, or the driver is lost |
//!
//! Each query derives the state from the frontier, so elided commands share completion without
//! sharing a handle.
//!
//! Owns the handle, its callbacks and its native object. Uses `context` and the folders below it;
//! asks a command's queue by [`CommandQueue`]. Must never know a queue or a graph.

pub(crate) mod execution;
mod reusable;

use crate::abi::*;
use crate::hal::{self, EventInfo, ProfilingInfo};
use crate::object::{Body, Error, Handles, InfoOut, Object, Result, ensure};
use crate::stream::driver::{call_user_anyway, is_failure, is_lost};
use crate::stream::engine::ForeignPoint;
use crate::stream::engine::dependencies::{Dependencies, DependencyList, EventDependencies};
use crate::stream::event::execution::RecordedExecution;
use crate::stream::event::reusable::Reusable;
use crate::stream::{Context, Driver, Engine, Timestamps};
use crate::sync::Mutex;
use crate::timeline::{Failure, Frontier};
use std::any::Any;
use std::borrow::Cow;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// An event's handle.
///
/// Small, since nearly every command makes one: rare fields are boxed.
pub struct Event<D: Driver> {
    // Dropped by hand in `drop`, which has a short way for most events.
    owner: ManuallyDrop<EventOwner<D>>,
    source: ManuallyDrop<EventSource>,
    /// The native object, once it was asked for.
    native: ManuallyDrop<OnceLock<Box<Native<D>>>>,
    command: ur_command_t,
    failed: AtomicBool,
    /// Whether the host has waited for the event.
    awaited: AtomicBool,
}

struct Native<D: Driver> {
    marker: D::Marker,
    /// The point of an event that the backend made.
    foreign: Option<ForeignPoint<D>>,
    /// Whether it belongs to a capture of a native stream: it must not be asked about.
    captured: AtomicBool,
    /// The point of an opened event, as it was signalled last.
    opened: Mutex<Option<ForeignPoint<D>>>,
    /// The queue of that event's command, once it was asked for.
    queue: OnceLock<Option<Arc<dyn CommandQueue<D>>>>,
}

/// The object that an event belongs to.
enum EventOwner<D: Driver> {
    Queue(Arc<dyn CommandQueue<D>>),
    Context(Arc<Object<Context<D>>>),
}

/// The command that an event stands for.
enum EventSource {
    /// A submitted command.
    Command(EventDependencies, Option<Times>),
    /// A recorded command: its current execution.
    Recorded(Box<RecordedExecution>),
    /// A captured command, by its index in the graph. Only commands of the same capture can wait
    /// for it.
    Captured(Weak<AnyGraph>, u32),
    /// A command on a native stream that foreign code captures. Its native object stands for it in that
    /// capture.
    InStreamCapture,
    /// The last command that signalled a reusable event.
    Reusable(Box<Reusable>),
    /// A command of another process.
    Opened,
}

/// A graph of unknown type.
type AnyGraph = dyn Any + Send + Sync;

/// The queue of a command, as the command's event asks it.
pub(crate) trait CommandQueue<D: Driver>: Send + Sync {
    fn context(&self) -> &Arc<Object<Context<D>>>;

    fn device(&self) -> &Object<D::Device>;

    /// The queue's handle. Adds no reference.
    fn handle(&self) -> *mut c_void;

    /// Submits a marker after these dependencies. Returns the dependencies of its event.
    fn mark(&self, after: &Dependencies) -> Result<Option<EventDependencies>>;

    /// Releases markers up to `done`, which is complete and held by no event.
    fn forget(&self, done: &Frontier);
}

/// A captured command never runs by itself, so nothing outside its capture can wait for it.
const CAPTURED: Error = Error::new(UR_RESULT_ERROR_INVALID_OPERATION);

/// As [`CAPTURED`], for a capture of the native stream.
const IN_STREAM_CAPTURE: Error = Error::new(UR_RESULT_ERROR_GRAPH_INTERNAL_EVENT);

/// Times in nanoseconds of the device's clock.
#[derive(Clone)]
pub(crate) struct Times {
    pub queued: u64,
    pub timestamps: Arc<Timestamps>,
}

impl<D: Driver> Body for Event<D> {
    const KIND: crate::object::Kind = crate::object::Kind::Event;
}

impl<D: Driver> Event<D> {
    /// The event of a command with these dependencies.
    #[inline]
    pub(crate) fn new<Q: Body>(
        queue: &Object<Q>,
        command: ur_command_t,
        deps: EventDependencies,
        times: Option<Times>,
    ) -> Self
    where
        Object<Q>: CommandQueue<D>,
    {
        Self::made(
            EventOwner::Queue(queue.arc()),
            command,
            EventSource::Command(deps, times),
        )
    }

    #[inline]
    fn made(owner: EventOwner<D>, command: ur_command_t, source: EventSource) -> Self {
        Self {
            owner: ManuallyDrop::new(owner),
            source: ManuallyDrop::new(source),
            native: ManuallyDrop::default(),
            command,
            failed: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
        }
    }

    /// The event of a recorded command.
    pub(crate) fn recorded(
        context: &Arc<Object<Context<D>>>,
        command: ur_command_t,
        recording: u64,
        node: u32,
    ) -> Arc<Object<Self>> {
        let execution = RecordedExecution::new(recording, node);
        hal::new::<D, _>(Self::made(
            EventOwner::Context(Arc::clone(context)),
            command,
            EventSource::Recorded(Box::new(execution)),
        ))
    }

    /// The event of a captured command.
    pub(crate) fn of_graph<Q: Body, G: Body>(
        queue: &Object<Q>,
        command: ur_command_t,
        graph: &Arc<Object<G>>,
        node: u32,
    ) -> Arc<Object<Self>>
    where
        Object<Q>: CommandQueue<D>,
    {
        let graph = Arc::downgrade(graph) as Weak<AnyGraph>;
        hal::new::<D, _>(Self::made(
            EventOwner::Queue(queue.arc()),
            command,
            EventSource::Captured(graph, node),
        ))
    }

    /// The event of a command on a captured native stream. `marker` is recorded behind it there.
    pub(crate) fn in_stream_capture<Q: Body>(
        queue: &Object<Q>,
        command: ur_command_t,
        marker: D::Marker,
    ) -> Arc<Object<Self>>
    where
        Object<Q>: CommandQueue<D>,
    {
        let owner = EventOwner::Queue(queue.arc());
        let mut event = Self::made(owner, command, EventSource::InStreamCapture);
        *event.native = OnceLock::from(Box::new(Native {
            marker,
            foreign: None,
            captured: AtomicBool::new(true),
            opened: Mutex::default(),
            queue: OnceLock::new(),
        }));
        hal::new::<D, _>(event)
    }

    pub(crate) fn is_captured(&self) -> bool {
        self.is_in_graph() || self.in_capture_of_stream().is_some()
    }

    pub(crate) fn is_in_graph(&self) -> bool {
        matches!(*self.source, EventSource::Captured(..))
    }

    /// The native object of an event that belongs to a capture of a native stream.
    pub(crate) fn in_capture_of_stream(&self) -> Option<&D::Marker> {
        let native = self.native.get()?;
        let captured = native.captured.load(Ordering::Acquire);
        captured.then_some(&native.marker)
    }

    /// Records that an event of [`Event::unknown_marker`] belongs to a capture: the backend has said so.
    pub(crate) fn set_captured(&self) {
        if let Some(native) = self.native.get() {
            native.captured.store(true, Ordering::Release);
        }
    }

    /// The native object of an event that the backend made, unless the event is known to be complete. Nothing is
    /// asked about it: it may be a captured stream's.
    pub(crate) fn unknown_marker(&self) -> Option<&D::Marker> {
        let native = self
            .native
            .get()
            .filter(|native| native.foreign.is_some())?;
        let complete = self
            .dependencies()
            .is_ok_and(|deps| deps.done.is_complete());
        (!complete).then_some(&native.marker)
    }

    /// Whether the command has ended. An error if it failed.
    pub(crate) fn has_ended(&self) -> Result<bool> {
        let deps = self.dependencies()?;
        let done = self.engine().is_done(&deps.done)?;
        let failed = self.failed.load(Ordering::Relaxed) || deps.failure().is_some();
        ensure(!failed, UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS)?;
        Ok(done)
    }

    /// The graph of a captured command and its index; an error if the graph has ended.
    #[allow(clippy::type_complexity)]
    #[inline]
    pub(crate) fn captured<G: Body>(&self) -> Option<(Result<Arc<Object<G>>>, u32)> {
        match &*self.source {
            EventSource::Captured(graph, node) => {
                let graph = graph.upgrade().and_then(|graph| graph.downcast().ok());
                Some((graph.ok_or(CAPTURED), *node))
            }
            _ => None,
        }
    }

    /// The index of the command, if it is of this recording.
    pub(crate) fn node_of(&self, recording: u64) -> Option<u32> {
        match &*self.source {
            EventSource::Recorded(execution) if execution.recording == recording => {
                Some(execution.node)
            }
            _ => None,
        }
    }

    /// Binds the event of a recorded command to this execution; none if its submission failed.
    pub(crate) fn set_execution(&self, execution: Option<(EventDependencies, Option<Times>)>) {
        let own = match &*self.source {
            EventSource::Recorded(recorded) => recorded,
            EventSource::Reusable(own) => &own.execution,
            _ => {
                debug_assert!(false, "only a recorded or reusable event has executions");
                return;
            }
        };
        own.set_execution(execution);
        self.failed.store(false, Ordering::Relaxed);
    }

    /// The dependencies of a submitted command, which stay as they are. None of any other event, and of a command that a
    /// capture of its stream records.
    #[inline]
    fn submitted(&self) -> Option<&EventDependencies> {
        match &*self.source {
            EventSource::Command(deps, _) if self.in_capture_of_stream().is_none() => Some(deps),
            _ => None,
        }
    }

    /// The current dependencies.
    fn dependencies(&self) -> Result<Cow<'_, Dependencies>> {
        match &*self.source {
            EventSource::Command(..) => {
                let deps = self.submitted().ok_or(IN_STREAM_CAPTURE)?;
                Ok(Cow::Borrowed(deps))
            }
            EventSource::Recorded(execution) => execution
                .dependencies()
                .map(|deps| Cow::Owned((*deps).clone())),
            EventSource::Captured(..) => Err(CAPTURED),
            EventSource::InStreamCapture => Err(IN_STREAM_CAPTURE),
            EventSource::Reusable(own) => {
                let deps = own.execution.dependencies();
                deps.map(|deps| Cow::Owned((*deps).clone()))
            }
            EventSource::Opened => self.opened().map(|deps| Cow::Owned((*deps).clone())),
        }
    }

    /// An event that the backend made: a timeline of one point. `timestamps`: the time of the enqueue,
    /// and the timestamps.
    pub fn adopt(
        context: &Object<Context<D>>,
        command: ur_command_t,
        marker: D::Marker,
        timestamps: Option<(u64, Arc<Timestamps>)>,
    ) -> Result<Arc<Object<Self>>> {
        let engine = context.domain().engine();
        engine.check()?;
        let foreign = engine.foreign_point(marker.clone());
        let point = Frontier::from(foreign.point.clone());
        let deps = Dependencies {
            done: point.clone(),
            order: point,
            own: true,
            ..Dependencies::default()
        };
        let times = timestamps.map(|(queued, timestamps)| Times { queued, timestamps });
        let foreign = Some(foreign);
        let mut event = Self::made(
            EventOwner::Context(context.arc()),
            command,
            EventSource::Command(deps.into(), times),
        );
        *event.native = OnceLock::from(Box::new(Native {
            marker,
            foreign,
            captured: AtomicBool::new(false),
            opened: Mutex::default(),
            queue: OnceLock::new(),
        }));
        Ok(hal::new::<D, _>(event))
    }

    /// A complete event without a command.
    pub(crate) fn complete(context: &Object<Context<D>>) -> Result<Arc<Object<Self>>> {
        context.domain().engine().check()?;
        Ok(hal::new::<D, _>(Self::made(
            EventOwner::Context(context.arc()),
            UR_COMMAND_ENQUEUE_NATIVE_EXP,
            EventSource::Command(EventDependencies::default(), None),
        )))
    }

    /// The native object of the event, which lives as long as the event.
    pub fn marker(&self) -> Result<D::Marker> {
        if let Some(native) = self.native.get() {
            return Ok(native.marker.clone());
        }
        let marker = self.find_marker()?;
        let native = || {
            Box::new(Native {
                marker,
                foreign: None,
                captured: AtomicBool::new(false),
                opened: Mutex::default(),
                queue: OnceLock::new(),
            })
        };
        Ok(self.native.get_or_init(native).marker.clone())
    }

    fn find_marker(&self) -> Result<D::Marker> {
        let engine = self.engine();
        engine.check()?;
        let EventSource::Command(deps, _) = &*self.source else {
            // The native object would stand for one execution, the event for each in turn.
            return Err(Error::unsupported());
        };
        let mut rest = deps.done.clone();
        rest.prune();
        if let Some(point) = rest.single()
            && let Some(mark) = engine.mark(point)?
        {
            return Ok(mark.marker);
        }
        if !rest.is_empty()
            && let Some(queue) = self.queue()
            && let Some(deps) = queue.mark(deps)?
            && let Some(point) = deps.done.single()
            && let Some(mark) = engine.mark(point)?
        {
            return Ok(mark.marker);
        }
        // All is complete: a signalled point stands for it.
        let (marker, signal) = D::host_point(self.context().domain())?;
        D::signal(signal);
        Ok(marker)
    }

    pub fn context(&self) -> &Arc<Object<Context<D>>> {
        match &*self.owner {
            EventOwner::Queue(queue) => queue.context(),
            EventOwner::Context(context) => context,
        }
    }

    fn queue(&self) -> Option<&Arc<dyn CommandQueue<D>>> {
        match &*self.owner {
            EventOwner::Queue(queue) => Some(queue),
            EventOwner::Context(_) => None,
        }
    }

    /// The queue of its command. For an adopted event the result of `adopted`, asked once.
    fn command_queue(
        &self,
        adopted: impl FnOnce(&D::Marker) -> Result<Option<Arc<dyn CommandQueue<D>>>>,
    ) -> Result<Option<&Arc<dyn CommandQueue<D>>>> {
        let native = self.native.get().filter(|native| native.foreign.is_some());
        let Some(native) = native else {
            return Ok(self.queue());
        };
        if let Some(queue) = native.queue.get() {
            return Ok(queue.as_ref());
        }
        let queue = adopted(&native.marker)?;
        Ok(native.queue.get_or_init(|| queue).as_ref())
    }

    pub fn command(&self) -> ur_command_t {
        self.command
    }

    fn engine(&self) -> &Arc<Engine<D>> {
        self.context().domain().engine()
    }

    /// The dependencies of a wait list: see [`Event::join`].
    #[inline]
    pub(crate) fn join_list<'a>(
        context: &Object<Context<D>>,
        list: Handles<'a, Self>,
    ) -> Result<Cow<'a, Dependencies>> {
        match list.is_empty() {
            true => Ok(Cow::Borrowed(Dependencies::none())),
            false => Self::join(context, list.iter()),
        }
    }

    /// The dependencies of a wait list for a command of `context`. An error if an event of the list
    /// has failed.
    pub(crate) fn join<'a>(
        context: &Object<Context<D>>,
        events: impl IntoIterator<Item = &'a Object<Self>>,
    ) -> Result<Cow<'a, Dependencies>> {
        let mut all = Cow::Borrowed(Dependencies::none());
        Self::for_each(context, events, |deps| match all.is_empty() {
            true => all = deps,
            false => all.to_mut().join(&deps),
        })?;
        Ok(all)
    }

    /// As [`Event::join_list`], one set for each event.
    pub(crate) fn dependency_list<'a>(
        context: &Object<Context<D>>,
        list: Handles<'a, Self>,
    ) -> Result<DependencyList<'a>> {
        let mut all = DependencyList::new();
        Self::for_each(context, list.iter(), |deps| all.push(deps))?;
        Ok(all)
    }

    fn for_each<'a>(
        context: &Object<Context<D>>,
        events: impl IntoIterator<Item = &'a Object<Self>>,
        mut take: impl FnMut(Cow<'a, Dependencies>),
    ) -> Result<()> {
        for event in events {
            let deps = event.dependencies()?;
            let failed = event.failed.load(Ordering::Relaxed) || deps.failure().is_some();
            ensure(!failed, UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS)?;
            if deps.done.is_complete() {
                continue;
            }
            let near = D::SPANS || std::ptr::eq(&**event.context(), context);
            take(match near && !(D::FOREIGN_ON_HOST && event.is_foreign()) {
                true => deps,
                false => Cow::Owned(event.host_proxy(&deps, context)?),
            });
        }
        Ok(())
    }

    /// Whether the backend made the event.
    fn is_foreign(&self) -> bool {
        let native = self.native.get();
        native.is_some_and(|native| native.foreign.is_some())
    }

    /// A host point that is signalled once the event has completed, for lanes that cannot wait for
    /// the event.
    fn host_proxy(
        &self,
        deps: &Dependencies,
        context: &Object<Context<D>>,
    ) -> Result<Dependencies> {
        let engine = self.engine();
        let point = engine.host_point(context.domain())?;
        let done = Frontier::from(point.point.clone());
        let mut order = deps.order.clone();
        order.join(&done);
        engine.when(deps.clone(), move |failure| {
            point.end(failure.map(|_| Failure::new()));
        })?;
        Ok(Dependencies {
            done,
            order,
            ..Dependencies::default()
        })
    }

    /// Blocks the host until it is complete.
    pub(crate) fn wait_here(&self) -> Result<()> {
        let engine = self.engine();
        engine.check()?;
        ensure(
            !self.failed.load(Ordering::Relaxed),
            UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS,
        )?;
        // A second wait has nothing to wait for and learns nothing new.
        if self.awaited.load(Ordering::Acquire) {
            return Ok(());
        }
        let Some(deps) = self.submitted() else {
            // The event of a recorded command stands for another execution next.
            let deps = self.dependencies()?;
            return self.end_wait(engine.wait_dependencies(&deps));
        };
        self.end_wait(engine.wait_dependencies(deps))?;
        self.awaited.store(true, Ordering::Release);
        Ok(())
    }

    /// The result of a wait. The event has failed if the driver could not tell.
    #[inline]
    fn end_wait(&self, waited: Result<()>) -> Result<()> {
        waited.map_err(|error| match is_failure(error) || is_lost(error) {
            true => error,
            false => self.fail(),
        })
    }

    /// As [`Event::wait_here`] of each, then gives back what pools hold beyond their thresholds.
    pub(crate) fn wait_all(events: Handles<'_, Self>) -> Result<()> {
        let waited = events.iter().map(|event| event.wait_here());
        let result = waited.fold(Ok(()), Result::and);
        for event in events.iter() {
            event.context().domain().settle();
        }
        result
    }

    fn fail(&self) -> Error {
        self.failed.store(true, Ordering::Relaxed);
        Error::new(UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS)
    }

    /// The status of the command. An error if the device is lost.
    fn status(&self) -> Result<ur_event_status_t> {
        if self.failed.load(Ordering::Relaxed) {
            return Ok(UR_EVENT_STATUS_ERROR);
        }
        if self.in_capture_of_stream().is_some() {
            return Ok(UR_EVENT_STATUS_QUEUED);
        }
        let deps = match &*self.source {
            EventSource::Command(deps, _) => EventDependencies::clone(deps),
            EventSource::Recorded(execution) => match execution.dependencies() {
                Ok(deps) => deps,
                Err(_) => return Ok(UR_EVENT_STATUS_ERROR),
            },
            EventSource::Captured(..) | EventSource::InStreamCapture => {
                return Ok(UR_EVENT_STATUS_QUEUED);
            }
            EventSource::Reusable(own) => match own.execution.dependencies() {
                Ok(deps) => deps,
                Err(_) => return Ok(UR_EVENT_STATUS_ERROR),
            },
            EventSource::Opened => match self.opened() {
                Ok(deps) => deps,
                Err(_) => return Ok(UR_EVENT_STATUS_ERROR),
            },
        };
        let engine = self.engine();
        let done = engine.is_done(&deps.done);
        if deps.failure().is_some() {
            return Ok(UR_EVENT_STATUS_ERROR);
        }
        match done {
            Err(error) if is_lost(error) => Err(error),
            Err(_) => {
                self.fail();
                Ok(UR_EVENT_STATUS_ERROR)
            }
            Ok(true) => {
                deps.order.mark_complete();
                Ok(UR_EVENT_STATUS_COMPLETE)
            }
            Ok(false) if deps.before().is_done() => Ok(UR_EVENT_STATUS_RUNNING),
            Ok(false) => Ok(UR_EVENT_STATUS_SUBMITTED),
        }
    }
}

impl<D: Driver> Drop for Event<D> {
    #[inline]
    fn drop(&mut self) {
        if !D::TRACKS
            && let Some(queue) = self.queue()
            && let EventSource::Command(deps, _) = &*self.source
            && deps.done.is_done()
        {
            queue.forget(&deps.done);
        }
        match (&mut *self.owner, &mut *self.source, self.native.get()) {
            // SAFETY: nothing else drops them, nobody uses them any more, and there is nothing else to drop:
            // no times, no native object.
            (EventOwner::Queue(queue), EventSource::Command(deps, None), None) => unsafe {
                ptr::drop_in_place(deps);
                ptr::drop_in_place(queue);
            },
            _ => self.drop_slowly(),
        }
    }
}

impl<D: Driver> Event<D> {
    /// Drops an event with rare fields.
    #[cold]
    fn drop_slowly(&mut self) {
        // Commands may signal what other processes wait for.
        if matches!(&*self.source, EventSource::Reusable(_))
            && let Some(native) = self.native.take()
        {
            self.context().drop_after_use(native.marker);
        }
        // Others may wait for the point of a foreign event, so it stays until it is complete. Nobody waits for
        // one of a capture.
        if let Some(mut native) = self.native.take()
            && !*native.captured.get_mut()
            && let Some(foreign) = native.foreign.or_else(|| native.opened.get_mut().take())
            && !foreign.point.is_done()
        {
            let point = Frontier::from(foreign.point.clone());
            let kept = self.engine().when(point.into(), move |_| drop(foreign));
            if let Err(error) = kept {
                log::error!("a foreign event is forgotten: {:?}", error.code());
            }
        }
        // SAFETY: only `drop` calls this, and does nothing after.
        unsafe {
            ManuallyDrop::drop(&mut self.owner);
            ManuallyDrop::drop(&mut self.source);
        }
    }
}

/// A user's callback, and its arguments.
struct Callback<D: Driver> {
    run: <ur_event_callback_t as hal::Unwrapped>::Fn,
    event: Arc<Object<Event<D>>>,
    status: ur_execution_info_t,
    data: *mut c_void,
}

// SAFETY: the caller of `urEventSetCallback` promises that the callback may run on another thread.
unsafe impl<D: Driver> Send for Callback<D> {}

impl<D: Driver> Callback<D> {
    fn call(self) {
        let event = &self.event;
        // SAFETY: the user's function, called once with the user's data and a live event.
        let call = || unsafe { (self.run)(event.handle().cast(), self.status, self.data) };
        let device = event.queue().map(|queue| queue.device());
        call_user_anyway::<D>(device.unwrap_or(&event.context().devices()[0]), call);
    }
}

impl<D: Driver> Event<D> {
    /// `adopted`: finds the queue of an adopted event's command.
    pub(crate) fn info(
        this: &Object<Self>,
        what: EventInfo,
        out: InfoOut<'_>,
        adopted: impl FnOnce(&D::Marker) -> Result<Option<Arc<dyn CommandQueue<D>>>>,
    ) -> Result<()> {
        match what {
            EventInfo::CommandQueue => {
                let queue = this.command_queue(adopted)?;
                out.value(queue.map_or(ptr::null_mut(), |queue| queue.handle()))
            }
            EventInfo::Context => out.handle(Some(&**this.context())),
            EventInfo::CommandType => out.value(this.command),
            EventInfo::CommandExecutionStatus => out.value(this.status()?),
            EventInfo::ReferenceCount => out.value(this.api_refs()),
        }
    }

    pub(crate) fn profiling_info(&self, what: ProfilingInfo, out: InfoOut<'_>) -> Result<()> {
        let unknown = Error::new(UR_RESULT_ERROR_PROFILING_INFO_NOT_AVAILABLE);
        let times = match &*self.source {
            EventSource::Command(_, times) => times.clone(),
            EventSource::Recorded(execution) => execution.times(),
            EventSource::Reusable(own) => own.execution.times(),
            EventSource::Captured(..) | EventSource::InStreamCapture | EventSource::Opened => None,
        };
        let times = times.ok_or(unknown)?;
        times.timestamps.refresh();
        let stamp = |stamp: &std::sync::atomic::AtomicU64| match stamp.load(Ordering::Acquire) {
            0 => Err(unknown),
            time => Ok(time),
        };
        out.value(match what {
            ProfilingInfo::CommandQueued | ProfilingInfo::CommandSubmit => times.queued,
            ProfilingInfo::CommandStart => stamp(&times.timestamps.start)?,
            ProfilingInfo::CommandEnd | ProfilingInfo::CommandComplete => {
                stamp(&times.timestamps.end)?
            }
        })
    }

    pub(crate) fn add_callback(
        this: &Object<Self>,
        status: ur_execution_info_t,
        notify: <ur_event_callback_t as hal::Unwrapped>::Fn,
        user_data: *mut c_void,
    ) -> Result<()> {
        let frontier = match status {
            UR_EXECUTION_INFO_COMPLETE => this.dependencies()?.done.clone(),
            UR_EXECUTION_INFO_RUNNING => this.dependencies()?.before(),
            // Every command is submitted when its event is made.
            UR_EXECUTION_INFO_SUBMITTED => Frontier::new(),
            _ => return Err(Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION)),
        };
        let callback = Callback {
            run: notify,
            event: this.arc(),
            status,
            data: user_data,
        };
        this.engine()
            .when(frontier.into(), move |_| callback.call())
    }
}

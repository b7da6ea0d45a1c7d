//! Deferred submission: work that waits for the host is submitted to the stream later.
//!
//! A stream could wait for the host by itself, at a price: CUDA's then stops its channel, and
//! OpenCL's runs the commands behind a wait that failed. So a stream defers its work while it waits
//! for a pending host point. The thread that signals the point submits that work, or drops it if
//! the point failed. A marker of deferred work is a deferred event. Only a stream that is open to
//! foreign submitters waits by itself.
//!
//! | state of a stream | left when |
//! |---|---|
//! | submits work at once | it has to wait for a pending host point or an unrecorded deferred event |
//! | defers work | all of its waits are satisfied, or it is opened to foreign submitters |
//! | drops work: a dependency failed, or deferred work was refused | [`Deferred::recover`] |
//!
//! The lock of the deferred state is held during submission, which keeps the order. Waiters of deferred
//! events are notified after it is released.

use crate::object::{Error, Result};
use crate::stream::CompletionCallback;
use crate::stream::driver::FAILED;
use crate::sync::{AtomicBool, AtomicU8, Condvar, Mutex, MutexGuard, Ordering, rank};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};

/// A backend's stream as deferred submission uses it.
pub trait Stream: Send + Sync + Sized + 'static {
    /// One piece of work, with everything that it needs until its submission.
    type Work: Send;
    /// A position in a stream. Cheap to clone.
    type Event: Clone + Send + Sync;
    /// The backend's object that a stream waits on by itself for the host.
    type Point: Send + Sync;

    fn deferred(&self) -> &Deferred<Self>;

    /// Whether each command depends on the one before, as on an in-order queue.
    fn is_chained(&self) -> bool;

    /// Submits work now.
    fn submit(&self, work: Self::Work) -> Result<()>;

    /// Records an event behind all submitted work.
    fn record(&self) -> Result<Self::Event>;

    /// Makes the stream wait for work of another stream, which ends without the host.
    fn wait(&self, event: &Self::Event) -> Result<()>;

    /// Makes the stream itself wait for the host.
    fn wait_point(&self, point: &Arc<HostPoint<Self>>) -> Result<()>;

    /// Releases the streams that wait for the point themselves, also if it failed.
    fn signal(point: &Self::Point);

    /// As [`Driver::is_done`](crate::stream::Driver::is_done).
    fn is_done(event: &Self::Event) -> Result<bool>;

    /// As [`Driver::block`](crate::stream::Driver::block).
    fn block(event: &Self::Event) -> Result<()>;

    /// As [`Driver::notify`](crate::stream::Driver::notify).
    fn notify(event: &Self::Event, then: CompletionCallback) -> Option<CompletionCallback> {
        let _ = event;
        Some(then)
    }
}

/// The deferred work of a stream.
pub struct Deferred<S: Stream> {
    /// The reasons to defer or drop work, as bits. Submissions come one at a time, by the engine's
    /// promise, and only they defer work: a submitter that reads none needs no lock. Each bit
    /// changes by itself, so that a failure recorded meanwhile stays.
    reasons: AtomicU8,
    state: Mutex<DeferredState<S>, { rank::DEFERRED }>,
}

struct DeferredState<S: Stream> {
    /// Deferred steps, in order. The first one is always a wait.
    steps: VecDeque<Step<S>>,
    /// Whether foreign code may submit to the stream.
    open: bool,
    /// Number of threads that submit all deferred work now, as if the stream were open.
    submitting_all: u32,
    /// Host points that the stream waits for itself since it was opened. Once it is closed, work is
    /// deferred until they are signalled, since they may fail.
    waits: Vec<Arc<HostPoint<S>>>,
}

// Reasons to defer or drop work.
/// There are deferred steps. Changed under the lock.
const HAS_STEPS: u8 = 1;
/// A dependency of all later work has failed.
const HAS_FAILED: u8 = 2;

enum Step<S: Stream> {
    Work(S::Work),
    Wait(Marker<S>),
    /// A host point that the stream itself waits for since it was open.
    Rewait(Arc<HostPoint<S>>),
    Mark(Arc<DeferredEvent<S>>),
    /// An event behind work that was dropped.
    MarkFailed(Arc<DeferredEvent<S>>),
}

/// A position that can be waited for.
pub enum Marker<S: Stream> {
    /// All work that a stream was given, submitted already.
    Event(S::Event),
    /// All work that a stream was given, some of it deferred.
    Deferred(Arc<DeferredEvent<S>>),
    Host(Arc<HostPoint<S>>),
}

/// An event that is recorded once the deferred work before it is submitted.
pub struct DeferredEvent<S: Stream> {
    stream: Weak<S>,
    outcome: OnceLock<Outcome<S>>,
    notifier: Notifier,
}

/// The outcome of a deferred event.
enum Outcome<S: Stream> {
    Recorded(S::Event),
    /// A dependency failed. Earlier submitted work has ended when the event has.
    Failed(S::Event),
    NotRecorded(Error),
}

/// A host-signalled point.
pub struct HostPoint<S: Stream> {
    pub point: S::Point,
    failed: AtomicBool,
    notifier: Notifier,
}

/// The right to signal a point. Dropping it signals too, once.
pub struct Signal<S: Stream>(Arc<HostPoint<S>>);

/// Waiters for something that has not happened yet.
///
/// | state | released |
/// |---|---|
/// | signalled | streams that wait for it, by callbacks, one after the other |
/// | notified | threads that block for it, which find the streams resumed |
#[derive(Default)]
struct Notifier {
    signalled: AtomicBool,
    notified: AtomicBool,
    waiting: Mutex<Vec<CompletionCallback>>,
    changed: Condvar,
}

/// The result of telling a stream to wait.
enum WaitOutcome {
    /// The stream waits itself, or need not wait.
    Satisfied,
    /// The wait would block other streams.
    Blocked,
    Failed,
}

type ResumeQueue = RefCell<Option<VecDeque<Box<dyn FnOnce()>>>>;

#[cfg(not(loom))]
thread_local! {
    /// Streams that this thread has to resume, while it resumes one.
    static RESUMED: ResumeQueue = const { RefCell::new(None) };
}

#[cfg(loom)]
loom::thread_local! {
    static RESUMED: ResumeQueue = RefCell::new(None);
}

impl<S: Stream> Default for Deferred<S> {
    fn default() -> Self {
        Self {
            reasons: AtomicU8::new(0),
            state: Mutex::new(DeferredState {
                steps: VecDeque::new(),
                open: false,
                submitting_all: 0,
                waits: Vec::new(),
            }),
        }
    }
}

impl<S: Stream> Deferred<S> {
    #[inline]
    pub fn is_deferring(&self) -> bool {
        self.reasons.load(Ordering::Acquire) != 0
    }

    /// Whether foreign code may submit to the stream.
    pub fn is_open(&self) -> bool {
        self.state().open
    }

    /// Calls `run` under the lock, with whether work is deferred or dropped now.
    pub fn with_state<R>(&self, run: impl FnOnce(bool) -> R) -> R {
        let state = self.state();
        run(self.defers(&state))
    }

    /// Submits work by `now`, or defers what `later` makes of it, or drops it.
    pub fn submit<T>(
        &self,
        work: T,
        now: impl FnOnce(T) -> Result<()>,
        later: impl FnOnce(T) -> Result<S::Work>,
    ) -> Result<()> {
        let mut state = self.state();
        if !self.defers(&state) {
            return now(work);
        }
        if !self.is_dropped(&state) {
            self.defer(&mut state, Step::Work(later(work)?));
        }
        Ok(())
    }

    /// Stops dropping work. Returns whether work was dropped. Work deferred so far comes after the failure:
    /// it is dropped now.
    pub fn recover(&self) -> bool {
        let mut state = self.state();
        let before = self.reasons.fetch_and(!HAS_FAILED, Ordering::AcqRel);
        let failed = before & HAS_FAILED != 0;
        let dropped = if failed {
            state.drop_work()
        } else {
            Vec::new()
        };
        drop(state);
        drop(dropped);
        failed
    }

    /// Records the failure of a dependency of all later work.
    pub fn fail(&self) {
        self.reasons.fetch_or(HAS_FAILED, Ordering::Relaxed);
    }

    fn has_failed(&self) -> bool {
        self.reasons.load(Ordering::Relaxed) & HAS_FAILED != 0
    }

    fn defers(&self, state: &DeferredState<S>) -> bool {
        !state.steps.is_empty() || self.has_failed()
    }

    /// Whether work is dropped now: nothing before it is deferred any more.
    fn is_dropped(&self, state: &DeferredState<S>) -> bool {
        state.steps.is_empty() && self.has_failed()
    }

    fn state(&self) -> MutexGuard<'_, DeferredState<S>> {
        self.state.lock()
    }

    fn defer(&self, state: &mut DeferredState<S>, step: Step<S>) {
        debug_assert!(
            !state.steps.is_empty() || step.is_wait(),
            "deferred without a wait"
        );
        state.steps.push_back(step);
        self.reasons.fetch_or(HAS_STEPS, Ordering::Relaxed);
    }

    /// A marker of everything submitted so far, deferred work included.
    pub fn mark(this: &Arc<S>) -> Result<Marker<S>> {
        let own = this.deferred();
        if !own.is_deferring() {
            return Ok(Marker::Event(this.record()?));
        }
        let mut state = own.state();
        if !own.defers(&state) {
            return Ok(Marker::Event(this.record()?));
        }
        let event = DeferredEvent::new(this);
        match own.is_dropped(&state) {
            true => {
                event.set(Outcome::Failed(this.record()?));
                event.notify();
            }
            false => own.defer(&mut state, Step::Mark(Arc::clone(&event))),
        }
        Ok(Marker::Deferred(event))
    }

    /// Makes later commands wait for the marker.
    pub fn wait(this: &Arc<S>, marker: &Marker<S>) -> Result<()> {
        let own = this.deferred();
        if let Marker::Event(event) = marker
            && !own.is_deferring()
        {
            return this.wait(event);
        }
        let mut state = own.state();
        if state.waits_itself()
            && let Marker::Deferred(event) = marker
        {
            // Foreign work cannot be deferred behind the marker.
            drop(state);
            event.submit()?;
            state = own.state();
        }
        if own.is_dropped(&state) {
            return Ok(());
        }
        if state.steps.is_empty() {
            match state.wait_on(this, marker)? {
                WaitOutcome::Satisfied => return Ok(()),
                WaitOutcome::Blocked => {}
                WaitOutcome::Failed => {
                    own.fail();
                    return Ok(());
                }
            }
        }
        own.defer(&mut state, Step::Wait(marker.clone()));
        drop(state);
        Self::resume_after(this, marker);
        Ok(())
    }

    /// Resumes the stream once the marker is ready.
    fn resume_after(this: &Arc<S>, marker: &Marker<S>) {
        let stream = Arc::downgrade(this);
        marker.when_ready(Box::new(move || {
            if let Some(stream) = stream.upgrade() {
                Self::resume_chain(stream);
            }
        }));
    }

    /// Opens the stream to foreign submitters, or closes it.
    pub fn set_open(this: &Arc<S>, open: bool) -> Result<()> {
        if open {
            let own = this.deferred();
            own.state().open = true;
            Self::submit_all(this)?;
            debug_assert!(
                own.state().steps.is_empty(),
                "deferred work on a stream that is open to foreign work"
            );
            return Ok(());
        }
        this.deferred().state().open = false;
        Self::defer_after_waits(this);
        Ok(())
    }

    /// Defers later work until the host points are signalled that the stream waits for itself,
    /// unless it is open.
    fn defer_after_waits(this: &Arc<S>) {
        let own = this.deferred();
        let waits = {
            let mut state = own.state();
            if state.waits_itself() {
                return;
            }
            let waits = std::mem::take(&mut state.waits).into_iter();
            let (signalled, waits): (Vec<_>, Vec<_>) =
                waits.partition(|point| point.is_signalled());
            if this.is_chained() && signalled.iter().any(|point| point.outcome().is_err()) {
                own.fail();
            }
            for point in &waits {
                own.defer(&mut state, Step::Rewait(Arc::clone(point)));
            }
            waits
        };
        for point in waits {
            Self::resume_after(this, &Marker::Host(point));
        }
    }

    /// Resumes a stream, then the streams that this releases, one after the other: chains may be
    /// long.
    fn resume_chain(stream: Arc<S>) {
        let mut own: Option<Box<dyn FnOnce()>> = Some(Box::new(move || Self::resume(&stream)));
        let join = |queue: &ResumeQueue| match &mut *queue.borrow_mut() {
            Some(queue) => queue.extend(own.take()),
            none => *none = Some(VecDeque::new()),
        };
        // Without the thread-local queue, in a thread that ends, they resume recursively.
        let _ = RESUMED.try_with(join);
        let mut next = own;
        let first = next.is_some();
        while let Some(resume) = next {
            resume();
            let pop =
                |queue: &ResumeQueue| queue.borrow_mut().as_mut().and_then(VecDeque::pop_front);
            next = RESUMED.try_with(pop).unwrap_or_default();
        }
        if first {
            // A thread that ends has no queue.
            let _ = RESUMED.try_with(|queue| *queue.borrow_mut() = None);
        }
    }

    /// Submits deferred work up to the first wait that is not satisfied. Failures are reported by
    /// the markers behind them.
    fn resume(this: &Arc<S>) {
        let own = this.deferred();
        let mut recorded = Vec::new();
        let mut dropped = Vec::new();
        {
            let mut state = own.state();
            while let Some(step) = state.steps.pop_front() {
                let done = match step {
                    Step::Work(work) if own.has_failed() => {
                        dropped.push(work);
                        Ok(())
                    }
                    Step::Work(work) => this.submit(work),
                    Step::Wait(_) | Step::Rewait(_) if own.has_failed() => Ok(()),
                    Step::Rewait(point) if !point.is_signalled() => {
                        if !state.waits_itself() {
                            state.steps.push_front(Step::Rewait(point));
                            break;
                        }
                        // The stream waits itself, so what follows can be submitted.
                        state.waits.push(point);
                        Ok(())
                    }
                    Step::Rewait(point) => {
                        // On an unchained stream only work behind an explicit wait depends on the
                        // point.
                        let depends = this.is_chained() || !state.steps.is_empty();
                        if depends && point.outcome().is_err() {
                            own.fail();
                        }
                        Ok(())
                    }
                    Step::Wait(marker) => match state.wait_on(this, &marker) {
                        Ok(WaitOutcome::Satisfied) => Ok(()),
                        Ok(WaitOutcome::Blocked) => {
                            state.steps.push_front(Step::Wait(marker));
                            break;
                        }
                        Ok(WaitOutcome::Failed) => {
                            own.fail();
                            Ok(())
                        }
                        Err(error) => Err(error),
                    },
                    Step::MarkFailed(event) => {
                        event.set(Outcome::of(Self::record_anyway(this), true));
                        recorded.push(event);
                        Ok(())
                    }
                    Step::Mark(event) => {
                        let failed = own.has_failed();
                        event.set(Outcome::of(Self::record_anyway(this), failed));
                        recorded.push(event);
                        Ok(())
                    }
                };
                if let Err(error) = done {
                    log::error!("deferred work failed: {:?}", error.code());
                    own.fail();
                }
            }
            debug_assert!(
                state.steps.front().is_none_or(Step::is_wait),
                "deferred work without a wait before it"
            );
            if state.steps.is_empty() {
                // A submitter that reads no reason submits behind all of this.
                own.reasons.fetch_and(!HAS_STEPS, Ordering::Release);
            }
        }
        drop(dropped);
        // Other streams may resume now: no lock is held.
        recorded.iter().for_each(|event| event.notify());
    }

    /// Records an event that others wait for already. A driver that refuses it once is asked again.
    fn record_anyway(this: &Arc<S>) -> Result<S::Event> {
        this.record().or_else(|_| this.record())
    }

    /// Submits all deferred work: the stream itself waits, since foreign code looks at it.
    pub fn submit_all(this: &Arc<S>) -> Result<()> {
        Self::submit_until(this, None)
    }

    /// Submits the deferred work before an event, or all. Two streams may each wait for an event of the other, so that
    /// only the waits before the event come first.
    fn submit_until(this: &Arc<S>, end: Option<&DeferredEvent<S>>) -> Result<()> {
        let own = this.deferred();
        if !own.is_deferring() {
            return Ok(());
        }
        let before = |step: &&Step<S>| !end.is_some_and(|event| step.records(event));
        let pending = |step: &Step<S>| match step {
            Step::Wait(Marker::Deferred(event)) if !event.is_recorded() => Some(Arc::clone(event)),
            _ => None,
        };
        loop {
            let other = {
                let state = own.state();
                if end.is_some_and(DeferredEvent::is_recorded) {
                    // By another thread. What is deferred since comes after it.
                    return Ok(());
                }
                state.steps.iter().take_while(before).find_map(pending)
            };
            match other {
                // Waits form no cycle.
                Some(event) => event.submit()?,
                None => break,
            }
        }
        own.state().submitting_all += 1;
        Self::resume(this);
        own.state().submitting_all -= 1;
        Self::defer_after_waits(this);
        Ok(())
    }
}

impl<S: Stream> Step<S> {
    fn is_wait(&self) -> bool {
        matches!(self, Self::Wait(_) | Self::Rewait(_))
    }

    fn records(&self, event: &DeferredEvent<S>) -> bool {
        match self {
            Self::Mark(own) | Self::MarkFailed(own) => std::ptr::eq(&**own, event),
            Self::Work(_) | Self::Wait(_) | Self::Rewait(_) => false,
        }
    }
}

impl<S: Stream> DeferredState<S> {
    /// Whether the stream waits for the host itself, rather than defer work.
    fn waits_itself(&self) -> bool {
        self.open || self.submitting_all > 0
    }

    /// As [`Marker::wait_on`]. An open stream waits itself.
    fn wait_on(&mut self, stream: &S, marker: &Marker<S>) -> Result<WaitOutcome> {
        let open = self.waits_itself();
        if open
            && let Marker::Host(point) = marker
            && !point.is_signalled()
        {
            self.waits.retain(|point| !point.is_signalled());
            self.waits.push(Arc::clone(point));
        }
        marker.wait_on(stream, open)
    }

    /// Drops deferred work. Its events will report the failure. Returns the work, to be dropped without
    /// the lock.
    fn drop_work(&mut self) -> Vec<S::Work> {
        let mut dropped = Vec::new();
        for step in std::mem::take(&mut self.steps) {
            match step {
                Step::Work(work) => dropped.push(work),
                Step::Mark(event) => self.steps.push_back(Step::MarkFailed(event)),
                step => self.steps.push_back(step),
            }
        }
        dropped
    }
}

impl<S: Stream> Outcome<S> {
    fn of(event: Result<S::Event>, failed: bool) -> Self {
        match event {
            Err(error) => Self::NotRecorded(error),
            Ok(event) if failed => Self::Failed(event),
            Ok(event) => Self::Recorded(event),
        }
    }
}

impl<S: Stream> DeferredEvent<S> {
    fn new(stream: &Arc<S>) -> Arc<Self> {
        Arc::new(Self {
            stream: Arc::downgrade(stream),
            outcome: OnceLock::new(),
            notifier: Notifier::default(),
        })
    }

    fn is_recorded(&self) -> bool {
        self.outcome.get().is_some()
    }

    /// Records the outcome, under the stream's lock: an event is either among the deferred steps or recorded.
    fn set(&self, end: Outcome<S>) {
        let fresh = self.outcome.set(end).is_ok();
        debug_assert!(fresh, "a deferred event is recorded once, by its stream");
    }

    /// Notifies the waiters of a recorded event, without the stream's lock.
    fn notify(&self) {
        debug_assert!(self.is_recorded(), "notified, not recorded");
        self.notifier.signal(|| {});
    }

    /// Submits the work before it, whatever the stream has to wait for.
    fn submit(&self) -> Result<()> {
        match self.stream.upgrade() {
            Some(stream) if !self.is_recorded() => Deferred::submit_until(&stream, Some(self)),
            _ => Ok(()),
        }
    }
}

impl<S: Stream> Clone for Marker<S> {
    fn clone(&self) -> Self {
        match self {
            Self::Event(event) => Self::Event(event.clone()),
            Self::Deferred(event) => Self::Deferred(Arc::clone(event)),
            Self::Host(point) => Self::Host(Arc::clone(point)),
        }
    }
}

impl<S: Stream> Marker<S> {
    /// A new host-signalled point, and the right to signal it.
    pub fn host(point: S::Point) -> (Self, Signal<S>) {
        let point = Arc::new(HostPoint {
            point,
            failed: AtomicBool::new(false),
            notifier: Notifier::default(),
        });
        (Self::Host(Arc::clone(&point)), Signal(point))
    }

    /// The backend's object for the marker. A stream then waits for the host itself if it must.
    pub fn native(&self) -> Result<NativeMarker<'_, S>> {
        match self {
            Self::Event(event) => Ok(NativeMarker::Event(event)),
            Self::Host(point) => Ok(NativeMarker::Point(point)),
            Self::Deferred(event) => {
                event.submit()?;
                match event.outcome.get() {
                    Some(Outcome::Recorded(event) | Outcome::Failed(event)) => {
                        Ok(NativeMarker::Event(event))
                    }
                    Some(Outcome::NotRecorded(error)) => Err(*error),
                    None => Err(Error::unsupported()),
                }
            }
        }
    }

    pub fn is_done(&self) -> Result<bool> {
        match self {
            Self::Event(event) => S::is_done(event),
            Self::Deferred(event) => match event.outcome.get() {
                None => Ok(false),
                Some(Outcome::Recorded(event)) => S::is_done(event),
                Some(Outcome::Failed(event)) => match S::is_done(event)? {
                    true => Err(FAILED),
                    false => Ok(false),
                },
                Some(Outcome::NotRecorded(error)) => Err(*error),
            },
            Self::Host(point) => match point.notifier.has_notified() {
                true => point.outcome().map(|()| true),
                false => Ok(false),
            },
        }
    }

    pub fn block(&self) -> Result<()> {
        match self {
            Self::Event(event) => S::block(event),
            Self::Deferred(event) => {
                event.notifier.block();
                match event.outcome.get() {
                    Some(Outcome::Recorded(event)) => S::block(event),
                    Some(Outcome::Failed(event)) => {
                        S::block(event)?;
                        Err(FAILED)
                    }
                    Some(Outcome::NotRecorded(error)) => Err(*error),
                    None => Err(Error::unsupported()),
                }
            }
            Self::Host(point) => {
                point.notifier.block();
                point.outcome()
            }
        }
    }

    /// Calls `then` when the marker is done. Returns it if the backend has no callback.
    pub fn notify(&self, then: CompletionCallback) -> Option<CompletionCallback> {
        match self {
            Self::Host(point) => {
                point.notifier.when_signalled(then);
                None
            }
            Self::Event(event) => S::notify(event, then),
            Self::Deferred(_) => Some(then),
        }
    }

    /// Calls `then` when a stream can wait for the marker without blocking others.
    fn when_ready(&self, then: CompletionCallback) {
        match self {
            Self::Event(_) => then(),
            Self::Deferred(event) => event.notifier.when_signalled(then),
            Self::Host(point) => point.notifier.when_signalled(then),
        }
    }

    /// Makes a stream wait, unless that would block others. `open`: it waits anyway.
    fn wait_on(&self, stream: &S, open: bool) -> Result<WaitOutcome> {
        match self {
            Self::Event(event) => stream.wait(event)?,
            Self::Deferred(event) => match event.outcome.get() {
                None => return Ok(WaitOutcome::Blocked),
                Some(Outcome::Recorded(event)) => stream.wait(event)?,
                Some(Outcome::Failed(_)) => return Ok(WaitOutcome::Failed),
                Some(Outcome::NotRecorded(error)) => return Err(*error),
            },
            Self::Host(point) if point.is_signalled() => {
                if point.outcome().is_err() {
                    return Ok(WaitOutcome::Failed);
                }
            }
            Self::Host(_) if !open => return Ok(WaitOutcome::Blocked),
            Self::Host(point) => stream.wait_point(point)?,
        }
        Ok(WaitOutcome::Satisfied)
    }
}

/// The backend's object for a marker.
pub enum NativeMarker<'a, S: Stream> {
    Event(&'a S::Event),
    Point(&'a HostPoint<S>),
}

impl<S: Stream> HostPoint<S> {
    pub fn is_signalled(&self) -> bool {
        self.notifier.is_signalled()
    }

    /// The result of a signalled point.
    pub fn outcome(&self) -> Result<()> {
        match self.failed.load(Ordering::Acquire) {
            true => Err(FAILED),
            false => Ok(()),
        }
    }
}

impl<S: Stream> Signal<S> {
    /// Signals the point as failed.
    pub fn fail(self) {
        self.0.failed.store(true, Ordering::Release);
    }
}

impl<S: Stream> Drop for Signal<S> {
    fn drop(&mut self) {
        // Between signalling and notifying, so that no stream itself waits for a point that has
        // failed already.
        self.0.notifier.signal(|| S::signal(&self.0.point));
    }
}

impl Notifier {
    fn is_signalled(&self) -> bool {
        self.signalled.load(Ordering::Acquire)
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<CompletionCallback>> {
        self.waiting.lock()
    }

    /// Signals, calls `then`, and notifies the waiters.
    fn signal(&self, then: impl FnOnce()) {
        let waiting = {
            let mut waiting = self.waiting();
            debug_assert!(!self.is_signalled(), "signalled twice");
            self.signalled.store(true, Ordering::Release);
            std::mem::take(&mut *waiting)
        };
        then();
        waiting.into_iter().for_each(|then| then());
        {
            let _waiting = self.waiting();
            self.notified.store(true, Ordering::Release);
        }
        self.changed.notify_all();
    }

    fn has_notified(&self) -> bool {
        self.notified.load(Ordering::Acquire)
    }

    /// Calls `then` when it is signalled, at once if it was.
    fn when_signalled(&self, then: CompletionCallback) {
        let mut waiting = self.waiting();
        if !self.is_signalled() {
            waiting.push(then);
            return;
        }
        drop(waiting);
        then();
    }

    fn block(&self) {
        let mut waiting = self.waiting();
        while !self.has_notified() {
            waiting = self.changed.wait(waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(loom)]
    use loom::thread;

    /// A wait of the stream itself, in a list of commands.
    const NATIVE_WAIT: u8 = u8::MAX;

    /// A stream that lists its commands.
    #[derive(Default)]
    struct Listed {
        deferred: Deferred<Self>,
        list: Mutex<Vec<u8>>,
    }

    impl Stream for Listed {
        type Work = u8;
        /// Number of commands before it.
        type Event = usize;
        type Point = ();

        fn deferred(&self) -> &Deferred<Self> {
            &self.deferred
        }

        fn is_chained(&self) -> bool {
            true
        }

        fn submit(&self, work: u8) -> Result<()> {
            self.list.lock().push(work);
            Ok(())
        }

        fn record(&self) -> Result<usize> {
            Ok(self.list.lock().len())
        }

        fn wait(&self, _: &usize) -> Result<()> {
            Ok(())
        }

        fn wait_point(&self, _: &Arc<HostPoint<Self>>) -> Result<()> {
            self.submit(NATIVE_WAIT)
        }

        fn signal(_: &()) {}

        fn is_done(_: &usize) -> Result<bool> {
            Ok(true)
        }

        fn block(_: &usize) -> Result<()> {
            Ok(())
        }
    }

    impl Listed {
        /// Submits as adapters do: at once without the lock, or deferred.
        fn give(&self, work: u8) {
            let given = match self.deferred.is_deferring() {
                false => self.submit(work),
                true => self.deferred.submit(work, |work| self.submit(work), Ok),
            };
            given.unwrap();
        }
    }

    /// Foreign work comes behind all work before it, also where a stream is opened again before the
    /// host has signalled.
    #[cfg(not(loom))]
    #[test]
    fn a_stream_that_opens_again_defers_nothing() {
        let stream = Arc::new(Listed::default());
        let (marker, signal) = Marker::host(());
        Deferred::set_open(&stream, true).unwrap();
        Deferred::wait(&stream, &marker).unwrap();
        Deferred::set_open(&stream, false).unwrap();
        stream.give(1);
        assert_eq!(*stream.list.lock(), [NATIVE_WAIT], "the point may fail");
        Deferred::set_open(&stream, true).unwrap();
        assert_eq!(*stream.list.lock(), [NATIVE_WAIT, 1]);
        Deferred::set_open(&stream, false).unwrap();
        stream.give(2);
        assert_eq!(*stream.list.lock(), [NATIVE_WAIT, 1]);
        // Of the native handle of a marker, which needs the work before it.
        let mark = Deferred::mark(&stream).unwrap();
        assert!(mark.native().is_ok());
        assert_eq!(*stream.list.lock(), [NATIVE_WAIT, 1, 2]);
        stream.give(3);
        signal.fail();
        assert!(
            stream.deferred.recover(),
            "work behind the point was dropped"
        );
        assert_eq!(*stream.list.lock(), [NATIVE_WAIT, 1, 2]);
    }

    /// Two streams wait for marks of each other, behind a wait for the host. Either is opened.
    #[cfg(not(loom))]
    #[test]
    fn streams_that_wait_for_each_other_are_opened() {
        for opened in 0..2 {
            let streams = [0, 1].map(|_| Arc::new(Listed::default()));
            let (gate, signal) = Marker::host(());
            Deferred::wait(&streams[0], &gate).unwrap();
            for round in 0..4 {
                let (own, other) = (&streams[round % 2], &streams[1 - round % 2]);
                own.give(round as u8);
                let mark = Deferred::mark(own).unwrap();
                Deferred::wait(other, &mark).unwrap();
            }
            Deferred::set_open(&streams[opened], true).unwrap();
            let expected = [vec![NATIVE_WAIT, 0, 2], vec![1, 3]];
            assert_eq!(*streams[opened].list.lock(), expected[opened]);
            drop(signal);
            for (stream, expected) in streams.iter().zip(expected) {
                assert_eq!(*stream.list.lock(), expected);
            }
        }
    }

    /// Two streams wait for marks of each other. One mark is needed after its stream was resumed, when only the mark
    /// before it has been notified: it is recorded by then. Else the stream's later waits would be taken for its own, and
    /// followed without end.
    #[cfg(not(loom))]
    #[test]
    fn a_mark_is_recorded_before_waiters_of_earlier_ones_run() {
        let (one, other) = (Arc::new(Listed::default()), Arc::new(Listed::default()));
        let (gate, signal) = Marker::host(());
        Deferred::wait(&one, &gate).unwrap();
        one.give(1);
        let first = Deferred::mark(&one).unwrap();
        one.give(2);
        let second = Deferred::mark(&one).unwrap();
        Deferred::wait(&other, &second).unwrap();
        other.give(3);
        let back = Deferred::mark(&other).unwrap();
        Deferred::wait(&one, &back).unwrap();
        one.give(4);
        let found = Arc::new(OnceLock::new());
        let seen = Arc::clone(&found);
        first.when_ready(Box::new(move || seen.set(second.native().is_ok()).unwrap()));
        drop(signal);
        assert_eq!(found.get(), Some(&true));
        assert_eq!(*one.list.lock(), [1, 2, 4]);
        assert_eq!(*other.list.lock(), [3]);
    }

    /// Work leaves in the order in which it came, whenever the host signals.
    #[cfg(loom)]
    #[test]
    fn loom_deferred_work_leaves_in_order() {
        loom::model(|| {
            let stream = Arc::new(Listed::default());
            let (marker, signal) = Marker::host(());
            Deferred::wait(&stream, &marker).unwrap();
            let host = thread::spawn(move || drop(signal));
            stream.give(1);
            let mark = Deferred::mark(&stream).unwrap();
            stream.give(2);
            // No wake-up is lost.
            mark.block().unwrap();
            host.join().unwrap();
            assert_eq!(*stream.list.lock(), [1, 2]);
            match mark.native().unwrap() {
                NativeMarker::Event(before) => assert_eq!(*before, 1),
                NativeMarker::Point(_) => unreachable!("a stream's marker"),
            }
            assert!(!stream.deferred.is_deferring());
        });
    }

    /// Work behind a point that fails is dropped, whenever the host signals.
    #[cfg(loom)]
    #[test]
    fn loom_work_behind_a_failed_point_is_dropped() {
        loom::model(|| {
            let stream = Arc::new(Listed::default());
            let (marker, signal) = Marker::host(());
            Deferred::wait(&stream, &marker).unwrap();
            let host = thread::spawn(move || signal.fail());
            stream.give(1);
            let mark = Deferred::mark(&stream).unwrap();
            assert!(mark.block().is_err());
            host.join().unwrap();
            assert!(stream.list.lock().is_empty());
            assert!(stream.deferred.recover() && !stream.deferred.is_deferring());
        });
    }

    /// A failure that a submitter records while another thread resumes the stream stays.
    #[cfg(loom)]
    #[test]
    fn loom_a_failure_during_a_resumption_stays() {
        loom::model(|| {
            let stream = Arc::new(Listed::default());
            let (marker, signal) = Marker::host(());
            Deferred::wait(&stream, &marker).unwrap();
            let host = thread::spawn(move || drop(signal));
            stream.deferred.fail();
            host.join().unwrap();
            stream.give(1);
            assert!(stream.list.lock().is_empty(), "work after a failure");
            assert!(stream.deferred.recover());
            stream.give(2);
            assert_eq!(*stream.list.lock(), [2]);
        });
    }
}

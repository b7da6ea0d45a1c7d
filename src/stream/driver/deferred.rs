//! Work that a stream is given later: what waits for the host is kept back by the host.
//!
//! A stream could wait for the host by itself where the driver can, but at a price: CUDA's then stops its
//! channel, and OpenCL's runs what comes behind a wait that failed. So a stream keeps back what it is
//! given while it waits for a point that the host has yet to signal, and whoever signals gives it to the
//! stream, or drops it where the point failed. A marker of what is kept back is a promise of an event.
//! Only where others put work on the stream, too, must it wait by itself.
//!
//! | a stream | until |
//! |---|---|
//! | is given work at once | it has to wait for a point or a promise that is not there yet |
//! | keeps work back | all that it waits for is there, or it is opened to others |
//! | drops work | [`Deferred::recover`]: something that it waits for failed, or kept-back work was refused |
//!
//! The lock of what is kept back is held while work is given, so that order stays; a promise is kept and
//! its bell rung after it is let go.

use crate::object::{Error, Result};
use crate::stream::CompletionCallback;
use crate::stream::driver::FAILED;
use crate::timeline::rank;
use crate::timeline::sync::{Condvar, Mutex, MutexGuard};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// A backend's stream, as far as giving it work goes.
pub trait Stream: Send + Sync + Sized + 'static {
    /// What it is given, with all that this needs until it is.
    type Work: Send;
    /// A position in a stream. Cheap to clone.
    type Event: Clone + Send + Sync;
    /// What a stream watches that waits for the host by itself.
    type Point: Send + Sync;

    fn deferred(&self) -> &Deferred<Self>;

    /// Whether each command depends on the one before, as on an in-order queue.
    fn is_chained(&self) -> bool;

    /// Gives it work now.
    fn submit(&self, work: Self::Work) -> Result<()>;

    /// The position behind all that it was given.
    fn record(&self) -> Result<Self::Event>;

    /// Has it wait by itself for another stream's work, which ends without the host.
    fn wait(&self, event: &Self::Event) -> Result<()>;

    /// Has it wait by itself for the host.
    fn wait_point(&self, point: &Arc<HostPoint<Self>>) -> Result<()>;

    /// Has those go on that wait for the point by themselves, also where it failed.
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

/// What a stream keeps back.
pub struct Deferred<S: Stream> {
    /// Whether anything is kept back or dropped. What a stream is given comes one at a time, by the
    /// engine's promise, and nothing else is ever kept back: who gives and finds nothing here needs no
    /// lock.
    deferring: AtomicBool,
    /// Whether something failed that all that follows comes after.
    failed: AtomicBool,
    state: Mutex<DeferredState<S>, { rank::DEFERRED }>,
}

struct DeferredState<S: Stream> {
    /// What is kept back, in order. The first is always something to wait for.
    steps: VecDeque<Step<S>>,
    /// Whether others put work on the stream.
    open: bool,
    /// What the stream waits for by itself since it was opened: what comes once it is closed is kept back
    /// until that is there, since it may fail.
    waits: Vec<Arc<HostPoint<S>>>,
}

enum Step<S: Stream> {
    Work(S::Work),
    Wait(Marker<S>),
    /// What the stream was to wait for by itself while it was open.
    Rewait(Arc<HostPoint<S>>),
    Mark(Arc<DeferredEvent<S>>),
}

/// What can be waited for.
pub enum Marker<S: Stream> {
    /// Everything that a stream had been given.
    Event(S::Event),
    /// The same of a stream whose work is kept back.
    Deferred(Arc<DeferredEvent<S>>),
    Host(Arc<HostPoint<S>>),
}

/// An event that is recorded once the work before it leaves for the stream.
pub struct DeferredEvent<S: Stream> {
    stream: Weak<S>,
    outcome: OnceLock<Outcome<S>>,
    notifier: Notifier,
}

/// What became of a promise.
enum Outcome<S: Stream> {
    Recorded(S::Event),
    /// What comes before it failed. What the stream was given before has ended with the event.
    Failed(S::Event),
    NotRecorded(Error),
}

/// A point that the host signals.
pub struct HostPoint<S: Stream> {
    pub point: S::Point,
    failed: AtomicBool,
    notifier: Notifier,
}

/// The means to signal a point. Dropping it signals too, once.
pub struct Signal<S: Stream>(Arc<HostPoint<S>>);

/// Those who want to know of something that has not come to pass.
///
/// | state | who goes on |
/// |---|---|
/// | rung | streams that wait for it: they are told one after the other |
/// | told | threads that block for it, which find the streams gone on |
#[derive(Default)]
struct Notifier {
    signalled: AtomicBool,
    notified: AtomicBool,
    waiting: Mutex<Vec<CompletionCallback>>,
    changed: Condvar,
}

/// How a stream was told to wait.
enum WaitOutcome {
    /// It waits by itself, or need not.
    Satisfied,
    /// It would keep others from going on.
    Blocked,
    Failed,
}

type ResumeQueue = RefCell<Option<VecDeque<Box<dyn FnOnce()>>>>;

thread_local! {
    /// Streams that this thread is to let go on, while it does so.
    static RESUMED: ResumeQueue = const { RefCell::new(None) };
}

impl<S: Stream> Default for Deferred<S> {
    fn default() -> Self {
        Self {
            deferring: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            state: Mutex::new(DeferredState {
                steps: VecDeque::new(),
                open: false,
                waits: Vec::new(),
            }),
        }
    }
}

impl<S: Stream> Deferred<S> {
    #[inline]
    pub fn is_deferring(&self) -> bool {
        self.deferring.load(Ordering::Acquire)
    }

    /// Whether others put work on the stream.
    pub fn is_open(&self) -> bool {
        self.state().open
    }

    /// Calls `run`, and tells it whether what the stream is given now is kept back or dropped.
    pub fn with_state<R>(&self, run: impl FnOnce(bool) -> R) -> R {
        let state = self.state();
        run(self.defers(&state))
    }

    /// Gives the stream work by `now`, or keeps back what `later` makes of it, or drops it.
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

    /// What is given from now on is not dropped any more. Whether it was.
    pub fn recover(&self) -> bool {
        let state = self.state();
        let failed = self.failed.swap(false, Ordering::Relaxed);
        self.deferring.store(self.defers(&state), Ordering::Release);
        failed
    }

    /// Something failed that what is given from now on comes after.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
        self.deferring.store(true, Ordering::Release);
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    fn defers(&self, state: &DeferredState<S>) -> bool {
        !state.steps.is_empty() || self.has_failed()
    }

    /// Whether what is given now is dropped: what comes before it is not kept back any more.
    fn is_dropped(&self, state: &DeferredState<S>) -> bool {
        state.steps.is_empty() && self.has_failed()
    }

    fn state(&self) -> MutexGuard<'_, DeferredState<S>> {
        self.state.lock()
    }

    fn defer(&self, state: &mut DeferredState<S>, step: Step<S>) {
        state.steps.push_back(step);
        self.deferring.store(true, Ordering::Relaxed);
    }

    /// A marker of everything submitted so far.
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
            true => event.set(Outcome::Failed(this.record()?)),
            false => own.defer(&mut state, Step::Mark(Arc::clone(&event))),
        }
        Ok(Marker::Deferred(event))
    }

    /// Later commands wait for the marker.
    pub fn wait(this: &Arc<S>, marker: &Marker<S>) -> Result<()> {
        let own = this.deferred();
        if let Marker::Event(event) = marker
            && !own.is_deferring()
        {
            return this.wait(event);
        }
        let mut state = own.state();
        if state.open
            && let Marker::Deferred(event) = marker
        {
            // What others put on the stream cannot be kept back behind it.
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

    /// Has the stream go on with what it keeps back once the marker is there.
    fn resume_after(this: &Arc<S>, marker: &Marker<S>) {
        let stream = Arc::downgrade(this);
        marker.when_ready(Box::new(move || {
            if let Some(stream) = stream.upgrade() {
                Self::resume_chain(stream);
            }
        }));
    }

    /// Others put work on the stream from now on, or no longer.
    pub fn set_open(this: &Arc<S>, open: bool) -> Result<()> {
        let own = this.deferred();
        own.state().open = open;
        if open {
            return Self::submit_all(this);
        }
        let waits = {
            let mut state = own.state();
            let waits = std::mem::take(&mut state.waits).into_iter();
            let waits: Vec<_> = waits.filter(|point| !point.is_signalled()).collect();
            for point in &waits {
                own.defer(&mut state, Step::Rewait(Arc::clone(point)));
            }
            waits
        };
        for point in waits {
            Self::resume_after(this, &Marker::Host(point));
        }
        Ok(())
    }

    /// As [`Deferred::go_on`], and then those that it lets go on, one after the other: chains of them
    /// may be long.
    fn resume_chain(stream: Arc<S>) {
        let mut own: Option<Box<dyn FnOnce()>> = Some(Box::new(move || Self::resume(&stream)));
        let join = |queue: &ResumeQueue| match &mut *queue.borrow_mut() {
            Some(queue) => queue.extend(own.take()),
            none => *none = Some(VecDeque::new()),
        };
        // Without a line, in a thread that ends, they go on within each other.
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
            // A thread that ends has none.
            let _ = RESUMED.try_with(|queue| *queue.borrow_mut() = None);
        }
    }

    /// Gives the stream what was kept back, as far as what it waits for is there. Failures are told
    /// with the markers behind them.
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
                        state.steps.push_front(Step::Rewait(point));
                        break;
                    }
                    Step::Rewait(point) => {
                        // Elsewhere what comes now depends on it only if it says so.
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
                    Step::Mark(event) => {
                        recorded.push((event, Outcome::of(this.record(), own.has_failed())));
                        Ok(())
                    }
                };
                if let Err(error) = done {
                    log::error!("deferred work failed: {:?}", error.code());
                    own.fail();
                }
            }
            // Whoever sees that it keeps nothing gives behind all this.
            own.deferring.store(own.defers(&state), Ordering::Release);
        }
        drop(dropped);
        // Others may go on now, and no lock of ours is held while they do.
        for (event, end) in recorded {
            event.set(end);
        }
    }

    /// Gives the stream everything, which then waits by itself: others look at it.
    pub fn submit_all(this: &Arc<S>) -> Result<()> {
        let own = this.deferred();
        if !own.is_deferring() {
            return Ok(());
        }
        loop {
            let pending = |step: &Step<S>| match step {
                Step::Wait(Marker::Deferred(event)) if !event.is_recorded() => {
                    Some(Arc::clone(event))
                }
                _ => None,
            };
            let other = own.state().steps.iter().find_map(pending);
            match other {
                // What waits for what forms no circle.
                Some(event) => event.submit()?,
                None => break,
            }
        }
        let was = std::mem::replace(&mut own.state().open, true);
        Self::resume(this);
        own.state().open = was;
        Ok(())
    }
}

impl<S: Stream> DeferredState<S> {
    /// As [`Marker::wait_on`], by itself if the stream is open.
    fn wait_on(&mut self, stream: &S, marker: &Marker<S>) -> Result<WaitOutcome> {
        if self.open
            && let Marker::Host(point) = marker
            && !point.is_signalled()
        {
            self.waits.retain(|point| !point.is_signalled());
            self.waits.push(Arc::clone(point));
        }
        marker.wait_on(stream, self.open)
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

    fn set(&self, end: Outcome<S>) {
        // Kept once, by its stream.
        let _ = self.outcome.set(end);
        self.notifier.signal(|| {});
    }

    /// Has the work before it leave, whatever the stream has to wait for.
    fn submit(&self) -> Result<()> {
        match self.stream.upgrade() {
            Some(stream) if !self.is_recorded() => Deferred::submit_all(&stream),
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
    /// A new point that the host signals, and the means.
    pub fn host(point: S::Point) -> (Self, Signal<S>) {
        let point = Arc::new(HostPoint {
            point,
            failed: AtomicBool::new(false),
            notifier: Notifier::default(),
        });
        (Self::Host(Arc::clone(&point)), Signal(point))
    }

    /// What stands for it in the backend, which then waits for the host by itself if need be.
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

    /// Has `then` run when it is done. What cannot tell by itself hands it back.
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

    /// Has `then` run when a stream can be told to wait for it without stopping others.
    fn when_ready(&self, then: CompletionCallback) {
        match self {
            Self::Event(_) => then(),
            Self::Deferred(event) => event.notifier.when_signalled(then),
            Self::Host(point) => point.notifier.when_signalled(then),
        }
    }

    /// Has a stream wait, if it can without keeping anything else from going on; or anyway, if `open`.
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

/// What stands for a marker in the backend.
pub enum NativeMarker<'a, S: Stream> {
    Event(&'a S::Event),
    Point(&'a HostPoint<S>),
}

impl<S: Stream> HostPoint<S> {
    pub fn is_signalled(&self) -> bool {
        self.notifier.is_signalled()
    }

    /// Once it is signalled.
    pub fn outcome(&self) -> Result<()> {
        match self.failed.load(Ordering::Acquire) {
            true => Err(FAILED),
            false => Ok(()),
        }
    }
}

impl<S: Stream> Signal<S> {
    /// Signals that what the point stands for failed.
    pub fn fail(self) {
        self.0.failed.store(true, Ordering::Release);
    }
}

impl<S: Stream> Drop for Signal<S> {
    fn drop(&mut self) {
        // Between the two, so that no stream is told to wait by itself for what has failed already.
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

    /// Rings, does `then`, and tells those that wait.
    fn signal(&self, then: impl FnOnce()) {
        let waiting = {
            let mut waiting = self.waiting();
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

    /// Has `then` run when it rings, at once if it did.
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

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
use crate::stream::Notice;
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
    fn give(&self, work: Self::Work) -> Result<()>;

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
    fn notify(event: &Self::Event, then: Notice) -> Option<Notice> {
        let _ = event;
        Some(then)
    }
}

/// What a stream keeps back.
pub struct Deferred<S: Stream> {
    /// Whether anything is kept back or dropped. What a stream is given comes one at a time, by the
    /// engine's promise, and nothing else is ever kept back: who gives and finds nothing here needs no
    /// lock.
    keeps: AtomicBool,
    /// Whether something failed that all that follows comes after.
    failed: AtomicBool,
    held: Mutex<Held<S>, { rank::DEFERRED }>,
}

struct Held<S: Stream> {
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
    Again(Arc<HostPoint<S>>),
    Mark(Arc<Promise<S>>),
}

/// What can be waited for.
pub enum Marker<S: Stream> {
    /// Everything that a stream had been given.
    Event(S::Event),
    /// The same of a stream whose work is kept back.
    Promise(Arc<Promise<S>>),
    Host(Arc<HostPoint<S>>),
}

/// An event that is recorded once the work before it leaves for the stream.
pub struct Promise<S: Stream> {
    stream: Weak<S>,
    end: OnceLock<End<S>>,
    bell: Bell,
}

/// What became of a promise.
enum End<S: Stream> {
    Kept(S::Event),
    /// What comes before it failed. What the stream was given before has ended with the event.
    Failed(S::Event),
    Broken(Error),
}

/// A point that the host signals.
pub struct HostPoint<S: Stream> {
    pub point: S::Point,
    failed: AtomicBool,
    bell: Bell,
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
struct Bell {
    rung: AtomicBool,
    told: AtomicBool,
    waiting: Mutex<Vec<Notice>>,
    changed: Condvar,
}

/// How a stream was told to wait.
enum Waits {
    /// It waits by itself, or need not.
    There,
    /// It would keep others from going on.
    NotYet,
    Failed,
}

type Line = RefCell<Option<VecDeque<Box<dyn FnOnce()>>>>;

thread_local! {
    /// Streams that this thread is to let go on, while it does so.
    static LINE: Line = const { RefCell::new(None) };
}

impl<S: Stream> Default for Deferred<S> {
    fn default() -> Self {
        Self {
            keeps: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            held: Mutex::new(Held {
                steps: VecDeque::new(),
                open: false,
                waits: Vec::new(),
            }),
        }
    }
}

impl<S: Stream> Deferred<S> {
    #[inline]
    pub fn keeps(&self) -> bool {
        self.keeps.load(Ordering::Acquire)
    }

    /// Whether others put work on the stream.
    pub fn is_open(&self) -> bool {
        self.held().open
    }

    /// Calls `run`, and tells it whether what the stream is given now is kept back or dropped.
    pub fn look<R>(&self, run: impl FnOnce(bool) -> R) -> R {
        let held = self.held();
        run(self.is_kept(&held))
    }

    /// Gives the stream work by `now`, or keeps back what `later` makes of it, or drops it.
    pub fn submit<T>(
        &self,
        work: T,
        now: impl FnOnce(T) -> Result<()>,
        later: impl FnOnce(T) -> Result<S::Work>,
    ) -> Result<()> {
        let mut held = self.held();
        if !self.is_kept(&held) {
            return now(work);
        }
        if !self.is_dropped(&held) {
            self.keep(&mut held, Step::Work(later(work)?));
        }
        Ok(())
    }

    /// What is given from now on is not dropped any more. Whether it was.
    pub fn recover(&self) -> bool {
        let held = self.held();
        let failed = self.failed.swap(false, Ordering::Relaxed);
        self.keeps.store(self.is_kept(&held), Ordering::Release);
        failed
    }

    /// Something failed that what is given from now on comes after.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
        self.keeps.store(true, Ordering::Release);
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    fn is_kept(&self, held: &Held<S>) -> bool {
        !held.steps.is_empty() || self.has_failed()
    }

    /// Whether what is given now is dropped: what comes before it is not kept back any more.
    fn is_dropped(&self, held: &Held<S>) -> bool {
        held.steps.is_empty() && self.has_failed()
    }

    fn held(&self) -> MutexGuard<'_, Held<S>> {
        self.held.lock()
    }

    fn keep(&self, held: &mut Held<S>, step: Step<S>) {
        held.steps.push_back(step);
        self.keeps.store(true, Ordering::Relaxed);
    }

    /// A marker of everything submitted so far.
    pub fn mark(this: &Arc<S>) -> Result<Marker<S>> {
        let own = this.deferred();
        if !own.keeps() {
            return Ok(Marker::Event(this.record()?));
        }
        let mut held = own.held();
        if !own.is_kept(&held) {
            return Ok(Marker::Event(this.record()?));
        }
        let promise = Promise::new(this);
        match own.is_dropped(&held) {
            true => promise.keep(End::Failed(this.record()?)),
            false => own.keep(&mut held, Step::Mark(Arc::clone(&promise))),
        }
        Ok(Marker::Promise(promise))
    }

    /// Later commands wait for the marker.
    pub fn wait(this: &Arc<S>, marker: &Marker<S>) -> Result<()> {
        let own = this.deferred();
        if let Marker::Event(event) = marker
            && !own.keeps()
        {
            return this.wait(event);
        }
        let mut held = own.held();
        if held.open
            && let Marker::Promise(promise) = marker
        {
            // What others put on the stream cannot be kept back behind it.
            drop(held);
            promise.force()?;
            held = own.held();
        }
        if own.is_dropped(&held) {
            return Ok(());
        }
        if held.steps.is_empty() {
            match held.wait_on(this, marker)? {
                Waits::There => return Ok(()),
                Waits::NotYet => {}
                Waits::Failed => {
                    own.fail();
                    return Ok(());
                }
            }
        }
        own.keep(&mut held, Step::Wait(marker.clone()));
        drop(held);
        Self::go_on_after(this, marker);
        Ok(())
    }

    /// Has the stream go on with what it keeps back once the marker is there.
    fn go_on_after(this: &Arc<S>, marker: &Marker<S>) {
        let stream = Arc::downgrade(this);
        marker.when_there(Box::new(move || {
            if let Some(stream) = stream.upgrade() {
                Self::let_go_on(stream);
            }
        }));
    }

    /// Others put work on the stream from now on, or no longer.
    pub fn set_open(this: &Arc<S>, open: bool) -> Result<()> {
        let own = this.deferred();
        own.held().open = open;
        if open {
            return Self::force(this);
        }
        let waits = {
            let mut held = own.held();
            let waits = std::mem::take(&mut held.waits).into_iter();
            let waits: Vec<_> = waits.filter(|point| !point.is_signalled()).collect();
            for point in &waits {
                own.keep(&mut held, Step::Again(Arc::clone(point)));
            }
            waits
        };
        for point in waits {
            Self::go_on_after(this, &Marker::Host(point));
        }
        Ok(())
    }

    /// As [`Deferred::go_on`], and then those that it lets go on, one after the other: chains of them
    /// may be long.
    fn let_go_on(stream: Arc<S>) {
        let mut own: Option<Box<dyn FnOnce()>> = Some(Box::new(move || Self::go_on(&stream)));
        let join = |line: &Line| match &mut *line.borrow_mut() {
            Some(line) => line.extend(own.take()),
            none => *none = Some(VecDeque::new()),
        };
        // Without a line, in a thread that ends, they go on within each other.
        let _ = LINE.try_with(join);
        let mut next = own;
        let first = next.is_some();
        while let Some(go_on) = next {
            go_on();
            let pop = |line: &Line| line.borrow_mut().as_mut().and_then(VecDeque::pop_front);
            next = LINE.try_with(pop).unwrap_or_default();
        }
        if first {
            // A thread that ends has none.
            let _ = LINE.try_with(|line| *line.borrow_mut() = None);
        }
    }

    /// Gives the stream what was kept back, as far as what it waits for is there. Failures are told
    /// with the markers behind them.
    fn go_on(this: &Arc<S>) {
        let own = this.deferred();
        let mut kept = Vec::new();
        let mut dropped = Vec::new();
        {
            let mut held = own.held();
            while let Some(step) = held.steps.pop_front() {
                let done = match step {
                    Step::Work(work) if own.has_failed() => {
                        dropped.push(work);
                        Ok(())
                    }
                    Step::Work(work) => this.give(work),
                    Step::Wait(_) | Step::Again(_) if own.has_failed() => Ok(()),
                    Step::Again(point) if !point.is_signalled() => {
                        held.steps.push_front(Step::Again(point));
                        break;
                    }
                    Step::Again(point) => {
                        // Elsewhere what comes now depends on it only if it says so.
                        let depends = this.is_chained() || !held.steps.is_empty();
                        if depends && point.outcome().is_err() {
                            own.fail();
                        }
                        Ok(())
                    }
                    Step::Wait(marker) => match held.wait_on(this, &marker) {
                        Ok(Waits::There) => Ok(()),
                        Ok(Waits::NotYet) => {
                            held.steps.push_front(Step::Wait(marker));
                            break;
                        }
                        Ok(Waits::Failed) => {
                            own.fail();
                            Ok(())
                        }
                        Err(error) => Err(error),
                    },
                    Step::Mark(promise) => {
                        kept.push((promise, End::of(this.record(), own.has_failed())));
                        Ok(())
                    }
                };
                if let Err(error) = done {
                    log::error!("work that was kept back failed: {:?}", error.code());
                    own.fail();
                }
            }
            // Whoever sees that it keeps nothing gives behind all this.
            own.keeps.store(own.is_kept(&held), Ordering::Release);
        }
        drop(dropped);
        // Others may go on now, and no lock of ours is held while they do.
        for (promise, end) in kept {
            promise.keep(end);
        }
    }

    /// Gives the stream everything, which then waits by itself: others look at it.
    pub fn force(this: &Arc<S>) -> Result<()> {
        let own = this.deferred();
        if !own.keeps() {
            return Ok(());
        }
        loop {
            let broken_off = |step: &Step<S>| match step {
                Step::Wait(Marker::Promise(promise)) if !promise.is_there() => {
                    Some(Arc::clone(promise))
                }
                _ => None,
            };
            let other = own.held().steps.iter().find_map(broken_off);
            match other {
                // What waits for what forms no circle.
                Some(promise) => promise.force()?,
                None => break,
            }
        }
        let was = std::mem::replace(&mut own.held().open, true);
        Self::go_on(this);
        own.held().open = was;
        Ok(())
    }
}

impl<S: Stream> Held<S> {
    /// As [`Marker::wait_on`], by itself if the stream is open.
    fn wait_on(&mut self, stream: &S, marker: &Marker<S>) -> Result<Waits> {
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

impl<S: Stream> End<S> {
    fn of(event: Result<S::Event>, failed: bool) -> Self {
        match event {
            Err(error) => Self::Broken(error),
            Ok(event) if failed => Self::Failed(event),
            Ok(event) => Self::Kept(event),
        }
    }
}

impl<S: Stream> Promise<S> {
    fn new(stream: &Arc<S>) -> Arc<Self> {
        Arc::new(Self {
            stream: Arc::downgrade(stream),
            end: OnceLock::new(),
            bell: Bell::default(),
        })
    }

    fn is_there(&self) -> bool {
        self.end.get().is_some()
    }

    fn keep(&self, end: End<S>) {
        // Kept once, by its stream.
        let _ = self.end.set(end);
        self.bell.ring(|| {});
    }

    /// Has the work before it leave, whatever the stream has to wait for.
    fn force(&self) -> Result<()> {
        match self.stream.upgrade() {
            Some(stream) if !self.is_there() => Deferred::force(&stream),
            _ => Ok(()),
        }
    }
}

impl<S: Stream> Clone for Marker<S> {
    fn clone(&self) -> Self {
        match self {
            Self::Event(event) => Self::Event(event.clone()),
            Self::Promise(promise) => Self::Promise(Arc::clone(promise)),
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
            bell: Bell::default(),
        });
        (Self::Host(Arc::clone(&point)), Signal(point))
    }

    /// What stands for it in the backend, which then waits for the host by itself if need be.
    pub fn shown(&self) -> Result<Shown<'_, S>> {
        match self {
            Self::Event(event) => Ok(Shown::Event(event)),
            Self::Host(point) => Ok(Shown::Point(point)),
            Self::Promise(promise) => {
                promise.force()?;
                match promise.end.get() {
                    Some(End::Kept(event) | End::Failed(event)) => Ok(Shown::Event(event)),
                    Some(End::Broken(error)) => Err(*error),
                    None => Err(Error::unsupported()),
                }
            }
        }
    }

    pub fn is_done(&self) -> Result<bool> {
        match self {
            Self::Event(event) => S::is_done(event),
            Self::Promise(promise) => match promise.end.get() {
                None => Ok(false),
                Some(End::Kept(event)) => S::is_done(event),
                Some(End::Failed(event)) => match S::is_done(event)? {
                    true => Err(FAILED),
                    false => Ok(false),
                },
                Some(End::Broken(error)) => Err(*error),
            },
            Self::Host(point) => match point.bell.has_told() {
                true => point.outcome().map(|()| true),
                false => Ok(false),
            },
        }
    }

    pub fn block(&self) -> Result<()> {
        match self {
            Self::Event(event) => S::block(event),
            Self::Promise(promise) => {
                promise.bell.block();
                match promise.end.get() {
                    Some(End::Kept(event)) => S::block(event),
                    Some(End::Failed(event)) => {
                        S::block(event)?;
                        Err(FAILED)
                    }
                    Some(End::Broken(error)) => Err(*error),
                    None => Err(Error::unsupported()),
                }
            }
            Self::Host(point) => {
                point.bell.block();
                point.outcome()
            }
        }
    }

    /// Has `then` run when it is done. What cannot tell by itself hands it back.
    pub fn notify(&self, then: Notice) -> Option<Notice> {
        match self {
            Self::Host(point) => {
                point.bell.when_rung(then);
                None
            }
            Self::Event(event) => S::notify(event, then),
            Self::Promise(_) => Some(then),
        }
    }

    /// Has `then` run when a stream can be told to wait for it without stopping others.
    fn when_there(&self, then: Notice) {
        match self {
            Self::Event(_) => then(),
            Self::Promise(promise) => promise.bell.when_rung(then),
            Self::Host(point) => point.bell.when_rung(then),
        }
    }

    /// Has a stream wait, if it can without keeping anything else from going on; or anyway, if `open`.
    fn wait_on(&self, stream: &S, open: bool) -> Result<Waits> {
        match self {
            Self::Event(event) => stream.wait(event)?,
            Self::Promise(promise) => match promise.end.get() {
                None => return Ok(Waits::NotYet),
                Some(End::Kept(event)) => stream.wait(event)?,
                Some(End::Failed(_)) => return Ok(Waits::Failed),
                Some(End::Broken(error)) => return Err(*error),
            },
            Self::Host(point) if point.is_signalled() => {
                if point.outcome().is_err() {
                    return Ok(Waits::Failed);
                }
            }
            Self::Host(_) if !open => return Ok(Waits::NotYet),
            Self::Host(point) => stream.wait_point(point)?,
        }
        Ok(Waits::There)
    }
}

/// What stands for a marker in the backend.
pub enum Shown<'a, S: Stream> {
    Event(&'a S::Event),
    Point(&'a HostPoint<S>),
}

impl<S: Stream> HostPoint<S> {
    pub fn is_signalled(&self) -> bool {
        self.bell.is_rung()
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
        self.0.bell.ring(|| S::signal(&self.0.point));
    }
}

impl Bell {
    fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Acquire)
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Notice>> {
        self.waiting.lock()
    }

    /// Rings, does `then`, and tells those that wait.
    fn ring(&self, then: impl FnOnce()) {
        let waiting = {
            let mut waiting = self.waiting();
            self.rung.store(true, Ordering::Release);
            std::mem::take(&mut *waiting)
        };
        then();
        waiting.into_iter().for_each(|then| then());
        {
            let _waiting = self.waiting();
            self.told.store(true, Ordering::Release);
        }
        self.changed.notify_all();
    }

    fn has_told(&self) -> bool {
        self.told.load(Ordering::Acquire)
    }

    /// Has `then` run when it rings, at once if it did.
    fn when_rung(&self, then: Notice) {
        let mut waiting = self.waiting();
        if !self.is_rung() {
            waiting.push(then);
            return;
        }
        drop(waiting);
        then();
    }

    fn block(&self) {
        let mut waiting = self.waiting();
        while !self.has_told() {
            waiting = self.changed.wait(waiting);
        }
    }
}

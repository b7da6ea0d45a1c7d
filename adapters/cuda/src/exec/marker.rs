//! What can be waited for: positions in a stream, those to come, and points that the host signals.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use ur::abi::UR_RESULT_ERROR_UNSUPPORTED_FEATURE;
use ur::object::{Error, Result, ensure};
use ur::stream::Notice;

use super::gpu::{Event, Gpu};
use super::lane::Stream;
use super::words::Word;

#[derive(Clone)]
pub enum Marker {
    /// Everything that a stream had been given.
    Event(Arc<Event>),
    /// The same of a stream whose work is kept back.
    Promise(Arc<Promise>),
    Host(Arc<HostPoint>),
}

/// Those who want to know of something that has not come to pass.
#[derive(Default)]
struct Bell {
    rung: AtomicBool,
    waiting: Mutex<Vec<Notice>>,
    changed: Condvar,
}

impl Bell {
    fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Acquire)
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Notice>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        let waiting = {
            let mut waiting = self.waiting();
            self.rung.store(true, Ordering::Release);
            std::mem::take(&mut *waiting)
        };
        self.changed.notify_all();
        waiting.into_iter().for_each(|then| then());
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
        let waiting = |_: &mut Vec<Notice>| !self.is_rung();
        let done = self.changed.wait_while(self.waiting(), waiting);
        drop(done.unwrap_or_else(PoisonError::into_inner));
    }
}

/// A point that the host signals.
pub struct HostPoint {
    gpu: Arc<Gpu>,
    pub word: Word,
    bell: Bell,
    /// What the driver knows it by, once that was asked for.
    event: OnceLock<Event>,
}

impl HostPoint {
    pub fn is_signalled(&self) -> bool {
        self.bell.is_rung()
    }

    /// An event of the driver's that is complete, as the point is; an error while it is not.
    pub fn event(&self) -> Result<&Event> {
        ensure(self.is_signalled(), UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        if let Some(event) = self.event.get() {
            return Ok(event);
        }
        let event = self.gpu.complete_event()?;
        Ok(self.event.get_or_init(|| event))
    }
}

impl Drop for HostPoint {
    fn drop(&mut self) {
        self.gpu.words.give(self.word);
    }
}

/// An event that is recorded once the work before it leaves for the stream.
pub struct Promise {
    stream: Weak<Stream>,
    event: OnceLock<Result<Arc<Event>>>,
    bell: Bell,
}

impl Promise {
    pub fn new(stream: &Arc<Stream>) -> Arc<Self> {
        Arc::new(Self {
            stream: Arc::downgrade(stream),
            event: OnceLock::new(),
            bell: Bell::default(),
        })
    }

    pub fn is_there(&self) -> bool {
        self.event.get().is_some()
    }

    /// The event, if it is there; an error if the work before it failed to leave.
    pub fn event(&self) -> Result<Option<&Arc<Event>>> {
        match self.event.get() {
            None => Ok(None),
            Some(Ok(event)) => Ok(Some(event)),
            Some(Err(error)) => Err(*error),
        }
    }

    pub fn keep(&self, event: Result<Arc<Event>>) {
        // Kept once, by its stream.
        let _ = self.event.set(event);
        self.bell.ring();
    }

    /// Has the work before it leave, whatever the stream has to wait for.
    pub fn force(&self) -> Result<()> {
        match self.stream.upgrade() {
            Some(stream) if !self.is_there() => stream.force(),
            _ => Ok(()),
        }
    }
}

impl Marker {
    pub fn is_done(&self) -> Result<bool> {
        match self {
            Self::Event(event) => event.is_done(),
            Self::Promise(promise) => match promise.event()? {
                Some(event) => event.is_done(),
                None => Ok(false),
            },
            Self::Host(point) => Ok(point.is_signalled()),
        }
    }

    pub fn block(&self) -> Result<()> {
        match self {
            Self::Event(event) => event.block(),
            Self::Promise(promise) => {
                promise.bell.block();
                let event = promise.event()?.ok_or(Error::unsupported())?;
                event.block()
            }
            Self::Host(point) => {
                point.bell.block();
                Ok(())
            }
        }
    }

    /// Has `then` run at the point's signal. Events have no such call that runs beside other work, and
    /// hand it back.
    pub fn notify(&self, then: Notice) -> Option<Notice> {
        match self {
            Self::Host(point) => {
                point.bell.when_rung(then);
                None
            }
            Self::Event(_) | Self::Promise(_) => Some(then),
        }
    }

    /// Has `then` run when a stream can be told to wait for it without stopping others.
    pub fn when_there(&self, then: Notice) {
        match self {
            Self::Event(_) => then(),
            Self::Promise(promise) => promise.bell.when_rung(then),
            Self::Host(point) => point.bell.when_rung(then),
        }
    }
}

/// The means to signal a point. Dropping it signals too, once.
pub struct Signal(Arc<HostPoint>);

impl Drop for Signal {
    fn drop(&mut self) {
        // SAFETY: the words are those of the context that the point holds.
        unsafe { self.0.word.signal() };
        self.0.bell.ring();
    }
}

/// A new point, and the means.
pub fn host_point(gpu: &Arc<Gpu>) -> Result<(Marker, Signal)> {
    gpu.api.cuStreamWaitValue32.ok_or(Error::unsupported())?;
    let _current = gpu.enter()?;
    let point = Arc::new(HostPoint {
        gpu: Arc::clone(gpu),
        word: gpu.words.take(gpu.api)?,
        bell: Bell::default(),
        event: OnceLock::new(),
    });
    Ok((Marker::Host(Arc::clone(&point)), Signal(point)))
}

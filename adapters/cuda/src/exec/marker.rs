//! Positions in a stream, and points that the host signals.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ur::object::{Error, Result};
use ur::stream::Notice;

use super::gpu::{Event, Gpu};
use super::words::Word;

/// What can be waited for.
#[derive(Clone)]
pub enum Marker {
    /// Everything that a stream had been given.
    Event(Arc<Event>),
    Host(Arc<HostPoint>),
}

/// A point that the host signals.
pub struct HostPoint {
    gpu: Arc<Gpu>,
    pub word: Word,
    signalled: AtomicBool,
    /// What runs then, until it did.
    notices: Mutex<Vec<Notice>>,
    changed: Condvar,
}

impl HostPoint {
    pub fn is_signalled(&self) -> bool {
        self.signalled.load(Ordering::Acquire)
    }

    fn notices(&self) -> MutexGuard<'_, Vec<Notice>> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self) {
        // SAFETY: the words are those of the context that we hold.
        unsafe { self.word.signal() };
        let waiting = {
            let mut notices = self.notices();
            self.signalled.store(true, Ordering::Release);
            std::mem::take(&mut *notices)
        };
        self.changed.notify_all();
        waiting.into_iter().for_each(|then| then());
    }
}

impl Drop for HostPoint {
    fn drop(&mut self) {
        self.gpu.words.give(self.word);
    }
}

impl Marker {
    pub fn is_done(&self) -> Result<bool> {
        match self {
            Self::Event(event) => event.is_done(),
            Self::Host(point) => Ok(point.is_signalled()),
        }
    }

    pub fn block(&self) -> Result<()> {
        match self {
            Self::Event(event) => event.block(),
            Self::Host(point) => {
                let waiting = |_: &mut Vec<Notice>| !point.is_signalled();
                let done = point.changed.wait_while(point.notices(), waiting);
                drop(done.unwrap_or_else(PoisonError::into_inner));
                Ok(())
            }
        }
    }

    /// Has `then` run at the point's signal. Events have no such call that runs beside other work, and
    /// hand it back.
    pub fn notify(&self, then: Notice) -> Option<Notice> {
        let Self::Host(point) = self else {
            return Some(then);
        };
        let mut notices = point.notices();
        if point.is_signalled() {
            drop(notices);
            then();
        } else {
            notices.push(then);
        }
        None
    }
}

/// The means to signal a point. Dropping it signals too, once.
pub struct Signal(Arc<HostPoint>);

impl Drop for Signal {
    fn drop(&mut self) {
        self.0.signal();
    }
}

/// A new point, and the means.
pub fn host_point(gpu: &Arc<Gpu>) -> Result<(Marker, Signal)> {
    gpu.api.cuStreamWaitValue32.ok_or(Error::unsupported())?;
    let _current = gpu.enter()?;
    let point = Arc::new(HostPoint {
        gpu: Arc::clone(gpu),
        word: gpu.words.take(gpu.api)?,
        signalled: AtomicBool::new(false),
        notices: Mutex::default(),
        changed: Condvar::new(),
    });
    Ok((Marker::Host(Arc::clone(&point)), Signal(point)))
}

//! Lanes: a thread each, which runs one command after the other.
//!
//! The copy replaces this module with its driver's streams, and the markers with the driver's events.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use ur::abi::*;
use ur::object::{Error, Result};
use ur::sync::{Condvar, Mutex};
use ur::timeline::Clock;

/// The submitting side. Its drop ends the thread behind the commands submitted.
pub struct Lane {
    items: Sender<Item>,
    progress: Arc<Progress>,
}

/// A command or a wait, as the thread runs it.
type Item = Box<dyn FnOnce() + Send>;

/// A clock that threads can wait for.
struct Progress {
    clock: Arc<Clock>,
    /// Held while the clock is raised, so that no waiter misses it.
    raising: Mutex<()>,
    raised: Condvar,
}

/// A position in a lane: done once the clock reaches the epoch.
#[derive(Clone)]
pub struct Marker {
    progress: Arc<Progress>,
    epoch: u64,
}

/// The right to signal a host point. Dropping it signals.
pub struct Signal(Marker);

impl Lane {
    /// Starts the thread. The lane raises the clock to the epoch of each command that has ended.
    pub fn open(clock: &Arc<Clock>) -> Result<Self> {
        let (items, received) = channel::<Item>();
        std::thread::Builder::new()
            .name("ur-skeleton".into())
            .spawn(move || received.iter().for_each(|item| item()))
            .map_err(|_| Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES))?;
        let progress = Progress::new(clock);
        Ok(Self { items, progress })
    }

    /// Adds a command; `epoch` rises from one to the next.
    pub fn submit(&self, epoch: u64, command: impl FnOnce() + Send + 'static) -> Result<()> {
        let progress = Arc::clone(&self.progress);
        self.push(move || {
            command();
            progress.raise(epoch);
        })
    }

    /// Later submissions wait for the marker.
    pub fn wait(&self, marker: &Marker) -> Result<()> {
        // An in-order lane need not wait for its own past.
        if Arc::ptr_eq(&marker.progress, &self.progress) || marker.is_done() {
            return Ok(());
        }
        let marker = marker.clone();
        self.push(move || marker.block())
    }

    /// A marker of all commands up to `epoch`.
    pub fn mark(&self, epoch: u64) -> Marker {
        Marker {
            progress: Arc::clone(&self.progress),
            epoch,
        }
    }

    fn push(&self, item: impl FnOnce() + Send + 'static) -> Result<()> {
        let lost = Error::new(UR_RESULT_ERROR_DEVICE_LOST);
        self.items.send(Box::new(item)).map_err(|_| lost)
    }
}

impl Progress {
    fn new(clock: &Arc<Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock: Arc::clone(clock),
            raising: Mutex::default(),
            raised: Condvar::new(),
        })
    }

    fn raise(&self, epoch: u64) {
        let raising = self.raising.lock();
        self.clock.raise(epoch);
        drop(raising);
        self.raised.notify_all();
    }
}

impl Marker {
    /// A point that the host signals.
    pub fn host_point() -> (Self, Signal) {
        let point = Self {
            progress: Progress::new(&Clock::new()),
            epoch: 1,
        };
        (point.clone(), Signal(point))
    }

    pub fn is_done(&self) -> bool {
        self.progress.clock.completed() >= self.epoch
    }

    pub fn block(&self) {
        let mut raising = self.progress.raising.lock();
        while !self.is_done() {
            raising = self.progress.raised.wait(raising);
        }
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        self.0.progress.raise(self.0.epoch);
    }
}

//! Lanes: a thread each, which runs one command after the other.
//!
//! The copy replaces this module with its driver's streams, and the markers with the driver's events.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use ur::abi::*;
use ur::object::{Error, Result};
use ur::stream::host::{fill, move_bytes};
use ur::stream::{Pitched, Timestamps, Work};
use ur::timeline::Clock;
use ur::timeline::sync::{Condvar, Mutex, Ordering};

use crate::Skeleton;

/// The submitting side. Its drop ends the thread behind the commands submitted.
pub struct Lane {
    items: Sender<Item>,
    progress: Arc<Progress>,
}

enum Item {
    Run(u64, Work<Skeleton>, Option<Arc<Timestamps>>),
    Wait(Marker),
}

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
        let progress = Progress::new(clock);
        let (items, received) = channel();
        let own = Arc::clone(&progress);
        std::thread::Builder::new()
            .name("ur-skeleton".into())
            .spawn(move || run(&received, &own))
            .map_err(|_| Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES))?;
        Ok(Self { items, progress })
    }

    /// Adds a command; `epoch` rises from one to the next.
    pub fn submit(
        &self,
        epoch: u64,
        work: Work<Skeleton>,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<()> {
        self.push(Item::Run(epoch, work, timestamps))
    }

    /// Later submissions wait for the marker.
    pub fn wait(&self, marker: &Marker) -> Result<()> {
        // An in-order lane need not wait for its own past.
        match Arc::ptr_eq(&marker.progress, &self.progress) || marker.is_done() {
            true => Ok(()),
            false => self.push(Item::Wait(marker.clone())),
        }
    }

    /// A marker of all commands up to `epoch`.
    pub fn mark(&self, epoch: u64) -> Marker {
        Marker {
            progress: Arc::clone(&self.progress),
            epoch,
        }
    }

    fn push(&self, item: Item) -> Result<()> {
        let lost = Error::new(UR_RESULT_ERROR_DEVICE_LOST);
        self.items.send(item).map_err(|_| lost)
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

/// Runs a lane's commands until the lane is dropped.
fn run(items: &Receiver<Item>, progress: &Progress) {
    for item in items {
        match item {
            Item::Wait(marker) => marker.block(),
            Item::Run(epoch, work, timestamps) => {
                let start = now();
                execute(&work);
                if let Some(timestamps) = timestamps {
                    timestamps.start.store(start, Ordering::Relaxed);
                    timestamps.end.store(now(), Ordering::Relaxed);
                }
                progress.raise(epoch);
            }
        }
    }
}

fn execute(work: &Work<Skeleton>) {
    match *work {
        // Hints have no effect: all memory is the host's.
        Work::Marker | Work::Prefetch { .. } | Work::Advise { .. } => {}
        Work::Copy { dst, src, bytes } => move_bytes(dst, src, bytes),
        Work::CopyRect { dst, src, region } => rows(region, |row, slice| {
            move_bytes(at(dst, row, slice), at(src, row, slice), region[0]);
        }),
        Work::Fill {
            dst,
            ref pattern,
            bytes,
        } => fill(dst, pattern, bytes),
        Work::FillRect {
            dst,
            ref pattern,
            region,
        } => rows(region, |row, slice| {
            fill(at(dst, row, slice), pattern, region[0]);
        }),
        Work::Launch(never) | Work::Native(never) => match never {},
    }
}

/// Calls `each` with every row and slice of a region.
fn rows([_, rows, slices]: [usize; 3], each: impl Fn(usize, usize)) {
    for slice in 0..slices {
        for row in 0..rows {
            each(row, slice);
        }
    }
}

fn at(block: Pitched, row: usize, slice: usize) -> usize {
    block.addr + row * block.row_pitch + slice * block.slice_pitch
}

/// Nanoseconds since the first call, plus one: 0 means that a command has not ended.
pub fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}

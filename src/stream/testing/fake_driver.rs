//! The state of the fake driver: its lanes, whose commands tests complete, and counts of its calls.

use super::vm;
use crate::abi::*;
use crate::object::{Error, Result};
use crate::stream::{CompletionCallback, Kind, Progress, Timestamps};
use crate::timeline::Clock;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The state of the fake driver.
#[derive(Default)]
pub struct FakeDriver {
    pub lanes: Mutex<Vec<Arc<FakeStream>>>,
    pub submits: AtomicUsize,
    pub waits: AtomicUsize,
    pub marks: AtomicUsize,
    pub acquires: AtomicUsize,
    pub zeroed: AtomicUsize,
    /// Live slabs, by address.
    pub slabs: Mutex<BTreeMap<usize, (Kind, usize)>>,
    /// The driver's shared memory has pages.
    pub vm: Mutex<vm::Vm>,
    /// Labels of launches in the order of execution.
    pub ran: Mutex<Vec<u32>>,
    pub broken: AtomicBool,
    /// Largest number of launches that are compiled into one object; below two, none are.
    pub compiles: AtomicUsize,
    /// Number of submissions before one fails; none for never.
    pub fails_after: Mutex<Option<usize>>,
    /// Number of calls that are refused from now on: for a marker, and to block for one.
    pub refused_marks: AtomicUsize,
    pub refused_blocks: AtomicUsize,
    /// Whether an idle lane runs work within its submission.
    pub immediate: AtomicBool,
    /// Labels of launches that fail instead of running.
    pub failing: Mutex<Vec<u32>>,
    /// Bytes of system memory; none for no limit.
    pub room: Mutex<Option<usize>>,
    pub(super) next: AtomicUsize,
    /// Serialises steps of all threads: a device completes in order.
    stepping: Mutex<()>,
}

/// An error while calls of this kind are refused.
pub(super) fn refuse(left: &AtomicUsize) -> Result<()> {
    let lower = |left: usize| left.checked_sub(1);
    match left.fetch_update(Ordering::AcqRel, Ordering::Acquire, lower) {
        Ok(_) => Err(Error::new(UR_RESULT_ERROR_UNKNOWN)),
        Err(_) => Ok(()),
    }
}

/// The commands of a lane.
pub struct FakeStream {
    pub number: usize,
    pub(super) clock: Arc<Clock>,
    pub(super) items: Mutex<VecDeque<Item>>,
    pub(super) done: AtomicU64,
    pub(super) callbacks: Mutex<Vec<(u64, CompletionCallback)>>,
    /// Whether a command or a dependency of it has failed: nothing runs after that.
    pub(super) failed: AtomicBool,
}

pub(super) enum Item {
    Work {
        epoch: u64,
        labels: Vec<u32>,
        timestamps: Option<Arc<Timestamps>>,
    },
    Wait(Marker),
    Record(Arc<Flag>),
    /// Foreign work, by its label.
    Foreign(u32),
}

#[derive(Default)]
pub struct Flag {
    set: AtomicBool,
    pub(super) failed: AtomicBool,
    pub(super) callbacks: Mutex<Vec<CompletionCallback>>,
}

#[derive(Clone)]
pub enum Marker {
    Epoch(Arc<FakeDriver>, Arc<FakeStream>, u64),
    Flag(Arc<FakeDriver>, Arc<Flag>),
}

pub struct FakeLane {
    pub(super) driver: Arc<FakeDriver>,
    pub(super) line: Arc<FakeStream>,
    pub(super) open: AtomicBool,
}

impl FakeLane {
    pub fn number(&self) -> usize {
        self.line.number
    }

    /// Submits foreign work to the lane.
    pub fn foreign(&self, label: u32) {
        assert!(self.open.load(Ordering::Relaxed), "nobody opened the lane");
        let mut items = self.line.items.lock().unwrap();
        items.push_back(Item::Foreign(label));
    }

    pub(super) fn submit(
        &self,
        epoch: u64,
        labels: Vec<u32>,
        timestamps: Option<Arc<Timestamps>>,
        tracks: bool,
    ) -> Result<Progress> {
        if self.driver.broken.load(Ordering::Relaxed) {
            return Err(Error::new(UR_RESULT_ERROR_DEVICE_LOST));
        }
        let mut left = self.driver.fails_after.lock().unwrap();
        match &mut *left {
            Some(0) => return Err(Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES)),
            Some(left) => *left -= 1,
            None => {}
        }
        drop(left);
        self.driver.submits.fetch_add(1, Ordering::Relaxed);
        if self.driver.immediate.load(Ordering::Relaxed)
            && self.line.items.lock().unwrap().is_empty()
        {
            self.driver.ran.lock().unwrap().extend(labels);
            self.line.done.store(epoch, Ordering::Release);
            return Ok(Progress::Done);
        }
        self.line.items.lock().unwrap().push_back(Item::Work {
            epoch,
            labels,
            timestamps,
        });
        if tracks {
            let clock = Arc::clone(&self.line.clock);
            let raise: CompletionCallback = Box::new(move || clock.raise(epoch));
            self.line.callbacks.lock().unwrap().push((epoch, raise));
        }
        Ok(Progress::Pending)
    }
}

impl Drop for FakeLane {
    fn drop(&mut self) {
        let items = self.line.items.lock().unwrap();
        let idle = items.iter().all(|item| match item {
            Item::Work { .. } => false,
            Item::Wait(marker) => marker.is_done(),
            Item::Record(_) | Item::Foreign(_) => true,
        });
        assert!(
            idle || self.driver.broken.load(Ordering::Relaxed),
            "a lane was dropped with work on it"
        );
        self.driver
            .lanes
            .lock()
            .unwrap()
            .retain(|line| !Arc::ptr_eq(line, &self.line));
    }
}

impl FakeDriver {
    /// Completes the next command of a lane, if what it waits for is complete.
    pub fn step(&self, number: usize) -> bool {
        let line = self
            .lanes
            .lock()
            .unwrap()
            .iter()
            .find(|line| line.number == number)
            .cloned();
        line.is_some_and(|line| self.step_line(&line))
    }

    fn step_line(&self, line: &FakeStream) -> bool {
        let _one = self.stepping.lock().unwrap();
        let item = {
            let mut items = line.items.lock().unwrap();
            match items.front() {
                None => return false,
                Some(Item::Wait(marker)) if !marker.is_done() => return false,
                Some(_) => items.pop_front().unwrap(),
            }
        };
        match item {
            Item::Wait(marker) => {
                line.failed.fetch_or(marker.has_failed(), Ordering::Relaxed);
            }
            Item::Record(flag) => {
                let failed = line.failed.load(Ordering::Relaxed);
                flag.failed.store(failed, Ordering::Relaxed);
                flag.raise();
            }
            Item::Foreign(label) => self.ran.lock().unwrap().push(label),
            Item::Work {
                epoch,
                labels,
                timestamps,
            } => {
                if let Some(timestamps) = timestamps {
                    timestamps.start.store(self.tick(), Ordering::Release);
                    timestamps.end.store(self.tick(), Ordering::Release);
                }
                let failing = self.failing.lock().unwrap().clone();
                if labels.iter().any(|label| failing.contains(label)) {
                    line.failed.store(true, Ordering::Relaxed);
                }
                if !line.failed.load(Ordering::Relaxed) {
                    self.ran.lock().unwrap().extend(labels);
                }
                line.done.store(epoch, Ordering::Release);
                let mut callbacks = line.callbacks.lock().unwrap();
                let (due, rest) = std::mem::take(&mut *callbacks)
                    .into_iter()
                    .partition(|(at, _)| *at <= epoch);
                *callbacks = rest;
                drop(callbacks);
                let _: &Vec<(u64, CompletionCallback)> = &due;
                due.into_iter().for_each(|(_, callback)| callback());
            }
        }
        true
    }

    /// Completes all that can be.
    pub fn run(&self) {
        let lines = || self.lanes.lock().unwrap().clone();
        while lines().iter().filter(|line| self.step_line(line)).count() > 0 {}
    }

    /// Number of queued items on each lane, waits and records included.
    pub fn loads(&self) -> Vec<usize> {
        self.lanes
            .lock()
            .unwrap()
            .iter()
            .map(|line| line.items.lock().unwrap().len())
            .collect()
    }

    /// Lanes, submissions, waits and records so far.
    pub fn calls(&self) -> [usize; 4] {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        [
            count(&self.submits),
            count(&self.waits),
            count(&self.marks),
            count(&self.acquires),
        ]
    }

    pub fn waits(&self) -> usize {
        self.waits.load(Ordering::Relaxed)
    }

    pub fn ran(&self) -> Vec<u32> {
        self.ran.lock().unwrap().clone()
    }

    fn tick(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) as u64 + 1
    }
}

impl Flag {
    pub(super) fn raise(&self) {
        self.set.store(true, Ordering::Release);
        std::mem::take(&mut *self.callbacks.lock().unwrap())
            .into_iter()
            .for_each(|callback| callback());
    }
}

impl Marker {
    pub(super) fn is_done(&self) -> bool {
        match self {
            Self::Epoch(_, line, epoch) => line.done.load(Ordering::Acquire) >= *epoch,
            Self::Flag(_, flag) => flag.set.load(Ordering::Acquire),
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        match self {
            Self::Epoch(..) => false,
            Self::Flag(_, flag) => flag.failed.load(Ordering::Relaxed),
        }
    }

    pub(super) fn driver(&self) -> &FakeDriver {
        match self {
            Self::Epoch(driver, ..) | Self::Flag(driver, _) => driver,
        }
    }
}

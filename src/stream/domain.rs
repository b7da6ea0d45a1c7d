//! What outlives a context's handle: its devices, the driver's state for them, its lanes and memory.

use super::engine::{FAILED, enter};
use super::lane::LaneCore;
use super::memory::Memory;
use super::{Driver, Engine, Queue};
use crate::object::{Object, Result};
use crate::timeline::{Clock, Failure, Frontier, Gathered, Point};
use std::sync::{Arc, Mutex, Weak};

/// Failures of what is on no lane, until they are reported.
#[derive(Default)]
pub(crate) struct Failures(Mutex<Vec<Arc<Failure>>>);

impl Failures {
    pub fn add(&self, why: &Arc<Failure>) {
        let mut all = enter(&self.0);
        all.retain(|failure| !failure.is_reported());
        all.push(Arc::clone(why));
    }

    /// A wait covers them all: an error if any had not been reported.
    pub fn report(&self) -> Result<()> {
        let all = std::mem::take(&mut *enter(&self.0));
        match all.iter().filter(|failure| failure.report()).count() {
            0 => Ok(()),
            _ => Err(FAILED),
        }
    }
}

/// The devices of a context with all that was made for them.
pub struct Domain<D: Driver> {
    engine: Arc<Engine<D>>,
    devices: Box<[Arc<Object<D::Device>>]>,
    state: D::State,
    lanes: Mutex<Vec<Weak<LaneCore<D>>>>,
    queues: Mutex<Vec<Weak<Object<Queue<D>>>>>,
    /// Points that the host was to signal when last looked at.
    host_points: Mutex<Gathered<Frontier>>,
    /// What was pending on queues that ended, in a deterministic run.
    orphans: Mutex<Frontier>,
    /// Why host tasks did not run.
    failures: Failures,
    pub(crate) memory: Memory<D>,
}

impl<D: Driver> Domain<D> {
    pub(crate) fn new(
        engine: &Arc<Engine<D>>,
        devices: Box<[Arc<Object<D::Device>>]>,
        state: D::State,
    ) -> Arc<Self> {
        let domain = Arc::new(Self {
            engine: Arc::clone(engine),
            devices,
            state,
            lanes: Mutex::default(),
            queues: Mutex::default(),
            host_points: Mutex::default(),
            orphans: Mutex::default(),
            failures: Failures::default(),
            memory: Memory::default(),
        });
        engine.add_domain(&domain);
        domain
    }

    pub fn engine(&self) -> &Arc<Engine<D>> {
        &self.engine
    }

    /// The devices, in the order in which the context was given them. At least one.
    pub fn devices(&self) -> &[Arc<Object<D::Device>>] {
        &self.devices
    }

    pub fn state(&self) -> &D::State {
        &self.state
    }

    /// Which of the devices this is, or is a part of.
    pub fn index_of(&self, device: &Object<D::Device>) -> Option<usize> {
        let index = |device: &Object<D::Device>| {
            self.devices
                .iter()
                .position(|own| std::ptr::eq(&**own, device))
        };
        if let Some(found) = index(device) {
            return Some(found);
        }
        let mut parent = D::parent(device);
        while let Some(device) = parent {
            if let Some(found) = index(&device) {
                return Some(found);
            }
            parent = D::parent(&device);
        }
        None
    }

    pub(crate) fn add_lane(&self, lane: &Arc<LaneCore<D>>) {
        let mut lanes = enter(&self.lanes);
        lanes.retain(|old| old.strong_count() > 0);
        lanes.push(Arc::downgrade(lane));
    }

    pub(crate) fn lanes(&self) -> Vec<Arc<LaneCore<D>>> {
        enter(&self.lanes)
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    pub(crate) fn add_queue(&self, queue: &Arc<Object<Queue<D>>>) {
        let mut queues = enter(&self.queues);
        queues.retain(|old| old.strong_count() > 0);
        queues.push(Arc::downgrade(queue));
    }

    pub(crate) fn queues(&self) -> Vec<Arc<Object<Queue<D>>>> {
        enter(&self.queues)
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    pub(crate) fn add_host_point(&self, point: &Point) {
        enter(&self.host_points).grow().join_point(point);
    }

    pub(crate) fn host_points(&self) -> Frontier {
        let mut points = enter(&self.host_points);
        points.prune();
        points.all.clone()
    }

    /// A queue has ended with this pending. When that completes depends on time, so that in a
    /// deterministic run it stays pending until the program awaits it.
    pub(crate) fn add_orphan(&self, tip: &Frontier) {
        if self.engine.is_deterministic() {
            let mut orphans = enter(&self.orphans);
            orphans.prune();
            orphans.join(tip);
        }
    }

    pub(crate) fn orphans(&self) -> Frontier {
        enter(&self.orphans).clone()
    }

    /// A host task of one of the context's queues did not run.
    pub(crate) fn add_failure(&self, why: &Arc<Failure>) {
        self.failures.add(why);
    }

    /// As [`LaneCore::report`], of what is on no lane.
    pub(crate) fn report(&self) -> Result<()> {
        self.failures.report()
    }

    /// Everything enqueued in the context so far.
    pub(crate) fn everything(&self) -> Frontier {
        let mut all = self.host_points();
        all.join(&self.orphans());
        for lane in self.lanes() {
            all.join(&lane.tip());
        }
        all.prune();
        all
    }

    /// Observes completion, where the driver does not tell by itself.
    pub(crate) fn poll(&self) {
        if D::TRACKS {
            return;
        }
        for lane in self.lanes() {
            if let Err(error) = lane.poll() {
                log::error!("asking a lane how far it is failed: {:?}", error.code());
            }
        }
    }

    /// Observes how far the lanes have come, where the driver does not tell by itself. Waits for no
    /// lane's lock.
    pub(crate) fn observe(&self) {
        for lane in self.lanes() {
            if let Err(error) = lane.observe() {
                log::error!("asking whether a lane is idle failed: {:?}", error.code());
            }
        }
    }

    /// Gives back what pools hold beyond their thresholds, as far as it is complete.
    pub(crate) fn settle(&self) {
        if self.memory.wants_settling() {
            self.poll();
            self.memory.settle();
        }
    }

    /// Runs one piece of work on a lane of its own and waits for it.
    pub(crate) fn run_now(&self, device: &Object<D::Device>, work: super::Work<D>) -> Result<()> {
        self.engine.check()?;
        let clock = Clock::new();
        let lane = D::lane(self, device, Default::default(), &clock)?;
        D::submit(&lane, 1, work, None)?;
        D::block(&D::mark(&lane, 1)?)
    }
}

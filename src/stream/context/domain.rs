//! What outlives a context's handle: its devices, the driver's state for them, its lanes and memory.

use crate::object::{Object, Result};
use crate::stream::engine::{FAILED, enter};
use crate::stream::lane::lanes::Lanes;
use crate::stream::usm::memory::Memory;
use crate::stream::{Driver, Engine, Queue};
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

/// The queues of a context, and how many there were when ended ones were last left out.
struct Queues<D: Driver> {
    all: Vec<Weak<Object<Queue<D>>>>,
    left: usize,
}

impl<D: Driver> Default for Queues<D> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            left: 0,
        }
    }
}

/// Ended queues that are not worth looking for.
const FEW: usize = 32;

/// The devices of a context with all that was made for them.
pub struct Domain<D: Driver> {
    engine: Arc<Engine<D>>,
    devices: Box<[Arc<Object<D::Device>>]>,
    state: D::State,
    lanes: Lanes<D>,
    queues: Mutex<Queues<D>>,
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
            lanes: Lanes::default(),
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

    pub(crate) fn lanes(&self) -> &Lanes<D> {
        &self.lanes
    }

    pub(crate) fn add_queue(&self, queue: &Arc<Object<Queue<D>>>) {
        let mut queues = enter(&self.queues);
        if queues.all.len() >= 2 * queues.left + FEW {
            queues.all.retain(|old| old.strong_count() > 0);
            queues.left = queues.all.len();
        }
        queues.all.push(Arc::downgrade(queue));
    }

    pub(crate) fn queues(&self) -> Vec<Arc<Object<Queue<D>>>> {
        let queues = enter(&self.queues);
        queues.all.iter().filter_map(Weak::upgrade).collect()
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
        let lanes = self.lanes.busy();
        for lane in &lanes {
            all.join(&lane.tip());
        }
        self.lanes.park(&lanes);
        all.prune();
        all
    }

    /// Observes completion, where the driver does not tell by itself.
    pub(crate) fn poll(&self) {
        if D::TRACKS {
            return;
        }
        let lanes = self.lanes.busy();
        for lane in &lanes {
            if let Err(error) = lane.poll() {
                log::error!("asking a lane how far it is failed: {:?}", error.code());
            }
        }
        self.lanes.park(&lanes);
    }

    /// Observes how far the lanes have come, where the driver does not tell by itself. Waits for no
    /// lane's lock.
    pub(crate) fn observe(&self) {
        let lanes = self.lanes.busy();
        for lane in &lanes {
            if let Err(error) = lane.observe() {
                log::error!("asking whether a lane is idle failed: {:?}", error.code());
            }
        }
        self.lanes.park(&lanes);
    }

    /// Gives back what pools hold beyond their thresholds, as far as it is complete.
    pub(crate) fn settle(&self) {
        if self.memory.wants_settling() {
            self.poll();
            self.memory.settle();
        }
    }

    /// Runs one piece of work on a lane of its own and waits for it.
    pub(crate) fn run_now(
        &self,
        device: &Object<D::Device>,
        work: crate::stream::Work<D>,
    ) -> Result<()> {
        self.engine.check()?;
        let clock = Clock::new();
        let lane = D::lane(self, device, Default::default(), &clock)?;
        D::submit(&lane, 1, work, None)?;
        D::block(&D::mark(&lane, 1)?)
    }
}

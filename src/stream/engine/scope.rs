//! The engine's part of one context: its devices, and pending points and failures outside lanes.

use crate::object::{Object, Result};
use crate::stream::driver::FAILED;
use crate::stream::{Devices, Driver, Engine};
use crate::sync::Mutex;
use crate::timeline::{Failure, Frontier, Point, Pruned};
use std::ops::Deref;
use std::sync::Arc;

/// Unreported failures outside lanes.
#[derive(Default)]
pub(crate) struct Failures(Mutex<Vec<Arc<Failure>>>);

impl Failures {
    pub fn add(&self, why: &Arc<Failure>) {
        let mut all = self.0.lock();
        all.retain(|failure| !failure.is_reported());
        all.push(Arc::clone(why));
    }

    /// Reports them all. An error if one of them was not reported before.
    pub fn report(&self) -> Result<()> {
        let all = std::mem::take(&mut *self.0.lock());
        match all.iter().filter(|failure| failure.report()).count() {
            0 => Ok(()),
            _ => Err(FAILED),
        }
    }
}

/// The part of a context that lanes and points use.
pub struct Scope<D: Driver> {
    engine: Arc<Engine<D>>,
    devices: Devices<D>,
    /// Host points that were pending at the last prune.
    host_points: Mutex<Pruned<Frontier>>,
    /// Pending points of queues that ended, in a deterministic run.
    orphans: Mutex<Frontier>,
    /// Failures of host tasks.
    failures: Failures,
}

impl<D: Driver> Deref for Scope<D> {
    type Target = Devices<D>;

    fn deref(&self) -> &Devices<D> {
        &self.devices
    }
}

impl<D: Driver> Scope<D> {
    pub(crate) fn new(
        engine: &Arc<Engine<D>>,
        devices: Box<[Arc<Object<D::Device>>]>,
        state: D::ContextData,
    ) -> Self {
        Self {
            engine: Arc::clone(engine),
            devices: Devices::new(devices, state, engine.is_deterministic()),
            host_points: Mutex::default(),
            orphans: Mutex::default(),
            failures: Failures::default(),
        }
    }

    pub fn engine(&self) -> &Arc<Engine<D>> {
        &self.engine
    }

    pub(crate) fn add_host_point(&self, point: &Point) {
        self.host_points.lock().grow().join_point(point);
    }

    pub(crate) fn host_points(&self) -> Frontier {
        let mut points = self.host_points.lock();
        points.prune();
        points.all.clone()
    }

    /// Adds the pending points of a queue that ended. When they complete depends on time, so in a
    /// deterministic run they stay pending until the program waits for them.
    pub(crate) fn add_orphan(&self, tip: &Frontier) {
        if self.engine.is_deterministic() {
            let mut orphans = self.orphans.lock();
            orphans.prune();
            orphans.join(tip);
        }
    }

    pub(crate) fn orphans(&self) -> Frontier {
        self.orphans.lock().clone()
    }

    /// Adds the failure of a host task.
    pub(crate) fn add_failure(&self, why: &Arc<Failure>) {
        self.failures.add(why);
    }

    /// Reports the failures outside lanes. An error if one of them was not reported before.
    pub(crate) fn report(&self) -> Result<()> {
        self.failures.report()
    }
}

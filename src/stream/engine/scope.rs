//! What the engine knows of one context: its devices, and what is pending or has failed on no lane.

use crate::object::{Object, Result};
use crate::stream::driver::FAILED;
use crate::stream::{Devices, Driver, Engine};
use crate::timeline::sync::Mutex;
use crate::timeline::{Failure, Frontier, Gathered, Point};
use std::ops::Deref;
use std::sync::Arc;

/// Failures of what is on no lane, until they are reported.
#[derive(Default)]
pub(crate) struct Failures(Mutex<Vec<Arc<Failure>>>);

impl Failures {
    pub fn add(&self, why: &Arc<Failure>) {
        let mut all = self.0.lock();
        all.retain(|failure| !failure.is_reported());
        all.push(Arc::clone(why));
    }

    /// A wait covers them all: an error if any had not been reported.
    pub fn report(&self) -> Result<()> {
        let all = std::mem::take(&mut *self.0.lock());
        match all.iter().filter(|failure| failure.report()).count() {
            0 => Ok(()),
            _ => Err(FAILED),
        }
    }
}

/// The part of a context that lanes and points need.
pub struct Scope<D: Driver> {
    engine: Arc<Engine<D>>,
    devices: Devices<D>,
    /// Points that the host was to signal when last looked at.
    host_points: Mutex<Gathered<Frontier>>,
    /// What was pending on queues that ended, in a deterministic run.
    orphans: Mutex<Frontier>,
    /// Why host tasks did not run.
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

    /// A queue has ended with this pending. When that completes depends on time, so that in a
    /// deterministic run it stays pending until the program awaits it.
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

    /// A host task of one of the context's queues did not run.
    pub(crate) fn add_failure(&self, why: &Arc<Failure>) {
        self.failures.add(why);
    }

    /// A wait covers all that is on no lane: an error if something failed that no wait has reported.
    pub(crate) fn report(&self) -> Result<()> {
        self.failures.report()
    }
}

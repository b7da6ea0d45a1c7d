//! What a lane is given of a recording, all in a row.

use crate::object::{Error, Result};
use crate::stream::engine::dependencies::{Dependencies, EventDependencies};
use crate::stream::engine::{HostPoint, HostSignal};
use crate::stream::work::call::Call;
use crate::stream::{Compiled, Driver, Timestamps, Work};
use std::sync::Arc;

/// A unit on its way to a lane.
pub(crate) struct Part<'a, D: Driver> {
    pub given: Given<'a, D>,
    /// What it comes after beyond the recording.
    pub waits: Dependencies,
    pub timestamps: Option<Arc<Timestamps>>,
    /// For a host task, which is no work of the lane's.
    pub held: Option<Held<D>>,
    pub wanted: bool,
    /// How far it reaches, once it was given and if that was wanted.
    pub deps: Option<EventDependencies>,
}

/// A host task on its way: what it signals, then the point of that and what it waits for.
pub(crate) struct Held<D: Driver> {
    signal: Option<HostSignal<D>>,
    pub call: Call,
    pub placed: Option<(HostPoint<D>, Dependencies)>,
}

impl<D: Driver> Held<D> {
    pub fn new(signal: HostSignal<D>, call: Call) -> Self {
        Self {
            signal: Some(signal),
            call,
            placed: None,
        }
    }

    /// Has `hold` give it its place, once: what the task reaches.
    pub fn place(
        &mut self,
        hold: impl FnOnce(HostSignal<D>) -> Result<(HostPoint<D>, Dependencies)>,
    ) -> Result<Dependencies> {
        let signal = self.signal.take().ok_or(Error::unsupported())?;
        let (point, before) = hold(signal)?;
        let deps = before.held_by(&point.point);
        self.placed = Some((point, before));
        Ok(deps)
    }
}

/// What a lane is given.
pub(crate) enum Given<'a, D: Driver> {
    Work(&'a Work<D>),
    Compiled(&'a dyn Compiled<D>),
}

impl<D: Driver> Given<'_, D> {
    pub fn submit(
        &self,
        lane: &D::Lane,
        epoch: u64,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<()> {
        match self {
            Self::Work(work) => D::submit(lane, epoch, (*work).clone(), timestamps),
            Self::Compiled(compiled) => compiled.submit(lane, epoch, timestamps),
        }
    }
}

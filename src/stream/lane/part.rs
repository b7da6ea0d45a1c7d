//! Units of a recording that are submitted to one lane in a row.

use crate::object::{Error, Result};
use crate::stream::engine::dependencies::{Dependencies, EventDependencies};
use crate::stream::engine::{HostPoint, HostSignal};
use crate::stream::work::call::Call;
use crate::stream::{Compiled, Driver, Progress, Timestamps, Work};
use std::sync::Arc;

/// One unit of a submission.
pub(crate) struct Part<'a, D: Driver> {
    pub work: PartWork<'a, D>,
    /// Dependencies outside the recording.
    pub waits: Dependencies,
    pub timestamps: Option<Arc<Timestamps>>,
    /// The host task of the unit, if it is one.
    pub host_task: Option<HostTask<D>>,
    pub wanted: bool,
    /// Dependencies of its event, if `wanted`; set by the submission.
    pub deps: Option<EventDependencies>,
}

/// A host task in submission: its signal, then its point and the dependencies of the host.
pub(crate) struct HostTask<D: Driver> {
    signal: Option<HostSignal<D>>,
    pub call: Call,
    pub enqueued: Option<(HostPoint<D>, Dependencies)>,
}

impl<D: Driver> HostTask<D> {
    pub fn new(signal: HostSignal<D>, call: Call) -> Self {
        Self {
            signal: Some(signal),
            call,
            enqueued: None,
        }
    }

    /// Enqueues the task by `hold`, once. Returns the dependencies of its event.
    pub fn enqueue(
        &mut self,
        hold: impl FnOnce(HostSignal<D>) -> Result<(HostPoint<D>, Dependencies)>,
    ) -> Result<Dependencies> {
        let signal = self.signal.take().ok_or(Error::unsupported())?;
        let (point, before) = hold(signal)?;
        let deps = before.after_host_point(&point.point);
        self.enqueued = Some((point, before));
        Ok(deps)
    }
}

/// The work of a unit.
pub(crate) enum PartWork<'a, D: Driver> {
    Work(&'a Work<D>),
    Compiled(&'a dyn Compiled<D>),
}

impl<D: Driver> PartWork<'_, D> {
    pub fn submit(
        &self,
        lane: &D::Lane,
        epoch: u64,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<Progress> {
        match self {
            Self::Work(work) => D::submit(lane, epoch, (*work).clone(), timestamps),
            Self::Compiled(compiled) => compiled.submit(lane, epoch, timestamps),
        }
    }
}

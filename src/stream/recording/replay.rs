//! A recording with what is submitted of it at each execution.

use crate::stream::engine::dependencies::Dependencies;
use crate::stream::recording::Recording;
use crate::stream::recording::command::Target;
use crate::stream::{Compiled, Driver, Engine, Work};
use std::ops::Range;
use std::sync::Arc;

/// Commands of a recording that are submitted as one.
pub(crate) struct Unit<D: Driver> {
    /// One, unless the backend has made an object of several.
    pub nodes: Range<usize>,
    pub compiled: Option<Arc<dyn Compiled<D>>>,
    /// Units that it follows.
    pub after: Vec<u32>,
    /// Whether nothing follows it.
    pub leaf: bool,
}

impl<D: Driver> Unit<D> {
    pub fn new(
        nodes: Range<usize>,
        compiled: Option<Arc<dyn Compiled<D>>>,
        after: Vec<u32>,
    ) -> Self {
        Self {
            nodes,
            compiled,
            after,
            leaf: true,
        }
    }

    /// Whether an execution can begin or end with it.
    pub fn is_end(&self) -> bool {
        self.leaf || self.after.is_empty()
    }

    pub fn mark_leaves(units: &mut [Self]) {
        for at in 0..units.len() {
            for before in units[at].after.clone() {
                units[before as usize].leaf = false;
            }
        }
    }
}

/// What can be submitted again and again.
pub(crate) struct Replay<D: Driver> {
    pub program: Program<D>,
    engine: Arc<Engine<D>>,
    /// What the last submission reaches: the next one comes after it.
    pub last: Dependencies,
}

/// A recording, and what is submitted of it at each execution.
pub(crate) struct Program<D: Driver> {
    pub recording: Recording<D>,
    pub units: Vec<Unit<D>>,
}

impl<D: Driver> Replay<D> {
    pub fn new(recording: Recording<D>, target: Target<'_, D>, updatable: bool) -> Self {
        let units = recording.plan(target, updatable);
        Self {
            program: Program { recording, units },
            engine: Arc::clone(target.context.domain().engine()),
            last: Dependencies::default(),
        }
    }

    pub fn recording(&self) -> &Recording<D> {
        &self.program.recording
    }

    /// For changes: what is made of the commands must then follow, by [`Replay::update`] or
    /// [`Replay::plan`].
    pub fn recording_mut(&mut self) -> &mut Recording<D> {
        &mut self.program.recording
    }

    /// Makes anew what is submitted.
    pub fn plan(&mut self, target: Target<'_, D>, updatable: bool) {
        let units = self.program.recording.plan(target, updatable);
        let before = std::mem::replace(&mut self.program.units, units);
        self.retain(before);
    }

    /// Has what was made of a command take over its new work. False if it cannot.
    pub fn update(&self, node: usize, work: &Work<D>) -> bool {
        let units = &self.program.units;
        let at = units.partition_point(|unit| unit.nodes.end <= node);
        let Some(unit) = units.get(at) else {
            return false;
        };
        let inside = node.saturating_sub(unit.nodes.start);
        let compiled = unit.compiled.as_ref();
        compiled.is_none_or(|compiled| compiled.update(inside, work))
    }

    /// Keeps what the last submission may still use for as long as that runs.
    pub fn retain<T: Send + Sync + 'static>(&self, what: T) {
        retain_until(&self.engine, &self.last, what);
    }
}

impl<D: Driver> Drop for Replay<D> {
    /// What is still running keeps what it needs.
    fn drop(&mut self) {
        let nodes = std::mem::take(&mut self.program.recording.nodes);
        let units = std::mem::take(&mut self.program.units);
        self.retain((nodes, units));
    }
}

/// Drops something when this is complete.
fn retain_until<D: Driver, T: Send + Sync + 'static>(
    engine: &Arc<Engine<D>>,
    until: &Dependencies,
    what: T,
) {
    if until.done.is_done() {
        return;
    }
    let what = Arc::new(what);
    let retained = Arc::clone(&what);
    if engine.when(until.clone(), move |_| drop(retained)).is_err()
        && let Err(error) = engine.wait(&until.done)
    {
        log::error!("what a recording used goes early: {:?}", error.code());
    }
}

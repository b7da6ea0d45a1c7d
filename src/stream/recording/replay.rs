//! A recording and its units of submission.

use crate::stream::engine::dependencies::Dependencies;
use crate::stream::recording::Recording;
use crate::stream::recording::command::Target;
use crate::stream::{Compiled, Driver, Engine, Work};
use std::ops::Range;
use std::sync::Arc;

/// Commands of a recording that are submitted as one.
pub(crate) struct Unit<D: Driver> {
    /// One command, or several in a compiled object.
    pub nodes: Range<usize>,
    pub compiled: Option<Arc<dyn Compiled<D>>>,
    /// Indices of its predecessors.
    pub after: Vec<u32>,
    /// Whether no unit follows it.
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

/// A recording that can be submitted repeatedly.
pub(crate) struct Replay<D: Driver> {
    pub program: Program<D>,
    engine: Arc<Engine<D>>,
    /// Dependencies of the last submission, which the next one follows.
    pub last: Dependencies,
}

/// A recording, and its units.
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

    /// For changes. The caller then updates the units, by [`Replay::update`] or [`Replay::plan`].
    pub fn recording_mut(&mut self) -> &mut Recording<D> {
        &mut self.program.recording
    }

    /// Compiles the units again.
    pub fn plan(&mut self, target: Target<'_, D>, updatable: bool) {
        let units = self.program.recording.plan(target, updatable);
        let before = std::mem::replace(&mut self.program.units, units);
        self.retain(before);
    }

    /// Updates the unit of a command to its new work. False if it cannot be updated.
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

    /// Retains objects until the last submission has ended.
    pub fn retain<T: Send + Sync + 'static>(&self, what: T) {
        retain_until(&self.engine, &self.last, what);
    }
}

impl<D: Driver> Drop for Replay<D> {
    /// A running submission retains its objects.
    fn drop(&mut self) {
        let nodes = std::mem::take(&mut self.program.recording.nodes);
        let units = std::mem::take(&mut self.program.units);
        self.retain((nodes, units));
    }
}

/// Drops `what` once these dependencies are complete.
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
    if engine.when(until.clone(), move |_| drop(retained)).is_err() {
        engine.wait_to_release(&until.done);
    }
}

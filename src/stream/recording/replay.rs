//! Submits recorded commands: all of a recording to a queue, as one command of it.
//!
//! On an in-order queue that is one lane, given everything in a row. On an out-of-order queue each
//! unit goes on a lane of its own choice, so that what does not depend on each other runs at once.
//! There is no event for each command; what is handed out is how far the whole reaches.

use crate::object::{Error, Object, Result};
use crate::stream::engine::reach::{Reach, Reached};
use crate::stream::engine::{HostPoint, HostSignal, enter};
use crate::stream::event::{Event, Times};
use crate::stream::lane::Progress;
use crate::stream::queue::Shape;
use crate::stream::queue::host_task::Call;
use crate::stream::queue::out_of_order::OutOfOrder;
use crate::stream::recording::Recording;
use crate::stream::recording::command::Site;
use crate::stream::{Compiled, Driver, Engine, Queue, Stamps, Work};
use std::ops::Range;
use std::sync::Arc;

/// Commands of a recording that are submitted as one.
pub(crate) struct Unit<D: Driver> {
    /// One, unless the backend has made an object of several.
    nodes: Range<usize>,
    pub compiled: Option<Arc<dyn Compiled<D>>>,
    /// Units that it follows.
    after: Vec<u32>,
    /// Whether nothing follows it.
    leaf: bool,
}

/// A unit on its way to a lane.
pub(crate) struct Part<'a, D: Driver> {
    pub given: Given<'a, D>,
    /// What it comes after beyond the recording.
    pub waits: Reach,
    pub stamps: Option<Arc<Stamps>>,
    /// For a host task, which is no work of the lane's.
    pub held: Option<Held<D>>,
    pub wanted: bool,
    /// How far it reaches, once it was given and if that was wanted.
    pub reach: Option<Reached>,
}

/// A host task on its way: what it signals, then the point of that and what it waits for.
pub(crate) struct Held<D: Driver> {
    signal: Option<HostSignal<D>>,
    call: Call,
    placed: Option<(HostPoint<D>, Reach)>,
}

impl<D: Driver> Held<D> {
    fn new(queue: &Queue<D>, call: Call) -> Result<Self> {
        let signal = queue.engine().host_signal(queue.context().domain())?;
        Ok(Self {
            signal: Some(signal),
            call,
            placed: None,
        })
    }

    /// Has `hold` give it its place, once: what the task reaches.
    pub fn place(
        &mut self,
        hold: impl FnOnce(HostSignal<D>) -> Result<(HostPoint<D>, Reach)>,
    ) -> Result<Reach> {
        let signal = self.signal.take().ok_or(Error::unsupported())?;
        let (point, before) = hold(signal)?;
        let reach = before.held_by(&point.point);
        self.placed = Some((point, before));
        Ok(reach)
    }
}

/// What a lane is given.
pub(crate) enum Given<'a, D: Driver> {
    Work(&'a Work<D>),
    Compiled(&'a dyn Compiled<D>),
}

impl<D: Driver> Part<'_, D> {
    /// Has the host task run when its turn comes.
    fn start(&mut self, queue: &Object<Queue<D>>) -> Result<()> {
        match self.held.take() {
            Some(Held {
                call,
                placed: Some((point, before)),
                ..
            }) => Queue::start(queue, call, point, self.stamps.clone(), before),
            _ => Ok(()),
        }
    }
}

impl<D: Driver> Given<'_, D> {
    pub fn submit(&self, lane: &D::Lane, epoch: u64, stamps: Option<Arc<Stamps>>) -> Result<()> {
        match self {
            Self::Work(work) => D::submit(lane, epoch, (*work).clone(), stamps),
            Self::Compiled(compiled) => compiled.submit(lane, epoch, stamps),
        }
    }
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
    fn is_end(&self) -> bool {
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
    program: Program<D>,
    engine: Arc<Engine<D>>,
    /// What the last submission reaches: the next one comes after it.
    last: Reach,
}

/// A recording, and what is submitted of it at each execution.
struct Program<D: Driver> {
    recording: Recording<D>,
    units: Vec<Unit<D>>,
}

impl<D: Driver> Replay<D> {
    pub fn new(recording: Recording<D>, site: Site<'_, D>, updatable: bool) -> Self {
        let units = recording.plan(site, updatable);
        Self {
            program: Program { recording, units },
            engine: Arc::clone(site.context.domain().engine()),
            last: Reach::default(),
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
    pub fn plan(&mut self, site: Site<'_, D>, updatable: bool) {
        let units = self.program.recording.plan(site, updatable);
        let before = std::mem::replace(&mut self.program.units, units);
        self.keep(before);
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
    pub fn keep<T: Send + Sync + 'static>(&self, what: T) {
        keep_until(&self.engine, &self.last, what);
    }

    /// Submits everything after `waits` and the submission before: how far that reaches, and its
    /// times if it was `queued` at one and they are wanted. If it fails on the way, what was given
    /// runs to its end, and the events of the rest have failed.
    pub fn submit(
        &mut self,
        queue: &Object<Queue<D>>,
        waits: &Reach,
        queued: Option<u64>,
        wanted: bool,
    ) -> Result<(Reached, Option<Times>)> {
        queue.engine().check()?;
        let timed = queued.is_some();
        let mut parts = self.program.parts(queue, timed, wanted)?;
        let mut waits = waits.clone();
        self.last.prune();
        waits.join(&self.last);
        let units = &self.program.units;
        let (reach, result) = match &queue.shape {
            Shape::InOrder(lane) => lane.submit_all(&waits, &mut parts),
            Shape::OutOfOrder(lanes) => spread(units, &mut enter(lanes), &waits, &mut parts),
        };
        self.program.signal(&parts, queued);
        let started = parts.iter_mut().map(|part| part.start(queue));
        let result = started.fold(result, Result::and);
        // What was given of a failed submission comes before the next one, too.
        match result {
            Ok(()) => self.last = Reach::clone(&reach),
            Err(_) => self.last.join(&reach),
        }
        result?;
        let ends = units.iter().zip(parts).filter(|(unit, _)| unit.is_end());
        let stamps = ends.filter_map(|(_, part)| part.stamps).collect();
        let times = queued.filter(|_| wanted).map(|queued| Times {
            queued,
            stamps: Stamps::over(stamps),
        });
        Ok((reach, times))
    }
}

impl<D: Driver> Program<D> {
    /// What has to be resolved before anything is given to a lane.
    fn parts(&self, queue: &Queue<D>, timed: bool, wanted: bool) -> Result<Vec<Part<'_, D>>> {
        let part = |unit| self.part(queue, unit, timed, wanted);
        self.units.iter().map(part).collect()
    }

    fn part<'a>(
        &'a self,
        queue: &Queue<D>,
        unit: &'a Unit<D>,
        timed: bool,
        wanted: bool,
    ) -> Result<Part<'a, D>> {
        let (node, id) = (&self.recording.nodes[unit.nodes.start], self.recording.id);
        let waits = node.waits.iter().map(|event| &**event);
        let outside = waits.filter(|event| event.node_of(id).is_none());
        let signals = node.signal.is_some();
        let timed = timed && (signals || wanted && unit.is_end());
        Ok(Part {
            given: match &unit.compiled {
                Some(compiled) => Given::Compiled(&**compiled),
                None => Given::Work(&node.work),
            },
            waits: Event::join(queue.context(), outside)?.into_owned(),
            stamps: timed.then(Arc::default),
            held: node.host.map(|call| Held::new(queue, call)).transpose()?,
            wanted: signals,
            reach: None,
        })
    }

    /// Has the events of the commands stand for this execution of them.
    fn signal(&self, parts: &[Part<'_, D>], queued: Option<u64>) {
        for (unit, part) in self.units.iter().zip(parts) {
            let Some(event) = &self.recording.nodes[unit.nodes.start].signal else {
                continue;
            };
            let times = queued.zip(part.stamps.clone());
            let times = times.map(|(queued, stamps)| Times { queued, stamps });
            event.stand_for(part.reach.clone().map(|reach| (reach, times)));
        }
    }
}

/// Gives each unit to a lane of its own choice.
fn spread<D: Driver>(
    units: &[Unit<D>],
    lanes: &mut OutOfOrder<D>,
    waits: &Reach,
    parts: &mut [Part<'_, D>],
) -> (Reached, Result<()>) {
    let mut result = Ok(());
    for (at, unit) in units.iter().enumerate() {
        let (before, rest) = parts.split_at_mut(at);
        let Some(part) = rest.first_mut() else { break };
        let mut own = part.waits.clone();
        if unit.after.is_empty() {
            own.join(waits);
        }
        for reach in unit
            .after
            .iter()
            .filter_map(|&unit| before[unit as usize].reach.as_ref())
        {
            own.join(reach);
        }
        if let Some(held) = &mut part.held {
            match held.place(|signal| Ok(lanes.hold(&own, signal))) {
                Ok(reach) => part.reach = Some(reach.into()),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
            continue;
        }
        let give = |lane: &D::Lane, epoch| {
            let given = part.given.submit(lane, epoch, part.stamps.clone());
            given.map(|()| Progress::Pending)
        };
        match lanes.submit_with(&own, true, give) {
            Ok(reach) => part.reach = reach,
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    let mut all = Reach::default();
    for (unit, part) in units.iter().zip(parts) {
        if let Some(reach) = part.reach.as_ref().filter(|_| unit.leaf || result.is_err()) {
            all.join(reach);
        }
    }
    (all.into(), result)
}

impl<D: Driver> Drop for Replay<D> {
    /// What is still running keeps what it needs.
    fn drop(&mut self) {
        let nodes = std::mem::take(&mut self.program.recording.nodes);
        let units = std::mem::take(&mut self.program.units);
        self.keep((nodes, units));
    }
}

/// Drops something when this is complete.
fn keep_until<D: Driver, T: Send + Sync + 'static>(
    engine: &Arc<Engine<D>>,
    until: &Reach,
    what: T,
) {
    if until.done.is_done() {
        return;
    }
    let what = Arc::new(what);
    let kept = Arc::clone(&what);
    if engine.when(until.clone(), move |_| drop(kept)).is_err()
        && let Err(error) = engine.wait(&until.done)
    {
        log::error!("what a recording used goes early: {:?}", error.code());
    }
}

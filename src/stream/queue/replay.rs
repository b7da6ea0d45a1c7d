//! Submits a recording to a queue, as one command of it.
//!
//! An in-order queue submits all units to its lane in a row. An out-of-order queue chooses a lane
//! for each unit, so that independent ones run at once. There is no event for each command; the
//! result is the dependencies of the whole.

use crate::abi::*;
use crate::object::{Error, Handles, Object, OutHandle, Result, ensure};
use crate::stream::engine::dependencies::{Dependencies, EventDependencies};
use crate::stream::event::{Event, Times};
use crate::stream::lane::part::{HostTask, Part, PartWork};
use crate::stream::queue::out_of_order::OutOfOrder;
use crate::stream::queue::{Shape, host_task};
use crate::stream::recording::command_buffer::{BufferState, CommandBuffer};
use crate::stream::recording::replay::{Program, Replay, Unit};
use crate::stream::work::call::Call;
use crate::stream::{Driver, Queue, Timestamps, Work};
use std::sync::Arc;

/// `urEnqueueCommandBufferExp`
pub(crate) fn command_buffer<D: Driver>(
    this: &Object<CommandBuffer<D>>,
    queue: &Object<Queue<D>>,
    waits: Handles<'_, Event<D>>,
    event: OutHandle<'_, Event<D>>,
) -> Result<()> {
    let own = Arc::ptr_eq(this.target().context.domain(), queue.context().domain())
        && std::ptr::eq(this.device(), &**queue.device());
    ensure(own, UR_RESULT_ERROR_INVALID_QUEUE)?;
    queue.live(waits)?;
    let waits = Event::join_list(queue.context(), waits)?;
    let mut state = this.state();
    let BufferState::Finalized(replay) = &mut *state else {
        return Err(Error::new(UR_RESULT_ERROR_INVALID_OPERATION));
    };
    let command = UR_COMMAND_ENQUEUE_COMMAND_BUFFER_EXP;
    enqueue(queue, replay, command, &waits, event, this.profiles())
}

/// Enqueues all of a recording as one command.
pub(crate) fn enqueue<D: Driver>(
    this: &Object<Queue<D>>,
    replay: &mut Replay<D>,
    command: ur_command_t,
    waits: &Dependencies,
    event: OutHandle<'_, Event<D>>,
    profiles: bool,
) -> Result<()> {
    if replay.recording().nodes.is_empty() {
        let times = match event.wanted() {
            true => this.times(profiles)?,
            false => None,
        };
        let deps = this.submit(waits, Work::Marker, times.as_ref(), true)?;
        return Queue::deliver(this, command, deps, times, event, false);
    }
    let queued = this.times(profiles)?.map(|times| times.queued);
    let (deps, times) = replay.submit(this, waits, queued, event.wanted())?;
    Queue::deliver(this, command, Some(deps), times, event, false)
}

impl<D: Driver> Replay<D> {
    /// Submits everything after `waits` and after the submission before. Returns the dependencies
    /// of the whole, and timestamps if it was `queued` at a time and they are wanted. After an
    /// error, submitted units run to their end, and the events of the others have failed.
    fn submit(
        &mut self,
        queue: &Object<Queue<D>>,
        waits: &Dependencies,
        queued: Option<u64>,
        wanted: bool,
    ) -> Result<(EventDependencies, Option<Times>)> {
        queue.engine().check()?;
        let timed = queued.is_some();
        let mut parts = parts(&self.program, queue, timed, wanted)?;
        let mut waits = waits.clone();
        self.last.prune();
        waits.join(&self.last);
        let units = &self.program.units;
        let (deps, result) = match &queue.shape {
            Shape::InOrder(lane) => lane.submit_all(&waits, &mut parts),
            Shape::OutOfOrder(lanes) => {
                submit_to_lanes(units, &mut lanes.lock(), &waits, &mut parts)
            }
        };
        signal(&self.program, &parts, queued);
        let started = parts.iter_mut().map(|part| start(part, queue));
        let result = started.fold(result, Result::and);
        // Submitted units of a failed submission precede the next submission too.
        match result {
            Ok(()) => self.last = Dependencies::clone(&deps),
            Err(_) => self.last.join(&deps),
        }
        result?;
        let ends = units.iter().zip(parts).filter(|(unit, _)| unit.is_end());
        let timestamps = ends.filter_map(|(_, part)| part.timestamps).collect();
        let times = queued.filter(|_| wanted).map(|queued| Times {
            queued,
            timestamps: Timestamps::over(timestamps),
        });
        Ok((deps, times))
    }
}

/// Resolves the dependencies of all units before any of them is submitted.
fn parts<'a, D: Driver>(
    program: &'a Program<D>,
    queue: &Queue<D>,
    timed: bool,
    wanted: bool,
) -> Result<Vec<Part<'a, D>>> {
    let made = |unit| part(program, queue, unit, timed, wanted);
    program.units.iter().map(made).collect()
}

fn part<'a, D: Driver>(
    program: &'a Program<D>,
    queue: &Queue<D>,
    unit: &'a Unit<D>,
    timed: bool,
    wanted: bool,
) -> Result<Part<'a, D>> {
    let (node, id) = (
        &program.recording.nodes[unit.nodes.start],
        program.recording.id,
    );
    let waits = node.waits.iter().map(|event| &**event);
    let outside = waits.filter(|event| event.node_of(id).is_none());
    let signals = node.signal.is_some();
    let timed = timed && (signals || wanted && unit.is_end());
    Ok(Part {
        work: match &unit.compiled {
            Some(compiled) => PartWork::Compiled(&**compiled),
            None => PartWork::Work(&node.work),
        },
        waits: Event::join(queue.context(), outside)?.into_owned(),
        timestamps: timed.then(Arc::default),
        host_task: node.host.map(|call| host_task(queue, call)).transpose()?,
        wanted: signals,
        deps: None,
    })
}

/// Binds the events of the commands to this execution.
fn signal<D: Driver>(program: &Program<D>, parts: &[Part<'_, D>], queued: Option<u64>) {
    for (unit, part) in program.units.iter().zip(parts) {
        let Some(event) = &program.recording.nodes[unit.nodes.start].signal else {
            continue;
        };
        let times = queued.zip(part.timestamps.clone());
        let times = times.map(|(queued, timestamps)| Times { queued, timestamps });
        event.set_execution(part.deps.clone().map(|deps| (deps, times)));
    }
}

/// Starts the host task of a unit, which waits for its dependencies.
fn start<D: Driver>(part: &mut Part<'_, D>, queue: &Object<Queue<D>>) -> Result<()> {
    match part.host_task.take() {
        Some(HostTask {
            call,
            enqueued: Some((point, before)),
            ..
        }) => host_task::start(queue, call, point, part.timestamps.clone(), before),
        _ => Ok(()),
    }
}

fn host_task<D: Driver>(queue: &Queue<D>, call: Call) -> Result<HostTask<D>> {
    let signal = queue.engine().host_signal(queue.context().domain())?;
    Ok(HostTask::new(signal, call))
}

/// Submits each unit to a lane of its own choice.
fn submit_to_lanes<D: Driver>(
    units: &[Unit<D>],
    lanes: &mut OutOfOrder<D>,
    waits: &Dependencies,
    parts: &mut [Part<'_, D>],
) -> (EventDependencies, Result<()>) {
    let mut result = Ok(());
    debug_assert_eq!(units.len(), parts.len(), "one part a unit");
    for (at, unit) in units.iter().enumerate() {
        let (before, rest) = parts.split_at_mut(at);
        let Some(part) = rest.first_mut() else { break };
        debug_assert!(
            unit.after
                .iter()
                .all(|&unit| before[unit as usize].deps.is_some()),
            "a unit before its predecessors"
        );
        let mut own = part.waits.clone();
        if unit.after.is_empty() {
            own.join(waits);
        }
        for deps in unit
            .after
            .iter()
            .filter_map(|&unit| before[unit as usize].deps.as_ref())
        {
            own.join(deps);
        }
        if let Some(host_task) = &mut part.host_task {
            match host_task.enqueue(|signal| Ok(lanes.hold(&own, signal))) {
                Ok(deps) => part.deps = Some(deps.into()),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
            continue;
        }
        let submit = |lane: &D::Lane, epoch| part.work.submit(lane, epoch, part.timestamps.clone());
        match lanes.submit_with(&own, true, submit) {
            Ok(deps) => part.deps = deps,
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    let mut all = Dependencies::default();
    for (unit, part) in units.iter().zip(parts) {
        if let Some(deps) = part.deps.as_ref().filter(|_| unit.leaf || result.is_err()) {
            all.join(deps);
        }
    }
    (all.into(), result)
}

//! Commands on a native stream that foreign code captures.
//!
//! The backend records what it is given there, into a graph of the foreign code. So a command is submitted
//! as always, but the engine keeps no account of it: it never runs. Its event stands for it within the
//! capture alone, by its native object.
//!
//! | command | in such a capture |
//! |---|---|
//! | copies, fills, launches, barriers, native commands | recorded |
//! | host tasks | recorded as host functions of the backend, called in each launch of the graph |
//! | prefetches | nothing, as a hint may be |
//! | a wait for a command of the same capture | joins the queue's stream to the capture, if it is another one |
//! | a wait for an event of foreign code | left to the backend, which knows whether the event is of the capture |
//! | a wait for any other command | nothing if that has ended, refused else: the graph could not wait for it each time |
//! | blocking commands, mappings, timestamps, allocations, frees, graphs, command buffers, finish | refused |
//!
//! A refusal comes before any call that would end the capture.

use crate::abi::*;
use crate::object::{Error, Handles, Object, OutHandle, Result, ensure};
use crate::stream::driver::call_user;
use crate::stream::event::Event;
use crate::stream::lane::LaneCore;
use crate::stream::recording::command::Command;
use crate::stream::{Driver, Queue, Work};
use std::sync::Arc;

pub(super) const NOT_CAPTURABLE: Error = Error::new(UR_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED);

/// Submits a command to the captured stream.
pub(crate) fn submit<D: Driver>(
    this: &Object<Queue<D>>,
    made: Command<'_, D>,
    waits: Handles<'_, Event<D>>,
    event: OutHandle<'_, Event<D>>,
) -> Result<()> {
    let Command {
        kind, work, host, ..
    } = made;
    let lane = enter(this, waits)?;
    lane.aside(|native| match (host, work) {
        (Some(call), _) => D::host_function(native, call.run, call.data),
        (None, Work::Marker | Work::Prefetch { .. }) => Ok(()),
        (None, work) => D::submit(native, 0, work, None).map(drop),
    })?;
    deliver(this, &lane, kind, event)
}

/// Calls the function of a native command, which submits to the captured stream.
pub(crate) fn native_command<D: Driver>(
    this: &Object<Queue<D>>,
    bring: Option<Work<D>>,
    waits: Handles<'_, Event<D>>,
    event: OutHandle<'_, Event<D>>,
    run: impl FnOnce(),
) -> Result<()> {
    let lane = enter(this, waits)?;
    if let Some(work) = bring {
        lane.aside(|native| D::submit(native, 0, work, None))?;
    }
    let lease = this.leased.lease(&lane);
    let called = call_user::<D>(this.device(), run);
    drop(lease);
    called?;
    deliver(this, &lane, UR_COMMAND_ENQUEUE_NATIVE_EXP, event)
}

/// The lane of the captured stream, with the wait list on it. The queue's stream joins the capture that an
/// event of the list belongs to.
fn enter<D: Driver>(
    this: &Object<Queue<D>>,
    waits: Handles<'_, Event<D>>,
) -> Result<Arc<LaneCore<D>>> {
    this.engine().check()?;
    let inside =
        |event| Event::in_capture_of_stream(event).or_else(|| Event::unknown_marker(event));
    for event in waits.iter() {
        let ended = inside(event).is_some() || event.has_ended()?;
        ensure(ended, NOT_CAPTURABLE.code())?;
    }
    let lane = this.share_lane()?;
    let mut inside = waits.iter().filter_map(|event| inside(event));
    let wait = |native: &D::Lane| inside.try_for_each(|marker| D::wait(native, marker));
    match lane.is_stream_captured() {
        true => lane.aside(wait)?,
        false => lane.before_capture(wait)?,
    }
    // Whatever a captured stream may wait for is of its capture.
    let unknown = waits
        .iter()
        .filter(|event| event.unknown_marker().is_some());
    unknown.for_each(|event| event.set_captured());
    Ok(lane)
}

fn deliver<D: Driver>(
    this: &Object<Queue<D>>,
    lane: &LaneCore<D>,
    kind: ur_command_t,
    event: OutHandle<'_, Event<D>>,
) -> Result<()> {
    if event.wanted() {
        let marker = lane.aside(|native| D::mark(native, 0))?;
        event.set(&Event::in_stream_capture(this, kind, marker));
    }
    Ok(())
}

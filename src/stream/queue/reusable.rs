//! Commands whose event may be a reusable one, which they signal instead of making a new one.

use crate::abi::*;
use crate::object::{Handles, Object, OutHandle, Result};
use crate::stream::engine::dependencies::EventDependencies;
use crate::stream::event::{Event, Times};
use crate::stream::queue::{Shape, native_command};
use crate::stream::{Driver, Queue, Timestamps, Work};
use std::sync::Arc;

/// `urEnqueueEventsWaitWithBarrierExt`
pub(crate) fn barrier<D: Driver>(
    this: &Object<Queue<D>>,
    waits: Handles<'_, Event<D>>,
    event: OutHandle<'_, Event<D>>,
) -> Result<()> {
    let Some(own) = held(this, &event) else {
        let command = UR_COMMAND_EVENTS_WAIT_WITH_BARRIER;
        return Queue::join_events(this, command, waits, event, true);
    };
    this.engine().check()?;
    this.live(waits)?;
    let list = Event::join_list(this.context(), waits)?;
    let deps: EventDependencies = match &this.shape {
        Shape::InOrder(lane) => {
            let mut state = lane.after(&list)?;
            lane.dependencies(&mut state)
        }
        Shape::OutOfOrder(lanes) => {
            let everything = waits.is_empty();
            lanes.lock().join_events(&list, everything, true)?.into()
        }
    };
    let times = this.times(own.keeps_times())?;
    signal(this, &own, deps, times)
}

/// `urEnqueueTimestampRecordingExp`
pub(crate) fn timestamp<D: Driver>(
    this: &Object<Queue<D>>,
    blocking: bool,
    waits: Handles<'_, Event<D>>,
    event: OutHandle<'_, Event<D>>,
) -> Result<()> {
    let Some(own) = held(this, &event) else {
        return Queue::timestamp(this, blocking, waits, event);
    };
    this.engine().check()?;
    this.live(waits)?;
    let list = Event::join_list(this.context(), waits)?;
    let times = this.times(true)?;
    let one = times.as_ref().map(|Times { queued, timestamps }| Times {
        queued: *queued,
        timestamps: Timestamps::one(Arc::clone(timestamps)),
    });
    if let Some(deps) = this.submit(&list, Work::Marker, times.as_ref(), true)? {
        record_shared(this, &own, &deps)?;
        own.set_execution(Some((deps, one)));
    }
    match blocking {
        true => own.wait_here(),
        false => Ok(()),
    }
}

/// The reusable event of the queue's context that an output holds.
fn held<D: Driver>(
    this: &Queue<D>,
    event: &OutHandle<'_, Event<D>>,
) -> Option<Arc<Object<Event<D>>>> {
    let domain = this.context().domain();
    domain.find_reusable(|| event.current())
}

/// Makes the event stand for a command without work, with these dependencies.
fn signal<D: Driver>(
    this: &Object<Queue<D>>,
    own: &Object<Event<D>>,
    deps: EventDependencies,
    times: Option<Times>,
) -> Result<()> {
    let marked = match &times {
        Some(_) => this.submit(&deps, Work::Marker, times.as_ref(), true)?,
        None => None,
    };
    let deps = marked.unwrap_or(deps);
    record_shared(this, own, &deps)?;
    own.set_execution(Some((deps, times)));
    Ok(())
}

/// Records the native event of a shared one, for the other processes.
fn record_shared<D: Driver>(
    this: &Object<Queue<D>>,
    own: &Event<D>,
    deps: &EventDependencies,
) -> Result<()> {
    match own.shared_marker() {
        Ok(marker) => native_command::submit_open(this, deps, D::record_shared(marker)?),
        Err(_) => Ok(()),
    }
}

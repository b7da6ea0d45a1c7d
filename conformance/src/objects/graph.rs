//! Graphs, captures on queues, and executable graphs.
//!
//! Both kinds are destroyed rather than released, since they have no reference count.

use super::event::WaitList;
use super::{Context, Event, Queue, released};
use crate::api::Api;
use crate::fixture::Fixture;
use crate::outcome::{Done, Stop};
use std::ptr::{null, null_mut};
use ur::abi::*;

/// A graph, destroyed on drop.
pub struct Graph {
    pub ur: &'static Api,
    pub raw: ur_exp_graph_handle_t,
}

/// An executable graph, destroyed on drop.
pub struct Executable {
    pub ur: &'static Api,
    pub raw: ur_exp_executable_graph_handle_t,
}

impl Graph {
    /// Stops the test unless the device records graphs.
    pub fn need(fixture: &Fixture, context: &Context) -> Done {
        fixture.require(UR_DEVICE_INFO_GRAPH_RECORD_AND_REPLAY_SUPPORT_EXP, || {
            fixture.ur.urGraphCreateExp(context.raw, &mut null_mut())
        })
    }

    #[track_caller]
    pub fn new(fixture: &Fixture, context: &Context) -> Result<Self, Stop> {
        Self::need(fixture, context)?;
        let mut raw = null_mut();
        fixture.ur.urGraphCreateExp(context.raw, &mut raw).ok()?;
        Ok(Self {
            ur: fixture.ur,
            raw,
        })
    }

    /// Captures the commands that `record` enqueues on a queue.
    #[track_caller]
    pub fn capture(queue: &Queue, record: impl FnOnce() -> Done) -> Result<Self, Stop> {
        queue.ur.urQueueBeginGraphCaptureExp(queue.raw).ok()?;
        let recorded = record();
        let graph = Self::end(queue);
        recorded?;
        graph
    }

    /// Ends a capture on the queue that it was begun on.
    #[track_caller]
    pub fn end(queue: &Queue) -> Result<Self, Stop> {
        let mut raw = null_mut();
        queue
            .ur
            .urQueueEndGraphCaptureExp(queue.raw, &mut raw)
            .ok()?;
        Ok(Self { ur: queue.ur, raw })
    }

    #[track_caller]
    pub fn instantiate(&self) -> Result<Executable, Stop> {
        let mut raw = null_mut();
        self.ur
            .urGraphInstantiateGraphExp(self.raw, &mut raw)
            .ok()?;
        Ok(Executable { ur: self.ur, raw })
    }

    #[track_caller]
    pub fn is_empty(&self) -> Result<bool, Stop> {
        let mut empty = 7;
        self.ur.urGraphIsEmptyExp(self.raw, &mut empty).ok()?;
        match empty {
            0 | 1 => Ok(empty == 1),
            other => Err(Stop::failed(format!("urGraphIsEmptyExp wrote {other}"))),
        }
    }

    #[track_caller]
    pub fn id(&self) -> Result<u64, Stop> {
        let mut id = 0;
        self.ur.urGraphGetIdExp(self.raw, &mut id).ok()?;
        Ok(id)
    }
}

impl Executable {
    #[track_caller]
    pub fn enqueue(&self, queue: &Queue, waits: &[&Event]) -> Result<Event, Stop> {
        let waits = WaitList::new(waits);
        queue.event(|event| {
            let (count, list) = (waits.count(), waits.pointer());
            self.ur
                .urEnqueueGraphExp(queue.raw, self.raw, count, list, event)
        })
    }

    /// Submits the graph without an event.
    #[track_caller]
    pub fn enqueue_only(&self, queue: &Queue) -> Done {
        self.ur
            .urEnqueueGraphExp(queue.raw, self.raw, 0, null(), null_mut())
            .ok()
    }
}

/// Whether the queue is capturing.
#[track_caller]
pub fn captures(queue: &Queue) -> Result<bool, Stop> {
    let mut on = 7;
    queue
        .ur
        .urQueueIsGraphCaptureEnabledExp(queue.raw, &mut on)
        .ok()?;
    match on {
        0 | 1 => Ok(on == 1),
        other => Err(Stop::failed(format!(
            "urQueueIsGraphCaptureEnabledExp wrote {other}"
        ))),
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        released(self.ur.urGraphDestroyExp(self.raw));
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        released(self.ur.urGraphExecutableGraphDestroyExp(self.raw));
    }
}

//! Capture: commands enqueued on a queue are recorded into a graph and do not run.
//!
//! | state of a queue | from | by |
//! |---|---|---|
//! | live | the start | |
//! | capturing | live | a capture begun on it, or a wait for an event of a capturing queue |
//! | live | capturing | the end of the capture, on the queue that it was begun on |
//!
//! The order of the queue becomes the order of the graph. On an in-order queue each command follows
//! the one before; on other queues it follows its wait list and the last barrier. Each execution
//! waits for events from outside the graph and runs its host tasks. Commands that need an answer
//! from the device, or that give memory, cannot be captured: blocking commands, mappings,
//! timestamps, allocations, frees, other graphs and command buffers are an `INVALID_OPERATION`.
//!
//! The lock of a queue's capture is taken before the lock of its graph, and both before all others.

use crate::abi::*;
use crate::object::{Error, Handles, Object, OutHandle, Result, ensure};
use crate::stream::event::Event;
use crate::stream::queue::Shape;
use crate::stream::queue::graph::Graph;
use crate::stream::recording::Node;
use crate::stream::recording::command::Command;
use crate::stream::{Driver, Queue};
use crate::timeline::rank;
use crate::timeline::sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) const NOT_CAPTURABLE: Error = Error::new(UR_RESULT_ERROR_INVALID_OPERATION);

/// A queue's part in a capture. The field read most comes first.
#[repr(C)]
pub(crate) struct Capture<D: Driver> {
    /// Whether a capture is under way. Every command reads this, and nothing else if it is false.
    on: AtomicBool,
    position: Mutex<Option<CapturePosition<D>>, { rank::CAPTURE }>,
}

/// The position of a capturing queue in its graph.
struct CapturePosition<D: Driver> {
    graph: Arc<Object<Graph<D>>>,
    /// Predecessors of every later command of the queue.
    barrier: Vec<u32>,
    /// Its commands since the barrier. Empty on an in-order queue, whose last command is the
    /// barrier.
    since: Vec<u32>,
}

impl<D: Driver> Default for Capture<D> {
    fn default() -> Self {
        Self {
            on: AtomicBool::new(false),
            position: Mutex::new(None),
        }
    }
}

/// The order of a captured command on its queue, besides its wait list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaptureOrder {
    Command,
    /// Comes after everything on the queue.
    Everything,
    /// Comes after its wait list, and before everything later.
    Barrier,
    /// Both.
    FullBarrier,
}

impl<D: Driver> Capture<D> {
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    pub fn graph(&self) -> Result<Arc<Object<Graph<D>>>> {
        let position = self.position.lock();
        let graph = position
            .as_ref()
            .map(|position| Arc::clone(&position.graph));
        graph.ok_or(NOT_CAPTURABLE)
    }

    /// Begins at a graph, unless there is a capture already.
    fn begin_at(&self, graph: &Arc<Object<Graph<D>>>) -> Result<()> {
        let mut position = self.position.lock();
        ensure(position.is_none(), UR_RESULT_ERROR_INVALID_ARGUMENT)?;
        debug_assert!(!self.is_on(), "a capture without a position");
        *position = Some(CapturePosition {
            graph: Arc::clone(graph),
            barrier: Vec::new(),
            since: Vec::new(),
        });
        self.on.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub fn clear(&self) {
        self.on.store(false, Ordering::Relaxed);
        let position = self.position.lock().take();
        drop(position);
    }
}

/// `urQueueBeginGraphCaptureExp`, `urQueueBeginCaptureIntoGraphExp`
pub(crate) fn begin<D: Driver>(
    this: &Object<Queue<D>>,
    graph: &Arc<Object<Graph<D>>>,
) -> Result<()> {
    this.engine().check()?;
    let own = Arc::ptr_eq(graph.context().domain(), this.context().domain());
    ensure(own, UR_RESULT_ERROR_INVALID_GRAPH)?;
    ensure(!this.capture.is_on(), UR_RESULT_ERROR_INVALID_ARGUMENT)?;
    graph.begin(this)?;
    this.capture.begin_at(graph)
}

/// `urQueueEndGraphCaptureExp`
pub(crate) fn end<D: Driver>(this: &Object<Queue<D>>) -> Result<Arc<Object<Graph<D>>>> {
    let none = Error::new(UR_RESULT_ERROR_COMMAND_LIST_NOT_CAPTURING);
    let graph = this.capture.graph().map_err(|_| none)?;
    for queue in graph.end(this)? {
        queue.capture.clear();
    }
    this.capture.clear();
    Ok(graph)
}

/// Records a command. The queue joins the capture that an event of the list belongs to.
pub(crate) fn record<D: Driver>(
    this: &Object<Queue<D>>,
    made: Command<'_, D>,
    waits: Handles<'_, Event<D>>,
    event: OutHandle<'_, Event<D>>,
    order: CaptureOrder,
) -> Result<()> {
    this.engine().check()?;
    let mut node = Node::new(made, None)?;
    let mut graph = this.capture.is_on().then(|| this.capture.graph());
    for event in waits.iter() {
        let Some((other, at)) = event.captured() else {
            node.waits.push(event.arc());
            continue;
        };
        let other = other?;
        let graph = graph.get_or_insert_with(|| Ok(Arc::clone(&other)));
        let same = graph.as_ref().is_ok_and(|graph| Arc::ptr_eq(graph, &other));
        ensure(same, NOT_CAPTURABLE.code())?;
        node.after.push(at);
    }
    let graph = graph.ok_or(NOT_CAPTURABLE)??;
    if !this.capture.is_on() {
        graph.join(this)?;
        this.capture.begin_at(&graph)?;
    }
    let mut position = this.capture.position.lock();
    let position = position.as_mut().ok_or(NOT_CAPTURABLE)?;
    node.after.extend(&position.barrier);
    if matches!(order, CaptureOrder::Everything | CaptureOrder::FullBarrier) {
        node.after.extend(&position.since);
    }
    node.after.sort_unstable();
    node.after.dedup();
    let kind = node.kind;
    let at = position.graph.push(node)?;
    let holds = matches!(order, CaptureOrder::Barrier | CaptureOrder::FullBarrier);
    if holds || matches!(this.shape, Shape::InOrder(_)) {
        position.barrier = vec![at];
        position.since.clear();
    } else {
        position.since.push(at);
    }
    if event.wanted() {
        event.set(&Event::of_graph(this, kind, &position.graph, at));
    }
    Ok(())
}

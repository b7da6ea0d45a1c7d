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
//! Foreign work is captured by the backend, where that can capture streams: a native command's, and what
//! foreign code submits to a native stream that was given out. The backend's capture of the queue's stream
//! ends before each command of ours and begins again behind it. So foreign work is a command of its own, in
//! its place. Streams that foreign code adds to a capture are joined again before the next command.
//!
//! The lock of a queue's capture is taken before the lock of its graph, and both before all others.

use crate::abi::*;
use crate::object::{Error, Handles, Object, OutHandle, Result, ensure};
use crate::stream::driver::call_user;
use crate::stream::event::Event;
use crate::stream::lane::LaneCore;
use crate::stream::queue::graph::Graph;
use crate::stream::queue::{Shape, stream_capture};
use crate::stream::recording::Node;
use crate::stream::recording::command::Command;
use crate::stream::{Driver, Queue, Work};
use crate::sync::{Mutex, rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, ThreadId};

pub(super) const NOT_CAPTURABLE: Error = Error::new(UR_RESULT_ERROR_INVALID_OPERATION);

/// Why a command may be captured, as bits.
/// A capture is under way.
const ON: u8 = 1;
/// The native stream was given out: foreign code may capture it.
const SHARED: u8 = 2;

/// A queue's part in a capture. The field read most comes first.
#[repr(C)]
pub(crate) struct Capture<D: Driver> {
    /// Why commands may be captured. Every command reads this, and nothing else if it is zero.
    reasons: AtomicU8,
    position: Mutex<Option<CapturePosition<D>>, { rank::CAPTURE }>,
}

/// The position of a capturing queue in its graph.
struct CapturePosition<D: Driver> {
    graph: Arc<Object<Graph<D>>>,
    /// Predecessors of every later command of the queue.
    barrier: Vec<u32>,
    /// The queue's commands since the barrier. Empty on an in-order queue, whose last command is the barrier.
    since: Vec<u32>,
    in_order: bool,
    /// The backend's capture of its stream, once foreign code may submit there.
    foreign: Option<ForeignWork<D>>,
    /// Foreign work that is lost: the graph is then of no use.
    failed: Option<Error>,
}

/// Foreign work on the stream of a capturing queue.
struct ForeignWork<D: Driver> {
    lane: Arc<LaneCore<D>>,
    /// The last command of foreign work, which later ones on the stream follow.
    last: Option<u32>,
    /// The thread that runs a native command's function. Only that one may interrupt the backend's capture.
    user: Option<ThreadId>,
}

/// A native command that is being captured.
struct Begun<D: Driver> {
    lane: Arc<LaneCore<D>>,
    /// The user of the stream before.
    outer: Option<ThreadId>,
    /// Whether the backend's capture was begun for this command.
    alone: bool,
}

impl<D: Driver> Default for Capture<D> {
    fn default() -> Self {
        Self {
            reasons: AtomicU8::new(0),
            position: Mutex::new(None),
        }
    }
}

/// The order of a captured command on its queue, besides its wait list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaptureOrder {
    Command,
    /// As a command. Within the function of a native command it comes after the work so far, since both are
    /// on one stream.
    Native,
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
        self.reasons.load(Ordering::Relaxed) & ON != 0
    }

    /// Whether a command may be captured, by us or by foreign code.
    #[inline(always)]
    pub fn is_possible(&self) -> bool {
        self.reasons.load(Ordering::Relaxed) != 0
    }

    #[inline]
    pub fn is_shared(&self) -> bool {
        self.reasons.load(Ordering::Relaxed) & SHARED != 0
    }

    /// Records that the native stream was given out, for good.
    pub fn share(&self) {
        if D::CAPTURES_STREAMS {
            self.reasons.fetch_or(SHARED, Ordering::Relaxed);
        }
    }

    pub fn graph(&self) -> Result<Arc<Object<Graph<D>>>> {
        let position = self.position.lock();
        let graph = position
            .as_ref()
            .map(|position| Arc::clone(&position.graph));
        graph.ok_or(NOT_CAPTURABLE)
    }

    /// Begins at a graph, unless there is a capture already.
    fn begin_at(&self, queue: &Queue<D>, graph: &Arc<Object<Graph<D>>>) -> Result<()> {
        let shared = self.is_shared().then(|| queue.native_lane()).transpose()?;
        let mut position = self.position.lock();
        ensure(position.is_none(), UR_RESULT_ERROR_INVALID_ARGUMENT)?;
        debug_assert!(!self.is_on(), "a capture without a position");
        let mut new = CapturePosition {
            graph: Arc::clone(graph),
            barrier: Vec::new(),
            since: Vec::new(),
            in_order: matches!(queue.shape, Shape::InOrder(_)),
            foreign: None,
            failed: None,
        };
        if let Some(lane) = &shared {
            // A stream that no capture can take has foreign work that runs at once.
            new.watch(lane)?;
        }
        *position = Some(new);
        self.reasons.fetch_or(ON, Ordering::Relaxed);
        Ok(())
    }

    /// Foreign code may submit to the queue's stream from now on.
    pub fn watch(&self, lane: &Arc<LaneCore<D>>) -> Result<()> {
        let mut position = self.position.lock();
        let Some(position) = &mut *position else {
            return Ok(());
        };
        ensure(position.watch(lane)?, stream_capture::NOT_CAPTURABLE.code())
    }

    /// Records the last foreign work, and ends the backend's capture.
    fn end_foreign(&self) -> Result<()> {
        match &mut *self.position.lock() {
            Some(position) => {
                let ended = position.record_foreign(false);
                position.foreign = None;
                ended.and(position.failed.map_or(Ok(()), Err))
            }
            None => Ok(()),
        }
    }

    /// Ends the capture. Foreign work that was not recorded is dropped.
    pub fn clear(&self) {
        self.reasons.fetch_and(!ON, Ordering::Relaxed);
        let position = self.position.lock().take();
        if let Some(CapturePosition {
            foreign: Some(foreign),
            ..
        }) = &position
            && let Err(error) = foreign.lane.aside(D::end_capture)
        {
            log::error!("ending a capture of a stream failed: {:?}", error.code());
        }
        drop(position);
    }
}

impl<D: Driver> CapturePosition<D> {
    /// Begins the backend's capture of the queue's stream, unless it has begun. False if that stream cannot
    /// be captured.
    fn watch(&mut self, lane: &Arc<LaneCore<D>>) -> Result<bool> {
        if self.foreign.is_some() {
            return Ok(true);
        }
        let begun = lane.before_capture(D::begin_capture)?;
        self.foreign = begun.then(|| ForeignWork {
            lane: Arc::clone(lane),
            last: None,
            user: None,
        });
        Ok(begun)
    }

    /// Records the foreign work so far as a command. The backend's capture then goes on if `resume` is set.
    fn record_foreign(&mut self, resume: bool) -> Result<()> {
        let Some(foreign) = &mut self.foreign else {
            return Ok(());
        };
        if foreign
            .user
            .is_some_and(|user| user != thread::current().id())
        {
            return Ok(());
        }
        let work = foreign.lane.aside(|native| {
            let work = D::end_capture(native);
            if resume {
                D::begin_capture(native)?;
            }
            work
        });
        let before = foreign.last;
        let recorded = work.and_then(|work| {
            let Some(work) = work else { return Ok(before) };
            let mut node = Node::new(Command::new(UR_COMMAND_ENQUEUE_NATIVE_EXP, work), None)?;
            node.after.extend(before);
            self.place(node, CaptureOrder::Command).map(Some)
        });
        match recorded {
            Ok(last) => {
                if let Some(foreign) = &mut self.foreign {
                    foreign.last = last;
                }
                Ok(())
            }
            Err(error) => {
                self.failed.get_or_insert(error);
                Err(error)
            }
        }
    }

    /// Adds a command in the order of the queue. Returns its index.
    fn place(&mut self, mut node: Node<D>, order: CaptureOrder) -> Result<u32> {
        node.after.extend(&self.barrier);
        if matches!(order, CaptureOrder::Everything | CaptureOrder::FullBarrier) {
            node.after.extend(&self.since);
        }
        node.after.sort_unstable();
        node.after.dedup();
        let at = self.graph.push(node)?;
        if self.in_order || matches!(order, CaptureOrder::Barrier | CaptureOrder::FullBarrier) {
            self.barrier = vec![at];
            self.since.clear();
        } else {
            self.since.push(at);
        }
        Ok(at)
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
    let merges = this.is_stream_captured();
    ensure(!merges, UR_RESULT_ERROR_GRAPH_CAPTURE_MERGE_ATTEMPT)?;
    graph.begin(this)?;
    this.capture.begin_at(this, graph).inspect_err(|_| {
        // The queue is the only one so far.
        drop(graph.end(this));
    })
}

/// `urQueueEndGraphCaptureExp`
pub(crate) fn end<D: Driver>(this: &Object<Queue<D>>) -> Result<Arc<Object<Graph<D>>>> {
    let none = Error::new(UR_RESULT_ERROR_COMMAND_LIST_NOT_CAPTURING);
    let graph = this.capture.graph().map_err(|_| none)?;
    let recorded = graph.queues_of(this)?;
    let recorded = recorded.iter().map(|queue| queue.capture.end_foreign());
    let recorded = recorded.fold(Ok(()), Result::and);
    for queue in graph.end(this)? {
        queue.capture.clear();
    }
    this.capture.clear();
    recorded?;
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
    let kind = made.kind;
    let (graph, at) = record_node(this, made, waits, order)?;
    if event.wanted() {
        event.set(&Event::of_graph(this, kind, &graph, at));
    }
    Ok(())
}

/// As [`record`], without an event. Returns the graph, and the command's index there.
fn record_node<D: Driver>(
    this: &Object<Queue<D>>,
    made: Command<'_, D>,
    waits: Handles<'_, Event<D>>,
    order: CaptureOrder,
) -> Result<(Arc<Object<Graph<D>>>, u32)> {
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
        let merges = this.is_stream_captured();
        ensure(!merges, UR_RESULT_ERROR_GRAPH_CAPTURE_MERGE_ATTEMPT)?;
        graph.join(this)?;
        this.capture.begin_at(this, &graph)?;
    }
    let mut position = this.capture.position.lock();
    let position = position.as_mut().ok_or(NOT_CAPTURABLE)?;
    position.record_foreign(true)?;
    if let (CaptureOrder::Native, Some(foreign)) = (order, &position.foreign)
        && foreign.user == Some(thread::current().id())
    {
        node.after.extend(foreign.last);
    }
    let at = position.place(node, order)?;
    Ok((graph, at))
}

/// Records a native command. Its function is called now, and the backend captures what it submits.
pub(crate) fn native_command<D: Driver>(
    this: &Object<Queue<D>>,
    bring: Option<Work<D>>,
    waits: Handles<'_, Event<D>>,
    event: OutHandle<'_, Event<D>>,
    run: impl FnOnce(),
) -> Result<()> {
    ensure(D::CAPTURES_STREAMS, NOT_CAPTURABLE.code())?;
    let kind = UR_COMMAND_ENQUEUE_NATIVE_EXP;
    let first = Command::new(kind, bring.unwrap_or(Work::Marker));
    let (graph, first) = record_node(this, first, waits, CaptureOrder::Native)?;
    let begun = this.capture.begin_native(this, first)?;
    let lease = this.leased.lease(&begun.lane);
    let called = call_user::<D>(this.device(), run);
    drop(lease);
    let last = this.capture.end_native(&begun);
    called?;
    let last = last?;
    if event.wanted() {
        event.set(&Event::of_graph(this, kind, &graph, last));
    }
    Ok(())
}

impl<D: Driver> Capture<D> {
    /// The function of a native command is called next. Its work comes behind the command `first`.
    fn begin_native(&self, queue: &Queue<D>, first: u32) -> Result<Begun<D>> {
        let mut position = self.position.lock();
        let position = position.as_mut().ok_or(NOT_CAPTURABLE)?;
        let alone = position.foreign.is_none();
        if alone {
            let lane = queue.native_lane()?;
            lane.lease()?;
            let begun = position.watch(&lane);
            if !matches!(begun, Ok(true)) {
                end_lease(&lane);
            }
            ensure(begun?, stream_capture::NOT_CAPTURABLE.code())?;
        }
        let here = thread::current().id();
        let foreign = position.foreign.as_mut().ok_or(NOT_CAPTURABLE)?;
        // Two functions at once would write into each other's commands.
        let free = foreign.user.is_none_or(|user| user == here);
        ensure(free, NOT_CAPTURABLE.code())?;
        foreign.last = Some(first);
        let outer = foreign.user.replace(here);
        let lane = Arc::clone(&foreign.lane);
        #[rustfmt::skip]
        let begun = Begun { lane, outer, alone };
        Ok(begun)
    }

    /// The function has returned. Returns the command that stands for the end of its work.
    fn end_native(&self, begun: &Begun<D>) -> Result<u32> {
        let lane = &begun.lane;
        let mut position = self.position.lock();
        let Some(position) = position.as_mut() else {
            // The function ended the capture.
            if begun.alone {
                end_lease(lane);
            }
            return Err(NOT_CAPTURABLE);
        };
        let ends = begun.alone && !self.is_shared();
        let recorded = position.record_foreign(!ends);
        let last = match &mut position.foreign {
            Some(foreign) => {
                foreign.user = begun.outer;
                foreign.last
            }
            None => None,
        };
        if ends {
            position.foreign = None;
        }
        if begun.alone {
            end_lease(lane);
        }
        recorded?;
        last.ok_or(NOT_CAPTURABLE)
    }
}

fn end_lease<D: Driver>(lane: &LaneCore<D>) {
    if let Err(error) = lane.end_lease() {
        log::error!("a lane stays open: {:?}", error.code());
    }
}

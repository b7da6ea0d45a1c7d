//! Graphs of captured commands, and their executable copies.
//!
//! Neither is reference counted: a destruction takes all references of handles. An executable graph
//! is a copy and keeps the body of its graph. So the destruction callback runs when no command can
//! use its objects any more.

use crate::abi::*;
use crate::hal::{self, Unwrapped};
use crate::object::{Body, Error, Handles, Object, OutHandle, Result, ensure};
use crate::stream::driver::call_user_anyway;
use crate::stream::event::Event;
use crate::stream::queue::replay;
use crate::stream::recording::command::Target;
use crate::stream::recording::replay::Replay;
use crate::stream::recording::{Node, Recording};
use crate::stream::{Compiled, Context, Driver, Queue};
use crate::sync::{Mutex, rank};
use std::ffi::{CStr, OsStr, c_void};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::SystemTime;

/// A graph's handle.
pub struct Graph<D: Driver> {
    context: Arc<Object<Context<D>>>,
    id: u64,
    state: Mutex<GraphState<D>, { rank::GRAPH }>,
    callbacks: Mutex<Vec<Callback>>,
    /// The backend's graph of the commands, once it was asked for.
    native: OnceLock<Arc<dyn Compiled<D>>>,
}

struct GraphState<D: Driver> {
    recording: Recording<D>,
    /// The device of its queues; none before the first capture.
    device: Option<Arc<Object<D::Device>>>,
    /// The queues that capture into it now, the first one first.
    queues: Vec<Weak<Object<Queue<D>>>>,
}

/// An executable graph's handle.
pub struct ExecutableGraph<D: Driver> {
    device: Arc<Object<D::Device>>,
    replay: Mutex<Replay<D>, { rank::COMMAND_BUFFER }>,
    graph: Arc<Object<Graph<D>>>,
    /// The backend's graph, where none runs the commands and one was asked for.
    native: OnceLock<Arc<dyn Compiled<D>>>,
}

struct Callback {
    run: <ur_exp_graph_destruction_callback_t as Unwrapped>::Fn,
    data: *mut c_void,
}

// SAFETY: the caller of `urGraphSetDestructionCallbackExp` promises that the callback may run on
// the thread that ends the graph.
unsafe impl Send for Callback {}

impl<D: Driver> Body for Graph<D> {
    const KIND: crate::object::Kind = crate::object::Kind::Graph;
}

impl<D: Driver> Body for ExecutableGraph<D> {
    const KIND: crate::object::Kind = crate::object::Kind::ExecutableGraph;
}

const INVALID_OPERATION: Error = Error::new(UR_RESULT_ERROR_INVALID_OPERATION);

/// The reference's error, the driver's own, for a graph in the wrong state.
const WRONG_STATE: Error = Error::new(UR_RESULT_ERROR_INVALID_ARGUMENT);

/// A number above all earlier ones, and most likely different from those of other adapters.
fn next_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = since.map_or(0, |since| since.as_nanos() as u64);
    let next = |last: u64| Some(now.max(last + 1));
    match LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
        Ok(last) | Err(last) => now.max(last + 1),
    }
}

/// Takes all references of handles. The object ends when no other object keeps it.
fn destroy<T: Body>(this: &Object<T>) -> Result<()> {
    let object = this.arc();
    while object.api_refs() > 0 {
        object.release()?;
    }
    Ok(())
}

impl<D: Driver> Graph<D> {
    pub(crate) fn new(context: &Arc<Object<Context<D>>>) -> Arc<Object<Self>> {
        hal::new::<D, _>(Self {
            context: Arc::clone(context),
            id: next_id(),
            state: Mutex::new(GraphState {
                recording: Recording::default(),
                device: None,
                queues: Vec::new(),
            }),
            callbacks: Mutex::default(),
            native: OnceLock::new(),
        })
    }

    pub(crate) fn context(&self) -> &Arc<Object<Context<D>>> {
        &self.context
    }

    /// A capture into it begins on this queue.
    pub(crate) fn begin(&self, queue: &Object<Queue<D>>) -> Result<()> {
        let mut state = self.state.lock();
        state.queues.retain(|queue| queue.strong_count() > 0);
        let fresh = state.queues.is_empty() && state.recording.nodes.is_empty();
        ensure(fresh, WRONG_STATE.code())?;
        // An empty capture chose no device.
        state.device = None;
        state.add(queue)
    }

    /// Another queue joins the capture.
    pub(crate) fn join(&self, queue: &Object<Queue<D>>) -> Result<()> {
        let own = Arc::ptr_eq(self.context.domain(), queue.context().domain());
        let mut state = self.state.lock();
        ensure(own && state.origin().is_some(), INVALID_OPERATION.code())?;
        state.add(queue)
    }

    /// The queues of the capture, for the queue that began it.
    pub(crate) fn queues_of(&self, queue: &Object<Queue<D>>) -> Result<Vec<Arc<Object<Queue<D>>>>> {
        let state = self.state.lock();
        let first = state.origin().ok_or(INVALID_OPERATION)?;
        ensure(std::ptr::eq(&*first, queue), INVALID_OPERATION.code())?;
        Ok(state.queues.iter().filter_map(Weak::upgrade).collect())
    }

    /// Ends the capture on the queue that began it. Returns the queues that joined.
    pub(crate) fn end(&self, queue: &Object<Queue<D>>) -> Result<Vec<Arc<Object<Queue<D>>>>> {
        let mut state = self.state.lock();
        let first = state.origin().ok_or(INVALID_OPERATION)?;
        ensure(std::ptr::eq(&*first, queue), INVALID_OPERATION.code())?;
        let queues = std::mem::take(&mut state.queues);
        drop(state);
        Ok(queues.iter().filter_map(Weak::upgrade).collect())
    }

    /// Adds a captured command. Returns its index.
    pub(crate) fn push(&self, node: Node<D>) -> Result<u32> {
        let mut state = self.state.lock();
        ensure(state.origin().is_some(), INVALID_OPERATION.code())?;
        debug_assert!(
            node.after
                .iter()
                .all(|&before| (before as usize) < state.recording.nodes.len()),
            "a captured command before its predecessors"
        );
        state.recording.nodes.push(node);
        Ok(state.recording.nodes.len() as u32 - 1)
    }

    pub(crate) fn instantiate(this: &Object<Self>) -> Result<Arc<Object<ExecutableGraph<D>>>> {
        this.context.domain().engine().check()?;
        let (recording, device) = this.finished()?;
        let target = Target {
            context: &this.context,
            device: &device,
        };
        let replay = Replay::new(recording, target, false);
        Ok(hal::new::<D, _>(ExecutableGraph {
            device,
            replay: Mutex::new(replay),
            graph: this.arc(),
            native: OnceLock::new(),
        }))
    }

    /// `urGraphDestroyExp`
    pub(crate) fn destroy(this: &Object<Self>) -> Result<()> {
        let captures = this.state.lock().origin().is_some();
        ensure(!captures, INVALID_OPERATION.code())?;
        destroy(this)
    }

    /// `urGraphGetNativeHandleExp`: the backend's graph of the same commands, which ends with this graph.
    pub(crate) fn native_handle(&self) -> Result<ur_native_handle_t> {
        ensure(D::NATIVE_GRAPHS, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        let (recording, device) = self.finished()?;
        let target = Target {
            context: &self.context,
            device: &device,
        };
        let (graph, _) = native_handles(&self.native, &recording, target)?;
        Ok(graph)
    }

    /// A copy of the commands, and their device. An error while a capture is under way, or without a
    /// command.
    #[allow(clippy::type_complexity)]
    fn finished(&self) -> Result<(Recording<D>, Arc<Object<D::Device>>)> {
        let state = self.state.lock();
        let done = state.origin().is_none() && !state.recording.nodes.is_empty();
        ensure(done, WRONG_STATE.code())?;
        // A graph with commands has a device.
        let device = state.device.clone().ok_or(WRONG_STATE)?;
        Ok((state.recording.copied(), device))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().recording.nodes.is_empty()
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Adds a callback, called when no command can use its objects any more. Each of several is
    /// called.
    pub(crate) fn add_callback(
        &self,
        run: <ur_exp_graph_destruction_callback_t as Unwrapped>::Fn,
        data: *mut c_void,
    ) {
        self.callbacks.lock().push(Callback { run, data });
    }

    /// Writes the graph into a file, for Graphviz.
    pub(crate) fn dump(&self, file_path: &CStr) -> Result<()> {
        let path = OsStr::from_bytes(file_path.to_bytes());
        std::fs::write(path, self.describe()).map_err(|error| {
            let code = error.raw_os_error().unwrap_or_default();
            let text = format!("writing a graph's contents: {error}");
            log::error!("{text}");
            Error::native(UR_RESULT_ERROR_UNKNOWN, code, &text)
        })
    }

    /// The graph in the language of Graphviz.
    fn describe(&self) -> String {
        let state = self.state.lock();
        let mut out = format!("digraph ur_graph_{} {{\n", self.id);
        for (at, node) in state.recording.nodes.iter().enumerate() {
            let name = node.kind.name().unwrap_or("unknown");
            // Writing to a string cannot fail.
            let _ = writeln!(out, "  n{at} [label=\"{at}: {name}\"];");
            for before in &node.after {
                let _ = writeln!(out, "  n{before} -> n{at};");
            }
        }
        out.push_str("}\n");
        out
    }
}

/// The handles of the backend's graph of a recording, which is made once.
fn native_handles<D: Driver>(
    native: &OnceLock<Arc<dyn Compiled<D>>>,
    recording: &Recording<D>,
    target: Target<'_, D>,
) -> Result<(ur_native_handle_t, ur_native_handle_t)> {
    let graph = match native.get() {
        Some(graph) => graph,
        None => {
            let fresh = recording.native_graph(target)?;
            native.get_or_init(|| fresh)
        }
    };
    graph.native_graph().ok_or(Error::unsupported())
}

impl<D: Driver> GraphState<D> {
    /// The queue that the capture under way was begun on.
    fn origin(&self) -> Option<Arc<Object<Queue<D>>>> {
        self.queues.first().and_then(Weak::upgrade)
    }

    fn add(&mut self, queue: &Object<Queue<D>>) -> Result<()> {
        let device = self
            .device
            .get_or_insert_with(|| Arc::clone(queue.device()));
        ensure(
            Arc::ptr_eq(device, queue.device()),
            INVALID_OPERATION.code(),
        )?;
        self.queues.push(Arc::downgrade(&queue.arc()));
        Ok(())
    }
}

impl<D: Driver> Drop for Graph<D> {
    fn drop(&mut self) {
        for callback in std::mem::take(self.callbacks.get_mut()) {
            // SAFETY: set by the user for this moment, with data that it wants to see.
            let call = || unsafe { (callback.run)(callback.data) };
            call_user_anyway::<D>(&self.context.devices()[0], call);
        }
    }
}

impl<D: Driver> ExecutableGraph<D> {
    /// `urGraphExecutableGraphDestroyExp`
    pub(crate) fn destroy(this: &Object<Self>) -> Result<()> {
        destroy(this)
    }

    /// `urGraphExecutableGraphGetNativeHandleExp`: the object that runs the commands, or one of the same
    /// commands where the backend runs them one by one.
    pub(crate) fn native_handle(&self) -> Result<ur_native_handle_t> {
        let replay = self.replay.lock();
        let target = Target {
            context: &self.graph.context,
            device: &self.device,
        };
        if let [unit] = &replay.program.units[..]
            && let Some(compiled) = &unit.compiled
            && let Some((_, executable)) = compiled.native_graph()
        {
            return Ok(executable);
        }
        let (_, executable) = native_handles(&self.native, replay.recording(), target)?;
        Ok(executable)
    }

    /// `urEnqueueGraphExp`
    pub(crate) fn enqueue(
        this: &Object<Self>,
        queue: &Object<Queue<D>>,
        waits: Handles<'_, Event<D>>,
        event: OutHandle<'_, Event<D>>,
    ) -> Result<()> {
        let own = Arc::ptr_eq(this.graph.context.domain(), queue.context().domain())
            && Arc::ptr_eq(&this.device, queue.device());
        ensure(own, UR_RESULT_ERROR_INVALID_QUEUE)?;
        queue.live(waits)?;
        let waits = Event::join_list(queue.context(), waits)?;
        let mut replay = this.replay.lock();
        let command = UR_COMMAND_ENQUEUE_GRAPH_EXP;
        replay::enqueue(queue, &mut replay, command, &waits, event, false)
    }
}

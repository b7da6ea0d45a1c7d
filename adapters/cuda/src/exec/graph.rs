//! Recorded commands as a graph of the driver's, which is launched as one; and graphs that others record.
//!
//! A graph holds commands with what they follow, so that they run at once as far as they may. What it
//! cannot hold (hints, odd patterns, launches with properties) ends it and is submitted by itself. A launch
//! of the same function is changed in place, for later launches of the graph. The commands are made anew if
//! the function is another, or if the lane defers a launch of the graph.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};

use ur::abi::ur_native_handle_t;
use ur::object::{Error, Result};
use ur::stream::{Compiled, HostFunction, NativeRecord, Progress, Step, Timestamps, Work};
use ur::sync::Mutex;

use super::fill;
use super::gpu::Gpu;
use super::lane::Lane;
use super::memory::{attribute, log_failed};
use super::work::{Native, ends, whole_box};
use crate::Cuda;
use crate::cu::sys::*;
use crate::cu::{Code, Graphing};

/// Fewer commands are not worth a graph.
const MIN_COMMANDS: usize = 2;

/// With this attribute the driver knows memory of any kind by its address. Without it, a graph's copies
/// must name the kind.
const CONCURRENT_MANAGED_ACCESS: CUdevice_attribute =
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;

/// A graph that is being made.
struct Graph {
    gpu: Arc<Gpu>,
    calls: Graphing,
    raw: CUgraph,
    concurrent_managed: bool,
}

// SAFETY: the driver's objects may be used from any thread, a graph's by one at a time: what is changed
// after its making is changed by others, who see to that.
unsafe impl Send for Graph {}
// SAFETY: the driver's objects may be used from any thread, a graph's by one at a time: what is changed
// after its making is changed by others, who see to that.
unsafe impl Sync for Graph {}

impl Graph {
    fn new(gpu: &Arc<Gpu>) -> Result<Self> {
        let calls = gpu.api.graphing().ok_or(Error::unsupported())?;
        let mut raw = null_mut();
        // SAFETY: room for one handle; there are no flags.
        gpu.check(unsafe { (calls.create)(&mut raw, 0) }, "cuGraphCreate")?;
        Ok(Self::of(gpu, calls, raw))
    }

    fn of(gpu: &Arc<Gpu>, calls: Graphing, raw: CUgraph) -> Self {
        let concurrent = attribute(gpu.api, gpu.device, CONCURRENT_MANAGED_ACCESS);
        Self {
            gpu: Arc::clone(gpu),
            calls,
            raw,
            concurrent_managed: concurrent.is_some_and(|concurrent| concurrent != 0),
        }
    }

    /// Another with the same commands, which stay as they are now.
    fn copied(&self) -> Result<Self> {
        let gpu = &self.gpu;
        let mut raw = null_mut();
        // SAFETY: room for one handle, and a live graph.
        let code = unsafe { (self.calls.copy)(&mut raw, self.raw) };
        gpu.check(code, "cuGraphClone")?;
        Ok(Self::of(gpu, self.calls, raw))
    }

    /// Adds a command behind these. None if it cannot be held.
    fn add(&self, work: &Work<Cuda>, after: &[CUgraphNode]) -> Option<CUgraphNode> {
        // A node cannot be made another command when it turns out that the device does not reach the memory.
        let ends = ends(work).filter(|_| Gpu::is_one_of_several());
        let mut ends = ends.into_iter().flatten().flatten();
        if ends.any(|addr| self.gpu.far_home(addr).is_some()) {
            return None;
        }
        let (graph, context) = (self.raw, self.gpu.context());
        let (first, count) = (after.as_ptr(), after.len());
        let mut node = null_mut();
        let empty = |node: &mut CUgraphNode| {
            // SAFETY: a live graph, and as many of its nodes as is said.
            unsafe { (self.calls.add_empty)(node, graph, first, count) }
        };
        let code = match work {
            Work::Launch(launch) => launch.described(|what| {
                // SAFETY: a live graph, and `count` of its nodes. The launch holds its function and arguments
                // until the graph is dropped. The caller promises their memory for each execution.
                unsafe { (self.calls.add_kernel)(&mut node, graph, first, count, what) }
            })?,
            Work::Marker => empty(&mut node),
            Work::Copy { dst, src, bytes } if *bytes == 0 || dst == src => empty(&mut node),
            Work::Copy { .. } | Work::CopyRect { .. } if self.concurrent_managed => {
                let what = whole_box(work)?;
                // SAFETY: a live graph, and `count` of its nodes. The caller promises both ranges for each
                // execution.
                unsafe { (self.calls.add_copy)(&mut node, graph, first, count, &what, context) }
            }
            Work::Native(Native::Boxes(boxes)) if self.concurrent_managed => {
                let what = boxes.only()?;
                // SAFETY: a live graph, and `count` of its nodes. The command holds its arrays until the graph is
                // dropped. The caller promises linear memory for each execution.
                unsafe { (self.calls.add_copy)(&mut node, graph, first, count, what, context) }
            }
            Work::Fill { .. } | Work::FillRect { .. } if self.concurrent_managed => {
                let what = fill::described(work)?;
                // SAFETY: a live graph, and `count` of its nodes. The caller promises the range for each
                // execution.
                unsafe { (self.calls.add_set)(&mut node, graph, first, count, &what, context) }
            }
            Work::Native(Native::Graph(recorded)) => {
                let inside = recorded.graph.raw;
                // SAFETY: two live graphs, and `count` nodes of the first. The driver copies the second.
                unsafe { (self.calls.add_graph)(&mut node, graph, first, count, inside) }
            }
            _ => return None,
        };
        code.is_success().then_some(node)
    }

    /// Adds a host function behind these. None if the driver refuses.
    fn add_host(
        &self,
        (run, data): (HostFunction, *mut c_void),
        after: &[CUgraphNode],
    ) -> Option<CUgraphNode> {
        let add = self.gpu.api.cuGraphAddHostNode?;
        let what = CUDA_HOST_NODE_PARAMS_v1 {
            fn_: Some(run),
            userData: data,
        };
        let mut node = null_mut();
        // SAFETY: a live graph, and as many of its nodes as is said. The caller of the host task promises the
        // function and its data for each execution.
        let code = unsafe { add(&mut node, self.raw, after.as_ptr(), after.len(), &what) };
        code.is_success().then_some(node)
    }

    /// What can be launched of it.
    fn ready(&self) -> Result<CUgraphExec> {
        let mut raw = null_mut();
        // SAFETY: room for one handle; a whole graph.
        let code = unsafe { (self.calls.instantiate)(&mut raw, self.raw, 0) };
        let call = "cuGraphInstantiateWithFlags";
        self.gpu.check(code, call).map(|()| raw)
    }

    /// Gives that to a stream. The context is current.
    fn launch(&self, ready: CUgraphExec, gpu: &Gpu, stream: CUstream) -> Result<()> {
        // SAFETY: a live graph and stream; the caller promises what the commands use.
        let code = unsafe { (self.calls.launch)(ready, stream) };
        gpu.check(code, "cuGraphLaunch")
    }

    fn end(&self, ready: CUgraphExec) {
        let _current = self.gpu.enter();
        // SAFETY: made of this graph. What was launched of it runs to its end.
        let code = unsafe { (self.calls.destroy_executable)(ready) };
        log_failed(code, "cuGraphExecDestroy");
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _current = self.gpu.enter();
        // SAFETY: our graph.
        log_failed(unsafe { (self.calls.destroy)(self.raw) }, "cuGraphDestroy");
    }
}

type Node = CUgraphNode;

/// What can be launched. The graph is kept, since changes name its nodes.
struct Executable {
    graph: Graph,
    raw: CUgraphExec,
    nodes: Vec<Node>,
    /// The commands, which keep what they use.
    works: Mutex<Vec<Work<Cuda>>>,
}

// SAFETY: the driver's objects may be used from any thread, a graph's by one at a time: whoever submits
// or updates a recording has it alone, and nothing is updated while its launch is deferred.
unsafe impl Send for Executable {}
// SAFETY: the driver's objects may be used from any thread, a graph's by one at a time: whoever submits or
// updates a recording has it alone, and nothing is updated while its launch is deferred.
unsafe impl Sync for Executable {}

impl Executable {
    fn change(&self, node: Node, work: &Work<Cuda>) -> Option<Code> {
        let Work::Launch(launch) = work else {
            return None;
        };
        let set = self.graph.calls.set_kernel;
        // SAFETY: a live graph and a node of what it was made of, a launch as this one is.
        launch.described(|what| unsafe { set(self.raw, node, what) })
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        self.graph.end(self.raw);
    }
}

/// A graph that others add commands to.
struct Record(Graph);

impl NativeRecord<Cuda> for Record {
    fn handle(&self) -> ur_native_handle_t {
        self.0.raw.expose_provenance()
    }

    fn work(&self) -> Result<Work<Cuda>> {
        let _current = self.0.gpu.enter()?;
        let graph = self.0.copied()?;
        let ready = OnceLock::new();
        Ok(Work::Native(Native::Graph(Arc::new(Recorded {
            graph,
            ready,
        }))))
    }
}

/// A new one.
pub fn record(gpu: &Arc<Gpu>) -> Result<Arc<dyn NativeRecord<Cuda>>> {
    let _current = gpu.enter()?;
    Ok(Arc::new(Record(Graph::new(gpu)?)))
}

/// The commands of a captured stream, none if there are none. The graph is ours from now on.
pub fn captured(gpu: &Arc<Gpu>, raw: CUgraph) -> Result<Option<Native>> {
    let calls = gpu.api.graphing().ok_or(Error::unsupported())?;
    let nodes = gpu.api.cuGraphGetNodes.ok_or(Error::unsupported())?;
    let (graph, mut count) = (Graph::of(gpu, calls, raw), 0);
    // SAFETY: a live graph. Without room for nodes, the call counts them.
    let code = unsafe { nodes(raw, null_mut(), &mut count) };
    gpu.check(code, "cuGraphGetNodes")?;
    let ready = OnceLock::new();
    let recorded = || Native::Graph(Arc::new(Recorded { graph, ready }));
    Ok((count > 0).then(recorded))
}

/// What others have added to a graph, as it was at some time.
pub struct Recorded {
    graph: Graph,
    /// What is launched, from the first time on that it is by itself.
    ready: OnceLock<Result<Ready>>,
}

struct Ready(CUgraphExec);

// SAFETY: as for `Executable`: whoever submits a recording has it alone.
unsafe impl Send for Ready {}
// SAFETY: as for `Executable`: whoever submits a recording has it alone.
unsafe impl Sync for Ready {}

impl Recorded {
    /// Gives it to a stream. The context is current.
    pub fn launch(&self, gpu: &Gpu, stream: CUstream) -> Result<()> {
        let ready = self.ready.get_or_init(|| self.graph.ready().map(Ready));
        let ready = ready.as_ref().map_err(|error| *error)?;
        self.graph.launch(ready.0, gpu, stream)
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if let Some(Ok(ready)) = self.ready.get() {
            self.graph.end(ready.0);
        }
    }
}

/// Commands that were made one. Whoever keeps them back on a lane holds the graph, too.
struct Made(Arc<Executable>);

/// Makes one of as many commands from `from` on as a graph can hold.
pub fn compile(
    gpu: &Arc<Gpu>,
    steps: &[Step<'_, Cuda>],
    from: usize,
) -> Option<(usize, Arc<dyn Compiled<Cuda>>)> {
    if steps.len() - from < MIN_COMMANDS {
        return None;
    }
    let (count, made) = build(gpu, steps, from, MIN_COMMANDS)?;
    Some((count, made))
}

/// A graph of all commands, however few. None if it cannot hold one of them.
pub fn whole(gpu: &Arc<Gpu>, steps: &[Step<'_, Cuda>]) -> Option<Arc<dyn Compiled<Cuda>>> {
    let (_, made) = build(gpu, steps, 0, steps.len())?;
    Some(made)
}

/// A graph of as many commands from `from` on as it can hold. None if those are less than `least`.
fn build(
    gpu: &Arc<Gpu>,
    steps: &[Step<'_, Cuda>],
    from: usize,
    least: usize,
) -> Option<(usize, Arc<dyn Compiled<Cuda>>)> {
    let _current = gpu.enter().ok()?;
    let graph = Graph::new(gpu).ok()?;
    let (mut nodes, mut works) = (Vec::<Node>::new(), Vec::new());
    for step in &steps[from..] {
        let own = step.after.iter().filter_map(|at| {
            let inside = (*at as usize).checked_sub(from)?;
            nodes.get(inside).copied()
        });
        let after: Vec<_> = own.collect();
        let added = match step.host {
            Some(call) => graph.add_host(call, &after),
            None => graph.add(step.work, &after),
        };
        let Some(node) = added else { break };
        nodes.push(node);
        works.push(step.work.clone());
    }
    let count = nodes.len();
    if count < least {
        return None;
    }
    let raw = graph.ready().ok()?;
    let made = Executable {
        graph,
        raw,
        nodes,
        works: Mutex::new(works),
    };
    Some((count, Arc::new(Made(Arc::new(made)))))
}

impl Compiled<Cuda> for Made {
    fn submit(
        &self,
        lane: &Lane,
        epoch: u64,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<Progress> {
        let graph = Arc::clone(&self.0);
        let launch = Native::call(move |gpu, stream| graph.graph.launch(graph.raw, gpu, stream));
        lane.submit(epoch, Work::Native(launch), timestamps)?;
        Ok(Progress::Pending)
    }

    fn native_graph(&self) -> Option<(ur_native_handle_t, ur_native_handle_t)> {
        let (graph, executable) = (self.0.graph.raw, self.0.raw);
        Some((graph.expose_provenance(), executable.expose_provenance()))
    }

    fn update(&self, at: usize, work: &Work<Cuda>) -> bool {
        let made = &self.0;
        let (Some(node), false) = (made.nodes.get(at), Arc::strong_count(made) > 1) else {
            return false;
        };
        let Ok(_current) = made.graph.gpu.enter() else {
            return false;
        };
        let mut works = made.works.lock();
        let Some(before) = works.get_mut(at) else {
            return false;
        };
        let (Work::Launch(old), Work::Launch(new)) = (&*before, work) else {
            return false;
        };
        // A node that gets another function, and its first one back, is not what it was: the driver's
        // next launch of the graph answers with a code of nobody's.
        if old.function() != new.function() {
            return false;
        }
        let changed = made.change(*node, work).is_some_and(Code::is_success);
        if changed {
            *before = work.clone();
        }
        changed
    }
}

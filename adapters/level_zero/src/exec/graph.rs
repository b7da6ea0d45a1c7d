//! The driver's graphs: what foreign code submits to a captured list, and recorded commands that are captured on a
//! list of their own for a native handle.
//!
//! A graph that is appended to a captured list is lost without an error, so that no capture here holds one.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Object, Result, ensure};
use ur::stream::{Compiled, Driver as _, HostFunction, Progress, Step, Timestamps, Work};

use super::compiled::holds;
use super::lane::Lane;
use super::list::List;
use super::work::{self, Native};
use crate::LevelZero;
use crate::context::NativeContext;
use crate::device::Device;
use crate::lz::*;

/// The functions of the driver's graphs. A loader has all of them or none.
#[derive(Clone, Copy)]
pub struct Calls {
    begin: pfn::zeCommandListBeginGraphCaptureExt,
    end: pfn::zeCommandListEndGraphCaptureExt,
    is_captured: pfn::zeCommandListIsGraphCaptureEnabledExt,
    append: pfn::zeCommandListAppendGraphExt,
    is_empty: pfn::zeGraphIsEmptyExt,
    instantiate: pfn::zeGraphInstantiateExt,
    destroy: pfn::zeGraphDestroyExt,
    destroy_executable: pfn::zeExecutableGraphDestroyExt,
}

/// The driver's extension.
const EXTENSION: &str = "ZE_extension_record_replay_graph";

/// `ZE_RESULT_QUERY_TRUE` of drivers from before the extension had its final number.
const EARLY_TRUE: ze_result_t = ze_result_t(0x7fff_0000);
/// `ZE_RESULT_QUERY_FALSE` of such drivers.
const EARLY_FALSE: ze_result_t = ze_result_t(0x7fff_0001);

impl Calls {
    pub fn of(device: &Device) -> Option<Self> {
        let api = device.api();
        if !device.platform().has_extension(EXTENSION) {
            return None;
        }
        Some(Self {
            begin: api.zeCommandListBeginGraphCaptureExt?,
            end: api.zeCommandListEndGraphCaptureExt?,
            is_captured: api.zeCommandListIsGraphCaptureEnabledExt?,
            append: api.zeCommandListAppendGraphExt?,
            is_empty: api.zeGraphIsEmptyExt?,
            instantiate: api.zeGraphInstantiateExt?,
            destroy: api.zeGraphDestroyExt?,
            destroy_executable: api.zeExecutableGraphDestroyExt?,
        })
    }
}

/// The answer to a question that is a result's code.
fn answer(code: ze_result_t, function: &str) -> Result<bool> {
    match code {
        ZE_RESULT_QUERY_TRUE | EARLY_TRUE => Ok(true),
        ZE_RESULT_QUERY_FALSE | EARLY_FALSE => Ok(false),
        code => check(code, function).map(|()| false),
    }
}

/// Whether a list is captured, by us or by foreign code.
pub fn is_captured(list: &List) -> bool {
    list.graphs.is_some_and(|calls| {
        // SAFETY: a live list.
        let code = unsafe { (calls.is_captured)(list.raw) };
        answer(code, "zeCommandListIsGraphCaptureEnabledExt").unwrap_or(false)
    })
}

/// Begins a capture of a list. False if it cannot be captured.
pub fn begin(list: &List) -> Result<bool> {
    let Some(calls) = list.graphs else {
        return Ok(false);
    };
    // SAFETY: a live list; there are no extensions.
    let code = unsafe { (calls.begin)(list.raw, null()) };
    check(code, "zeCommandListBeginGraphCaptureExt").map(|()| true)
}

/// Ends that capture. Returns its commands, none if there are none.
pub fn end(context: &Arc<NativeContext>, list: &List) -> Result<Option<Arc<Graph>>> {
    let mut graph = Graph::captured(context, list)?;
    if graph.is_empty()? {
        return Ok(None);
    }
    graph.instantiate()?;
    Ok(Some(Arc::new(graph)))
}

/// Submits a host function as a command of a list that is captured.
pub fn host_function(list: &List, run: HostFunction, data: *mut c_void) -> Result<()> {
    let append = list.api.zeCommandListAppendHostFunction;
    let append = append.ok_or(Error::unsupported())?;
    let none = ze_event_handle_t::NULL;
    // SAFETY: a live list. The caller of the host task promises the function and its data for each execution.
    let code = unsafe { append(list.raw, Some(run), data, null(), none, 0, null_mut()) };
    check(code, "zeCommandListAppendHostFunction")
}

/// A graph, with what can be submitted of it.
pub struct Graph {
    calls: Calls,
    raw: ze_graph_handle_t,
    executable: ze_executable_graph_handle_t,
    /// What the commands use, where they are ours.
    keeps: Vec<Work<LevelZero>>,
    context: Arc<NativeContext>,
}

impl Graph {
    /// The commands of a list's capture, which ends.
    fn captured(context: &Arc<NativeContext>, list: &List) -> Result<Self> {
        let calls = list.graphs.ok_or(Error::unsupported())?;
        let mut raw = ze_graph_handle_t::NULL;
        // SAFETY: a live list, and room for the handle.
        let code = unsafe { (calls.end)(list.raw, null(), &mut raw) };
        check(code, "zeCommandListEndGraphCaptureExt")?;
        Ok(Self {
            calls,
            raw,
            executable: ze_executable_graph_handle_t::NULL,
            keeps: Vec::new(),
            context: Arc::clone(context),
        })
    }

    fn is_empty(&self) -> Result<bool> {
        // SAFETY: a live graph.
        let code = unsafe { (self.calls.is_empty)(self.raw) };
        answer(code, "zeGraphIsEmptyExt")
    }

    /// Makes what can be submitted. Called once.
    fn instantiate(&mut self) -> Result<()> {
        // SAFETY: a live graph, and room for the handle.
        let code = unsafe { (self.calls.instantiate)(self.raw, null(), &mut self.executable) };
        check(code, "zeGraphInstantiateExt")
    }

    pub fn append(&self, to: &List, signal: ze_event_handle_t) -> Result<()> {
        let append = self.calls.append;
        // SAFETY: a live list and graph; no events are waited for.
        let code = unsafe { append(to.raw, self.executable, null(), signal, 0, null_mut()) };
        check(code, "zeCommandListAppendGraphExt")?;
        to.keep_order()
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.context.api.is_torn_down() {
            return;
        }
        if !self.executable.is_null() {
            // SAFETY: the graph is this one's, and its submissions hold it.
            unsafe { (self.calls.destroy_executable)(self.executable) };
        }
        // SAFETY: the graph is this one's, and what was made of it is gone.
        unsafe { (self.calls.destroy)(self.raw) };
    }
}

/// The graph of a recording.
struct Whole(Arc<Graph>);

/// All commands as one graph. None if the driver has no graphs, or cannot capture one of the commands.
pub fn whole(
    context: &Arc<NativeContext>,
    device: &Object<Device>,
    steps: &[Step<'_, LevelZero>],
) -> Option<Arc<dyn Compiled<LevelZero>>> {
    Calls::of(device)?;
    let able = |step: &Step<'_, LevelZero>| step.host.is_some() || holds(context, step.work);
    if !steps.iter().all(able) {
        return None;
    }
    capture(context, device, steps)
        .inspect_err(|error| log::debug!("commands make no graph: {:?}", error.code()))
        .ok()
}

/// The commands follow each other on one list, which is an order that each of them allows.
fn capture(
    context: &Arc<NativeContext>,
    device: &Object<Device>,
    steps: &[Step<'_, LevelZero>],
) -> Result<Arc<dyn Compiled<LevelZero>>> {
    let lane = Lane::open(context, device, ur_queue_flags_t(0))?;
    let list = &lane.stream().list;
    ensure(begin(list)?, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    let appended = steps.iter().try_for_each(|step| match step.host {
        Some((run, data)) => host_function(list, run, data),
        None => work::append(list, ze_event_handle_t::NULL, step.work.clone()),
    });
    // Also after an error: a list must not be destroyed while it is captured.
    let graph = Graph::captured(context, list);
    appended?;
    let mut graph = graph?;
    graph.instantiate()?;
    graph.keeps = steps.iter().map(|step| step.work.clone()).collect();
    Ok(Arc::new(Whole(Arc::new(graph))))
}

impl Compiled<LevelZero> for Whole {
    fn submit(
        &self,
        lane: &Lane,
        epoch: u64,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<Progress> {
        let work = Work::Native(Native::Graph(Arc::clone(&self.0)));
        LevelZero::submit(lane, epoch, work, timestamps)
    }

    fn native_graph(&self) -> Option<(ur_native_handle_t, ur_native_handle_t)> {
        let (graph, executable) = (self.0.raw, self.0.executable);
        Some((
            graph.0.expose_provenance(),
            executable.0.expose_provenance(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_codes_of_both_numbers() {
        let ask = |code| answer(code, "zeGraphIsEmptyExt").map_err(|error| error.code());
        assert_eq!(ask(ZE_RESULT_QUERY_TRUE), Ok(true));
        assert_eq!(ask(ze_result_t(0x7fff_0000)), Ok(true));
        assert_eq!(ask(ZE_RESULT_QUERY_FALSE), Ok(false));
        assert_eq!(ask(ze_result_t(0x7fff_0001)), Ok(false));
        let lost = ask(ZE_RESULT_ERROR_DEVICE_LOST);
        assert_eq!(lost, Err(UR_RESULT_ERROR_DEVICE_LOST));
    }
}

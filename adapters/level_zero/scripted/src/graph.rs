//! Graphs: what was appended to a captured list, and what can be executed of it.
//!
//! A list that waits for an event of a capture joins it. The commands of all of a capture's lists form one row, in the
//! order in which they were appended, which is an order that each of them allows. An event that is signalled within a
//! capture is the graph's own there: executions signal a copy of it.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use ze::*;

use crate::entry::put;
use crate::event::Event;
use crate::list::{self, Kind};
use crate::object::{Objects, hold};
use crate::script;
use crate::worker::Step;

/// A capture under way.
#[derive(Default)]
pub struct Capture {
    steps: Mutex<Vec<Step>>,
}

pub struct Graph {
    steps: Vec<Step>,
}

pub static GRAPHS: Objects<Graph> = Objects::of("graph");
pub static EXECUTABLES: Objects<Graph> = Objects::of("executable graph");

impl Capture {
    /// Records commands, with the capture's own events.
    pub fn record(self: &Arc<Self>, steps: &[Step]) {
        let own = |event: &Arc<Event>| event.inside(self).unwrap_or_else(|| event.clone());
        for step in steps {
            let recorded = Step {
                waits: step.waits.iter().map(own).collect(),
                work: step.work.clone(),
                asked: step.asked.iter().map(own).collect(),
                signal: step.signal.as_ref().map(|event| event.enter(self)),
            };
            hold(&self.steps).push(recorded);
        }
    }
}

entries! {
    fn zeCommandListBeginGraphCaptureExt(list: ze_command_list_handle_t, _next: *const c_void) {
        let own = list::get(list)?;
        let Kind::Immediate { primary, flags, .. } = &own.kind else {
            return Err(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
        };
        if flags & ZE_COMMAND_QUEUE_FLAG_IN_ORDER == 0 {
            return Err(ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED);
        }
        if own.capture().is_some() {
            return Err(ZE_RESULT_ERROR_GRAPH_CAPTURE_MERGE_ATTEMPT);
        }
        *hold(primary) = Some(Arc::default());
        Ok(())
    }

    fn zeCommandListEndGraphCaptureExt(
        list: ze_command_list_handle_t, _next: *const c_void, out: *mut ze_graph_handle_t,
    ) {
        let own = list::get(list)?;
        let Kind::Immediate { primary, .. } = &own.kind else {
            return Err(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
        };
        let ended = hold(primary).take().ok_or(ZE_RESULT_ERROR_COMMAND_LIST_NOT_CAPTURING)?;
        let steps = std::mem::take(&mut *hold(&ended.steps));
        put(out, ze_graph_handle_t(GRAPHS.add(|_| Graph { steps })))
    }

    fn zeCommandListIsGraphCaptureEnabledExt(list: ze_command_list_handle_t) {
        Err(answer(list::get(list)?.capture().is_some()))
    }

    fn zeGraphIsEmptyExt(graph: ze_graph_handle_t) {
        Err(answer(GRAPHS.get(graph.0)?.steps.is_empty()))
    }

    fn zeGraphInstantiateExt(
        graph: ze_graph_handle_t, _next: *const c_void, out: *mut ze_executable_graph_handle_t,
    ) {
        let steps = GRAPHS.get(graph.0)?.steps.clone();
        put(out, ze_executable_graph_handle_t(EXECUTABLES.add(|_| Graph { steps })))
    }

    fn zeCommandListAppendGraphExt(
        list: ze_command_list_handle_t, graph: ze_executable_graph_handle_t, _next: *const c_void,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        let own = list::get(list)?;
        let graph = EXECUTABLES.get(graph.0)?;
        if own.capture().is_some() {
            script::broken("a graph is appended to a captured list".into());
            return Err(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
        }
        own.append_all(&crate::append::around(graph.steps.clone(), signal, count, waits)?)
    }

    fn zeGraphDestroyExt(graph: ze_graph_handle_t) {
        GRAPHS.remove(graph.0).map(drop)
    }

    fn zeExecutableGraphDestroyExt(graph: ze_executable_graph_handle_t) {
        EXECUTABLES.remove(graph.0).map(drop)
    }
}

/// The answer to a question that is a result's code.
fn answer(is: bool) -> ze_result_t {
    match is {
        true => ZE_RESULT_QUERY_TRUE,
        false => ZE_RESULT_QUERY_FALSE,
    }
}

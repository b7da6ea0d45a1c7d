//! Answers that run callbacks at once, since commands complete when they are submitted, and answers
//! about captures.

use ur::abi::*;
use ur::object::{Kind, Result};

use crate::make;
use crate::objects::{self, Origin, next_id};

pub fn event_set_callback(p: &ur_event_set_callback_params_t) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    let (event, status, notify, user_data) =
        unsafe { (*p.phEvent, *p.pexecStatus, *p.ppfnNotify, *p.ppUserData) };
    if let Some(notify) = notify {
        // SAFETY: the caller passed the callback to be called with these arguments.
        unsafe { notify(event, status, user_data) };
    }
    Ok(())
}

pub fn enqueue_host_task_exp(p: &ur_enqueue_host_task_exp_params_t) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract, and the task takes its
    // data.
    unsafe {
        if let Some(task) = *p.ppfnHostTask {
            task(*p.pdata);
        }
        let origin = Origin::default().with(*p.phQueue, Kind::Queue);
        make::event(*p.pphEvent, UR_COMMAND_HOST_TASK_EXP, &origin);
    }
    Ok(())
}

pub fn enqueue_native_command_exp(p: &ur_enqueue_native_command_exp_params_t) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract, and the function takes its
    // data.
    unsafe {
        if let Some(enqueue) = *p.ppfnNativeEnqueue {
            enqueue(*p.phQueue, *p.pdata);
        }
        let origin = Origin::default().with(*p.phQueue, Kind::Queue);
        make::event(*p.pphEvent, UR_COMMAND_ENQUEUE_NATIVE_EXP, &origin);
    }
    Ok(())
}

pub fn command_buffer_append_native_command_exp(
    p: &ur_command_buffer_append_native_command_exp_params_t,
) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract, and the function takes its
    // data.
    unsafe {
        if let Some(append) = *p.ppfnNativeCommand {
            append(*p.ppData);
        }
        make::value(*p.ppSyncPoint, next_id() as u32);
    }
    Ok(())
}

pub fn kernel_get_suggested_local_work_size(
    p: &ur_kernel_get_suggested_local_work_size_params_t,
) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe { ones(*p.ppSuggestedLocalWorkSize, *p.pnumWorkDim) };
    Ok(())
}

pub fn kernel_get_suggested_local_work_size_with_args(
    p: &ur_kernel_get_suggested_local_work_size_with_args_params_t,
) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe { ones(*p.ppSuggestedLocalWorkSize, *p.pnumWorkDim) };
    Ok(())
}

/// Writes a work-group size of 1, which divides every range, in at most three dimensions.
///
/// # Safety
/// The output is null or writable for `count` numbers, or for three.
unsafe fn ones(to: *mut usize, count: u32) {
    for at in 0..count.min(3) as usize {
        if !to.is_null() {
            // SAFETY: not null, and the caller guarantees room for `count` numbers, or three.
            unsafe { to.add(at).write(1) }
        }
    }
}

pub fn kernel_suggest_max_cooperative_group_count(
    p: &ur_kernel_suggest_max_cooperative_group_count_params_t,
) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe { make::value(*p.ppGroupCountRet, 1) };
    Ok(())
}

/// The role of the graph that a queue captures into.
const CAPTURE: &str = "capture";

pub fn queue_begin_graph_capture_exp(p: &ur_queue_begin_graph_capture_exp_params_t) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    let queue = objects::known(unsafe { *p.phQueue }, Kind::Queue)?;
    let graph = objects::create(Kind::Graph, queue.origin.clone());
    // The end of the capture passes this reference to the caller.
    graph.retain();
    queue.set_link(CAPTURE, Some(graph));
    Ok(())
}

pub fn queue_begin_capture_into_graph_exp(
    p: &ur_queue_begin_capture_into_graph_exp_params_t,
) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    let (queue, graph) = unsafe { (*p.phQueue, *p.phGraph) };
    let queue = objects::known(queue, Kind::Queue)?;
    let graph = objects::known(graph, Kind::Graph)?;
    queue.set_link(CAPTURE, Some(graph));
    Ok(())
}

pub fn queue_end_graph_capture_exp(p: &ur_queue_end_graph_capture_exp_params_t) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    let queue = objects::known(unsafe { *p.phQueue }, Kind::Queue)?;
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        match queue.set_link(CAPTURE, None) {
            Some(graph) => make::lent(*p.pphGraph, Some(&graph)),
            None => make::handle(*p.pphGraph, Kind::Graph, &queue.origin),
        }
    }
    Ok(())
}

pub fn queue_is_graph_capture_enabled_exp(
    p: &ur_queue_is_graph_capture_enabled_exp_params_t,
) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    let queue = objects::known(unsafe { *p.phQueue }, Kind::Queue)?;
    let capturing = queue.link(CAPTURE).is_some();
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe { make::value(*p.ppResult, u8::from(capturing)) };
    Ok(())
}

pub fn queue_get_graph_exp(p: &ur_queue_get_graph_exp_params_t) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    let queue = objects::known(unsafe { *p.phQueue }, Kind::Queue)?;
    let graph = queue.link(CAPTURE);
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe { make::lent(*p.pphGraph, graph.as_ref()) };
    Ok(())
}

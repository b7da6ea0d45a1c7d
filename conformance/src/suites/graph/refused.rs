//! Calls that a capture refuses, and commands that cannot be captured.

use super::SUITE;
use crate::check;
use crate::fixture::Fixture;
use crate::objects::{Context, Graph, Kind, Queue, captures};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests![SUITE; refused_states, refused_devices, refused_commands, refused_nested_captures]
}

/// Capture calls in the wrong state, or across contexts, are refused.
fn refused_states(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let graph = Graph::new(fixture, &context)?;
    let (queue, other) = (context.in_order(fixture)?, context.in_order(fixture)?);
    let ur = fixture.ur;
    let (mut out, mut executable) = (null_mut(), null_mut());
    let operation = UR_RESULT_ERROR_INVALID_OPERATION;
    let argument = UR_RESULT_ERROR_INVALID_ARGUMENT;
    ur.urQueueEndGraphCaptureExp(queue.raw, &mut out)
        .fails_because(
            UR_RESULT_ERROR_COMMAND_LIST_NOT_CAPTURING,
            "is not capturing",
        )?;
    ur.urQueueGetGraphExp(queue.raw, &mut out)
        .fails_because(operation, "the queue is not capturing")?;
    ur.urQueueBeginCaptureIntoGraphExp(queue.raw, graph.raw)
        .ok()?;
    // A second capture on the queue, and a second one into the graph.
    ur.urQueueBeginGraphCaptureExp(queue.raw)
        .fails_because(argument, "is capturing")?;
    ur.urQueueBeginCaptureIntoGraphExp(queue.raw, graph.raw)
        .fails(argument)?;
    ur.urQueueBeginCaptureIntoGraphExp(other.raw, graph.raw)
        .fails_because(argument, "another one into `hGraph`")?;
    check!(!captures(&other)?, "a queue captures after a refused call");
    ur.urGraphInstantiateGraphExp(graph.raw, &mut executable)
        .fails_because(argument, "under way")?;
    ur.urGraphDestroyExp(graph.raw)
        .fails_because(operation, "under way")?;
    // Only the queue that the capture began on can end it.
    let root = queue.marker(&[])?;
    other.marker(&[&root])?;
    ur.urQueueEndGraphCaptureExp(other.raw, &mut out)
        .fails_because(operation, "begun on another queue")?;
    check!(
        out.is_null() && executable.is_null(),
        "a refused call wrote a handle"
    );
    check!(
        captures(&queue)? && captures(&other)?,
        "a refused call ended the capture"
    );
    ur.urQueueEndGraphCaptureExp(queue.raw, &mut out).ok()?;
    // A queue of another context.
    let foreign = Context::new(fixture)?;
    let stranger = foreign.in_order(fixture)?;
    ur.urQueueBeginCaptureIntoGraphExp(stranger.raw, graph.raw)
        .fails_because(UR_RESULT_ERROR_INVALID_GRAPH, "another context")?;
    let executable = graph.instantiate()?;
    ur.urEnqueueGraphExp(stranger.raw, executable.raw, 0, null(), null_mut())
        .fails_because(UR_RESULT_ERROR_INVALID_QUEUE, "another context")
}

/// A capture and a submission refuse a queue of another device.
fn refused_devices(fixture: &Fixture) -> Done {
    let parts = crate::suites::partition::in_single_units(fixture)?;
    let [one, two, ..] = parts[..] else {
        return Err(Stop::skipped("one compute unit cannot be split"));
    };
    let ur = fixture.ur;
    let mut raw = null_mut();
    ur.urContextCreate(2, [one, two].as_ptr(), null(), &mut raw)
        .ok()?;
    let context = Context::adopt(ur, raw);
    let flags = ur_queue_flags_t(0);
    let queues = (
        Queue::new(&context, one, flags)?,
        Queue::new(&context, two, flags)?,
    );
    for part in parts {
        ur.urDeviceRelease(part).ok()?;
    }
    let graph = Graph::new(fixture, &context)?;
    ur.urQueueBeginCaptureIntoGraphExp(queues.0.raw, graph.raw)
        .ok()?;
    let captured = queues.0.marker(&[])?;
    ur.urEnqueueEventsWait(queues.1.raw, 1, &captured.raw, null_mut())
        .fails(UR_RESULT_ERROR_INVALID_OPERATION)?;
    check!(
        !captures(&queues.1)?,
        "a queue captures after a refused call"
    );
    let mut out = null_mut();
    ur.urQueueEndGraphCaptureExp(queues.0.raw, &mut out).ok()?;
    let executable = graph.instantiate()?;
    ur.urEnqueueGraphExp(queues.1.raw, executable.raw, 0, null(), null_mut())
        .fails_because(UR_RESULT_ERROR_INVALID_QUEUE, "or device")
}

/// A command that blocks or gives memory is refused during a capture.
fn refused_commands(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let buffer = context.buffer(64)?;
    let ur = fixture.ur;
    let graph = Graph::capture(&queue, || {
        let (q, none, no_wait) = (queue.raw, null_mut(), null());
        let (dst, src) = (memory.ptr, memory.ptr.wrapping_byte_add(32));
        ur.urEnqueueUSMMemcpy(q, 1, dst, src, 32, 0, no_wait, none)
            .refused()?;
        ur.urQueueFinish(q).refused()?;
        let mut mapped = null_mut();
        let flags = UR_MAP_FLAG_READ;
        ur.urEnqueueMemBufferMap(
            q,
            buffer.raw,
            0,
            flags,
            0,
            64,
            0,
            no_wait,
            none,
            &mut mapped,
        )
        .refused()?;
        let (mut event, mut block) = (null_mut(), null_mut());
        ur.urEnqueueTimestampRecordingExp(q, 0, 0, no_wait, &mut event)
            .refused()?;
        let pool = null_mut();
        ur.urEnqueueUSMDeviceAllocExp(q, pool, 64, null(), 0, no_wait, &mut block, none)
            .refused()?;
        ur.urEnqueueUSMFreeExp(q, pool, memory.ptr, 0, no_wait, none)
            .refused()?;
        check!(
            block.is_null() && event.is_null(),
            "a refused command gave a block or an event"
        );
        Ok(())
    })?;
    check!(graph.is_empty()?, "a refused command was recorded");
    queue.fill(memory.ptr, 1_u8, 64, &[])?.wait()
}

/// A capture refuses events of another capture and executable graphs.
fn refused_nested_captures(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    let (one, two) = (context.in_order(fixture)?, context.in_order(fixture)?);
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let ur = fixture.ur;
    let inner = Graph::capture(&one, || one.fill(memory.ptr, 1_u8, 64, &[]).map(drop))?;
    let inner = (inner.instantiate()?, inner);
    let second = Graph::capture(&two, || {
        let theirs = two.fill(memory.ptr, 1_u8, 64, &[])?;
        let first = Graph::capture(&one, || {
            ur.urEnqueueEventsWait(one.raw, 1, &theirs.raw, null_mut())
                .refused()?;
            ur.urEnqueueGraphExp(one.raw, inner.0.raw, 0, null(), null_mut())
                .fails_because(UR_RESULT_ERROR_INVALID_OPERATION, "is capturing")
        })?;
        check!(first.is_empty()?, "a refused command was recorded");
        Ok(())
    })?;
    check!(!second.is_empty()?, "the second capture is empty");
    Ok(())
}

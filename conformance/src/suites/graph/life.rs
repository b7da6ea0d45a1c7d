//! Graphs and captures: how they begin and end, their info queries, and the objects that they keep alive.

use super::{SUITE, queues};
use crate::fixture::Fixture;
use crate::kernels::IOTA;
use crate::objects::{Arg, Context, Executable, Graph, Kind, Program, captures};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_eq, check_items};
use std::ffi::{CStr, CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests![SUITE;
        ids, capture_into_a_graph, capture_into_a_graph_once, executables_are_copies, keeps_its_objects, capture_state,
        captured_events, destruction_callback, dump_contents, native_handles,
    ]
}

/// The ids of graphs increase.
fn ids(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let mut last = 0;
    for _ in 0..100 {
        let graph = Graph::new(fixture, &context)?;
        let id = graph.id()?;
        check!(id > last, "the id {id} follows {last}");
        last = id;
    }
    Ok(())
}

/// A capture into a given graph reports it and fills it.
fn capture_into_a_graph(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let graph = Graph::new(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let ur = fixture.ur;
    ur.urQueueBeginCaptureIntoGraphExp(queue.raw, graph.raw)
        .ok()?;
    let mut seen = null_mut();
    ur.urQueueGetGraphExp(queue.raw, &mut seen).ok()?;
    check_eq!(seen, graph.raw, "the graph of a capturing queue");
    queue.fill(memory.ptr, 4_u8, 64, &[])?;
    let mut ended = null_mut();
    ur.urQueueEndGraphCaptureExp(queue.raw, &mut ended).ok()?;
    check_eq!(ended, graph.raw, "the graph that was captured into");
    graph.instantiate()?.enqueue(&queue, &[])?.wait()?;
    check_eq!(
        queue.read::<u8>(memory.ptr, 64, &[])?,
        [4; 64],
        "bytes of the fill"
    );
    Ok(())
}

/// A graph with commands refuses another capture, from the same queue or another.
fn capture_into_a_graph_once(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let graph = Graph::new(fixture, &context)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let ur = fixture.ur;
    let [p, q] = queues(fixture, &context)?;
    ur.urQueueBeginCaptureIntoGraphExp(p.raw, graph.raw).ok()?;
    p.fill(memory.ptr, 6_u8, 64, &[])?;
    ur.urQueueEndGraphCaptureExp(p.raw, &mut null_mut()).ok()?;
    for queue in [&p, &q] {
        ur.urQueueBeginCaptureIntoGraphExp(queue.raw, graph.raw)
            .fails_because(UR_RESULT_ERROR_INVALID_ARGUMENT, "holds commands")?;
        check!(!captures(queue)?, "a queue captures after a refused call");
    }
    graph.instantiate()?.enqueue(&q, &[])?.wait()?;
    check_eq!(
        p.read::<u8>(memory.ptr, 64, &[])?,
        [6; 64],
        "bytes of the fill"
    );
    Ok(())
}

/// Two executables of one graph are independent of each other.
fn executables_are_copies(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 2)?;
    let graph = Graph::capture(&queue, || queue.fill(memory.ptr, 1_u8, 1, &[]).map(drop))?;
    let (first, twin) = (graph.instantiate()?, graph.instantiate()?);
    check!(first.raw != twin.raw, "two executables have one handle");
    let mut first = Some(first);
    for executable in [first.as_ref(), Some(&twin)].into_iter().flatten() {
        queue.fill(memory.ptr, 0_u8, 2, &[])?;
        executable.enqueue_only(&queue)?;
        check_eq!(
            queue.read::<u8>(memory.ptr, 2, &[])?,
            [1, 0],
            "bytes after an executable"
        );
    }
    drop(first.take());
    queue.fill(memory.ptr, 0_u8, 2, &[])?;
    twin.enqueue_only(&queue)?;
    check_eq!(
        queue.read::<u8>(memory.ptr, 2, &[])?,
        [1, 0],
        "bytes after an executable whose twin was destroyed"
    );
    Ok(())
}

/// An executable keeps the kernels and programs that its commands use.
fn keeps_its_objects(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 400)?;
    let executable: Executable = {
        let program = Program::new(fixture, &context)?;
        let kernel = program.kernel(IOTA)?;
        let args = [Arg::Pointer(memory.ptr), Arg::of(&2_u32)];
        let record = || queue.launch(&kernel, 100, &args, &[]).map(drop);
        let graph = Graph::capture(&queue, record)?;
        let executable = graph.instantiate()?;
        drop(kernel);
        executable.enqueue_only(&queue)?;
        queue.finish()?;
        executable
    };
    executable.enqueue_only(&queue)?;
    let data: Vec<u32> = queue.read(memory.ptr, 100, &[])?;
    check_items!(data, 2..102, "words after the program was released");
    Ok(())
}

/// A queue reports whether it is capturing, and may be released while it is.
fn capture_state(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    check!(!captures(&queue)?, "a new queue is capturing");
    let graph = Graph::capture(&queue, || {
        check!(
            captures(&queue)?,
            "a capturing queue reports that it is not"
        );
        Ok(())
    })?;
    check!(
        !captures(&queue)?,
        "a queue captures after the end of its capture"
    );
    drop(graph);
    // A queue that is released while it captures takes its graph along.
    let other = context.in_order(fixture)?;
    fixture.ur.urQueueBeginGraphCaptureExp(other.raw).ok()?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    other.fill(memory.ptr, 1_u8, 64, &[])?;
    drop(other);
    queue.finish()
}

/// The event of a captured command never completes and cannot be waited for outside.
fn captured_events(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    let (queue, other) = (context.in_order(fixture)?, context.in_order(fixture)?);
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let mut event = None;
    let graph = Graph::capture(&queue, || {
        event = Some(queue.fill(memory.ptr, 1_u8, 64, &[])?);
        Ok(())
    })?;
    let event = event.ok_or_else(|| Stop::failed("the captured command gave no event"))?;
    check_eq!(
        event.get::<ur_command_t>(UR_EVENT_INFO_COMMAND_TYPE)?,
        UR_COMMAND_USM_FILL,
        "command type"
    );
    check!(!event.is_complete()?, "a captured command is complete");
    let ur = fixture.ur;
    ur.urEventWait(1, &event.raw).refused()?;
    ur.urEnqueueEventsWait(other.raw, 1, &event.raw, null_mut())
        .refused()?;
    check!(
        !captures(&other)?,
        "a queue joined a capture that has ended"
    );
    graph.instantiate()?.enqueue(&queue, &[])?.wait()?;
    check!(
        !event.is_complete()?,
        "a captured event is complete after a submission"
    );
    drop(graph);
    ur.urEventWait(1, &event.raw).refused()
}

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: the test passes a counter that it keeps.
    unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
}

/// A graph's destruction callback runs once, when the graph is destroyed.
fn destruction_callback(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let calls = crate::leak::leak(AtomicU32::new(0));
    let data = std::ptr::from_ref(calls).cast_mut().cast();
    let graph = Graph::new(fixture, &context)?;
    let call = Some(count as unsafe extern "C" fn(*mut c_void));
    fixture
        .ur
        .urGraphSetDestructionCallbackExp(graph.raw, call, data)
        .ok()?;
    let ur = fixture.ur;
    ur.urQueueBeginCaptureIntoGraphExp(queue.raw, graph.raw)
        .ok()?;
    queue.marker(&[])?;
    ur.urQueueEndGraphCaptureExp(queue.raw, &mut null_mut())
        .ok()?;
    let executable = graph.instantiate()?;
    executable.enqueue(&queue, &[])?.wait()?;
    drop(executable);
    check_eq!(
        calls.load(Ordering::Relaxed),
        0,
        "calls before the graph is destroyed"
    );
    drop(graph);
    check_eq!(
        calls.load(Ordering::Relaxed),
        1,
        "calls after the graph is destroyed"
    );
    Ok(())
}

/// A graph writes its contents to a file and reports a path that cannot be written.
fn dump_contents(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let graph = Graph::capture(&queue, || {
        queue.fill(memory.ptr, 1_u8, 64, &[])?;
        queue
            .copy(memory.ptr, memory.ptr.wrapping_byte_add(32), 32, &[])
            .map(drop)
    })?;
    let name = format!("ur-graph-{}-{}", std::process::id(), graph.id()?);
    let path = std::env::temp_dir().join(name);
    let text = path.to_str().and_then(|path| CString::new(path).ok());
    let text = text.ok_or_else(|| Stop::failed("the name of the temporary folder is no text"))?;
    let status = fixture.ur.urGraphDumpContentsExp(graph.raw, text.as_ptr());
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let _ = std::fs::remove_file(&path);
    status.ok()?;
    check!(!written.trim().is_empty(), "the file is empty");
    // A path in a folder that does not exist, and the path of a folder.
    for nowhere in [c"/nowhere/at/all", c"/"] {
        fixture
            .ur
            .urGraphDumpContentsExp(graph.raw, nowhere.as_ptr())
            .fails_because(UR_RESULT_ERROR_UNKNOWN, "cannot be written")?;
    }
    let (mut message, mut code) = (null(), 0);
    fixture
        .ur
        .urAdapterGetLastError(fixture.adapter, &mut message, &mut code)
        .ok()?;
    check!(!message.is_null(), "the last error has no message");
    // SAFETY: the message is valid until the thread's next failure.
    let message = unsafe { CStr::from_ptr(message) };
    check!(!message.is_empty(), "the last error's message is empty");
    Ok(())
}

/// A graph and its executable give their native handles or report that they have none.
fn native_handles(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    let graph = Graph::capture(&queue, || queue.marker(&[]).map(drop))?;
    let executable = graph.instantiate()?;
    let ur = fixture.ur;
    let mut native = 0;
    for status in [
        ur.urGraphGetNativeHandleExp(graph.raw, &mut native),
        ur.urGraphExecutableGraphGetNativeHandleExp(executable.raw, &mut native),
    ] {
        match status.is_ok() {
            true => check!(native != 0, "a native handle is 0"),
            false => status.fails(UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?,
        }
    }
    Ok(())
}

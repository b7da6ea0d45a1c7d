//! Graphs: what is captured, how it is replayed, and what a capture refuses.

use crate::fixture::Fixture;
use crate::kernels::{ADD, IOTA};
use crate::objects::{Arg, Context, Executable, Gate, Graph, Kind, Program, Queue, captures};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_eq};
use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["graph";
        empty, ids, nothing_runs, replays, into_a_graph, continued, out_of_order, barriers,
        fork_and_join, host_tasks, buffers, uses_stay, waits_from_outside, waits_and_events,
        across_queues, executables_are_copies, capture_state, captured_events, destruction_callback,
        contents, native_handles, refused_states, refused_devices, refused_commands, refused_mixtures,
    ]
}

fn queues(fixture: &Fixture, context: &Context) -> Result<[Queue; 2], Stop> {
    Ok([context.in_order(fixture)?, context.out_of_order(fixture)?])
}

fn empty(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let graph = Graph::new(fixture, &context)?;
    check!(graph.is_empty()?, "a new graph");
    let queue = context.in_order(fixture)?;
    let captured = Graph::capture(&queue, || Ok(()))?;
    check!(captured.is_empty()?, "a capture of nothing");
    for graph in [&graph, &captured] {
        let executable = graph.instantiate()?;
        for queue in queues(fixture, &context)? {
            executable.enqueue(&queue, &[])?.wait()?;
            executable.enqueue_only(&queue)?;
            queue.finish()?;
        }
    }
    Ok(())
}

fn ids(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let mut last = 0;
    for _ in 0..100 {
        let graph = Graph::new(fixture, &context)?;
        let id = graph.id()?;
        check!(id > last, "{id} after {last}");
        last = id;
    }
    Ok(())
}

fn nothing_runs(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    for queue in queues(fixture, &context)? {
        let memory = context.usm(fixture, Kind::Host, 4096)?;
        queue.fill(memory.ptr, 1_u8, 4096, &[])?.wait()?;
        let graph = Graph::capture(&queue, || queue.fill(memory.ptr, 2_u8, 4096, &[]).map(drop))?;
        queue.finish()?;
        check!(!graph.is_empty()?, "the graph is empty");
        check!(
            memory.host::<u8>().iter().all(|byte| *byte == 1),
            "a captured fill ran"
        );
        // The queue is as before.
        queue.fill(memory.ptr, 3_u8, 4096, &[])?.wait()?;
        check!(
            memory.host::<u8>().iter().all(|byte| *byte == 3),
            "a fill afterwards"
        );
    }
    Ok(())
}

fn replays(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    let program = Program::new(fixture, &context)?;
    let (iota, add) = (program.kernel(IOTA)?, program.kernel(ADD)?);
    let queue = context.in_order(fixture)?;
    let [a, b] = [(); 2].map(|()| context.usm(fixture, Kind::Device, 4000));
    let (a, b) = (a?, b?);
    let graph = Graph::capture(&queue, || {
        queue.launch(&iota, 1000, &[Arg::Pointer(a.ptr), Arg::of(&5_u32)], &[])?;
        for _ in 0..10 {
            queue.launch(&add, 1000, &[Arg::Pointer(a.ptr), Arg::of(&1_u32)], &[])?;
        }
        queue.copy(b.ptr, a.ptr, 4000, &[])?;
        queue.fill(a.ptr, 0_u32, 4000, &[]).map(drop)
    })?;
    let executable = graph.instantiate()?;
    for queue in queues(fixture, &context)? {
        for round in 0..5 {
            let done = executable.enqueue(&queue, &[])?;
            let data: Vec<u32> = queue.read(b.ptr, 1000, &[&done])?;
            check!(data.into_iter().eq(15..1015), "round {round}");
        }
    }
    Ok(())
}

fn into_a_graph(fixture: &Fixture) -> Done {
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
    check_eq!(queue.read::<u8>(memory.ptr, 64, &[])?, [4; 64], "the fill");
    Ok(())
}

/// A second capture adds to a graph.
fn continued(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let graph = Graph::new(fixture, &context)?;
    let [p, q] = queues(fixture, &context)?;
    let memory = context.usm(fixture, Kind::Device, 128)?;
    let ur = fixture.ur;
    for (queue, offset) in [(&p, 0), (&q, 64)] {
        ur.urQueueBeginCaptureIntoGraphExp(queue.raw, graph.raw)
            .ok()?;
        queue.fill(memory.ptr.wrapping_byte_add(offset), 6_u8, 64, &[])?;
        ur.urQueueEndGraphCaptureExp(queue.raw, &mut null_mut())
            .ok()?;
    }
    graph.instantiate()?.enqueue(&p, &[])?.wait()?;
    check_eq!(p.read::<u8>(memory.ptr, 128, &[])?, [6; 128], "both parts");
    Ok(())
}

fn out_of_order(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    let program = Program::new(fixture, &context)?;
    let add = program.kernel(ADD)?;
    let queue = context.out_of_order(fixture)?;
    let items = 4000;
    let blocks = (0..5)
        .map(|_| context.usm(fixture, Kind::Device, items * 4))
        .collect::<Result<Vec<_>, _>>()?;
    let graph = Graph::capture(&queue, || {
        let top = queue.fill(blocks[0].ptr, 1_u32, items * 4, &[])?;
        let mut ends = Vec::new();
        for (at, block) in blocks.iter().enumerate().skip(1) {
            let copied = queue.copy(block.ptr, blocks[0].ptr, items * 4, &[&top])?;
            let amount = at as u32 * 10;
            let args = [Arg::Pointer(block.ptr), Arg::of(&amount)];
            ends.push(queue.launch(&add, items, &args, &[&copied])?);
        }
        let ends: Vec<_> = ends.iter().collect();
        let args = [Arg::Pointer(blocks[0].ptr), Arg::of(&100_u32)];
        queue.launch(&add, items, &args, &ends).map(drop)
    })?;
    let executable = graph.instantiate()?;
    for queue in queues(fixture, &context)? {
        for round in 0..5 {
            let done = executable.enqueue(&queue, &[])?;
            for (at, block) in blocks.iter().enumerate() {
                let want = if at == 0 { 101 } else { 1 + at as u32 * 10 };
                let data: Vec<u32> = queue.read(block.ptr, items, &[&done])?;
                check!(
                    data.iter().all(|word| *word == want),
                    "round {round}, block {at}"
                );
            }
        }
    }
    Ok(())
}

/// A barrier, and a wait for everything, order an out-of-order queue's captured commands.
fn barriers(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    let queue = context.out_of_order(fixture)?;
    let [a, b] = [(); 2].map(|()| context.usm(fixture, Kind::Device, 4 << 20));
    let (a, b) = (a?, b?);
    let graph = Graph::capture(&queue, || {
        for tag in 1..10_u8 {
            queue.fill(a.ptr, tag, 4 << 20, &[])?;
            queue.barrier(&[])?;
            queue.copy(b.ptr, a.ptr, 4 << 20, &[])?;
            let everything = queue.marker(&[])?;
            queue.barrier(&[&everything])?;
        }
        Ok(())
    })?;
    let executable = graph.instantiate()?;
    for round in 0..3 {
        let done = executable.enqueue(&queue, &[])?;
        let data: Vec<u8> = queue.read(b.ptr, 4 << 20, &[&done])?;
        check!(data.iter().all(|byte| *byte == 9), "round {round}");
    }
    Ok(())
}

/// Another queue joins by waiting for an event of the capture.
fn fork_and_join(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    let program = Program::new(fixture, &context)?;
    let add = program.kernel(ADD)?;
    let (main, other) = (context.in_order(fixture)?, context.in_order(fixture)?);
    let third = context.out_of_order(fixture)?;
    let [a, b, c] = [(); 3].map(|()| context.usm(fixture, Kind::Device, 4000));
    let (a, b, c) = (a?, b?, c?);
    let one = || Arg::of(&1_u32);
    let graph = Graph::capture(&main, || {
        let filled = main.fill(a.ptr, 7_u32, 4000, &[])?;
        check!(!captures(&other)?, "a queue that has not joined");
        other.copy(b.ptr, a.ptr, 4000, &[&filled])?;
        check!(captures(&other)? && captures(&main)?, "queues that capture");
        let left = other.launch(&add, 1000, &[Arg::Pointer(b.ptr), one()], &[])?;
        let right = third.copy(c.ptr, a.ptr, 4000, &[&filled])?;
        main.marker(&[&left, &right])?;
        main.launch(&add, 1000, &[Arg::Pointer(a.ptr), one()], &[])?;
        Ok(())
    })?;
    check!(
        !captures(&other)? && !captures(&third)?,
        "a capture that has ended"
    );
    let executable = graph.instantiate()?;
    for round in 0..5 {
        executable.enqueue_only(&main)?;
        for (block, want) in [(&a, 8), (&b, 8), (&c, 7)] {
            let data: Vec<u32> = main.read(block.ptr, 1000, &[])?;
            check!(
                data.iter().all(|word| *word == want),
                "round {round}: {}, not {want}",
                data[0]
            );
        }
    }
    Ok(())
}

unsafe extern "C" fn add_up(data: *mut c_void) {
    // SAFETY: the test passes memory that outlives the executions.
    unsafe {
        let words = data.cast::<u32>();
        *words.add(1) += *words;
    }
}

/// A host task runs in each execution, in its place.
fn host_tasks(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    if !fixture.supports(UR_DEVICE_INFO_ENQUEUE_HOST_TASK_SUPPORT_EXP)? {
        return Err(Stop::skipped("the device has no host tasks"));
    }
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Host, 8)?;
    let out = context.usm(fixture, Kind::Host, 4)?;
    queue.fill(memory.ptr, 0_u32, 8, &[])?.wait()?;
    let graph = Graph::capture(&queue, || {
        queue.fill(memory.ptr, 5_u32, 4, &[])?;
        let call = Some(add_up as unsafe extern "C" fn(*mut c_void));
        let ur = fixture.ur;
        ur.urEnqueueHostTaskExp(queue.raw, call, memory.ptr, null(), 0, null(), null_mut())
            .ok()?;
        queue.fill(memory.ptr, 0_u32, 4, &[])?;
        queue
            .copy(out.ptr, memory.ptr.wrapping_byte_add(4), 4, &[])
            .map(drop)
    })?;
    let executable = graph.instantiate()?;
    for (round, queue) in queues(fixture, &context)?
        .iter()
        .cycle()
        .take(6)
        .enumerate()
    {
        executable.enqueue(queue, &[])?.wait()?;
        check_eq!(
            out.host::<u32>()[0],
            5 * (round as u32 + 1),
            "round {round}"
        );
    }
    Ok(())
}

fn buffers(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    let (a, b) = (context.buffer(400)?, context.buffer(400)?);
    let out = context.usm(fixture, Kind::Host, 400)?;
    let data: Vec<u32> = (0..100).collect();
    let ur = fixture.ur;
    let graph = Graph::capture(&queue, || {
        let (q, none) = (queue.raw, null_mut());
        let src = data.as_ptr().cast();
        ur.urEnqueueMemBufferWrite(q, a.raw, 0, 0, 400, src, 0, null(), none)
            .ok()?;
        ur.urEnqueueMemBufferCopy(q, a.raw, b.raw, 0, 0, 400, 0, null(), none)
            .ok()?;
        ur.urEnqueueMemBufferRead(q, b.raw, 0, 0, 400, out.ptr, 0, null(), none)
            .ok()
    })?;
    let executable = graph.instantiate()?;
    // The graph keeps the buffers.
    drop((a, b));
    for _ in 0..3 {
        executable.enqueue(&queue, &[])?.wait()?;
        check!(out.host::<u32>() == data, "through two buffers");
    }
    Ok(())
}

/// A launch keeps its kernel, and both executions and executables keep all they use.
fn uses_stay(fixture: &Fixture) -> Done {
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
    check!(
        data.into_iter().eq(2..102),
        "after the program was released"
    );
    Ok(())
}

/// What a captured command waits for outside, each execution waits for.
fn waits_from_outside(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    let [queue, other] = queues(fixture, &context)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let gate = Gate::close(fixture, &other)?;
    let graph = Graph::capture(&queue, || {
        queue.fill(memory.ptr, 1_u8, 64, &[&gate.event]).map(drop)
    })?;
    let executable = graph.instantiate()?;
    let done = executable.enqueue(&queue, &[])?;
    check!(
        !done.completes_within(Duration::from_millis(30))?,
        "it did not wait"
    );
    gate.open();
    done.wait()?;
    executable.enqueue(&queue, &[])?.wait()
}

fn waits_and_events(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    let other = context.in_order(fixture)?;
    for queue in queues(fixture, &context)? {
        let memory = context.usm(fixture, Kind::Host, 64)?;
        let graph = Graph::capture(&queue, || queue.fill(memory.ptr, 9_u8, 64, &[]).map(drop))?;
        let executable = graph.instantiate()?;
        let gate = Gate::close(fixture, &other)?;
        let done = executable.enqueue(&queue, &[&gate.event])?;
        check_eq!(
            done.get::<ur_command_t>(UR_EVENT_INFO_COMMAND_TYPE)?,
            UR_COMMAND_ENQUEUE_GRAPH_EXP,
            "command type"
        );
        check!(
            !done.completes_within(Duration::from_millis(20))?,
            "it did not wait"
        );
        gate.open();
        done.wait()?;
        check!(
            memory.host::<u8>().iter().all(|byte| *byte == 9),
            "the fill"
        );
    }
    Ok(())
}

fn across_queues(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    let program = Program::new(fixture, &context)?;
    let add = program.kernel(ADD)?;
    let [p, q] = queues(fixture, &context)?;
    let memory = context.usm(fixture, Kind::Device, 40_000)?;
    p.fill(memory.ptr, 0_u32, 40_000, &[])?.wait()?;
    let args = [Arg::Pointer(memory.ptr), Arg::of(&1_u32)];
    let graph = Graph::capture(&p, || p.launch(&add, 10_000, &args, &[]).map(drop))?;
    let executable = graph.instantiate()?;
    let mut last = None;
    for round in 0..40 {
        // The last one orders the next: the executions of one graph must not overlap.
        let waits: Vec<_> = last.iter().collect();
        last = Some(executable.enqueue([&p, &q][round % 2], &waits)?);
    }
    let data: Vec<u32> = p.read(memory.ptr, 10_000, &last.iter().collect::<Vec<_>>())?;
    check!(
        data.iter().all(|word| *word == 40),
        "40 executions: {}",
        data[0]
    );
    Ok(())
}

/// What is captured into a graph later is not in what was made of it before.
fn executables_are_copies(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let graph = Graph::new(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 2)?;
    let capture = |offset| {
        fixture
            .ur
            .urQueueBeginCaptureIntoGraphExp(queue.raw, graph.raw)
            .ok()?;
        queue.fill(memory.ptr.wrapping_byte_add(offset), 1_u8, 1, &[])?;
        fixture
            .ur
            .urQueueEndGraphCaptureExp(queue.raw, &mut null_mut())
            .ok()
    };
    capture(0)?;
    let (first, twin) = (graph.instantiate()?, graph.instantiate()?);
    capture(1)?;
    let second = graph.instantiate()?;
    for (executable, want) in [(&first, [1, 0]), (&twin, [1, 0]), (&second, [1, 1])] {
        queue.fill(memory.ptr, 0_u8, 2, &[])?;
        executable.enqueue_only(&queue)?;
        check_eq!(queue.read::<u8>(memory.ptr, 2, &[])?, want, "what it does");
    }
    Ok(())
}

fn capture_state(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    check!(!captures(&queue)?, "a new queue");
    let graph = Graph::capture(&queue, || {
        check!(captures(&queue)?, "while it captures");
        Ok(())
    })?;
    check!(!captures(&queue)?, "afterwards");
    drop(graph);
    // A queue that is released in the middle takes its graph along.
    let other = context.in_order(fixture)?;
    fixture.ur.urQueueBeginGraphCaptureExp(other.raw).ok()?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    other.fill(memory.ptr, 1_u8, 64, &[])?;
    drop(other);
    queue.finish()
}

/// Nothing outside can wait for a captured command.
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
    let event = event.ok_or_else(|| Stop::failed("no event"))?;
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
        "a capture that has ended takes no more queues"
    );
    graph.instantiate()?.enqueue(&queue, &[])?.wait()?;
    check!(!event.is_complete()?, "it stands for no execution");
    drop(graph);
    ur.urEventWait(1, &event.raw).refused()
}

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: the test passes a counter that it keeps.
    unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
}

fn destruction_callback(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let calls = crate::keep::keep(AtomicU32::new(0));
    let data = std::ptr::from_ref(calls).cast_mut().cast();
    let graph = Graph::new(fixture, &context)?;
    let call = Some(count as unsafe extern "C" fn(*mut c_void));
    fixture
        .ur
        .urGraphSetDestructionCallbackExp(graph.raw, call, data)
        .ok()?;
    let executable = graph.instantiate()?;
    executable.enqueue(&queue, &[])?.wait()?;
    drop(executable);
    check_eq!(calls.load(Ordering::Relaxed), 0, "calls before the end");
    drop(graph);
    check_eq!(calls.load(Ordering::Relaxed), 1, "calls at the end");
    Ok(())
}

fn contents(fixture: &Fixture) -> Done {
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
    let text = text.ok_or_else(|| Stop::failed("the temporary folder's name"))?;
    let status = fixture.ur.urGraphDumpContentsExp(graph.raw, text.as_ptr());
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let _ = std::fs::remove_file(&path);
    status.ok()?;
    check!(!written.trim().is_empty(), "nothing was written");
    let nowhere = c"/nowhere/at/all";
    fixture
        .ur
        .urGraphDumpContentsExp(graph.raw, nowhere.as_ptr())
        .refused()
}

fn native_handles(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let graph = Graph::new(fixture, &context)?;
    let executable = graph.instantiate()?;
    let ur = fixture.ur;
    let mut native = 0;
    for status in [
        ur.urGraphGetNativeHandleExp(graph.raw, &mut native),
        ur.urGraphExecutableGraphGetNativeHandleExp(executable.raw, &mut native),
    ] {
        match status.is_ok() {
            true => check!(native != 0, "a handle of 0"),
            false => status.fails(UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?,
        }
    }
    Ok(())
}

fn refused_states(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let graph = Graph::new(fixture, &context)?;
    let (queue, other) = (context.in_order(fixture)?, context.in_order(fixture)?);
    let ur = fixture.ur;
    let (mut out, mut executable) = (null_mut(), null_mut());
    let operation = UR_RESULT_ERROR_INVALID_OPERATION;
    ur.urQueueEndGraphCaptureExp(queue.raw, &mut out)
        .fails_because(operation, "no capture was begun")?;
    ur.urQueueGetGraphExp(queue.raw, &mut out)
        .fails_because(operation, "not capturing")?;
    ur.urQueueBeginCaptureIntoGraphExp(queue.raw, graph.raw)
        .ok()?;
    // Twice on one queue, twice into one graph.
    ur.urQueueBeginGraphCaptureExp(queue.raw)
        .fails_because(operation, "is capturing")?;
    ur.urQueueBeginCaptureIntoGraphExp(other.raw, graph.raw)
        .fails_because(operation, "another one into `hGraph`")?;
    check!(!captures(&other)?, "a refused capture");
    ur.urGraphInstantiateGraphExp(graph.raw, &mut executable)
        .fails_because(operation, "under way")?;
    ur.urGraphDestroyExp(graph.raw)
        .fails_because(operation, "under way")?;
    // Only the queue that it was begun on ends it.
    let root = queue.marker(&[])?;
    other.marker(&[&root])?;
    ur.urQueueEndGraphCaptureExp(other.raw, &mut out)
        .refused()?;
    check!(
        out.is_null() && executable.is_null(),
        "a refused call wrote a handle"
    );
    check!(
        captures(&queue)? && captures(&other)?,
        "the capture goes on"
    );
    ur.urQueueEndGraphCaptureExp(queue.raw, &mut out).ok()?;
    // A foreign context's queue.
    let foreign = Context::new(fixture)?;
    let stranger = foreign.in_order(fixture)?;
    ur.urQueueBeginCaptureIntoGraphExp(stranger.raw, graph.raw)
        .fails_because(UR_RESULT_ERROR_INVALID_GRAPH, "another context")?;
    let executable = graph.instantiate()?;
    ur.urEnqueueGraphExp(stranger.raw, executable.raw, 0, null(), null_mut())
        .fails_because(UR_RESULT_ERROR_INVALID_QUEUE, "another context")
}

/// The commands of a graph are for one device.
fn refused_devices(fixture: &Fixture) -> Done {
    let parts = super::partition::in_single_units(fixture)?;
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
    queues.0.marker(&[])?;
    let mut out = null_mut();
    ur.urQueueEndGraphCaptureExp(queues.0.raw, &mut out).ok()?;
    let operation = UR_RESULT_ERROR_INVALID_OPERATION;
    ur.urQueueBeginCaptureIntoGraphExp(queues.1.raw, graph.raw)
        .fails_because(operation, "for another device")?;
    check!(!captures(&queues.1)?, "a refused capture");
    let executable = graph.instantiate()?;
    ur.urEnqueueGraphExp(queues.1.raw, executable.raw, 0, null(), null_mut())
        .fails_because(UR_RESULT_ERROR_INVALID_QUEUE, "or device")
}

/// What needs an answer at once, or gives memory, cannot be captured.
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
            "a refused command gave something"
        );
        Ok(())
    })?;
    check!(graph.is_empty()?, "a refused command was recorded");
    queue.fill(memory.ptr, 1_u8, 64, &[])?.wait()
}

/// Two captures do not mix, and no graph is captured into another.
fn refused_mixtures(fixture: &Fixture) -> Done {
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
    check!(!second.is_empty()?, "the second capture");
    Ok(())
}

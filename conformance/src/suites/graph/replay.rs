//! Captured commands, and their order at each submission.

use super::{SUITE, queues};
use crate::fixture::Fixture;
use crate::kernels::{ADD, IOTA};
use crate::objects::{Arg, Context, Gate, Graph, Kind, Program, captures};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_all, check_eq, check_items};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::time::Duration;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests![SUITE;
        empty, captured_commands_do_not_run, submissions_repeat_the_commands, out_of_order, barriers, fork_and_join, host_tasks, buffers,
        waits_outside_the_capture, wait_list_and_event, across_queues,
    ]
}

/// An empty graph cannot be instantiated and can be captured into.
fn empty(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let graph = Graph::new(fixture, &context)?;
    check!(graph.is_empty()?, "a new graph is not empty");
    let queue = context.in_order(fixture)?;
    let captured = Graph::capture(&queue, || Ok(()))?;
    check!(
        captured.is_empty()?,
        "a capture without commands is not empty"
    );
    for graph in [&graph, &captured] {
        let mut executable = null_mut();
        fixture
            .ur
            .urGraphInstantiateGraphExp(graph.raw, &mut executable)
            .fails_because(UR_RESULT_ERROR_INVALID_ARGUMENT, "holds no command")?;
        check!(executable.is_null(), "a refused call wrote a handle");
    }
    // An empty graph can still be captured into.
    let ur = fixture.ur;
    ur.urQueueBeginCaptureIntoGraphExp(queue.raw, captured.raw)
        .ok()?;
    queue.marker(&[])?;
    ur.urQueueEndGraphCaptureExp(queue.raw, &mut null_mut())
        .ok()?;
    let executable = captured.instantiate()?;
    executable.enqueue(&queue, &[])?.wait()
}

/// A captured command does not run, and the queue works afterwards.
fn captured_commands_do_not_run(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    for queue in queues(fixture, &context)? {
        let memory = context.usm(fixture, Kind::Host, 4096)?;
        queue.fill(memory.ptr, 1_u8, 4096, &[])?.wait()?;
        let graph = Graph::capture(&queue, || queue.fill(memory.ptr, 2_u8, 4096, &[]).map(drop))?;
        queue.finish()?;
        check!(!graph.is_empty()?, "a graph with a fill is empty");
        check_all!(memory.host::<u8>(), 1, "bytes after a captured fill");
        // The queue works after the capture.
        queue.fill(memory.ptr, 3_u8, 4096, &[])?.wait()?;
        check_all!(
            memory.host::<u8>(),
            3,
            "bytes after a fill that follows the capture"
        );
    }
    Ok(())
}

/// Each submission of a graph runs its captured commands in order.
fn submissions_repeat_the_commands(fixture: &Fixture) -> Done {
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
            check_items!(data, 15..1015, "round {round}");
        }
    }
    Ok(())
}

/// Events order the captured commands of an out-of-order queue.
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
                check_all!(data, want, "round {round}, block {at}");
            }
        }
    }
    Ok(())
}

/// Barriers and markers order the captured commands of an out-of-order queue.
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
        check_all!(data, 9, "round {round}");
    }
    Ok(())
}

/// A queue joins a capture by waiting for one of its events.
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
        check!(!captures(&other)?, "a queue captures before it joins");
        other.copy(b.ptr, a.ptr, 4000, &[&filled])?;
        check!(
            captures(&other)? && captures(&main)?,
            "a joined queue is not capturing"
        );
        let left = other.launch(&add, 1000, &[Arg::Pointer(b.ptr), one()], &[])?;
        let right = third.copy(c.ptr, a.ptr, 4000, &[&filled])?;
        main.marker(&[&left, &right])?;
        main.launch(&add, 1000, &[Arg::Pointer(a.ptr), one()], &[])?;
        Ok(())
    })?;
    check!(
        !captures(&other)? && !captures(&third)?,
        "a queue captures after the end of the capture"
    );
    let executable = graph.instantiate()?;
    for round in 0..5 {
        executable.enqueue_only(&main)?;
        for (block, want) in [(&a, 8), (&b, 8), (&c, 7)] {
            let data: Vec<u32> = main.read(block.ptr, 1000, &[])?;
            check_all!(data, want, "words in round {round}");
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

/// A captured host task runs in its place at each submission.
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

/// A graph keeps the buffers of its captured commands.
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
        check!(
            out.host::<u32>() == data,
            "data changed on its way through two buffers"
        );
    }
    Ok(())
}

/// A submission waits for events from outside that its captured commands wait for.
fn waits_outside_the_capture(fixture: &Fixture) -> Done {
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
        "the submission did not wait"
    );
    gate.open();
    done.wait()?;
    executable.enqueue(&queue, &[])?.wait()
}

/// A submission of a graph waits for its list and gives an event.
fn wait_list_and_event(fixture: &Fixture) -> Done {
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
            "the submission did not wait"
        );
        gate.open();
        done.wait()?;
        check_all!(memory.host::<u8>(), 9, "bytes of the fill");
    }
    Ok(())
}

/// Submissions of a graph to two queues run in the order that events give them.
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
        // The wait list orders the submissions, since those of one graph must not overlap.
        let waits: Vec<_> = last.iter().collect();
        last = Some(executable.enqueue([&p, &q][round % 2], &waits)?);
    }
    let data: Vec<u32> = p.read(memory.ptr, 10_000, &last.iter().collect::<Vec<_>>())?;
    check_all!(data, 40, "words after 40 submissions");
    Ok(())
}

//! Queues whose native handle was given out, and queues and events made of native handles.

use super::{SIZE, Setup, are_all, freed_while, native, need_async};
use crate::fixture::Fixture;
use crate::objects::{Event, Gate, Kind, Pool, Queue};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::suites::enqueue::{LONG, pending};
use crate::{check, check_eq};
use std::ptr::{null, null_mut};
use std::sync::mpsc;
use std::time::Duration;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["native_queue";
        later_commands_wait, host_copies_do_not_block, markers_cover_native_work, barriers_and_finish_cover_native_work,
        out_of_order_finish_covers_native_work, native_work_follows_earlier_waits, freed_block_waits, freed_block_is_reused_in_order,
        blocks_keep_their_data, two_queues_over_one_native_queue, wait_for_adopted_event, native_work_waits_for_event,
        adopted_event_reports_its_queue,
    ]
}

/// Time limit of a call that must not block.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A setup and an in-order queue whose native handle the test will take.
fn shown(fixture: &Fixture) -> Result<(Setup<'_>, Queue), Stop> {
    let setup = Setup::new(fixture)?;
    let queue = setup.in_order()?;
    Ok((setup, queue))
}

/// Commands wait for native work submitted to their queue before them.
fn later_commands_wait(fixture: &Fixture) -> Done {
    let (setup, queue) = shown(fixture)?;
    let copy = setup.context.usm(fixture, Kind::Device, SIZE)?;
    let native_fill = setup.fill(native(&queue)?, 4, &[], true)?;
    let copied = queue.copy(copy.ptr, setup.memory.ptr, SIZE, &[])?;
    pending(&copied, "a command overtook native work of its queue")?;
    drop(native_fill);
    let copied = queue.read(copy.ptr, SIZE, &[])?;
    are_all(&copied, 4, "bytes read after native work")?;
    queue.finish()
}

/// A non-blocking copy between host memory returns while native work is pending.
fn host_copies_do_not_block(fixture: &Fixture) -> Done {
    let (setup, queue) = shown(fixture)?;
    let copy = setup.context.usm(fixture, Kind::Host, SIZE)?;
    let mut native_fill = setup.fill(native(&queue)?, 4, &[], true)?;
    let (returned, returns) = mpsc::channel();
    // The native work is released after the time limit, so that a copy that blocks returns at last.
    let opener = std::thread::spawn(move || {
        let came_back = returns.recv_timeout(TIMEOUT).is_ok();
        native_fill.release();
        came_back
    });
    let copied = queue.copy(copy.ptr, setup.memory.ptr, SIZE, &[]);
    // The send fails if the time limit has passed.
    let _ = returned.send(());
    let came_back = opener.join().is_ok_and(|came_back| came_back);
    copied?.wait()?;
    are_all(copy.host(), 4, "bytes copied after native work")?;
    check!(came_back, "a copy between host memory waited for its queue");
    queue.finish()
}

/// A marker covers native work submitted before it and none submitted after it.
fn markers_cover_native_work(fixture: &Fixture) -> Done {
    let (setup, queue) = shown(fixture)?;
    let other = setup.in_order()?;
    let early = queue.marker(&[])?;
    let native_fill = setup.fill(native(&queue)?, 4, &[], true)?;
    let marker = queue.marker(&[])?;
    check!(
        early.completes_within(LONG)?,
        "an earlier event waits for later native work"
    );
    pending(&marker, "a marker did not wait for native work")?;
    let far = other.marker(&[&marker])?;
    pending(&far, "another queue did not wait for native work")?;
    drop(native_fill);
    far.wait()?;
    setup.holds(4, "bytes of native work after a marker")
}

/// A barrier and `urQueueFinish` wait for native work, and the queue is not empty.
fn barriers_and_finish_cover_native_work(fixture: &Fixture) -> Done {
    let (setup, queue) = shown(fixture)?;
    let mut native_fill = setup.fill(native(&queue)?, 4, &[], true)?;
    let barrier = queue.barrier(&[])?;
    pending(&barrier, "a barrier did not wait for native work")?;
    check!(
        queue.get::<ur_bool_t>(UR_QUEUE_INFO_EMPTY)? == 0,
        "a queue with native work reports that it is empty"
    );
    let opener = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(30));
        native_fill.release();
        native_fill
    });
    queue.finish()?;
    setup.holds(4, "bytes of native work after urQueueFinish")?;
    check!(
        opener.join().is_ok(),
        "the thread that releases the native work panicked"
    );
    Ok(())
}

/// `urQueueFinish` of an out-of-order queue waits for native work.
fn out_of_order_finish_covers_native_work(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let queue = setup.out_of_order()?;
    queue.fill(setup.memory.ptr, 1_u8, SIZE, &[])?.wait()?;
    let handle = native(&queue)?;
    check_eq!(native(&queue)?, handle, "native handle, second query");
    let mut native_fill = setup.fill(handle, 4, &[], true)?;
    let marker = queue.marker(&[])?;
    pending(&marker, "a marker did not wait for native work")?;
    let opener = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(30));
        native_fill.release();
        native_fill
    });
    queue.finish()?;
    setup.holds(4, "bytes of native work after urQueueFinish")?;
    check!(
        opener.join().is_ok(),
        "the thread that releases the native work panicked"
    );
    marker.wait()
}

/// Native work runs after what its queue already waits for.
fn native_work_follows_earlier_waits(fixture: &Fixture) -> Done {
    let (setup, queue) = shown(fixture)?;
    let other = setup.in_order()?;
    let gate = Gate::close(fixture, &other)?;
    let before = other.fill(setup.memory.ptr, 1_u8, SIZE, &[])?;
    queue.marker(&[&before])?;
    let native_fill = setup.fill(native(&queue)?, 2, &[], false)?;
    let marker = queue.marker(&[])?;
    pending(&marker, "native work overtook a wait of its queue")?;
    gate.open();
    marker.wait()?;
    drop(native_fill);
    setup.holds(2, "bytes of native work after a wait")
}

/// A freed block is not reused by another queue before native work on it has completed.
fn freed_block_waits(fixture: &Fixture) -> Done {
    need_async(fixture)?;
    let (setup, queue) = shown(fixture)?;
    let handle = native(&queue)?;
    freed_while(&setup, &queue, |block| {
        setup.fill_at(handle, (block.ptr, block.size), 9, &[], true)
    })
}

/// A queue may reuse its freed block at once, after the native work on it.
fn freed_block_is_reused_in_order(fixture: &Fixture) -> Done {
    need_async(fixture)?;
    let (setup, queue) = shown(fixture)?;
    let handle = native(&queue)?;
    let pool = Pool::new(fixture, &setup.context)?;
    let block = queue.alloc(Kind::Shared, &pool, SIZE, &[])?;
    let native_fill = setup.fill_at(handle, (block.ptr, SIZE), 9, &[], true)?;
    queue.free(block, &[])?;
    let again = queue.alloc(Kind::Shared, &pool, SIZE, &[])?;
    let filled = queue.fill(again.ptr, 3_u8, SIZE, &[])?;
    let copied = queue.copy(setup.memory.ptr, again.ptr, SIZE, &[])?;
    if again.overlaps(&block) {
        pending(
            &filled,
            "a block was reused before native work on it completed",
        )?;
    }
    drop(native_fill);
    copied.wait()?;
    setup.holds(3, "bytes of a block reused after native work")?;
    queue.free(again, &[])?;
    queue.finish()
}

/// Blocks keep their data while native work and commands alternate on two queues.
fn blocks_keep_their_data(fixture: &Fixture) -> Done {
    need_async(fixture)?;
    let setup = Setup::new(fixture)?;
    let pool = Pool::new(fixture, &setup.context)?;
    let queues = [setup.in_order()?, setup.in_order()?];
    let handles = [native(&queues[0])?, native(&queues[1])?];
    const ROUNDS: usize = 200;
    let results = setup.context.usm(fixture, Kind::Host, ROUNDS * 64)?;
    let mut native_fill = Vec::new();
    for round in 0..ROUNDS {
        let (queue, handle) = (&queues[round % 2], handles[round % 2]);
        let (byte, size) = (round as u8, [256, 4096, 200_000][round % 3]);
        let block = queue.alloc(Kind::Shared, &pool, size, &[])?;
        queue.fill(block.ptr, !byte, size, &[])?;
        native_fill.push(setup.fill_at(handle, (block.ptr, size), byte, &[], false)?);
        let target = results.ptr.wrapping_byte_add(round * 64);
        queue.copy(target, block.ptr.wrapping_byte_add(size - 64), 64, &[])?;
        queue.free(block, &[])?;
    }
    queues.iter().try_for_each(Queue::finish)?;
    for (round, bytes) in results.host::<u8>().chunks(64).enumerate() {
        let right = bytes.iter().all(|byte| *byte == round as u8);
        check!(right, "bytes of round {round} are {bytes:?}");
    }
    check_eq!(pool.used()?, 0, "used bytes at the end");
    Ok(())
}

/// Two queues over one native queue run their commands in submission order.
fn two_queues_over_one_native_queue(fixture: &Fixture) -> Done {
    let (setup, queue) = shown(fixture)?;
    let mut raw = null_mut();
    let made = fixture.ur.urQueueCreateWithNativeHandle(
        native(&queue)?,
        setup.context.raw,
        fixture.device,
        null(),
        &mut raw,
    );
    made.ok()?;
    let second = Queue::adopt(fixture.ur, raw);
    let gate = Gate::close(fixture, &queue)?;
    queue.fill(setup.memory.ptr, 1_u8, SIZE, &[])?;
    let after = second.fill(setup.memory.ptr, 2_u8, SIZE, &[])?;
    let last = queue.fill(setup.memory.ptr, 3_u8, SIZE, &[])?;
    gate.open();
    after.wait()?;
    last.wait()?;
    setup.holds(3, "bytes after three fills over one native queue")?;
    second.finish()?;
    queue.finish()
}

/// A command may wait for an event that the backend itself made.
fn wait_for_adopted_event(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let source = setup.in_order()?;
    let queues = [setup.in_order()?, setup.out_of_order()?];
    let native_fill = setup.fill(native(&source)?, 6, &[], true)?;
    let event = setup.context.adopt_event(native_fill.event())?;
    let waiting = queues
        .iter()
        .map(|queue| queue.marker(&[&event]))
        .collect::<Result<Vec<_>, Stop>>()?;
    for marker in &waiting {
        pending(marker, "a command did not wait for the backend's event")?;
    }
    drop(native_fill);
    waiting.iter().try_for_each(Event::wait)?;
    event.wait()?;
    setup.holds(6, "bytes of the native work after its event")
}

/// An adopted event reports the queue of its command, if the backend knows it.
fn adopted_event_reports_its_queue(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let adopted = |native| -> Result<Event, Stop> {
        let mut raw = null_mut();
        fixture
            .ur
            .urEventCreateWithNativeHandle(native, setup.context.raw, null(), &mut raw)
            .ok()?;
        Ok(Event::adopt(fixture.ur, raw))
    };
    for queue in [setup.in_order()?, setup.out_of_order()?] {
        let right = match setup.backend.events_know_queues() {
            true => queue.raw,
            false => null_mut(),
        };
        let of = |event: &Event| event.get::<ur_queue_handle_t>(UR_EVENT_INFO_COMMAND_QUEUE);
        let native_fill = setup.fill(native(&queue)?, 6, &[], true)?;
        let event = adopted(native_fill.event())?;
        check_eq!(of(&event)?, right, "queue of a pending command's event");
        drop(native_fill);
        event.wait()?;
        check_eq!(of(&event)?, right, "queue of a complete event");
        let gate = Gate::close(fixture, &queue)?;
        let own = queue.fill(setup.memory.ptr, 1_u8, SIZE, &[&gate.event])?;
        let mut native = 0;
        fixture
            .ur
            .urEventGetNativeHandle(own.raw, &mut native)
            .ok()?;
        let event = adopted(native)?;
        check_eq!(
            of(&event)?,
            right,
            "queue of an event adopted from its own native handle"
        );
        gate.open();
        queue.finish()?;
    }
    Ok(())
}

/// Native work may wait for the native handle of an event.
fn native_work_waits_for_event(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let (queue, source) = (setup.in_order()?, setup.in_order()?);
    let gate = Gate::close(fixture, &source)?;
    let before = source.fill(setup.memory.ptr, 1_u8, SIZE, &[])?;
    let mut event = 0;
    fixture
        .ur
        .urEventGetNativeHandle(before.raw, &mut event)
        .ok()?;
    let native_fill = setup.fill(native(&queue)?, 2, &[event], false)?;
    let marker = queue.marker(&[])?;
    pending(
        &marker,
        "native work did not wait for an event of the interface",
    )?;
    gate.open();
    marker.wait()?;
    drop(native_fill);
    setup.holds(2, "bytes of native work after an event")
}

//! Markers and barriers, and wait lists between queues.

use crate::fixture::Fixture;
use crate::objects::{Context, Event, Gate, Kind, Queue};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_all, check_items};
use std::ptr::{null, null_mut};
use std::time::Duration;

pub fn all() -> Vec<Test> {
    crate::tests!["enqueue";
        marker_waits_for_earlier_commands, marker_waits_for_its_list_only, marker_does_not_block_later_commands,
        barrier_waits_for_earlier_commands, barrier_blocks_later_commands, barrier_with_list_blocks_later_commands,
        wait_list_between_queues, in_order_wait_list_blocks_later_commands, long_chain_between_queues,
        wide_wait_list, without_events, small_between_large_commands,
    ]
}

/// A short time in which a command that does not wait would have completed.
const MOMENT: Duration = Duration::from_millis(25);
pub const LONG: Duration = Duration::from_secs(10);

pub fn pending(event: &Event, what: &str) -> Done {
    check!(!event.completes_within(MOMENT)?, "{what}");
    Ok(())
}

/// A marker without a wait list waits for all earlier commands of its queue.
fn marker_waits_for_earlier_commands(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    for queue in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
        let gate = Gate::close(fixture, &queue)?;
        let marker = queue.marker(&[])?;
        pending(
            &marker,
            "a marker without a list did not wait for an earlier command",
        )?;
        gate.open();
        marker.wait()?;
    }
    Ok(())
}

/// A marker with a wait list waits for nothing else on an out-of-order queue.
fn marker_waits_for_its_list_only(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.out_of_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let gate = Gate::close(fixture, &queue)?;
    let other = queue.fill(memory.ptr, 1_u8, 64, &[])?;
    let marker = queue.marker(&[&other])?;
    check!(
        marker.completes_within(LONG)?,
        "a marker waited for more than its list"
    );
    check!(!gate.event.is_complete()?, "the gate opened by itself");
    Ok(())
}

/// A marker does not block later commands of an out-of-order queue.
fn marker_does_not_block_later_commands(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.out_of_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let gate = Gate::close(fixture, &queue)?;
    let marker = queue.marker(&[&gate.event])?;
    let later = queue.fill(memory.ptr, 1_u8, 64, &[])?;
    check!(
        later.completes_within(LONG)?,
        "a marker blocked a later command of an out-of-order queue"
    );
    check!(!marker.is_complete()?, "the marker did not wait");
    Ok(())
}

/// A barrier without a wait list waits for all earlier commands of its queue.
fn barrier_waits_for_earlier_commands(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    for queue in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
        let gate = Gate::close(fixture, &queue)?;
        let barrier = queue.barrier(&[])?;
        pending(
            &barrier,
            "a barrier without a list did not wait for an earlier command",
        )?;
        gate.open();
        barrier.wait()?;
    }
    Ok(())
}

/// A barrier blocks the later commands of its queue until it completes.
fn barrier_blocks_later_commands(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    for queue in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
        let memory = context.usm(fixture, Kind::Device, 64)?;
        let gate = Gate::close(fixture, &queue)?;
        queue.barrier(&[])?;
        let events = [queue.fill(memory.ptr, 1_u8, 32, &[])?, queue.marker(&[])?];
        for event in &events {
            pending(event, "a command overtook a barrier")?;
        }
        gate.open();
        queue.finish()?;
    }
    Ok(())
}

/// A barrier with a wait list blocks later commands until its list completes.
fn barrier_with_list_blocks_later_commands(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let other = context.in_order(fixture)?;
    for queue in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
        let memory = context.usm(fixture, Kind::Device, 64)?;
        let gate = Gate::close(fixture, &other)?;
        queue.barrier(&[&gate.event])?;
        let later = queue.fill(memory.ptr, 1_u8, 64, &[])?;
        pending(
            &later,
            "a command overtook a barrier that waits for another queue",
        )?;
        gate.open();
        later.wait()?;
    }
    Ok(())
}

/// A wait list orders a command after one of another queue, for every pair of queue types.
fn wait_list_between_queues(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queues = [context.in_order(fixture)?, context.out_of_order(fixture)?];
    for first in &queues {
        for second in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
            let size = 1 << 20;
            let (memory, result) = (
                context.usm(fixture, Kind::Device, size)?,
                context.usm(fixture, Kind::Host, size)?,
            );
            let gate = Gate::close(fixture, first)?;
            let filled = first.fill(memory.ptr, 0x5e_u8, size, &[&gate.event])?;
            let copied = second.copy(result.ptr, memory.ptr, size, &[&filled])?;
            pending(
                &copied,
                "a command did not wait for an event of another queue",
            )?;
            gate.open();
            copied.wait()?;
            check_all!(result.host::<u8>(), 0x5e, "data filled by another queue");
        }
    }
    Ok(())
}

/// On an in-order queue a command's wait list orders all later commands too.
fn in_order_wait_list_blocks_later_commands(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let (queue, other) = (context.in_order(fixture)?, context.in_order(fixture)?);
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let gate = Gate::close(fixture, &other)?;
    queue.marker(&[&gate.event])?;
    let later = queue.fill(memory.ptr, 1_u8, 64, &[])?;
    pending(
        &later,
        "a command overtook an earlier one of its in-order queue",
    )?;
    gate.open();
    later.wait()
}

/// A chain of 300 copies over three queues runs in order by events.
fn long_chain_between_queues(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queues = [
        context.in_order(fixture)?,
        context.out_of_order(fixture)?,
        context.in_order(fixture)?,
    ];
    let memory = context.usm(fixture, Kind::Host, 4 * 301)?;
    let gate = Gate::close(fixture, &queues[0])?;
    let mut last = queues[0].fill(memory.ptr, 7_u32, 4, &[])?;
    for step in 0..300 {
        let at = memory.ptr.wrapping_byte_add(step * 4);
        last = queues[step % 3].copy(at.wrapping_byte_add(4), at, 4, &[&last])?;
    }
    pending(&last, "a chain did not wait for its start")?;
    gate.open();
    last.wait()?;
    check_all!(
        memory.host::<u32>(),
        7,
        "words after 300 copies over three queues"
    );
    Ok(())
}

/// A command waits for all 121 events of its list.
fn wide_wait_list(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queues = (0..6)
        .map(|_| context.in_order(fixture))
        .collect::<Result<Vec<Queue>, Stop>>()?;
    let memory = context.usm(fixture, Kind::Host, 4 * 120)?;
    let gate = Gate::close(fixture, &queues[5])?;
    let mut events = vec![queues[5].marker(&[])?];
    for index in 0..120 {
        let at = memory.ptr.wrapping_byte_add(index * 4);
        events.push(queues[index % 5].fill(at, index as u32, 4, &[])?);
    }
    let result = context.usm(fixture, Kind::Host, 4 * 120)?;
    let list: Vec<&Event> = events.iter().collect();
    let joined = queues[0].copy(result.ptr, memory.ptr, 4 * 120, &list)?;
    pending(&joined, "a command did not wait for all of its list")?;
    gate.open();
    joined.wait()?;
    check_items!(
        result.host::<u32>().iter().copied(),
        0..120,
        "words after a wait for 121 events"
    );
    Ok(())
}

/// Commands without events run in order.
fn without_events(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Host, 64)?;
    let ur = fixture.ur;
    for round in 0..100_u8 {
        let pattern = (&raw const round).cast();
        ur.urEnqueueUSMFill(queue.raw, memory.ptr, 1, pattern, 64, 0, null(), null_mut())
            .ok()?;
        ur.urEnqueueEventsWaitWithBarrier(queue.raw, 0, null(), null_mut())
            .ok()?;
        ur.urEnqueueEventsWait(queue.raw, 0, null(), null_mut())
            .ok()?;
    }
    queue.finish()?;
    check_all!(
        memory.host::<u8>(),
        99,
        "bytes after 100 fills without an event"
    );
    Ok(())
}

/// Small copies and fills between large ones keep their order.
fn small_between_large_commands(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let (large, little) = (4 << 20, 64);
    let a = context.usm(fixture, Kind::Device, large)?;
    let b = context.usm(fixture, Kind::Device, large)?;
    let end = |memory: *mut std::ffi::c_void| memory.wrapping_byte_add(large - little);
    for queue in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
        for round in 0..16_u8 {
            let all = queue.fill(a.ptr, round, large, &[])?;
            let part = queue.fill(end(a.ptr), !round, little, &[&all])?;
            let first = queue.copy(b.ptr, end(a.ptr), little, &[&part])?;
            let copied = queue.copy(a.ptr, b.ptr, little, &[&first])?;
            let back = queue.copy(b.ptr, a.ptr, large, &[&copied])?;
            let data = queue.read::<u8>(b.ptr, large, &[&back])?;
            let is = |part: &[u8], byte: u8| part.iter().all(|seen| *seen == byte);
            check!(
                is(&data[..little], !round)
                    && is(&data[little..large - little], round)
                    && is(&data[large - little..], !round),
                "wrong bytes in round {round} of small and large commands"
            );
        }
    }
    Ok(())
}

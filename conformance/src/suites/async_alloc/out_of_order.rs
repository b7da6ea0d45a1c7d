//! Out-of-order queues: diamonds, and the commands that barriers, markers and finish wait for.

use super::fixtures::A;
use super::*;
use crate::check_eq;
use crate::kernels::{ADD, IOTA, SUM};
use crate::objects::{Arg, Program};

const SUITE: &str = "async_out_of_order";
const SIZE: usize = 64 * KIB;
const ITEMS: usize = SIZE / 4;

pub fn all() -> Vec<Test> {
    let mut tests = by_kind(
        SUITE,
        &[
            ("diamond", diamond),
            (
                "barrier_covers_allocation_and_free",
                barrier_covers_allocation_and_free,
            ),
            (
                "marker_covers_allocation_and_free",
                marker_covers_allocation_and_free,
            ),
            (
                "independent_allocations_do_not_wait",
                independent_allocations_do_not_wait,
            ),
            ("reuse_after_barrier", reuse_after_barrier),
        ],
    );
    tests.extend(plain(
        SUITE,
        &[
            ("kernels_in_a_diamond", kernels_in_a_diamond),
            ("random_graph", random_graph),
        ],
    ));
    tests
}

/// A block used on two branches is reused after the free that joins them, without growth.
fn diamond(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.out_of_order()?, setup.pool()?);
    let result = setup.result(SIZE)?;
    let mut reserved = 0;
    let gate = setup.gate(&queue)?;
    let (mut block, mut top) = queue.alloc_event(kind, &pool, SIZE, &[&gate.event])?;
    for round in 0..20_u8 {
        let half = block.ptr.wrapping_byte_add(SIZE / 2);
        let left = queue.fill(block.ptr, round, SIZE / 2, &[&top])?;
        let right = queue.fill(half, round, SIZE / 2, &[&top])?;
        let copied = queue.copy(result.ptr, block.ptr, SIZE, &[&left, &right])?;
        let freed = queue.free_event(block, &[&copied])?;
        (block, top) = queue.alloc_event(kind, &pool, SIZE, &[&freed])?;
        if round == 0 {
            reserved = pool.reserved()?;
        }
    }
    check_eq!(
        pool.reserved()?,
        reserved,
        "reserved bytes after 20 diamonds in a row"
    );
    gate.open();
    queue.finish()?;
    same_bytes(result.host(), 19)?;
    queue.free(block, &[])?;
    queue.finish()
}

/// Kernels in a diamond over three kinds of blocks compute the right words.
fn kernels_in_a_diamond(setup: &Setup) -> Done {
    let (queue, pool) = (setup.out_of_order()?, setup.pool()?);
    let program = Program::new(setup.fixture, &setup.context)?;
    let (iota, add, sum) = (
        program.kernel(IOTA)?,
        program.kernel(ADD)?,
        program.kernel(SUM)?,
    );
    let result = setup.result(SIZE)?;
    for round in 0..30_u32 {
        let kind = Kind::ALL[round as usize % 3];
        let (a, a_top) = queue.alloc_event(kind, &pool, SIZE, &[])?;
        let (b, b_top) = queue.alloc_event(kind, &pool, SIZE, &[])?;
        let (c, c_top) = queue.alloc_event(Kind::Device, &pool, SIZE, &[])?;
        let left = queue.launch(
            &iota,
            ITEMS,
            &[Arg::Pointer(a.ptr), Arg::of(&round)],
            &[&a_top],
        )?;
        let right = queue.launch(
            &iota,
            ITEMS,
            &[Arg::Pointer(b.ptr), Arg::of(&1_u32)],
            &[&b_top],
        )?;
        let right = queue.launch(
            &add,
            ITEMS,
            &[Arg::Pointer(b.ptr), Arg::of(&5_u32)],
            &[&right],
        )?;
        let args = [
            Arg::Pointer(c.ptr),
            Arg::Pointer(a.ptr),
            Arg::Pointer(b.ptr),
        ];
        let bottom = queue.launch(&sum, ITEMS, &args, &[&left, &right, &c_top])?;
        queue.free(a, &[&bottom])?;
        queue.free(b, &[&bottom])?;
        let copied = queue.copy(result.ptr, c.ptr, SIZE, &[&bottom])?;
        queue.free(c, &[&copied])?;
        copied.wait()?;
        let data = result.host::<u32>();
        let right = data
            .iter()
            .enumerate()
            .all(|(at, word)| *word == round + 6 + 2 * at as u32);
        check!(
            right,
            "wrong words in round {round} of a diamond of kernels"
        );
    }
    queue.finish()?;
    check_eq!(pool.used()?, 0, "used bytes");
    Ok(())
}

fn covers(
    setup: &Setup,
    kind: Kind,
    cover: impl Fn(&Queue) -> Result<Event, Stop>,
    what: &str,
) -> Done {
    let (queue, other, pool) = (setup.out_of_order()?, setup.in_order()?, setup.pool()?);
    let gate = setup.gate(&other)?;
    let (block, _) = queue.alloc_event(kind, &pool, SIZE, &[&gate.event])?;
    let event = cover(&queue)?;
    pending(
        &event,
        &format!("a {what} completed before a pending allocation"),
    )?;
    gate.open();
    completes(&event, &format!("a {what} did not complete"))?;
    let gate = setup.gate(&other)?;
    queue.free(block, &[&gate.event])?;
    let event = cover(&queue)?;
    pending(&event, &format!("a {what} completed before a pending free"))?;
    gate.open();
    completes(&event, &format!("a {what} did not complete"))
}

/// A barrier waits for pending allocations and frees of its out-of-order queue.
fn barrier_covers_allocation_and_free(setup: &Setup, kind: Kind) -> Done {
    covers(setup, kind, |queue| queue.barrier(&[]), "barrier")
}

/// A marker waits for pending allocations and frees of its out-of-order queue.
fn marker_covers_allocation_and_free(setup: &Setup, kind: Kind) -> Done {
    covers(setup, kind, |queue| queue.marker(&[]), "marker")
}

/// An allocation does not wait for another command of its out-of-order queue.
fn independent_allocations_do_not_wait(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.out_of_order()?, setup.pool()?);
    let gate = setup.gate(&queue)?;
    let (held, held_event) = queue.alloc_event(kind, &pool, SIZE, &[&gate.event])?;
    let (free, free_event) = queue.alloc_event(kind, &pool, SIZE, &[])?;
    completes(
        &free_event,
        "an allocation waits for an earlier command of an out-of-order queue",
    )?;
    check!(
        !held_event.is_complete()?,
        "an allocation completed before its wait list"
    );
    check!(!held.overlaps(&free), "two live blocks overlap");
    let freed = queue.free_event(free, &[])?;
    completes(
        &freed,
        "a free waits for an earlier command of an out-of-order queue",
    )?;
    gate.open();
    queue.finish()?;
    queue.free(held, &[])?;
    queue.finish()
}

/// A block freed before a barrier is reused after it, without growth.
fn reuse_after_barrier(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.out_of_order()?, setup.pool()?);
    let gate = setup.gate(&queue)?;
    let mut reserved = 0;
    for round in 0..50 {
        let (block, allocated) = queue.alloc_event(kind, &pool, SIZE, &[])?;
        let filled = queue.fill(block.ptr, A, SIZE, &[&allocated, &gate.event])?;
        queue.free(block, &[&filled])?;
        queue.barrier(&[])?;
        if round == 0 {
            reserved = pool.reserved()?;
        }
    }
    check_eq!(
        pool.reserved()?,
        reserved,
        "reserved bytes after 50 rounds with barriers between them"
    );
    gate.open();
    queue.finish()
}

/// Blocks keep their data in a random graph of commands ordered by events alone.
fn random_graph(setup: &Setup) -> Done {
    let (queue, pool) = (setup.out_of_order()?, setup.pool()?);
    let mut random = 99_u32;
    let mut next = move |bound: usize| {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        random as usize % bound
    };
    const SLOT: usize = 4 * KIB;
    let results = setup.result(600 * SLOT)?;
    let mut live: Vec<(Block, Event, u8)> = Vec::new();
    let mut wanted = Vec::new();
    let mut frees: Vec<Event> = Vec::new();
    for step in 0..600 {
        let size = [SLOT, 2 * SLOT, 16 * SLOT][next(3)];
        let freed =
            (!frees.is_empty() && next(2) == 0).then(|| frees.swap_remove(next(frees.len())));
        let (block, allocated) =
            queue.alloc_event(Kind::Device, &pool, size, &freed.iter().collect::<Vec<_>>())?;
        let tag = step as u8;
        let filled = queue.fill(block.ptr, tag, size, &[&allocated])?;
        live.push((block, filled, tag));
        if live.len() > 12 {
            let (block, ready, tag) = live.swap_remove(next(live.len()));
            let target = results.ptr.wrapping_byte_add(wanted.len() * SLOT);
            let from = block.ptr.wrapping_byte_add(block.size - SLOT);
            let copied = queue.copy(target, from, SLOT, &[&ready])?;
            wanted.push(tag);
            frees.push(queue.free_event(block, &[&copied])?);
        }
    }
    queue.finish()?;
    for (data, tag) in results.host::<u8>().chunks(SLOT).zip(&wanted) {
        same_bytes(data, *tag)?;
    }
    live.into_iter()
        .try_for_each(|(block, ready, _)| queue.free(block, &[&ready]))?;
    queue.finish()?;
    check_eq!(pool.used()?, 0, "used bytes");
    Ok(())
}

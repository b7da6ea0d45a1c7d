//! The maximum size of a pool.

use super::errors::OUT_OF_MEMORY;
use super::fixtures::{A, B, PendingFree};
use super::*;
use crate::check_eq;
use crate::objects::Limits;
use std::time::Instant;

const SUITE: &str = "async_limits";
const MAXIMUM: usize = 32 * MIB;

pub fn all() -> Vec<Test> {
    let mut tests = by_kind(
        SUITE,
        &[
            ("larger_than_the_maximum", larger_than_the_maximum),
            ("exhausted_pool_refuses", exhausted_pool_refuses),
            ("maximum_is_never_exceeded", maximum_is_never_exceeded),
            ("freed_memory_serves_again", freed_memory_serves_again),
            ("pending_free_serves", pending_free_serves),
            (
                "pending_frees_of_several_queues",
                pending_frees_of_several_queues,
            ),
            (
                "fragments_serve_a_large_block",
                fragments_serve_a_large_block,
            ),
            (
                "pending_free_serves_out_of_order",
                pending_free_serves_out_of_order,
            ),
            (
                "pending_quarters_serve_the_freeing_queue",
                pending_quarters_serve_the_freeing_queue,
            ),
            (
                "pending_quarters_serve_in_order",
                pending_quarters_serve_in_order,
            ),
            (
                "pending_quarters_serve_out_of_order",
                pending_quarters_serve_out_of_order,
            ),
            (
                "pending_memory_of_another_kind",
                pending_memory_of_another_kind,
            ),
        ],
    );
    tests.extend(plain(
        SUITE,
        &[
            ("maximum_is_reported", maximum_is_reported),
            ("other_pools_are_not_limited", other_pools_are_not_limited),
        ],
    ));
    tests
}

/// A pool with a maximum size that never releases memory by itself.
fn limited(setup: &Setup, maximum: usize) -> Result<Pool, Stop> {
    Pool::with_limits(
        setup.fixture,
        &setup.context,
        Limits {
            maximum,
            threshold: usize::MAX,
        },
    )
}

fn maximum_of(pool: &Pool) -> Result<usize, Stop> {
    pool.statistic(UR_USM_POOL_INFO_MAXIMUM_SIZE_EXP)
}

/// A pool reports its maximum size, 0 for no limit.
fn maximum_is_reported(setup: &Setup) -> Done {
    let maximum = maximum_of(&limited(setup, MAXIMUM)?)?;
    check!(
        (MAXIMUM..=2 * MAXIMUM).contains(&maximum),
        "maximum {maximum}, expected {MAXIMUM} to twice as much"
    );
    check_eq!(
        maximum_of(&setup.pool()?)?,
        0,
        "maximum of a pool without limits"
    );
    check_eq!(
        maximum_of(&limited(setup, 0)?)?,
        0,
        "maximum of a pool with a limit of 0"
    );
    check_eq!(
        maximum_of(&setup.default_pool()?)?,
        0,
        "maximum of the default pool"
    );
    Ok(())
}

fn refuse(queue: &Queue, kind: Kind, pool: &Pool, size: usize) -> Done {
    let (used, reserved) = (pool.used()?, pool.reserved()?);
    let mut event = null_mut();
    let (status, block) = queue.try_alloc(kind, pool.raw, size, &[], &mut event);
    status.fails_with(&OUT_OF_MEMORY)?;
    check!(
        block.is_err() && event.is_null(),
        "a refused allocation wrote a pointer or an event"
    );
    check_eq!(pool.used()?, used, "used bytes after a refusal");
    check!(
        pool.reserved()? <= reserved.max(maximum_of(pool)?),
        "reserved bytes rose above the maximum at a refusal"
    );
    Ok(())
}

/// An allocation above the maximum size is refused, and the pool works afterwards.
fn larger_than_the_maximum(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, limited(setup, MAXIMUM)?);
    let maximum = maximum_of(&pool)?;
    refuse(&queue, kind, &pool, maximum + 1)?;
    refuse(&queue, kind, &pool, 4 * maximum)?;
    setup.exercise(&queue, kind, &pool, MAXIMUM / 2)?;
    queue.finish()
}

/// Allocates until the pool refuses.
fn exhaust(queue: &Queue, kind: Kind, pool: &Pool, size: usize) -> Result<Vec<Block>, Stop> {
    let mut blocks = Vec::new();
    loop {
        let (status, block) = queue.try_alloc(kind, pool.raw, size, &[], null_mut());
        match block {
            Ok(block) => blocks.push(block),
            Err(_) => {
                status.fails_with(&OUT_OF_MEMORY)?;
                return Ok(blocks);
            }
        }
        check!(
            blocks.len() <= 4 * MAXIMUM / size,
            "a limited pool has given {} blocks of {size} bytes",
            blocks.len()
        );
    }
}

/// An exhausted pool refuses an allocation and its blocks keep their data.
fn exhausted_pool_refuses(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, limited(setup, MAXIMUM)?);
    let blocks = exhaust(&queue, kind, &pool, 3 * MIB)?;
    check!(
        blocks.len() >= 7,
        "{} blocks of 3 MiB fitted in {MAXIMUM} bytes, expected at least 7",
        blocks.len()
    );
    refuse(&queue, kind, &pool, 3 * MIB)?;
    for (index, block) in blocks.iter().enumerate() {
        queue.fill(block.ptr, index as u8, block.size, &[])?;
    }
    for (index, block) in blocks.into_iter().enumerate() {
        all_bytes(&queue, block, index as u8)?;
        queue.free(block, &[])?;
    }
    queue.finish()
}

/// The peak of reserved bytes stays at or below the maximum.
fn maximum_is_never_exceeded(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, limited(setup, MAXIMUM)?);
    for size in [100, 5000, MIB, 7 * MIB + 1, 64 * KIB] {
        let blocks = exhaust(&queue, kind, &pool, size.max(64 * KIB))?;
        let (high, maximum) = (
            pool.statistic(UR_USM_POOL_INFO_RESERVED_HIGH_EXP)?,
            maximum_of(&pool)?,
        );
        check!(
            high <= maximum,
            "{high} bytes were reserved under a maximum of {maximum}"
        );
        blocks
            .into_iter()
            .try_for_each(|block| queue.free(block, &[]))?;
    }
    queue.finish()
}

/// An exhausted pool serves as much again after all is freed.
fn freed_memory_serves_again(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, limited(setup, MAXIMUM)?);
    for _ in 0..10 {
        let blocks = exhaust(&queue, kind, &pool, 2 * MIB)?;
        check!(
            blocks.len() >= 12,
            "{} blocks of 2 MiB fitted in {MAXIMUM} bytes, expected at least 12",
            blocks.len()
        );
        blocks
            .into_iter()
            .try_for_each(|block| queue.free(block, &[]))?;
    }
    queue.finish()
}

/// An allocation that only a pending free can serve is granted and waits on the device.
fn pending_free_serves(setup: &Setup, kind: Kind) -> Done {
    let (first, second, pool) = (
        setup.in_order()?,
        setup.in_order()?,
        limited(setup, MAXIMUM)?,
    );
    let size = MAXIMUM / 4 * 3;
    let pending_free = PendingFree::new(setup, &first, first.alloc(kind, &pool, size, &[])?)?;
    let start = Instant::now();
    let (block, allocated) = second.alloc_event(kind, &pool, size, &[])?;
    check!(
        start.elapsed() < Duration::from_secs(5) && !pending_free.gate.is_open(),
        "an allocation blocked the host"
    );
    let filled = second.fill(block.ptr, B, size, &[])?;
    pending(
        &allocated,
        "an allocation completed before the free of its memory",
    )?;
    check!(
        !filled.is_complete()?,
        "a use ran before the free of its memory"
    );
    pending_free.open_and_check(&first)?;
    all_bytes(&second, block, B)?;
    second.free(block, &[])?;
    second.finish()
}

/// Pending frees of several queues serve allocations without disturbing the old use.
fn pending_frees_of_several_queues(setup: &Setup, kind: Kind) -> Done {
    let queues = (0..3)
        .map(|_| setup.in_order())
        .collect::<Result<Vec<Queue>, Stop>>()?;
    let (last, pool) = (setup.in_order()?, limited(setup, MAXIMUM)?);
    let size = MAXIMUM / 8;
    // Each queue has a pending free of an eighth of the pool.
    let mut pending_free = Vec::new();
    for queue in &queues {
        pending_free.push(PendingFree::new(
            setup,
            queue,
            queue.alloc(kind, &pool, size, &[])?,
        )?);
    }
    let rest = exhaust(&last, kind, &pool, size)?;
    let served = rest.len();
    check!(
        served >= 6,
        "{served} blocks of an eighth of the pool were served, expected at least 6"
    );
    for block in rest {
        last.fill(block.ptr, B, size, &[])?;
        last.free(block, &[])?;
    }
    for (pending_free, queue) in pending_free.iter().zip(&queues) {
        pending_free.open_and_check(queue)?;
    }
    last.finish()
}

/// A large block fits when all free memory lies in small completed pieces.
fn fragments_serve_a_large_block(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, limited(setup, MAXIMUM)?);
    let blocks = exhaust(&queue, kind, &pool, 256 * KIB)?;
    blocks
        .into_iter()
        .try_for_each(|block| queue.free(block, &[]))?;
    queue.finish()?;
    let block = queue.alloc(kind, &pool, MAXIMUM / 4 * 3, &[])?;
    queue.fill(block.ptr, A, block.size, &[])?;
    all_bytes(&queue, block, A)?;
    queue.free(block, &[])?;
    queue.finish()
}

/// A pending free serves an out-of-order queue after the free's event.
fn pending_free_serves_out_of_order(setup: &Setup, kind: Kind) -> Done {
    let (first, second, pool) = (
        setup.in_order()?,
        setup.out_of_order()?,
        limited(setup, MAXIMUM)?,
    );
    let size = MAXIMUM / 4 * 3;
    let pending_free = PendingFree::new(setup, &first, first.alloc(kind, &pool, size, &[])?)?;
    let (block, allocated) = second.alloc_event(kind, &pool, size, &[])?;
    check!(
        !pending_free.gate.is_open(),
        "an allocation blocked the host"
    );
    let filled = second.fill(block.ptr, B, size, &[&allocated])?;
    pending(&filled, "a use ran before the free of its memory")?;
    pending_free.open_and_check(&first)?;
    filled.wait()?;
    second.free(block, &[&filled])?;
    second.finish()
}

/// The queue that asks for memory with pending frees.
#[derive(Clone, Copy)]
enum Asks {
    FirstFreeing,
    InOrder,
    OutOfOrder,
}

/// The queue that freed the quarters of a full pool gets three of them as one block.
fn pending_quarters_serve_the_freeing_queue(setup: &Setup, kind: Kind) -> Done {
    pending_quarters(setup, kind, Asks::FirstFreeing)
}

/// Another in-order queue gets three pending quarters of a full pool as one block.
fn pending_quarters_serve_in_order(setup: &Setup, kind: Kind) -> Done {
    pending_quarters(setup, kind, Asks::InOrder)
}

/// An out-of-order queue gets three pending quarters of a full pool as one block.
fn pending_quarters_serve_out_of_order(setup: &Setup, kind: Kind) -> Done {
    pending_quarters(setup, kind, Asks::OutOfOrder)
}

/// Allocates three quarters of a pool as one block while the frees of all four quarters are pending.
///
/// One queue or four free the quarters. The allocation is made with an event and without. The old data must
/// stay intact.
fn pending_quarters(setup: &Setup, kind: Kind, asks: Asks) -> Done {
    for (freeing, wanted) in [(1, false), (1, true), (4, false), (4, true)] {
        let pool = limited(setup, MAXIMUM)?;
        let queues = (0..freeing)
            .map(|_| setup.in_order())
            .collect::<Result<Vec<Queue>, Stop>>()?;
        let asking = match asks {
            Asks::FirstFreeing => None,
            Asks::InOrder => Some(setup.in_order()?),
            Asks::OutOfOrder => Some(setup.out_of_order()?),
        };
        let size = MAXIMUM / 4;
        let of = |at: usize| &queues[at % freeing];
        let mut quarters = Vec::new();
        for at in 0..4 {
            let block = of(at).alloc(kind, &pool, size, &[])?;
            of(at).fill(block.ptr, A, size, &[])?;
            quarters.push((block, setup.result(size)?));
        }
        let gates = queues
            .iter()
            .map(|queue| setup.gate(queue))
            .collect::<Result<Vec<Gate>, Stop>>()?;
        for (at, (block, result)) in quarters.iter().enumerate() {
            of(at).copy(result.ptr, block.ptr, size, &[])?;
            of(at).free(*block, &[])?;
        }
        // The allocation may block the host, so another thread opens the gates.
        for gate in &gates {
            gate.open_after(Duration::from_millis(50));
        }
        let queue = asking.as_ref().unwrap_or(&queues[0]);
        let (block, allocated) = match wanted {
            true => {
                let (block, event) = queue.alloc_event(kind, &pool, 3 * size, &[])?;
                (block, Some(event))
            }
            false => (queue.alloc(kind, &pool, 3 * size, &[])?, None),
        };
        let after: Vec<&Event> = allocated.iter().collect();
        let filled = queue.fill(block.ptr, B, block.size, &after)?;
        queues.iter().try_for_each(Queue::finish)?;
        for (_, result) in &quarters {
            same_bytes(result.host(), A)?;
        }
        filled.wait()?;
        all_bytes(queue, block, B)?;
        let (high, maximum) = (
            pool.statistic(UR_USM_POOL_INFO_RESERVED_HIGH_EXP)?,
            maximum_of(&pool)?,
        );
        check!(
            high <= maximum,
            "{high} bytes were reserved under a maximum of {maximum}"
        );
        queue.free(block, &[])?;
        queue.finish()?;
    }
    Ok(())
}

/// A pending free of one kind serves another under the common maximum.
fn pending_memory_of_another_kind(setup: &Setup, kind: Kind) -> Done {
    let other = match kind {
        Kind::Host => Kind::Device,
        Kind::Device | Kind::Shared => Kind::Host,
    };
    for queue in [setup.in_order()?, setup.out_of_order()?] {
        let (freeing, pool) = (setup.in_order()?, limited(setup, MAXIMUM)?);
        let size = MAXIMUM / 4 * 3;
        let block = freeing.alloc(other, &pool, size, &[])?;
        let pending_free = PendingFree::new(setup, &freeing, block)?;
        pending_free.gate.open_after(Duration::from_millis(50));
        let block = queue.alloc(kind, &pool, size, &[])?;
        pending_free.open_and_check(&freeing)?;
        queue.fill(block.ptr, B, size, &[])?.wait()?;
        all_bytes(&queue, block, B)?;
        queue.free(block, &[])?;
        queue.finish()?;
    }
    Ok(())
}

/// The maximum of one pool does not limit another.
fn other_pools_are_not_limited(setup: &Setup) -> Done {
    let (queue, small) = (setup.in_order()?, limited(setup, 2 * MIB)?);
    let blocks = exhaust(&queue, Kind::Device, &small, 256 * KIB)?;
    setup.exercise(&queue, Kind::Device, &setup.pool()?, 16 * MIB)?;
    setup.exercise(&queue, Kind::Device, &limited(setup, MAXIMUM)?, 8 * MIB)?;
    blocks
        .into_iter()
        .try_for_each(|block| queue.free(block, &[]))?;
    queue.finish()
}

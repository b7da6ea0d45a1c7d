//! Many threads at once: kernels write and verify the pattern of each block.

use super::*;
use crate::check_eq;
use crate::kernels::{IOTA, VERIFY};
use crate::objects::{Arg, Kernel, Program};
use std::sync::Mutex;

const SUITE: &str = "async_threads";
pub const THREADS: usize = 8;
const ROUNDS: usize = 60;

pub fn all() -> Vec<Test> {
    let mut tests = by_kind(
        SUITE,
        &[
            ("own_queues", own_queues),
            ("one_in_order_queue", one_in_order_queue),
        ],
    );
    tests.extend(plain(
        SUITE,
        &[
            ("one_out_of_order_queue", one_out_of_order_queue),
            (
                "blocks_freed_by_other_threads",
                blocks_freed_by_other_threads,
            ),
            ("pools_created_and_destroyed", pools_created_and_destroyed),
            ("trim_during_allocation", trim_during_allocation),
            ("under_a_maximum", under_a_maximum),
            ("queues_created_and_released", queues_created_and_released),
        ],
    ));
    tests
}

/// Runs a function on all threads and returns the first failure.
pub fn on_threads(work: impl Fn(usize) -> Done + Sync) -> Done {
    let results: Vec<Done> = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS)
            .map(|index| scope.spawn(move || work(index)))
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(Stop::failed("a thread panicked")))
            })
            .collect()
    });
    results.into_iter().collect()
}

/// The kernels, and the count of wrong words that all threads share.
pub struct Checker {
    iota: Kernel,
    verify: Kernel,
    wrong: Usm,
}

impl Checker {
    pub fn new(setup: &Setup) -> Result<Self, Stop> {
        let program = Program::new(setup.fixture, &setup.context)?;
        let mut wrong = setup.result(4)?;
        wrong.host_mut::<u32>()[0] = 0;
        Ok(Self {
            iota: program.kernel(IOTA)?,
            verify: program.kernel(VERIFY)?,
            wrong,
        })
    }

    pub fn write(
        &self,
        queue: &Queue,
        block: Block,
        base: u32,
        wait: &[&Event],
    ) -> Result<Event, Stop> {
        queue.launch(
            &self.iota,
            block.size / 4,
            &[Arg::Pointer(block.ptr), Arg::of(&base)],
            wait,
        )
    }

    pub fn verify(
        &self,
        queue: &Queue,
        block: Block,
        base: u32,
        wait: &[&Event],
    ) -> Result<Event, Stop> {
        let args = [
            Arg::Pointer(block.ptr),
            Arg::of(&base),
            Arg::Pointer(self.wrong.ptr),
        ];
        queue.launch(&self.verify, block.size / 4, &args, wait)
    }

    pub fn no_word_was_wrong(&self) -> Done {
        check_eq!(
            self.wrong.host::<u32>()[0],
            0,
            "words that another block's owner overwrote"
        );
        Ok(())
    }
}

/// A block size in bytes that differs between rounds and threads.
fn size(thread: usize, round: usize) -> usize {
    [256, 4 * KIB, 20 * KIB, 60 * KIB][(thread + round * 7) % 4] + round * 64
}

/// Eight threads allocate from one pool on queues of their own without a wrong word.
fn own_queues(setup: &Setup, kind: Kind) -> Done {
    let (pool, checker) = (setup.pool()?, Checker::new(setup)?);
    let queues = (0..THREADS)
        .map(|_| setup.in_order())
        .collect::<Result<Vec<Queue>, Stop>>()?;
    on_threads(|thread| {
        let queue = &queues[thread];
        for round in 0..ROUNDS {
            let block = queue.alloc(kind, &pool, size(thread, round), &[])?;
            let base = ((thread * ROUNDS + round) as u32).wrapping_mul(1_000_003);
            checker.write(queue, block, base, &[])?;
            checker.verify(queue, block, base, &[])?;
            queue.free(block, &[])?;
        }
        queue.finish()
    })?;
    checker.no_word_was_wrong()?;
    check_eq!(pool.used()?, 0, "used bytes");
    Ok(())
}

/// Eight threads allocate on one in-order queue without a wrong word.
fn one_in_order_queue(setup: &Setup, kind: Kind) -> Done {
    let (pool, checker, queue) = (setup.pool()?, Checker::new(setup)?, setup.in_order()?);
    on_threads(|thread| {
        for round in 0..ROUNDS / 2 {
            let block = queue.alloc(kind, &pool, size(thread, round), &[])?;
            let base = ((thread * ROUNDS + round) as u32).wrapping_mul(1_000_003);
            checker.write(&queue, block, base, &[])?;
            checker.verify(&queue, block, base, &[])?;
            queue.free(block, &[])?;
        }
        Ok(())
    })?;
    queue.finish()?;
    checker.no_word_was_wrong()?;
    check_eq!(pool.used()?, 0, "used bytes");
    Ok(())
}

/// Eight threads allocate on one out-of-order queue without a wrong word.
fn one_out_of_order_queue(setup: &Setup) -> Done {
    let (pool, checker, queue) = (setup.pool()?, Checker::new(setup)?, setup.out_of_order()?);
    on_threads(|thread| {
        let kind = Kind::ALL[thread % 3];
        let mut freed: Option<Event> = None;
        for round in 0..ROUNDS / 2 {
            let wait: Vec<&Event> = freed.iter().filter(|_| round % 2 == 0).collect();
            let (block, allocated) = queue.alloc_event(kind, &pool, size(thread, round), &wait)?;
            let base = ((thread * ROUNDS + round) as u32).wrapping_mul(1_000_003);
            let written = checker.write(&queue, block, base, &[&allocated])?;
            let verified = checker.verify(&queue, block, base, &[&written])?;
            freed = Some(queue.free_event(block, &[&verified])?);
        }
        Ok(())
    })?;
    queue.finish()?;
    checker.no_word_was_wrong()?;
    check_eq!(pool.used()?, 0, "used bytes");
    Ok(())
}

/// A block written by one thread is verified and freed by another after an event.
fn blocks_freed_by_other_threads(setup: &Setup) -> Done {
    let (pool, checker) = (setup.pool()?, Checker::new(setup)?);
    let queues = (0..THREADS)
        .map(|_| setup.in_order())
        .collect::<Result<Vec<Queue>, Stop>>()?;
    let table: Mutex<Vec<(Block, Event, u32)>> = Mutex::new(Vec::new());
    let take = || table.lock().map_or(None, |mut table| table.pop());
    on_threads(|thread| {
        let queue = &queues[thread];
        for round in 0..ROUNDS {
            let block = queue.alloc(Kind::Device, &pool, size(thread, round), &[])?;
            let base = ((thread * ROUNDS + round) as u32).wrapping_mul(1_000_003);
            let written = checker.write(queue, block, base, &[])?;
            if let Some((other, ready, tag)) = take() {
                checker.verify(queue, other, tag, &[&ready])?;
                queue.free(other, &[])?;
            }
            if let Ok(mut table) = table.lock() {
                table.push((block, written, base));
            }
        }
        queue.finish()
    })?;
    while let Some((block, ready, tag)) = take() {
        checker.verify(&queues[0], block, tag, &[&ready])?;
        queues[0].free(block, &[])?;
    }
    queues.iter().try_for_each(Queue::finish)?;
    checker.no_word_was_wrong()?;
    check_eq!(pool.used()?, 0, "used bytes");
    Ok(())
}

/// Threads create and destroy pools while their blocks are in use.
fn pools_created_and_destroyed(setup: &Setup) -> Done {
    let checker = Checker::new(setup)?;
    let queues = (0..THREADS)
        .map(|_| setup.in_order())
        .collect::<Result<Vec<Queue>, Stop>>()?;
    on_threads(|thread| {
        let queue = &queues[thread];
        for round in 0..20 {
            let pool = setup.pool()?;
            let blocks = (0..4)
                .map(|_| queue.alloc(Kind::Device, &pool, size(thread, round), &[]))
                .collect::<Result<Vec<Block>, Stop>>()?;
            drop(pool);
            for (index, block) in blocks.into_iter().enumerate() {
                let base = ((thread * 1000 + round * 10 + index) as u32).wrapping_mul(1_000_003);
                checker.write(queue, block, base, &[])?;
                checker.verify(queue, block, base, &[])?;
                queue.free(block, &[])?;
            }
        }
        queue.finish()
    })?;
    checker.no_word_was_wrong()
}

/// A pool is trimmed and queried while other threads allocate.
fn trim_during_allocation(setup: &Setup) -> Done {
    let (pool, checker) = (setup.pool()?, Checker::new(setup)?);
    let queues = (0..THREADS)
        .map(|_| setup.in_order())
        .collect::<Result<Vec<Queue>, Stop>>()?;
    on_threads(|thread| {
        let queue = &queues[thread];
        for round in 0..ROUNDS / 2 {
            if thread == 0 {
                pool.trim(round * 4 * KIB)?;
                let (used, reserved) = (
                    pool.used()?,
                    pool.statistic(UR_USM_POOL_INFO_RESERVED_HIGH_EXP)?,
                );
                check!(
                    used <= reserved,
                    "{used} bytes used, at most {reserved} reserved"
                );
                pool.set(UR_USM_POOL_INFO_USED_HIGH_EXP, 0).ok()?;
                continue;
            }
            let block = queue.alloc(Kind::Device, &pool, size(thread, round), &[])?;
            let base = ((thread * ROUNDS + round) as u32).wrapping_mul(1_000_003);
            checker.write(queue, block, base, &[])?;
            checker.verify(queue, block, base, &[])?;
            queue.free(block, &[])?;
            if round % 16 == 0 {
                queue.finish()?;
            }
        }
        queue.finish()
    })?;
    checker.no_word_was_wrong()?;
    check_eq!(pool.used()?, 0, "used bytes");
    Ok(())
}

/// A pool too small for all threads at once serves each of them in turn.
fn under_a_maximum(setup: &Setup) -> Done {
    use crate::objects::Limits;
    let limits = Limits {
        maximum: 2 * MIB,
        threshold: usize::MAX,
    };
    let pool = Pool::with_limits(setup.fixture, &setup.context, limits)?;
    let checker = Checker::new(setup)?;
    let queues = (0..THREADS)
        .map(|_| setup.in_order())
        .collect::<Result<Vec<Queue>, Stop>>()?;
    // The threads hold at most half of the pool. The rest is free or has a pending free.
    on_threads(|thread| {
        let queue = &queues[thread];
        for round in 0..ROUNDS / 2 {
            let block = queue.alloc(Kind::Device, &pool, 128 * KIB, &[])?;
            let base = ((thread * ROUNDS + round) as u32).wrapping_mul(1_000_003);
            checker.write(queue, block, base, &[])?;
            checker.verify(queue, block, base, &[])?;
            queue.free(block, &[])?;
        }
        queue.finish()
    })?;
    checker.no_word_was_wrong()?;
    let (high, maximum) = (
        pool.statistic(UR_USM_POOL_INFO_RESERVED_HIGH_EXP)?,
        pool.statistic(UR_USM_POOL_INFO_MAXIMUM_SIZE_EXP)?,
    );
    check!(
        high <= maximum,
        "{high} bytes were reserved under a maximum of {maximum}"
    );
    Ok(())
}

/// Threads release queues while their frees are pending.
fn queues_created_and_released(setup: &Setup) -> Done {
    let (pool, checker) = (setup.pool()?, Checker::new(setup)?);
    on_threads(|thread| {
        for round in 0..20 {
            let queue = if round % 2 == 0 {
                setup.in_order()?
            } else {
                setup.out_of_order()?
            };
            let (block, allocated) =
                queue.alloc_event(Kind::Device, &pool, size(thread, round), &[])?;
            let base = ((thread * 100 + round) as u32).wrapping_mul(1_000_003);
            let written = checker.write(&queue, block, base, &[&allocated])?;
            let verified = checker.verify(&queue, block, base, &[&written])?;
            let freed = queue.free_event(block, &[&verified])?;
            // The queue is released while its commands are pending.
            drop(queue);
            if round % 5 == 0 {
                freed.wait()?;
            }
        }
        Ok(())
    })?;
    setup.in_order()?.finish()?;
    check_eq!(pool.used()?, 0, "used bytes");
    // The count is read after all pending commands.
    let fixture = setup.fixture;
    if fixture.supports(UR_DEVICE_INFO_DEVICE_WAIT_SUPPORT_EXP)? {
        fixture.ur.urDeviceWaitExp(fixture.device).ok()?;
        checker.no_word_was_wrong()?;
    }
    Ok(())
}

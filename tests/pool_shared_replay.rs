//! Shared replay: lanes that repeat an iteration together get the same memory again. The tests use the public
//! interface of a pool.

#[path = "lanes/iterations.rs"]
mod iterations;
mod lanes;

use iterations::{paged, pool_of};
use lanes::{Queue, TestPool};
use ur::pool::oracle::FakeProvider;
use ur::pool::*;
use ur::timeline::Frontier;

/// Blocks that each queue allocates in one iteration.
const BLOCKS: u64 = 12;

/// Two queues that allocate different sizes.
struct Pair([Queue; 2]);

/// The order between the queues of one iteration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Between {
    /// The host waits for each queue after its part.
    Awaited,
    /// The second queue waits for the first one by a dependency.
    Ordered,
    /// Neither waits.
    Unordered,
}

impl Pair {
    fn new() -> Self {
        Self([Queue::new(), Queue::new()])
    }

    fn bytes(own: usize, nth: u64) -> u64 {
        64 * (3 + 5 * nth + own as u64)
    }

    /// One iteration: each queue allocates its blocks and frees each when two later ones are live.
    ///
    /// Returns the addresses.
    fn iteration(&mut self, pool: &TestPool, between: Between) -> Vec<u64> {
        let mut all = Vec::new();
        for own in 0..2 {
            if between == Between::Ordered && own == 1 {
                let before = self.0[0].lane.frontier();
                self.0[1].lane.wait_for(&before);
            }
            let queue = &mut self.0[own];
            all.extend(queue.iterate(pool, (0..BLOCKS).map(|nth| Self::bytes(own, nth))));
            if between == Between::Awaited {
                queue.finish();
            }
        }
        all
    }

    /// Makes the plans that a host does while it waits for all queues, and completes the queues.
    fn finish(&self, pool: &TestPool) {
        for queue in &self.0 {
            if queue.cache.replayable().contains(&pool.key()) {
                pool.plan(&queue.cache, &queue.lane);
            }
        }
        self.0.iter().for_each(Queue::finish);
    }

    /// Repeats iterations until a shared plan serves all of one.
    fn settle(pool: &TestPool) -> (Self, Vec<u64>) {
        let mut pair = Self::new();
        let first = pair.iteration(pool, Between::Awaited);
        pair.finish(pool);
        assert_eq!(joint(pool), (0, 0), "shared plans after one iteration");
        assert_eq!(pair.iteration(pool, Between::Awaited), first);
        pair.finish(pool);
        assert_eq!(joint(pool), (1, 2 * BLOCKS));
        (pair, first)
    }
}

fn joint(pool: &TestPool) -> (u64, u64) {
    let counters = pool.counters();
    (counters.shared_plans, counters.replayed_shared)
}

#[test]
fn a_shared_plan_serves_repeated_iterations() {
    let (provider, pool) = paged();
    let (mut pair, first) = Pair::settle(&pool);
    let (reserved, mapped) = (pool.figures().reserved, provider.mapped());
    for done in 2..6 {
        assert_eq!(pair.iteration(&pool, Between::Awaited), first);
        // The plan lasts, whether or not the host waits.
        assert_eq!(joint(&pool), (1, 2 * BLOCKS * done));
        assert_eq!(
            (pool.figures().used, pool.figures().reserved),
            (0, reserved)
        );
    }
    assert_eq!(
        provider.mapped(),
        mapped,
        "pages mapped after the first iteration"
    );
    let counters = pool.counters();
    let all = 2 * BLOCKS * 6;
    assert_eq!((counters.served(), counters.releases), (all, all));
    assert!(counters.completed >= BLOCKS * 5, "{counters:?}");
    assert_eq!(provider.wrong(), [""; 0]);
}

/// A queue gets the memory of the shared plan only if it may use it: the other queue may still do.
#[test]
fn a_queue_without_a_dependency_gets_no_memory_in_use() {
    for (between, joins) in [(Between::Ordered, true), (Between::Unordered, false)] {
        let (provider, pool) = paged();
        let (mut pair, first) = Pair::settle(&pool);
        let again = pair.iteration(&pool, between);
        assert_eq!(again == first, joins);
        let (_, planned) = joint(&pool);
        let all = 4 * BLOCKS;
        assert!(planned == all || !joins && planned < all, "{planned}");
        if !joins {
            // The second queue's memory is not the first one's.
            let memory = |at: usize| {
                let bytes = Pair::bytes(at / BLOCKS as usize, at as u64 % BLOCKS);
                provider.memory_at(again[at], again[at] + bytes)
            };
            let turn = BLOCKS as usize;
            let taken: Vec<(u64, u64)> = (0..turn).flat_map(memory).collect();
            for part in (turn..2 * turn).flat_map(memory) {
                let meets = |own: &(u64, u64)| own.0 < part.0 + part.1 && part.0 < own.0 + own.1;
                assert!(!taken.iter().any(meets), "memory in use was given away");
            }
        }
        assert_eq!(provider.wrong(), [""; 0]);
    }
}

/// Each request counts as the kind of reuse that makes it legal.
#[test]
fn each_request_counts_as_its_kind_of_reuse() {
    let (_, pool) = paged();
    let (mut pair, _) = Pair::settle(&pool);
    let counts = |pool: &TestPool| {
        let counters = pool.counters();
        (counters.ordered, counters.completed)
    };
    let before = counts(&pool);
    pair.iteration(&pool, Between::Ordered);
    let (ordered, completed) = counts(&pool);
    assert!(ordered > before.0, "no request was served by a dependency");
    let before = (ordered, completed);
    pair.finish(&pool);
    pair.iteration(&pool, Between::Awaited);
    assert!(
        counts(&pool).1 > before.1,
        "no request was served by completion"
    );
    assert_eq!(joint(&pool), (1, 6 * BLOCKS));
}

/// The iteration is left after each of its steps, by either queue or by a third.
#[test]
fn blocks_of_an_abandoned_iteration_are_found_and_freed() {
    for (count, who) in (1..2 * BLOCKS).flat_map(|count| (0..3).map(move |who| (count, who))) {
        let (provider, pool) = paged();
        let (mut pair, first) = Pair::settle(&pool);
        let third = Queue::new();
        let mut live: Vec<(usize, Block)> = Vec::new();
        for (nth, addr) in (0..count).zip(&first) {
            let own = (nth / BLOCKS) as usize;
            if nth == BLOCKS {
                let ends = live.drain(..);
                ends.for_each(|(_, block)| pair.0[0].free(&pool, &block));
                pair.0[0].finish();
            }
            let block = pair.0[own].alloc(&pool, Pair::bytes(own, nth % BLOCKS));
            pair.0[own].lane.advance();
            assert_eq!(block.addr, *addr);
            live.push((own, block));
            if live.len() > 2 {
                pair.0[own].free(&pool, &live.remove(0).1);
            }
        }
        let used: u64 = live.iter().map(|(_, block)| block.bytes).sum();
        assert_eq!(pool.figures().used, used);
        // A new size, larger than all free memory.
        let queue = pair.0.get(who).unwrap_or(&third);
        let other = queue.alloc(&pool, 64 * 1000);
        assert_eq!(pool.figures().used, used + 64_000);
        let memory = |block: &Block| provider.memory_at(block.addr, block.addr + block.bytes);
        let taken: Vec<(u64, u64)> = live.iter().flat_map(|(_, block)| memory(block)).collect();
        for part in memory(&other) {
            let meets = |own: &(u64, u64)| own.0 < part.0 + part.1 && part.0 < own.0 + own.1;
            assert!(!taken.iter().any(meets), "two live blocks share memory");
        }
        for (own, block) in &live {
            assert_eq!(pool.lookup(block.addr), Some(*block));
            let last = block.addr + block.requested - 1;
            assert_eq!(pool.lookup(last), Some(*block));
            pair.0[*own].free(&pool, block);
            assert!(pool.lookup(block.addr).is_none());
            assert!(
                pool.release(block.addr, Frontier::new()).is_none(),
                "a second release succeeded"
            );
        }
        queue.free(&pool, &other);
        assert_eq!(pool.figures().used, 0);
        pair.finish(&pool);
        third.finish();
        pool.trim(0);
        assert_eq!((pool.figures().reserved, provider.bytes_out()), (0, 0));
        assert_eq!(provider.wrong(), [""; 0]);
        // The pool still works.
        pair.iteration(&pool, Between::Awaited);
        assert_eq!(pool.figures().used, 0);
    }
}

#[test]
fn a_block_freed_by_another_queue_is_not_reused_early() {
    let (provider, pool) = paged();
    let (pair, _) = Pair::settle(&pool);
    let mut other = Queue::new();
    let blocks = [0, 1].map(|nth| pair.0[0].alloc(&pool, Pair::bytes(0, nth)));
    // Freed early, and by a queue that may still use it.
    let freed_at = Frontier::from(other.lane.advance());
    assert_eq!(pool.release(blocks[1].addr, freed_at), Some(blocks[1]));
    assert!(
        pool.release(blocks[1].addr, Frontier::new()).is_none(),
        "a second release succeeded"
    );
    pair.0[0].free(&pool, &blocks[0]);
    pair.finish(&pool);
    let memory = |block: &Block| provider.memory_at(block.addr, block.addr + block.bytes);
    let taken = memory(&blocks[1]);
    for iteration in 0..3 {
        let reserved = pool.figures().reserved;
        let all = pair.0[iteration % 2].alloc(&pool, reserved);
        for part in memory(&all) {
            let meets = |own: &(u64, u64)| own.0 < part.0 + part.1 && part.0 < own.0 + own.1;
            assert!(!taken.iter().any(meets), "memory in use was given away");
        }
        pair.0[iteration % 2].free(&pool, &all);
        pair.finish(&pool);
    }
    assert_eq!(provider.wrong(), [""; 0]);
}

#[test]
fn a_pool_takes_planned_memory_before_it_grows() {
    let (_, pool) = pool_of(FakeProvider::new(64));
    let (mut pair, _) = Pair::settle(&pool);
    let reserved = pool.figures().reserved;
    let third = Queue::new();
    let largest = third.alloc(&pool, Pair::bytes(1, BLOCKS - 1));
    assert_eq!(pool.figures().reserved, reserved);
    pair.iteration(&pool, Between::Awaited);
    assert_eq!(pool.lookup(largest.addr), Some(largest));
    third.free(&pool, &largest);
    assert_eq!(pool.figures().used, 0);
}

#[test]
fn trims_and_closing_release_planned_memory() {
    for end in 0..3 {
        let (provider, pool) = paged();
        let (pair, _) = Pair::settle(&pool);
        let block = pair.0[0].alloc(&pool, Pair::bytes(0, 0));
        pair.0[0].free(&pool, &block);
        pair.finish(&pool);
        match end {
            0 => pool.close(),
            1 => pool.trim(0),
            _ => {
                pair.0.iter().for_each(|queue| queue.cache.retire());
                pool.trim(0);
            }
        }
        pool.expire();
        assert_eq!((provider.bytes_out(), pool.figures().reserved), (0, 0));
        assert_eq!((pool.is_drained(), pool.has_aliases()), (end == 0, false));
        assert_eq!(provider.wrong(), [""; 0]);
    }
}

/// Each lane uses its own memory and gets its own plan.
#[test]
fn lanes_without_shared_memory_get_plans_of_their_own() {
    let (_, pool) = paged();
    let mut pair = Pair::new();
    for _ in 0..4 {
        pair.iteration(&pool, Between::Unordered);
        pair.finish(&pool);
    }
    assert_eq!(joint(&pool), (0, 0));
    assert_eq!(pool.counters().replay_plans, 2);
}

/// Completed memory may serve any lane, but each lane keeps using its own.
#[test]
fn lanes_that_may_share_but_do_not_get_plans_of_their_own() {
    let (provider, pool) = paged();
    let pair = Pair::new();
    for _ in 0..6 {
        // More sizes than a lane can cache, all live at once.
        let live: Vec<(usize, Block)> = (0..160)
            .map(|nth| {
                let own = nth as usize % 2;
                (own, pair.0[own].alloc(&pool, 64 * (1 + nth / 2)))
            })
            .collect();
        pair.finish(&pool);
        let ends = live.iter().rev();
        ends.for_each(|(own, block)| pair.0[*own].free(&pool, block));
        pair.finish(&pool);
    }
    assert_eq!(joint(&pool), (0, 0));
    assert_eq!(pool.counters().replay_plans, 2, "{:?}", pool.counters());
    assert_eq!(provider.wrong(), [""; 0]);
}

/// A plan that did not serve a whole iteration doubles the repetitions needed before the next one.
#[test]
fn abandoned_plans_back_off() {
    let (_, pool) = paged();
    let (mut pair, _) = Pair::settle(&pool);
    for _ in 0..100 {
        pair.iteration(&pool, Between::Unordered);
        pair.finish(&pool);
        pair.iteration(&pool, Between::Awaited);
        pair.finish(&pool);
    }
    assert!(joint(&pool).0 < 10, "{:?}", joint(&pool));
}

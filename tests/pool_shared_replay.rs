//! Lanes that take turns with the same memory have it again together, as a pool's user sees it.

#[path = "lanes/iterations.rs"]
mod iterations;
mod lanes;

use iterations::{paged, pool_of};
use lanes::{Queue, TestPool};
use ur::pool::oracle::FakeProvider;
use ur::pool::*;
use ur::timeline::Frontier;

/// Blocks that each queue asks for in its turn.
const TURN: u64 = 12;

/// Two queues, of which the second one's sizes are others.
struct Pair([Queue; 2]);

/// How an iteration goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turns {
    /// Whoever has had a turn is awaited.
    Awaited,
    /// The second queue comes after the first one by a dependency.
    Ordered,
    /// Nobody waits for anybody.
    Loose,
}

impl Pair {
    fn new() -> Self {
        Self([Queue::new(), Queue::new()])
    }

    fn bytes(own: usize, nth: u64) -> u64 {
        64 * (3 + 5 * nth + own as u64)
    }

    /// A turn of each queue, one block after the other, each freed when two more are live; where they were.
    fn iteration(&mut self, pool: &TestPool, turns: Turns) -> Vec<u64> {
        let mut all = Vec::new();
        for own in 0..2 {
            if turns == Turns::Ordered && own == 1 {
                let before = self.0[0].lane.frontier();
                self.0[1].lane.wait_for(&before);
            }
            let queue = &mut self.0[own];
            all.extend(queue.turn(pool, (0..TURN).map(|nth| Self::bytes(own, nth))));
            if turns == Turns::Awaited {
                queue.finish();
            }
        }
        all
    }

    /// As the host does before it waits for all, and after.
    fn finish(&self, pool: &TestPool) {
        for queue in &self.0 {
            if queue.cache.replayable().contains(&pool.key()) {
                pool.plan(&queue.cache, &queue.lane);
            }
        }
        self.0.iter().for_each(Queue::finish);
    }

    /// Laps until one comes that all have a plan for.
    fn settle(pool: &TestPool) -> (Self, Vec<u64>) {
        let mut pair = Self::new();
        let first = pair.iteration(pool, Turns::Awaited);
        pair.finish(pool);
        assert_eq!(shared(pool), (0, 0), "before anything came again");
        assert_eq!(pair.iteration(pool, Turns::Awaited), first);
        pair.finish(pool);
        assert_eq!(shared(pool), (1, 2 * TURN));
        (pair, first)
    }
}

fn shared(pool: &TestPool) -> (u64, u64) {
    let counters = pool.counters();
    (counters.shared_plans, counters.replayed_shared)
}

#[test]
fn lanes_have_the_same_again_together() {
    let (provider, pool) = paged();
    let (mut pair, first) = Pair::settle(&pool);
    let (reserved, mapped) = (pool.figures().reserved, provider.mapped());
    for iterations in 2..6 {
        assert_eq!(pair.iteration(&pool, Turns::Awaited), first);
        // It lasts, whether or not the host waits.
        assert_eq!(shared(&pool), (1, 2 * TURN * iterations));
        assert_eq!(
            (pool.figures().used, pool.figures().reserved),
            (0, reserved)
        );
    }
    assert_eq!(provider.mapped(), mapped, "memory moved again");
    let counters = pool.counters();
    let all = 2 * TURN * 6;
    assert_eq!((counters.served(), counters.releases), (all, all));
    assert!(counters.completed >= TURN * 5, "{counters:?}");
    assert_eq!(provider.wrong(), [""; 0]);
}

/// As long as the other may still use it.
#[test]
fn who_comes_too_soon_gets_none_of_it() {
    for (turns, joins) in [(Turns::Ordered, true), (Turns::Loose, false)] {
        let (provider, pool) = paged();
        let (mut pair, first) = Pair::settle(&pool);
        let again = pair.iteration(&pool, turns);
        assert_eq!(again == first, joins);
        let (_, planned) = shared(&pool);
        let all = 4 * TURN;
        assert!(planned == all || !joins && planned < all, "{planned}");
        if !joins {
            // What the second one has is not the first one's.
            let memory = |at: usize| {
                let bytes = Pair::bytes(at / TURN as usize, at as u64 % TURN);
                provider.memory_at(again[at], again[at] + bytes)
            };
            let turn = TURN as usize;
            let taken: Vec<(u64, u64)> = (0..turn).flat_map(memory).collect();
            for part in (turn..2 * turn).flat_map(memory) {
                let meets = |own: &(u64, u64)| own.0 < part.0 + part.1 && part.0 < own.0 + own.1;
                assert!(!taken.iter().any(meets), "still in use");
            }
        }
        assert_eq!(provider.wrong(), [""; 0]);
    }
}

/// What is told of each request is what makes it legal.
#[test]
fn reuse_is_recorded_as_it_is() {
    let (_, pool) = paged();
    let (mut pair, _) = Pair::settle(&pool);
    let counts = |pool: &TestPool| {
        let counters = pool.counters();
        (counters.ordered, counters.completed)
    };
    let before = counts(&pool);
    pair.iteration(&pool, Turns::Ordered);
    let (ordered, completed) = counts(&pool);
    assert!(ordered > before.0, "by a dependency");
    let before = (ordered, completed);
    pair.finish(&pool);
    pair.iteration(&pool, Turns::Awaited);
    assert!(counts(&pool).1 > before.1, "as it has completed");
    assert_eq!(shared(&pool), (1, 6 * TURN));
}

/// The iteration is left after each of its steps in turn, by either queue or a third.
#[test]
fn what_is_left_in_the_middle_is_found_and_freed_as_ever() {
    for (count, who) in (1..2 * TURN).flat_map(|count| (0..3).map(move |who| (count, who))) {
        let (provider, pool) = paged();
        let (mut pair, first) = Pair::settle(&pool);
        let third = Queue::new();
        let mut live: Vec<(usize, Block)> = Vec::new();
        for (nth, addr) in (0..count).zip(&first) {
            let own = (nth / TURN) as usize;
            if nth == TURN {
                let ends = live.drain(..);
                ends.for_each(|(_, block)| pair.0[0].free(&pool, &block));
                pair.0[0].finish();
            }
            let block = pair.0[own].alloc(&pool, Pair::bytes(own, nth % TURN));
            pair.0[own].lane.advance();
            assert_eq!(block.addr, *addr);
            live.push((own, block));
            if live.len() > 2 {
                pair.0[own].free(&pool, &live.remove(0).1);
            }
        }
        let used: u64 = live.iter().map(|(_, block)| block.bytes).sum();
        assert_eq!(pool.figures().used, used);
        // Another size than ever, and more than there is.
        let queue = pair.0.get(who).unwrap_or(&third);
        let other = queue.alloc(&pool, 64 * 1000);
        assert_eq!(pool.figures().used, used + 64_000);
        let memory = |block: &Block| provider.memory_at(block.addr, block.addr + block.bytes);
        let taken: Vec<(u64, u64)> = live.iter().flat_map(|(_, block)| memory(block)).collect();
        for part in memory(&other) {
            let meets = |own: &(u64, u64)| own.0 < part.0 + part.1 && part.0 < own.0 + own.1;
            assert!(!taken.iter().any(meets), "two blocks are one");
        }
        for (own, block) in &live {
            assert_eq!(pool.lookup(block.addr), Some(*block));
            let last = block.addr + block.requested - 1;
            assert_eq!(pool.lookup(last), Some(*block));
            pair.0[*own].free(&pool, block);
            assert!(pool.lookup(block.addr).is_none());
            assert!(pool.release(block.addr, Frontier::new()).is_err(), "twice");
        }
        queue.free(&pool, &other);
        assert_eq!(pool.figures().used, 0);
        pair.finish(&pool);
        third.finish();
        pool.trim(0);
        assert_eq!((pool.figures().reserved, provider.bytes_out()), (0, 0));
        assert_eq!(provider.wrong(), [""; 0]);
        // From here on as if nothing had been.
        pair.iteration(&pool, Turns::Awaited);
        assert_eq!(pool.figures().used, 0);
    }
}

#[test]
fn what_is_freed_elsewhere_or_earlier_is_not_had_before_it_is_left() {
    let (provider, pool) = paged();
    let (pair, _) = Pair::settle(&pool);
    let mut other = Queue::new();
    let blocks = [0, 1].map(|nth| pair.0[0].alloc(&pool, Pair::bytes(0, nth)));
    // Before its time, and by a queue that is not done with it.
    let death = Frontier::from(other.lane.advance());
    assert_eq!(pool.release(blocks[1].addr, death), Ok(blocks[1]));
    assert!(
        pool.release(blocks[1].addr, Frontier::new()).is_err(),
        "twice"
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
            assert!(!taken.iter().any(meets), "still in use");
        }
        pair.0[iteration % 2].free(&pool, &all);
        pair.finish(&pool);
    }
    assert_eq!(provider.wrong(), [""; 0]);
}

#[test]
fn a_pool_takes_back_what_is_held_before_it_grows() {
    let (_, pool) = pool_of(FakeProvider::new(64));
    let (mut pair, _) = Pair::settle(&pool);
    let reserved = pool.figures().reserved;
    let third = Queue::new();
    let largest = third.alloc(&pool, Pair::bytes(1, TURN - 1));
    assert_eq!(pool.figures().reserved, reserved);
    pair.iteration(&pool, Turns::Awaited);
    assert_eq!(pool.lookup(largest.addr), Some(largest));
    third.free(&pool, &largest);
    assert_eq!(pool.figures().used, 0);
}

#[test]
fn nothing_is_held_back_from_a_trim_nor_after_the_end() {
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

/// With memory of their own each has a plan of its own.
#[test]
fn lanes_that_share_nothing_have_nothing_together() {
    let (_, pool) = paged();
    let mut pair = Pair::new();
    for _ in 0..4 {
        pair.iteration(&pool, Turns::Loose);
        pair.finish(&pool);
    }
    assert_eq!(shared(&pool), (0, 0));
    assert_eq!(pool.counters().replay_plans, 2);
}

/// What is complete is anybody's, also where each lane has memory of its own again and again.
#[test]
fn lanes_that_could_share_and_do_not_have_plans_of_their_own() {
    let (provider, pool) = paged();
    let pair = Pair::new();
    for _ in 0..6 {
        // More sizes than a lane can keep for itself, all live at once.
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
    assert_eq!(shared(&pool), (0, 0));
    assert_eq!(pool.counters().replay_plans, 2, "{:?}", pool.counters());
    assert_eq!(provider.wrong(), [""; 0]);
}

/// Who is not served a whole iteration has to repeat itself twice as often before the next plan.
#[test]
fn who_never_comes_to_an_end_hardly_ever_begins() {
    let (_, pool) = paged();
    let (mut pair, _) = Pair::settle(&pool);
    for _ in 0..100 {
        pair.iteration(&pool, Turns::Loose);
        pair.finish(&pool);
        pair.iteration(&pool, Turns::Awaited);
        pair.finish(&pool);
    }
    assert!(shared(&pool).0 < 10, "{:?}", shared(&pool));
}

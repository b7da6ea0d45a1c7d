//! Lanes that do the same again and again have the same memory again, as a pool's user sees it.

#[path = "lanes/iterations.rs"]
mod iterations;
mod lanes;

use iterations::{paged, pool_of};
use lanes::{Queue, TestPool};
use ur::pool::oracle::FakeProvider;
use ur::pool::*;
use ur::timeline::Frontier;

/// Twenty blocks of rising sizes, each freed when two more are live; where they were.
fn iteration(queue: &mut Queue, pool: &TestPool) -> Vec<u64> {
    steps(queue, pool, 20)
}

fn steps(queue: &mut Queue, pool: &TestPool, count: u64) -> Vec<u64> {
    queue.turn(pool, (0..count).map(|nth| 64 * (3 + 5 * nth)))
}

fn plans(pool: &TestPool) -> (u64, u64) {
    let counters = pool.counters();
    (counters.replay_plans, counters.replayed)
}

#[test]
fn a_lane_has_the_same_again() {
    let (provider, pool) = paged();
    let mut queue = Queue::new();
    let first = iteration(&mut queue, &pool);
    let (reserved, mapped) = (pool.figures().reserved, provider.mapped());
    assert!(pool.counters().compactions > 0, "nothing was moved");
    for iterations in 1..5 {
        assert_eq!(iteration(&mut queue, &pool), first);
        assert_eq!(plans(&pool), (1, 20 * iterations));
        assert_eq!(
            (pool.figures().used, pool.figures().reserved),
            (0, reserved)
        );
    }
    assert_eq!(provider.mapped(), mapped, "memory moved again");
    let counters = pool.counters();
    assert_eq!((counters.served(), counters.releases), (100, 100));
    assert_eq!(provider.wrong(), [""; 0]);
}

#[test]
fn what_stays_from_before_does_not_matter() {
    let (_, pool) = paged();
    let mut queue = Queue::new();
    let weights: Vec<Block> = (1..9).map(|n| queue.alloc(&pool, 640 * n)).collect();
    // Something else first, once.
    let other = queue.alloc(&pool, 10_000);
    queue.free(&pool, &other);
    let used = pool.figures().used;
    let first = iteration(&mut queue, &pool);
    assert!((1..5).all(|_| iteration(&mut queue, &pool) == first));
    assert_eq!(plans(&pool), (1, 80));
    assert_eq!(pool.figures().used, used);
    // They end in the middle of an iteration, which is none then.
    let block = queue.alloc(&pool, 64 * 3);
    weights.iter().for_each(|block| queue.free(&pool, block));
    assert_eq!(queue.alloc(&pool, 64 * 8).bytes, 512);
    assert_eq!(pool.lookup(block.addr), Some(block));
}

#[test]
fn a_plan_may_be_made_while_the_host_waits() {
    let (_, pool) = paged();
    let mut queue = Queue::new();
    assert!(queue.cache.replayable().is_empty());
    let first = iteration(&mut queue, &pool);
    assert_eq!(queue.cache.replayable(), [pool.key()]);
    pool.plan(&queue.cache, &queue.lane);
    assert_eq!((plans(&pool), queue.cache.replayable().len()), ((1, 0), 0));
    assert_eq!(iteration(&mut queue, &pool), first);
    assert_eq!(plans(&pool), (1, 20));
}

/// An iteration is left after each of its steps in turn.
#[test]
fn what_a_lane_leaves_in_the_middle_is_found_and_freed_as_ever() {
    for count in 1..20 {
        let (provider, pool) = paged();
        let mut queue = Queue::new();
        let first = iteration(&mut queue, &pool);
        queue.finish();
        queue.lane.advance();
        let (mut live, mut all) = (Vec::new(), Vec::new());
        for (nth, addr) in (0..count).zip(&first) {
            let block = queue.alloc(&pool, 64 * (3 + 5 * nth));
            assert_eq!(block.addr, *addr);
            all.push(block);
            live.push(block);
            if live.len() > 2 {
                queue.free(&pool, &live.remove(0));
            }
        }
        let used: u64 = live.iter().map(|block| block.bytes).sum();
        assert_eq!((plans(&pool), pool.figures().used), ((1, count), used));
        let found = |pool: &TestPool| {
            for block in &live {
                assert_eq!(pool.lookup(block.addr), Some(*block));
                let last = block.addr + block.requested - 1;
                assert_eq!(pool.lookup(last), Some(*block));
            }
        };
        found(&pool);
        // Another size than ever.
        let other = queue.alloc(&pool, 64);
        assert_eq!(pool.figures().used, used + 64);
        found(&pool);
        assert_eq!(pool.lookup(other.addr), Some(other));
        let memory = |block: &Block| provider.memory_at(block.addr, block.addr + block.bytes);
        let taken: Vec<(u64, u64)> = live.iter().flat_map(memory).collect();
        for part in memory(&other) {
            let meets = |own: &(u64, u64)| own.0 < part.0 + part.1 && part.0 < own.0 + own.1;
            assert!(!taken.iter().any(meets), "two blocks are one");
        }
        for block in live.iter().chain([&other]) {
            queue.free(&pool, block);
            assert!(pool.lookup(block.addr).is_none());
            assert!(pool.release(block.addr, Frontier::new()).is_err(), "twice");
        }
        assert_eq!(pool.figures().used, 0);
        // Nobody can want a plan any more, but what was enqueued uses old addresses still.
        queue.cache.retire();
        pool.trim(0);
        pool.expire();
        for old in provider.take_retired() {
            let meets = |own: &Block| own.addr < old.end() && own.addr + own.bytes > old.base;
            assert!(!all.iter().any(meets), "{old:?} is in use");
        }
        queue.finish();
        pool.trim(0);
        assert_eq!((pool.figures().reserved, provider.bytes_out()), (0, 0));
        pool.expire();
        assert!(!pool.has_aliases());
        assert_eq!(provider.wrong(), [""; 0]);
    }
}

#[test]
fn who_frees_in_another_order_gets_no_memory_twice() {
    for odd in 2..19 {
        let (provider, pool) = paged();
        let mut queue = Queue::new();
        iteration(&mut queue, &pool);
        let mut live: Vec<Block> = Vec::new();
        let memory = |block: &Block| provider.memory_at(block.addr, block.addr + block.bytes);
        for nth in 0..20 {
            let block = queue.alloc(&pool, 64 * (3 + 5 * nth));
            let taken: Vec<(u64, u64)> = live.iter().flat_map(memory).collect();
            for part in memory(&block) {
                let meets = |own: &(u64, u64)| own.0 < part.0 + part.1 && part.0 < own.0 + own.1;
                assert!(!taken.iter().any(meets), "two blocks are one");
            }
            live.push(block);
            if live.len() > 2 {
                queue.free(&pool, &live.remove(usize::from(nth == odd)));
            }
        }
        assert_eq!(pool.counters().replay_plans, 1);
    }
}

/// Five times four blocks, freed together in some order, while another is live.
fn bursts(queue: &mut Queue, pool: &TestPool, order: [usize; 4]) -> Vec<u64> {
    let other = queue.alloc(pool, 32);
    let mut all = vec![other.addr];
    for burst in 0..5 {
        let blocks = [1, 2, 3, 4].map(|nth| queue.alloc(pool, 64 * (7 * burst + nth)));
        queue.lane.advance();
        all.extend(blocks.iter().map(|block| block.addr));
        let freed = order.iter().map(|nth| &blocks[*nth]);
        freed.for_each(|block| queue.free(pool, block));
    }
    queue.free(pool, &other);
    all
}

#[test]
fn frees_may_come_in_another_order_between_two_requests() {
    let (_, pool) = paged();
    let mut queue = Queue::new();
    bursts(&mut queue, &pool, [0, 1, 2, 3]);
    let first = bursts(&mut queue, &pool, [0, 1, 2, 3]);
    assert_eq!(plans(&pool), (1, 21));
    for (iteration, order) in [[3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1], [0, 3, 1, 2]]
        .into_iter()
        .enumerate()
    {
        assert_eq!(bursts(&mut queue, &pool, order), first);
        assert_eq!(plans(&pool), (1, 21 * (iteration as u64 + 2)), "{order:?}");
    }
    assert_eq!(pool.figures().used, 0);
}

#[test]
fn no_plan_is_made_of_what_another_queue_may_still_use() {
    let (_, pool) = pool_of(FakeProvider::new(64));
    let (mut queue, mut other) = (Queue::new(), Queue::new());
    iteration(&mut queue, &pool);
    queue.finish();
    let request = Request {
        bytes: 64 * (3 + 5 * 19),
        align: 0,
        order: Order::Sync,
        may_wait: false,
        decision: None,
    };
    let reserved = pool.figures().reserved;
    let taken = pool.acquire(&request).expect("there is room").block();
    assert_eq!(pool.figures().reserved, reserved);
    let death = Frontier::from(other.lane.advance());
    pool.release(taken.addr, death).expect("it is live");
    let (mut live, end) = (Vec::new(), taken.addr + taken.bytes);
    for nth in 0..20 {
        let block = queue.alloc(&pool, 64 * (3 + 5 * nth));
        assert!(block.addr >= end || block.addr + block.bytes <= taken.addr);
        live.push(block);
        if live.len() > 2 {
            queue.free(&pool, &live.remove(0));
        }
    }
    assert_eq!(plans(&pool), (0, 0));
}

#[test]
fn a_block_that_dies_elsewhere_is_not_had_again_before() {
    let (_, pool) = paged();
    let (mut queue, mut other) = (Queue::new(), Queue::new());
    iteration(&mut queue, &pool);
    let block = queue.alloc(&pool, 64 * 3);
    assert_eq!(plans(&pool), (1, 1));
    let death = other.lane.advance();
    let freed = pool.release(block.addr, Frontier::from(death.clone()));
    assert_eq!(freed, Ok(block));
    assert!(pool.release(block.addr, Frontier::new()).is_err(), "twice");
    queue.finish();
    // All memory there is, which the other queue has not left yet.
    let all = pool.figures().reserved;
    let whole = queue.alloc(&pool, all);
    assert!(pool.figures().reserved > all);
    queue.free(&pool, &whole);
    other.finish();
    let whole = queue.alloc(&pool, all);
    queue.free(&pool, &whole);
    assert!(pool.figures().reserved < 3 * all);
}

#[test]
fn a_pool_takes_back_what_is_held_before_it_grows() {
    let (_, pool) = pool_of(FakeProvider::new(64));
    let (mut queue, other) = (Queue::new(), Queue::new());
    iteration(&mut queue, &pool);
    let block = queue.alloc(&pool, 64 * 3);
    assert_eq!(plans(&pool), (1, 1));
    queue.free(&pool, &block);
    queue.finish();
    let reserved = pool.figures().reserved;
    let largest = other.alloc(&pool, 64 * (3 + 5 * 19));
    assert_eq!(pool.figures().reserved, reserved);
    // What the first one does now is no iteration, or one of which the memory is elsewhere.
    iteration(&mut queue, &pool);
    assert_eq!(pool.lookup(largest.addr), Some(largest));
    other.free(&pool, &largest);
    assert_eq!(pool.figures().used, 0);
}

#[test]
fn nothing_is_held_back_from_a_trim_nor_after_the_end() {
    for close in [false, true] {
        let (provider, pool) = paged();
        let mut queue = Queue::new();
        iteration(&mut queue, &pool);
        let block = queue.alloc(&pool, 64 * 3);
        assert_eq!(plans(&pool), (1, 1));
        queue.free(&pool, &block);
        queue.finish();
        match close {
            true => pool.close(),
            false => {
                queue.cache.retire();
                pool.trim(0);
                pool.expire();
            }
        }
        assert_eq!((provider.bytes_out(), pool.figures().reserved), (0, 0));
        assert_eq!(pool.is_drained(), close);
        assert_eq!(provider.wrong(), [""; 0]);
    }
}

#[test]
fn what_is_left_from_before_a_trim_ends_no_record_after_it() {
    let (provider, pool) = paged();
    let mut queue = Queue::new();
    let programs = [160, 80, 40, 20];
    for (nth, count) in (1..).zip(programs) {
        let first = steps(&mut queue, &pool, count);
        assert_eq!(steps(&mut queue, &pool, count), first);
        assert_eq!(plans(&pool).0, nth, "of {count} steps");
        queue.finish();
        pool.trim(0);
        assert_eq!((provider.bytes_out(), pool.has_aliases()), (0, false));
    }
    assert_eq!(plans(&pool).1, programs.iter().sum::<u64>());
    assert_eq!(provider.wrong(), [""; 0]);
}

#[test]
fn who_failed_with_a_plan_begins_anew_after_a_trim() {
    for trims in [false, true] {
        let (_, pool) = paged();
        let mut queue = Queue::new();
        iteration(&mut queue, &pool);
        steps(&mut queue, &pool, 7);
        let other = queue.alloc(&pool, 64);
        queue.free(&pool, &other);
        assert_eq!(plans(&pool), (1, 7));
        queue.finish();
        if trims {
            pool.trim(0);
        }
        iteration(&mut queue, &pool);
        iteration(&mut queue, &pool);
        let more = u64::from(trims);
        assert_eq!(plans(&pool), (1 + more, 7 + 20 * more));
    }
}

#[test]
fn who_hardly_ever_repeats_itself_hardly_ever_gets_a_plan() {
    let (_, pool) = pool_of(FakeProvider::new(64));
    let mut queue = Queue::new();
    for round in 0..400 {
        // The same to begin with.
        steps(&mut queue, &pool, 17 + round % 7);
    }
    let (made, _) = plans(&pool);
    assert!((1..40).contains(&made), "{made} plans");
}

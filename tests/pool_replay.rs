//! Replay: a lane that repeats an iteration gets the same memory again. The tests use the public interface of
//! a pool.

#[path = "lanes/iterations.rs"]
mod iterations;
mod lanes;

use iterations::{paged, pool_of};
use lanes::{Queue, TestPool};
use ur::pool::oracle::FakeProvider;
use ur::pool::*;
use ur::timeline::Frontier;

/// Twenty blocks of rising sizes, each freed when two later ones are live. Returns the addresses.
fn iteration(queue: &mut Queue, pool: &TestPool) -> Vec<u64> {
    steps(queue, pool, 20)
}

fn steps(queue: &mut Queue, pool: &TestPool, count: u64) -> Vec<u64> {
    queue.iterate(pool, (0..count).map(|nth| 64 * (3 + 5 * nth)))
}

fn plans(pool: &TestPool) -> (u64, u64) {
    let counters = pool.counters();
    (counters.replay_plans, counters.replayed)
}

#[test]
fn a_plan_serves_repeated_iterations() {
    let (provider, pool) = paged();
    let mut queue = Queue::new();
    let first = iteration(&mut queue, &pool);
    let (reserved, mapped) = (pool.figures().reserved, provider.mapped());
    assert!(pool.counters().compactions > 0, "no page was compacted");
    for done in 1..5 {
        assert_eq!(iteration(&mut queue, &pool), first);
        assert_eq!(plans(&pool), (1, 20 * done));
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
    assert_eq!((counters.served(), counters.releases), (100, 100));
    assert_eq!(provider.wrong(), [""; 0]);
}

#[test]
fn live_blocks_from_before_do_not_prevent_a_plan() {
    let (_, pool) = paged();
    let mut queue = Queue::new();
    let weights: Vec<Block> = (1..9).map(|n| queue.alloc(&pool, 640 * n)).collect();
    // One different block before the first iteration.
    let other = queue.alloc(&pool, 10_000);
    queue.free(&pool, &other);
    let used = pool.figures().used;
    let first = iteration(&mut queue, &pool);
    assert!((1..5).all(|_| iteration(&mut queue, &pool) == first));
    assert_eq!(plans(&pool), (1, 80));
    assert_eq!(pool.figures().used, used);
    // These frees end the iteration before its end.
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

/// The iteration is left after each of its steps.
#[test]
fn blocks_of_an_abandoned_iteration_are_found_and_freed() {
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
        // A size that the plan does not have.
        let other = queue.alloc(&pool, 64);
        assert_eq!(pool.figures().used, used + 64);
        found(&pool);
        assert_eq!(pool.lookup(other.addr), Some(other));
        let memory = |block: &Block| provider.memory_at(block.addr, block.addr + block.bytes);
        let taken: Vec<(u64, u64)> = live.iter().flat_map(memory).collect();
        for part in memory(&other) {
            let meets = |own: &(u64, u64)| own.0 < part.0 + part.1 && part.0 < own.0 + own.1;
            assert!(!taken.iter().any(meets), "two live blocks share memory");
        }
        for block in live.iter().chain([&other]) {
            queue.free(&pool, block);
            assert!(pool.lookup(block.addr).is_none());
            assert!(
                pool.release(block.addr, Frontier::new()).is_none(),
                "a second release succeeded"
            );
        }
        assert_eq!(pool.figures().used, 0);
        // No plan can be wanted any more, but pending commands still use the old addresses.
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
fn frees_in_another_order_give_no_memory_twice() {
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
                assert!(!taken.iter().any(meets), "two live blocks share memory");
            }
            live.push(block);
            if live.len() > 2 {
                queue.free(&pool, &live.remove(usize::from(nth == odd)));
            }
        }
        assert_eq!(pool.counters().replay_plans, 1);
    }
}

/// Five times four blocks, freed in the given order while another block is live. Returns the addresses.
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
fn no_plan_has_memory_that_another_queue_may_use() {
    let (_, pool) = pool_of(FakeProvider::new(64));
    let (mut queue, mut other) = (Queue::new(), Queue::new());
    iteration(&mut queue, &pool);
    queue.finish();
    let request = Request::new(64 * (3 + 5 * 19), Order::Sync);
    let reserved = pool.figures().reserved;
    let taken = pool.acquire(&request).expect("there is room").block();
    assert_eq!(pool.figures().reserved, reserved);
    let freed_at = Frontier::from(other.lane.advance());
    pool.release(taken.addr, freed_at).expect("it is live");
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
fn a_block_freed_by_another_queue_is_not_reused_early() {
    let (_, pool) = paged();
    let (mut queue, mut other) = (Queue::new(), Queue::new());
    iteration(&mut queue, &pool);
    let block = queue.alloc(&pool, 64 * 3);
    assert_eq!(plans(&pool), (1, 1));
    let freed_at = other.lane.advance();
    let freed = pool.release(block.addr, Frontier::from(freed_at.clone()));
    assert_eq!(freed, Some(block));
    assert!(
        pool.release(block.addr, Frontier::new()).is_none(),
        "a second release succeeded"
    );
    queue.finish();
    // The request takes all memory, of which the other queue may still use a part.
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
fn a_pool_takes_planned_memory_before_it_grows() {
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
    // The first queue's next iteration does not match the plan, or needs memory that is elsewhere.
    iteration(&mut queue, &pool);
    assert_eq!(pool.lookup(largest.addr), Some(largest));
    other.free(&pool, &largest);
    assert_eq!(pool.figures().used, 0);
}

#[test]
fn trims_and_closing_release_planned_memory() {
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
fn a_record_from_before_a_trim_does_not_end_a_later_one() {
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
fn a_trim_resets_the_backoff_of_a_failed_plan() {
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
fn programs_that_rarely_repeat_get_few_plans() {
    let (_, pool) = pool_of(FakeProvider::new(64));
    let mut queue = Queue::new();
    for round in 0..400 {
        // All rounds begin with equal steps.
        steps(&mut queue, &pool, 17 + round % 7);
    }
    let (made, _) = plans(&pool);
    assert!((1..40).contains(&made), "{made} plans");
}

//! Blocks that lanes cache. The tests use the public interface of a pool.

mod lanes;

use lanes::{Queue, TestPool};
use std::sync::{Arc, Barrier};
use ur::pool::oracle::FakeProvider;
use ur::pool::*;
use ur::timeline::{Frontier, Point};

fn pool() -> TestPool {
    let config = Config {
        min_align: 64,
        chunk_bytes: 0,
        ..Config::default()
    };
    Pool::new(Arc::new(FakeProvider::new(64)), config)
}

impl Queue {
    fn free(&self, block: &Block) {
        let freed = self.cache.free(block.addr, self.lane.epoch());
        assert_eq!(freed, Some(*block));
    }
}

fn sync(pool: &TestPool, bytes: u64) -> Result<Block, PoolError> {
    let request = Request::new(bytes, Order::Sync);
    pool.acquire(&request).map(|acquired| acquired.block())
}

fn used(pool: &TestPool) -> (u64, u64) {
    (pool.figures().used, pool.figures().used_high)
}

#[test]
fn a_cached_block_counts_as_free_and_returns_to_its_lane() {
    let (pool, q) = (pool(), Queue::new());
    let a = q.alloc(&pool, 100);
    assert_eq!((a.bytes, a.requested, used(&pool)), (128, 100, (128, 128)));
    q.free(&a);
    assert_eq!((used(&pool), pool.lookup(a.addr)), ((0, 128), None));
    assert_eq!(q.cache.free(a.addr, 1), None, "a second free in the cache");
    assert!(
        pool.release(a.addr, Frontier::new()).is_none(),
        "a second release succeeded"
    );
    let b = q.alloc(&pool, 127);
    assert_eq!((b.addr, used(&pool)), (a.addr, (128, 128)));
    assert_eq!(pool.lookup(b.addr + 126), Some(b));
    assert_eq!(
        pool.lookup(b.addr + 127),
        None,
        "an address past the requested bytes"
    );
    assert_eq!((pool.counters().own_lane, pool.counters().releases), (1, 1));
}

#[test]
fn any_lane_frees_a_block_of_another_one() {
    let (pool, q, r) = (pool(), Queue::new(), Queue::new());
    let a = q.alloc(&pool, 64);
    assert_eq!(
        r.cache.free(a.addr, 1),
        None,
        "a free in the cache of another lane"
    );
    let death = Frontier::from(Point::new(r.lane.clock(), 1));
    assert_eq!(pool.release(a.addr, death), Some(a));
    assert_eq!(q.cache.free(a.addr, 1), None);
    assert_eq!(used(&pool), (0, 64));
    assert_eq!(
        r.alloc(&pool, 64).addr,
        a.addr,
        "block freed on the same lane"
    );
}

#[test]
fn cached_blocks_serve_other_lanes_before_growth() {
    let (pool, q, mut r) = (pool(), Queue::new(), Queue::new());
    let (a, b) = (q.alloc(&pool, 64), q.alloc(&pool, 64));
    q.free(&a);
    q.free(&b);
    // The block is pending on another lane, so this one may not have it yet.
    let c = r.alloc(&pool, 64);
    assert!(c.addr != a.addr && c.addr != b.addr);
    r.lane.wait_for(&q.lane.frontier());
    let d = r.alloc(&pool, 64);
    assert!(d.addr == a.addr || d.addr == b.addr);
    assert!(sync(&pool, 64).is_ok_and(|e| e.addr != a.addr && e.addr != b.addr));
    q.lane.clock().raise(1);
    let e = sync(&pool, 64).map(|block| block.addr);
    assert!(e != Ok(d.addr) && (e == Ok(a.addr) || e == Ok(b.addr)));
    assert_eq!(used(&pool), (256, 256));
}

#[test]
fn lanes_take_nothing_from_each_other_while_there_is_free_memory() {
    let config = Config {
        min_align: 64,
        chunk_bytes: 1 << 20,
        ..Config::default()
    };
    let pool: TestPool = Pool::new(Arc::new(FakeProvider::new(64)), config);
    let queues: Vec<Queue> = (0..8).map(|_| Queue::new()).collect();
    let round = || {
        for queue in &queues {
            queue.lane.clock().raise(1);
            queue.free(&queue.alloc(&pool, 64));
        }
    };
    round();
    round();
    let before = pool.counters();
    (0..10).for_each(|_| round());
    let after = pool.counters();
    let expected = Counters {
        own_lane: before.own_lane + 80,
        releases: before.releases + 80,
        ..before
    };
    assert_eq!(
        after, expected,
        "counters when each lane has a block of its own"
    );
}

#[test]
fn lanes_that_waited_once_take_no_later_blocks() {
    let pool = pool();
    let mut queues: Vec<Queue> = (0..4).map(|_| Queue::new()).collect();
    let mut last = Frontier::new();
    for round in 0..200 {
        let queue = &mut queues[round % 4];
        queue.lane.wait_for(&last);
        let block = queue.alloc(&pool, 1 << 20);
        queue.lane.advance();
        queue.free(&block);
        last = queue.lane.frontier();
    }
    assert_eq!(
        pool.figures().reserved,
        1 << 20,
        "reserved bytes for one block at a time"
    );
    let round = |queues: &mut [Queue]| {
        for queue in queues {
            let block = queue.alloc(&pool, 64);
            queue.lane.advance();
            queue.free(&block);
            queue.lane.clock().raise(queue.lane.epoch());
        }
    };
    (0..4).for_each(|_| round(&mut queues));
    let before = pool.counters();
    (0..10).for_each(|_| round(&mut queues));
    let after = pool.counters();
    let expected = Counters {
        own_lane: before.own_lane + 40,
        releases: before.releases + 40,
        ..before
    };
    assert_eq!(after, expected);
}

#[test]
fn peaks_follow_used_bytes_and_not_cached_ones() {
    let (pool, q, r) = (pool(), Queue::new(), Queue::new());
    for _ in 0..10 {
        q.free(&q.alloc(&pool, 64));
        r.free(&r.alloc(&pool, 64));
    }
    assert_eq!(
        used(&pool),
        (0, 64),
        "usage of blocks that are never live together"
    );
    let (a, b) = (q.alloc(&pool, 64), r.alloc(&pool, 64));
    assert_eq!(used(&pool), (128, 128));
    q.free(&a);
    pool.reset_used_high();
    assert_eq!(used(&pool), (64, 64));
    let a = q.alloc(&pool, 64);
    assert_eq!(used(&pool), (128, 128));
    q.free(&a);
    r.free(&b);
    assert_eq!(used(&pool), (0, 128));
}

#[test]
fn shared_usage_counts_its_pools_together() {
    let usage = Arc::<Usage>::default();
    // Of one provider: a stream cache tells the blocks of its pools apart by their addresses.
    let provider = Arc::new(FakeProvider::new(64));
    let make = || {
        let provider = Arc::clone(&provider);
        Pool::with_usage(provider, Config::default(), Arc::clone(&usage))
    };
    let (one, two, q) = (make(), make(), Queue::new());
    let a = q.alloc(&one, 256);
    q.free(&a);
    let b = q.alloc(&two, 256);
    assert_eq!(usage.read(), (256, 256));
    let c = q.alloc(&one, 256);
    assert_eq!((c.addr, usage.read()), (a.addr, (512, 512)));
    drop(one);
    q.free(&b);
    assert_eq!(
        usage.read(),
        (256, 512),
        "usage after a pool was dropped with a live block"
    );
}

#[test]
fn trims_and_closing_reach_cached_blocks() {
    let (pool, q) = (pool(), Queue::new());
    let (a, b) = (q.alloc(&pool, 64), q.alloc(&pool, 4096));
    q.free(&a);
    q.lane.clock().raise(1);
    pool.trim(0);
    assert_eq!(pool.figures().reserved, 4096);
    pool.close();
    assert_eq!(q.cache.alloc(pool.key(), 64), None);
    assert_eq!(
        q.cache.free(b.addr, 1),
        None,
        "a free in the cache of a closed pool"
    );
    assert_eq!(pool.release(b.addr, Frontier::new()), Some(b));
    assert!(pool.is_drained());
    assert_eq!(Arc::strong_count(&q.cache), 1);
}

#[test]
fn ended_lanes_leave_no_memory_behind() {
    let (pool, last) = (pool(), Queue::new());
    let mut ended: Option<Arc<StreamCache>> = None;
    for _ in 0..100 {
        let q = Queue::new();
        let (a, b) = (q.alloc(&pool, 64), q.alloc(&pool, 128));
        if let Some(cache) = ended.take() {
            assert_eq!(Arc::strong_count(&cache), 1);
        }
        q.free(&a);
        q.lane.clock().raise(u64::MAX);
        q.cache.retire();
        // The pool checks for ended lanes when it grows or gets a new lane.
        ended = Some(q.cache);
        let c = last.alloc(&pool, 192);
        assert_eq!(pool.release(b.addr, Frontier::new()), Some(b));
        assert!(pool.release(c.addr, last.lane.tip()).is_some());
        last.lane.clock().raise(1);
    }
    assert_eq!(used(&pool).0, 0);
    assert!(pool.figures().reserved <= 1024, "{:?}", pool.figures());
    assert_eq!(pool.counters().served(), pool.counters().releases);
}

#[test]
fn credit_moves_between_lanes_while_no_peak_rises() {
    let (usage, provider) = (Arc::<Usage>::default(), Arc::new(FakeProvider::new(64)));
    let of = |usage: &Arc<Usage>| {
        let config = pool().config();
        Pool::with_usage(Arc::clone(&provider), config, Arc::clone(usage))
    };
    let (pool, other) = (of(&usage), of(&Arc::default()));
    let (q, r, key) = (Queue::new(), Queue::new(), pool.key());
    let blocks = [(&q, 64), (&r, 64), (&r, 128)].map(|(own, bytes)| (own, own.alloc(&pool, bytes)));
    blocks.iter().for_each(|(own, block)| own.free(block));
    let elsewhere = r.alloc(&other, 64);
    r.free(&elsewhere);
    pool.reset_used_high();
    other.reset_used_high();
    q.free(&q.alloc(&pool, 64));
    // Now one lane may have all that can be live without a higher peak.
    assert_eq!((used(&pool), r.cache.alloc(key, 64)), ((0, 64), None));
    assert!(
        !usage.find_quota(&r.cache, other.key(), 64),
        "credit of another usage was found"
    );
    assert!(
        !usage.find_quota(&r.cache, key, 128),
        "more credit than there is was found"
    );
    assert!(usage.find_quota(&r.cache, key, 64));
    let block = r.cache.alloc(key, 64).expect("there is credit");
    assert_eq!((used(&pool), q.cache.alloc(key, 64)), ((64, 64), None));
    assert!(
        !usage.find_quota(&q.cache, key, 64),
        "credit in use was found"
    );
    r.free(&block);
    assert!(usage.find_quota(&q.cache, key, 64));
    assert!(q.cache.alloc(key, 64).is_some());
    assert!(
        !usage.find_quota(&Queue::new().cache, key, 64),
        "a new cache found credit"
    );
    assert_eq!((used(&pool), used(&other)), ((64, 64), (0, 0)));
}

#[test]
fn peaks_are_exact_when_threads_take_turns() {
    // In each round one more thread holds a block, so the peak is known at every step.
    const THREADS: usize = 4;
    let (pool, barrier) = (&pool(), &Barrier::new(THREADS));
    std::thread::scope(|scope| {
        for at in 0..THREADS {
            scope.spawn(move || {
                let q = Queue::new();
                for most in 1..=THREADS {
                    for round in 0..50 {
                        let held = (at + round) % THREADS < most;
                        let block = held.then(|| q.alloc(pool, 256));
                        barrier.wait();
                        assert_eq!(used(pool), (256 * most as u64, 256 * most as u64));
                        barrier.wait();
                        block.iter().for_each(|block| q.free(block));
                        barrier.wait();
                    }
                }
            });
        }
    });
    assert_eq!(used(pool), (0, 256 * THREADS as u64));
}

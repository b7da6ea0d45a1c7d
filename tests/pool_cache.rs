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

/// A pool of pages whose only stream coalesces what dies there.
fn coalescing() -> TestPool {
    let options = Options {
        coalescing: true,
        replay: false,
        growth_share: 0,
        ..Options::default()
    };
    let config = Config {
        min_align: 16,
        options,
        ..Config::default()
    };
    Pool::new(Arc::new(FakeProvider::paged(4096)), config)
}

#[test]
fn what_dies_on_the_only_stream_is_coalesced_there() {
    let (pool, q) = (coalescing(), Queue::new());
    let [a, b, c, end] = [4096, 8192, 4096, 4096].map(|bytes| q.alloc(&pool, bytes));
    q.free(&a);
    q.free(&b);
    // The pool is not asked for what fits.
    let both = q.cache.alloc(pool.key(), 12_000).expect("two blocks");
    assert_eq!((both.addr, both.bytes), (a.addr, 12_032));
    q.free(&c);
    q.free(&both);
    let least = q.cache.alloc(pool.key(), 4000).expect("a part");
    let rest = q.cache.alloc(pool.key(), 12_000).expect("the rest");
    assert_eq!((least.addr, rest.addr), (a.addr, a.addr + 4000));
    assert_eq!(used(&pool), (4000 + 12_032 + 4096, 20_480));
    // The heap has other bounds than these blocks: b began within `rest`.
    assert_eq!(pool.lookup(b.addr), Some(rest));
    assert_eq!(pool.lookup(rest.addr + 11_999), Some(rest));
    assert_eq!(
        pool.lookup(rest.addr + 12_000),
        None,
        "beyond what was asked"
    );
    assert!(pool.release(b.addr, Frontier::new()).is_none(), "no block");
    pool.audit().expect("sums and links");
    let freed = pool.release(rest.addr, Frontier::new());
    assert_eq!(freed, Some(rest), "freed elsewhere");
    pool.audit().expect("sums and links");
    q.free(&least);
    q.free(&end);
    let calls = pool.provider().calls();
    let all = q.alloc(&pool, 20_480);
    assert_eq!(all.addr, a.addr, "what was freed elsewhere joins the rest");
    assert_eq!(pool.provider().calls(), calls, "it grew");
}

#[test]
fn a_request_is_cut_from_the_best_fit() {
    let (pool, q) = (coalescing(), Queue::new());
    let holes = [9000, 5000, 7000, 5000].map(|bytes| {
        let hole = q.alloc(&pool, bytes);
        q.alloc(&pool, 64);
        hole
    });
    holes.iter().for_each(|hole| q.free(hole));
    let alloc = |bytes| q.cache.alloc(pool.key(), bytes).expect("a hole").addr;
    assert_eq!(alloc(6500), holes[2].addr);
    // The lower one of two that fit alike.
    assert_eq!(alloc(4900), holes[1].addr);
    assert_eq!(alloc(4900), holes[3].addr);
    assert_eq!(alloc(8000), holes[0].addr);
    pool.audit().expect("sums and links");
}

/// Growth continues the end of the pool, so that holes serve first even if they fit less well.
#[test]
fn the_end_of_the_pool_is_the_last_fit_of_a_stream_that_coalesces() {
    for coalescing in [true, false] {
        let options = Options {
            coalescing,
            replay: false,
            growth_share: 0,
            growth_mib: 0,
            ..Options::default()
        };
        let config = Config {
            options,
            ..Config::default()
        };
        let pool = Pool::new(Arc::new(FakeProvider::paged(2 << 20)), config);
        let q = Queue::new();
        let [hole, behind] = [2 << 20, 3 << 20].map(|bytes| q.alloc(&pool, bytes));
        assert_eq!(
            behind.addr,
            hole.addr + (2 << 20),
            "one slab of three pages"
        );
        q.free(&hole);
        let end = behind.addr + (3 << 20);
        let place = if coalescing { hole.addr } else { end };
        assert_eq!(q.alloc(&pool, 1 << 20).addr, place, "{coalescing}");
        // What fits nowhere else lies at the end, which grows by what is missing.
        let large = q.alloc(&pool, 2 << 20);
        assert_eq!(large.addr, if coalescing { end } else { hole.addr });
    }
}

#[test]
fn a_second_stream_ends_coalescing() {
    let (pool, first, second) = (coalescing(), Queue::new(), Queue::new());
    let [a, b] = [8192, 8192].map(|bytes| first.alloc(&pool, bytes));
    first.free(&a);
    first.free(&b);
    let cut = first.cache.alloc(pool.key(), 12_000).expect("both blocks");
    // What died on one stream serves the other only after a wait.
    let other = second.alloc(&pool, 8192);
    assert!(other.addr >= b.addr + b.bytes, "memory that is in use");
    pool.audit().expect("sums and links");
    first.free(&cut);
    assert_eq!(pool.lookup(cut.addr), None);
    let again = first.alloc(&pool, 16_384);
    assert_eq!(again.addr, a.addr, "the pool coalesces for several streams");
    pool.audit().expect("sums and links");
    // It begins again once the second stream has done nothing for long.
    second.free(&other);
    first.free(&again);
    for step in 0..3000 {
        let block = first.alloc(&pool, 2048 + 64 * (step % 200));
        first.free(&block);
    }
    let [a, b] = [8192, 8192].map(|bytes| first.alloc(&pool, bytes));
    assert_eq!(b.addr, a.addr + a.bytes);
    first.free(&a);
    first.free(&b);
    let both = first.cache.alloc(pool.key(), 16_384);
    assert_eq!(both.map(|block| block.addr), Some(a.addr));
    pool.audit().expect("sums and links");
}

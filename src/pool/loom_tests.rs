//! Small models of threads that share a pool. Run as `timeline`'s head says.

use crate::pool::oracle::FakeProvider;
use crate::pool::{
    Acquired, Config, ExtentVersion, Options, Order, Pool, PoolError, Request, StreamCache,
};
use crate::sync::{AtomicU64, Ordering};
use crate::timeline::{Clock, Frontier, Lane, Point};
use loom::thread;
use std::sync::Arc;

type TestPool = Pool<Arc<FakeProvider>>;

fn pool(max: u64, chunk: u64) -> Arc<TestPool> {
    let config = Config {
        max_bytes: Some(max),
        chunk_bytes: chunk,
        min_align: 64,
        ..Config::default()
    };
    Arc::new(Pool::new(Arc::new(FakeProvider::new(64)), config))
}

fn ask(
    pool: &TestPool,
    bytes: u64,
    order: Order<'_>,
    may_wait: bool,
) -> Result<Acquired, PoolError> {
    pool.acquire(&Request {
        may_wait,
        ..Request::new(bytes, order)
    })
}

fn now(pool: &TestPool, bytes: u64) -> u64 {
    match ask(pool, bytes, Order::Sync, false) {
        Ok(acquired) => acquired.block().addr,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn loom_a_foreign_death_is_reused_only_once_complete() {
    loom::model(|| {
        let pool = pool(128, 0);
        let old = now(&pool, 64);
        let clock = Clock::new();
        let death = Point::new(&clock, 1);
        let freer = {
            let (pool, death) = (Arc::clone(&pool), death.clone());
            thread::spawn(move || pool.release(old, Frontier::from(death)).is_some())
        };
        let raiser = thread::spawn(move || clock.raise(1));
        let new = now(&pool, 64);
        assert!(new != old || death.is_complete());
        assert_eq!(freer.join().ok(), Some(true));
        let _ = raiser.join();
        // Whatever came first, both blocks' worth of memory is there and no more.
        let third = ask(&pool, 64, Order::Sync, false);
        assert!(third.is_ok());
        assert!(pool.figures().reserved <= 128 && pool.figures().used == 128);
    });
}

#[test]
fn loom_racing_growth_keeps_to_the_maximum_and_serves_both() {
    loom::model(|| {
        let pool = pool(128, 128);
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || now(&pool, 64))
        };
        let mine = now(&pool, 64);
        let theirs = other.join().unwrap_or(mine);
        assert_ne!(mine, theirs);
        assert_eq!((pool.figures().reserved, pool.provider().calls()), (128, 1));
    });
}

#[test]
fn loom_a_trim_in_flight_does_not_starve_a_request() {
    loom::model(|| {
        let pool = pool(128, 128);
        let old = now(&pool, 128);
        assert!(pool.release(old, Frontier::new()).is_some());
        let trimmer = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.trim(0))
        };
        now(&pool, 128);
        let _ = trimmer.join();
        let figures = pool.figures();
        assert_eq!((figures.reserved, figures.reserved_high), (128, 128));
        assert_eq!(pool.provider().bytes_out(), 128);
    });
}

#[test]
fn loom_a_pending_free_serves_with_a_wait_or_without() {
    loom::model(|| {
        let pool = pool(64, 0);
        let mut producer = Lane::new();
        let old = now(&pool, 64);
        producer.advance();
        assert!(pool.release(old, producer.tip()).is_some());
        let raiser = {
            let clock = Arc::clone(producer.clock());
            thread::spawn(move || clock.raise(1))
        };
        let consumer = Lane::new();
        match ask(&pool, 64, Order::Lane(&consumer), true) {
            Ok(Acquired::Ready(_)) => assert!(producer.current().is_complete()),
            Ok(Acquired::After(_, wait)) => assert_eq!(wait, producer.tip()),
            Err(error) => panic!("{error}"),
        }
        let _ = raiser.join();
    });
}

/// A stream that coalesces frees while a second one comes to the pool, which ends that.
#[test]
fn loom_a_second_stream_loses_no_block() {
    loom::model(|| {
        let config = Config {
            min_align: 64,
            options: Options {
                coalescing: true,
                replay: false,
                ..Options::default()
            },
            ..Config::default()
        };
        let pool = Pool::new(Arc::new(FakeProvider::paged(4096)), config);
        let pool = Arc::new(pool);
        let (mut first, second) = (Own::new(), Own::new());
        first.lane.advance();
        let large = first.alloc(&pool, 2048);
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                first.free(&pool, large);
                first
            })
        };
        let theirs = second.alloc(&pool, 2048);
        assert_ne!(large, theirs, "memory that is in use");
        let first = other.join().expect("it does not fail");
        assert_eq!(pool.audit(), Ok(()));
        assert_eq!(first.alloc(&pool, 2048), large);
        assert_eq!(pool.figures().reserved, 4096);
    });
}

#[test]
fn loom_closing_loses_no_slab() {
    loom::model(|| {
        let pool = pool(128, 0);
        let old = now(&pool, 64);
        let freer = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.release(old, Frontier::new()).is_some())
        };
        let grower = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || ask(&pool, 64, Order::Sync, false))
        };
        pool.close();
        assert_eq!(freer.join().ok(), Some(true));
        match grower.join() {
            Ok(Ok(acquired)) => {
                assert!(
                    pool.release(acquired.block().addr, Frontier::new())
                        .is_some()
                )
            }
            Ok(Err(error)) => assert_eq!(error, PoolError::Closed),
            Err(_) => panic!("the other thread failed"),
        }
        assert!(pool.is_drained());
        assert_eq!(pool.provider().bytes_out(), 0);
    });
}

/// A pool of at most `max` bytes in one slab, and a lane with a cache and a block of 64 in it, which
/// died at the lane's first command.
fn cached(max: u64) -> (Arc<TestPool>, Lane, Arc<StreamCache>, u64) {
    cached_with(max, &Arc::default())
}

fn cached_with(
    max: u64,
    version: &Arc<ExtentVersion>,
) -> (Arc<TestPool>, Lane, Arc<StreamCache>, u64) {
    let pool = pool(max, max);
    let mut lane = Lane::new();
    let cache = StreamCache::new(lane.clock(), version);
    let addr = on(&pool, &lane, &cache);
    lane.advance();
    assert!(cache.free(addr, 1).is_some());
    (pool, lane, cache, addr)
}

fn on(pool: &TestPool, lane: &Lane, cache: &Arc<StreamCache>) -> u64 {
    match ask_on(pool, lane, cache, 64) {
        Ok(acquired) => acquired.block().addr,
        Err(error) => panic!("{error}"),
    }
}

fn ask_on(
    pool: &TestPool,
    lane: &Lane,
    cache: &Arc<StreamCache>,
    bytes: u64,
) -> Result<Acquired, PoolError> {
    let order = Order::Lane(lane);
    let request = Request {
        may_wait: true,
        ..Request::new(bytes, order)
    };
    pool.acquire_on(cache, &request)
}

#[test]
fn loom_a_shorter_block_is_known_only_after_the_version_changed() {
    loom::model(|| {
        let version = Arc::<ExtentVersion>::default();
        let (pool, _lane, cache, addr) = cached_with(64, &version);
        let (key, before) = (pool.key(), version.now());
        let seen = Arc::new(AtomicU64::new(0));
        let owner = {
            let seen = Arc::clone(&seen);
            thread::spawn(move || {
                assert!(cache.alloc(key, 32).is_some());
                seen.store(1, Ordering::Release);
            })
        };
        if seen.load(Ordering::Acquire) == 1 {
            assert_ne!(version.now(), before);
        }
        // A query after the change finds the new end.
        if version.now() != before {
            let block = pool.lookup(addr);
            assert!(block.is_some_and(|block| block.requested == 32));
        }
        assert!(owner.join().is_ok());
        assert_ne!(version.now(), before);
    });
}

#[test]
fn loom_a_cached_block_goes_to_its_lane_or_to_another_but_not_to_both() {
    loom::model(|| {
        let (pool, lane, cache, old) = cached(64);
        let key = pool.key();
        let owner = thread::spawn(move || cache.alloc(key, 64).is_some());
        let other = Lane::new();
        let theirs = match ask(&pool, 64, Order::Lane(&other), true) {
            Ok(Acquired::After(block, wait)) => {
                assert_eq!((block.addr, wait), (old, lane.tip()));
                true
            }
            Ok(Acquired::Ready(_)) => panic!("nothing has completed"),
            Err(error) => {
                assert_eq!(error, PoolError::Exhausted { need: 64 });
                false
            }
        };
        let mine = owner.join().unwrap_or(theirs);
        assert_ne!(mine, theirs);
        assert_eq!(pool.figures().used, 64);
    });
}

#[test]
fn loom_quota_moves_and_highs_stay_exact() {
    loom::model(|| {
        let (pool, first, cache, _) = cached(128);
        let mut lane = Lane::new();
        let other = StreamCache::new(lane.clock(), &Arc::default());
        let addr = on(&pool, &lane, &other);
        lane.advance();
        assert!(other.free(addr, 1).is_some());
        // Never were two blocks live at once.
        assert_eq!((pool.figures().used, pool.figures().used_high), (0, 64));
        let thread = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || on(&pool, &lane, &other))
        };
        let mine = on(&pool, &first, &cache);
        let figures = pool.figures();
        assert!(figures.used <= figures.used_high);
        assert_ne!(thread.join().ok(), Some(mine));
        assert_eq!((pool.figures().used, pool.figures().used_high), (128, 128));
    });
}

#[test]
fn loom_of_two_frees_one_is_refused() {
    loom::model(|| {
        let (pool, lane, cache, _) = cached(64);
        let addr = on(&pool, &lane, &cache);
        let owner = {
            let cache = Arc::clone(&cache);
            thread::spawn(move || cache.free(addr, 1).is_some())
        };
        let there = pool.release(addr, Frontier::new()).is_some();
        assert_eq!(owner.join().ok(), Some(!there));
        assert_eq!(pool.figures().used, 0);
    });
}

#[test]
fn loom_a_trim_takes_a_cached_block_or_leaves_it() {
    loom::model(|| {
        let (pool, lane, cache, _) = cached(64);
        lane.clock().raise(1);
        let trimmer = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.trim(0))
        };
        let kept = cache.alloc(pool.key(), 64);
        if kept.is_none() {
            on(&pool, &lane, &cache);
        }
        let _ = trimmer.join();
        let figures = pool.figures();
        assert_eq!((figures.reserved, figures.used), (64, 64));
        assert_eq!(pool.provider().bytes_out(), 64);
    });
}

#[test]
fn loom_closing_takes_back_what_caches_have() {
    loom::model(|| {
        let (pool, lane, cache, _) = cached(64);
        lane.clock().raise(1);
        let owner = {
            let (pool, cache) = (Arc::clone(&pool), Arc::clone(&cache));
            thread::spawn(move || {
                let block = cache.alloc(pool.key(), 64)?;
                if cache.free(block.addr, 1).is_none() {
                    pool.release(block.addr, Frontier::new())?;
                }
                Some(())
            })
        };
        pool.close();
        let _ = owner.join();
        assert!(cache.alloc(pool.key(), 64).is_none());
        assert_eq!((pool.figures().used, pool.is_drained()), (0, true));
        assert_eq!(pool.provider().bytes_out(), 0);
    });
}

/// A lane's requests may come from several threads, and only those that its cache does not serve are
/// made under its lock.
#[test]
fn loom_a_block_taken_out_to_be_cut_is_not_handed_out_whole() {
    loom::model(|| {
        let pool = pool(128, 128);
        let mut lane = Lane::new();
        let cache = StreamCache::new(lane.clock(), &Arc::default());
        let whole = ask_on(&pool, &lane, &cache, 128).expect("there is room");
        lane.advance();
        assert!(cache.free(whole.block().addr, 1).is_some());
        let other = {
            let (key, cache) = (pool.key(), Arc::clone(&cache));
            thread::spawn(move || cache.alloc(key, 128).is_some())
        };
        // No block of this size is cached: one larger is recalled alone.
        let cut = ask_on(&pool, &lane, &cache, 64);
        let handed_out = other.join().expect("it does not fail");
        match cut {
            Ok(acquired) => {
                assert!(!handed_out);
                assert!(matches!(acquired, Acquired::Ready(_)));
                assert_eq!(acquired.block().addr, whole.block().addr);
                // What is left of it is there, and no more.
                assert!(ask_on(&pool, &lane, &cache, 64).is_ok());
            }
            Err(error) => {
                assert!(handed_out);
                assert_eq!(error, PoolError::Exhausted { need: 64 });
            }
        }
        assert_eq!((pool.figures().used, pool.figures().used_high), (128, 128));
    });
}

#[test]
fn loom_a_free_beside_a_recall_loses_nothing() {
    loom::model(|| {
        let pool = pool(256, 256);
        let mut lane = Lane::new();
        let cache = StreamCache::new(lane.clock(), &Arc::default());
        let two = [(); 2].map(|()| ask_on(&pool, &lane, &cache, 128).expect("there is room"));
        let [cached, live] = two.map(|acquired| acquired.block().addr);
        lane.advance();
        assert!(cache.free(cached, 1).is_some());
        let freer = {
            let cache = Arc::clone(&cache);
            thread::spawn(move || cache.free(live, 1).is_some())
        };
        let cut = ask_on(&pool, &lane, &cache, 64).expect("a block is cached");
        assert_eq!(freer.join().ok(), Some(true));
        assert!([cached, live].contains(&cut.block().addr));
        assert_eq!(pool.figures().used, 64);
        // All the rest serves: the other block, and what is left of the one that was cut.
        for bytes in [128, 64] {
            assert!(ask_on(&pool, &lane, &cache, bytes).is_ok());
        }
        assert_eq!((pool.figures().used, pool.provider().calls()), (256, 1));
    });
}

/// A lane with its cache.
struct Own {
    lane: Lane,
    cache: Arc<StreamCache>,
}

impl Own {
    fn new() -> Self {
        let lane = Lane::new();
        let cache = StreamCache::new(lane.clock(), &Arc::default());
        Self { lane, cache }
    }

    fn alloc(&self, pool: &TestPool, bytes: u64) -> u64 {
        let own = self.cache.alloc(pool.key(), bytes);
        let block = own.unwrap_or_else(|| match ask_on(pool, &self.lane, &self.cache, bytes) {
            Ok(acquired) => acquired.block(),
            Err(error) => panic!("{error}"),
        });
        block.addr
    }

    fn free(&self, pool: &TestPool, addr: u64) {
        let freed = self.cache.free(addr, self.lane.epoch()).is_some();
        assert!(freed || pool.release(addr, self.lane.tip()).is_some());
    }

    /// Three blocks, each freed after the next one's request, and then all is complete.
    fn turn(&mut self, pool: &TestPool, more: u64) {
        let mut before = None;
        for nth in 1..4 {
            let addr = self.alloc(pool, 64 * (2 * nth + more));
            self.lane.advance();
            if let Some(before) = before.replace(addr) {
                self.free(pool, before);
            }
        }
        before.into_iter().for_each(|last| self.free(pool, last));
        self.lane.clock().raise(self.lane.epoch());
    }
}

/// Two lanes that have had the same memory in turn, and have a plan of it together when the first begins.
fn in_turn() -> (Arc<TestPool>, [Own; 2]) {
    let pool = pool(1 << 13, 0);
    let mut lanes = [Own::new(), Own::new()];
    for _ in 0..2 {
        let [first, second] = &mut lanes;
        first.turn(&pool, 0);
        second.turn(&pool, 1);
    }
    let counters = pool.counters();
    assert_eq!((counters.shared_plans, counters.replayed_shared), (1, 6));
    (pool, lanes)
}

#[test]
fn loom_a_shared_plan_that_ends_leaves_what_is_live() {
    loom::model(|| {
        let (pool, [first, second]) = in_turn();
        let other = {
            let pool = Arc::clone(&pool);
            // Another size than it had: the plan ends.
            thread::spawn(move || (second.alloc(&pool, 256), second))
        };
        let mine = first.alloc(&pool, 128);
        let (theirs, second) = other.join().expect("it does not fail");
        assert!(
            mine + 128 <= theirs || theirs + 256 <= mine,
            "{mine} {theirs}"
        );
        assert_eq!(pool.figures().used, 384);
        first.free(&pool, mine);
        second.free(&pool, theirs);
        assert_eq!(pool.figures().used, 0);
    });
}

#[test]
fn loom_the_quota_of_a_shared_plan_keeps_highs_exact() {
    loom::model(|| {
        let (pool, [first, second]) = in_turn();
        pool.reset_used_high();
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                let addr = first.alloc(&pool, 128);
                first.free(&pool, addr);
            })
        };
        let third = now(&pool, 64);
        let high = pool.figures().used_high;
        assert!([64, 128, 192].contains(&high), "{high}");
        other.join().expect("it does not fail");
        let figures = pool.figures();
        assert!(
            figures.used == 64 && [128, 192].contains(&figures.used_high),
            "{figures:?}"
        );
        assert!(pool.release(third, Frontier::new()).is_some());
        drop(second);
    });
}

//! Faults and ends: providers that fail, pools that close, and invalid requests.

use std::sync::Arc;
use ur::pool::oracle::{FakeProvider, Rng};
use ur::pool::*;
use ur::timeline::{Frontier, Lane};

type TestPool = Pool<Arc<FakeProvider>>;

fn make(provider: FakeProvider, config: Config) -> (Arc<FakeProvider>, TestPool) {
    let provider = Arc::new(provider);
    let pool = Pool::new(
        Arc::clone(&provider),
        Config {
            min_align: 64,
            options: Options {
                compaction: Compaction::Always,
                growth_share: 0,
                ..Options::default()
            },
            ..config
        },
    );
    (provider, pool)
}

fn small() -> Config {
    Config {
        chunk_bytes: 0,
        ..Config::default()
    }
}

fn request(bytes: u64, order: Order<'_>) -> Request<'_> {
    Request {
        may_wait: true,
        ..Request::new(bytes, order)
    }
}

fn sync(pool: &TestPool, bytes: u64) -> Result<Block, PoolError> {
    pool.acquire(&request(bytes, Order::Sync))
        .map(|acquired| acquired.block())
}

/// A lane with one pending command.
fn busy() -> Lane {
    let mut lane = Lane::new();
    lane.advance();
    lane
}

/// Allocates and frees on two lanes so that growth, reuse and trims occur. Returns the errors.
fn scripted(pool: &TestPool, provider: &FakeProvider) -> Vec<PoolError> {
    let mut lanes = [busy(), busy()];
    let mut rng = Rng::new(7);
    let mut live = Vec::new();
    let mut errors = Vec::new();
    for round in 0..120 {
        let lane = &mut lanes[rng.below(2) as usize];
        lane.advance();
        if live.len() < 4 || rng.chance(55) {
            let bytes = 1 + rng.below(3000);
            match pool.acquire(&request(bytes, Order::Lane(lane))) {
                Ok(acquired) => {
                    acquired
                        .wait()
                        .into_iter()
                        .for_each(|wait| lane.wait_for(wait));
                    live.push(acquired.block());
                }
                Err(error) => errors.push(error),
            }
        } else {
            let block = live.swap_remove(rng.below(live.len() as u64) as usize);
            // The other lane does not use the block.
            assert_eq!(pool.release(block.addr, lane.tip()), Some(block));
        }
        if round % 40 == 39 {
            lane.frontier().mark_complete();
            pool.trim(4096);
        }
        let figures = pool.figures();
        assert_eq!(figures.reserved, provider.bytes_out());
        assert_eq!(
            figures.used,
            live.iter().map(|block| block.bytes).sum::<u64>()
        );
    }
    let served = pool.counters().served() as usize;
    let releases = pool.counters().releases as usize;
    assert_eq!(served - releases, live.len());
    for block in live {
        assert_eq!(pool.release(block.addr, Frontier::new()), Some(block));
    }
    lanes
        .iter()
        .for_each(|lane| lane.frontier().mark_complete());
    pool.close();
    assert!(pool.is_drained());
    assert_eq!((provider.bytes_out(), provider.wrong()), (0, vec![]));
    let counters = pool.counters();
    assert_eq!(counters.grown_bytes, counters.trimmed_bytes);
    assert!(provider.page().is_some() || counters.growths == counters.trims);
    errors
}

#[test]
fn compaction_survives_a_failure_of_each_call() {
    let (provider, pool) = make(FakeProvider::paged(256), small());
    assert_eq!(scripted(&pool, &provider), []);
    let calls = provider.calls();
    assert!(pool.counters().compactions > 5, "{:?}", pool.counters());
    for nth in 0..calls {
        for error in [ProviderError::OutOfMemory, ProviderError::Other(-997)] {
            let (provider, pool) = make(FakeProvider::paged(256), small());
            provider.fail_at(nth, error);
            let failed = scripted(&pool, &provider);
            let one = failed.is_empty() || failed == [PoolError::Provider(error)];
            assert!(one, "call {nth}: {failed:?}");
        }
    }
}

#[test]
fn a_failed_compaction_leaves_blocks_and_dependencies() {
    let config = Config {
        max_bytes: Some(6 * 256),
        ..small()
    };
    let (provider, pool) = make(FakeProvider::paged(256), config);
    let (lane, other) = (busy(), busy());
    let on = |lane, bytes| {
        pool.acquire(&Request {
            may_wait: false,
            ..request(bytes, Order::Lane(lane))
        })
    };
    let blocks = [256; 4].map(|bytes| on(&lane, bytes).expect("room").block());
    for block in [blocks[0], blocks[2]] {
        assert_eq!(pool.release(block.addr, lane.tip()), Some(block));
    }
    // Neither behind the pool's last slab nor elsewhere.
    provider.fail_calls(0..2, ProviderError::OutOfMemory);
    let grown = on(&lane, 512).expect("there is room to grow").block();
    assert_eq!(
        (pool.counters().compactions, pool.figures().reserved),
        (0, 6 * 256)
    );
    assert_eq!(on(&other, 256), Err(PoolError::Exhausted { need: 256 }));
    // Its own lane finds it free, and now its pages move.
    assert_eq!(pool.release(grown.addr, Frontier::new()), Some(grown));
    assert!(on(&lane, 1024).is_ok());
    assert_eq!(
        (pool.counters().compactions, pool.figures().reserved),
        (1, 6 * 256)
    );
}

#[test]
fn a_pool_survives_a_failure_of_each_call_of_its_source() {
    for chunk_bytes in [0, 8192] {
        let config = Config {
            chunk_bytes,
            ..Config::default()
        };
        let (provider, pool) = make(FakeProvider::new(64), config);
        assert_eq!(scripted(&pool, &provider), []);
        let calls = provider.calls();
        assert!(calls > 5, "the script grows too seldom");
        for nth in 0..calls {
            for error in [ProviderError::OutOfHostMemory, ProviderError::Other(-997)] {
                let (provider, pool) = make(FakeProvider::new(64), config);
                provider.fail_at(nth, error);
                assert_eq!(
                    scripted(&pool, &provider),
                    [PoolError::Provider(error)],
                    "call {nth}"
                );
            }
            // The pool survives one refusal of memory: it asks for less in another call.
            let (provider, pool) = make(FakeProvider::new(64), config);
            provider.fail_at(nth, ProviderError::OutOfMemory);
            assert_eq!(scripted(&pool, &provider), [], "call {nth}");
        }
    }
}

#[test]
fn an_exhausted_source_acts_as_a_maximum() {
    for capacity in (2048..16384).step_by(512) {
        let (provider, pool) = make(
            FakeProvider::new(64),
            Config {
                chunk_bytes: 4096,
                ..small()
            },
        );
        provider.set_capacity(Some(capacity));
        for error in scripted(&pool, &provider) {
            assert_eq!(error, PoolError::Provider(ProviderError::OutOfMemory));
        }
    }
}

#[test]
fn pending_frees_serve_when_the_source_is_exhausted() {
    let (provider, pool) = make(FakeProvider::new(64), small());
    provider.set_capacity(Some(128));
    let (owner, other) = (busy(), busy());
    let block = pool
        .acquire(&request(128, Order::Lane(&owner)))
        .expect("fits")
        .block();
    let refused = pool.acquire(&request(64, Order::Lane(&other)));
    assert_eq!(
        refused,
        Err(PoolError::Provider(ProviderError::OutOfMemory))
    );
    pool.release(block.addr, owner.tip()).expect("live");
    let mut nowait = request(64, Order::Lane(&other));
    nowait.may_wait = false;
    assert_eq!(
        pool.acquire(&nowait),
        Err(PoolError::Provider(ProviderError::OutOfMemory))
    );
    let after = pool
        .acquire(&request(64, Order::Lane(&other)))
        .expect("pending");
    assert_eq!(after.wait(), Some(&owner.tip()));
    assert_eq!((pool.counters().waited, pool.counters().waits), (1, 1));
}

#[test]
fn idle_slabs_are_released_before_an_exhausted_source_fails_a_request() {
    let (provider, pool) = make(FakeProvider::new(64), small());
    provider.set_capacity(Some(256));
    let blocks = [
        sync(&pool, 128).expect("fits"),
        sync(&pool, 128).expect("fits"),
    ];
    for block in blocks {
        pool.release(block.addr, Frontier::new()).expect("live");
    }
    assert_eq!(sync(&pool, 256).map(|block| block.bytes), Ok(256));
    assert_eq!(pool.counters().trims, 2);
}

#[test]
fn the_host_can_wait_for_pending_slabs() {
    let (_, pool) = make(
        FakeProvider::new(64),
        Config {
            max_bytes: Some(256),
            ..small()
        },
    );
    let lane = busy();
    for block in [sync(&pool, 128), sync(&pool, 128)].map(|block| block.expect("fits")) {
        pool.release(block.addr, lane.tip()).expect("live");
    }
    let big = request(256, Order::Lane(&lane));
    assert_eq!(pool.acquire(&big), Err(PoolError::Exhausted { need: 256 }));
    let wait = pool.awaited(&big, Some(0), Vec::new());
    assert_eq!(wait, Some(lane.tip()));
    lane.tip().mark_complete();
    assert!(pool.acquire(&big).is_ok());
}

#[test]
fn the_host_waits_for_no_more_than_makes_room() {
    let make = |waits| {
        make(
            FakeProvider::new(64),
            Config {
                max_bytes: Some(256),
                waits,
                ..small()
            },
        )
    };
    let (_, pool) = make(WaitPolicy::Bounded);
    let (near, far) = (busy(), busy());
    let mut further = busy();
    (0..9).for_each(|_| drop(further.advance()));
    let deaths = [further.tip(), near.tip(), far.tip(), near.tip()];
    let blocks = deaths.clone().map(|_| sync(&pool, 64).expect("fits"));
    for (block, death) in blocks.iter().zip(deaths) {
        pool.release(block.addr, death).expect("live");
    }
    let ask = |bytes| pool.awaited(&request(bytes, Order::Sync), Some(0), Vec::new());
    assert_eq!(
        ask(64),
        Some(near.tip()),
        "the lane with the fewest pending commands"
    );
    assert_eq!(ask(128), Some(near.tip()), "two slabs of one lane");
    let mut both = near.tip();
    both.join(&far.tip());
    assert_eq!(
        ask(192),
        Some(both),
        "without the lane with the most pending commands"
    );
    assert_eq!(ask(320), None, "a wait although none suffices");
    let room = pool.awaited(&request(320, Order::Sync), Some(64), Vec::new());
    assert_eq!(room.map(|wait| wait.len()), Some(3), "lanes to wait for");
    let elsewhere = ur::pool::Releasable {
        bytes: 192,
        death: Frontier::new(),
    };
    let room = pool.awaited(&request(256, Order::Sync), Some(0), vec![elsewhere]);
    assert_eq!(room, Some(near.tip()), "with idle memory of another pool");

    let (_, pool) = make(WaitPolicy::Never);
    let block = sync(&pool, 256).expect("fits");
    pool.release(block.addr, near.tip()).expect("live");
    let wait = pool.awaited(&request(256, Order::Sync), Some(0), Vec::new());
    assert_eq!(wait, None, "a wait that the policy forbids");
}

#[test]
fn invalid_requests_change_nothing() {
    let (provider, pool) = make(FakeProvider::new(64), small());
    let odd = |bytes, align| {
        pool.acquire(&Request {
            align,
            ..request(bytes, Order::Sync)
        })
    };
    assert_eq!(odd(0, 0), Err(PoolError::InvalidSize));
    assert_eq!(odd(u64::MAX, 0), Err(PoolError::InvalidSize));
    assert_eq!(odd(64, 48), Err(PoolError::InvalidAlignment));
    assert_eq!(odd(1 << 63, 1 << 63), Err(PoolError::InvalidAlignment));
    assert_eq!(
        odd(1 << 62, 0),
        Err(PoolError::Provider(ProviderError::OutOfMemory))
    );
    assert_eq!(
        (provider.bytes_out(), pool.figures()),
        (0, Figures::default())
    );
}

#[test]
fn only_the_start_of_a_live_block_can_be_released() {
    let (_, pool) = make(FakeProvider::new(64), small());
    let block = sync(&pool, 100).expect("fits");
    assert_eq!((block.bytes, block.requested), (128, 100));
    for addr in [0, block.addr - 1, block.addr + 1, block.addr + 64, u64::MAX] {
        assert_eq!(pool.release(addr, Frontier::new()), None);
    }
    assert_eq!(pool.lookup(block.addr + 99), Some(block));
    assert_eq!(
        (pool.lookup(block.addr + 100), pool.lookup(block.addr - 1)),
        (None, None)
    );
    assert_eq!(pool.release(block.addr, Frontier::new()), Some(block));
    assert_eq!(pool.lookup(block.addr), None);
    assert!(pool.release(block.addr, Frontier::new()).is_none());
    assert_eq!((pool.counters().releases, pool.figures().used), (1, 0));
}

#[test]
fn peaks_are_reset_to_the_present_values() {
    let (_, pool) = make(FakeProvider::new(64), small());
    let blocks = [64, 128].map(|bytes| sync(&pool, bytes).expect("fits"));
    pool.release(blocks[1].addr, Frontier::new()).expect("live");
    let high = Figures {
        reserved: 192,
        reserved_high: 192,
        used: 64,
        used_high: 192,
    };
    assert_eq!(pool.figures(), high);
    pool.reset_used_high();
    assert_eq!(
        pool.figures(),
        Figures {
            used_high: 64,
            ..high
        }
    );
    pool.trim(64);
    pool.reset_reserved_high();
    assert_eq!(
        pool.figures(),
        Figures {
            reserved: 64,
            reserved_high: 64,
            used: 64,
            used_high: 64
        }
    );
}

#[test]
fn a_closed_pool_drains_as_frees_complete() {
    let (provider, pool) = make(FakeProvider::new(64), small());
    let lane = busy();
    let [idle, dying, live] = [64, 128, 256].map(|bytes| sync(&pool, bytes).expect("fits"));
    pool.release(idle.addr, Frontier::new()).expect("live");
    pool.release(dying.addr, lane.tip()).expect("live");
    pool.close();
    assert_eq!(provider.bytes_out(), 384);
    assert_eq!(sync(&pool, 64), Err(PoolError::Closed));
    lane.clock().raise(1);
    pool.settle();
    assert_eq!(provider.bytes_out(), 256);
    assert!(!pool.is_drained());
    assert_eq!(pool.lookup(live.addr), Some(live));
    pool.release(live.addr, lane.tip()).expect("live");
    assert!(pool.is_drained());
    assert_eq!(provider.bytes_out(), 0);
}

#[test]
fn a_dropped_pool_leaves_memory_in_use_alone() {
    let (provider, pool) = make(FakeProvider::new(64), small());
    let lane = busy();
    let [idle, dying, _live] = [64, 128, 256].map(|bytes| sync(&pool, bytes).expect("fits"));
    pool.release(idle.addr, Frontier::new()).expect("live");
    pool.release(dying.addr, lane.tip()).expect("live");
    drop(pool);
    assert_eq!(provider.bytes_out(), 128 + 256);
}

#[test]
fn a_source_that_breaks_its_contract_does_no_harm() {
    // The bases are one byte off, so each slab loses a unit and alignment needs padding.
    let (provider, pool) = make(FakeProvider::skewed(4096, 1), small());
    for align in [0, 64, 4096, 1 << 16] {
        let block = pool.acquire(&Request {
            align,
            ..request(4096, Order::Sync)
        });
        let block = block.expect("served").block();
        assert!(block.addr.is_multiple_of(align.max(64)));
        pool.release(block.addr, Frontier::new()).expect("live");
    }
    pool.close();
    assert_eq!((pool.is_drained(), provider.bytes_out()), (true, 0));
}

/// Gives this many quarters of the requested size.
#[derive(Debug)]
struct Quarters(FakeProvider, u64);

impl SlabProvider for Quarters {
    fn acquire(&self, bytes: u64) -> Result<Slab, ProviderError> {
        self.0.acquire(bytes / 4 * self.1)
    }
    fn release(&self, slab: Slab) {
        self.0.release(slab);
    }
    fn granularity(&self) -> u64 {
        64
    }
}

#[test]
fn a_slab_of_the_wrong_size_is_released() {
    let config = Config {
        max_bytes: Some(4096),
        min_align: 64,
        ..small()
    };
    for quarters in [2, 5] {
        let pool = Pool::new(Quarters(FakeProvider::new(64), quarters), config);
        let answer = pool.acquire(&request(4096, Order::Sync));
        assert_eq!(answer, Err(PoolError::Provider(ProviderError::OutOfMemory)));
        assert_eq!(
            (pool.provider().0.bytes_out(), pool.figures().reserved),
            (0, 0)
        );
    }
    // The pool accepts more than it requested, within the maximum.
    let pool = Pool::new(Quarters(FakeProvider::new(64), 5), config);
    assert!(pool.acquire(&request(2048, Order::Sync)).is_ok());
    assert_eq!(pool.figures().reserved, 2560);
}

#[test]
fn user_memory_is_a_source_of_one_slab() {
    // With a maximum of one chunk the pool takes it whole and never more.
    let config = Config {
        max_bytes: Some(1000),
        chunk_bytes: 1000,
        ..Config::default()
    };
    let (provider, pool) = make(FakeProvider::new(1), config);
    let block = sync(&pool, 500).expect("fits");
    assert_eq!((provider.calls(), pool.figures().reserved), (1, 1000));
    assert!(sync(&pool, 400).is_ok());
    assert_eq!(sync(&pool, 400), Err(PoolError::Exhausted { need: 448 }));
    pool.release(block.addr, Frontier::new()).expect("live");
    assert!(sync(&pool, 400).is_ok());
    assert_eq!(provider.calls(), 1);
}

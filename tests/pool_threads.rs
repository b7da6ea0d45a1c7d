//! Threads that share one pool. Each has its own lane and frees blocks of the others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use ur::pool::oracle::{FakeProvider, Rng};
use ur::pool::*;
use ur::timeline::{Frontier, Lane};

const THREADS: usize = 8;
const MAX: u64 = 256 << 10;

/// A model of the memory: live ranges, and the frees of the ranges before them.
///
/// The keys are the provider's numbers of memory, which stay when its address changes.
#[derive(Default)]
struct Shadow {
    live: BTreeMap<u64, u64>,
    dead: BTreeMap<u64, (u64, Frontier)>,
}

impl Shadow {
    /// Adds a block. Earlier frees of its memory must be ordered before the allocation.
    fn enter(&mut self, (start, bytes): (u64, u64), ordered: impl Fn(&Frontier) -> bool) {
        let end = start + bytes;
        let below = self.live.range(..end).next_back();
        assert!(
            below.is_none_or(|(_, live_end)| *live_end <= start),
            "two live blocks share memory"
        );
        let over: Vec<u64> = self
            .dead
            .range(..end)
            .rev()
            .map(|(addr, _)| *addr)
            .collect();
        for addr in over {
            let Some((dead_end, freed_at)) = self.dead.get(&addr).cloned() else {
                continue;
            };
            if dead_end <= start {
                // Free ranges do not overlap, so those below end before `start`.
                break;
            }
            assert!(ordered(&freed_at), "memory in use was given away");
            self.dead.remove(&addr);
            if addr < start {
                self.dead.insert(addr, (start, freed_at.clone()));
            }
            if dead_end > end {
                self.dead.insert(end, (dead_end, freed_at));
            }
        }
        self.live.insert(start, end);
    }

    fn leave(&mut self, (start, bytes): (u64, u64), freed_at: &Frontier) {
        assert_eq!(self.live.remove(&start), Some(start + bytes));
        self.dead.insert(start, (start + bytes, freed_at.clone()));
    }
}

struct SharedPool {
    pool: Pool<Arc<FakeProvider>>,
    shadow: Mutex<Shadow>,
    failed: AtomicU64,
    /// Whether lanes cache blocks.
    caches: bool,
}

impl SharedPool {
    fn shadow(&self) -> std::sync::MutexGuard<'_, Shadow> {
        self.shadow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self, block: &Block) -> Vec<(u64, u64)> {
        let provider = self.pool.provider();
        provider.memory_at(block.addr, block.addr + block.bytes)
    }

    fn acquire(
        &self,
        cache: &Arc<StreamCache>,
        request: &Request<'_>,
    ) -> Result<Acquired, PoolError> {
        if !self.caches {
            return self.pool.acquire(request);
        }
        match cache.alloc(self.pool.key(), request.bytes) {
            Some(block) => Ok(Acquired::Ready(block)),
            None => self.pool.acquire_on(cache, request),
        }
    }

    fn allocate(&self, lane: &mut Lane, cache: &Arc<StreamCache>, rng: &mut Rng) -> Option<Block> {
        let most = if rng.chance(5) { 32768 } else { 2048 };
        let bytes = 1 + rng.below(most);
        let order = Order::Lane(lane);
        let may_wait = rng.chance(80);
        let request = Request {
            may_wait,
            ..Request::new(bytes, order)
        };
        match self.acquire(cache, &request) {
            Ok(acquired) => {
                acquired
                    .wait()
                    .into_iter()
                    .for_each(|wait| lane.wait_for(wait));
                let block = acquired.block();
                let memory = self.memory(&block);
                let mut shadow = self.shadow();
                for part in memory {
                    shadow.enter(part, |freed_at| lane.ordered(freed_at));
                }
                Some(block)
            }
            Err(PoolError::Exhausted { .. }) => {
                self.pool.record_failure();
                self.failed.fetch_add(1, Ordering::Relaxed);
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn free(&self, lane: &Lane, cache: &StreamCache, block: &Block) {
        let freed_at = lane.tip();
        // The model changes before the pool, since another thread may get the block at once.
        let memory = self.memory(block);
        let mut shadow = self.shadow();
        memory
            .iter()
            .for_each(|part| shadow.leave(*part, &freed_at));
        drop(shadow);
        let alone = lane.tip_epoch().filter(|_| self.caches);
        let cached = alone.and_then(|epoch| cache.free(block.addr, epoch));
        let freed = cached.or_else(|| self.pool.release(block.addr, freed_at));
        assert_eq!(freed, Some(*block));
    }
}

type SentBlock = (Block, Frontier);

fn work(
    shared: &SharedPool,
    seed: u64,
    to: &Sender<SentBlock>,
    from: &Receiver<SentBlock>,
    rounds: usize,
) {
    let mut rng = Rng::new(seed);
    let mut lane = Lane::new();
    let cache = StreamCache::new(lane.clock(), &Arc::default());
    let mut held: Vec<Block> = Vec::new();
    for _ in 0..rounds {
        lane.advance();
        match rng.below(100) {
            0..45 if held.len() < 24 => held.extend(shared.allocate(&mut lane, &cache, &mut rng)),
            45..60 if !held.is_empty() => {
                let block = held.swap_remove(rng.below(held.len() as u64) as usize);
                // Another thread frees the block after this point.
                let _ = to.send((block, lane.frontier()));
            }
            60..64 => lane
                .clock()
                .raise(lane.epoch().saturating_sub(rng.below(20))),
            64 => shared.pool.trim(rng.below(MAX)),
            65 => shared.pool.settle(),
            _ if !held.is_empty() => shared.free(&lane, &cache, &held.swap_remove(0)),
            _ => {}
        }
        for (block, event) in from.try_iter() {
            lane.wait_for(&event);
            shared.free(&lane, &cache, &block);
        }
    }
    held.iter()
        .for_each(|block| shared.free(&lane, &cache, block));
    lane.clock().raise(u64::MAX);
    cache.retire();
}

#[test]
fn threads_share_a_pool_without_sharing_memory() {
    share(false, FakeProvider::new(4096), Options::default());
}

#[test]
fn threads_with_caches_share_a_pool_without_sharing_memory() {
    share(true, FakeProvider::new(4096), Options::default());
}

#[test]
fn threads_share_pages_that_move() {
    let usual = Options::default();
    let gathers = share(true, FakeProvider::paged(1024), usual)
        + share(false, FakeProvider::mixed(1024, 2048), usual);
    assert!(gathers > 0);
}

/// A thread coalesces until another one comes, which may be while it frees.
#[test]
fn threads_that_begin_to_coalesce_share_a_pool() {
    let options = Options {
        coalescing: true,
        replay: false,
        ..Options::default()
    };
    share(true, FakeProvider::paged(1024), options);
}

/// Runs the threads and returns the number of compactions.
fn share(caches: bool, provider: FakeProvider, options: Options) -> u64 {
    let rounds = if std::env::var_os("UR_LONG").is_some() {
        500_000
    } else {
        5_000
    };
    let provider = Arc::new(provider);
    let config = Config {
        max_bytes: Some(MAX),
        chunk_bytes: 16384,
        release_threshold: MAX / 2,
        options,
        ..Config::default()
    };
    let shared = SharedPool {
        pool: Pool::new(Arc::clone(&provider), config),
        shadow: Mutex::default(),
        failed: AtomicU64::new(0),
        caches,
    };
    let (mut to, mut from): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| channel()).unzip();
    to.rotate_left(1);
    let leftover: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = to
            .into_iter()
            .zip(from.drain(..))
            .enumerate()
            .map(|(seed, (to, from))| {
                let shared = &shared;
                scope.spawn(move || {
                    work(shared, seed as u64, &to, &from, rounds);
                    drop(to);
                    // Blocks that arrive after this thread's last round.
                    let lane = Lane::new();
                    let cache = StreamCache::new(lane.clock(), &Arc::default());
                    for (block, _) in from {
                        shared.free(&lane, &cache, &block);
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .filter_map(|thread| thread.join().err())
            .collect()
    });
    assert!(leftover.is_empty(), "a thread failed");
    finish(&shared, &provider);
    shared.pool.counters().compactions
}

fn finish(shared: &SharedPool, provider: &FakeProvider) {
    let pool = &shared.pool;
    let (figures, counters) = (pool.figures(), pool.counters());
    assert_eq!(figures.used, 0);
    assert_eq!(figures.reserved, provider.bytes_out());
    assert!(figures.reserved_high <= MAX && figures.used_high <= figures.reserved_high);
    assert_eq!(counters.served(), counters.releases);
    assert_eq!(counters.failed, shared.failed.load(Ordering::Relaxed));
    // Contention depends on the threads' timing, so no single kind of reuse is certain.
    let crossed = counters.ordered + counters.completed + counters.waited;
    assert!(counters.own_lane > 0 && crossed > 0, "{counters:?}");
    pool.close();
    assert!(pool.is_drained());
    assert_eq!((provider.bytes_out(), provider.wrong()), (0, vec![]));
}

#[test]
fn peaks_are_exact_when_threads_race() {
    // Every thread holds one block at a barrier, so the peak is exactly their sum.
    let pool = Pool::new(
        FakeProvider::new(64),
        Config {
            min_align: 64,
            ..Config::default()
        },
    );
    let (pool, barrier) = (&pool, &std::sync::Barrier::new(THREADS));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(move || {
                let mut lane = Lane::new();
                for _ in 0..200 {
                    lane.advance();
                    let order = Order::Lane(&lane);
                    let request = Request::new(64, order);
                    let block = pool.acquire(&request).expect("no limit").block();
                    barrier.wait();
                    pool.release(block.addr, lane.tip()).expect("live");
                    barrier.wait();
                }
            });
        }
    });
    assert_eq!(pool.figures().used_high, 64 * THREADS as u64);
    assert_eq!(pool.figures().used, 0);
}

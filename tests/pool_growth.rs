//! How a pool grows: its queries before growth, and its use of memory that comes for one request.

use std::sync::atomic::{AtomicU64, Ordering};
use ur::pool::*;
use ur::timeline::Lane;

const PAGE: u64 = 4096;

/// Contiguous memory from a base on, with completion that must be queried.
struct LinearSource {
    next: AtomicU64,
    requests: AtomicU64,
    queries: AtomicU64,
}

impl LinearSource {
    fn from(base: u64) -> Self {
        Self {
            next: AtomicU64::new(base),
            requests: AtomicU64::new(0),
            queries: AtomicU64::new(0),
        }
    }

    /// The numbers of requests for memory and of queries for completion.
    fn requests(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.requests), load(&self.queries))
    }
}

impl SlabProvider for LinearSource {
    fn acquire(&self, bytes: u64) -> Result<Slab, ProviderError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let base = self.next.fetch_add(bytes, Ordering::Relaxed);
        Ok(Slab { base, bytes })
    }

    fn release(&self, _: Slab) {}

    fn observes(&self) -> bool {
        true
    }

    fn observe(&self) {
        self.queries.fetch_add(1, Ordering::Relaxed);
    }

    fn granularity(&self) -> u64 {
        PAGE
    }

    /// Not always kept, as the contract of `SlabProvider` allows.
    fn alignment(&self) -> u64 {
        2 * PAGE
    }
}

fn pool(base: u64) -> Pool<LinearSource> {
    let config = Config {
        min_align: 256,
        chunk_bytes: 0,
        ..Config::default()
    };
    Pool::new(LinearSource::from(base), config)
}

fn alloc(
    pool: &Pool<LinearSource>,
    order: Order<'_>,
    (bytes, align): (u64, u64),
) -> (Block, DecisionTrace) {
    let decision = std::cell::RefCell::default();
    let request = Request {
        bytes,
        align,
        order,
        may_wait: false,
        decision: Some(&decision),
    };
    let block = pool.acquire(&request).expect("there is memory").block();
    (block, decision.into_inner())
}

#[test]
fn memory_acquired_for_a_request_is_its_block() {
    let pool = pool(16 * PAGE);
    for nth in 0..3 {
        let (block, decision) = alloc(&pool, Order::Sync, (PAGE, 0));
        assert_eq!((block.addr, block.bytes), ((16 + nth) * PAGE, PAGE));
        assert_eq!(decision.reuse, Some(Reuse::Grown));
        assert_eq!(pool.lookup(block.addr + PAGE - 1), Some(block));
    }
    let figures = pool.figures();
    assert_eq!((figures.reserved, figures.used), (3 * PAGE, 3 * PAGE));
    assert_eq!(pool.counters().grown, 3);
    // All blocks are live, so a query for completion cannot help.
    assert_eq!(pool.provider().requests(), (3, 0));
}

#[test]
fn completion_is_queried_while_frees_are_pending() {
    let (pool, mut lane) = (pool(16 * PAGE), Lane::new());
    lane.advance();
    let (block, _) = alloc(&pool, Order::Sync, (PAGE, 0));
    pool.release(block.addr, lane.tip()).expect("it is live");
    // The block was freed on a queue that this request does not follow.
    let (other, _) = alloc(&pool, Order::Sync, (PAGE, 0));
    assert_ne!(other.addr, block.addr);
    assert_eq!(pool.provider().requests(), (2, 1));
}

#[test]
fn unaligned_memory_is_not_used_whole() {
    let pool = pool(17 * PAGE);
    let (block, _) = alloc(&pool, Order::Sync, (2 * PAGE, 2 * PAGE));
    assert!(block.addr.is_multiple_of(2 * PAGE), "{:#x}", block.addr);
}

//! How a pool grows: whom it asks what before, and what becomes of memory that comes for one request.

use std::sync::atomic::{AtomicU64, Ordering};
use ur::pool::*;
use ur::timeline::Lane;

const PAGE: u64 = 4096;

/// Memory one piece behind the other from here on, where completion has to be looked for.
struct Line {
    next: AtomicU64,
    asked: AtomicU64,
    looked: AtomicU64,
}

impl Line {
    fn from(base: u64) -> Self {
        Self {
            next: AtomicU64::new(base),
            asked: AtomicU64::new(0),
            looked: AtomicU64::new(0),
        }
    }

    /// How often it was asked for memory, and to look for completion.
    fn asked(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.asked), load(&self.looked))
    }
}

impl SlabProvider for Line {
    fn acquire(&self, bytes: u64) -> Result<Slab, ProviderError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let base = self.next.fetch_add(bytes, Ordering::Relaxed);
        Ok(Slab { base, bytes })
    }

    fn release(&self, _: Slab) {}

    fn observes(&self) -> bool {
        true
    }

    fn observe(&self) {
        self.looked.fetch_add(1, Ordering::Relaxed);
    }

    fn granularity(&self) -> u64 {
        PAGE
    }

    /// Not always true, as the contract allows.
    fn alignment(&self) -> u64 {
        2 * PAGE
    }
}

fn pool(base: u64) -> Pool<Line> {
    let config = Config {
        min_align: 256,
        chunk_bytes: 0,
        ..Config::default()
    };
    Pool::new(Line::from(base), config)
}

fn alloc(
    pool: &Pool<Line>,
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
fn memory_that_comes_for_a_request_is_its_block() {
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
    // All is live, so that there is nothing whose completion could help.
    assert_eq!(pool.provider().asked(), (3, 0));
}

#[test]
fn completion_is_looked_for_while_something_pends() {
    let (pool, mut lane) = (pool(16 * PAGE), Lane::new());
    lane.advance();
    let (block, _) = alloc(&pool, Order::Sync, (PAGE, 0));
    pool.release(block.addr, lane.tip()).expect("it is live");
    // It died on a queue that this does not come after.
    let (other, _) = alloc(&pool, Order::Sync, (PAGE, 0));
    assert_ne!(other.addr, block.addr);
    assert_eq!(pool.provider().asked(), (2, 1));
}

#[test]
fn memory_that_lies_askew_is_not_handed_out_whole() {
    let pool = pool(17 * PAGE);
    let (block, _) = alloc(&pool, Order::Sync, (2 * PAGE, 2 * PAGE));
    assert!(block.addr.is_multiple_of(2 * PAGE), "{:#x}", block.addr);
}

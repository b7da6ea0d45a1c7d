//! An in-order queue as a pool sees it.

use std::sync::Arc;
use ur::pool::oracle::FakeProvider;
use ur::pool::*;
use ur::timeline::Lane;

// Not every test file uses the type.
#[allow(dead_code)]
pub type TestPool = Pool<Arc<FakeProvider>>;

/// A lane with one command, and its cache.
pub struct Queue {
    pub lane: Lane,
    pub cache: Arc<StreamCache>,
}

impl Queue {
    pub fn new() -> Self {
        let mut lane = Lane::new();
        lane.advance();
        let cache = StreamCache::new(lane.clock(), &Arc::default());
        Self { lane, cache }
    }

    pub fn alloc<S: SlabProvider>(&self, pool: &Pool<S>, bytes: u64) -> Block {
        self.cache.alloc(pool.key(), bytes).unwrap_or_else(|| {
            let request = Request::new(bytes, Order::Lane(&self.lane));
            let acquired = pool.acquire_on(&self.cache, &request);
            acquired.expect("no limit").block()
        })
    }
}

//! An in-order queue as a pool sees it.

use std::sync::Arc;
use ur::pool::oracle::FakeSource;
use ur::pool::*;
use ur::timeline::Lane;

// Not every test file uses the type.
#[allow(dead_code)]
pub type TestPool = Pool<Arc<FakeSource>>;

/// A lane with one command, and its stash.
pub struct Queue {
    pub lane: Lane,
    pub stash: Arc<Stash>,
}

impl Queue {
    pub fn new() -> Self {
        let mut lane = Lane::new();
        lane.advance();
        let stash = Stash::new(lane.clock(), &Arc::default());
        Self { lane, stash }
    }

    pub fn alloc<S: Source>(&self, pool: &Pool<S>, bytes: u64) -> Block {
        self.stash.alloc(pool.key(), bytes).unwrap_or_else(|| {
            let request = Request {
                bytes,
                align: 0,
                order: Order::Lane(&self.lane),
                may_wait: false,
                story: None,
            };
            let acquired = pool.acquire_on(&self.stash, &request);
            acquired.expect("no limit").block()
        })
    }
}

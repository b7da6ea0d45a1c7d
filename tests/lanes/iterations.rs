//! Queues that free the blocks they allocate, in repeated iterations, and pools for them.

use super::lanes::{Queue, TestPool};
use std::sync::Arc;
use ur::pool::oracle::FakeProvider;
use ur::pool::*;

const PAGE: u64 = 4096;

pub fn pool_of(provider: FakeProvider) -> (Arc<FakeProvider>, TestPool) {
    let config = Config {
        min_align: 64,
        chunk_bytes: 0,
        ..Config::default()
    };
    let provider = Arc::new(provider);
    (Arc::clone(&provider), Pool::new(provider, config))
}

/// A pool of pages whose old addresses stay mapped.
pub fn paged() -> (Arc<FakeProvider>, TestPool) {
    pool_of(FakeProvider::paged(PAGE).leaving_mapped())
}

impl Queue {
    pub fn free(&self, pool: &TestPool, block: &Block) {
        let freed = self.cache.free(block.addr, self.lane.epoch());
        let freed = freed.or_else(|| pool.release(block.addr, self.lane.tip()));
        assert_eq!(freed.as_ref(), Some(block));
    }

    /// Allocates blocks of these sizes and frees each when two later ones are live. Returns their addresses.
    pub fn iterate(&mut self, pool: &TestPool, sizes: impl Iterator<Item = u64>) -> Vec<u64> {
        let (mut all, mut live) = (Vec::new(), Vec::new());
        for bytes in sizes {
            let block = self.alloc(pool, bytes);
            self.lane.advance();
            all.push(block.addr);
            live.push(block);
            if live.len() > 2 {
                self.free(pool, &live.remove(0));
            }
        }
        live.iter().for_each(|block| self.free(pool, block));
        all
    }

    pub fn finish(&self) {
        self.lane.clock().raise(self.lane.epoch());
    }
}

//! Cache of allocation extents: the bytes from an address to the end of its allocation.
//!
//! Each copy and fill checks its addresses, mostly those of earlier commands. An entry is valid while
//! no allocation can end earlier: see [`ExtentVersion`](crate::pool::ExtentVersion). A lane caches extents for its
//! commands; each thread has a cache for all other commands.

use std::cell::Cell;

const SLOTS: usize = 64;

/// One entry.
#[derive(Clone, Copy)]
pub struct CachedExtent {
    /// Version of [`ExtentVersion`](crate::pool::ExtentVersion) before the query; 0 for an empty entry.
    since: u64,
    addr: usize,
    bytes: usize,
}

const NONE: CachedExtent = CachedExtent {
    since: 0,
    addr: 0,
    bytes: 0,
};

/// A direct-mapped cache. It has no destructor, so a thread-local one needs no registration.
pub struct ExtentCache([Cell<CachedExtent>; SLOTS]);

thread_local! {
    static EXTENTS: ExtentCache = const { ExtentCache::new() };
}

impl ExtentCache {
    pub const fn new() -> Self {
        Self([const { Cell::new(NONE) }; SLOTS])
    }

    /// Fibonacci hashing (Knuth, vol. 3, 6.4): neighbours at any power of two get different slots.
    #[inline(always)]
    fn slot(&self, addr: usize) -> &Cell<CachedExtent> {
        let hash = (addr as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.0[(hash >> (64 - SLOTS.ilog2())) as usize]
    }

    /// Whether `bytes` from each address on are known to lie inside one allocation.
    #[inline(always)]
    pub fn covers<const N: usize>(&self, since: u64, addrs: [usize; N], bytes: usize) -> bool {
        let mut all = true;
        for addr in addrs {
            let extent = self.slot(addr).get();
            all &= extent.since == since && extent.addr == addr && bytes <= extent.bytes;
        }
        all
    }

    pub fn insert(&self, extent: CachedExtent) {
        self.slot(extent.addr).set(extent);
    }
}

/// As [`ExtentCache::covers`], in the cache of the thread.
pub fn covers<const N: usize>(since: u64, addrs: [usize; N], bytes: usize) -> bool {
    EXTENTS.with(|extents| extents.covers(since, addrs, bytes))
}

/// Inserts an extent that was queried after version `since`, in the cache of the thread.
pub fn insert(since: u64, addr: usize, bytes: usize) {
    EXTENTS.with(|extents| extents.insert(CachedExtent { since, addr, bytes }));
}

/// The cached extent of an address, in the cache of the thread.
pub fn lookup(addr: usize) -> Option<CachedExtent> {
    let extent = EXTENTS.with(|extents| extents.slot(addr).get());
    (extent.addr == addr && extent.since != 0).then_some(extent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_serves_its_address_until_something_changes() {
        insert(7, 4096, 100);
        assert!(covers(7, [4096], 100));
        assert!(!covers(7, [4096], 101));
        assert!(!covers(7, [4097], 1));
        assert!(!covers(8, [4096], 100));
        insert(7, 8192, usize::MAX);
        assert!(covers(7, [4096, 8192], 100));
        assert!(
            std::thread::spawn(|| !covers(7, [4096], 1))
                .join()
                .is_ok_and(|none| none)
        );
    }

    #[test]
    fn what_a_thread_knows_serves_where_it_is_kept() {
        let extents = ExtentCache::new();
        assert!(!extents.covers(0, [0], 0) || lookup(0).is_none());
        insert(7, 4096, 100);
        assert!(lookup(4097).is_none());
        lookup(4096)
            .into_iter()
            .for_each(|extent| extents.insert(extent));
        assert!(extents.covers(7, [4096], 100));
        assert!(!extents.covers(7, [4096], 101));
        assert!(!extents.covers(8, [4096], 100));
    }

    #[test]
    fn addresses_that_share_a_place_do_not_answer_for_each_other() {
        (1..=1000).for_each(|addr| insert(9, addr, addr));
        let kept = (1..=1000).filter(|addr| covers(9, [*addr], *addr)).count();
        assert!((1..=SLOTS).contains(&kept), "{kept}");
        assert!((1..1000).all(|addr| !covers(9, [addr], addr + 1)));
    }
}

//! How far it is from an address to the end of its allocation, as one was last told.
//!
//! Each copy and fill asks for its addresses, and mostly for those that it asked for before. An answer
//! serves as long as no allocation can end earlier: see [`Ends`](crate::pool::Ends). A lane keeps those
//! of its commands, where the next finds them; each thread keeps those of all others.

use std::cell::Cell;

const SLOTS: usize = 64;

/// One answer.
#[derive(Clone, Copy)]
pub struct Extent {
    /// What `Ends` said before one looked; 0 for no answer.
    since: u64,
    addr: usize,
    bytes: usize,
}

const NONE: Extent = Extent {
    since: 0,
    addr: 0,
    bytes: 0,
};

/// Answers, each at the place of its address. Without a destructor: in a thread nothing is registered,
/// and nothing is ever gone.
pub struct ExtentCache([Cell<Extent>; SLOTS]);

thread_local! {
    static EXTENTS: ExtentCache = const { ExtentCache::new() };
}

impl ExtentCache {
    pub const fn new() -> Self {
        Self([const { Cell::new(NONE) }; SLOTS])
    }

    /// Neighbours at any power of two lie apart: Fibonacci hashing (Knuth, vol. 3, 6.4).
    #[inline(always)]
    fn slot(&self, addr: usize) -> &Cell<Extent> {
        let hash = (addr as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.0[(hash >> (64 - SLOTS.ilog2())) as usize]
    }

    /// Whether it is known that so many bytes from each address on are inside what they begin in.
    #[inline(always)]
    pub fn covers<const N: usize>(&self, since: u64, addrs: [usize; N], bytes: usize) -> bool {
        let mut all = true;
        for addr in addrs {
            let extent = self.slot(addr).get();
            all &= extent.since == since && extent.addr == addr && bytes <= extent.bytes;
        }
        all
    }

    pub fn insert(&self, extent: Extent) {
        self.slot(extent.addr).set(extent);
    }
}

/// As [`ExtentCache::have`], of this thread.
pub fn covers<const N: usize>(since: u64, addrs: [usize; N], bytes: usize) -> bool {
    EXTENTS.with(|extents| extents.covers(since, addrs, bytes))
}

/// Keeps an answer for which one looked after `since`, for this thread.
pub fn insert(since: u64, addr: usize, bytes: usize) {
    EXTENTS.with(|extents| extents.insert(Extent { since, addr, bytes }));
}

/// What this thread was last told of an address.
pub fn lookup(addr: usize) -> Option<Extent> {
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

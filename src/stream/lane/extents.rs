//! Cache of allocation extents: the bytes from an address to the end of its allocation.
//!
//! Each copy and fill checks its addresses, mostly those of earlier commands. An entry is valid while
//! no allocation can end earlier: see [`ExtentVersion`](crate::pool::ExtentVersion). Each thread has a cache, so
//! a lookup takes no lock. `UR_POOL_EXTENT_CACHE=0` turns it off: each check then asks the pools.

use std::cell::Cell;

const SLOTS: usize = 64;

/// One entry.
#[derive(Clone, Copy)]
struct CachedExtent {
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

thread_local! {
    /// Direct-mapped. Without a destructor it needs no registration.
    static EXTENTS: [Cell<CachedExtent>; SLOTS] = const { [const { Cell::new(NONE) }; SLOTS] };
}

/// Fibonacci hashing (Knuth, vol. 3, 6.4): neighbours at any power of two get different slots.
#[inline(always)]
fn slot(addr: usize) -> usize {
    let hash = (addr as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (64 - SLOTS.ilog2())) as usize
}

/// Whether `bytes` from each address on are known to lie inside one allocation, at version `now`.
#[inline(always)]
pub fn covers<const N: usize>(now: u64, addrs: [usize; N], bytes: usize) -> bool {
    EXTENTS.with(|extents| {
        let mut all = true;
        for addr in addrs {
            let extent = extents[slot(addr)].get();
            all &= extent.since == now && extent.addr == addr && bytes <= extent.bytes;
        }
        all
    })
}

/// Inserts an extent that was queried after version `since`.
pub fn insert(since: u64, addr: usize, bytes: usize) {
    EXTENTS.with(|extents| extents[slot(addr)].set(CachedExtent { since, addr, bytes }));
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
    fn addresses_that_share_a_place_do_not_answer_for_each_other() {
        (1..=1000).for_each(|addr| insert(9, addr, addr));
        let kept = (1..=1000).filter(|addr| covers(9, [*addr], *addr)).count();
        assert!((1..=SLOTS).contains(&kept), "{kept}");
        assert!((1..1000).all(|addr| !covers(9, [addr], addr + 1)));
    }
}

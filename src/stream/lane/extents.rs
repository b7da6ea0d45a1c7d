//! Cache of allocation extents: the bytes from an address to the end of its allocation.
//!
//! Each copy and fill checks its addresses, mostly near those of earlier commands. An entry serves addresses from
//! its own on that share its slot, and is valid while no allocation can end earlier: see [`ExtentVersion`](crate::pool::ExtentVersion). Each thread has a cache, so
//! a lookup takes no lock. An entry also has the device whose command used the address last, since devices of
//! one context may not access each other's memory. `UR_POOL_EXTENT_CACHE=0` turns the cache off: each check
//! then asks the pools.

use std::cell::Cell;
use std::sync::Arc;

const SLOTS: usize = 64;
/// Bytes of memory that share a slot. Memory of pools and other memory do not share so many, aligned.
const SLOT_SPAN_BYTES: usize = 256;

/// One entry.
#[derive(Clone, Copy)]
struct CachedExtent {
    /// Version of [`ExtentVersion`](crate::pool::ExtentVersion) before the query; 0 for an empty entry.
    since: u64,
    addr: usize,
    bytes: usize,
    /// The address of a device that accesses the memory; 0 if none is known to.
    device: usize,
}

impl CachedExtent {
    #[inline(always)]
    fn covers(&self, now: u64, addr: usize, bytes: usize) -> bool {
        let end = addr.wrapping_sub(self.addr).saturating_add(bytes);
        let is_near = addr ^ self.addr < SLOT_SPAN_BYTES;
        self.since == now && is_near && end <= self.bytes
    }
}

const NONE: CachedExtent = CachedExtent {
    since: 0,
    addr: 0,
    bytes: 0,
    device: 0,
};

thread_local! {
    /// Direct-mapped. Without a destructor it needs no registration.
    static EXTENTS: [Cell<CachedExtent>; SLOTS] = const { [const { Cell::new(NONE) }; SLOTS] };
}

/// Fibonacci hashing (Knuth, vol. 3, 6.4): spans at any power of two get different slots.
#[inline(always)]
fn slot(addr: usize) -> usize {
    let hash = ((addr / SLOT_SPAN_BYTES) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (64 - SLOTS.ilog2())) as usize
}

/// Whether `bytes` from each address on are known to lie inside one allocation, at version `now`.
pub fn covers<const N: usize>(now: u64, addrs: [usize; N], bytes: usize) -> bool {
    all(now, addrs, bytes, |_| true)
}

/// As [`covers`], and whether that device is known to access the memory.
#[inline(always)]
pub fn serves<const N: usize, D>(
    now: u64,
    device: &Arc<D>,
    addrs: [usize; N],
    bytes: usize,
) -> bool {
    all(now, addrs, bytes, |extent| extent.device == address(device))
}

#[inline(always)]
fn all<const N: usize>(
    now: u64,
    addrs: [usize; N],
    bytes: usize,
    suits: impl Fn(&CachedExtent) -> bool,
) -> bool {
    EXTENTS.with(|extents| {
        let mut all = true;
        for addr in addrs {
            let extent = extents[slot(addr)].get();
            all &= extent.covers(now, addr, bytes) & suits(&extent);
        }
        all
    })
}

/// Inserts an extent that was queried after version `since`.
pub fn insert(since: u64, addr: usize, bytes: usize) {
    let extent = CachedExtent {
        since,
        addr,
        bytes,
        device: 0,
    };
    EXTENTS.with(|extents| {
        let cell = &extents[slot(addr)];
        // The two ends of a copy may be in one allocation.
        if !cell.get().covers(since, addr, bytes) {
            cell.set(extent);
        }
    });
}

/// Records that a device accesses the memory at these addresses, where their extents are cached.
pub fn set_device<const N: usize, D>(device: &Arc<D>, addrs: [usize; N]) {
    EXTENTS.with(|extents| {
        for addr in addrs {
            let cell = &extents[slot(addr)];
            let extent = cell.get();
            if extent.covers(extent.since, addr, 0) {
                let device = address(device);
                cell.set(CachedExtent { device, ..extent });
            }
        }
    });
}

#[inline(always)]
fn address<D>(device: &Arc<D>) -> usize {
    Arc::as_ptr(device).addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_serves_its_address_until_something_changes() {
        insert(7, 4096, 100);
        assert!(covers(7, [4096], 100));
        assert!(!covers(7, [4096], 101));
        assert!(covers(7, [4097], 99) && !covers(7, [4097], 100));
        assert!(!covers(7, [4096 + 100], 1) && !covers(7, [4095], 1));
        assert!(!covers(7, [4097], usize::MAX));
        assert!(!covers(8, [4096], 100));
        // Two allocations of one span, and two addresses of one allocation.
        insert(7, 4096 + 100, 50);
        assert!(!covers(7, [4096], 1) && covers(7, [4096 + 100], 50));
        insert(7, 4096, 100);
        insert(7, 4096 + 10, 90);
        assert!(covers(7, [4096, 4096 + 10], 90));
        insert(7, 8192, usize::MAX);
        assert!(covers(7, [4096, 8192], 100));
        assert!(
            std::thread::spawn(|| !covers(7, [4096], 1))
                .join()
                .is_ok_and(|none| none)
        );
    }

    #[test]
    fn an_answer_serves_the_device_that_used_it_last() {
        let devices = [1, 2].map(Arc::new);
        insert(7, 4096, 100);
        assert!(!serves(7, &devices[0], [4096], 100));
        set_device(&devices[0], [4096]);
        assert!(serves(7, &devices[0], [4096], 100));
        assert!(!serves(7, &devices[0], [4096], 101) && !serves(8, &devices[0], [4096], 100));
        assert!(!serves(7, &devices[1], [4096], 100) && covers(7, [4096], 100));
        set_device(&devices[1], [4096, 8192]);
        assert!(!serves(7, &devices[0], [4096], 100) && serves(7, &devices[1], [4096], 100));
        insert(8, 4096, 100);
        assert!(!serves(8, &devices[1], [4096], 100));
    }

    #[test]
    fn addresses_that_share_a_place_do_not_answer_for_each_other() {
        let at = |span: usize| span * SLOT_SPAN_BYTES;
        (1..=1000).for_each(|span| insert(9, at(span), span));
        let kept = (1..=1000).filter(|span| covers(9, [at(*span)], *span));
        let kept = kept.count();
        assert!((1..=SLOTS).contains(&kept), "{kept}");
        assert!((1..1000).all(|span| !covers(9, [at(span)], span + 1)));
        // Foreign memory has no end, and serves its span alone.
        insert(9, at(1), usize::MAX);
        assert!(covers(9, [at(1) + 8], at(2)));
        assert!((2..1000).all(|span| !covers(9, [at(span)], span + 1)));
    }
}

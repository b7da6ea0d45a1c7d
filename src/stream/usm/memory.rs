//! The USM of a context: its pools, and the map from addresses to pools.
//!
//! A pool over user memory allocates from a block of another pool, so its slab lies inside a live
//! block of that one. Queries visit the innermost pool first.

use crate::object::Object;
use crate::pool::{Block, ExtentVersion};
use crate::stream::usm::exports::Exports;
use crate::stream::usm::foreign_ranges::ForeignRanges;
use crate::stream::usm::paged::Page;
use crate::stream::usm::pool_core::{Part, PoolCore};
use crate::stream::{Driver, Kind};
use crate::sync::{AtomicU64, AtomicUsize, Mutex, Ordering, ReadGuard, RwLock, rank};
use crate::timeline::Frontier;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

pub(crate) struct Memory<D: Driver> {
    /// Pools with memory or a handle.
    pools: Mutex<Vec<Arc<PoolCore<D>>>, { rank::POOLS }>,
    slabs: RwLock<Slabs<D>>,
    /// Number of slabs over user memory. With none, each address belongs to one pool.
    nested: AtomicUsize,
    /// Number of slabs over user memory and of exported blocks. With none, a lane frees its blocks unasked.
    irregular: AtomicUsize,
    /// Blocks that other processes may open.
    exports: Exports,
    /// Memory of no pool that the context knows.
    pub foreign: ForeignRanges<D>,
    /// Live allocations of the backend's pools. Each counts as a slab.
    natives: AtomicUsize,
    changes: Changes,
    /// Version of allocation extents: changes when an extent may shrink.
    pub extent_version: Arc<ExtentVersion>,
}

/// Changes after which settling may release memory, counted.
#[derive(Default)]
struct Changes {
    count: AtomicU64,
    /// The count at the last check that found nothing to release.
    settled: AtomicU64,
}

impl Changes {
    /// After the change itself.
    fn add(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// The count, if no check has settled it. The caller then sees all changes up to it.
    #[inline]
    fn unsettled(&self) -> Option<u64> {
        let count = self.count.load(Ordering::Acquire);
        (count != self.settled.load(Ordering::Relaxed)).then_some(count)
    }

    /// A check of the changes up to `seen` found nothing to release. A check that ends late lowers
    /// the value, which costs one more check.
    fn settle(&self, seen: u64) {
        debug_assert!(
            seen <= self.count.load(Ordering::Relaxed),
            "a check ahead of the changes"
        );
        self.settled.store(seen, Ordering::Relaxed);
    }
}

struct Slabs<D: Driver> {
    own: BTreeMap<u64, Entry<D>>,
    /// Slabs over user memory, oldest first.
    nested: Vec<(u64, Entry<D>)>,
}

struct Entry<D: Driver> {
    bytes: u64,
    core: Weak<PoolCore<D>>,
    part: usize,
}

/// The allocation that holds an address.
pub(crate) struct Found<D: Driver> {
    pub core: Arc<PoolCore<D>>,
    pub part: usize,
    pub block: Block,
}

/// The extent of memory at an address.
pub(crate) enum AddressExtent {
    /// Memory of no pool.
    Foreign,
    /// Memory of a pool that is not allocated, as far as pools know: a lane may allocate it from
    /// its cache unseen.
    Free,
    /// Bytes up to the end of the live allocation.
    Live(usize),
}

/// The address is foreign.
pub(crate) struct NoPool;

impl<D: Driver> Found<D> {
    pub fn part(&self) -> &Part<D> {
        &self.core.parts()[self.part]
    }
}

/// An allocation of USM: its address and bytes as requested, and its device if it has one.
pub struct UsmRange<D: Driver> {
    pub start: usize,
    pub bytes: usize,
    pub kind: Kind,
    pub device: Option<Arc<Object<D::Device>>>,
}

impl<D: Driver> Default for Memory<D> {
    fn default() -> Self {
        let slabs = Slabs {
            own: BTreeMap::new(),
            nested: Vec::new(),
        };
        Self {
            pools: Mutex::default(),
            slabs: RwLock::new(slabs),
            nested: AtomicUsize::new(0),
            irregular: AtomicUsize::new(0),
            exports: Exports::default(),
            foreign: ForeignRanges::default(),
            natives: AtomicUsize::new(0),
            changes: Changes::default(),
            extent_version: Arc::default(),
        }
    }
}

impl<D: Driver> Memory<D> {
    pub fn add_pool(&self, core: &Arc<PoolCore<D>>) {
        self.pools.lock().push(Arc::clone(core));
        self.mark_dirty();
    }

    pub fn pools(&self) -> Vec<Arc<PoolCore<D>>> {
        self.pools.lock().clone()
    }

    /// Ends all pools, as their context ends.
    pub fn clear(&self) {
        for (addr, last_use) in self.exports.take_freed() {
            self.release(addr as usize, &last_use);
        }
        let pools = std::mem::take(&mut *self.pools.lock());
        for core in &pools {
            core.close();
        }
    }

    pub fn add_slab(
        &self,
        base: u64,
        bytes: u64,
        nested: bool,
        core: Weak<PoolCore<D>>,
        part: usize,
    ) {
        let entry = Entry { bytes, core, part };
        let mut slabs = self.slabs.write();
        if nested {
            slabs.nested.push((base, entry));
            self.nested.store(slabs.nested.len(), Ordering::Release);
            self.irregular.fetch_add(1, Ordering::AcqRel);
        } else {
            let before = slabs.own.insert(base, entry);
            debug_assert!(before.is_none(), "two slabs at one address");
        }
        drop(slabs);
        // The new slab's addresses were unused before, or another slab's.
        self.extent_version.change();
    }

    pub fn remove_slab(&self, base: u64, nested: bool, core: &Weak<PoolCore<D>>) {
        let mut slabs = self.slabs.write();
        if nested {
            let before = slabs.nested.len();
            slabs
                .nested
                .retain(|(start, entry)| *start != base || !entry.core.ptr_eq(core));
            let gone = before - slabs.nested.len();
            self.nested.store(slabs.nested.len(), Ordering::Release);
            self.irregular.fetch_sub(gone, Ordering::AcqRel);
        } else {
            let entry = slabs.own.remove(&base);
            debug_assert!(entry.is_some(), "a slab that was not there is removed");
        }
    }

    /// Adds a live allocation of a native pool.
    pub fn add_native(&self, addr: u64, bytes: u64, core: Weak<PoolCore<D>>, part: usize) {
        self.natives.fetch_add(1, Ordering::AcqRel);
        self.add_slab(addr, bytes, false, core, part);
    }

    /// Removes a live allocation of a native pool.
    pub fn remove_native(&self, addr: u64, core: &Weak<PoolCore<D>>) {
        self.remove_slab(addr, false, core);
        let before = self.natives.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "more native allocations freed than there were");
    }

    /// The native pool with a live allocation at `addr`, if there is one.
    pub fn native(&self, addr: usize) -> Option<(Arc<PoolCore<D>>, usize)> {
        if self.natives.load(Ordering::Acquire) == 0 {
            return None;
        }
        let starts = |(core, part): &(Arc<PoolCore<D>>, usize)| {
            let block = core.parts()[*part].lookup(addr as u64);
            block.is_some_and(|block| block.addr == addr as u64)
        };
        let (core, part) = self.owners(addr).find(starts)?;
        core.parts()[part].native.is_some().then_some((core, part))
    }

    /// The live allocation that holds `addr`.
    pub fn find(&self, addr: usize) -> Option<Found<D>> {
        let found = self.find_block(addr)?;
        (!self.exports.is_freed(found.block.addr)).then_some(found)
    }

    fn find_block(&self, addr: usize) -> Option<Found<D>> {
        let find = |(core, part): (Arc<PoolCore<D>>, usize)| {
            let block = core.parts()[part].lookup(addr as u64)?;
            Some(Found { core, part, block })
        };
        if !self.is_flat() {
            return self.owners(addr).find_map(find);
        }
        // The slabs' lock is given up before a pool's is taken.
        let owner = self.slabs().owner(addr as u64)?;
        find(owner)
    }

    /// The extent of memory at `addr`. Foreign and free memory has no end.
    pub fn extent(&self, addr: usize) -> AddressExtent {
        let slabs = self.is_flat().then(|| self.slabs());
        if slabs.is_some_and(|slabs| slabs.owner(addr as u64).is_none()) {
            return AddressExtent::Foreign;
        }
        self.find(addr).map_or(AddressExtent::Free, |found| {
            let start = addr as u64 - found.block.addr;
            AddressExtent::Live((found.block.requested - start) as usize)
        })
    }

    /// The device whose pools have memory there: none for memory that all devices share, and an error
    /// for memory of no pool.
    pub fn home(&self, addr: usize) -> Result<Option<Arc<Object<D::Device>>>, NoPool> {
        let (core, part) = self.owners(addr).last().ok_or(NoPool)?;
        let part = &core.parts()[part];
        let own = part.kind == Kind::Device;
        Ok(part.device.clone().filter(|_| own))
    }

    /// Whether a live allocation starts at `addr`.
    pub fn is_start(&self, addr: usize) -> bool {
        let starts = self.owners(addr).any(|(core, part)| {
            let block = core.parts()[part].lookup(addr as u64);
            block.is_some_and(|block| block.addr == addr as u64)
        });
        starts && !self.exports.is_freed(addr as u64)
    }

    /// Whether each address belongs to one pool.
    pub fn is_flat(&self) -> bool {
        self.nested.load(Ordering::Acquire) == 0
    }

    /// Whether a lane may free its blocks without a look at the other pools and the exports.
    #[inline]
    pub fn is_regular(&self) -> bool {
        self.irregular.load(Ordering::Acquire) == 0
    }

    /// Whether other processes may open the live allocation that starts at `addr`.
    pub fn is_exported(&self, addr: usize) -> bool {
        self.exports.has(addr as u64)
    }

    /// Lets other processes open the live allocation that starts at `addr`: its memory stays where it is
    /// and is nobody else's until [`Memory::unpin`].
    pub fn pin(&self, addr: u64) {
        self.irregular.fetch_add(1, Ordering::AcqRel);
        self.exports.add(addr);
    }

    /// Ends one export. The last one completes a free that came before.
    pub fn unpin(&self, addr: u64) {
        let freed = self.exports.remove(addr);
        self.irregular.fetch_sub(1, Ordering::AcqRel);
        if let Some(last_use) = freed {
            self.release(addr as usize, &last_use);
        }
    }

    /// The pages behind a live block, in order, each with the address where it begins. None if its memory
    /// has no pages.
    pub fn pages_at(&self, block: &Block) -> Option<Vec<(u64, Page)>> {
        let slab = block.range();
        self.owners(block.addr as usize).find_map(|(core, part)| {
            let provider = core.parts()[part].pool.provider();
            provider.paged.as_ref()?.pages_at(slab)
        })
    }

    /// Frees the live allocation that starts at `addr`. False if there is none.
    pub fn free(&self, addr: usize, last_use: &Frontier) -> bool {
        match self.exports.free(addr as u64, last_use) {
            Some(freed) => freed,
            None => self.release(addr, last_use),
        }
    }

    fn release(&self, addr: usize, last_use: &Frontier) -> bool {
        self.owners(addr)
            .any(|(core, part)| core.release(part, addr as u64, last_use.clone()))
    }

    /// Called after a pool was closed, got a threshold or left addresses behind.
    pub fn mark_dirty(&self) {
        self.changes.add();
    }

    /// Whether a pool may have memory to release. Each wait asks; mostly nothing has changed, and
    /// no pool is visited.
    #[inline]
    pub fn wants_settling(&self) -> bool {
        let seen = self.changes.unsettled();
        seen.is_some_and(|seen| self.wants_settling_since(seen))
    }

    #[cold]
    fn wants_settling_since(&self, seen: u64) -> bool {
        let pools = self.pools.lock();
        let wants = pools.iter().any(|core| core.wants_settling());
        // With a threshold, or a kind that is not kept, growth alone may be a reason.
        if !wants && pools.iter().all(|core| core.keeps_all()) {
            self.changes.settle(seen);
        }
        wants
    }

    /// Releases memory beyond the thresholds in all pools, and removes ended pools.
    pub fn settle(&self) {
        for core in self.pools() {
            core.settle();
        }
        let mut gone = Vec::new();
        self.pools.lock().retain(|core| {
            let drained = core.is_drained();
            if drained {
                gone.push(Arc::clone(core));
            }
            !drained
        });
    }

    /// The pools that have a slab at an address, innermost first.
    fn owners(&self, addr: usize) -> impl Iterator<Item = (Arc<PoolCore<D>>, usize)> + use<D> {
        let addr = addr as u64;
        let slabs = self.slabs();
        let nested = slabs.nested.iter().rev();
        let nested: Vec<_> = nested
            .filter_map(|(base, entry)| entry.owner(*base, addr))
            .collect();
        let own = slabs.owner(addr);
        nested.into_iter().chain(own)
    }

    fn slabs(&self) -> ReadGuard<'_, Slabs<D>> {
        self.slabs.read()
    }
}

impl<D: Driver> Slabs<D> {
    /// The pool that has a slab at an address, pools over user memory excluded.
    fn owner(&self, addr: u64) -> Option<(Arc<PoolCore<D>>, usize)> {
        let (base, entry) = self.own.range(..=addr).next_back()?;
        entry.owner(*base, addr)
    }
}

impl<D: Driver> Entry<D> {
    fn owner(&self, base: u64, addr: u64) -> Option<(Arc<PoolCore<D>>, usize)> {
        let inside = addr.checked_sub(base)? < self.bytes;
        let core = if inside {
            self.core.upgrade()?
        } else {
            return None;
        };
        Some((core, self.part))
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::AtomicBool;
    use loom::thread;

    /// A change is settled only by a check that has seen it.
    #[test]
    fn loom_a_change_during_a_check_is_checked_again() {
        loom::model(|| {
            let shared = Arc::new((Changes::default(), AtomicBool::new(false)));
            shared.0.add();
            let check = |(changes, closed): &(Changes, AtomicBool)| {
                if let Some(seen) = changes.unsettled()
                    && !closed.load(Ordering::Relaxed)
                {
                    changes.settle(seen);
                }
            };
            let checking = [(); 2].map(|()| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || check(&shared))
            });
            let (changes, closed) = &*shared;
            closed.store(true, Ordering::Relaxed);
            changes.add();
            checking.into_iter().for_each(|check| check.join().unwrap());
            assert!(changes.unsettled().is_some(), "the change is forgotten");
        });
    }
}

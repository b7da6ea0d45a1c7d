//! The version of the extents of allocations: changed when an allocation may end earlier than it did.
//!
//! To find the allocation around an address takes a pool's lock. A caller that asks for every command caches
//! the answer, with the version before its query. The answer holds while the version is the same. Memory that
//! is allocated anew, or again with fewer bytes requested, changes it; a free does not.

use crate::sync::{AtomicU64, Ordering};
use std::ops::Range;
use std::sync::Arc;

/// A number that never comes back, and that no other version has.
#[derive(Debug)]
pub struct ExtentVersion(AtomicU64);

impl Default for ExtentVersion {
    fn default() -> Self {
        Self(AtomicU64::new(fresh_range(1)))
    }
}

impl ExtentVersion {
    /// The version, to be read before a query. Acquire: an allocation before a change is seen with it.
    #[inline]
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Changes the version, before anybody gets an allocation that may end earlier.
    #[inline(never)]
    pub fn change(&self) {
        // Of two changes at once each counts for both, since no number comes back.
        self.0.store(fresh_range(1), Ordering::Release);
    }
}

/// Changes a version often: with numbers of its own, since a counter of all costs as much as a lock.
#[derive(Debug, Default)]
pub(crate) struct VersionChanger {
    version: Arc<ExtentVersion>,
    own: Range<u64>,
}

impl VersionChanger {
    pub fn new(version: &Arc<ExtentVersion>) -> Self {
        Self {
            version: Arc::clone(version),
            own: 0..0,
        }
    }

    /// Changes it as [`ExtentVersion::change`] does.
    #[inline]
    pub fn change(&mut self) {
        let next = self.own.next().unwrap_or_else(|| self.refill());
        self.version.0.store(next, Ordering::Release);
    }

    #[cold]
    fn refill(&mut self) -> u64 {
        let first = fresh_range(NUMBERS_PER_CHANGER);
        self.own = first + 1..first + NUMBERS_PER_CHANGER;
        first
    }
}

/// Numbers that a changer takes at once.
const NUMBERS_PER_CHANGER: u64 = 1 << 12;

/// The first of so many numbers that nobody has had. Never 0. A plain `std` atomic, since loom's cannot live in
/// a static, and identity only.
fn fresh_range(count: u64) -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    NEXT.fetch_add(count, std::sync::atomic::Ordering::Relaxed)
}

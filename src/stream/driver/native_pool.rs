//! Pools that the backend itself implements.

use crate::object::Result;
use crate::stream::Driver;

/// A pool of the backend. Dropped when no allocation of it is live; commands may be pending.
pub trait NativePool<D: Driver>: Send + Sync {
    /// Allocates for later commands of the lane, as its command with this epoch.
    fn alloc(&self, lane: &D::Lane, epoch: u64, bytes: usize) -> Result<usize>;

    /// Frees behind all commands of the lane, as its command with this epoch.
    fn free(&self, lane: &D::Lane, epoch: u64, addr: usize) -> Result<()>;

    /// Allocates memory for immediate use, in any order. May block the host.
    fn alloc_now(&self, bytes: usize) -> Result<usize>;

    /// Frees an allocation whose use has ended. Never waits.
    fn free_now(&self, addr: usize);

    /// Bytes reserved from the system.
    fn reserved(&self) -> Result<u64>;

    /// Sets the bytes that may stay reserved when the host has waited for its work.
    fn set_threshold(&self, bytes: u64);

    /// Frees unused memory until at most `keep` bytes are reserved.
    fn trim(&self, keep: u64);
}

/// Limits of a new pool of the backend.
pub struct NativeLimits {
    /// Maximum bytes to reserve; 0 for no limit.
    pub max_bytes: u64,
    /// Bytes that may stay reserved though unused.
    pub threshold: u64,
}

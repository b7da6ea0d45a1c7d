//! Pools of the backend's own, as it implements them.

use crate::object::Result;
use crate::stream::Driver;

/// A backend's own pool. Dropped when nothing of it is live, whatever is pending.
pub trait NativePool<D: Driver>: Send + Sync {
    /// Memory for what the lane is given from now on. It is the lane's command with this epoch.
    fn alloc(&self, lane: &D::Lane, epoch: u64, bytes: usize) -> Result<usize>;

    /// Ends an allocation behind all that the lane was given, as its command with this epoch.
    fn free(&self, lane: &D::Lane, epoch: u64, addr: usize) -> Result<()>;

    /// Memory that may be used at once, in any order. The host may be made to wait.
    fn alloc_now(&self, bytes: usize) -> Result<usize>;

    /// Ends an allocation all use of which is over. Never waits.
    fn free_now(&self, addr: usize);

    /// Bytes that it has from the system.
    fn reserved(&self) -> Result<u64>;

    /// How many bytes it may keep when the host has waited for its work.
    fn set_threshold(&self, bytes: u64);

    /// Gives back what is unused until at most so many bytes are reserved.
    fn trim(&self, keep: u64);
}

/// What is asked of a backend's own pool when it is made.
pub struct NativeLimits {
    /// Most bytes to reserve; 0 for no limit.
    pub max_bytes: u64,
    /// Bytes that may stay reserved though unused.
    pub threshold: u64,
}

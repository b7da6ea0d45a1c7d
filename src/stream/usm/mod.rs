//! USM below the handles of pools: slabs of the driver's memory, and the map from addresses to
//! pools.
//!
//! Owns the state that outlives a context's handle (`domain`), each pool's parts, their slabs and
//! their pages. Uses `pool` for reuse, lanes and the engine for pending work, a driver for memory.
//! Must never know a queue or an event.

pub(crate) mod domain;
pub(crate) mod exports;
pub(crate) mod foreign_ranges;
pub(crate) mod memory;
pub(crate) mod native_pool;
pub(crate) mod paged;
pub(crate) mod pool_core;
pub(crate) mod provider;

//! USM behind the handles of pools: slabs of a driver's memory, and which pool an address belongs to.
//!
//! Owns what outlives a context's handle (`domain`), each pool's parts, their slabs and their pages. Uses `pool` for
//! what to reuse, lanes and the engine for what is pending, a driver for memory. Must never know a queue or an event.

pub(crate) mod domain;
pub(crate) mod memory;
pub(crate) mod native_pool;
pub(crate) mod paged;
pub(crate) mod pool_core;
pub(crate) mod source;

//! USM behind the handles of pools: slabs of a driver's memory, and which pool an address belongs to.
//!
//! Owns each pool's parts, their slabs and their pages. Uses `pool` for what to reuse, and a driver for memory. Must
//! never know a queue or an event.

pub(crate) mod memory;
pub(crate) mod native_pool;
pub(crate) mod paged;
pub(crate) mod pool_core;
pub(crate) mod pool_log;
pub(crate) mod pool_trace;
pub(crate) mod rooms;
pub(crate) mod settings;
pub(crate) mod source;

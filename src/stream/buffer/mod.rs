//! What the buffers of all drivers with memory of their own have in common: the host's mappings, copies of the host's
//! memory and on each device, and the uses that decide when bytes are copied.
//!
//! Uses `context` for memory and for the end of enqueued commands. Must never know a buffer's handle, or how bytes are
//! copied: callers pass functions for it.

mod copies;
mod host_copy;
mod mappings;

use std::sync::atomic::{AtomicU8, Ordering};

pub use copies::{BufferRange, Copies, Home};
pub use host_copy::HostCopy;
pub use mappings::{EndedMapping, Mappings};

/// How commands use memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Use {
    Reads = 1,
    Writes,
}

/// The strongest use of memory by all commands so far.
#[derive(Default)]
pub struct Uses(AtomicU8);

impl Uses {
    /// Whether a command has used the memory in this way, or in a stronger one.
    #[inline]
    pub fn has(&self, with: Use) -> bool {
        self.0.load(Ordering::Acquire) >= with as u8
    }

    pub fn add(&self, with: Use) {
        self.0.fetch_max(with as u8, Ordering::Release);
    }
}

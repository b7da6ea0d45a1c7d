//! The adapter's data of a context: OpenCL's context and the ranges of slabs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ur::object::Result;
use ur::sync::{Mutex, MutexGuard, RwLock, WriteGuard};

use crate::cl::ContextRef;

/// The memory that a context's pools got from OpenCL.
#[derive(Default)]
pub struct Slabs {
    /// Start to end address.
    all: RwLock<BTreeMap<usize, usize>>,
    freed: AtomicU64,
}

impl Slabs {
    pub fn add(&self, start: usize, bytes: usize) {
        self.write().insert(start, start + bytes);
    }

    /// Called before OpenCL gets the memory back.
    pub fn remove(&self, start: usize) {
        self.write().remove(&start);
        self.freed.fetch_add(1, Ordering::AcqRel);
    }

    /// The number of slabs freed so far. While it does not change, no slab was freed.
    pub fn freed(&self) -> u64 {
        self.freed.load(Ordering::Acquire)
    }

    /// Whether an address is in one of them.
    pub fn hold(&self, addr: usize) -> bool {
        let all = self.all.read();
        let below = all.range(..=addr).next_back();
        below.is_some_and(|(_, end)| addr < *end)
    }

    fn write(&self) -> WriteGuard<'_, BTreeMap<usize, usize>> {
        self.all.write()
    }
}

/// The adapter's data of a context.
pub struct ContextData {
    pub context: ContextRef,
    pub slabs: Arc<Slabs>,
    /// Slabs inside a larger allocation: slab start to allocation start.
    moved: Mutex<HashMap<usize, usize>>,
}

impl ContextData {
    pub fn new(context: ContextRef) -> Self {
        Self {
            context,
            slabs: Arc::default(),
            moved: Mutex::default(),
        }
    }

    /// Allocates `bytes` at a multiple of `align`. Drivers align more than they promise, so the first
    /// request has no padding.
    pub fn acquire(
        &self,
        bytes: usize,
        align: usize,
        query: impl Fn(usize) -> Result<usize>,
        free: impl Fn(usize),
    ) -> Result<usize> {
        let start = query(bytes)?;
        if start.is_multiple_of(align) {
            return Ok(start);
        }
        free(start);
        let start = query(bytes.saturating_add(align))?;
        let slab = start.next_multiple_of(align);
        if slab != start {
            self.moved().insert(slab, start);
        }
        Ok(slab)
    }

    /// Removes a slab and returns the start of its allocation.
    pub fn forget(&self, slab: usize) -> usize {
        self.moved().remove(&slab).unwrap_or(slab)
    }

    fn moved(&self) -> MutexGuard<'_, HashMap<usize, usize>> {
        self.moved.lock()
    }
}

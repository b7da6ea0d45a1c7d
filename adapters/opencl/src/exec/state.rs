//! What the adapter keeps with each context: OpenCL's own, and where slabs begin.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ur::object::Result;
use ur::timeline::sync::{Mutex, MutexGuard, RwLock, WriteGuard};

use crate::cl::ContextRef;

/// The memory that a context's pools got from OpenCL.
#[derive(Default)]
pub struct Slabs {
    /// From their starts to their ends.
    all: RwLock<BTreeMap<usize, usize>>,
    given_back: AtomicU64,
}

impl Slabs {
    pub fn add(&self, start: usize, bytes: usize) {
        self.write().insert(start, start + bytes);
    }

    /// Called before OpenCL gets the memory back.
    pub fn remove(&self, start: usize) {
        self.write().remove(&start);
        self.given_back.fetch_add(1, Ordering::AcqRel);
    }

    /// How many were given back so far. As long as that stays, so does all memory.
    pub fn given_back(&self) -> u64 {
        self.given_back.load(Ordering::Acquire)
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

/// What the adapter keeps with each context.
pub struct State {
    pub context: ContextRef,
    pub slabs: Arc<Slabs>,
    /// Slabs that do not begin where their allocation does: from their start to its.
    moved: Mutex<HashMap<usize, usize>>,
}

impl State {
    pub fn new(context: ContextRef) -> Self {
        Self {
            context,
            slabs: Arc::default(),
            moved: Mutex::default(),
        }
    }

    /// Memory at a multiple of `align`. Drivers align more than they promise, so ask without room to
    /// spare first.
    pub fn acquire(
        &self,
        bytes: usize,
        align: usize,
        ask: impl Fn(usize) -> Result<usize>,
        free: impl Fn(usize),
    ) -> Result<usize> {
        let start = ask(bytes)?;
        if start.is_multiple_of(align) {
            return Ok(start);
        }
        free(start);
        let start = ask(bytes.saturating_add(align))?;
        let slab = start.next_multiple_of(align);
        if slab != start {
            self.moved().insert(slab, start);
        }
        Ok(slab)
    }

    /// Where the allocation of a slab begins.
    pub fn forget(&self, slab: usize) -> usize {
        self.moved().remove(&slab).unwrap_or(slab)
    }

    fn moved(&self) -> MutexGuard<'_, HashMap<usize, usize>> {
        self.moved.lock()
    }
}

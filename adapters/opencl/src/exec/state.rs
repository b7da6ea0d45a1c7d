//! What the adapter keeps with each context: OpenCL's own, and where slabs begin.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ur::object::Result;

use crate::cl::ContextRef;

/// What the adapter keeps with each context.
pub struct State {
    pub context: ContextRef,
    /// Slabs that do not begin where their allocation does: from their start to its.
    moved: Mutex<HashMap<usize, usize>>,
}

impl State {
    pub fn new(context: ContextRef) -> Self {
        Self {
            context,
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
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Tables that layers wrap.
//!
//! Owns their lifetime: calls read a table without a lock, and may still be inside it when the loader
//! is torn down, so that none is ever freed. Equal ones are kept once: initialising again and again
//! does not grow the process.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use ur::abi::ur_dditable_t;

static TABLES: Mutex<Vec<&'static ur_dditable_t>> = Mutex::new(Vec::new());

/// A table of the same functions that lives for ever.
pub fn intern(table: &ur_dditable_t) -> &'static ur_dditable_t {
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(same) = tables.iter().find(|same| slots(same) == slots(table)) {
        return same;
    }
    let table: &'static ur_dditable_t = Box::leak(Box::new(*table));
    tables.push(table);
    table
}

const SLOTS: usize = size_of::<ur_dditable_t>() / size_of::<usize>();

fn slots(table: &ur_dditable_t) -> [usize; SLOTS] {
    // SAFETY: a table is function pointers and nothing else, each a word that may be null, so that
    // it has no padding.
    unsafe { std::mem::transmute_copy(table) }
}

/// The table that a layer wraps: a layer's functions have no argument of their own to find it by.
/// What was wrapped last stays, for calls that race with a teardown.
pub struct Below(AtomicPtr<ur_dditable_t>);

impl Default for Below {
    fn default() -> Below {
        Below::new()
    }
}

impl Below {
    pub const fn new() -> Below {
        Below(AtomicPtr::new(std::ptr::null_mut()))
    }

    pub fn set(&self, table: &ur_dditable_t) {
        let table = intern(table);
        self.0
            .store(std::ptr::from_ref(table).cast_mut(), Ordering::Release);
    }

    /// `None` before the layer was ever asked for.
    #[inline]
    pub fn table(&self) -> Option<&'static ur_dditable_t> {
        // SAFETY: null, or a table that is kept for ever and was complete when it was stored.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ur::abi::*;

    unsafe extern "C" fn wait(_: ur_device_handle_t) -> ur_result_t {
        UR_RESULT_SUCCESS
    }

    #[test]
    fn equal_tables_are_kept_once() {
        let mut table = ur_dditable_t::default();
        let empty = intern(&table);
        table.DeviceExp.pfnWaitExp = Some(wait);
        let filled = intern(&table);
        assert!(!std::ptr::eq(empty, filled));
        assert!(std::ptr::eq(filled, intern(&table)));
        assert!(std::ptr::eq(empty, intern(&ur_dditable_t::default())));

        let below = Below::new();
        assert!(below.table().is_none());
        below.set(&table);
        assert!(
            below
                .table()
                .is_some_and(|table| std::ptr::eq(table, filled))
        );
    }
}

//! Tables that layers wrap.
//!
//! A table is never freed: calls read it without a lock, and may still use it when the loader is
//! torn down. Equal tables are stored once, so that repeated initialisation does not grow the
//! process.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use ur::abi::ur_dditable_t;

static TABLES: Mutex<Vec<&'static ur_dditable_t>> = Mutex::new(Vec::new());

/// A table with the same functions that is never freed.
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
    // SAFETY: the generator declares `ur_dditable_t` as `repr(C)` structs of optional function
    // pointers only. Each is one word, so that there is no padding.
    unsafe { std::mem::transmute_copy(table) }
}

/// The table that a layer wraps. It is static, since a layer's functions have no argument that
/// could carry it.
///
/// The last table stays set, for calls that race with a teardown.
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

    /// Sets the table that the layer's functions call.
    pub fn set(&self, table: &ur_dditable_t) {
        let table = intern(table);
        self.0
            .store(std::ptr::from_ref(table).cast_mut(), Ordering::Release);
    }

    /// The wrapped table; `None` until the layer is first enabled.
    #[inline]
    pub fn table(&self) -> Option<&'static ur_dditable_t> {
        // SAFETY: null, or a table that [`intern`] returned and never frees.
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
    fn equal_tables_are_stored_once() {
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

//! From a handle to its adapter's functions.
//!
//! Owns the one rule of dispatch: the first word of every handle points to its adapter's table. The
//! functions that follow it are an expansion of the list in `ur::abi`; they cost the same for one
//! adapter and for many.

pub mod functions;

use std::ffi::c_void;

use ur::abi::*;

/// Nulls an output that is null after every refusal, before anything is checked.
macro_rules! clear {
    ($arg:ident [$need:ident output $kind:ident clear]) => {
        if !$arg.is_null() {
            // SAFETY: not null, and the caller promises that it can be written.
            unsafe { $arg.write(std::ptr::null_mut()) }
        }
    };
    ($arg:ident $form:tt) => {};
}
pub(crate) use clear;

/// The code, for a function whose export calls its dispatch directly while no layer is on. Those are
/// what programs call most; the loader puts nothing of its own into these tables.
macro_rules! if_direct {
    ($table:ident [] $($code:tt)*) => {};
    (Enqueue $leader:tt $($code:tt)*) => { $($code)* };
    (EnqueueExp $leader:tt $($code:tt)*) => { $($code)* };
    (Event $leader:tt $($code:tt)*) => { $($code)* };
    ($table:ident $leader:tt $($code:tt)*) => {};
}
pub(crate) use if_direct;

/// The table of a handle's adapter. `INVALID_NULL_HANDLE` for a null handle; `UNINITIALIZED` for an
/// object without a table.
///
/// # Safety
/// `handle` is null or a live handle of a loaded adapter.
#[inline]
pub unsafe fn table_of(handle: *const c_void) -> Result<&'static ur_dditable_t, ur_result_t> {
    if handle.is_null() {
        return Err(UR_RESULT_ERROR_INVALID_NULL_HANDLE);
    }
    // SAFETY: a live handle starts with a pointer to a table, which lives as long as the adapter's
    // library, and that stays loaded.
    unsafe { (*handle.cast::<*const ur_dditable_t>()).as_ref() }
        .ok_or(UR_RESULT_ERROR_UNINITIALIZED)
}

/// As [`table_of`], for the first handle of a list. A null list is `INVALID_NULL_POINTER`, one
/// without elements is `empty`.
///
/// # Safety
/// `list` is null or holds `count` handles, each as [`table_of`] asks.
#[inline]
pub unsafe fn table_of_first(
    count: u32,
    list: *const *const c_void,
    empty: ur_result_t,
) -> Result<&'static ur_dditable_t, ur_result_t> {
    if list.is_null() {
        return Err(UR_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    if count == 0 {
        return Err(empty);
    }
    // SAFETY: the list has a first element, and the caller promises what it is.
    unsafe { table_of(*list) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_found_through_the_first_word() {
        static TABLE: std::sync::LazyLock<ur_dditable_t> =
            std::sync::LazyLock::new(ur_dditable_t::default);
        let table: *const ur_dditable_t = &raw const *TABLE;
        let object = [table.cast::<c_void>(), std::ptr::null()];
        let handle = object.as_ptr().cast::<c_void>();
        let bare = [std::ptr::null::<c_void>()];
        let empty = UR_RESULT_ERROR_INVALID_VALUE;
        let address =
            |found: Result<&'static ur_dditable_t, ur_result_t>| found.map(std::ptr::from_ref);
        // SAFETY: every handle is null or starts with a null pointer or one to a static table.
        unsafe {
            assert_eq!(address(table_of(handle)), Ok(table));
            assert_eq!(
                address(table_of(std::ptr::null())),
                Err(UR_RESULT_ERROR_INVALID_NULL_HANDLE)
            );
            assert_eq!(
                address(table_of(bare.as_ptr().cast())),
                Err(UR_RESULT_ERROR_UNINITIALIZED)
            );
            let first = |count, list| address(table_of_first(count, list, empty));
            assert_eq!(first(1, &raw const handle), Ok(table));
            assert_eq!(first(0, &raw const handle), Err(empty));
            assert_eq!(
                first(1, std::ptr::null()),
                Err(UR_RESULT_ERROR_INVALID_NULL_POINTER)
            );
            assert_eq!(
                first(1, bare.as_ptr()),
                Err(UR_RESULT_ERROR_INVALID_NULL_HANDLE)
            );
        }
    }
}

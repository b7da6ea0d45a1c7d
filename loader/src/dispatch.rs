//! Dispatch from a handle to its adapter's functions.
//!
//! Owns the rule of dispatch: the first word of every handle points to its adapter's table. The
//! functions expand from the list in `ur::abi`. Their cost does not depend on the number of
//! adapters.

pub mod functions;

use std::ffi::c_void;

use ur::abi::*;

/// Writes null to an output that must be null after every refusal, before any check.
macro_rules! clear {
    ($arg:ident [$need:ident output $kind:ident clear]) => {
        if !$arg.is_null() {
            // SAFETY: not null, and the caller guarantees that it is writable.
            unsafe { $arg.write(std::ptr::null_mut()) }
        }
    };
    ($arg:ident $form:tt) => {};
}
pub(crate) use clear;

/// Expands to the code for tables whose exports call dispatch directly while no layer is in use.
///
/// These tables hold the functions that programs call most. The loader replaces none of their
/// functions.
macro_rules! if_direct {
    ($table:ident [] $($code:tt)*) => {};
    (Enqueue $leader:tt $($code:tt)*) => { $($code)* };
    (EnqueueExp $leader:tt $($code:tt)*) => { $($code)* };
    (Event $leader:tt $($code:tt)*) => { $($code)* };
    ($table:ident $leader:tt $($code:tt)*) => {};
}
pub(crate) use if_direct;

/// The table of a handle's adapter.
///
/// Errors: `INVALID_NULL_HANDLE` for a null handle, `UNINITIALIZED` for an object without a table.
///
/// # Safety
/// `handle` is null or a live handle of a loaded adapter.
#[inline]
pub unsafe fn table_of(handle: *const c_void) -> Result<&'static ur_dditable_t, ur_result_t> {
    if handle.is_null() {
        return Err(UR_RESULT_ERROR_INVALID_NULL_HANDLE);
    }
    // SAFETY: the caller guarantees a live handle, which starts with a pointer to its adapter's
    // table. `AdapterLibrary` keeps the library, and so the table, loaded.
    unsafe { (*handle.cast::<*const ur_dditable_t>()).as_ref() }
        .ok_or(UR_RESULT_ERROR_UNINITIALIZED)
}

/// The table of the adapter that owns the first handle of a list.
///
/// Errors: `INVALID_NULL_POINTER` for a null list, `empty` for one without elements,
/// `INVALID_NULL_HANDLE` and `UNINITIALIZED` for its first handle as for [`table_of`].
///
/// # Safety
/// `list` is null or holds `count` handles, each null or a live handle of a loaded adapter.
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
    // SAFETY: the list has a first element, which the caller guarantees to be null or live.
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
        // SAFETY: each handle of the test is null or starts with null or a pointer to a static
        // table.
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

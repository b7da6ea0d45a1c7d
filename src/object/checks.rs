//! What generated code checks of a caller's raw arguments: an adapter's shims, and the loader's
//! parameter validation.

use super::{Error, Result, ensure};
use crate::abi::*;

/// A pointer that must be there.
pub fn pointer<T>(pointer: *const T) -> Result<()> {
    ensure(!pointer.is_null(), UR_RESULT_ERROR_INVALID_NULL_POINTER)
}

/// A handle that must be there.
pub fn handle<T>(handle: *const T) -> Result<()> {
    ensure(!handle.is_null(), UR_RESULT_ERROR_INVALID_NULL_HANDLE)
}

/// A list of handles, none of which may be null. `null` is the error of a null list with a count,
/// of a null element.
///
/// # Safety
/// A list that is not null has that many readable elements.
pub unsafe fn handles<T>(list: *const *mut T, count: usize, null: ur_result_t) -> Result<()> {
    ensure(count == 0 || !list.is_null(), null)?;
    // SAFETY: the caller's promise.
    let list = unsafe { slice(list, count) }?;
    ensure(list.iter().all(|handle| !handle.is_null()), null)
}

/// A caller's array. Null with a count is an error; without one it is empty.
///
/// # Safety
/// An array that is not null has that many readable elements for as long as the result is used.
pub unsafe fn slice<'a, T>(first: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    ensure(!first.is_null(), UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    let fits = count
        .checked_mul(size_of::<T>())
        .is_some_and(|bytes| bytes <= isize::MAX as usize);
    if !fits || !first.is_aligned() {
        return Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE));
    }
    // SAFETY: readable as promised, aligned, and no longer than an object can be.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// A caller's array to be written, as [`slice`].
///
/// # Safety
/// An array that is not null has that many writable elements, which nothing else refers to for as
/// long as the result is used.
pub unsafe fn slice_mut<'a, T>(first: *mut T, count: usize) -> Result<&'a mut [T]> {
    // SAFETY: what is writable is readable.
    unsafe { slice(first, count) }?;
    if count == 0 {
        return Ok(&mut []);
    }
    // SAFETY: checked as for reading; writable and exclusive as promised.
    Ok(unsafe { std::slice::from_raw_parts_mut(first, count) })
}

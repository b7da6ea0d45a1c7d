//! What the generated shims check and decode beyond handles.

use crate::abi::*;
use crate::object::{Error, Result, ensure};

/// A pointer that must be there.
pub fn pointer<T>(pointer: *const T) -> Result<()> {
    ensure(!pointer.is_null(), UR_RESULT_ERROR_INVALID_NULL_POINTER)
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

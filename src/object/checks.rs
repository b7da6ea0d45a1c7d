//! Checks of raw arguments, for generated code: the adapters' shims and the loader's parameter
//! validation.

use super::{Result, ensure};
use crate::abi::*;
use std::hint::cold_path;

/// `INVALID_NULL_POINTER` if the pointer is null.
pub fn pointer<T>(pointer: *const T) -> Result<()> {
    ensure(!pointer.is_null(), UR_RESULT_ERROR_INVALID_NULL_POINTER)
}

/// `INVALID_NULL_HANDLE` if the handle is null.
pub fn handle<T>(handle: *const T) -> Result<()> {
    ensure(!handle.is_null(), UR_RESULT_ERROR_INVALID_NULL_HANDLE)
}

/// An error if a condition of the specification makes the call wrong.
#[inline(always)]
pub fn refuse(wrong: bool, code: ur_result_t) -> Result<()> {
    ensure(!wrong, code)
}

/// An error if a wait list is null and has a count, or is given and has none.
#[inline(always)]
pub fn wait_list<T>(list: *const T, count: u32) -> Result<()> {
    ensure(
        list.is_null() == (count == 0),
        UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST,
    )
}

/// The remainder of `number` divided by `by`, or 0 if `by` is 0.
#[inline]
pub fn rest(number: u64, by: u64) -> u64 {
    // Most sizes are powers of two. A division takes longer than all other checks of a call.
    match by.is_power_of_two() {
        true => number & (by - 1),
        false => {
            cold_path();
            number.checked_rem(by).unwrap_or(0)
        }
    }
}

/// Checks a list of handles: no handle may be null, nor the list if it has elements. `null` is the
/// error.
///
/// # Safety
/// The list is null or has `count` readable elements.
pub unsafe fn handles<T>(list: *const *mut T, count: usize, null: ur_result_t) -> Result<()> {
    ensure(count == 0 || !list.is_null(), null)?;
    // SAFETY: the caller guarantees `count` readable elements.
    let list = unsafe { slice(list, count) }?;
    ensure(list.iter().all(|handle| !handle.is_null()), null)
}

/// A caller's array. `INVALID_NULL_POINTER` if it is null and has elements, `INVALID_VALUE` if it
/// is misaligned or too large.
///
/// # Safety
/// The array is null or has `count` readable elements for as long as the result is used.
pub unsafe fn slice<'a, T>(first: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    ensure(!first.is_null(), UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    let fits = count
        .checked_mul(size_of::<T>())
        .is_some_and(|bytes| bytes <= isize::MAX as usize);
    ensure(fits && first.is_aligned(), UR_RESULT_ERROR_INVALID_VALUE)?;
    // SAFETY: the caller guarantees readable elements. The pointer is aligned, and the slice is not
    // larger than `isize::MAX`.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// A caller's writable array, with the errors of [`slice()`].
///
/// # Safety
/// The array is null or has `count` writable elements, which nothing else refers to for as long as
/// the result is used.
pub unsafe fn slice_mut<'a, T>(first: *mut T, count: usize) -> Result<&'a mut [T]> {
    // SAFETY: the caller guarantees writable elements, which are readable.
    unsafe { slice(first, count) }?;
    if count == 0 {
        return Ok(&mut []);
    }
    // SAFETY: the caller guarantees exclusive writable elements. `slice` has checked alignment and
    // length.
    Ok(unsafe { std::slice::from_raw_parts_mut(first, count) })
}

#[cfg(test)]
mod tests {
    use super::rest;

    #[test]
    fn rest_is_the_remainder_of_a_division() {
        for number in (0..200).chain([u64::MAX, u64::MAX - 1]) {
            assert_eq!(rest(number, 0), 0);
            (1..70).for_each(|by| assert_eq!(rest(number, by), number % by, "{number} by {by}"));
            assert_eq!(rest(number, 1 << 63), number % (1 << 63));
        }
    }
}

//! The checks that generated parameter validation calls.
//!
//! Owns nothing but comparisons; may use `abi` and `object`.

use ur::abi::*;
use ur::object::{Result, ensure};

/// A pointer that must be there.
#[inline]
pub fn pointer<T>(pointer: *const T) -> Result<()> {
    ensure(!pointer.is_null(), UR_RESULT_ERROR_INVALID_NULL_POINTER)
}

/// A handle that must be there.
#[inline]
pub fn handle<T>(handle: *const T) -> Result<()> {
    ensure(!handle.is_null(), UR_RESULT_ERROR_INVALID_NULL_HANDLE)
}

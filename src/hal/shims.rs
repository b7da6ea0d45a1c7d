//! The C functions of an adapter: what a row of `shims!` becomes, and how arguments are decoded.
//!
//! A row is `urX(argument: type, ...) [clears output ...] { body }`. The body is a `Result<()>` and runs
//! within [`boundary`], in an unsafe block, with the backend as `B`. Its statements check the arguments in
//! the order that spec/README.md lists, call one trait method, and write its outputs. An output that is
//! cleared is null after a refusal too.
//!
//! The caller guarantees what the specification asks of it. A pointer that is not null is readable, or
//! writable, for what its parameter says. A handle is null or that of a live object.

use super::Backend;
use crate::abi::*;
use crate::hal::checks;
use crate::object::{Body, Error, Handles, Object, Result};
use std::ffi::{CStr, c_char};

macro_rules! shims {
    ($( $name:ident($($arg:ident: $ty:ty),* $(,)?) $(clears $cleared:ident)* { $($body:tt)* } )*) => { $(
        #[allow(
            clippy::manual_range_contains,
            clippy::missing_safety_doc,
            clippy::too_many_arguments,
            clippy::undocumented_unsafe_blocks,
            clippy::unnecessary_cast,
            non_snake_case
        )]
        pub(in crate::hal) unsafe extern "C" fn $name<B: Backend>($($arg: $ty),*) -> ur_result_t {
            $( if !$cleared.is_null() { unsafe { $cleared.write(null_mut()) } } )*
            $crate::object::boundary(|| unsafe { $($body)* })
        }
    )* };
}
pub(in crate::hal) use shims;

macro_rules! absent {
    ($absent:ident: $name:ident, $handle:literal) => {
        #[doc = concat!("Stands for the `", $handle, "` of a backend that has none.")]
        pub type $absent = Absent<{ Kind::$name as u32 }>;

        impl Body for $absent {
            const KIND: Kind = Kind::$name;
        }

        impl<B: Backend> $name<B> for $absent {}
    };
}
pub(in crate::hal) use absent;

macro_rules! table {
    ($( $table:ident $struct:ident { $(
        $name:ident $slot:ident $pfn:ident $params:tt $leader:tt $args:tt
    )* } )*) => {
        /// Every slot filled with a backend's shims.
        pub const fn ddi<B: Backend>() -> ur_dditable_t {
            ur_dditable_t {
                $( $table: $struct { $( $slot: Some(super::generated::$name::<B>), )* }, )*
            }
        }
    };
}
for_each_function! { table }

/// The answer of a method that a backend leaves out.
#[inline(always)]
pub fn unsupported<T>() -> Result<T> {
    Err(Error::unsupported())
}

/// The object behind a handle.
///
/// # Safety
/// The handle is null or that of a live object, of any adapter and kind.
#[inline(always)]
pub unsafe fn object<'a, B: Backend, T: Body>(handle: *mut impl Sized) -> Result<&'a Object<T>> {
    // SAFETY: the caller guarantees null or a live object.
    unsafe { Object::borrow(handle.cast(), B::table()) }
}

/// The object behind a handle that may be null.
///
/// # Safety
/// As of [`object`].
#[inline(always)]
pub unsafe fn optional_object<'a, B: Backend, T: Body>(
    handle: *mut impl Sized,
) -> Result<Option<&'a Object<T>>> {
    if handle.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller guarantees a live object, as the handle is not null.
    unsafe { object::<B, T>(handle) }.map(Some)
}

/// The objects behind a list of handles. A null handle is an `INVALID_NULL_HANDLE`, and so is a null list
/// that has a count.
///
/// # Safety
/// A list that is not null has `count` handles, each null or that of a live object.
#[inline(always)]
pub unsafe fn handles<'a, B: Backend, T: Body>(
    list: *const *mut impl Sized,
    count: u32,
) -> Result<Handles<'a, T>> {
    let null = UR_RESULT_ERROR_INVALID_NULL_HANDLE;
    // SAFETY: the caller guarantees `count` handles, each null or of a live object.
    unsafe { Handles::borrow(list.cast(), count as usize, B::table(), null) }
}

/// The events of a wait list, of which none may be null.
///
/// # Safety
/// As of [`handles`].
#[inline(always)]
pub unsafe fn waits<'a, B: Backend>(
    list: *const ur_event_handle_t,
    count: u32,
) -> Result<Handles<'a, B::Event>> {
    let null = UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST;
    // SAFETY: the caller guarantees `count` handles, each null or of a live event.
    unsafe { Handles::borrow(list.cast(), count as usize, B::table(), null) }
}

/// The elements of an array; none for a null pointer.
///
/// # Safety
/// As of [`checks::slice`].
#[inline(always)]
pub unsafe fn optional_slice<'a, T>(first: *const T, count: usize) -> Result<Option<&'a [T]>> {
    if first.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller guarantees `count` readable elements, as the pointer is not null.
    unsafe { checks::slice(first, count) }.map(Some)
}

/// A text; none for a null pointer.
///
/// # Safety
/// A pointer that is not null leads to a text that ends in 0 and outlives the result.
#[inline(always)]
pub unsafe fn optional_text<'a>(text: *const c_char) -> Option<&'a CStr> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees a text that ends in 0 and outlives the result.
    Some(unsafe { CStr::from_ptr(text) })
}

/// A function that must be there.
#[inline(always)]
pub fn function<F>(function: Option<F>) -> Result<F> {
    function.ok_or(Error::new(UR_RESULT_ERROR_INVALID_NULL_POINTER))
}

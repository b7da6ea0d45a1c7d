//! An entry point's frame: the script, the guard, and how results, outputs and chains are read and written.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ze::*;

use crate::script;

/// What an entry point's body returns: an error is any code but success.
pub type Answer<T = ()> = Result<T, ze_result_t>;

/// Runs a body, after the script had its chance to fail the call. No panic leaves it.
pub fn boundary(name: &'static str, body: impl FnOnce() -> Answer) -> ze_result_t {
    let ran = catch_unwind(AssertUnwindSafe(|| {
        script::called(name).and_then(|()| body())
    }));
    let code = match ran {
        Ok(Ok(())) => ZE_RESULT_SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => {
            script::broken(format!("{name} panicked"));
            ZE_RESULT_ERROR_UNKNOWN
        }
    };
    script::trace(name, code);
    code
}

/// Declares entry points of a module: exports, with the types of the interface, and their list.
macro_rules! entries {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> ::ze::ze_result_t {
                #[allow(unused_unsafe)]
                $crate::entry::boundary(stringify!($name), move || {
                    // SAFETY: the caller keeps the interface's promises about its pointers.
                    unsafe { $body }
                })
            }
            const _: ::ze::pfn::$name = $name;
        )*
        /// The module's entry points, by name.
        pub const ENTRIES: &[$crate::tables::Entry] = &[$($crate::tables::Entry {
            name: stringify!($name),
            // SAFETY: a function's address keeps its meaning; callers give it its own type back.
            function: unsafe {
                ::std::mem::transmute::<::ze::pfn::$name, ::ze::ddi::Opaque>($name)
            },
        }),*];
    };
}

/// A reference to what the caller gives.
///
/// # Safety
/// The pointer is null or readable.
pub unsafe fn given<'a, T>(pointer: *const T) -> Answer<&'a T> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_ref() }.ok_or(ZE_RESULT_ERROR_INVALID_NULL_POINTER)
}

/// Writes an output that is required.
///
/// # Safety
/// The pointer is null or writable.
pub unsafe fn put<T>(pointer: *mut T, value: T) -> Answer {
    if pointer.is_null() {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    // SAFETY: as the caller promises.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Writes an output that may be null.
///
/// # Safety
/// The pointer is null or writable.
pub unsafe fn offer<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: as the caller promises.
        unsafe { pointer.write(value) };
    }
}

/// The caller's array. Empty if `count` is 0.
///
/// # Safety
/// `count` elements are readable.
pub unsafe fn array<'a, T>(first: *const T, count: usize) -> Answer<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() {
        return Err(ZE_RESULT_ERROR_INVALID_SIZE);
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// Answers a question for a list: its length if none is wanted, else the elements, up to the room.
///
/// # Safety
/// `count` is writable; `first` is null or has room for `count`.
pub unsafe fn fill<T, U>(
    count: *mut u32,
    first: *mut T,
    all: &[U],
    set: impl Fn(&mut T, &U),
) -> Answer {
    // SAFETY: as the caller promises.
    let wanted = *unsafe { given(count) }?;
    let there = u32::try_from(all.len()).unwrap_or(u32::MAX);
    if wanted == 0 || first.is_null() {
        // SAFETY: as the caller promises.
        unsafe { count.write(there) };
        return Ok(());
    }
    let written = wanted.min(there);
    for (index, one) in all.iter().take(written as usize).enumerate() {
        // SAFETY: the index is below the count that there is room for.
        set(unsafe { &mut *first.add(index) }, one);
    }
    // SAFETY: as the caller promises.
    unsafe { count.write(written) };
    Ok(())
}

/// Answers a question for bytes: their number if none are wanted, else the bytes.
///
/// # Safety
/// `size` is writable; `out` is null or has room for `size` bytes.
pub unsafe fn bytes_out<T>(size: *mut usize, out: *mut T, bytes: &[u8]) -> Answer {
    // SAFETY: as the caller promises.
    let room = *unsafe { given(size) }?;
    if !out.is_null() {
        if room < bytes.len() {
            return Err(ZE_RESULT_ERROR_INVALID_SIZE);
        }
        // SAFETY: the room was compared.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), bytes.len()) };
    }
    // SAFETY: as the caller promises.
    unsafe { size.write(bytes.len()) };
    Ok(())
}

/// The structures chained behind a description, as tags and addresses.
///
/// # Safety
/// Each structure begins with its tag and the pointer to the next.
pub unsafe fn chain(
    first: *const c_void,
) -> impl Iterator<Item = (ze_structure_type_t, *mut c_void)> {
    let mut next = first.cast_mut();
    std::iter::from_fn(move || {
        if next.is_null() {
            return None;
        }
        let here = next;
        // SAFETY: as the caller promises.
        let head = unsafe { *here.cast::<ze_base_desc_t>() };
        next = head.pNext.cast_mut();
        Some((head.stype, here))
    })
}

/// The first chained structure of a type.
///
/// # Safety
/// As for [`chain`]; the structure with the type's tag is of that type.
pub unsafe fn chained<'a, T: Tagged>(first: *const c_void) -> Option<&'a mut T> {
    // SAFETY: as the caller promises.
    let found = unsafe { chain(first) }.find(|(tag, _)| *tag == T::TAG)?;
    // SAFETY: as the caller promises.
    Some(unsafe { &mut *found.1.cast::<T>() })
}

/// Copies text into a fixed array of characters, cut and ended with NUL.
pub fn text_into(out: &mut [std::ffi::c_char], text: &str) {
    out.fill(0);
    let room = out.len().saturating_sub(1);
    for (to, from) in out.iter_mut().zip(text.bytes().take(room)) {
        *to = from.cast_signed();
    }
}

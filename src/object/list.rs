//! Lists of handles in arguments and outputs.

use super::{Body, Error, Object, Result};
use crate::abi::*;
use std::ffi::c_void;
use std::hint::cold_path;
use std::marker::PhantomData;
use std::sync::Arc;

/// A caller's list of handles, each checked to be a live object of this adapter and kind.
pub struct Handles<'a, T> {
    raw: &'a [*const c_void],
    kind: PhantomData<&'a Object<T>>,
}

impl<T> Clone for Handles<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handles<'_, T> {}

impl<'a, T: Body> Handles<'a, T> {
    pub const EMPTY: Self = Self {
        raw: &[],
        kind: PhantomData,
    };

    /// Checks every handle. `null` is the error for a null handle, and for a null list with
    /// elements. A handle of another adapter or kind has the kind's error.
    ///
    /// # Safety
    /// The list is null or has `count` handles, each null or of a live object.
    #[inline(always)]
    pub unsafe fn borrow(
        list: *const *const c_void,
        count: usize,
        ddi: &'static ur_dditable_t,
        null: ur_result_t,
    ) -> Result<Self> {
        match count {
            0 => Ok(Self::EMPTY),
            _ => {
                cold_path();
                // SAFETY: the caller guarantees the list.
                unsafe { Self::borrow_some(list, count, ddi, null) }
            }
        }
    }

    /// Separate from `borrow`: nearly every entry point has a list, and most calls pass none.
    #[inline(never)]
    unsafe fn borrow_some(
        list: *const *const c_void,
        count: usize,
        ddi: &'static ur_dditable_t,
        null: ur_result_t,
    ) -> Result<Self> {
        if list.is_null() {
            return Err(Error::new(null));
        }
        // SAFETY: not null, and the caller guarantees `count` elements.
        let raw = unsafe { std::slice::from_raw_parts(list, count) };
        for &handle in raw {
            if handle.is_null() {
                return Err(Error::new(null));
            }
            // SAFETY: not null, and the caller guarantees a live object.
            unsafe { Object::<T>::borrow(handle, ddi) }?;
        }
        Ok(Self {
            raw,
            kind: PhantomData,
        })
    }

    /// A list of live objects.
    pub fn of(list: &'a [&'a Object<T>]) -> Self {
        let first = list.as_ptr().cast::<*const c_void>();
        // SAFETY: a reference is a pointer to a live object, for as long as the list.
        let raw = unsafe { std::slice::from_raw_parts(first, list.len()) };
        Self {
            raw,
            kind: PhantomData,
        }
    }

    pub fn len(&self) -> usize {
        self.raw.len()
    }

    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    pub fn first(&self) -> Option<&'a Object<T>> {
        self.iter().next()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a Object<T>> + use<'a, T> {
        // SAFETY: each handle is a live object of this kind: `borrow` checked it, and `of` was given them.
        self.raw
            .iter()
            .map(|&handle| unsafe { &*handle.cast::<Object<T>>() })
    }
}

/// The outputs of an enumeration: room for handles, and their total number.
pub struct ListOut<'a, T> {
    room: usize,
    list: *mut *mut c_void,
    total: *mut u32,
    call: PhantomData<&'a mut T>,
}

impl<T: Body> ListOut<'_, T> {
    /// Outputs for up to `room` handles.
    ///
    /// # Safety
    /// The list is null or has room for `room` handles; the total is null or writable.
    pub unsafe fn new(room: u32, list: *mut *mut c_void, total: *mut u32) -> Self {
        Self {
            room: room as usize,
            list,
            total,
            call: PhantomData,
        }
    }

    /// The number of handles that can be written.
    pub fn room(&self) -> usize {
        if self.list.is_null() { 0 } else { self.room }
    }

    /// Writes the handles that fit, each with an API reference, and the total number.
    pub fn write(self, objects: &[Arc<Object<T>>]) {
        for (at, object) in objects.iter().take(self.room()).enumerate() {
            // SAFETY: not null, and the caller of `new` guaranteed room for more than `at` handles.
            unsafe { self.list.add(at).write(object.into_handle()) }
        }
        if !self.total.is_null() {
            // SAFETY: not null, and the caller of `new` guaranteed that it is writable.
            unsafe { self.total.write(objects.len() as u32) }
        }
    }
}

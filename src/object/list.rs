//! Lists of handles that cross the boundary.

use super::{Body, Error, Object, Result};
use crate::abi::*;
use std::ffi::c_void;
use std::hint::cold_path;
use std::marker::PhantomData;
use std::sync::Arc;

/// A caller's list of handles, checked: each is a live object of this adapter and kind.
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

    /// Checks every handle. `null` is the error of a null list with a count, of a null element.
    ///
    /// # Safety
    /// A list that is not null holds `count` handles, each null or of a live object.
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
                // SAFETY: the caller's promise.
                unsafe { Self::borrow_some(list, count, ddi, null) }
            }
        }
    }

    /// Separate: nearly every entry point has a list, and most calls pass none.
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
        // SAFETY: promised by the caller.
        let raw = unsafe { std::slice::from_raw_parts(list, count) };
        for &handle in raw {
            if handle.is_null() {
                return Err(Error::new(null));
            }
            // SAFETY: promised by the caller.
            unsafe { Object::<T>::borrow(handle, ddi) }?;
        }
        Ok(Self {
            raw,
            kind: PhantomData,
        })
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
        // SAFETY: `borrow` checked each to be a live object of this kind.
        self.raw
            .iter()
            .map(|&handle| unsafe { &*handle.cast::<Object<T>>() })
    }
}

/// The outputs of an enumeration: capacity for some handles, and the total number.
pub struct ListOut<'a, T> {
    room: usize,
    list: *mut *mut c_void,
    total: *mut u32,
    call: PhantomData<&'a mut T>,
}

impl<T: Body> ListOut<'_, T> {
    /// # Safety
    /// The list is null or has room for that many handles; the total is null or writable.
    pub unsafe fn new(room: u32, list: *mut *mut c_void, total: *mut u32) -> Self {
        Self {
            room: room as usize,
            list,
            total,
            call: PhantomData,
        }
    }

    /// How many handles can be written.
    pub fn room(&self) -> usize {
        if self.list.is_null() { 0 } else { self.room }
    }

    /// Writes as many as fit, each with an API reference, and the number of all.
    pub fn write(self, objects: &[Arc<Object<T>>]) {
        for (at, object) in objects.iter().take(self.room()).enumerate() {
            // SAFETY: `at` is below the room that `new` was promised.
            unsafe { self.list.add(at).write(object.into_handle()) }
        }
        if !self.total.is_null() {
            // SAFETY: `new` was promised that it is writable.
            unsafe { self.total.write(objects.len() as u32) }
        }
    }
}

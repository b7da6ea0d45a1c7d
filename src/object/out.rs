//! Outputs of a call: typed, written once, on success. A null output is not wanted.

use super::{Body, Object};
use crate::abi::ur_dditable_t;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Arc;

/// The output of a plain value.
pub struct Out<'a, T> {
    to: *mut T,
    call: PhantomData<&'a mut T>,
}

impl<T: Copy> Out<'_, T> {
    /// # Safety
    /// The pointer is null or writable for the duration of the call.
    pub unsafe fn new(to: *mut T) -> Self {
        Self {
            to,
            call: PhantomData,
        }
    }

    pub fn wanted(&self) -> bool {
        !self.to.is_null()
    }

    pub fn set(self, value: T) {
        if self.wanted() {
            // SAFETY: not null, and `new` was promised that it is writable.
            unsafe { self.to.write(value) }
        }
    }
}

/// The output of a handle, which gets one API reference.
pub struct OutHandle<'a, T> {
    to: *mut *mut c_void,
    call: PhantomData<&'a mut T>,
}

impl<T: Body> OutHandle<'_, T> {
    /// # Safety
    /// The pointer is null or writable for the duration of the call.
    pub unsafe fn new(to: *mut *mut c_void) -> Self {
        Self {
            to,
            call: PhantomData,
        }
    }

    pub fn wanted(&self) -> bool {
        !self.to.is_null()
    }

    /// Makes an object for the handle, if it is wanted.
    #[inline(always)]
    pub fn make(self, ddi: &'static ur_dditable_t, body: impl FnOnce() -> T) {
        if self.wanted() {
            // SAFETY: not null, and `new` was promised that it is writable.
            unsafe { self.to.write(Object::handed_out(ddi, body)) }
        }
    }

    pub fn set(self, object: &Arc<Object<T>>) {
        if self.wanted() {
            // SAFETY: not null, and `new` was promised that it is writable.
            unsafe { self.to.write(object.into_handle()) }
        }
    }
}

//! Outputs of a call: typed, written once, on success. A null output is ignored.

use super::{Body, Object};
use crate::abi::ur_dditable_t;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Arc;

/// The output of a value.
pub struct Out<'a, T> {
    to: *mut T,
    call: PhantomData<&'a mut T>,
}

impl<T: Copy> Out<'_, T> {
    /// An output at `to`.
    ///
    /// # Safety
    pub unsafe fn new(to: *mut T) -> Self {
        Self {
            to,
            call: PhantomData,
        }
    }

    /// Whether the output is not null.
    pub fn wanted(&self) -> bool {
        !self.to.is_null()
    }

    /// Writes the value.
    pub fn set(self, value: T) {
        if self.wanted() {
            // SAFETY: not null, and the caller of `new` guaranteed that it is writable.
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
    /// An output at `to`.
    ///
    /// # Safety
    pub unsafe fn new(to: *mut *mut c_void) -> Self {
        Self {
            to,
            call: PhantomData,
        }
    }

    /// Whether the output is not null.
    pub fn wanted(&self) -> bool {
        !self.to.is_null()
    }

    /// The handle that the output holds before the call, where the caller passes one; null if the output is
    /// not wanted.
    pub fn current(&self) -> *mut c_void {
        match self.wanted() {
            // SAFETY: not null, and the caller of `new` guaranteed that it is readable and writable.
            true => unsafe { self.to.read() },
            false => std::ptr::null_mut(),
        }
    }

    /// Creates an object and writes its handle, unless the output is null.
    #[inline(always)]
    pub fn make(self, ddi: &'static ur_dditable_t, body: impl FnOnce() -> T) {
        if self.wanted() {
            // SAFETY: not null, and the caller of `new` guaranteed that it is writable.
            unsafe { self.to.write(Object::new_handle(ddi, body)) }
        }
    }

    /// Writes the object's handle and adds an API reference.
    pub fn set(self, object: &Arc<Object<T>>) {
        if self.wanted() {
            // SAFETY: not null, and the caller of `new` guaranteed that it is writable.
            unsafe { self.to.write(object.into_handle()) }
        }
    }
}

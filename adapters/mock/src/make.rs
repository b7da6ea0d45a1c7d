//! The outputs of generated answers. Each is written only where a caller wants it.

use std::ffi::c_void;
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Kind, Out, OutHandle};

use crate::objects::{self, Handle, Origin};

/// A plain value.
///
/// # Safety
/// The output is null or writable.
pub unsafe fn value<T: Copy>(to: *mut T, value: T) {
    // SAFETY: the caller's promise.
    unsafe { Out::new(to) }.set(value);
}

/// An object, with a reference for the caller.
///
/// # Safety
/// The output is null or writable.
pub unsafe fn reference<T>(to: *mut *mut T, object: &Arc<Handle>) {
    // SAFETY: the caller's promise.
    unsafe { OutHandle::new(to.cast()) }.set(object);
}

/// An object, without a reference.
///
/// # Safety
/// The output is null or writable.
pub unsafe fn lent<T>(to: *mut *mut T, object: Option<&Arc<Handle>>) {
    let handle = object.map_or(std::ptr::null_mut(), |object| object.handle());
    // SAFETY: the caller's promise.
    unsafe { value(to.cast(), handle) }
}

/// A new object. None is made where none is wanted.
///
/// # Safety
/// The output is null or writable.
pub unsafe fn handle<T>(to: *mut *mut T, kind: Kind, origin: &Origin) {
    if !to.is_null() {
        // SAFETY: the caller's promise.
        unsafe { reference(to, &objects::create(kind, origin.clone())) }
    }
}

/// The event of a command.
///
/// # Safety
/// The output is null or writable.
pub unsafe fn event<T>(to: *mut *mut T, command: ur_command_t, origin: &Origin) {
    if !to.is_null() {
        let event = objects::create(Kind::Event, origin.clone());
        event.set_fact("UR_EVENT_INFO_COMMAND_TYPE", &command.0.to_ne_bytes());
        // SAFETY: the caller's promise.
        unsafe { reference(to, &event) }
    }
}

/// The object whose native handle that is, or else a new one. The native handle of an object is its
/// own address.
///
/// # Safety
/// The output is null or writable.
pub unsafe fn adopted<T>(to: *mut *mut T, kind: Kind, native: usize, origin: &Origin) {
    let address = std::ptr::without_provenance::<c_void>(native);
    match objects::find(address, kind).or_else(|| objects::root(kind)) {
        // SAFETY: the caller's promise.
        Some(object) => unsafe { reference(to, &object) },
        // SAFETY: the caller promises that `to` has room for a handle.
        None => unsafe { handle(to, kind, origin) },
    }
}

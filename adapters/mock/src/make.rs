//! Outputs of answers by rows. A null output is not written.

use std::ffi::c_void;
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Kind, Out, OutHandle};

use crate::objects::{self, Handle, Origin};

/// Writes a value.
///
/// # Safety
/// The output is null or writable.
pub unsafe fn value<T: Copy>(to: *mut T, value: T) {
    // SAFETY: the caller guarantees that the output is null or writable.
    unsafe { Out::new(to) }.set(value);
}

/// Writes an object's handle and adds a reference for the caller.
///
/// # Safety
/// The output is null or writable.
pub unsafe fn reference<T>(to: *mut *mut T, object: &Arc<Handle>) {
    // SAFETY: the caller guarantees that the output is null or writable.
    unsafe { OutHandle::new(to.cast()) }.set(object);
}

/// Writes an object's handle without a reference.
///
/// # Safety
/// The output is null or writable.
pub unsafe fn lent<T>(to: *mut *mut T, object: Option<&Arc<Handle>>) {
    let handle = object.map_or(std::ptr::null_mut(), |object| object.handle());
    // SAFETY: the caller guarantees that the output is null or writable.
    unsafe { value(to.cast(), handle) }
}

/// Creates an object and writes its handle. A null output creates none.
///
/// # Safety
/// The output is null or writable.
pub unsafe fn handle<T>(to: *mut *mut T, kind: Kind, origin: &Origin) {
    if !to.is_null() {
        // SAFETY: the caller guarantees that the output is null or writable.
        unsafe { reference(to, &objects::create(kind, origin.clone())) }
    }
}

/// Creates the event of a command and writes its handle.
///
/// # Safety
/// The output is null or writable.
pub unsafe fn event<T>(to: *mut *mut T, command: ur_command_t, origin: &Origin) {
    if !to.is_null() {
        let event = objects::create(Kind::Event, origin.clone());
        event.store("UR_EVENT_INFO_COMMAND_TYPE", &command.0.to_ne_bytes());
        // SAFETY: the caller guarantees that the output is null or writable.
        unsafe { reference(to, &event) }
    }
}

/// Writes the object with a native handle, with a reference, or a new object if there is none.
///
/// An object's native handle is its own address.
///
/// # Safety
/// The output is null or writable.
pub unsafe fn adopted<T>(to: *mut *mut T, kind: Kind, native: usize, origin: &Origin) {
    let address = std::ptr::without_provenance::<c_void>(native);
    match objects::find(address, kind).or_else(|| objects::root(kind)) {
        // SAFETY: the caller guarantees that the output is null or writable.
        Some(object) => unsafe { reference(to, &object) },
        // SAFETY: the caller guarantees that the output is null or writable.
        None => unsafe { handle(to, kind, origin) },
    }
}

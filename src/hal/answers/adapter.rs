//! The adapter object: its properties, the last error and the logger.

use crate::abi::*;
use crate::hal::{AdapterInfo, Backend, Unwrapped, set_logger, set_logger_level};
use crate::object::{Body, InfoOut, Object, Result, last_error};
use std::ffi::c_char;
use std::ptr::with_exposed_provenance_mut;

/// `urAdapterGetInfo` of a backend's adapter.
pub fn adapter_info<B: Backend>(
    this: &Object<impl Body>,
    what: AdapterInfo,
    out: InfoOut<'_>,
) -> Result<()> {
    match what {
        AdapterInfo::Backend => out.value(B::BACKEND),
        AdapterInfo::ReferenceCount => out.value(this.api_refs()),
        AdapterInfo::Version => out.value(B::REVISION),
    }
}

/// `urAdapterGetLastError`: message and native code of the calling thread's last failure. The
/// message is valid until the thread's next failure.
pub fn last_driver_error() -> Result<(*const c_char, i32)> {
    let (code, message) = last_error();
    Ok((message, code))
}

/// `urAdapterSetLoggerCallback`: sends messages of this level and above to the callback. `user_data` is
/// the address of the callback's data, with exposed provenance.
pub fn set_logger_and_level(
    callback: <ur_logger_callback_t as Unwrapped>::Fn,
    user_data: usize,
    level: ur_logger_level_t,
) -> Result<()> {
    // SAFETY: `urAdapterSetLoggerCallback` requires a callback that any thread may call with this pointer.
    unsafe { set_logger(Some(callback), with_exposed_provenance_mut(user_data)) };
    set_logger_level(level);
    Ok(())
}

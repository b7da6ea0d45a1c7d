//! The mock's own interface for tests: callbacks, scripts and counts. `include/ur_mock.h` declares
//! it.
//!
//! An adapter exports its tables only. This interface is therefore reached through a native handle:
//! that of the platform points to [`API`], whatever loader, layers and adapters are in between.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::{Mutex, PoisonError};

use ur::abi::*;
use ur::object::{Error, Kind, Out, Result, boundary, ensure};

use crate::call::{self, Callback, Function, When};
use crate::objects;
use crate::script::{self, Script};

/// Incremented when members are added at the end.
const VERSION: u32 = 1;

/// `ur_mock_api_t`.
#[repr(C)]
pub struct Api {
    version: u32,
    set_callback:
        unsafe extern "C" fn(*const c_char, u32, Option<Function>, *mut c_void) -> ur_result_t,
    set_script: unsafe extern "C" fn(*const c_char, *mut *const c_char) -> ur_result_t,
    reset: unsafe extern "C" fn() -> ur_result_t,
    get_calls: unsafe extern "C" fn(*const c_char, *mut u64) -> ur_result_t,
    get_live: unsafe extern "C" fn(*const c_char, *mut u64) -> ur_result_t,
}

pub static API: Api = Api {
    version: VERSION,
    set_callback,
    set_script,
    reset,
    get_calls,
    get_live,
};

/// Sets or removes a callback of a function.
///
/// # Safety
/// The name is null or a C string; the callback may be called from any thread with the user data.
unsafe extern "C" fn set_callback(
    function: *const c_char,
    when: u32,
    callback: Option<Function>,
    user_data: *mut c_void,
) -> ur_result_t {
    boundary(|| {
        // SAFETY: the caller guarantees that the name is null or a C string.
        let index = unsafe { function_named(function) }?;
        let when = match when {
            0 => When::Before,
            1 => When::Replace,
            2 => When::After,
            _ => return Err(Error::new(UR_RESULT_ERROR_INVALID_ENUMERATION)),
        };
        let user_data = user_data.expose_provenance();
        let callback = callback.map(|function| Callback {
            function,
            user_data,
        });
        call::set(index, when, callback);
        Ok(())
    })
}

/// The error of the last script that was refused.
static REASON: Mutex<Option<CString>> = Mutex::new(None);

/// Sets a script, or the environment's script for a null text.
///
/// # Safety
/// The text is null, for the environment's script, or a C string; the output is null or writable.
unsafe extern "C" fn set_script(text: *const c_char, reason: *mut *const c_char) -> ur_result_t {
    boundary(|| {
        if text.is_null() {
            script::reset();
            return ensure(!script::is_broken(), UR_RESULT_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, and the caller guarantees a C string.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        match Script::parse(&text) {
            Ok(read) => {
                script::set(read);
                Ok(())
            }
            Err(error) => {
                let mut kept = REASON.lock().unwrap_or_else(PoisonError::into_inner);
                let reason_text = kept.insert(CString::new(error.to_string()).unwrap_or_default());
                // SAFETY: the caller guarantees that the output is null or writable.
                unsafe { Out::new(reason) }.set(reason_text.as_ptr());
                Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE))
            }
        }
    })
}

/// Removes all callbacks, resets all counts, and restores the environment's script.
unsafe extern "C" fn reset() -> ur_result_t {
    boundary(|| {
        call::reset();
        script::reset();
        Ok(())
    })
}

/// Writes the number of calls of a function.
///
/// # Safety
/// The name is null or a C string; the output is null or writable.
unsafe extern "C" fn get_calls(function: *const c_char, calls: *mut u64) -> ur_result_t {
    boundary(|| {
        // SAFETY: the caller guarantees that the name is null or a C string.
        let index = unsafe { function_named(function) }?;
        // SAFETY: the caller guarantees that the output is null or writable.
        unsafe { Out::new(calls) }.set(call::count(index));
        Ok(())
    })
}

/// Writes the number of live objects of a handle type.
///
/// # Safety
/// The name is null or a C string; the output is null or writable.
unsafe extern "C" fn get_live(handle_type: *const c_char, live: *mut u64) -> ur_result_t {
    boundary(|| {
        // SAFETY: the caller guarantees that the name is null or a C string.
        let kind = kind_named(unsafe { text(handle_type) }?)?;
        // SAFETY: the caller guarantees that the output is null or writable.
        unsafe { Out::new(live) }.set(objects::live(kind) as u64);
        Ok(())
    })
}

/// A text argument. `INVALID_VALUE` if it is null or not UTF-8.
///
/// # Safety
/// The text is null or a C string, which outlives the borrow.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str> {
    ensure(!text.is_null(), UR_RESULT_ERROR_INVALID_VALUE)?;
    // SAFETY: not null, and the caller guarantees a C string.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str()
        .map_err(|_| Error::new(UR_RESULT_ERROR_INVALID_VALUE))
}

/// The index of a function in `NAMES`. `INVALID_VALUE` for an unknown name.
///
/// # Safety
/// The text is null or a C string.
unsafe fn function_named(name: *const c_char) -> Result<usize> {
    // SAFETY: the caller guarantees that the name is null or a C string.
    let name = unsafe { text(name) }?;
    call::index_of(name).ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))
}

fn kind_named(handle_type: &str) -> Result<Kind> {
    let found = crate::functions::KINDS
        .iter()
        .find(|(name, _)| *name == handle_type);
    found
        .map(|(_, kind)| *kind)
        .ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))
}

//! Intel's functions that only the driver has: it gives their addresses, and they take its own handles.

use std::ffi::{CStr, c_char, c_void};

use crate::lz::*;
use ur::dl::function;

/// The address of a function. Null if the driver has none of this name.
pub fn find(api: &Api, driver: ze_driver_handle_t, name: &CStr) -> *const c_void {
    let mut found = std::ptr::null_mut();
    // SAFETY: a C string, and room for the address.
    let code =
        unsafe { (api.zeDriverGetExtensionFunctionAddress)(driver, name.as_ptr(), &mut found) };
    match code {
        ZE_RESULT_SUCCESS => found.cast_const(),
        _ => std::ptr::null(),
    }
}

/// The driver's own handle: the loader wraps them where there are several drivers. A loader that cannot translate wraps
/// none.
pub fn own_handle(api: &Api, driver: ze_driver_handle_t) -> Option<*mut c_void> {
    let Some(translate) = api.zelLoaderTranslateHandle else {
        return Some(driver.0);
    };
    let mut own = std::ptr::null_mut();
    // SAFETY: a handle of the loader's, and room for the driver's.
    let code = unsafe { translate(ZEL_HANDLE_DRIVER, driver.0, &mut own) };
    check(code, "zelLoaderTranslateHandle").ok()?;
    Some(own)
}

type VersionString = unsafe extern "C" fn(*mut c_void, *mut c_char, *mut usize) -> ze_result_t;

/// The driver's version as it writes it, as `1.6.32567+18`. None if the driver does not.
pub fn version_text(api: &Api, driver: ze_driver_handle_t) -> Option<String> {
    let address = find(api, driver, c"zeIntelGetDriverVersionString");
    // SAFETY: the driver's function of this name has this type.
    let ask = unsafe { function::<VersionString>(address) }?;
    let own = own_handle(api, driver)?;
    let (mut bytes, name) = (0, "zeIntelGetDriverVersionString");
    // SAFETY: a null text asks for its size.
    check(unsafe { ask(own, std::ptr::null_mut(), &mut bytes) }, name).ok()?;
    let mut letters = vec![0_u8; bytes];
    // SAFETY: the room has the size that the driver reported.
    let read = unsafe { ask(own, letters.as_mut_ptr().cast(), &mut bytes) };
    check(read, name).ok()?;
    // A driver may end the text with a zero.
    let mut parts = letters.split(|letter| *letter == 0);
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    (!text.is_empty()).then_some(text)
}

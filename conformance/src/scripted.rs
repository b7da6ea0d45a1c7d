//! Devices whose properties a test can change for a while.
//!
//! Only the mock has them, through the interface of its platform's native handle (include/ur_mock.h).

use crate::fixture::Fixture;
use crate::objects::info;
use crate::outcome::{Done, Stop};
use std::ffi::{CString, c_char, c_void};
use std::ptr::{NonNull, null, null_mut};
use ur::abi::*;

/// The first members of `ur_mock_api_t`.
#[repr(C)]
struct Api {
    version: u32,
    set_callback: *const c_void,
    set_script: unsafe extern "C" fn(*const c_char, *mut *const c_char) -> ur_result_t,
}

pub struct Scripted {
    api: NonNull<Api>,
}

/// Whether the device under test is the mock's: its commands complete at once and do nothing.
pub fn is_mock(fixture: &Fixture) -> bool {
    let (ur, platform) = (fixture.ur, fixture.platform);
    let name = info::text(|size, value, ret| {
        ur.urPlatformGetInfo(platform, UR_PLATFORM_INFO_NAME, size, value, ret)
    });
    name.is_ok_and(|name| name == "Mock Platform")
}

impl Scripted {
    /// The script interface of the device under test, if it has one.
    pub fn of(fixture: &Fixture) -> Option<Self> {
        if !is_mock(fixture) {
            return None;
        }
        let (ur, platform) = (fixture.ur, fixture.platform);
        let mut native: ur_native_handle_t = 0;
        ur.urPlatformGetNativeHandle(platform, &mut native)
            .ok()
            .ok()?;
        let api = NonNull::new(std::ptr::with_exposed_provenance_mut(native))?;
        Some(Self { api })
    }

    /// Runs a closure under a script, and restores the previous script.
    pub fn with(&self, script: &str, run: impl FnOnce() -> Done) -> Done {
        let text = CString::new(script).map_err(|_| Stop::failed("a NUL in a script"))?;
        self.set(text.as_ptr())?;
        let done = run();
        self.set(null())?;
        done
    }

    fn set(&self, text: *const c_char) -> Done {
        // SAFETY: the mock's interface is a static of its library, which stays loaded.
        let set = unsafe { self.api.as_ref() }.set_script;
        // SAFETY: a C string or null, as the interface requires.
        match unsafe { set(text, null_mut()) } {
            UR_RESULT_SUCCESS => Ok(()),
            code => Err(Stop::failed(format!(
                "the mock does not take a script: {code:?}"
            ))),
        }
    }
}

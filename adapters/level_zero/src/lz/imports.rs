//! Intel's functions that make plain host memory known to the driver. Only the driver has their addresses, and they take
//! the driver's own handles.

use std::ffi::{CStr, c_void};

use crate::lz::*;
use ur::dl::function;
use ur::object::Result;

type Import = unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> ze_result_t;
type Release = unsafe extern "C" fn(*mut c_void, *mut c_void) -> ze_result_t;

/// Both functions: a driver has both or neither.
#[derive(Clone, Copy)]
pub struct Imports {
    driver: *mut c_void,
    import: Import,
    release: Release,
}

// SAFETY: the driver's handle is a name that the driver resolves; any thread may hold it.
unsafe impl Send for Imports {}
// SAFETY: the driver's handle is a name that the driver resolves; any thread may hold it.
unsafe impl Sync for Imports {}

impl Imports {
    pub fn find(api: &Api, driver: ze_driver_handle_t) -> Option<Self> {
        let address = |name: &CStr| {
            let mut found = std::ptr::null_mut();
            // SAFETY: a C string, and room for the address.
            let code = unsafe {
                (api.zeDriverGetExtensionFunctionAddress)(driver, name.as_ptr(), &mut found)
            };
            match code {
                ZE_RESULT_SUCCESS => found.cast_const(),
                _ => std::ptr::null(),
            }
        };
        // SAFETY: the driver's functions of these names have these types.
        let (import, release) = unsafe {
            (
                function::<Import>(address(c"zexDriverImportExternalPointer"))?,
                function::<Release>(address(c"zexDriverReleaseImportedPointer"))?,
            )
        };
        Some(Self {
            driver: own_handle(api, driver)?,
            import,
            release,
        })
    }

    /// Makes a range known. Its address stays.
    pub fn import(&self, start: usize, bytes: usize) -> Result<()> {
        let start = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the caller keeps the range until it is released.
        let code = unsafe { (self.import)(self.driver, start, bytes) };
        check(code, "zexDriverImportExternalPointer")
    }

    pub fn release(&self, start: usize) -> Result<()> {
        let start = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the range was imported, and no command uses it.
        let code = unsafe { (self.release)(self.driver, start) };
        check(code, "zexDriverReleaseImportedPointer")
    }
}

/// The driver's own handle: the loader wraps them where there are several drivers. A loader that cannot translate wraps
/// none.
fn own_handle(api: &Api, driver: ze_driver_handle_t) -> Option<*mut c_void> {
    let Some(translate) = api.zelLoaderTranslateHandle else {
        return Some(driver.0);
    };
    let mut own = std::ptr::null_mut();
    // SAFETY: a handle of the loader's, and room for the driver's.
    let code = unsafe { translate(ZEL_HANDLE_DRIVER, driver.0, &mut own) };
    check(code, "zelLoaderTranslateHandle").ok()?;
    Some(own)
}

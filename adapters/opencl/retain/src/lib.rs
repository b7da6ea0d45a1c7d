//! OpenCL's `clRetain*`, found through the OpenCL adapter.
//!
//! libsycl of 2026.1 asks the adapter's library for them, for interoperability, where the reference's
//! adapter was linked to OpenCL. An adapter exports its 26 functions and no more, and must open where
//! there is no OpenCL; so it names this library as its auxiliary filter, which the dynamic linker
//! searches first, and does not miss.
//!
//! OpenCL itself would do for a filter, but then the linker looks up what OpenCL and the libraries
//! below it need by way of the adapter and its libraries, forty thousand names with Intel's: that was
//! 2.9 of the 56.8 million instructions in which a SYCL program started.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

type Retain = unsafe extern "C" fn(*mut c_void) -> c_int;

/// `CL_INVALID_VALUE`: without OpenCL there is no object to retain.
const INVALID_VALUE: c_int = -30;

/// The function in the OpenCL that the process has open.
fn find(name: &CStr) -> Option<Retain> {
    // SAFETY: a C string; nothing is loaded that is not. Kept open, as what is found is kept.
    let open = |library: &CStr| unsafe {
        libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD)
    };
    let mut libraries = [c"libOpenCL.so.1", c"libOpenCL.so"].into_iter().map(open);
    let library = libraries.find(|library| !library.is_null())?;
    // SAFETY: an open library and a C string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: null, or OpenCL's function of this name, which has this type.
    unsafe { std::mem::transmute::<*mut c_void, Option<Retain>>(found) }
}

macro_rules! retain {
    ($($name:ident: $text:literal;)*) => {$(
        /// OpenCL's.
        ///
        /// # Safety
        /// As OpenCL's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(object: *mut c_void) -> c_int {
            static FOUND: OnceLock<Option<Retain>> = OnceLock::new();
            match FOUND.get_or_init(|| find($text)) {
                // SAFETY: the caller's promise.
                Some(retain) => unsafe { retain(object) },
                None => INVALID_VALUE,
            }
        }
    )*};
}

retain! {
    clRetainCommandQueue: c"clRetainCommandQueue";
    clRetainContext: c"clRetainContext";
    clRetainDevice: c"clRetainDevice";
    clRetainEvent: c"clRetainEvent";
    clRetainKernel: c"clRetainKernel";
    clRetainMemObject: c"clRetainMemObject";
    clRetainProgram: c"clRetainProgram";
}

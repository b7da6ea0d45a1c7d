//! OpenCL's `clRetain*`, found through the OpenCL adapter.
//!
//! libsycl of 2026.1 asks the adapter's library for them, for interoperability, where the reference's
//! adapter was linked to OpenCL. An adapter exports its 26 functions and no more, and must open where
//! there is no OpenCL. So it names this library as its auxiliary filter. The dynamic linker searches
//! that first, and needs no such file.
//!
//! OpenCL itself could be the filter. Then the linker looks up every name that OpenCL and the libraries
//! below it need through the adapter: forty thousand with Intel's. That was 2.9 of the 56.8 million
//! instructions in which a SYCL program started.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

type Retain = unsafe extern "C" fn(*mut c_void) -> c_int;

/// `CL_INVALID_VALUE`: without OpenCL there is no object to retain.
const INVALID_VALUE: c_int = -30;

/// The function in the OpenCL that the process has open, kept in `found` from the first time on.
fn find(name: &CStr, found: &AtomicPtr<c_void>) -> Option<Retain> {
    let mut retain = found.load(Ordering::Relaxed);
    if retain.is_null() {
        retain = look_up(name);
        found.store(retain, Ordering::Relaxed);
    }
    // SAFETY: null, or OpenCL's function of this name, which has this type.
    unsafe { std::mem::transmute::<*mut c_void, Option<Retain>>(retain) }
}

/// Null where there is none.
fn look_up(name: &CStr) -> *mut c_void {
    for library in [c"libOpenCL.so.1", c"libOpenCL.so"] {
        // SAFETY: a C string; nothing is loaded that is not. Kept open, as what is found is kept.
        let open = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if !open.is_null() {
            // SAFETY: an open library and a C string.
            return unsafe { libc::dlsym(open, name.as_ptr()) };
        }
    }
    null_mut()
}

macro_rules! retain {
    ($($name:ident: $text:literal;)*) => {$(
        /// OpenCL's.
        ///
        /// # Safety
        /// As OpenCL's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(object: *mut c_void) -> c_int {
            static FOUND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            match find($text, &FOUND) {
                // SAFETY: the caller passes an object of the function's kind.
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

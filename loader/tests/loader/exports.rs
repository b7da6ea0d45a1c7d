//! Symbol versions of the hand-written exports.

use std::ffi::{CStr, c_void};
use std::os::unix::ffi::OsStrExt;

use crate::common::loader_path;

const BY_HAND: [&CStr; 16] = [
    c"urLoaderInit",
    c"urLoaderTearDown",
    c"urLoaderConfigCreate",
    c"urLoaderConfigRetain",
    c"urLoaderConfigRelease",
    c"urLoaderConfigGetInfo",
    c"urLoaderConfigEnableLayer",
    c"urLoaderConfigSetCodeLocationCallback",
    c"urLoaderConfigSetMockingEnabled",
    c"urDeviceGetSelected",
    c"urKernelSetArgValue",
    c"urKernelSetArgLocal",
    c"urKernelSetArgPointer",
    c"urKernelSetArgSampler",
    c"urKernelSetArgMemObj",
    c"urEnqueueKernelLaunch",
];

#[test]
fn symbols_have_their_version() {
    let path = std::ffi::CString::new(loader_path().as_os_str().as_bytes()).expect("a path");
    // SAFETY: the loader has no initialisers.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    assert!(!library.is_null());
    let find = |name: &CStr, version: &CStr| -> *mut c_void {
        // SAFETY: the library is open, and both names are C strings.
        unsafe { libc::dlvsym(library, name.as_ptr(), version.as_ptr()) }
    };
    for name in BY_HAND {
        assert!(!find(name, c"LIBUR_LOADER_0.12").is_null(), "{name:?}");
        assert!(find(name, c"LIBUR_LOADER_0.11").is_null(), "{name:?}");
    }
}

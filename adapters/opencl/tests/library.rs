//! The built library as libsycl of 2026.1 sees it: what is found through it.

use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null_mut;

use ur::dl::{Binding, Library, function};

/// The library of this build, with the one beside it, which no dependency makes cargo build.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("this test has a file");
    let folder = test.parent().and_then(Path::parent);
    let folder = folder.expect("target/<profile>/deps/<test>").to_owned();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--target-dir"]);
    build.arg(folder.parent().expect("target/<profile>"));
    for package in ["ur-adapter-opencl", "ur-opencl-retain"] {
        build.args(["--package", package]);
    }
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    assert!(
        build.status().expect("cargo runs").success(),
        "{build:?} failed"
    );
    folder.join("libur_adapter_opencl.so")
}

#[test]
fn opencl_is_found_through_it() {
    let library = Library::open(built(), Binding::Usual).expect("it needs no OpenCL to open");
    let retains = [
        c"clRetainCommandQueue",
        c"clRetainContext",
        c"clRetainDevice",
        c"clRetainEvent",
        c"clRetainKernel",
        c"clRetainMemObject",
        c"clRetainProgram",
    ];
    for name in retains {
        // SAFETY: a function of this type, if it is there.
        let retain = unsafe {
            function::<unsafe extern "C" fn(*mut c_void) -> c_int>(library.address(name))
        };
        let retain = retain.unwrap_or_else(|| panic!("{name:?} is not found"));
        // SAFETY: no OpenCL is open here, so that nothing is done with the pointer.
        assert_eq!(unsafe { retain(null_mut()) }, -30, "{name:?}");
    }
}

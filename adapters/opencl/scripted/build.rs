//! Gives the library OpenCL's name for the dynamic linker.
//!
//! Once a test has opened it by its path, a later request for `libOpenCL.so.1` gets this library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libOpenCL.so.1");
}

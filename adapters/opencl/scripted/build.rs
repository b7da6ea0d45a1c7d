//! Gives the library OpenCL's name for the dynamic linker: once a test has opened it by its path,
//! whoever asks for `libOpenCL.so.1` gets it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libOpenCL.so.1");
}

//! Gives the library the driver's name for the dynamic linker: once a test has opened it by its path,
//! whoever asks for `libcuda.so.1` gets it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
}

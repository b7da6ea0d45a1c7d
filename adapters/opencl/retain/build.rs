//! Gives the library its name for the dynamic linker.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libur_opencl_retain.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}

//! Gives the library its name for the dynamic linker, and binds its own symbols to itself. What
//! libsycl of 2026.1 looks for in it beyond an adapter's functions is in a library beside it, in
//! retain/: an auxiliary filter, which nobody misses where it is not.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libur_adapter_opencl.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--auxiliary=$ORIGIN/libur_opencl_retain.so");
}

//! The linker's options: the library's name, and its own symbols first. libsycl of 2026.1 looks for more than an
//! adapter's functions in it. Those are in a library beside it (`retain/`), an optional auxiliary filter.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libur_adapter_opencl.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--auxiliary=$ORIGIN/libur_opencl_retain.so");
}

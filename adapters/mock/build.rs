//! Gives the library its name for the dynamic linker, binds its own symbols to itself, and keeps it
//! in memory once loaded: callbacks and scripts set through one loader are there for the next.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libur_adapter_mock.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

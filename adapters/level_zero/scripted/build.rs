//! Gives the library the loader's name for the dynamic linker, and binds its own symbols to itself.
//!
//! Once a test has opened it by its path, a later request for `libze_loader.so.1` gets this library. Behind the
//! real loader, a table must have this library's functions and not the loader's functions of these names.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libze_loader.so.1");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

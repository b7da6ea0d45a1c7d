//! Gives the library its name for the dynamic linker, binds its own symbols to itself, and keeps it
//! in memory once loaded: a program that forgets a reference, and so our threads, must not crash
//! because its loader closes the library under them.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libur_adapter_native_cpu.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

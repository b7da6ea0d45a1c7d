//! Sets the library's soname, binds its symbols locally, and keeps it loaded. Callbacks and scripts
//! that were set through one loader are there for the next.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libur_adapter_mock.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

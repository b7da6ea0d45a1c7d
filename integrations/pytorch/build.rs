//! Gives the library its name for the dynamic linker, and binds its own symbols to itself.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libur_pytorch.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}

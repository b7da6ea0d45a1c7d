//! Gives the library its name for the dynamic linker, and makes it small: whoever starts waits for it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libur_opencl_retain.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // GNU's linker, which leaves out what nothing refers to: all of `std`, 290 KiB and fifty symbols
    // to find at each start. LLVM's keeps whatever the personality in an unwind table leads to.
    println!("cargo::rustc-cdylib-link-arg=-fuse-ld=bfd");
    // Two mappings instead of four.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,noseparate-code");
}

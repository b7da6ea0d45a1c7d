//! Gives the library its name for the dynamic linker, and binds its own symbols to itself.
//!
//! libsycl of 2026.1 asks the library of this name for OpenCL's own functions (`clRetainContext` and
//! its like, for interoperability), where the reference's adapter was linked to OpenCL. An auxiliary
//! filter answers it: OpenCL is searched through this library where it is installed, and where it is
//! not, nobody misses it. (`ldd` on this library itself aborts in glibc 2.36, as on any whose filtee
//! has thread-locals; opening it, linking to it and `ldd` on a program that does are all right.)

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libur_adapter_opencl.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--auxiliary=libOpenCL.so.1");
}

//! Links the loader with the soname and the symbol version of the reference.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let Some(out) = std::env::var_os("OUT_DIR") else {
        return;
    };
    let script = Path::new(&out).join("versions");
    // rustc's own script lists the exports. This script only declares the version that each
    // export's `.symver` directive names.
    if let Err(error) = std::fs::write(&script, "LIBUR_LOADER_0.12 { };\n") {
        println!("cargo::error=cannot write {}: {error}", script.display());
        return;
    }
    for argument in [
        "-Wl,-soname,libur_loader.so.0",
        "-Wl,-Bsymbolic",
        &format!("-Wl,--version-script={}", script.display()),
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}

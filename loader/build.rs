//! Links the loader as the reference is linked: same soname, same symbol version.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let Some(out) = std::env::var_os("OUT_DIR") else {
        return;
    };
    let script = Path::new(&out).join("versions");
    // rustc's own script says what is exported; this one only brings the version into being, which
    // each exported function names with a `.symver` directive of its own.
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

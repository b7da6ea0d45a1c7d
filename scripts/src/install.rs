//! `cargo xtask install`: lays a built tree out as a package would: lib, include, bin, and the
//! files through which pkg-config and CMake find them.

use crate::build;
use anyhow::{Context as _, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The version in file names: the ABI's, and a patch level.
const VERSION: &str = env!("CARGO_PKG_VERSION");

const PROGRAMS: [&str; 4] = ["ur-conformance", "urinfo", "urreplay", "urtrace"];

const TEMPLATES: [(&str, &str); 3] = [
    (
        "lib/pkgconfig/libur_loader.pc",
        include_str!("../templates/install/libur_loader.pc.j2"),
    ),
    (
        "lib/cmake/unified-runtime/unified-runtime-config.cmake",
        include_str!("../templates/install/unified-runtime-config.cmake.j2"),
    ),
    (
        "lib/cmake/unified-runtime/unified-runtime-config-version.cmake",
        include_str!("../templates/install/unified-runtime-config-version.cmake.j2"),
    ),
];

/// Builds everything and installs it where only this project's tools look; returns the prefix.
pub fn below_target(root: &Path) -> Result<PathBuf> {
    let built = build::workspace(root, true)?;
    let prefix = build::target_dir(root)?.join("installed");
    install(root, &built, &prefix)?;
    Ok(prefix)
}

/// Installs what was built in `built` under `prefix`.
pub fn install(root: &Path, built: &Path, prefix: &Path) -> Result<()> {
    let lib = prefix.join("lib");
    library(built, &lib, "libur_loader.so")?;
    for adapter in build::adapters(root)? {
        library(built, &lib, &format!("libur_adapter_{adapter}.so"))?;
    }
    for program in PROGRAMS {
        copy(&built.join(program), &prefix.join("bin").join(program))?;
    }
    tree(&root.join("include"), &prefix.join("include"))?;
    let minor = VERSION.rsplit_once('.').map_or(VERSION, |(minor, _)| minor);
    let prefix_text = fs::canonicalize(prefix)?.display().to_string();
    for (path, template) in TEMPLATES {
        let values =
            minijinja::context! { prefix => &prefix_text, version => VERSION, minor => minor };
        let text = minijinja::Environment::new().render_str(template, values)? + "\n";
        let path = prefix.join(path);
        fs::create_dir_all(path.parent().unwrap_or(prefix))?;
        fs::write(path, text)?;
    }
    Ok(())
}

/// `libx.so.0.12.0` and the links to it: the soname for programs, the bare name for linkers.
fn library(built: &Path, lib: &Path, name: &str) -> Result<()> {
    let full = format!("{name}.{VERSION}");
    copy(&built.join(name), &lib.join(&full))?;
    let soname = format!("{name}.0");
    for (link, target) in [(soname.as_str(), full.as_str()), (name, soname.as_str())] {
        let link = lib.join(link);
        if fs::symlink_metadata(&link).is_ok() {
            fs::remove_file(&link)?;
        }
        symlink(target, &link).with_context(|| link.display().to_string())?;
    }
    Ok(())
}

fn tree(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            tree(&entry.path(), &target)?;
        } else {
            copy(&entry.path(), &target)?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    // A library in use is replaced, not written into.
    if to.exists() {
        fs::remove_file(to)?;
    }
    fs::copy(from, to).with_context(|| format!("{} to {}", from.display(), to.display()))?;
    Ok(())
}

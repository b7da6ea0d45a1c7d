//! Runs cargo and the C compiler, and finds their results.

use anyhow::{Context as _, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The adapter that new ones are copied from. It drives no backend, so that nothing installs or lists it.
pub const SKELETON: &str = "skeleton";

/// The adapters that are installed: the folders below adapters/ but the skeleton.
pub fn adapters(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root.join("adapters"))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| name != SKELETON);
    names.sort();
    Ok(names)
}

/// Builds every installed library and program. Returns their folder.
pub fn workspace(root: &Path, release: bool) -> Result<PathBuf> {
    let mut cargo = cargo(root);
    cargo.args(["build", "--workspace", "--exclude", "xtask"]);
    if release {
        cargo.arg("--release");
    }
    run(&mut cargo)?;
    Ok(target_dir(root)?.join(if release { "release" } else { "debug" }))
}

/// Builds some packages. Returns the folder of their libraries and programs.
pub fn packages(root: &Path, names: &[&str], release: bool) -> Result<PathBuf> {
    let mut cargo = cargo(root);
    cargo.arg("build");
    for name in names {
        cargo.args(["--package", name]);
    }
    if release {
        cargo.arg("--release");
    }
    run(&mut cargo)?;
    Ok(target_dir(root)?.join(if release { "release" } else { "debug" }))
}

/// cargo's metadata of the workspace, as JSON.
pub fn metadata(root: &Path, arguments: &[&str]) -> Result<String> {
    let mut cargo = cargo(root);
    cargo.args(["metadata", "--format-version", "1"]);
    output(cargo.args(arguments))
}

/// The toolchain's folder.
pub fn sysroot(root: &Path) -> Result<PathBuf> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let text = output(rustc.current_dir(root).args(["--print", "sysroot"]))?;
    Ok(PathBuf::from(text.trim_end()))
}

pub fn target_dir(root: &Path) -> Result<PathBuf> {
    let metadata: serde_json::Value = serde_json::from_str(&metadata(root, &["--no-deps"])?)?;
    metadata["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .context("cargo metadata names no target directory")
}

/// Compiles a C program of the project against include/ and a loader in `lib`.
pub fn c_program(root: &Path, source: &Path, lib: &Path, out: &Path) -> Result<()> {
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args([
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        "-O1",
    ]);
    cc.arg("-I")
        .arg(root.join("include"))
        .arg(source)
        .arg("-o")
        .arg(out);
    cc.arg("-L").arg(lib).arg("-lur_loader").arg(rpath(lib));
    run(&mut cc)
}

fn rpath(lib: &Path) -> std::ffi::OsString {
    let mut text = std::ffi::OsString::from("-Wl,-rpath,");
    text.push(lib);
    text
}

pub fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo
}

/// Runs a command, and fails if it does.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| show(command))?;
    if !status.success() {
        bail!("{} failed: {status}", show(command));
    }
    Ok(())
}

/// Runs a command, and returns its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| show(command))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed: {}\n{text}", show(command), output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

//! Runs cargo and the C compiler, finds their results, and says which long step runs.

use anyhow::{Context as _, Result, bail};
use console::progress::Progress;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

/// The packages that an installation needs.
const INSTALLED: [&str; 3] = ["--workspace", "--exclude", "xtask"];

/// The duration of a first build of the workspace in release mode on two cores, in minutes.
const RELEASE_MINUTES: u32 = 5;

/// Builds every installed library and program. Returns their folder.
pub fn workspace(root: &Path, release: bool) -> Result<PathBuf> {
    let minutes = release.then_some(RELEASE_MINUTES);
    build(root, "everything", &INSTALLED, release, minutes)
}

/// Builds some packages. Returns the folder of their libraries and programs.
pub fn packages(root: &Path, names: &[&str], release: bool) -> Result<PathBuf> {
    let chosen = names.iter().flat_map(|name| ["--package", name]);
    let chosen: Vec<&str> = chosen.collect();
    build(root, &names.join(", "), &chosen, release, None)
}

/// Builds the packages that cargo's options choose. Returns the folder of their libraries and programs.
/// `minutes` is the duration of a first build, if it is known.
fn build(
    root: &Path,
    what: &str,
    chosen: &[&str],
    release: bool,
    minutes: Option<u32>,
) -> Result<PathBuf> {
    let mode = if release { "release" } else { "debug" };
    let crates = crates(root, chosen)?;
    let duration = minutes.map_or(String::new(), |minutes| {
        format!(", about {minutes} minutes on two cores the first time")
    });
    let _step = step(&format!(
        "builds {what}: up to {crates} crates in {mode} mode{duration}"
    ));
    let mut cargo = cargo(root);
    cargo.arg("build").args(chosen);
    if release {
        cargo.arg("--release");
    }
    // Its standard error is this program's, so that a terminal shows cargo's own progress.
    run(&mut cargo)?;
    Ok(target_dir(root)?.join(mode))
}

/// The number of crates that a build of the packages compiles if nothing is built yet.
fn crates(root: &Path, chosen: &[&str]) -> Result<usize> {
    let mut cargo = cargo(root);
    cargo.arg("tree").args(chosen);
    cargo.args(["--edges", "normal,build", "--prefix", "none"]);
    // The first call downloads sources, which cargo reports.
    let listed = output(cargo.stderr(Stdio::inherit()))?;
    // A line is `NAME vVERSION ...`. A crate stands wherever it is needed.
    let crates: BTreeSet<Vec<&str>> = listed
        .lines()
        .map(|line| line.split(' ').take(2).collect())
        .filter(|words: &Vec<&str>| words.len() == 2)
        .collect();
    Ok(crates.len())
}

/// Says on standard error which step begins. If that is no terminal, says now and then that the step goes on,
/// until the result is dropped.
#[must_use]
pub fn step(what: &str) -> Progress {
    console::errln!("xtask: {what}");
    goes_on(what)
}

/// Says now and then that a step goes on, if standard error is no terminal.
#[must_use]
pub fn goes_on(what: &str) -> Progress {
    let what = what.to_owned();
    Progress::start(move |seconds| format!("xtask: {what}: {seconds} s"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository;

    #[test]
    fn crates_are_counted_once() {
        let root = repository();
        let count = |chosen: &[&str]| crates(&root, chosen).unwrap();
        // The package itself and libc.
        let own = count(&["--package", "ur-opencl-retain"]);
        let shared = count(&["--package", "unified-runtime"]);
        let loader = count(&["--package", "ur-loader"]);
        let all = count(&INSTALLED);
        assert!(
            own < shared && shared < loader && loader < all,
            "{own} {shared} {loader} {all}"
        );
        assert_eq!(
            count(&["--package", "ur-loader", "--package", "unified-runtime"]),
            loader
        );
    }
}

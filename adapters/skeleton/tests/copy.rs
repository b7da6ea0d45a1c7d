//! The guide's steps: a copy of this folder under another name builds and passes the conformance suites.
//!
//! The copy lies in a workspace of its own, which stands for a checkout: it depends on the checkout's `ur` by
//! path, and shares its lock file and its target folder, so that other dependencies are not built again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The suites about what the skeleton has. Suites of programs, kernels, buffers and images are left out.
const SUITES: [&str; 11] = [
    "adapter::",
    "platform::",
    "device::",
    "device_info::",
    "context::",
    "queue::",
    "event::",
    "usm",
    "async_",
    "host_task::",
    "fills::",
];

/// Fewer tests would mean that suites are missing.
const MIN_PASSED: usize = 700;

#[test]
fn a_renamed_copy_passes_the_suites() {
    let skeleton = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = skeleton.ancestors().nth(2).expect("the repository");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("the target folder");
    let workspace = workspace(root);

    let copy = workspace.join("adapters/sample");
    for name in ["Cargo.toml", "build.rs", "expectations.yml", "src"] {
        copy_renamed(&skeleton.join(name), &copy.join(name));
    }

    build(&workspace, target, &["ur-adapter-sample"]);
    build(root, target, &["ur-loader", "ur-conformance"]);

    let built = target.join("debug");
    let mut conformance = Command::new(built.join("ur-conformance"));
    for (name, _) in std::env::vars() {
        if name.starts_with("UR_") || name.starts_with("ONEAPI_") {
            conformance.env_remove(name);
        }
    }
    conformance
        .arg("--loader")
        .arg(built.join("libur_loader.so"))
        .args(["--adapter", "sample", "--expectations"])
        .arg(copy.join("expectations.yml"));
    for suite in SUITES {
        conformance.args(["--filter", suite]);
    }
    let output = conformance.output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.contains("on Sample (sample)"), "{said}");
    let closing = said.lines().next_back().unwrap_or_default();
    let passed = closing.split(' ').next().and_then(|word| word.parse().ok());
    assert!(
        closing.contains(" passed, 0 failed") && passed >= Some(MIN_PASSED),
        "{closing}"
    );
    println!("{closing}");
}

/// An empty workspace with the tables of the checkout's, its `ur` by path and its lock file.
fn workspace(root: &Path) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("checkout");
    // A run before may have left one.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    let manifest = fs::read_to_string(root.join("Cargo.toml")).expect("the manifest");
    let path = format!("ur = {{ path = {root:?}, ");
    let mut copied = String::new();
    for table in manifest
        .split("\n[")
        .filter(|table| table.starts_with("workspace."))
    {
        copied += &format!("\n[{}", table.replace("ur = { path = \".\", ", &path));
    }
    assert!(copied.contains(&path), "{copied}");
    let head = "[workspace]\nresolver = \"3\"\nmembers = [\"adapters/*\"]\n";
    fs::write(folder.join("Cargo.toml"), head.to_owned() + &copied).expect("a manifest");
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).expect("a lock file");
    folder
}

/// Copies a file or a folder, with the adapter's name replaced in its texts.
fn copy_renamed(from: &Path, to: &Path) {
    if from.is_dir() {
        for entry in fs::read_dir(from).expect("a folder") {
            let entry = entry.expect("an entry");
            copy_renamed(&entry.path(), &to.join(entry.file_name()));
        }
        return;
    }
    let text = fs::read_to_string(from).expect("a text");
    let text = text
        .replace("skeleton", "sample")
        .replace("Skeleton", "Sample");
    fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
    fs::write(to, text).expect("a file");
}

fn build(folder: &Path, target: &Path, packages: &[&str]) {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--quiet", "--offline", "--target-dir"])
        .arg(target)
        .current_dir(folder);
    for package in packages {
        cargo.args(["--package", package]);
    }
    let status = cargo.status().expect("cargo starts");
    assert!(status.success(), "{packages:?} do not build");
}

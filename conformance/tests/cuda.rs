//! `ur-conformance` on the CUDA adapter over the scripted driver, whose calls wait for the device wherever the real ones
//! may. Native work that a test holds back makes nobody wait without an end.

#[allow(dead_code)]
mod support;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use support::{build, clean, success};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ur-conformance");

/// The tests that the scripted driver fails at any strictness, for what it lacks.
const EXPECTATIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripted_cuda.yml");

/// A run of `ur-conformance` over the scripted driver, whose library and the adapter's are links in `folder`.
fn strict(folder: &Path) -> Command {
    let built = build(&["ur-loader", "ur-adapter-cuda", "scripted-cuda"]);
    let link = |from: &str, name: &str| {
        let to = folder.join(name);
        symlink(built.join(from), &to).expect("a link");
        to
    };
    link("libscripted_cuda.so", "libcuda.so.1");
    let adapter = link("libur_adapter_cuda.so", "libur_adapter_cuda.so.0");
    let mut command = clean(PROGRAM);
    command
        .arg("--loader")
        .arg(built.join("libur_loader.so"))
        .args(["--expectations", EXPECTATIONS])
        .env("UR_ADAPTERS_FORCE_LOAD", adapter)
        .env("LD_LIBRARY_PATH", folder)
        .env("SCRIPTED_CUDA_STRICT", "2");
    command
}

#[test]
fn native_work_is_held_back_by_nobody_else() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // In one process each test begins right after another one has released its queues.
    let said = success(
        strict(folder.path())
            .args(["--in-process", "--filter", "native_queue::"])
            .args(["--filter", "native_command::"]),
    );
    let totals = said.lines().last().unwrap_or_default();
    assert!(
        totals.starts_with("27 passed, 0 failed, 0 not supported"),
        "{said}"
    );
}

#[test]
fn no_call_of_any_suite_waits_without_an_end() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let said = success(
        strict(folder.path())
            .env("SCRIPTED_CUDA_DEVICES", "2")
            .env("UR_CUDA_ENABLE_IMAGE_SUPPORT", "1"),
    );
    let totals = said.lines().rev().find(|line| line.contains(" passed, "));
    let passed = totals.and_then(|line| line.split(' ').next()?.parse::<u32>().ok());
    assert!(passed.is_some_and(|passed| passed >= 1700), "{said}");
}

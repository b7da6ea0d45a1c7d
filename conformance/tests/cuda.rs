//! `ur-conformance` on the CUDA adapter over the scripted driver, whose calls wait for the device wherever the real ones
//! may. Native work that a test holds back makes nobody wait without an end.

#[allow(dead_code)]
mod support;

use std::os::unix::fs::symlink;

use support::{build, clean, success};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ur-conformance");

#[test]
fn native_work_is_held_back_by_nobody_else() {
    let built = build(&["ur-loader", "ur-adapter-cuda", "scripted-cuda"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let link = |from: &str, name: &str| {
        let to = folder.path().join(name);
        symlink(built.join(from), &to).expect("a link");
        to
    };
    link("libscripted_cuda.so", "libcuda.so.1");
    let adapter = link("libur_adapter_cuda.so", "libur_adapter_cuda.so.0");
    let expectations = folder.path().join("none.yml");
    std::fs::write(&expectations, "[]").expect("a file");
    // In one process each test begins right after another one has released its queues.
    let said = success(
        clean(PROGRAM)
            .arg("--loader")
            .arg(built.join("libur_loader.so"))
            .env("UR_ADAPTERS_FORCE_LOAD", adapter)
            .env("LD_LIBRARY_PATH", folder.path())
            .env("SCRIPTED_CUDA_STRICT", "2")
            .arg("--expectations")
            .arg(&expectations)
            .args(["--in-process", "--filter", "native_queue::"])
            .args(["--filter", "native_command::in_order"])
            .args(["--filter", "native_command::freed_block_waits"]),
    );
    let totals = said.lines().last().unwrap_or_default();
    assert!(
        totals.starts_with("15 passed, 0 failed, 0 not supported"),
        "{said}"
    );
}

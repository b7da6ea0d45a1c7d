//! Write errors of standard output: a closed reader is no fault, a full disk is one, and neither
//! panics.

#[path = "../../conformance/tests/support/streams.rs"]
mod streams;
#[allow(dead_code)]
#[path = "../../conformance/tests/support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use streams::{check, closed, full};
use support::{clean, libraries};

/// Each program with its exit code for faults.
const PROGRAMS: [(&str, i32); 4] = [
    (env!("CARGO_BIN_EXE_urinfo"), 2),
    (env!("CARGO_BIN_EXE_urtrace"), 125),
    (env!("CARGO_BIN_EXE_urreplay"), 1),
    (env!("CARGO_BIN_EXE_ur-env"), 1),
];

#[test]
fn help_and_version() {
    for (program, fault) in PROGRAMS {
        for option in ["--help", "--version"] {
            let make = || {
                let mut command = clean(program);
                command.arg(option);
                command
            };
            check(make, 0, fault);
        }
    }
}

/// A program with the built loader and adapter.
fn on_loader(program: &str, arguments: &[&str]) -> Command {
    let mut command = clean(program);
    command
        .arg("--loader")
        .arg(libraries().join("libur_loader.so"))
        .args(arguments)
        .env(
            "UR_ADAPTERS_FORCE_LOAD",
            libraries().join("libur_adapter_native_cpu.so"),
        );
    command
}

fn urinfo(arguments: &[&str]) -> Command {
    on_loader(env!("CARGO_BIN_EXE_urinfo"), arguments)
}

#[test]
fn listings() {
    for arguments in [&[][..], &["-v"], &["--json"]] {
        check(|| urinfo(arguments), 0, 2);
    }
}

#[test]
fn replays() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("trace");
    std::fs::write(&trace, "a 0 4096 1 -\nf 0 4096 1 1@2\n").expect("a file");
    let trace = trace.display().to_string();
    let make = || on_loader(env!("CARGO_BIN_EXE_urreplay"), &[&trace]);
    check(make, 0, 1);
}

#[test]
fn variables() {
    // ur-env searches for an installation around itself.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = |name: &str| -> PathBuf { folder.path().join(name) };
    std::fs::create_dir_all(place("bin")).expect("a folder");
    std::fs::create_dir_all(place("lib")).expect("a folder");
    std::fs::write(place("lib/libur_loader.so.0"), "").expect("a file");
    std::fs::copy(env!("CARGO_BIN_EXE_ur-env"), place("bin/ur-env")).expect("a copy");
    let own = std::env::current_exe().expect("own path");
    std::fs::copy(own, place("lib/libsycl.so.9")).expect("a copy");
    let make = || {
        let mut command = clean(place("bin/ur-env"));
        command.arg("--libsycl").arg(place("lib/libsycl.so.9"));
        command
    };
    check(make, 0, 1);
}

#[test]
fn complaints() {
    // Standard error cannot be written, so that the exit codes do not change.
    for stream in [full, closed] {
        let status = |command: &mut Command| {
            let status = command.stdout(Stdio::null()).stderr(stream()).status();
            status.expect("the program starts").code()
        };
        let mut none = urinfo(&[]);
        none.env("ONEAPI_DEVICE_SELECTOR", "native_cpu:gpu");
        assert_eq!(status(&mut none), Some(1));
        assert_eq!(status(&mut urinfo(&["--no-such-option"])), Some(2));
        let mut traced = clean(env!("CARGO_BIN_EXE_urtrace"));
        traced
            .arg("--loader")
            .arg(libraries().join("libur_loader.so"));
        assert_eq!(status(traced.args(["sh", "-c", "exit 7"])), Some(7));
    }
}

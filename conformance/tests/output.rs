//! `ur-conformance` when its output cannot be written.

#[path = "support/streams.rs"]
mod streams;
#[allow(dead_code)]
mod support;

use std::process::Command;

use streams::{check, closed, full};
use support::{both, clean, libraries, success};

fn conformance(arguments: &[&str]) -> Command {
    let mut command = clean(env!("CARGO_BIN_EXE_ur-conformance"));
    command
        .arg("--loader")
        .arg(libraries().join("libur_loader.so"))
        .args(arguments);
    command
}

#[test]
fn texts_lists_and_runs() {
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["--list"],
        &[
            "--adapter",
            "native_cpu",
            "--filter",
            "queue::",
            "--jobs",
            "1",
        ],
    ] {
        check(|| conformance(arguments), 0, 2);
    }
}

#[test]
fn files_are_tried_before_the_run() {
    for options in [&["--junit"][..], &["--json"], &["--coverage", "--with"]] {
        let mut command = conformance(&["--adapter", "native_cpu", "--filter", "queue::"]);
        let output = command.args(options).arg("/nonexistent/x").output();
        let output = output.expect("it starts");
        assert_eq!(output.status.code(), Some(2));
        // No line about tests comes before.
        assert_eq!(
            both(&output),
            "ur-conformance: /nonexistent/x: No such file or directory (os error 2)\n"
        );
    }
}

#[test]
fn man_page_and_completions() {
    for (target, part) in [
        ("man", ".TH ur-conformance 1"),
        ("bash", "--expectations"),
        ("zsh", "#compdef ur-conformance"),
        ("fish", "complete -c ur-conformance"),
    ] {
        let option = format!("--generate={target}");
        let mut command = clean(env!("CARGO_BIN_EXE_ur-conformance"));
        let text = success(command.arg(&option)).replace("\\-", "-");
        assert!(text.contains(part), "{option}: {text}");
        assert!(!text.contains("--worker"), "a hidden option: {text}");
    }
}

/// The reader is gone, so the exit code is the usual one.
#[test]
fn complaints() {
    for stream in [full, closed] {
        let mut none = conformance(&["--filter", "no such test"]);
        let status = none.stderr(stream()).status().expect("it starts");
        assert_eq!(status.code(), Some(2));
    }
}

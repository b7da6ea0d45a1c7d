//! Outputs that take no more: shared with the tests of tools/.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

/// A disk that is full.
pub fn full() -> Stdio {
    let file = OpenOptions::new().write(true).open("/dev/full");
    file.expect("Linux has it").into()
}

/// A pipe that nobody reads.
pub fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// The exit code, and what stands on standard error.
fn outcome(command: &mut Command, out: Stdio) -> (Option<i32>, String) {
    let output = command.stdout(out).output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), text)
}

/// Runs a command whose output nobody reads, which is no fault: it says nothing and exits with `usual`.
/// Then one whose disk is full: that is all it says, and it exits with `fault`.
pub fn check(make: impl Fn() -> Command, usual: i32, fault: i32) {
    let (code, text) = outcome(&mut make(), closed());
    assert_eq!((code, text.as_str()), (Some(usual), ""), "{:?}", make());
    let (code, text) = outcome(&mut make(), full());
    assert_eq!(code, Some(fault), "{:?}: {text}", make());
    let end = ": standard output: No space left on device (os error 28)\n";
    assert!(text.ends_with(end) && text.lines().count() == 1, "{text}");
}

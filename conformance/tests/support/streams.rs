//! Outputs that cannot be written, shared with the tests of tools/.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

/// A full disk.
pub fn full() -> Stdio {
    let file = OpenOptions::new().write(true).open("/dev/full");
    file.expect("Linux has it").into()
}

/// A pipe without a reader.
pub fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// The exit code and the text on standard error.
fn outcome(command: &mut Command, out: Stdio) -> (Option<i32>, String) {
    let output = command.stdout(out).output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), text)
}

/// Checks a command without a reader and with a full disk.
///
/// Without a reader it prints nothing and exits with `usual`. With a full disk it prints only that and exits
/// with `fault`.
pub fn check(make: impl Fn() -> Command, usual: i32, fault: i32) {
    let (code, text) = outcome(&mut make(), closed());
    assert_eq!((code, text.as_str()), (Some(usual), ""), "{:?}", make());
    let (code, text) = outcome(&mut make(), full());
    assert_eq!(code, Some(fault), "{:?}: {text}", make());
    let end = ": standard output: No space left on device (os error 28)\n";
    assert!(text.ends_with(end) && text.lines().count() == 1, "{text}");
}

//! Tests in processes of their own, since an adapter looks for its driver once.

use std::env;
use std::process::Command;

/// The variable that names the test of a process.
pub const ALONE: &str = "SCRIPTED_ALONE";

/// Whether this is the process of a test of this name.
pub fn is_alone(name: &str) -> bool {
    env::var_os(ALONE).is_some_and(|own| own == name)
}

/// Runs a test in a process of its own. `name` is its path in its crate, and `prepare` sets the process's environment.
///
/// Returns what the process wrote. Within that process itself it runs the test and returns `None`.
pub fn alone(
    name: &str,
    prepare: impl FnOnce(&mut Command),
    test: impl FnOnce(),
) -> Option<String> {
    if is_alone(name) {
        test();
        return None;
    }
    let mut command = Command::new(env::current_exe().expect("this program"));
    command
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, name);
    prepare(&mut command);
    let output = command.output().expect("a process");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
    assert!(
        text.contains("1 passed"),
        "no test is called {name}: {text}"
    );
    Some(text)
}

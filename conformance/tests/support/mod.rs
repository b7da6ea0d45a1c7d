//! The built libraries, and processes with a clean environment: shared with the tests of tools/.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The folder of the built libraries; builds them first, in the profile and folder of this test.
pub fn libraries() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build(&["ur-loader", "ur-adapter-native-cpu", "ur-adapter-mock"]))
}

/// Builds packages in the profile and folder of this test. Returns the folder of their libraries.
pub fn build(packages: &[&str]) -> PathBuf {
    let test = std::env::current_exe().expect("own path");
    // Cargo puts test programs in `deps`, beside which all other outputs lie.
    let folder = test
        .ancestors()
        .nth(2)
        .expect("the test lies in a folder of cargo's");
    let profile = match folder
        .file_name()
        .and_then(|name| name.to_str())
        .expect("a folder of cargo's")
    {
        "debug" => "dev",
        other => other,
    };
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet"])
        .args(packages.iter().flat_map(|name| ["--package", name]))
        .args(["--profile", profile, "--target-dir"])
        .arg(folder.parent().expect("cargo's target folder"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the libraries do not build");
    folder.to_owned()
}

/// A command whose environment chooses no adapters, devices or logs.
pub fn clean(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars() {
        if name.starts_with("UR_") || name.starts_with("ONEAPI_") || name.starts_with("SYCL_") {
            command.env_remove(name);
        }
    }
    command
}

/// The output of a command. Panics with the output unless the command succeeded.
pub fn success(command: &mut Command) -> String {
    let output = command.output().expect("the command starts");
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        both(&output)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The output of both streams of a process.
pub fn both(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

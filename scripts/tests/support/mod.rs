//! Helpers of the ABI tests: running a compiler, and comparing facts.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// A C or C++ dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    C99,
    C11,
    Cxx17,
}

impl Dialect {
    pub const ALL: [Self; 3] = [Self::C99, Self::C11, Self::Cxx17];

    fn command(self) -> Command {
        let (variable, default, arguments) = match self {
            Self::C99 => ("CC", "cc", ["-std=c99", "-xc"]),
            Self::C11 => ("CC", "cc", ["-std=c11", "-xc"]),
            Self::Cxx17 => ("CXX", "c++", ["-std=c++17", "-xc++"]),
        };
        let mut command =
            Command::new(std::env::var(variable).unwrap_or_else(|_| default.to_owned()));
        command.args(arguments);
        command
    }
}

/// Compiles a source text without linking. The error is the compiler's output.
pub fn compile(
    dialect: Dialect,
    source: &str,
    includes: &[&Path],
    options: &[&str],
) -> Result<(), String> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("source");
    std::fs::write(&path, source).expect("the temporary folder is writable");
    let mut command = dialect.command();
    command
        .args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-pedantic"])
        .args(options);
    for include in includes {
        command.arg("-I").arg(include);
    }
    let output = command
        .arg(&path)
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// `include/` of the repository.
pub fn include() -> std::path::PathBuf {
    xtask::repository().join("include")
}

/// Facts by name.
pub type Facts = BTreeMap<String, String>;

/// Compares facts by name, and prints the number that agree.
pub fn compare(kind: &str, reference: &Facts, ours: &Facts) {
    let mut differences = Vec::new();
    for (name, theirs) in reference {
        match ours.get(name) {
            Some(found) if found == theirs => {}
            Some(found) => {
                differences.push(format!("{name}: ours is {found}, the reference's {theirs}"))
            }
            None => differences.push(format!("{name}: missing; the reference has {theirs}")),
        }
    }
    for (name, found) in ours
        .iter()
        .filter(|(name, _)| !reference.contains_key(*name))
    {
        differences.push(format!("{name}: ours is {found}, the reference has none"));
    }
    assert!(
        differences.is_empty(),
        "{kind}: {} differ\n{}",
        differences.len(),
        differences.join("\n")
    );
    println!("{} {kind} agree", reference.len());
}

//! The documents say what is so: links lead somewhere, examples compile, and each variable that the code
//! reads is in the table.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use xtask::docs::{self, links};
use xtask::repository;

#[test]
fn links_lead_somewhere() {
    let root = repository();
    let documents = docs::documents(&root).unwrap();
    let broken = links::check(&root, &documents).unwrap();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn snippets_compile() {
    let root = repository();
    let snippets = root.join("docs/snippets");
    let folder = tempfile::tempdir().unwrap();
    let mut compiled = 0;
    for entry in fs::read_dir(&snippets).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "c") {
            continue;
        }
        let body = fs::read_to_string(&path).unwrap();
        let text = format!(
            "#include \"prelude.h\"\nvoid snippet(void);\nvoid snippet(void) {{\n{body}}}\n"
        );
        let source = folder.path().join("snippet.c");
        fs::write(&source, text).unwrap();
        let output = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
            .args([
                "-std=c11",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-Wno-unused",
                "-fsyntax-only",
            ])
            .arg("-I")
            .arg(root.join("include"))
            .arg("-I")
            .arg(&snippets)
            .arg(&source)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {errors}", path.display());
        compiled += 1;
    }
    assert!(compiled > 30, "only {compiled} snippets");
}

/// Names in the code that begin as variables do and are none.
const NO_VARIABLES: [&str; 8] = [
    "UR_ADAPTER_INFO_",
    "UR_FUNCTION_",
    "UR_PLATFORM_INFO_",
    "UR_RESULT_",
    "UR_LAYER_",
    "UR_DEVICE_",
    "UR_BACKEND_",
    "UR_TEST_",
];

/// Each string of the libraries and tools that names a variable as their readers of the environment take it.
#[test]
fn each_variable_is_in_the_table() {
    let root = repository();
    let table = fs::read_to_string(root.join("docs/src/reference/environment.md")).unwrap();
    let mut read = BTreeSet::new();
    for folder in ["src", "loader/src", "adapters", "tools/src"] {
        variables(&root.join(folder), &mut read);
    }
    assert!(read.len() > 20, "only {read:?}");
    let missing: Vec<_> = read
        .iter()
        .filter(|name| !table.contains(&format!("`{name}`")))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/src/reference/environment.md lacks {missing:?}"
    );
}

fn variables(folder: &Path, found: &mut BTreeSet<String>) {
    const READERS: [&str; 8] = [
        "flag(\"",
        "list(\"",
        "text(\"",
        "read(\"",
        "number(\"",
        "word(\"",
        "var(\"",
        "var_os(\"",
    ];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if name.contains("test") || name == "scripted" {
            continue;
        }
        if path.is_dir() {
            variables(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            // A call may stand on several lines.
            let code = code.split_whitespace().collect::<String>();
            for prefix in ["UR_POOL_", "UR_TRACE_", "UR_CUDA_", "UR_LOG_", "UR_L0_"] {
                let literal = format!("\"{prefix}");
                for (at, _) in code.match_indices(&literal) {
                    let name: String = code[at + 1..]
                        .chars()
                        .take_while(|found| *found != '"')
                        .collect();
                    if name.len() > prefix.len()
                        && name
                            .chars()
                            .all(|found| matches!(found, 'A'..='Z' | '0'..='9' | '_'))
                    {
                        found.insert(name);
                    }
                }
            }
            for reader in READERS {
                for (at, _) in code.match_indices(reader) {
                    let name: String = code[at + reader.len()..]
                        .chars()
                        .take_while(|found| *found != '"')
                        .collect();
                    let own = ["UR_", "SYCL_", "ONEAPI_"]
                        .iter()
                        .any(|start| name.starts_with(start));
                    if own && !NO_VARIABLES.iter().any(|start| name.starts_with(start)) {
                        found.insert(name);
                    }
                }
            }
        }
    }
}

#[test]
fn each_conformance_test_has_a_sentence() {
    let missing = docs::catalogue::without_sentence(&repository()).unwrap();
    let some = &missing[..missing.len().min(20)];
    assert!(
        missing.is_empty(),
        "no sentence for {} tests: {some:?}",
        missing.len()
    );
}

/// A function that CUDA or Level Zero refuses has a reason in `scripts/src/generate/support.rs`.
#[test]
fn refusals_have_reasons() {
    let support = repository().join("docs/src/reference/support.md");
    let support = fs::read_to_string(support).unwrap();
    for adapter in ["cuda", "level_zero"] {
        assert!(support.contains(&format!("What {adapter} refuses")));
    }
    let row = support
        .lines()
        .find(|line| line.contains("no reason is written down"));
    assert_eq!(row, None);
}

/// Numbers that documents state are those of the tree.
#[test]
fn stated_counts_are_true() {
    let root = repository();
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let tests = docs::catalogue::names(&root).unwrap().len();
    let stated = format!("{},{:03} tests", tests / 1000, tests % 1000);
    assert!(readme.contains(&stated), "README.md does not say {stated}");
    assert!(readme.lines().count() <= 150, "README.md has grown");

    let support = fs::read_to_string(root.join("docs/src/reference/support.md")).unwrap();
    let total = support
        .lines()
        .find(|line| line.starts_with("| **all**"))
        .unwrap();
    let counts: Vec<&str> = total.split("**").skip(1).step_by(2).skip(2).collect();
    let names = ["CUDA", "Level Zero", "native_cpu", "OpenCL"];
    assert_eq!(counts.len(), names.len(), "{total}");
    for (adapter, count) in names.iter().zip(counts) {
        let row = readme
            .lines()
            .find(|line| line.starts_with(&format!("| {adapter} ")))
            .unwrap();
        assert!(
            row.ends_with(&format!("| {count} |")),
            "README.md: {row}, but {count}"
        );
    }
}

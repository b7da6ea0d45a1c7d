//! `ur-conformance` on the mock adapter, which executes nothing: the tests of the interface pass, and each
//! function returns success for a valid call.

mod support;

use std::path::Path;
use std::process::Command;
use support::{clean, libraries, success};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ur-conformance");

fn mock() -> Command {
    let mut command = clean(PROGRAM);
    command
        .arg("--loader")
        .arg(libraries().join("libur_loader.so"))
        .args(["--adapter", "mock"]);
    command
}

/// The plain command runs what applies to a device that executes nothing, and skips the rest with the reason.
#[test]
fn the_interface_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("run.json");
    let said = success(mock().arg("--json").arg(&json));
    assert!(
        said.contains("the device executes nothing, so ")
            && said.contains("\nthe loader checks arguments: UR_ENABLE_LAYERS="),
        "{said}"
    );
    let run = read(&json);
    assert_eq!(run["executes"], false);
    let outcomes = |suite: &str| -> Vec<String> {
        let tests = run["tests"].as_array().expect("tests").iter();
        let of_suite = tests.filter(|test| test["suite"] == suite);
        let mut found: Vec<_> = of_suite
            .map(|test| format!("{}, {}", test["outcome"], test["message"]))
            .collect();
        found.dedup();
        found
    };
    for suite in ["loader", "device_info", "arguments", "unsupported"] {
        assert_eq!(outcomes(suite), [r#""passed", null"#], "{suite}");
    }
    for suite in ["launch", "async_reuse"] {
        let skipped = r#""skipped", "the device executes nothing""#;
        assert_eq!(outcomes(suite), [skipped], "{suite}");
    }
    assert!(tests_passed(&run) > 700, "{said}");
}

/// In one process the loader is initialised again, with its layers.
#[test]
fn the_interface_in_one_process() {
    let filters = [
        "--in-process",
        "--filter",
        "arguments::",
        "--filter",
        "launch::",
    ];
    let said = success(mock().args(filters));
    let totals = said.lines().next_back().expect("a closing line");
    assert!(totals.contains(" passed, 0 failed, 0 not"), "{said}");
}

#[test]
fn every_function_answers() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("run.json");
    let mut command = mock();
    // Without layers, which would refuse handles that were not made for the call.
    command
        .env("UR_ENABLE_LAYERS", "")
        .args(["--filter", "every_function::", "--json"])
        .arg(&json);
    success(&mut command);
    let run = read(&json);
    for call in run["calls"].as_array().expect("calls") {
        assert_eq!(
            call["errors"],
            serde_json::json!([]),
            "{}",
            call["function"]
        );
    }
    let tests = run["tests"].as_array().expect("tests").iter();
    let refused: Vec<_> = tests
        .filter(|test| test["outcome"] != "passed" && test["outcome"] != "skipped")
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
    let passed = tests_passed(&run);
    assert!(passed > 170, "only {passed} functions were called");
}

fn read(json: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(json).expect("the JSON file");
    serde_json::from_str(&text).expect("valid JSON")
}

fn tests_passed(run: &serde_json::Value) -> u64 {
    run["totals"]["passed"].as_u64().unwrap_or(0)
}

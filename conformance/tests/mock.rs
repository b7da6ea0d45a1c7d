//! Every function of the tables on the mock adapter: each returns success for a valid call.

mod support;

use support::{clean, libraries, success};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ur-conformance");

#[test]
fn every_function_answers() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (json, none) = (
        folder.path().join("run.json"),
        folder.path().join("none.yml"),
    );
    // The mock reports the OpenCL backend, whose expectations do not apply to it.
    std::fs::write(&none, "[]\n").expect("a file");
    let mut command = clean(PROGRAM);
    command
        .arg("--loader")
        .arg(libraries().join("libur_loader.so"))
        .args(["--adapter", "mock", "--filter", "every_function::"])
        .arg("--expectations")
        .arg(&none)
        .arg("--json")
        .arg(&json);
    success(&mut command);
    let text = std::fs::read_to_string(&json).expect("the JSON file");
    let run: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
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

fn tests_passed(run: &serde_json::Value) -> u64 {
    run["totals"]["passed"].as_u64().unwrap_or(0)
}

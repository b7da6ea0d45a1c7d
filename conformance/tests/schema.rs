//! The JSON schema of `ur-conformance --json`, and runs that follow it.

#[path = "support/schema.rs"]
mod schema;
#[allow(dead_code)]
mod support;

use serde_json::{Value, json};
use support::{clean, libraries, success};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ur-conformance");

/// What a run of some tests writes.
fn run(filter: &str) -> Value {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("run.json");
    let mut command = clean(PROGRAM);
    command
        .arg("--loader")
        .arg(libraries().join("libur_loader.so"))
        .args(["--adapter", "native_cpu", "--filter", filter, "--json"])
        .arg(&json);
    success(&mut command);
    let text = std::fs::read_to_string(&json).expect("the JSON file");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn the_schema_is_fresh() {
    schema::assert_fresh(
        "ur-conformance",
        &success(clean(PROGRAM).arg("--generate=schema")),
    );
}

#[test]
fn a_run_follows_its_schema() {
    let mut document = run("queue::");
    assert_eq!(schema::fault("ur-conformance", &document), None);
    assert!(
        document["totals"]["passed"].as_u64() > Some(5),
        "{document}"
    );
    for (place, value) in [
        ("/totals/passed", json!("all")),
        ("/tests/0/outcome", json!("perhaps")),
        ("/coverage/functions/0/how", json!("often")),
        ("/calls/0", json!({})),
    ] {
        let before = document.pointer_mut(place).expect("a place").take();
        *document.pointer_mut(place).expect("a place") = value;
        assert!(
            schema::fault("ur-conformance", &document).is_some(),
            "{place}"
        );
        *document.pointer_mut(place).expect("a place") = before;
    }
}

//! The JSON schemas of this package's programs, and real outputs that follow them.

#[path = "../../conformance/tests/support/schema.rs"]
mod schema;
#[allow(dead_code)]
#[path = "../../conformance/tests/support/mod.rs"]
mod support;

use serde_json::{Value, json};
use support::{clean, libraries, success};

const URINFO: &str = env!("CARGO_BIN_EXE_urinfo");
const URREPLAY: &str = env!("CARGO_BIN_EXE_urreplay");

fn output(program: &str, adapter: &str, arguments: &[&str]) -> Value {
    let library = format!("libur_adapter_{adapter}.so");
    let mut command = clean(program);
    command
        .arg("--loader")
        .arg(libraries().join("libur_loader.so"))
        .env("UR_ADAPTERS_FORCE_LOAD", libraries().join(library))
        .args(arguments);
    serde_json::from_str(&success(&mut command)).expect("JSON")
}

#[test]
fn schemas_are_fresh() {
    for (name, program) in [("urinfo", URINFO), ("urreplay", URREPLAY)] {
        schema::assert_fresh(name, &success(clean(program).arg("--generate=schema")));
    }
}

#[test]
fn a_program_without_json_has_no_schema() {
    let refused = clean(env!("CARGO_BIN_EXE_ur-env"))
        .arg("--generate=schema")
        .output();
    assert!(!refused.expect("the program starts").status.success());
}

#[test]
fn urinfo_follows_its_schema() {
    for adapter in ["native_cpu", "mock"] {
        for arguments in [&["--json"][..], &["-v", "--json"]] {
            let document = output(URINFO, adapter, arguments);
            assert_eq!(schema::fault("urinfo", &document), None, "{adapter}");
        }
    }
}

#[test]
fn faults_of_urinfo_are_found() {
    let document = output(URINFO, "native_cpu", &["--json"]);
    let changed = |pointer: &str, value: Value| {
        let mut changed = document.clone();
        *changed.pointer_mut(pointer).expect("a place") = value;
        schema::fault("urinfo", &changed).expect("a fault")
    };
    let device = "/adapters/0/platforms/0/devices/0";
    for (place, value) in [
        ("", json!([])),
        ("/adapters", json!({})),
        ("/adapters/0/platforms/0/hidden", json!(-1)),
        (device, json!({ "selectors": [] })),
        (&format!("{device}/selectors"), json!([1])),
        (&format!("{device}/info/UR_DEVICE_INFO_NAME"), json!({})),
        (
            &format!("{device}/missing"),
            json!({ "UR_DEVICE_INFO_IL": 1 }),
        ),
    ] {
        changed(place, value);
    }
}

#[test]
fn urreplay_follows_its_schema() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("a.trace");
    std::fs::write(&trace, "a 0 4096 1 - grown\nf 0 4096 1 1@2 -\n").expect("a file");
    let trace = trace.to_str().expect("a path is text");
    let mut document = output(URREPLAY, "native_cpu", &["--json", trace]);
    assert_eq!(schema::fault("urreplay", &document), None);
    document[0]["operations"] = json!("many");
    assert!(schema::fault("urreplay", &document).is_some());
}

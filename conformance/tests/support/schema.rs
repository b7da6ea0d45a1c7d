//! The committed JSON schemas: whether they are fresh, and whether documents follow them.

use std::path::Path;

use serde_json::Value;

/// The text of the schema for a program's JSON.
fn committed(program: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/reference/schemas");
    let path = folder.join(format!("{program}.json"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Fails unless the committed schema of a program is `printed`, what its `--generate=schema` prints.
pub fn assert_fresh(program: &str, printed: &str) {
    assert!(
        committed(program) == printed,
        "stale; run `{program} --generate=schema > docs/src/reference/schemas/{program}.json`"
    );
}

/// The first fault of a document by the schema of a program's JSON.
pub fn fault(program: &str, document: &Value) -> Option<String> {
    let schema: Value = serde_json::from_str(&committed(program)).expect("a schema is JSON");
    let validator = jsonschema::draft202012::new(&schema).expect("a valid schema");
    let mut faults = validator.iter_errors(document);
    faults
        .next()
        .map(|fault| format!("{}: {fault}", fault.instance_path()))
}

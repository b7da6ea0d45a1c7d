//! The generated files that one more function changes are few.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use xtask::generate;
use xtask::model::{Item, Spec, Value};
use xtask::repository;

/// The files that change with each function: the C headers that declare functions and list them, the lists for Rust,
/// and the table of supported functions.
const CHANGED: [&str; 5] = [
    "docs/src/reference/support.md",
    "include/ur_api.h",
    "include/ur_api_funcs.def",
    "include/ur_ddi.h",
    "src/abi/functions.rs",
];

/// A function of each sort that generators tell apart, with the file of its object's trait and shims.
const LIKE: [(&str, &str); 4] = [
    ("urContextCreate", "src/hal/generated/device.rs"),
    (
        "urQueueCreateWithNativeHandle",
        "src/hal/generated/context.rs",
    ),
    ("urEnqueueUSMMemcpy2D", "src/hal/generated/queue.rs"),
    (
        "urCommandBufferAppendUSMFillExp",
        "src/hal/generated/command_buffer.rs",
    ),
];

fn generated(spec: &Spec) -> BTreeMap<PathBuf, String> {
    let files = generate::all(spec, &repository()).expect("the generator runs");
    files
        .into_iter()
        .map(|file| (file.path, file.text))
        .collect()
}

/// Adds a function with the arguments and conditions of another, at the end of its table.
fn add(spec: &mut Spec, like: &str) {
    let mut new = spec
        .functions()
        .find(|function| function.name == like)
        .expect("the specification has the function")
        .clone();
    new.name = format!("{like}Added");
    new.slot = new.slot.map(|slot| format!("{slot}Added"));
    new.id = format!("{}_ADDED", new.id);
    let table = new.table.clone();
    let table = spec
        .tables
        .iter_mut()
        .find(|found| Some(&found.name) == table.as_ref());
    table.expect("a table").slots.push(new.name.clone());
    for group in &mut spec.groups {
        let at = group
            .items
            .iter()
            .position(|item| matches!(item, Item::Function(function) if function.name == like));
        if let Some(at) = at {
            group.items.insert(at + 1, Item::Function(new.clone()));
        }
        for item in &mut group.items {
            if let Item::Enum(found) = item
                && found.name == "ur_function_t"
            {
                found.values.push(Value {
                    name: new.id.clone(),
                    value: 9999,
                    ty: None,
                    optional: false,
                    deprecated: false,
                    header: None,
                    desc: new.name.clone(),
                });
            }
        }
    }
}

/// The lines of the lists that are no longer there: a new function adds lines, and raises its table's count.
fn replaced(before: &BTreeMap<PathBuf, String>, after: &BTreeMap<PathBuf, String>) -> usize {
    let lists = PathBuf::from("src/abi/functions.rs");
    let kept: BTreeSet<&str> = after[&lists].lines().collect();
    let gone = before[&lists].lines().filter(|line| !kept.contains(line));
    gone.count()
}

#[test]
fn a_function_changes_few_generated_files() {
    let root = repository();
    let load = || Spec::load(&root.join("spec")).expect("spec/ is consistent");
    let before = generated(&load());
    for (like, own) in LIKE {
        let mut spec = load();
        add(&mut spec, like);
        let after = generated(&spec);
        let changed: Vec<&str> = after
            .iter()
            .filter(|(path, text)| before.get(*path) != Some(text))
            .map(|(path, _)| path.to_str().expect("paths are text"))
            .collect();
        let mut expected = CHANGED.to_vec();
        expected.push(own);
        assert_eq!(changed, expected, "a function like {like}");
        assert_eq!(after.len(), before.len(), "a function like {like}");
        assert_eq!(replaced(&before, &after), 1, "a function like {like}");
    }
}

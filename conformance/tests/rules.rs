//! Each test function of the suites has a doc comment that begins with one sentence: the rule it checks.

use std::fs;
use std::path::{Path, PathBuf};

/// Parameters by which a test function is known, whatever it is called.
const PARAMETERS: [&str; 5] = [
    "(fixture: &Fixture) -> Done {",
    "(fixture: &Fixture, kind: Kind) -> Done {",
    "(setup: &Setup) -> Done {",
    "(setup: &Setup, kind: Kind) -> Done {",
    "(fresh: &Fresh) -> Done {",
];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of suites") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

/// The function's name, if the line begins a function with a test's parameters.
fn test_function(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("fn ")?;
    let parameters = PARAMETERS.iter().find(|end| rest.ends_with(**end))?;
    rest.strip_suffix(parameters)
}

/// Whether the name stands in a list of tests: in `tests![...]`, or beside its text.
fn is_listed(text: &str, name: &str) -> bool {
    let word = |list: &str| {
        list.split([',', ' ', '\n', ']', ';'])
            .any(|own| own == name)
    };
    let lists = text.split("tests![").skip(1);
    lists
        .map(|list| list.split(']').next())
        .any(|list| list.is_some_and(word))
        || text.contains(&format!("\"{name}\", {name}"))
        || text.contains(&format!("\"{name}\",\n"))
}

/// The first paragraph of the doc comment above a line.
fn rule(lines: &[&str]) -> String {
    let above = lines.iter().rev().skip_while(|line| line.starts_with("#["));
    let docs: Vec<&str> = above.map_while(|line| line.strip_prefix("///")).collect();
    let first = docs
        .into_iter()
        .rev()
        .map(str::trim)
        .take_while(|line| !line.is_empty());
    first.collect::<Vec<_>>().join(" ")
}

#[test]
fn each_test_says_its_rule_in_one_sentence() {
    let mut paths = Vec::new();
    files(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src/suites"),
        &mut paths,
    );
    let (mut tests, mut wrong) = (0, Vec::new());
    for path in paths {
        let text = fs::read_to_string(&path).expect("a suite");
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(name) = test_function(line).filter(|name| is_listed(&text, name)) else {
                continue;
            };
            tests += 1;
            let rule = rule(&lines[..at]);
            if !rule.ends_with('.') || rule.contains(". ") {
                wrong.push(format!("{}: {name}: {rule:?}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "not one sentence: {wrong:#?}");
    assert!(tests > 550, "only {tests} test functions were found");
}

//! The catalogue of the conformance tests: a page for each suite, a sentence for each test.
//!
//! Both come from `ur-conformance --list --verbose`.

use super::Page;
use crate::build;
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A suite: its sentence, and its tests with theirs.
#[derive(Default)]
struct Suite {
    head: String,
    tests: Vec<(String, String)>,
}

pub(super) fn pages(built: &Path) -> Result<Vec<Page>> {
    Ok(vec![page(&suites(built)?)])
}

/// Tests without a sentence.
///
/// # Errors
/// Fails if the suites cannot be built or read.
pub fn without_sentence(root: &Path) -> Result<Vec<String>> {
    let suites = suites(&built(root)?)?;
    let of_suite = |(suite, of): (&String, &Suite)| {
        let missing = of.tests.iter().filter(|(_, rule)| rule.is_empty());
        missing
            .map(|(name, _)| format!("{suite}::{name}"))
            .collect::<Vec<_>>()
    };
    Ok(suites.iter().flat_map(of_suite).collect())
}

/// `suite::name` of every test.
///
/// # Errors
/// Fails if the suites cannot be built.
pub fn names(root: &Path) -> Result<Vec<String>> {
    let list = list(&built(root)?, &["--list"])?;
    Ok(list.lines().map(str::to_owned).collect())
}

fn built(root: &Path) -> Result<PathBuf> {
    build::packages(root, &["ur-conformance"], false)
}

fn list(built: &Path, arguments: &[&str]) -> Result<String> {
    build::output(Command::new(built.join("ur-conformance")).args(arguments))
}

/// The suites by name. A line is `suite: sentence` or `suite::test: sentence`.
fn suites(built: &Path) -> Result<BTreeMap<String, Suite>> {
    let mut suites: BTreeMap<String, Suite> = BTreeMap::new();
    for line in list(built, &["--list", "--verbose"])?.lines() {
        let (name, sentence) = line
            .split_once(": ")
            .with_context(|| format!("no sentence: {line}"))?;
        let sentence = sentence.to_owned();
        match name.split_once("::") {
            Some((suite, test)) => {
                let tests = &mut suites.entry(suite.to_owned()).or_default().tests;
                tests.push((test.to_owned(), sentence));
            }
            None => suites.entry(name.to_owned()).or_default().head = sentence,
        }
    }
    Ok(suites)
}

fn page(suites: &BTreeMap<String, Suite>) -> Page {
    let total: usize = suites.values().map(|suite| suite.tests.len()).sum();
    let mut text = format!(
        "# Catalogue of the tests\n{total} tests in {} suites. `ur-conformance --filter SUITE::NAME` runs one.\n\n",
        suites.len()
    );
    for (name, Suite { head, tests }) in suites {
        let _ = writeln!(text, "## {name}");
        if !head.is_empty() {
            let _ = writeln!(text, "{head}\n");
        }
        // A table would say the sentence again and again.
        if let [(_, first), rest @ ..] = tests.as_slice()
            && !rest.is_empty()
            && rest.iter().all(|(_, rule)| rule == first)
        {
            let _ = writeln!(text, "{} tests: {first}\n", tests.len());
            continue;
        }
        text.push_str("| test | what it checks |\n|---|---|\n");
        for (test, rule) in tests {
            let _ = writeln!(text, "| `{test}` | {} |", rule.replace('|', "\\|"));
        }
        text.push('\n');
    }
    Page {
        path: "conformance/catalogue.md".into(),
        title: "Catalogue of the tests".into(),
        text,
    }
}

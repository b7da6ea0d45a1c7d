//! The catalogue of the conformance tests: a page for each suite, a sentence for each test.
//!
//! Names come from `ur-conformance --list`; the sentence of a test is the first of its function's
//! documentation, and that of a suite the first of its module's.

use super::Page;
use crate::build;
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use syn::{Attribute, Expr, ExprLit, Item, Lit, Meta};

/// Suites that have a test for each function or property, with what each of them checks.
const UNIFORM: [(&str, &str); 3] = [
    (
        "arguments",
        "each wrong argument that the specification names is refused with its error, and changes nothing",
    ),
    (
        "every_function",
        "the function is in its table, and answers as the specification says or lacks the feature",
    ),
    (
        "device_info",
        "the property's size is that of its type, and its value is plausible",
    ),
];

/// Memory kinds that a test's name may begin with, where one function is a test for each.
const KINDS: [&str; 3] = ["device_", "shared_", "host_"];

/// Documentation of a source file of the suites.
struct Source {
    path: PathBuf,
    text: String,
    head: Option<String>,
    functions: BTreeMap<String, String>,
}

pub(super) fn pages(root: &Path, built: &Path) -> Result<Vec<Page>> {
    let (catalogue, _) = catalogue(root, built)?;
    Ok(vec![catalogue])
}

/// Tests without a sentence.
///
/// # Errors
/// Fails if the suites cannot be built or read.
pub fn without_sentence(root: &Path) -> Result<Vec<String>> {
    Ok(catalogue(root, &built(root)?)?.1)
}

/// `suite::name` of every test.
///
/// # Errors
/// Fails if the suites cannot be built.
pub fn names(root: &Path) -> Result<Vec<String>> {
    listed(&built(root)?)
}

fn built(root: &Path) -> Result<PathBuf> {
    build::packages(root, &["ur-conformance"], false)
}

fn listed(built: &Path) -> Result<Vec<String>> {
    let list = build::output(Command::new(built.join("ur-conformance")).arg("--list"))?;
    Ok(list.lines().map(str::to_owned).collect())
}

fn catalogue(root: &Path, built: &Path) -> Result<(Page, Vec<String>)> {
    let list = listed(built)?;
    let sources = sources(&root.join("conformance/src"))?;
    let mut suites: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (suite, name) in list.iter().filter_map(|test| test.split_once("::")) {
        suites.entry(suite).or_default().push(name);
    }

    let total = list.len();
    let mut text = format!(
        "# Catalogue of the tests\n{total} tests in {} suites. `ur-conformance --filter SUITE::NAME` runs one.\n\n",
        suites.len()
    );
    let mut missing = Vec::new();
    for (suite, names) in &suites {
        let _ = writeln!(text, "## {suite}");
        let own: Vec<&Source> = sources.iter().filter(|source| source.has(suite)).collect();
        if let Some(head) = own.iter().find_map(|source| source.head.as_ref()) {
            let _ = writeln!(text, "{head}\n");
        }
        if let Some((_, what)) = UNIFORM.iter().find(|(uniform, _)| uniform == suite) {
            let _ = writeln!(text, "{} tests: {what}.\n", names.len());
            continue;
        }
        text.push_str("| test | what it checks |\n|---|---|\n");
        for name in names {
            let sentence = sentence(&own, &sources, name)
                .map_or_else(|| of_property(name), |own| Some(own.to_owned()));
            if sentence.is_none() {
                missing.push(format!("{suite}::{name}"));
            }
            let cell = sentence.unwrap_or_default().replace('|', "\\|");
            let _ = writeln!(text, "| `{name}` | {cell} |");
        }
        text.push('\n');
    }
    let page = Page {
        path: "conformance/catalogue.md".into(),
        title: "Catalogue of the tests".into(),
        text,
    };
    Ok((page, missing))
}

/// The sentence of a test: of a function in the suite's own files, else of the only one with that name.
fn sentence<'a>(own: &[&'a Source], all: &'a [Source], name: &str) -> Option<&'a str> {
    let plain = KINDS.iter().find_map(|kind| name.strip_prefix(kind));
    [Some(name), plain].into_iter().flatten().find_map(|name| {
        let in_own = own.iter().find_map(|source| source.functions.get(name));
        let mut elsewhere = all.iter().filter_map(|source| source.functions.get(name));
        let only = elsewhere.next().filter(|_| elsewhere.next().is_none());
        in_own.or(only).map(String::as_str)
    })
}

/// The sentence of a test that a table of properties makes: its name has the property behind what is queried.
fn of_property(name: &str) -> Option<String> {
    const QUERIED: [&str; 13] = [
        "info",
        "config_info",
        "group_info",
        "sub_group_info",
        "build_info",
        "physical_info",
        "sampler",
        "image",
        "granularity",
        "addresses",
        "profiling",
        "peer",
        "current",
    ];
    let property = QUERIED
        .iter()
        .find_map(|queried| name.strip_prefix(queried)?.strip_prefix('_'))?;
    Some(format!(
        "The property `{property}` has the documented type and size, and a plausible value."
    ))
}

impl Source {
    /// Whether the file names the suite, or it or its folder has the suite's name.
    fn has(&self, suite: &str) -> bool {
        let path = self.path.with_extension("");
        let named = path.components().any(|part| part.as_os_str() == suite);
        named || self.text.contains(&format!("\"{suite}\""))
    }
}

fn sources(folder: &Path) -> Result<Vec<Source>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(source(path)?);
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

fn source(path: PathBuf) -> Result<Source> {
    let text = fs::read_to_string(&path)?;
    let file = syn::parse_file(&text).with_context(|| path.display().to_string())?;
    let mut functions = BTreeMap::new();
    for item in &file.items {
        if let Item::Fn(function) = item
            && let Some(sentence) = first_sentence(&function.attrs)
        {
            functions.insert(function.sig.ident.to_string(), sentence);
        }
    }
    Ok(Source {
        head: first_sentence(&file.attrs),
        path,
        text,
        functions,
    })
}

/// The first sentence of documentation comments.
fn first_sentence(attributes: &[Attribute]) -> Option<String> {
    let mut text = String::new();
    for attribute in attributes {
        if let Meta::NameValue(pair) = &attribute.meta
            && pair.path.is_ident("doc")
            && let Expr::Lit(ExprLit {
                lit: Lit::Str(line),
                ..
            }) = &pair.value
        {
            let line = line.value();
            if line.trim().is_empty() {
                break;
            }
            text.push_str(line.trim());
            text.push(' ');
        }
    }
    let text = text.trim();
    let end = text.find(". ").map_or(text.len(), |end| end + 1);
    (!text.is_empty()).then(|| text[..end].to_owned())
}

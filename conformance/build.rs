//! Collects the sentences of the tests from the sources: the first of the documentation of each function and of
//! each module. `src/rules.rs` includes the result.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use syn::{Attribute, Expr, ExprLit, Item, Lit, Meta};

/// Folders and files without tests.
const LEFT_OUT: [&str; 4] = ["bin", "generated", "rules.rs", "suites/mod.rs"];

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=src");
    let mut files = Vec::new();
    find(Path::new("src"), &mut files)?;
    // Files of the suites first: one of them has the sentence, if several files have the function.
    files.sort_by_cached_key(|path| (!path.starts_with("src/suites"), path.clone()));
    let mut text = String::from("static SOURCES: &[Source] = &[\n");
    for file in &files {
        source(file, &mut text)?;
    }
    text.push_str("];\n");
    let out = std::env::var_os("OUT_DIR").ok_or_else(|| Error::other("OUT_DIR is not set"))?;
    fs::write(Path::new(&out).join("sources.rs"), text)
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if LEFT_OUT.iter().any(|name| path.ends_with(name)) {
            continue;
        }
        if path.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Writes the `Source` of a file.
fn source(path: &Path, out: &mut String) -> Result<()> {
    let text = fs::read_to_string(path)?;
    let file = syn::parse_file(&text)
        .map_err(|error| Error::other(format!("{}: {error}", path.display())))?;
    let suites = suites(path, &text);
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let head = first_sentence(&file.attrs);
    let functions: Vec<(String, String)> = file
        .items
        .iter()
        .filter_map(|item| match item {
            Item::Fn(function) => Some((
                function.sig.ident.to_string(),
                first_sentence(&function.attrs)?,
            )),
            _ => None,
        })
        .collect();
    writeln!(
        out,
        "Source {{ stem: {stem:?}, suites: &{suites:?}, head: {head:?}, functions: &{functions:?} }},"
    )
    .map_err(Error::other)
}

/// The suites whose tests a file may hold: it, its folder or a string in it has the suite's name.
fn suites(path: &Path, text: &str) -> Vec<String> {
    let is_name = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
    };
    let path = path.with_extension("");
    let parts = path
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .filter(|part| part != "src" && part != "mod");
    let strings = text
        .split('"')
        .filter(|text| is_name(text))
        .map(str::to_owned);
    let names: BTreeSet<String> = parts.chain(strings).collect();
    names.into_iter().collect()
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

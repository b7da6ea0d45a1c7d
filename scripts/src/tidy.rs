//! Checks of the design's invariants on the source text.
//!
//! Owns the list of allowed imports. Works on lines rather than syntax, so that a reader can check a rule
//! with grep.

mod comments;
mod loops;
mod words;

use anyhow::{Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of src/, each with the modules that it may import.
const LAYERS: [(&str, &[&str]); 10] = [
    ("abi", &[]),
    ("object", &["abi"]),
    ("dl", &[]),
    ("sync", &[]),
    ("timeline", &["sync"]),
    ("ipc", &["abi", "object", "sync"]),
    ("pool", &["sync", "timeline"]),
    ("hal", &["abi", "object"]),
    (
        "stream",
        &["abi", "object", "sync", "timeline", "pool", "hal"],
    ),
    ("lib", &[]),
];

/// The modules of src/ that clients of the C interface may use.
const CLIENTS: [(&str, &[&str]); 4] = [
    ("loader", &["abi", "object", "dl", "timeline"]),
    ("conformance", &["abi", "object", "dl"]),
    ("tools", &["abi", "dl"]),
    ("integrations/pytorch", &["abi", "object", "dl"]),
];

/// Text that an adapter must not contain, since shims, handle header or export macro own its meaning.
const NOT_IN_ADAPTERS: [(&str, &str); 5] = [
    (
        "catch_unwind",
        "panics are caught in src/object/boundary.rs and src/dl/callback.rs only",
    ),
    (
        "no_mangle",
        "an adapter exports through `hal::export!` only",
    ),
    ("api_refs.", "reference counts live in src/object/handle.rs"),
    (
        "UR_RESULT_ERROR_INVALID_NULL_POINTER",
        "null checks are the shims'",
    ),
    (
        "UR_RESULT_ERROR_INVALID_NULL_HANDLE",
        "null checks are the shims'",
    ),
];

/// Modules of the CUDA adapter that HIP will share: they name the driver through its module `vendor`.
const SHARED_WITH_HIP: [&str; 11] = [
    "driver.rs",
    "hooks.rs",
    "interop.rs",
    "mem.rs",
    "virtual_mem.rs",
    "exec/gpu.rs",
    "exec/lane.rs",
    "exec/lane/submit.rs",
    "exec/marker.rs",
    "exec/semaphore_words.rs",
    "exec/times.rs",
];

/// Fails with all violations, one on a line.
pub fn check(root: &Path) -> Result<()> {
    let mut found = Vec::new();
    layers(root, &mut found)?;
    loops::check(root, &mut found)?;
    clients(root, &mut found)?;
    adapters(root, &mut found)?;
    shared_with_hip(root, &mut found)?;
    generated(root, &mut found)?;
    words::check(root, &mut found)?;
    comments::check(root, &mut found)?;
    if !found.is_empty() {
        bail!("the tree breaks its own rules:\n  {}", found.join("\n  "));
    }
    Ok(())
}

fn layers(root: &Path, found: &mut Vec<String>) -> Result<()> {
    for (layer, may) in LAYERS {
        let dir = root.join("src").join(layer);
        if !dir.is_dir() {
            continue;
        }
        for (path, text) in rust_files(&dir)? {
            for (line, module) in uses(&text, "crate::") {
                let known = LAYERS.iter().any(|(name, _)| *name == module);
                if known && module != layer && !may.contains(&module.as_str()) {
                    found.push(format!(
                        "{}:{line}: {layer} must not import {module}",
                        show(root, &path)
                    ));
                }
            }
            if matches!(layer, "pool" | "timeline") {
                for (at, line) in code_lines(&text)
                    .filter(|(_, line)| line.contains("std::ffi") || line.contains("libc::"))
                {
                    found.push(format!(
                        "{}:{at}: {layer} knows no C type: {}",
                        show(root, &path),
                        line.trim()
                    ));
                }
            }
        }
    }
    for layer in ["pool", "timeline", "sync"] {
        let text = fs::read_to_string(root.join("src").join(layer).join("mod.rs"))?;
        if !text.contains("#![forbid(unsafe_code)]") {
            found.push(format!("src/{layer}/mod.rs: must forbid unsafe code"));
        }
    }
    Ok(())
}

fn clients(root: &Path, found: &mut Vec<String>) -> Result<()> {
    for (package, may) in CLIENTS {
        for (path, text) in rust_files(&root.join(package).join("src"))? {
            for (line, module) in uses(&text, "ur::") {
                let known = LAYERS.iter().any(|(name, _)| *name == module);
                if known && !may.contains(&module.as_str()) {
                    found.push(format!(
                        "{}:{line}: {package} must not use ur::{module}",
                        show(root, &path)
                    ));
                }
            }
        }
        let manifest = fs::read_to_string(root.join(package).join("Cargo.toml"))?;
        if manifest.contains("ur-adapter-") {
            found.push(format!("{package}/Cargo.toml: {package} knows no adapter"));
        }
    }
    Ok(())
}

fn adapters(root: &Path, found: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(root.join("adapters"))? {
        let dir = entry?.path();
        if !dir.join("src").is_dir() {
            continue;
        }
        let manifest = fs::read_to_string(dir.join("Cargo.toml"))?;
        let others = manifest
            .lines()
            .filter(|line| line.starts_with("ur-adapter-"))
            .count();
        if others > 0 {
            found.push(format!(
                "{}: adapters never depend on each other",
                show(root, &dir)
            ));
        }
        for (path, text) in rust_files(&dir.join("src"))? {
            for (at, line) in code_lines(&text) {
                for (word, why) in NOT_IN_ADAPTERS {
                    // In quotes it is a name, such as one in a mock's script.
                    let used = |(begin, _): (usize, &str)| !line[..begin].ends_with('"');
                    if line.match_indices(word).any(used) {
                        found.push(format!("{}:{at}: `{word}`: {why}", show(root, &path)));
                    }
                }
            }
        }
    }
    Ok(())
}

fn shared_with_hip(root: &Path, found: &mut Vec<String>) -> Result<()> {
    let dir = root.join("adapters/cuda/src");
    for name in SHARED_WITH_HIP {
        let path = dir.join(name);
        let Ok(text) = fs::read_to_string(&path) else {
            found.push(format!(
                "{}: HIP will share it, and it is not there",
                show(root, &path)
            ));
            continue;
        };
        for (at, line) in code_lines(&text).filter(|(_, line)| names_cuda(line)) {
            found.push(format!(
                "{}:{at}: HIP will share it, so it names the driver through `vendor`: {}",
                show(root, &path),
                line.trim()
            ));
        }
    }
    Ok(())
}

/// Whether a line imports the driver's module or names a type of the driver's, such as `CUstream`.
fn names_cuda(line: &str) -> bool {
    let words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let is_type = |word: &str| {
        let rest = word.strip_prefix("CU");
        rest.is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_lowercase()))
    };
    line.contains("cu::") || words.into_iter().any(is_type)
}

/// Handwritten files in folders of generated ones.
const BY_HAND: [&str; 8] = [
    "src/abi/ddi.rs",
    "src/abi/define.rs",
    "src/abi/params.rs",
    "src/abi/print/calls.rs",
    "src/abi/print/form.rs",
    "src/abi/print/mod.rs",
    "src/abi/print/walk.rs",
    "src/abi/property.rs",
];

/// Every file in these places begins with the note that it is generated.
fn generated(root: &Path, found: &mut Vec<String>) -> Result<()> {
    for dir in [
        "src/abi",
        "src/hal/generated",
        "src/stream/api/generated.rs",
        "adapters/level_zero/ze/src/generated",
    ] {
        for (path, text) in rust_files(&root.join(dir))? {
            let by_hand = BY_HAND.iter().any(|name| path.ends_with(name));
            if !by_hand && !text.starts_with("// Generated by `cargo xtask gen`") {
                found.push(format!(
                    "{}: generated files live here, and say so",
                    show(root, &path)
                ));
            }
        }
    }
    Ok(())
}

/// Every Rust file in a folder, ordered by path; a file alone if `dir` is one.
fn rust_files(dir: &Path) -> Result<Vec<(PathBuf, String)>> {
    if dir.is_file() {
        return Ok(vec![(dir.to_owned(), fs::read_to_string(dir)?)]);
    }
    let mut out = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        if !dir.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = fs::read_to_string(&path)?;
                out.push((path, text));
            }
        }
    }
    out.sort();
    Ok(out)
}

/// Lines that are no comments, numbered from 1.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Modules after a prefix: `crate::pool::X` gives `pool`.
fn uses<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = (usize, String)> + 'a {
    code_lines(text).flat_map(move |(at, line)| {
        line.match_indices(prefix)
            .filter(|(begin, _)| {
                !line[..*begin].ends_with(|before: char| {
                    before.is_alphanumeric() || before == '_' || before == ':'
                })
            })
            .map(move |(begin, _)| {
                let rest = &line[begin + prefix.len()..];
                let end = rest
                    .find(|letter: char| !letter.is_alphanumeric() && letter != '_')
                    .unwrap_or(rest.len());
                (at, rest[..end].to_owned())
            })
            .collect::<Vec<_>>()
    })
}

fn show(root: &Path, path: &Path) -> String {
    path.strip_prefix(root)
        .unwrap_or(path)
        .display()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_found_and_comments_are_not() {
        let text = "use crate::pool::Pool;\n// use crate::abi::X;\nlet a = crate::timeline::f(my_crate::stream::x);\n";
        let found: Vec<_> = uses(text, "crate::").collect();
        assert_eq!(found, [(1, "pool".to_owned()), (3, "timeline".to_owned())]);
    }

    #[test]
    fn a_broken_rule_is_named() {
        let root = std::env::temp_dir().join(format!("ur-tidy-{}", std::process::id()));
        for (path, text) in [
            (
                "src/pool/mod.rs",
                "#![forbid(unsafe_code)]\nuse crate::abi::X;\n",
            ),
            ("src/timeline/mod.rs", "#![forbid(unsafe_code)]\n"),
            ("src/sync/mod.rs", "#![forbid(unsafe_code)]\n"),
            ("loader/src/lib.rs", "use ur::stream::Queue;\n"),
            ("loader/Cargo.toml", ""),
            ("conformance/src/main.rs", ""),
            ("conformance/Cargo.toml", ""),
            ("tools/Cargo.toml", ""),
            ("integrations/pytorch/Cargo.toml", ""),
            ("adapters/x/src/lib.rs", "std::panic::catch_unwind(f);\n"),
            ("adapters/x/Cargo.toml", ""),
        ] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap_or(&root)).unwrap();
            fs::write(path, text).unwrap();
        }
        let report = check(&root).unwrap_err().to_string();
        fs::remove_dir_all(&root).unwrap();
        for part in [
            "src/pool/mod.rs:2: pool must not import abi",
            "ur::stream",
            "catch_unwind",
        ] {
            assert!(report.contains(part), "{part} is missing in {report}");
        }
    }
}

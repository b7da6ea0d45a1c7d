//! The licences of all crates that are compiled into the packages.
//!
//! Writes them as Debian's machine-readable copyright file. cargo's resolution tells the crates, and a
//! crate's own files the texts. A crate without a text is an error.

use crate::build;
use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The standard library's notices in the toolchain.
pub(super) const LIBRARY: &str = "COPYRIGHT-library.html";
/// Crates of the standard library that are compiled in on the supported machines.
const LIBRARY_LICENCE: &str = "(MIT OR Apache-2.0) AND Unicode-3.0";
const OWN_LICENCE: &str = "Apache-2.0 WITH LLVM-exception";
/// The end of the Apache licence's terms. The appendix follows.
const END: &str = "END OF TERMS AND CONDITIONS";

const COPYRIGHT_HEAD: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: unified-runtime
";

/// The place of the Apache licence's terms.
#[derive(Clone, Copy)]
pub(super) enum Terms {
    /// The copyright file itself.
    Here,
    /// Debian's folder of common licences, which its policy asks for.
    System,
}

impl Terms {
    /// What stands for the terms.
    fn shown(self, terms: &str) -> &str {
        match self {
            Self::Here => terms,
            Self::System => "The terms are in /usr/share/common-licenses/Apache-2.0\n",
        }
    }
}

pub(super) struct Notices {
    crates: Vec<Crate>,
    /// Our licence's text, which contains the Apache licence's.
    own: String,
    library: PathBuf,
}

/// A crate and its metadata.
struct Crate {
    name: String,
    version: String,
    /// An SPDX expression.
    licence: String,
    authors: Vec<String>,
    /// Its licence files, by name.
    texts: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    license_file: Option<PathBuf>,
    authors: Vec<String>,
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// None marks a normal dependency, neither of tests nor of the build.
    kind: Option<String>,
}

impl Notices {
    pub(super) fn collect(root: &Path, machine: &str) -> Result<Self> {
        let platform = format!("{machine}-unknown-linux-gnu");
        let metadata: Metadata = serde_json::from_str(&build::metadata(
            root,
            &["--locked", "--filter-platform", &platform],
        )?)?;
        let own = fs::read_to_string(root.join("LICENSE"))?;
        let crates = compiled(root, &metadata)?;
        let crates: Vec<Crate> = crates
            .into_iter()
            .map(|package| Crate::read(package, &own))
            .collect::<Result<_>>()?;
        let library = build::sysroot(root)?.join("share/doc/rust").join(LIBRARY);
        ensure!(
            library.exists(),
            "the toolchain has no {}, which a package with the standard library in it has to carry",
            library.display()
        );
        Ok(Self {
            crates,
            own,
            library,
        })
    }

    pub(super) fn library(&self) -> &Path {
        &self.library
    }

    /// The licences of a whole package, as an SPDX expression.
    pub(super) fn expression(&self) -> String {
        let mut parts = BTreeSet::new();
        for one in &self.crates {
            parts.insert(match one.licence.contains(" OR ") {
                true => format!("({})", one.licence),
                false => one.licence.clone(),
            });
        }
        parts.remove(OWN_LICENCE);
        let parts: Vec<String> = parts.into_iter().collect();
        format!(
            "{OWN_LICENCE} AND {LIBRARY_LICENCE} AND {}",
            parts.join(" AND ")
        )
    }

    /// Debian's machine-readable copyright file, version 1.0. `library` is the path of the standard library's
    /// notices beside it.
    pub(super) fn copyright(&self, library: &str, place: Terms) -> String {
        let mut text = format!(
            "{COPYRIGHT_HEAD}\
             Comment: The Rust packages (crates) named below are compiled in. The files of one, as\n \
             crates.io has them, are called crates/NAME-VERSION/* here. Rust's standard\n \
             library is compiled in too; its notices are in {library}, beside this file.\n\n\
             {}",
            self.own_paragraph(place)
        );
        for one in &self.crates {
            let _ = write!(text, "\n{}", one.paragraph(&self.own));
        }
        let terms = terms(&self.own).unwrap_or_default();
        let terms = folded(place.shown(terms));
        let _ = write!(text, "\nLicense: Apache-2.0\n{terms}\n");
        text
    }
}

impl Notices {
    /// The copyright file of a package without compiled code.
    pub(super) fn own_copyright(&self, place: Terms) -> String {
        format!("{COPYRIGHT_HEAD}\n{}", self.own_paragraph(place))
    }

    fn own_paragraph(&self, place: Terms) -> String {
        let own = match terms(&self.own) {
            Some(terms) => self.own.replace(terms, place.shown(terms)),
            None => self.own.clone(),
        };
        format!(
            "Files: *\nCopyright: the contributors to Unified Runtime in Rust\nLicense: {}\n{}\n",
            debian(OWN_LICENCE),
            folded(&own)
        )
    }
}

impl Crate {
    fn read(package: &Package, own: &str) -> Result<Self> {
        let name = &package.name;
        let folder = package
            .manifest_path
            .parent()
            .context("a manifest's folder")?;
        let mut files = BTreeSet::new();
        for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let entry = entry?;
            if entry.file_type()?.is_file() && is_notice(&entry.file_name().to_string_lossy()) {
                files.insert(entry.path());
            }
        }
        files.extend(package.license_file.iter().map(|file| folder.join(file)));
        let mut texts = Vec::new();
        for file in files {
            let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            texts.push((name.into_owned(), text));
        }
        let licence = package.license.clone().unwrap_or_default();
        let licence = licence.replace('/', " OR ");
        ensure!(!licence.is_empty(), "{name} names no licence");
        if texts.is_empty() {
            // The only text that we have, which names no holder.
            let has = licence.split(" OR ").any(|one| one == "Apache-2.0");
            ensure!(
                has && terms(own).is_some(),
                "{name} has no text of {licence}"
            );
        }
        Ok(Self {
            name: name.clone(),
            version: package.version.clone(),
            licence,
            authors: package.authors.clone(),
            texts,
        })
    }

    fn paragraph(&self, own: &str) -> String {
        let holders = self.holders().join("\n ");
        let mut text = format!(
            "Files: crates/{}-{}/*\nCopyright: {holders}\nLicense: {}\n",
            self.name,
            self.version,
            debian(&self.licence)
        );
        for (name, whole) in &self.texts {
            let shared =
                terms(whole).is_some_and(|one| terms(own).is_some_and(|own| same(one, own)));
            let _ = match shared {
                true => writeln!(text, " {name}: the text below at \"License: Apache-2.0\""),
                false => writeln!(text, " {name}:\n .\n{}", folded(whole)),
            };
        }
        if self.texts.is_empty() {
            text.push_str(" Its package has no text: that below at \"License: Apache-2.0\"\n");
        }
        text
    }

    /// The copyright holders in its texts, or else its authors.
    fn holders(&self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for (_, text) in &self.texts {
            for line in text
                .lines()
                .map(str::trim)
                .filter(|line| names_holder(line))
            {
                if !found.iter().any(|other| other == line) {
                    found.push(line.to_owned());
                }
            }
        }
        if found.is_empty() {
            found.clone_from(&self.authors);
        }
        if found.is_empty() {
            found.push(format!("the authors of {}", self.name));
        }
        found
    }
}

/// The crates in the installed files, by name and version.
fn compiled<'a>(root: &Path, metadata: &'a Metadata) -> Result<Vec<&'a Package>> {
    let packages: BTreeMap<&str, &Package> = metadata
        .packages
        .iter()
        .map(|package| (package.id.as_str(), package))
        .collect();
    let nodes: BTreeMap<&str, &Node> = metadata
        .resolve
        .nodes
        .iter()
        .map(|node| (node.id.as_str(), node))
        .collect();
    let mut next: Vec<&str> = Vec::new();
    for id in &metadata.workspace_members {
        let package = packages.get(id.as_str()).context("an unknown member")?;
        if is_installed(root, &package.manifest_path) {
            next.push(id);
        }
    }
    let mut seen = BTreeSet::new();
    while let Some(id) = next.pop() {
        let package = packages.get(id).context("an unknown package")?;
        if !seen.insert(id) || is_macro(package) {
            // A macro's output is compiled in, but its own dependencies are not.
            continue;
        }
        let node = nodes.get(id).context("an unresolved package")?;
        let normal = |dependency: &&Dependency| {
            let mut kinds = dependency.dep_kinds.iter();
            kinds.any(|kind| kind.kind.is_none())
        };
        next.extend(node.deps.iter().filter(normal).map(|one| one.pkg.as_str()));
    }
    let own = |id: &&&str| {
        metadata
            .workspace_members
            .iter()
            .any(|member| member == **id)
    };
    let mut found: Vec<&Package> = seen
        .iter()
        .filter(|id| !own(id))
        .filter_map(|id| packages.get(id).copied())
        .collect();
    found.sort_by_key(|package| (&package.name, &package.version));
    if found.is_empty() {
        bail!("cargo names no dependency");
    }
    Ok(found)
}

/// Whether a package of the workspace has installed libraries or programs.
fn is_installed(root: &Path, manifest: &Path) -> bool {
    let Ok(path) = manifest.strip_prefix(root) else {
        return false;
    };
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    match &parts[..] {
        [folder, _] => ["loader", "conformance", "tools"].contains(&&**folder),
        [folder, name, _] => match &**folder {
            "adapters" => name != build::SKELETON,
            folder => folder == "integrations",
        },
        _ => false,
    }
}

fn is_macro(package: &Package) -> bool {
    let mut kinds = package.targets.iter().flat_map(|target| &target.kind);
    kinds.any(|kind| kind == "proc-macro")
}

fn is_notice(file: &str) -> bool {
    let file = file.to_ascii_uppercase();
    let starts = [
        "LICENSE",
        "LICENCE",
        "COPYING",
        "COPYRIGHT",
        "NOTICE",
        "UNLICENSE",
    ];
    starts.iter().any(|start| file.starts_with(start))
}

/// Whether a line is a copyright notice, and not a part of a licence's terms.
fn names_holder(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("Copyright ") else {
        return false;
    };
    let named = rest.starts_with("(c)") || rest.starts_with("(C)") || rest.starts_with('©');
    let blank = rest.contains("[yyyy]") || rest.contains("{yyyy}");
    !blank && (named || rest.starts_with(|start: char| start.is_ascii_digit()))
}

/// The terms of the Apache licence, if the text is one.
fn terms(text: &str) -> Option<&str> {
    let (terms, _) = text.split_once(END)?;
    terms
        .trim_start()
        .starts_with("Apache License")
        .then_some(terms)
}

fn same(one: &str, other: &str) -> bool {
    one.split_whitespace().eq(other.split_whitespace())
}

/// An SPDX expression in the terms of Debian's format.
fn debian(expression: &str) -> String {
    expression
        .replace(" OR ", " or ")
        .replace(" AND ", " and ")
        .replace(" WITH LLVM-exception", " with LLVM exception")
}

/// The continuation lines of a field.
fn folded(text: &str) -> String {
    let lines = text.trim_matches('\n').lines().map(|line| {
        let line: String = line
            .trim_end()
            .chars()
            .filter(|c| !c.is_control() || *c == '\t')
            .collect();
        if line.is_empty() {
            " .".to_owned()
        } else {
            format!(" {line}")
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_of_what_is_compiled_in() {
        let root = crate::repository();
        let notices = Notices::collect(&root, std::env::consts::ARCH).unwrap();
        let names: BTreeSet<&str> = notices.crates.iter().map(|one| one.name.as_str()).collect();
        // A dependency, one of its own, a macro; none of tests, of macros or of ours.
        for name in ["clap", "clap_builder", "serde_derive"] {
            assert!(names.contains(name), "{name}");
        }
        for name in [
            "proptest",
            "syn",
            "cbindgen",
            "ur-loader",
            "unified-runtime",
        ] {
            assert!(!names.contains(name), "{name}");
        }
        let text = notices.copyright("x.html", Terms::Here);
        assert_eq!(text.matches("\nLicense: Apache-2.0\n Apache").count(), 0);
        let mut paragraphs = text.split("\n\n");
        assert!(paragraphs.next().unwrap().starts_with("Format: https://"));
        for paragraph in paragraphs {
            let alone = paragraph.starts_with("License: Apache-2.0\n");
            let files = paragraph.starts_with("Files: ")
                && paragraph.contains("\nCopyright: ")
                && paragraph.contains("\nLicense: ");
            assert!(alone || files, "{paragraph}");
        }
        let system = notices.copyright("x.html", Terms::System);
        assert_eq!(
            system
                .matches("/usr/share/common-licenses/Apache-2.0")
                .count(),
            2
        );
        // Crates may have texts of their own.
        let own = notices.own_copyright(Terms::System);
        assert!(own.contains("LLVM Exceptions") && !own.contains("Submission of Contributions"));
        let expression = notices.expression();
        assert!(expression.starts_with("Apache-2.0 WITH LLVM-exception AND ("));
        assert!(!expression.contains('/'), "{expression}");
    }

    #[test]
    fn a_crate_says_whose_it_is() {
        let texts = |text: &str| vec![("LICENSE".to_owned(), text.to_owned())];
        let one = |texts: Vec<(String, String)>, authors: &[&str]| Crate {
            name: "one".into(),
            version: "1.0.0".into(),
            licence: "MIT OR Apache-2.0".into(),
            authors: authors.iter().map(|&name| name.to_owned()).collect(),
            texts,
        };
        let own = "\n Apache License\nterms\nEND OF TERMS AND CONDITIONS\n";
        let mit = one(texts("Copyright (c) 2020 A\n\nCopyright notices\n"), &["B"]);
        assert_eq!(
            mit.paragraph(own),
            "Files: crates/one-1.0.0/*\nCopyright: Copyright (c) 2020 A\n\
             License: MIT or Apache-2.0\n LICENSE:\n .\n Copyright (c) 2020 A\n .\n Copyright notices\n"
        );
        let apache = "Apache License terms END OF TERMS AND CONDITIONS\nCopyright [yyyy] [name]";
        assert_eq!(
            one(texts(apache), &["B"]).paragraph(own),
            "Files: crates/one-1.0.0/*\nCopyright: B\nLicense: MIT or Apache-2.0\n \
             LICENSE: the text below at \"License: Apache-2.0\"\n"
        );
        assert_eq!(one(Vec::new(), &[]).holders(), ["the authors of one"]);
    }
}

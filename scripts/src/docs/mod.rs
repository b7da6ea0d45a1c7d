//! `cargo xtask docs`: the book of docs/, with pages made from the specification, the tools and the tests.
//!
//! Owns the assembly of the book's sources below target/, the check of their links, and the call of mdBook,
//! which is installed below target/ the first time. Pages that are made: `api` and `catalogue`, and a page
//! for each tool from its own help.

mod api;
pub mod catalogue;
pub mod coverage;
pub mod links;

use crate::build;
use crate::model::Spec;
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of mdBook that builds the book.
const MDBOOK: &str = "0.5.4";

/// The tools with a page of their own, in the order of the book.
const TOOLS: [&str; 5] = ["urinfo", "urtrace", "urreplay", "ur-env", "ur-conformance"];

/// Options of `cargo xtask docs`.
#[derive(clap::Args)]
pub struct Options {
    /// Checks links and made pages, and builds no HTML: needs no network
    #[arg(long)]
    pub check: bool,
}

/// Assembles the book, checks its links and those of the documents beside it, and builds it. Returns the
/// folder of the HTML, or of the sources if it was only checked.
///
/// # Errors
/// Fails with every broken link, if a page is missing from the summary, or if mdBook cannot be had.
pub fn run(root: &Path, options: &Options) -> Result<PathBuf> {
    let book = build::target_dir(root)?.join("book");
    let src = book.join("src");
    if book.exists() {
        fs::remove_dir_all(&book)?;
    }
    let built = build::packages(root, &["ur-tools", "ur-conformance"], false)?;
    let summary = assemble(root, &built, &src)?;
    fs::copy(root.join("docs/book.toml"), book.join("book.toml"))?;

    let mut broken = links::check(&src, &links::files(&src)?)?;
    broken.extend(unlisted(&src, &summary)?);
    broken.extend(links::check(root, &documents(root)?)?);
    ensure!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
    if options.check {
        return Ok(src);
    }
    build::run(Command::new(mdbook(root)?).arg("build").arg(&book))?;
    Ok(book.join("book"))
}

/// Assembles the book's pages for an installation, and returns their folder. The tools in `built` print
/// their own pages.
///
/// # Errors
/// Fails if a source cannot be read, or a tool cannot be run.
pub fn pages(root: &Path, built: &Path) -> Result<PathBuf> {
    let pages = build::target_dir(root)?.join("pages");
    if pages.exists() {
        fs::remove_dir_all(&pages)?;
    }
    assemble(root, built, &pages)?;
    Ok(pages)
}

/// Writes the book's sources to `src`, which must not exist, and returns the summary.
fn assemble(root: &Path, built: &Path, src: &Path) -> Result<String> {
    copy(&root.join("docs/src"), src)?;
    let spec = Spec::load(&root.join("spec"))?;
    let mut summary = fs::read_to_string(src.join("SUMMARY.md"))?;
    for (place, pages) in made(root, built, &spec)? {
        let mut list = String::new();
        for page in &pages {
            fs::write(src.join(&page.path), &page.text)?;
            list.push_str(&format!("  - [{}]({})\n", page.title, page.path));
        }
        let mark = format!("<!-- pages: {place} -->\n");
        ensure!(
            summary.contains(&mark),
            "SUMMARY.md has no place for {place}"
        );
        summary = summary.replace(&mark, &list);
    }
    fs::write(src.join("SUMMARY.md"), &summary)?;
    whole_documents(root, src)?;
    Ok(summary)
}

/// A page of the book that is not written by hand.
struct Page {
    /// From the book's source folder.
    path: String,
    title: String,
    text: String,
}

/// The made pages, by their place in SUMMARY.md.
fn made(root: &Path, built: &Path, spec: &Spec) -> Result<BTreeMap<&'static str, Vec<Page>>> {
    let mut pages = BTreeMap::new();
    pages.insert("api", api::pages(spec, root)?);
    pages.insert("catalogue", catalogue::pages(built)?);
    pages.insert("tools", tools(built)?);
    Ok(pages)
}

/// A page for each tool: its help.
fn tools(built: &Path) -> Result<Vec<Page>> {
    let page = |tool: &&str| -> Result<Page> {
        let help = build::output(Command::new(built.join(tool)).arg("--help"))?;
        Ok(Page {
            path: format!("tools/{tool}.md"),
            title: format!("`{tool}`"),
            text: format!("# {tool}\n```text\n{}\n```\n", help.trim_end()),
        })
    };
    TOOLS.iter().map(page).collect()
}

/// The documents of the repository's root that are pages too, with their links led to where they are then.
fn whole_documents(root: &Path, src: &Path) -> Result<()> {
    for (document, page) in [
        ("CONTRIBUTING.md", "contributing.md"),
        ("ARCHITECTURE.md", "architecture.md"),
        ("CHANGELOG.md", "changelog.md"),
        ("SECURITY.md", "security.md"),
    ] {
        let text = fs::read_to_string(root.join(document)).context(document)?;
        fs::write(src.join(page), links::for_book(&text))?;
    }
    Ok(())
}

/// Pages that the summary does not name, and which nobody would find.
fn unlisted(src: &Path, summary: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for file in links::files(src)? {
        let name = file.strip_prefix(src)?.to_string_lossy().into_owned();
        if name != "SUMMARY.md" && !summary.contains(&format!("({name})")) {
            found.push(format!("SUMMARY.md does not name {name}"));
        }
    }
    Ok(found)
}

/// The documents beside the book whose links are checked.
pub fn documents(root: &Path) -> Result<Vec<PathBuf>> {
    let list = build::output(Command::new("git").current_dir(root).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "*.md",
    ]))?;
    let own = |name: &&str| !name.starts_with("docs/") && root.join(name).exists();
    Ok(list
        .lines()
        .filter(own)
        .map(|name| root.join(name))
        .collect())
}

/// mdBook's program, installed below target/ if it is not there yet.
fn mdbook(root: &Path) -> Result<PathBuf> {
    let tools = build::target_dir(root)?.join("tools");
    let program = tools.join("bin/mdbook");
    let wanted = format!("mdbook v{MDBOOK}");
    let version = build::output(Command::new(&program).arg("--version")).unwrap_or_default();
    if version.trim_end() != wanted {
        let _step = build::step(&format!(
            "installs mdBook {MDBOOK} below {}, once",
            tools.display()
        ));
        let mut cargo = build::cargo(root);
        cargo.args(["install", "mdbook", "--locked", "--no-default-features"]);
        cargo
            .args(["--version", MDBOOK, "--force", "--root"])
            .arg(&tools);
        build::run(&mut cargo)?;
    }
    Ok(program)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

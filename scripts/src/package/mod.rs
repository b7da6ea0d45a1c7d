//! `cargo xtask package`: Debian packages and a Python wheel of the files in `layout`.
//!
//! Owns what they share: stripped binaries, their system requirements, the machine's names. Equal trees make
//! equal bytes. `SOURCE_DATE_EPOCH` dates the files of the Debian packages; `about` has the other variables.

mod about;
mod deb;
mod needs;
mod notices;
mod wheel;

use crate::layout::{Content, Item, Sources};
use crate::{build, docs};
use about::About;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use needs::Needs;
use notices::Notices;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Args)]
pub struct Options {
    /// The folder for the packages; target/package by default
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Names of this machine's architecture.
struct Machine {
    /// Python's and the compiler's name.
    name: &'static str,
    debian: &'static str,
    /// Debian's folder of libraries.
    triplet: &'static str,
}

const MACHINES: [Machine; 2] = [
    Machine {
        name: "x86_64",
        debian: "amd64",
        triplet: "x86_64-linux-gnu",
    },
    Machine {
        name: "aarch64",
        debian: "arm64",
        triplet: "aarch64-linux-gnu",
    },
];

/// The data that all packages need.
struct Package<'a> {
    root: &'a Path,
    machine: &'a Machine,
    needs: &'a Needs,
    notices: &'a Notices,
    about: &'a About,
}

pub fn run(root: &Path, options: &Options) -> Result<()> {
    let machine = MACHINES
        .iter()
        .find(|machine| machine.name == std::env::consts::ARCH)
        .context("packages are made on x86_64 and aarch64 only")?;
    let about = About::read(|name| std::env::var(name).ok())?;
    if about.maintainer.is_none() {
        console::errln!(
            "packages that nobody answers for: DEBFULLNAME and DEBEMAIL name their maintainer"
        );
    }
    let notices = Notices::collect(root, machine.name)?;
    let built = build::workspace(root, true)?;
    let out = match &options.out {
        Some(out) => out.clone(),
        None => build::target_dir(root)?.join("package"),
    };
    fs::create_dir_all(&out)?;
    let scratch = tempfile::tempdir_in(&out)?;
    let _step = build::step(&format!("packs what was built into {}", out.display()));
    let book = docs::pages(root, &built)?;
    let mut sources = Sources {
        root,
        built: &built,
        book: &book,
    };
    let layout = deb::layout(machine);
    let needs = strip(&layout.items(sources)?, scratch.path())?;
    sources.built = scratch.path();
    let package = Package {
        root,
        machine,
        needs: &needs,
        notices: &notices,
        about: &about,
    };
    let mut paths = deb::write(&package, layout.items(sources)?, &out)?;
    paths.push(wheel::write(
        &package,
        wheel::layout().items(sources)?,
        &out,
    )?);
    for path in paths {
        console::outln!("{}", path.display());
    }
    Ok(())
}

/// Copies binaries without debug information, and sums up their requirements. Files from elsewhere stay in
/// place.
fn strip(items: &[Item], into: &Path) -> Result<Needs> {
    let mut needs = Needs::default();
    for item in items {
        let Content::Copy(from) = &item.content else {
            continue;
        };
        let data = fs::read(from).with_context(|| from.display().to_string())?;
        if !data.starts_with(b"\x7fELF") {
            continue;
        }
        let to = into.join(from.file_name().unwrap_or_default());
        // Part of every C compiler, which the build needs anyway.
        build::run(
            Command::new("strip")
                .arg("--strip-unneeded")
                .arg("-o")
                .arg(&to)
                .arg(from),
        )?;
        needs
            .add(&fs::read(&to)?)
            .with_context(|| to.display().to_string())?;
    }
    if needs.libraries.is_empty() {
        bail!("nothing was built");
    }
    Ok(needs)
}

/// The bytes of an item; none for a link.
fn bytes(item: &Item) -> Result<Vec<u8>> {
    match &item.content {
        Content::Copy(from) => fs::read(from).with_context(|| from.display().to_string()),
        Content::Text(text) => Ok(text.clone().into_bytes()),
        Content::Link(_) => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This machine's notices, made once for the tests of both packages.
    pub(super) fn package(needs: &Needs) -> Package<'_> {
        static NOTICES: std::sync::OnceLock<Notices> = std::sync::OnceLock::new();
        static ABOUT: std::sync::OnceLock<About> = std::sync::OnceLock::new();
        static ROOT: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
        let root = ROOT.get_or_init(crate::repository);
        Package {
            root,
            machine: &MACHINES[0],
            needs,
            notices: NOTICES.get_or_init(|| Notices::collect(root, MACHINES[0].name).unwrap()),
            about: ABOUT.get_or_init(About::default),
        }
    }
}

//! `cargo xtask package`: a Debian package and a Python wheel of what `layout` lists.
//!
//! Owns what the two share: stripped binaries, what those need of the system, and the machine's names.
//! The same tree makes the same bytes; `SOURCE_DATE_EPOCH` dates the files of the Debian package.

mod deb;
mod needs;
mod wheel;

use crate::build;
use crate::layout::{Content, Item};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use needs::Needs;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Args)]
pub struct Options {
    /// Where the packages go; target/package by default
    #[arg(long)]
    out: Option<PathBuf>,
}

const SUMMARY: &str = "Unified Runtime: loader, adapters, headers and tools beneath SYCL";

/// What this machine is called.
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

pub fn run(root: &Path, options: &Options) -> Result<()> {
    let machine = MACHINES
        .iter()
        .find(|machine| machine.name == std::env::consts::ARCH)
        .context("packages are made on x86_64 and aarch64 only")?;
    let built = build::workspace(root, true)?;
    let out = match &options.out {
        Some(out) => out.clone(),
        None => build::target_dir(root)?.join("package"),
    };
    fs::create_dir_all(&out)?;
    let scratch = tempfile::tempdir_in(&out)?;
    let layout = deb::layout(machine);
    let items = layout.items(root, &built)?;
    let needs = strip(&items, scratch.path())?;
    let items = layout.items(root, scratch.path())?;
    let package = deb::write(root, machine, &needs, items, &out)?;
    println!("{}", package.display());
    let items = wheel::layout().items(root, scratch.path())?;
    let wheel = wheel::write(root, machine, &needs, items, &out)?;
    println!("{}", wheel.display());
    Ok(())
}

/// Copies binaries without what only debuggers read, and sums up what they need. What cargo did not
/// build is left where it is.
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
        // Comes with every C compiler, which the build needs anyway.
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

/// An item's bytes; none of a link.
fn bytes(item: &Item) -> Result<Vec<u8>> {
    match &item.content {
        Content::Copy(from) => fs::read(from).with_context(|| from.display().to_string()),
        Content::Text(text) => Ok(text.clone().into_bytes()),
        Content::Link(_) => Ok(Vec::new()),
    }
}

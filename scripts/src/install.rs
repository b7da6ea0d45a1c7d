//! `cargo xtask install`: copies a built tree to a prefix, as `layout` lists it.

use crate::layout::{Content, Layout, Sources};
use crate::{build, docs};
use anyhow::{Context as _, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Builds everything and installs it below target/, for this project's tools. Returns the prefix.
pub fn below_target(root: &Path) -> Result<PathBuf> {
    let built = build::workspace(root, true)?;
    let prefix = build::target_dir(root)?.join("installed");
    install(root, &built, &prefix)?;
    Ok(prefix)
}

/// Installs the libraries and programs in `built` under `prefix`, and what belongs to them.
pub fn install(root: &Path, built: &Path, prefix: &Path) -> Result<()> {
    let book = docs::pages(root, built)?;
    let sources = Sources {
        root,
        built,
        book: &book,
    };
    for item in Layout::tree().items(sources)? {
        let path = prefix.join(&item.path);
        let shown = || path.display().to_string();
        fs::create_dir_all(path.parent().unwrap_or(prefix)).with_context(shown)?;
        // A library in use must be replaced, not overwritten.
        if fs::symlink_metadata(&path).is_ok() {
            fs::remove_file(&path).with_context(shown)?;
        }
        match &item.content {
            Content::Copy(from) => fs::copy(from, &path)
                .map(drop)
                .with_context(|| from.display().to_string()),
            Content::Text(text) => fs::write(&path, text).with_context(shown),
            Content::Link(to) => symlink(to, &path).with_context(shown),
        }?;
    }
    Ok(())
}

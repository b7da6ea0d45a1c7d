//! The project's tools as a library, which tests call without a process.

pub mod bench;
pub mod build;
pub mod docs;
pub mod expand;
pub mod generate;
pub mod install;
pub mod layout;
pub mod level_zero;
pub mod model;
pub mod package;
pub mod real_client;
pub mod reference;
pub mod tidy;

use std::path::{Path, PathBuf};

/// The repository's root, the parent of this package's folder.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

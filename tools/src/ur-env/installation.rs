//! The loader and the adapters of this program's installation.

use std::path::{Path, PathBuf};

const LOADER: &str = "libur_loader.so.0";

/// A folder below the libraries' folder that has the loader only, for LD_LIBRARY_PATH. The
/// libraries' folder itself, if it is the system's, would precede every program's own libraries.
const ALONE: &str = "unified-runtime";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// The folder for LD_LIBRARY_PATH, which has the loader and shadows no other library.
    pub loader: PathBuf,
    /// Names and paths of the adapters, sorted by name.
    pub adapters: Vec<(String, PathBuf)>,
}

impl Installation {
    /// Finds the installation that this program belongs to.
    pub fn find() -> Result<Self, String> {
        let folders = ur::dl::folders_near_program();
        let found = folders.iter().find(|folder| folder.join(LOADER).exists());
        match found {
            Some(lib) => Self::read(lib),
            None => Err(format!("no {LOADER} beside this program or in ../lib")),
        }
    }

    fn read(lib: &Path) -> Result<Self, String> {
        let entries = std::fs::read_dir(lib).map_err(|error| format!("{}: {error}", lib.display()));
        let mut adapters: Vec<(String, PathBuf)> = entries?
            .flatten()
            .filter_map(|entry| {
                let file = entry.file_name().into_string().ok()?;
                let name = file.strip_prefix("libur_adapter_")?.strip_suffix(".so.0")?;
                Some((name.to_owned(), entry.path()))
            })
            .collect();
        adapters.sort();
        let alone = lib.join(ALONE);
        let loader = match alone.join(LOADER).exists() {
            true => alone,
            false => lib.to_owned(),
        };
        Ok(Self { loader, adapters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_are_found_beside_the_loader() {
        let folder = tempfile::tempdir().unwrap();
        let lib = folder.path().join("lib/x86_64-linux-gnu");
        std::fs::create_dir_all(lib.join(ALONE)).unwrap();
        for name in [
            "libur_adapter_b.so.0",
            "libur_adapter_a.so.0",
            "libur_adapter_a.so.0.12.0",
            "libur_adapter_a.so",
            "libur_loader.so.0",
            "unified-runtime/libur_loader.so.0",
        ] {
            std::fs::write(lib.join(name), "").unwrap();
        }
        let found = Installation::read(&lib).unwrap();
        assert_eq!(found.loader, lib.join(ALONE));
        let names: Vec<_> = found.adapters.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b"]);
    }
}

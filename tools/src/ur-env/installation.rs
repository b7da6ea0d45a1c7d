//! Where this program's installation keeps its loader and adapters.

use std::path::{Path, PathBuf};

const LOADER: &str = "libur_loader.so.0";

/// A folder below that of the libraries with nothing but the loader, for LD_LIBRARY_PATH: a system's
/// library folder there would come before every program's own.
const ALONE: &str = "unified-runtime";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// The folder that brings our loader and nothing else that could shadow a library.
    pub loader: PathBuf,
    /// Names and libraries, by name.
    pub adapters: Vec<(String, PathBuf)>,
}

impl Installation {
    /// The one that this program belongs to.
    pub fn find() -> Result<Self, String> {
        let places = ur::dl::folders_near_program();
        let found = places.iter().find(|place| place.join(LOADER).exists());
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
    fn adapters_are_what_lies_beside_the_loader() {
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

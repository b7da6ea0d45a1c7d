//! An installed `libsycl`: its folder, and whether it links a loader library.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::DT_NEEDED;
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    pub folder: PathBuf,
    /// Whether it links `libur_loader.so.0` instead of having its own loader inside.
    pub links_loader: bool,
}

/// Variables that name the root of an active environment.
const ROOTS: [&str; 3] = ["VIRTUAL_ENV", "CONDA_PREFIX", "CMPLR_ROOT"];

impl Runtime {
    /// Reads a libsycl at a path. An error if it is no ELF library.
    pub fn read(path: &Path) -> Result<Self, String> {
        let fault = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let path = std::path::absolute(path).map_err(|error| fault(&error))?;
        let data = std::fs::read(&path).map_err(|error| fault(&error))?;
        let links_loader = needs(&data, b"libur_loader.so.").map_err(|error| fault(&error))?;
        let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Self {
            folder,
            links_loader,
        })
    }

    /// The first readable libsycl: in `first`, in LD_LIBRARY_PATH, or in an active environment.
    pub fn search(first: &[PathBuf], var: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let mut folders = first.to_vec();
        if let Some(path) = var("LD_LIBRARY_PATH") {
            folders
                .extend(std::env::split_paths(&path).filter(|path| !path.as_os_str().is_empty()));
        }
        let roots = ROOTS.iter().filter_map(|name| var(name));
        folders.extend(roots.map(|root| Path::new(&root).join("lib")));
        let libraries = folders.iter().filter_map(|folder| library(folder));
        libraries.filter_map(|path| Self::read(&path).ok()).next()
    }

    /// The path of a file in libsycl's folder, if it exists.
    pub fn beside(&self, name: &str) -> Option<PathBuf> {
        Some(self.folder.join(name)).filter(|path| path.exists())
    }
}

/// The `libsycl.so.N` with the highest number in a folder.
fn library(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let numbered = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let number: u32 = name.strip_prefix("libsycl.so.")?.parse().ok()?;
        Some((number, entry.path()))
    });
    numbered.max().map(|(_, path)| path)
}

/// Whether a library links one whose name starts with `prefix`.
fn needs(data: &[u8], prefix: &[u8]) -> object::Result<bool> {
    let file = ElfFile64::<Endianness>::parse(data)?;
    let endian = file.endian();
    let sections = file.elf_header().sections(endian, data)?;
    let Some((entries, strings)) = sections.dynamic(endian, data)? else {
        return Ok(false);
    };
    let strings = sections.strings(endian, data, strings)?;
    for entry in entries {
        if entry.tag(endian) == DT_NEEDED && entry.string(endian, strings)?.starts_with(prefix) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_by_number() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "libsycl.so",
            "libsycl.so.9",
            "libsycl.so.10",
            "libsycl.so.9.0.0",
            "libsycl.so.11-gdb.py",
        ] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let found = library(folder.path()).unwrap();
        assert_eq!(found, folder.path().join("libsycl.so.10"));
    }

    #[test]
    fn linked_libraries_are_found() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(needs(&own, b"libc.so."), Ok(true));
        assert_eq!(needs(&own, b"libur_loader.so."), Ok(false));
        assert!(needs(b"no library", b"libc").is_err());
    }

    #[test]
    fn folders_are_searched_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        for name in ["a", "b/lib"] {
            let lib = folder.path().join(name);
            std::fs::create_dir_all(&lib).unwrap();
            std::fs::copy(&own, lib.join("libsycl.so.9")).unwrap();
        }
        let var = |name: &str| match name {
            "LD_LIBRARY_PATH" => Some(format!(":{}", folder.path().join("a").display()).into()),
            "VIRTUAL_ENV" => Some(folder.path().join("b").into()),
            _ => None,
        };
        let found = |first: &[PathBuf]| Runtime::search(first, var).unwrap().folder;
        assert_eq!(found(&[]), folder.path().join("a"));
        let venv = folder.path().join("b/lib");
        assert_eq!(found(std::slice::from_ref(&venv)), venv);
        assert_eq!(Runtime::search(&[], |_| None), None);
    }
}

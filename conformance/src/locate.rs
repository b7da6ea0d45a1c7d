//! The paths of the loader and its adapters.

use std::path::{Path, PathBuf};

const LOADER_NAMES: [&str; 2] = ["libur_loader.so.0", "libur_loader.so"];

/// The given loader. Without one: the loader beside this program, in `../lib` or of the system.
pub fn loader(asked: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(path) = asked {
        return match path.exists() {
            true => Ok(path.to_owned()),
            false => Err(format!("{}: no such file", path.display())),
        };
    }
    Ok(ur::dl::near_program(&LOADER_NAMES))
}

/// The library of an adapter in the loader's folder.
pub fn adapter(loader: &Path, name: &str) -> Result<String, String> {
    let folder = loader.parent().unwrap_or(Path::new("."));
    let names = [
        format!("libur_adapter_{name}.so.0"),
        format!("libur_adapter_{name}.so"),
    ];
    match names
        .iter()
        .map(|file| folder.join(file))
        .find(|path| path.exists())
    {
        Some(path) => Ok(path.display().to_string()),
        None => Err(format!("no {} in {}", names.join(" or "), folder.display())),
    }
}

/// Installed expectations, from the folder of this program.
const EXPECTATIONS: &str = "../share/unified-runtime/expectations";

/// An expectations file: a path, or the name of an installed file without its ending.
pub fn expectations(asked: &Path) -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let folder = program.parent().unwrap_or(Path::new("."));
    named(asked, &folder.join(EXPECTATIONS))
}

fn named(asked: &Path, folder: &Path) -> PathBuf {
    let file = folder.join(asked).with_extension("yml");
    let is_name = asked.components().count() == 1 && asked.extension().is_none();
    match is_name && !asked.exists() && file.exists() {
        true => file,
        false => asked.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::named;
    use std::fs;
    use std::path::Path;

    #[test]
    fn expectations_have_names() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("opencl-pocl.yml");
        fs::write(&file, "").unwrap();
        let find = |asked: &str| named(Path::new(asked), folder.path());
        assert_eq!(find("opencl-pocl"), file);
        // What is not installed stays a path, which the error then names.
        for path in ["nothing", "opencl-pocl.yml", "./opencl-pocl"] {
            assert_eq!(find(path), Path::new(path));
        }
    }
}

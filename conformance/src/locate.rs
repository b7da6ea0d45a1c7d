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

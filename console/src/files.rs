//! The trial of output paths before a run, so that a long run does not end without its file.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;

/// Tries whether a file can be written at a path. An existing file keeps its content, and a missing
/// one is not left behind. The error names the path.
pub fn try_write(path: &Path) -> Result<(), String> {
    // Opening a pipe would end its reader's input.
    if is_special(path) {
        return Ok(());
    }
    tried(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn tried(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            OpenOptions::new().write(true).open(path).map(drop)
        }
        Err(error) => Err(error),
    }
}

/// Whether a path is a device or a pipe.
pub fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_leaves_files_as_they_are() {
        let own = std::env::temp_dir().join(format!("ur-console-files-{}", std::process::id()));
        fs::create_dir_all(&own).expect("a folder");
        let (missing, existing) = (own.join("missing"), own.join("existing"));
        fs::write(&existing, "content").expect("a file");
        assert_eq!(try_write(&missing), Ok(()));
        assert!(!missing.exists());
        assert_eq!(try_write(&existing), Ok(()));
        assert_eq!(fs::read_to_string(&existing).expect("the file"), "content");
        assert_eq!(try_write(Path::new("/dev/null")), Ok(()));
        for refused in [own.clone(), own.join("none/file")] {
            let error = try_write(&refused).expect_err("no file can be there");
            assert!(
                error.starts_with(&format!("{}: ", refused.display())),
                "{error}"
            );
        }
        fs::remove_dir_all(&own).expect("the folder");
    }
}

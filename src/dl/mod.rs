//! Dynamic libraries: opening them, typed lists of their symbols, and the way back from them.
//!
//! Owns every `dlopen` and the one helper through which a driver's callbacks run. It may use
//! `libloading`; it must never know which library it opens. A missing library or symbol is a value.

mod callback;
mod symbols;
#[cfg(test)]
mod tests;

use std::ffi::{CStr, OsStr, c_void};
use std::fmt;
use std::mem::size_of;
use std::path::{Path, PathBuf};

use libloading::os::unix;

pub use crate::symbols;
pub use callback::{callback_panics, guarded_callback, in_callback};
#[doc(hidden)]
pub use symbols::symbol_name;

/// An open library, closed on drop.
pub struct Library {
    handle: Handle,
    name: String,
}

/// As `dlopen` gave it. Kept bare, since asking for a symbol through `libloading` costs half as much
/// again, and a driver's hundred symbols are asked for in every process that starts.
struct Handle(*mut c_void);

// SAFETY: the linker's functions may be called with a handle from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above, at once too.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle came from there, and this is its last use.
        drop(unsafe { unix::Library::from_raw(self.0) });
    }
}

/// How far a library's own symbols come before the process's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Binding {
    /// Symbols resolve as the dynamic linker does by default.
    #[default]
    Usual,
    /// `RTLD_DEEPBIND`: the library prefers its own definitions.
    Deep,
}

/// What could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// No candidate could be opened: each with the linker's reason.
    Library { tried: Vec<(String, String)> },
    /// A required symbol is missing.
    Symbol {
        library: String,
        symbol: &'static str,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Library { tried } if tried.is_empty() => out.write_str("no library named"),
            LoadError::Library { tried } => {
                let reasons = tried
                    .iter()
                    .map(|(name, reason)| format!("{name}: {reason}"));
                out.write_str(&reasons.collect::<Vec<_>>().join("; "))
            }
            LoadError::Symbol { library, symbol } => write!(out, "{library} lacks `{symbol}`"),
        }
    }
}

impl std::error::Error for LoadError {}

impl Library {
    /// Opens a library by path or name, with `RTLD_LAZY | RTLD_LOCAL`.
    pub fn open(name: impl AsRef<OsStr>, binding: Binding) -> Result<Library, LoadError> {
        let name = name.as_ref();
        let deep = match binding {
            Binding::Usual => 0,
            Binding::Deep => libc::RTLD_DEEPBIND,
        };
        let flags = unix::RTLD_LAZY | unix::RTLD_LOCAL | deep;
        // SAFETY: running a library's initialisers is what loading it means; whoever names the
        // library answers for them.
        let opened = unsafe { unix::Library::open(Some(name), flags) };
        let name = name.to_string_lossy().into_owned();
        match opened {
            Ok(opened) => Ok(Library {
                handle: Handle(opened.into_raw()),
                name,
            }),
            Err(error) => {
                let tried = vec![(name, reason(&error))];
                Err(LoadError::Library { tried })
            }
        }
    }

    /// Opens the first of `names` that can be opened.
    pub fn open_first(names: &[&str]) -> Result<Library, LoadError> {
        let mut tried = Vec::new();
        for name in names {
            match Library::open(name, Binding::Usual) {
                Ok(library) => return Ok(library),
                Err(LoadError::Library { tried: more }) => tried.extend(more),
                Err(other) => return Err(other),
            }
        }
        Err(LoadError::Library { tried })
    }

    /// Leaves the library loaded until the process ends.
    pub fn keep_loaded(self) {
        std::mem::forget(self.handle);
    }

    /// The name under which it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A symbol's address; null if there is none.
    pub fn address(&self, symbol: &CStr) -> *const c_void {
        // SAFETY: the handle is that of an open library, the name ends where it should.
        unsafe { libc::dlsym(self.handle.0, symbol.as_ptr()) }
    }
}

/// Where a library of these names is for the running program: near it, or else where the system
/// looks for the first name.
pub fn near_program(names: &[&str]) -> PathBuf {
    let near = folders_near_program();
    let mut places = near
        .iter()
        .flat_map(|folder| names.iter().map(|name| folder.join(name)));
    let found = places.find(|path| path.exists());
    // The system's search takes a bare name.
    found.unwrap_or_else(|| names.first().map(PathBuf::from).unwrap_or_default())
}

/// Where the running program's installation may keep libraries: beside it, in `lib` beside its folder,
/// and in the folders there that Debian has for an architecture each.
pub fn folders_near_program() -> Vec<PathBuf> {
    let program = std::env::current_exe().unwrap_or_default();
    let folder = program.parent().unwrap_or(Path::new(""));
    let lib = folder.parent().unwrap_or(folder).join("lib");
    let entries = std::fs::read_dir(&lib).into_iter().flatten().flatten();
    let mut architectures: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().contains("-linux-"))
        .map(|entry| entry.path())
        .collect();
    architectures.sort();
    [vec![folder.to_owned(), lib], architectures].concat()
}

fn reason(error: &libloading::Error) -> String {
    let inner = std::error::Error::source(error);
    inner.map_or_else(|| error.to_string(), ToString::to_string)
}

/// An address as a function pointer; `None` if it is null.
///
/// # Safety
/// `F` is a function pointer type, and that of the function at `address`, if there is one.
pub unsafe fn function<F: Copy>(address: *const c_void) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
    if address.is_null() {
        return None;
    }
    // SAFETY: the sizes agree, the address is not null, and the caller promises the type.
    Some(unsafe { std::mem::transmute_copy::<*const c_void, F>(&address) })
}

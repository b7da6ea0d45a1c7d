//! Dynamic libraries: opening, typed lists of symbols, and driver callbacks.
//!
//! Owns every `dlopen` and the guard of driver callbacks. May use `libloading`. Must never know
//! which library it opens. A missing library or symbol is an `Err`.

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

/// The handle of `dlopen`. Symbols are looked up without `libloading`, whose lookup takes 1.5 times
/// as long: every process resolves a driver's hundred symbols.
struct Handle(*mut c_void);

// SAFETY: POSIX lets any thread use a handle of `dlopen`.
unsafe impl Send for Handle {}
// SAFETY: POSIX lets threads use a handle of `dlopen` concurrently.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is open, since `Library::open` got it from `dlopen`, and it is not
        // used after.
        drop(unsafe { unix::Library::from_raw(self.0) });
    }
}

/// The symbols that a library's own references prefer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Binding {
    /// Symbols resolve as the dynamic linker does by default.
    #[default]
    Usual,
    /// `RTLD_DEEPBIND`: the library prefers its own definitions.
    Deep,
}

/// The library or symbol that could not be loaded.
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
        // SAFETY: loading runs the library's initialisers. The caller guarantees that those of the
        // named library are sound.
        let opened = unsafe { unix::Library::open(Some(name), flags) };
        let name = name.to_string_lossy().into_owned();
        match opened {
            Ok(opened) => Ok(Library {
                handle: Handle(opened.into_raw()),
                name,
            }),
            Err(error) => {
                let reason = reason(&error, &name);
                let tried = vec![(name, reason)];
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

    /// Keeps the library loaded until the process ends.
    pub fn keep_loaded(self) {
        std::mem::forget(self.handle);
    }

    /// The name or path that opened the library.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address of a symbol; null if the library lacks it.
    pub fn address(&self, symbol: &CStr) -> *const c_void {
        // SAFETY: the handle is open while `self` lives, and `symbol` is a C string.
        unsafe { libc::dlsym(self.handle.0, symbol.as_ptr()) }
    }
}

/// The path of a library for the running program: in a folder near it, or else the first name for
/// the system's search.
pub fn near_program(names: &[&str]) -> PathBuf {
    let near = folders_near_program();
    let mut paths = near
        .iter()
        .flat_map(|folder| names.iter().map(|name| folder.join(name)));
    let found = paths.find(|path| path.exists());
    // The system searches for a bare name only.
    found.unwrap_or_else(|| names.first().map(PathBuf::from).unwrap_or_default())
}

/// Folders of the running program's installation that may have libraries: its own, `lib` beside it,
/// and the folders of architectures in `lib`, as Debian has them.
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

/// The linker's reason, without the name of the library at its start.
fn reason(error: &libloading::Error, name: &str) -> String {
    let inner = std::error::Error::source(error);
    let text = inner.map_or_else(|| error.to_string(), ToString::to_string);
    let rest = text.strip_prefix(name);
    let rest = rest.and_then(|rest| rest.strip_prefix(": "));
    rest.map_or_else(|| text.clone(), str::to_owned)
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
    // SAFETY: not null, and the caller guarantees that `F` is the function's type.
    Some(unsafe { std::mem::transmute_copy::<*const c_void, F>(&address) })
}

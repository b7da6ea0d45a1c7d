//! Code, in the forms of a program's binary:
//!
//! * a **table**, `{const char *name; void *function}` up to a null function. DPC++ compiles such tables
//!   into its host programs. Only the table's address is used; its length is ignored. Each function lies in
//!   executable memory, and the null one in the section, or else the mapping, in which the table begins.
//! * a **shared object**, as its bytes, or as the path of a file with them. Each exported function is a
//!   kernel, each exported variable a global variable. `ur_num_args_KERNEL` is the number of the kernel's arguments.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ur::abi::*;
use ur::dl::{Binding, Library, function};
use ur::object::{Error, Result};

use super::elf::{self, Symbol, SymbolKind};
use super::memory::{self, Surroundings};
use super::metadata;
use crate::exec::Function;

/// The name of the variable that holds a kernel's number of arguments, before the kernel's name.
const ARG_COUNT: &[u8] = b"ur_num_args_";

/// Loaded code.
pub enum Image {
    Table(Table),
    Shared(Shared),
}

pub struct Table {
    kernels: Vec<(CString, Function)>,
    /// The table's entries, without the null function.
    entries: Vec<[usize; 2]>,
}

pub struct Shared {
    library: Library,
    symbols: Vec<Symbol>,
    /// The binary that the program was made of: the bytes, or the path.
    binary: Vec<u8>,
    /// Dropped after the library.
    _file: Option<Backing>,
}

impl Image {
    /// Loads a binary.
    ///
    /// # Safety
    /// `binary` points to `bytes` bytes, or to a table of kernels whose names and functions outlive the
    /// image. Every exported function of a shared object that is launched is a kernel.
    pub unsafe fn load(binary: *const u8, bytes: usize) -> Result<Self> {
        if binary.is_null() {
            return Err(broken("a null one"));
        }
        let address = binary.expose_provenance();
        let mut first = [0; elf::IDENT.len()];
        let length = bytes.min(first.len());
        memory::read(address, &mut first[..length])
            .ok_or_else(|| broken("one that cannot be read"))?;
        if first == elf::IDENT {
            let contents = memory::bytes(address, bytes)
                .ok_or_else(|| broken("a shared object that ends before its length"))?;
            return Shared::from_bytes(contents).map(Image::Shared);
        }
        if first[0] == b'/'
            && let Some(path) = existing_path(address, bytes)
        {
            return Shared::from_path(&path).map(Image::Shared);
        }
        Table::read(address).map(Image::Table)
    }

    pub fn function(&self, name: &CStr) -> Option<Function> {
        match self {
            Image::Table(table) => table
                .kernels
                .iter()
                .find(|(own, _)| own.as_c_str() == name)
                .map(|&(_, code)| code),
            Image::Shared(shared) => {
                shared.symbol(name, SymbolKind::Function)?;
                // SAFETY: the caller of `load` promises that a launched function is a kernel.
                unsafe { function(shared.library.address(name)) }
            }
        }
    }

    /// Address and size in bytes of a global variable.
    pub fn global(&self, name: &CStr) -> Option<(usize, usize)> {
        let Image::Shared(shared) = self else {
            return None;
        };
        let symbol = shared.symbol(name, SymbolKind::Variable)?;
        let address = shared.library.address(name).expose_provenance();
        (address != 0).then_some((address, symbol.bytes))
    }

    /// The number of arguments that a kernel takes, if a shared object says it in a variable `ur_num_args_KERNEL` of
    /// 32 or 64 bits.
    pub fn arg_count(&self, kernel: &CStr) -> Result<Option<u32>> {
        let name = [ARG_COUNT, kernel.to_bytes()].concat();
        let variable = CString::new(name).ok().and_then(|name| self.global(&name));
        let Some((address, bytes)) = variable else {
            return Ok(None);
        };
        let stored = memory::bytes(address, bytes);
        let count = stored.and_then(|stored| metadata::count(&stored));
        let wrong = || broken("a number of arguments that is none");
        count.map(Some).ok_or_else(wrong)
    }

    pub fn kernel_names(&self) -> Vec<&CStr> {
        match self {
            Image::Table(table) => table
                .kernels
                .iter()
                .map(|(name, _)| name.as_c_str())
                .collect(),
            Image::Shared(shared) => {
                let functions = shared
                    .symbols
                    .iter()
                    .filter(|one| one.kind == SymbolKind::Function);
                functions.map(|one| one.name.as_c_str()).collect()
            }
        }
    }

    /// A binary that another program of this process can be made of.
    pub fn binary(&self) -> Vec<u8> {
        match self {
            Image::Table(table) => {
                let words = table.entries.iter().flatten().copied().chain([0, 0]);
                words.flat_map(usize::to_ne_bytes).collect()
            }
            Image::Shared(shared) => shared.binary.clone(),
        }
    }

    pub fn is_table(&self) -> bool {
        matches!(self, Image::Table(_))
    }
}

impl Table {
    /// Reads a table at an address that may be wrong, up to its end. The end lies within the section or the
    /// mapping that holds the table.
    fn read(address: usize) -> Result<Self> {
        let around = Surroundings::of(address);
        let mut table = Self {
            kernels: Vec::new(),
            entries: Vec::new(),
        };
        let mut next = address;
        loop {
            let mut entry = [0; 2 * size_of::<usize>()];
            let end = next
                .checked_add(entry.len())
                .filter(|end| *end <= around.end())
                .ok_or_else(|| broken("a table without its end"))?;
            memory::read(next, &mut entry).ok_or_else(|| broken("a table that cannot be read"))?;
            let (name, code) = entry.split_at(size_of::<usize>());
            let entry = [word(name), word(code)];
            let code = std::ptr::with_exposed_provenance(entry[1]);
            // SAFETY: the caller of `load` promises that a table's functions are kernels.
            let Some(code) = (unsafe { function::<Function>(code) }) else {
                return Ok(table);
            };
            if !around.is_code(entry[1]) {
                return Err(broken("a kernel whose function is no code"));
            }
            let name = memory::text(entry[0]).ok_or_else(|| broken("a kernel without a name"))?;
            table.kernels.push((name, code));
            table.entries.push(entry);
            next = end;
        }
    }
}

impl Shared {
    fn from_path(path: &CStr) -> Result<Self> {
        let name = OsStr::from_bytes(path.to_bytes());
        let contents = std::fs::read(name)
            .map_err(|error| broken(&format!("{}: {error}", path.to_string_lossy())))?;
        let symbols = elf::exports(&contents)
            .map_err(|reason| broken(&format!("{}: {reason}", path.to_string_lossy())))?;
        Ok(Self {
            library: open(name)?,
            symbols,
            binary: path.to_bytes_with_nul().to_vec(),
            _file: None,
        })
    }

    fn from_bytes(contents: Vec<u8>) -> Result<Self> {
        let symbols = elf::exports(&contents).map_err(broken)?;
        let mut file = memory::new_file(c"ur-native-cpu-program").ok_or_else(|| {
            crate::adapter::system_error(UR_RESULT_ERROR_OUT_OF_RESOURCES, "memfd_create")
        })?;
        if file.write_all(&contents).is_err() {
            return Err(crate::adapter::system_error(
                UR_RESULT_ERROR_OUT_OF_HOST_MEMORY,
                "storing a program",
            ));
        }
        let file = Backing(ManuallyDrop::new(file));
        let library = open(OsStr::from_bytes(file.name().to_bytes()))?;
        Ok(Self {
            library,
            symbols,
            binary: contents,
            _file: Some(file),
        })
    }

    fn symbol(&self, name: &CStr, kind: SymbolKind) -> Option<&Symbol> {
        self.symbols
            .iter()
            .find(|one| one.kind == kind && one.name.as_c_str() == name)
    }
}

fn open(name: &OsStr) -> Result<Library> {
    Library::open(name, Binding::Usual).map_err(|error| broken(&error.to_string()))
}

fn broken(reason: &str) -> Error {
    log::warn!("program binary: {reason}");
    Error::native(UR_RESULT_ERROR_INVALID_NATIVE_BINARY, 0, reason)
}

/// The path of a file at an address: up to a NUL, or to its length in bytes.
fn existing_path(address: usize, bytes: usize) -> Option<CString> {
    if bytes > libc::PATH_MAX as usize {
        return None;
    }
    let mut path = memory::bytes(address, bytes)?;
    path.truncate(path.iter().position(|&byte| byte == 0).unwrap_or(bytes));
    let exists = Path::new(OsStr::from_bytes(&path)).is_file();
    exists.then(|| CString::new(path).ok()).flatten()
}

/// The file behind a library's name. Its descriptor stays open while the linker knows the name. The
/// linker would take another file with the same descriptor for the same library.
struct Backing(ManuallyDrop<File>);

impl Backing {
    fn name(&self) -> CString {
        CString::new(format!("/proc/self/fd/{}", self.0.as_raw_fd())).unwrap_or_default()
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        // SAFETY: `RTLD_NOLOAD` only asks whether a library of that name is loaded.
        let left =
            unsafe { libc::dlopen(self.name().as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if left.is_null() {
            // SAFETY: the file is dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        } else {
            // A library that cannot be unloaded keeps its file.
            // SAFETY: the handle was just opened.
            unsafe { libc::dlclose(left) };
        }
    }
}

fn word(bytes: &[u8]) -> usize {
    bytes.try_into().map_or(0, usize::from_ne_bytes)
}

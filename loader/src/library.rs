//! Opens an adapter library, checks it and reads its tables.
//!
//! Owns the rules by which a library is refused. It may use `dl` and `abi`. It must never know what
//! an adapter is called or where its file was found. A refused library is an `Err`, never fatal.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::mem::offset_of;
use std::path::Path;

use ur::abi::*;
use ur::dl::{self, Binding, Library, LoadError};

/// A symbol that only adapters of the current table layout export.
///
/// Adapters of 2026.1 report version 0.12 too, but would write past our tables. This symbol tells
/// them apart before any call.
const LAYOUT_MARK: &CStr = c"urGetEventExpProcAddrTable";

type ProcAddrTable = unsafe extern "C" fn(ur_api_version_t, *mut c_void) -> ur_result_t;

/// One part of `ur_dditable_t` and the function that fills it.
struct Part {
    symbol: &'static CStr,
    offset: usize,
    size: usize,
}

macro_rules! parts {
    ($($name:ident)*) => {
        [$(Part {
            symbol: dl::symbol_name(concat!("urGet", stringify!($name), "ProcAddrTable\0")),
            offset: offset_of!(ur_dditable_t, $name),
            size: size_of_part(|table| &table.$name),
        }),*]
    };
}

const fn size_of_part<T>(_: fn(&ur_dditable_t) -> &T) -> usize {
    size_of::<T>()
}

const PARTS: [Part; 26] = parts! {
    Adapter Platform Context Event EventExp Program ProgramExp Kernel Queue QueueExp Sampler Mem
    PhysicalMem Enqueue EnqueueExp USM USMExp BindlessImagesExp CommandBufferExp GraphExp IPCExp
    MemoryExportExp UsmP2PExp VirtualMem Device DeviceExp
};

/// A part that `PARTS` lacks would stay null.
const _: () = {
    let (mut at, mut total) = (0, 0);
    while at < PARTS.len() {
        total += PARTS[at].size;
        at += 1;
    }
    assert!(total == size_of::<ur_dditable_t>());
};

/// An adapter library that passed all checks.
///
/// The library's code stays loaded for the life of the process. Threads and thread-local destructors may
/// still run in it when the loader is torn down.
pub struct AdapterLibrary {
    pub name: String,
    /// The tables that its `urGet*ProcAddrTable` functions filled.
    pub table: ur_dditable_t,
}

/// Why a library cannot be used as an adapter.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The library could not be opened; usual for adapters that are not installed.
    Missing(LoadError),
    /// A table function is missing: not an adapter, or one of another table layout.
    Layout { symbol: String },
    /// A table function failed; `UNSUPPORTED_VERSION` for an adapter of another version.
    Table { symbol: String, result: ur_result_t },
    /// The Adapter table has no `urAdapterGet`.
    NoAdapters,
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Missing(error) => error.fmt(out),
            Refusal::Layout { symbol } => {
                write!(
                    out,
                    "lacks `{symbol}`: no adapter, or one of another table layout"
                )
            }
            Refusal::Table { symbol, result } => write!(out, "`{symbol}` failed: {result:?}"),
            Refusal::NoAdapters => out.write_str("its Adapter table has no `urAdapterGet`"),
        }
    }
}

impl AdapterLibrary {
    /// Opens the library at `path` and reads its tables. `deep_bind` has the library prefer its own
    /// symbols.
    pub fn open(path: &Path, deep_bind: bool) -> Result<AdapterLibrary, Refusal> {
        let binding = if deep_bind {
            Binding::Deep
        } else {
            Binding::Usual
        };
        let library = Library::open(path, binding).map_err(Refusal::Missing)?;
        let table = read_tables(&library)?;
        let name = library.name().to_owned();
        library.keep_loaded();
        Ok(AdapterLibrary { name, table })
    }
}

fn read_tables(library: &Library) -> Result<ur_dditable_t, Refusal> {
    let shown = |symbol: &CStr| symbol.to_string_lossy().into_owned();
    if library.address(LAYOUT_MARK).is_null() {
        return Err(Refusal::Layout {
            symbol: shown(LAYOUT_MARK),
        });
    }
    let mut table = ur_dditable_t::default();
    for part in &PARTS {
        // SAFETY: `AdapterLibrary::open` treats the file as an adapter, whose symbol of this name
        // takes a version and a pointer to its table. Pointers to all tables are passed alike.
        let get = unsafe { dl::function::<ProcAddrTable>(library.address(part.symbol)) };
        let Some(get) = get else {
            return Err(Refusal::Layout {
                symbol: shown(part.symbol),
            });
        };
        // SAFETY: `Part::offset` comes from `offset_of!` on this type.
        let out = unsafe { (&raw mut table).byte_add(part.offset) };
        // SAFETY: `LAYOUT_MARK` shows the current layout, so that the adapter writes this part
        // only.
        let result = unsafe { get(UR_API_VERSION_CURRENT, out.cast()) };
        if result != UR_RESULT_SUCCESS {
            return Err(Refusal::Table {
                symbol: shown(part.symbol),
                result,
            });
        }
    }
    if table.Adapter.pfnGet.is_none() {
        return Err(Refusal::NoAdapters);
    }
    Ok(table)
}

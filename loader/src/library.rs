//! One adapter library: opened, judged, its tables read.
//!
//! Owns the rules by which a library is refused. It may use `dl` and `abi`; it must never know
//! what an adapter is called or where it came from. A refusal is a value and never fatal.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::mem::offset_of;
use std::path::Path;

use ur::abi::*;
use ur::dl::{self, Binding, Library, LoadError};

/// Only adapters of the present table layout have it. Those of 2026.1 call themselves 0.12 as well,
/// and would write past the tables that we give them: they are told apart before any call.
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

/// The parts are all there is: a forgotten one would stay null.
const _: () = {
    let (mut at, mut total) = (0, 0);
    while at < PARTS.len() {
        total += PARTS[at].size;
        at += 1;
    }
    assert!(total == size_of::<ur_dditable_t>());
};

/// An adapter library that passed. Its code stays loaded for the life of the process: threads and
/// thread-local destructors may still be inside it when the loader is torn down, and loading it
/// again costs nothing.
pub struct AdapterLibrary {
    pub name: String,
    /// Its own answer to every `urGet*ProcAddrTable`.
    pub table: ur_dditable_t,
}

/// Why a library is not an adapter that we can use.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It could not be opened; the usual case for adapters that are not installed.
    Missing(LoadError),
    /// It is no adapter, or one of another table layout.
    Layout { symbol: String },
    /// A table function failed; `UNSUPPORTED_VERSION` for an adapter of another version.
    Table { symbol: String, result: ur_result_t },
    /// It has no `urAdapterGet`.
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
        // SAFETY: a symbol of this name has this type in every adapter; all tables are passed by
        // pointer, so that one type stands for all.
        let get = unsafe { dl::function::<ProcAddrTable>(library.address(part.symbol)) };
        let Some(get) = get else {
            return Err(Refusal::Layout {
                symbol: shown(part.symbol),
            });
        };
        // SAFETY: the offset is that of this part, inside `table`.
        let out = unsafe { (&raw mut table).byte_add(part.offset) };
        // SAFETY: the library has the present layout, so that it writes this part and no more.
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

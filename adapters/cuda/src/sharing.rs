//! Memory and events that several processes use, exportable memory, and memory of the host's that copies
//! reach faster.
//!
//! A process gets a blob of bytes for an object and sends it to another process, which opens the object.
//!
//! | object | its blob | the opener gets |
//! |---|---|---|
//! | device memory of a pool, physical memory | names a service of the process that made it (`broker`) | a file descriptor for each page |
//! | a reusable event | has the driver's own handle | the driver's event |
//!
//! A context holds what it has given out and what it has opened, and ends both with itself.

mod blob;
mod broker;
mod event;
mod exportable;
mod memory;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use ur::abi::*;
use ur::object::env::Env;
use ur::object::{Object, Result, ensure};
use ur::stream::Context;
use ur::timeline::sync::Mutex;

pub use blob::Kind as BlobKind;
pub use event::{get as get_event, new as new_event, open as open_event, record as record_event};
pub use exportable::{
    alloc as alloc_exportable, export as export_descriptor, free as free_exportable,
};
pub use memory::{close_memory, get_memory, get_physical, open_memory, open_physical};

use crate::Cuda;
use crate::exec::{Gpu, Marker};
use exportable::Exportable;
use memory::Mapping;

type OfContext = Object<Context<Cuda>>;

/// Whether pools make their device memory such that other processes can open it.
pub fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| Env::process().flag("UR_CUDA_IPC", true))
}

/// What a context shares.
#[derive(Default)]
pub struct Shared {
    /// Blobs by their addresses.
    given: Mutex<BTreeMap<usize, Given>>,
    /// Opened memory by the address that the caller got.
    opened: Mutex<BTreeMap<usize, Mapping>>,
    /// Exportable memory by its address.
    exportable: Mutex<BTreeMap<usize, Exportable>>,
    /// Memory of the host's that was imported and is registered.
    imports: Mutex<BTreeSet<usize>>,
    /// The device of the imports.
    importer: OnceLock<Arc<Gpu>>,
}

/// A blob of the caller's, with what it keeps alive.
struct Given {
    kind: BlobKind,
    #[allow(dead_code, reason = "kept for the caller, who has its address")]
    bytes: Box<[u8]>,
    #[allow(dead_code, reason = "kept until the blob is given back")]
    keeps: Keeps,
}

enum Keeps {
    /// Memory that the service answers for.
    Published(#[allow(dead_code, reason = "ends when dropped")] broker::Published),
    /// An event, which must not be destroyed while others use it.
    Event(#[allow(dead_code, reason = "kept alive")] Marker),
}

impl Shared {
    /// Keeps a blob. Returns its address and its size in bytes.
    fn give(&self, kind: BlobKind, bytes: Box<[u8]>, keeps: Keeps) -> (*mut c_void, usize) {
        let (at, size) = (bytes.as_ptr().cast_mut(), bytes.len());
        let given = Given { kind, bytes, keeps };
        self.given.lock().insert(at.addr(), given);
        (at.cast(), size)
    }

    /// Registers memory of the host's, if the driver accepts it.
    pub fn import_host(&self, gpu: &Arc<Gpu>, addr: usize, bytes: usize) {
        let gpu = self.importer.get_or_init(|| Arc::clone(gpu));
        if bytes > 0 && gpu.register(addr, bytes).unwrap_or(false) {
            self.imports.lock().insert(addr);
        }
    }

    pub fn release_host(&self, addr: usize) {
        let imported = self.imports.lock().remove(&addr);
        if let Some(gpu) = self.importer.get().filter(|_| imported) {
            gpu.unregister(addr);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for addr in std::mem::take(self.imports.get_mut()) {
            if let Some(gpu) = self.importer.get() {
                gpu.unregister(addr);
            }
        }
    }
}

/// Ends a blob of this context. `INVALID_VALUE` if the context has given out no such blob.
pub fn put(this: &OfContext, data: *const c_void, kind: BlobKind) -> Result<()> {
    let mut given = this.domain().state().shared.given.lock();
    let own = given.get(&data.addr()).is_some_and(|own| own.kind == kind);
    ensure(own, UR_RESULT_ERROR_INVALID_VALUE)?;
    let ended = given.remove(&data.addr());
    drop(given);
    // An export ends without the lock: it may wait for the service to end.
    drop(ended);
    Ok(())
}

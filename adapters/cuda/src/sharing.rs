//! Memory and events that several processes use (`ur::ipc`), exportable memory, and memory of the host's that copies
//! reach faster.
//!
//! | object | its blob | the opener gets |
//! |---|---|---|
//! | device memory of a pool, physical memory | names a service of the process that made it (`ur::ipc::broker`) | a file descriptor for each page |
//! | a reusable event | has the driver's own handle | the driver's event |
//!
//! A context holds what it has given out and what it has opened, and ends both with itself.

mod event;
mod exportable;
mod memory;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use ur::abi::UR_BACKEND_CUDA;
use ur::ipc::Given;
use ur::ipc::blob::{Kind, Subject};
use ur::object::env::Env;
use ur::object::{Object, Result};
use ur::stream::Context;
use ur::sync::Mutex;

pub use event::{get as get_event, new as new_event, open as open_event, record as record_event};
pub use exportable::{
    alloc as alloc_exportable, export as export_exportable, free as free_exportable,
};
pub use memory::{
    close_memory, close_physical, get_memory, get_physical, open_memory, open_physical,
};

use crate::Cuda;
use crate::exec::Gpu;
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
    pub given: Given,
    /// Opened memory by the address that the caller got.
    opened: Mutex<BTreeMap<usize, Mapping>>,
    /// Exportable memory by its address.
    exportable: Mutex<BTreeMap<usize, Exportable>>,
    /// Memory of the host's that was imported and is registered.
    imports: Mutex<BTreeSet<usize>>,
    /// The device of the imports.
    importer: OnceLock<Arc<Gpu>>,
}

/// Blobs of this backend's objects.
pub const fn kind(subject: Subject) -> Kind {
    let backend = UR_BACKEND_CUDA;
    Kind { backend, subject }
}

/// Ends what the caller was given for other processes.
pub fn put(this: &OfContext, data: *const c_void, subject: Subject) -> Result<()> {
    let given = &this.domain().state().shared.given;
    given.put(data, kind(subject))
}

impl Shared {
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

//! Memory and events that several processes use (`ur::ipc`), and exportable memory.
//!
//! The driver's handle of an object for other processes holds a file descriptor that is valid in its own process. So a
//! blob names a service of that process, which sends the descriptor, and the opener makes a handle of it.
//!
//! | object | crosses as |
//! |---|---|
//! | device memory of a pool | the descriptor of the native allocation, and the place in it |
//! | physical memory | the descriptor of its block |
//! | a reusable event | the descriptors of a native pool and of a page that says which event is current (`exec::Ring`) |

mod event;
mod exportable;
mod memory;

use std::collections::BTreeMap;
use std::ffi::c_void;

use ur::abi::{UR_BACKEND_LEVEL_ZERO, UR_RESULT_ERROR_UNSUPPORTED_FEATURE};
use ur::ipc::Given;
use ur::ipc::blob::{Kind, Subject};
use ur::object::{Object, Result, ensure};
use ur::stream::Context;
use ur::sync::{Mutex, rank};

pub use event::{get as get_event, new as new_event, open as open_event, record as record_event};
pub use exportable::{
    alloc as alloc_exportable, export as export_exportable, free as free_exportable,
};
pub use memory::{
    close_memory, close_physical, get_memory, get_physical, open_memory, open_physical,
};

use crate::LevelZero;
use crate::lz::*;
use exportable::Exportable;
use memory::OpenedMemory;

type OfContext = Object<Context<LevelZero>>;

/// What a context shares.
#[derive(Default)]
pub struct Shared {
    pub given: Given,
    /// Opened memory by the address that the caller got.
    opened: Mutex<BTreeMap<usize, OpenedMemory>, { rank::LEAF }>,
    /// Exportable memory by its address.
    exportable: Mutex<BTreeMap<usize, Exportable>, { rank::LEAF }>,
}

/// Blobs of this backend's objects.
pub const fn kind(subject: Subject) -> Kind {
    let backend = UR_BACKEND_LEVEL_ZERO;
    Kind { backend, subject }
}

/// `UNSUPPORTED_FEATURE` unless processes can share such objects of every device of the context.
fn check_able(this: &OfContext, subject: Subject) -> Result<()> {
    for device in this.devices() {
        let able = match subject {
            Subject::Memory => device.shares(ZE_IPC_PROPERTY_FLAG_MEMORY),
            Subject::Physical => device.physical_descriptor()?.is_some(),
            Subject::Event => device.shares(ZE_IPC_PROPERTY_FLAG_EVENT_POOL),
        };
        ensure(able, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    }
    Ok(())
}

/// Ends what the caller was given for other processes.
pub fn put(this: &OfContext, data: *const c_void, subject: Subject) -> Result<()> {
    check_able(this, subject)?;
    shared(this).given.put(data, kind(subject))
}

fn shared(this: &OfContext) -> &Shared {
    &this.domain().state().shared
}

//! Memory and semaphores of other interfaces, and linear memory with padded rows.
//!
//! | module | owns |
//! |---|---|
//! | `external` | imported memory, and its mappings |
//! | `semaphore` | imported semaphores |
//! | `pitched` | linear memory with padded rows |
//!
//! A context knows the mappings that it gave out. What the caller has left ends with the context.

mod external;
mod pitched;
mod semaphore;

use std::collections::BTreeMap;

use ur::abi::*;
use ur::object::{Object, Result, ensure};
use ur::stream::Context;
use ur::timeline::rank;
use ur::timeline::sync::Mutex;

pub use external::{ExternalMem, exports, free_linear, imports, map_linear};
pub use pitched::alloc as alloc_pitched;
pub use semaphore::{ExternalSemaphore, signal, wait};

use crate::LevelZero;
use crate::device::Device;
use external::LinearMap;

type OfContext = Object<Context<LevelZero>>;

/// What a context has given out.
#[derive(Default)]
pub struct Bindless {
    /// Mappings of imported memory by their addresses.
    linear: Mutex<BTreeMap<usize, LinearMap>, { rank::LEAF }>,
}

fn bindless(this: &OfContext) -> &Bindless {
    &this.domain().state().bindless
}

/// `INVALID_DEVICE` unless an object of one device is used for the same device.
fn check_home(own: &Device, device: &Device) -> Result<()> {
    ensure(own.raw() == device.raw(), UR_RESULT_ERROR_INVALID_DEVICE)
}

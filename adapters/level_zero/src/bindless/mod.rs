//! Bindless images: image memory, the handles that kernels take, copies, linear memory with padded rows, and memory and
//! semaphores of other interfaces.
//!
//! | module | owns |
//! |---|---|
//! | `memory` | image memory |
//! | `limits` | the images that a device supports |
//! | `handle` | handles of sampled and unsampled images |
//! | `sampler` | samplers as the driver describes them |
//! | `copy` | copies between linear and image memory |
//! | `external` | imported memory, and its mappings |
//! | `semaphore` | imported semaphores |
//! | `pitched` | linear memory with padded rows |
//!
//! A handle of image memory is the driver's image, and a handle of an image the number that the driver has for one of its
//! own, a view. A context knows the numbers and the mappings that it gave out, so that any other is refused. What the
//! caller has left ends with the context. An image handle keeps its memory, and image memory its import. What the caller ends lives until the commands enqueued
//! so far have ended.

mod copy;
mod external;
mod handle;
mod limits;
mod memory;
mod pitched;
mod sampler;
mod semaphore;

use std::collections::BTreeMap;
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Object, Result, ensure};
use ur::stream::Context;
use ur::sync::{Mutex, rank};

pub use copy::work as copy;
pub use external::{ExternalMem, can_import, can_import_kind, exports, free_linear, map_linear};
pub use handle::{create_sampled, create_unsampled, destroy as destroy_image};
pub use limits::has_image;
pub use memory::{allocate, free, free_mipmap, info, level, map_array};
pub use pitched::alloc as alloc_pitched;
pub use semaphore::{ExternalSemaphore, signal, wait};

use crate::LevelZero;
use crate::device::Device;
use crate::lz::BindlessImages;
use external::LinearMap;
use handle::{HandleKey, ImageHandle};
use memory::ImageMemory;

type OfContext = Object<Context<LevelZero>>;

/// What a context has given out.
#[derive(Default)]
pub struct Bindless {
    handles: Mutex<BTreeMap<HandleKey, ImageHandle>, { rank::LEAF }>,
    /// Image memory by its handle.
    memory: Mutex<BTreeMap<usize, Arc<ImageMemory>>, { rank::LEAF }>,
    /// Mappings of imported memory by their addresses.
    linear: Mutex<BTreeMap<usize, LinearMap>, { rank::LEAF }>,
}

fn bindless(this: &OfContext) -> &Bindless {
    &this.domain().state().bindless
}

/// The functions of a device of the context. `INVALID_DEVICE` for any other device, `UNSUPPORTED_FEATURE` for one without
/// bindless images.
fn able(this: &OfContext, device: &Object<Device>) -> Result<BindlessImages> {
    this.check_device(device)?;
    device.bindless().ok_or(Error::unsupported())
}

/// `INVALID_DEVICE` unless an object of one device is used for the same device.
fn check_home(own: &Device, device: &Device) -> Result<()> {
    ensure(own.raw() == device.raw(), UR_RESULT_ERROR_INVALID_DEVICE)
}

//! Bindless images: image memory, the handles that kernels take, copies, and memory and semaphores of other
//! interfaces.
//!
//! | module | owns |
//! |---|---|
//! | `memory` | image memory: arrays, mipmapped arrays and their levels |
//! | `limits` | the sizes that a device supports |
//! | `handle` | handles of sampled and unsampled images |
//! | `sampler` | samplers as the driver describes them |
//! | `copy` | copies between linear and image memory |
//! | `pitched` | linear memory with padded rows |
//! | `external` | imported memory, and its mappings |
//! | `semaphore` | imported semaphores |
//!
//! A handle of image memory is the driver's array, and a handle of an image is the driver's texture or surface: the
//! caller passes the numbers on. A context knows the ones that it gave out, so that any other number is refused. What
//! the caller has left ends with the context.
//!
//! An image handle keeps its memory, and a mapping its imported memory, so that the driver's objects end in their
//! order whatever the order of the caller's calls. What the caller ends lives until the commands enqueued so far have
//! ended.

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
use ur::object::{Object, Result, ensure};
use ur::stream::Context;
use ur::sync::Mutex;

pub use copy::work as copy;
pub use external::{ExternalMem, free_linear, map_array, map_linear};
pub use handle::{create_sampled, create_unsampled, destroy as destroy_image};
pub use limits::has_image;
pub use memory::{allocate, free, free_mipmap, info, level};
pub use pitched::alloc as alloc_pitched;
pub use sampler::MAX_ANISOTROPY;
pub use semaphore::{ExternalSemaphore, signal, wait};

use crate::Cuda;
use crate::device::Device;
use crate::exec::Gpu;
use external::LinearMap;
use handle::{HandleKey, ImageHandle};
use memory::ImageMemory;

type OfContext = Object<Context<Cuda>>;

/// What a context has given out.
#[derive(Default)]
pub struct Bindless {
    /// Image memory by its handle.
    memory: Mutex<BTreeMap<usize, Arc<ImageMemory>>>,
    handles: Mutex<BTreeMap<HandleKey, ImageHandle>>,
    /// Linear mappings of imported memory by their addresses.
    linear: Mutex<BTreeMap<usize, LinearMap>>,
}

fn bindless(this: &OfContext) -> &Bindless {
    &this.domain().state().bindless
}

/// The primary context of a device of the context. `INVALID_DEVICE` for any other device.
fn gpu(this: &OfContext, device: &Object<Device>) -> Result<Arc<Gpu>> {
    this.check_device(device)?;
    device.gpu()
}

/// `INVALID_DEVICE` unless an object of one device is used for the same device.
fn check_home(own: &Arc<Gpu>, gpu: &Arc<Gpu>) -> Result<()> {
    ensure(Arc::ptr_eq(own, gpu), UR_RESULT_ERROR_INVALID_DEVICE)
}

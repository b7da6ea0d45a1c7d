//! The skeleton of an adapter: queues and memory in host memory, without kernels. A new adapter begins as
//! a copy of this folder.
//!
//! Each module's head says what the copy puts there:
//!
//! | module | owns |
//! |---|---|
//! | `adapter` | discovery, and the life of the engine |
//! | `platform`, `device` | the properties and the devices of the backend |
//! | `driver` | the bridge from the stream engine to lanes and memory |
//! | `lane` | in-order execution |
//!
//! Queues, events, pools, command buffers and graphs are the engine's (`ur::stream`). The `No...` types
//! below are objects that the backend lacks: their functions return `UNSUPPORTED_FEATURE`. To support one,
//! replace its type; `adapters/native_cpu` has programs, kernels and buffers. The copy also sets `BACKEND`.

mod adapter;
mod device;
mod driver;
mod lane;
mod platform;

use std::sync::Arc;
use ur::abi::{UR_BACKEND_UNKNOWN, ur_backend_t};
use ur::hal;
use ur::object::{Object, Result};

/// The backend.
pub struct Skeleton;

impl hal::Backend for Skeleton {
    type Adapter = adapter::Adapter;
    type Platform = platform::Platform;
    type Device = device::Device;
    type Program = hal::NoProgram;
    type Kernel = hal::NoKernel;
    type Sampler = hal::NoSampler;
    type Mem = hal::NoMem;
    type PhysicalMem = hal::NoPhysicalMem;
    type ExternalMem = hal::NoExternalMem;
    type ExternalSemaphore = hal::NoExternalSemaphore;
    ur::engine_types!();
    const BACKEND: ur_backend_t = UR_BACKEND_UNKNOWN;

    fn adapter() -> Result<Option<Arc<Object<Self::Adapter>>>> {
        ur::object::log::init("skeleton");
        Ok(Some(Arc::clone(adapter::adapter())))
    }
}

ur::export!(Skeleton);

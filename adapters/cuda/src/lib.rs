//! The CUDA adapter: NVIDIA's devices, through the driver's own library as found at run time.
//!
//! Owns the backend: what there is (`adapter`, `platform`, `device`), programs and kernels (`program`,
//! `kernel`), buffers (`mem`), address ranges and the memory behind them (`virtual_mem`), streams and
//! events as the stream engine sees them (`exec`), those of others (`interop`), and the bridge from
//! the engine to all of these (`driver`, `hooks`). `cu` is the driver itself. Uses the shared layers
//! in `ur`. Must never know a loader or another adapter.
//!
//! The seam for what HIP will share is `cu`: all else names the driver's calls through its list of
//! symbols (`cu::Api`), its types and its one table of errors. `src/gpu` will hold `exec`, `driver`,
//! `mem`, `virtual_mem` and `interop` over a vendor trait in that module's place.
//!
//! No call leaves another context current on the caller's thread than it found there: see
//! [`cu::Entered`].

mod adapter;
mod cu;
mod device;
mod driver;
mod exec;
mod hooks;
mod interop;
mod kernel;
mod mem;
mod platform;
mod program;
#[cfg(test)]
mod tests;
mod virtual_mem;

use std::sync::Arc;
use ur::abi::{UR_BACKEND_CUDA, ur_backend_t};
use ur::hal;
use ur::object::{Object, Result};
use ur::stream;

/// The backend.
pub struct Cuda;

impl hal::Backend for Cuda {
    type Adapter = adapter::Adapter;
    type Platform = platform::Platform;
    type Device = device::Device;
    type Context = stream::Context<Self>;
    type Event = stream::Event<Self>;
    type Program = program::Program;
    type Kernel = kernel::Kernel;
    type Queue = stream::Queue<Self>;
    type Sampler = hal::NoSampler;
    type Mem = mem::Mem;
    type PhysicalMem = virtual_mem::PhysicalMem;
    type UsmPool = stream::UsmPool<Self>;
    type ExternalMem = hal::NoExternalMem;
    type ExternalSemaphore = hal::NoExternalSemaphore;
    type CommandBuffer = stream::CommandBuffer<Self>;
    type CommandBufferCommand = stream::RecordedCommand<Self>;
    type Graph = stream::Graph<Self>;
    type ExecutableGraph = stream::ExecutableGraph<Self>;
    const BACKEND: ur_backend_t = UR_BACKEND_CUDA;

    fn adapter() -> Result<Option<Arc<Object<Self::Adapter>>>> {
        ur::object::log::init("cuda");
        Ok(adapter::roots().map(|roots| Arc::clone(&roots.adapter)))
    }
}

ur::export!(Cuda);

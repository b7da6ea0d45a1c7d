//! The CUDA adapter: NVIDIA's devices, by the driver's library that is found at run time.
//!
//! Owns discovery (`adapter`, `platform`, `device`), programs and kernels (`program`, `kernel`), buffers and
//! images (`mem`), samplers (`sampler`), images of the driver (`image`), bindless images
//! (`bindless`), and address ranges and physical memory (`virtual_mem`). It also owns lanes and events (`exec`), native
//! streams and events (`interop`), memory and events of several processes (`sharing`), and the bridge from the stream engine (`driver`, `hooks`). `cu` has the driver's
//! functions. Uses the shared layers in `ur`. Must never know a loader or another adapter.
//!
//! HIP will share more than half of this adapter. Modules that name the driver through [`vendor`] alone are
//! ready to move to `src/gpu`, over a vendor trait in that module's place:
//!
//! | modules | where | why |
//! |---|---|---|
//! | `driver`, `hooks`, `mem`, `virtual_mem`, `interop` | ready | objects of the interface, resolved for `exec` |
//! | `exec::{gpu, lane, marker, semaphore_words, times}` | ready | handles, and calls with the same signature in HIP |
//! | `exec::{memory, pool, peers}` | next | descriptions of pages and pools have the same fields in HIP under other names |
//! | `exec::{work, remote, copies, boxes, fill, graph, mailbox}`, `image`, `bindless` | CUDA's | copy and node descriptions differ, kernels are PTX |
//! | `kernel`, `program` | CUDA's | parameter layouts, launch attributes, formats of programs |
//! | `adapter`, `platform`, `device`, `cu` | CUDA's | discovery, attributes, symbols, errors, the current context |
//!
//! `exec::lane` calls three of CUDA's modules, which the trait will ask of a vendor: `work::enqueue` for any
//! work, `kernel::Plain` for a plain launch, `MailboxFills` (on HIP none) and `fill` for small fills.
//!
//! Every call leaves the current context of the caller's thread as it was: see [`cu::Entered`].

mod adapter;
mod bindless;
mod cu;
mod device;
mod driver;
mod exec;
mod hooks;
mod image;
mod interop;
mod kernel;
mod mem;
mod platform;
mod program;
mod sampler;
mod sharing;
#[cfg(test)]
mod tests;
mod vendor;
mod virtual_mem;

use std::sync::Arc;
use ur::abi::{UR_BACKEND_CUDA, ur_backend_t};
use ur::hal;
use ur::object::{Object, Result};

/// The backend.
pub struct Cuda;

impl hal::Backend for Cuda {
    type Adapter = adapter::Adapter;
    type Platform = platform::Platform;
    type Device = device::Device;
    type Program = program::Program;
    type Kernel = kernel::Kernel;
    type Sampler = sampler::Sampler;
    type Mem = mem::Mem;
    type PhysicalMem = virtual_mem::PhysicalMem;
    type ExternalMem = bindless::ExternalMem;
    type ExternalSemaphore = bindless::ExternalSemaphore;
    ur::engine_types!();
    const BACKEND: ur_backend_t = UR_BACKEND_CUDA;

    fn adapter() -> Result<Option<Arc<Object<Self::Adapter>>>> {
        ur::object::log::init("cuda");
        Ok(adapter::roots().map(|roots| Arc::clone(&roots.adapter)))
    }
}

ur::export!(Cuda);

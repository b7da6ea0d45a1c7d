//! The Level Zero adapter: Intel's GPUs, by the loader's library that is found at run time.
//!
//! Owns discovery (`adapter`, `platform`, `device`), contexts (`context`), programs and kernels (`program`, `kernel`),
//! buffers and images (`mem`, `image`, `sampler`), and address ranges and physical memory (`virtual_mem`). It also owns
//! lanes, events and memory (`exec`), native lists and events (`interop`), and bindless images with memory and
//! semaphores of other interfaces (`bindless`). `sharing` has memory and events of several processes. `driver` and
//! `hooks` are the bridge from the stream engine, `settings` has the variables, `lz` the loader's functions. Uses the
//! shared layers in `ur`. Must never know a loader of Unified Runtime or another adapter.
//!
//! docs/src/reference/level-zero.md says what is there, and has facts of the drivers that were found by trying.

mod adapter;
mod bindless;
mod context;
mod device;
mod driver;
mod exec;
mod hooks;
mod image;
mod interop;
mod kernel;
mod lz;
mod mem;
mod platform;
mod program;
mod sampler;
mod settings;
mod sharing;
#[cfg(test)]
mod tests;
mod virtual_mem;

use std::sync::Arc;
use ur::abi::{UR_BACKEND_LEVEL_ZERO, ur_backend_t};
use ur::hal;
use ur::object::{Object, Result};

/// The backend.
pub struct LevelZero;

impl hal::Backend for LevelZero {
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
    const BACKEND: ur_backend_t = UR_BACKEND_LEVEL_ZERO;

    fn adapter() -> Result<Option<Arc<Object<Self::Adapter>>>> {
        ur::object::log::init("level_zero");
        Ok(adapter::roots().map(|roots| Arc::clone(&roots.adapter)))
    }
}

ur::export!(LevelZero);

//! The OpenCL adapter: devices of the installed OpenCL drivers.
//!
//! Owns discovery (`adapter`, `platform`, `device`), programs, kernels, buffers, images and samplers
//! (`program`, `kernel`, `mem`, `sampler`). It also owns lanes and recorded commands (`exec`, `record`,
//! `native_record`), host pipes (`pipe`), native queues and events (`interop`), and the bridge from the
//! stream engine (`driver`, `hooks`). `cl` has OpenCL's functions. Uses the shared layers in `ur`. Must
//! never know a loader or another adapter.

mod adapter;
mod cl;
mod device;
mod driver;
mod exec;
mod hooks;
mod interop;
mod kernel;
mod mem;
mod native_record;
mod pipe;
mod platform;
mod program;
mod record;
mod sampler;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use ur::abi::{UR_BACKEND_OPENCL, ur_backend_t};
use ur::hal;
use ur::object::{Object, Result};

/// The backend.
pub struct OpenCl;

impl hal::Backend for OpenCl {
    type Adapter = adapter::Adapter;
    type Platform = platform::Platform;
    type Device = device::Device;
    type Program = program::Program;
    type Kernel = kernel::Kernel;
    type Sampler = sampler::Sampler;
    type Mem = mem::Mem;
    type PhysicalMem = hal::NoPhysicalMem;
    type ExternalMem = hal::NoExternalMem;
    type ExternalSemaphore = hal::NoExternalSemaphore;
    ur::engine_types!();
    const BACKEND: ur_backend_t = UR_BACKEND_OPENCL;

    fn adapter() -> Result<Option<Arc<Object<Self::Adapter>>>> {
        ur::object::log::init("opencl");
        Ok(adapter::roots().map(|roots| Arc::clone(&roots.adapter)))
    }
}

ur::export!(OpenCl);

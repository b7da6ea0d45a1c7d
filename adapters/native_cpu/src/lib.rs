//! The native CPU adapter: kernels that were compiled into the program itself, or into a shared
//! object, run on the cores of this machine.
//!
//! Owns the backend: what there is (`adapter`, `platform`, `device`, `cpu`), programs in their two
//! forms and kernels (`program`, `kernel`), buffers and mapped memory (`mem`, `virtual_mem`), the
//! threads that run work (`exec`), and the bridge from the stream engine to them (`driver`). Uses
//! the shared layers in `ur`. Must never know a loader or another adapter.
//!
//! A kernel is a function `void(void *const *args, state *)` that is called once for each work-item.
//! Such a function cannot wait for its neighbours, so there is no barrier in it. A kernel that was
//! compiled to loop over its work-group itself has barriers, and is called once a group: the
//! program's metadata `kernel@whole_work_group` says which those are, or the environment for all
//! others:
//!
//! | variable | meaning |
//! |---|---|
//! | `SYCL_NATIVE_CPU_HOST_THREADS` | number of workers; as many as there are cores if unset |
//! | `UR_NATIVE_CPU_KERNEL_FORM` | `item` (as if unset) or `group`: how kernels are called |
//! | `UR_LOG_NATIVE_CPU` | logging |

mod adapter;
mod cpu;
mod device;
mod driver;
mod exec;
mod kernel;
mod mem;
mod pages;
mod platform;
mod program;
mod virtual_mem;

#[doc(hidden)]
pub mod readers;

use std::sync::Arc;
use ur::abi::{UR_BACKEND_NATIVE_CPU, ur_backend_t};
use ur::hal;
use ur::object::{Object, Result};
use ur::stream;

/// The backend.
pub struct Cpu;

impl hal::Backend for Cpu {
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
    const BACKEND: ur_backend_t = UR_BACKEND_NATIVE_CPU;

    fn adapter() -> Result<Option<Arc<Object<Self::Adapter>>>> {
        ur::object::log::init("native_cpu");
        Ok(Some(Arc::clone(&adapter::roots().adapter)))
    }
}

ur::export!(Cpu);

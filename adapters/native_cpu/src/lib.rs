//! The native CPU adapter: kernels that were compiled into the program itself, or into a shared
//! object, run on the cores of this machine.
//!
//! Owns discovery (`adapter`, `platform`, `device`, `cpu`), programs in their two forms and kernels
//! (`program`, `kernel`), and buffers, pages and mapped memory (`mem`, `pages`, `virtual_mem`). It also owns the
//! threads that run commands (`exec`), and the bridge from the stream engine to them (`driver`, `hooks`).
//! Uses the shared layers in `ur`. Must never know a loader or another adapter.
//!
//! A kernel is a function `void(void *const *args, state *)`. Mostly it is called once for each
//! work-item; then it cannot wait for its neighbours and has no barrier. A kernel that loops over its
//! work-group itself may have barriers and is called once for each group. The program's metadata
//! `kernel@whole_work_group` marks such kernels, and `kernel@num_args` tells how many arguments a kernel takes.
//! So does the variable `ur_num_args_KERNEL` of a shared object.
//! A variable sets the form of unmarked kernels:
//!
//! | variable | meaning |
//! |---|---|
//! | `SYCL_NATIVE_CPU_HOST_THREADS` | number of workers; the number of cores if unset |
//! | `UR_NATIVE_CPU_KERNEL_FORM` | `item` (as if unset) or `group`: how kernels are called |
//! | `UR_LOG_NATIVE_CPU` | logging |

mod adapter;
mod cpu;
mod device;
mod driver;
mod exec;
mod hooks;
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

/// The backend.
pub struct Cpu;

impl hal::Backend for Cpu {
    type Adapter = adapter::Adapter;
    type Platform = platform::Platform;
    type Device = device::Device;
    type Program = program::Program;
    type Kernel = kernel::Kernel;
    type Sampler = hal::NoSampler;
    type Mem = mem::Mem;
    type PhysicalMem = virtual_mem::PhysicalMem;
    type ExternalMem = hal::NoExternalMem;
    type ExternalSemaphore = hal::NoExternalSemaphore;
    ur::engine_types!();
    const BACKEND: ur_backend_t = UR_BACKEND_NATIVE_CPU;

    fn adapter() -> Result<Option<Arc<Object<Self::Adapter>>>> {
        ur::object::log::init("native_cpu");
        Ok(Some(Arc::clone(&adapter::roots().adapter)))
    }
}

ur::export!(Cpu);

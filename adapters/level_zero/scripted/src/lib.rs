//! A test aid: a Level Zero driver that executes commands on the host, and which fails where a test's script says so.
//!
//! Objects, lists and events are its own. Worker threads move the bytes (`worker`); kernels run on Intel's OpenCL
//! driver for CPUs where that is found (`cl`), else a launch does nothing. It detects leaks and dead handles
//! (`object`). Tests control it through `script`. It must never know its caller.
//!
//! The real loader opens it by `ZE_ENABLE_ALT_DRIVERS` and asks for tables (`tables`). Alone it stands in for
//! `libze_loader.so.1`: the functions of the interface are exports too.
//!
//! It has no changed kernels in recorded launches. No kernel reads or writes bindless images. All memory is coherent, a
//! list's commands run in the order given, and a kernel's groups one after another.
//!
//! | file | functions |
//! |---|---|
//! | `driver`, `device`, `context` | start, drivers, properties, contexts |
//! | `memory`, `pages` | allocations; virtual and physical memory |
//! | `host_memory` | imports of the host's memory |
//! | `external` | semaphores of other interfaces |
//! | `event` | pools, events of pools, counter-based events, timestamps |
//! | `graph` | captures of lists, and graphs |
//! | `list`, `append`, `mutate`, `queue` | command lists, what they hold, its changes, queues and fences |
//! | `image` | images and samplers, and that each is of one device |
//! | `module`, `kernel` | modules and their links, kernels, arguments |
//! | `system` | the system interface |

// Entry points take the arguments of the interface. The interface's manual documents them.
#![allow(clippy::missing_safety_doc, non_snake_case, clippy::too_many_arguments)]

#[macro_use]
mod entry;

mod append;
mod cl;
mod context;
mod device;
mod driver;
mod event;
mod external;
mod graph;
mod host_memory;
mod image;
mod kernel;
mod list;
mod memory;
mod module;
mod mutate;
mod object;
mod pages;
mod queue;
mod script;
mod spirv;
mod system;
mod tables;
mod worker;

pub use external::{
    scripted_external_memory, scripted_semaphore, scripted_semaphore_count, scripted_semaphore_set,
};
pub use script::Fault;
pub use scripted::{Answer, EACH};

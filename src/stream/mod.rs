//! The stream engine: queues, events, waits, contexts, USM and its pools, for any [`Driver`].
//!
//! Owns order: the lane of a command, its dependencies, the completion of events, the reuse of
//! memory. Uses `timeline` for the order of points, `sync` for locks, `pool` for memory, and a driver for the work
//! itself. Must never know a backend.
//!
//! The head of each folder says what it owns, may use and must never know. A folder uses only
//! folders above it in this list, and `cargo xtask tidy` refuses a loop:
//!
//! | folder | owns |
//! |---|---|
//! | `work` | the work of a command: launches, fill patterns, timestamps |
//! | `driver` | the trait of a backend, and tools to implement it with |
//! | `settings` | the environment's variables of pools, and the trace and log that they turn on |
//! | `engine` | completion: points, markers, and the threads that wait for them |
//! | `lane` | one in-order stream: submission, waits, markers, failures |
//! | `usm` | the state that outlives a context's handle, and pools below handles with their slabs and pages |
//! | `context` | contexts and pools, and synchronous allocation |
//! | `buffer` | mappings, copies of the host's memory, and copies on each device |
//! | `program` | programs with a module for each device |
//! | `event` | events |
//! | `recording` | checked commands, recordings, and command buffers |
//! | `queue` | queues, and all enqueued commands; graphs |
//! | `api` | the `hal` traits of all these, and the hooks of a backend |
//!
//! Locks are taken in the order of `sync::rank`.

mod api;
mod buffer;
mod context;
mod driver;
mod engine;
mod event;
mod lane;
mod program;
mod queue;
mod recording;
mod settings;
mod usm;
mod work;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use api::{Hooked, Hooks, Runtime, device_info};
pub use buffer::{BufferRange, Copies, EndedMapping, Home, HostCopy, Mappings, Use, Uses};
pub use context::Context;
pub use context::sharing::ExportedBlock;
pub use context::usm_pool::UsmPool;
pub use driver::deferred::{
    Deferred, DeferredEvent, HostPoint, Marker, NativeMarker, Signal, Stream,
};
pub use driver::host;
pub use driver::{
    Compiled, CompletionCallback, Devices, Driver, FAILED, Kind, MappedPointer, NativeLimits,
    NativePool, NativeRecord, Progress, QueueOptions, Step, in_user_function,
};
pub use engine::{Engine, EngineSlot};
pub use event::Event;
pub use program::{Built, Part, Parts};
pub use queue::Queue;

pub use queue::graph::{ExecutableGraph, Graph};
pub use recording::command_buffer::{CommandBuffer, RecordedCommand, UPDATES};
pub use usm::domain::Domain;
pub use usm::memory::UsmRange;
pub use work::call::HostFunction;
pub use work::image_copy::{ImageCopyEnd, ImageRegion, image_ends, image_regions, linear_image};
pub use work::launch::{LaunchAttributes, LaunchRequest, PlainLaunch};
pub use work::pattern::Pattern;
pub use work::{Payload, Pitched, TimestampSource, Timestamps, Work};

/// The types of a [`Backend`](crate::hal::Backend) that are the engine's.
#[macro_export]
macro_rules! engine_types {
    () => {
        type Context = $crate::stream::Context<Self>;
        type Event = $crate::stream::Event<Self>;
        type Queue = $crate::stream::Queue<Self>;
        type UsmPool = $crate::stream::UsmPool<Self>;
        type CommandBuffer = $crate::stream::CommandBuffer<Self>;
        type CommandBufferCommand = $crate::stream::RecordedCommand<Self>;
        type Graph = $crate::stream::Graph<Self>;
        type ExecutableGraph = $crate::stream::ExecutableGraph<Self>;
    };
}

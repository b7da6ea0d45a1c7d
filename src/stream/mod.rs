//! The stream engine: queues, events, waits, contexts, USM and its pools, for any [`Driver`].
//!
//! Owns order: which lane a command goes on, what it waits for, what an event stands for, when a
//! block of memory may be used again. Uses `timeline` for what happens before what, `pool` for
//! memory, and a driver for the work itself. Must never know a backend.
//!
//! Each folder says on top what it owns, may use and must never know. It uses those above it in this list, and
//! `cargo xtask tidy` refuses a loop:
//!
//! | folder | owns |
//! |---|---|
//! | `work` | what a lane is given: commands, launches, fill patterns, timestamps |
//! | `driver` | what a backend implements, and tools to implement it with |
//! | `settings` | the environment's variables of pools, and the trace and log that they turn on |
//! | `engine` | completion: which points there are, and who waits for them |
//! | `lane` | one in-order stream: submission, waits, markers, failures |
//! | `usm` | what outlives a context's handle, and pools behind handles with their slabs and pages |
//! | `context` | contexts and pools, and the memory that they allocate synchronously |
//! | `event` | events |
//! | `recording` | commands before they go anywhere, and command buffers |
//! | `queue` | queues, and what is enqueued; graphs |
//! | `api` | the `hal` traits of all these, and what a backend may add to them |
//!
//! Locks are taken in the order of `timeline::rank`.

mod api;
mod context;
mod driver;
mod engine;
mod event;
mod lane;
mod queue;
mod recording;
mod settings;
mod usm;
mod work;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use api::{Hooks, Runtime};
pub use context::Context;
pub use context::usm_pool::UsmPool;
pub use driver::deferred::{
    Deferred, DeferredEvent, HostPoint, Marker, NativeMarker, Signal, Stream,
};
pub use driver::host;
pub use driver::{
    Compiled, CompletionCallback, Devices, Driver, FAILED, Kind, MappedPointer, NativeLimits,
    NativePool, NativeRecord, Progress, Step,
};
pub use engine::Engine;
pub use event::Event;
pub use queue::Queue;
pub use queue::graph::{ExecutableGraph, Graph};
pub use queue::native_command::NativeCall;
pub use recording::command_buffer::{CommandBuffer, RecordedCommand, UPDATES};
pub use usm::domain::Domain;
pub use work::launch::{LaunchAttributes, LaunchRequest, PlainLaunch};
pub use work::pattern::Pattern;
pub use work::{Payload, Pitched, TimestampSource, Timestamps, Work};

//! The stream engine: queues, events, waits, contexts, USM and its pools, for any [`Driver`].
//!
//! Owns order: which lane a command goes on, what it waits for, what an event stands for, when a
//! block of memory may be used again. Uses `timeline` for what happens before what, `pool` for
//! memory, and a driver for the work itself. Must never know a backend.
//!
//! `driver` is what a backend implements, `work` what its lanes are given, `launch` what a launch tells it; `hooks` what it may add.
//! `deferred` keeps back what waits for the host, for backends whose streams should not.
//! `engine` is what one adapter shares, `domain` what one context does. `lane` submits, `out_of_order` chooses lanes, `reach`
//! says what an event covers; `queue`, `event`, `context`, `command_buffer` and `usm_pool` are the
//! handles, the `*_api` files their `hal` traits; `command` makes what is enqueued or recorded, `enqueue` goes without it,
//! `recording` keeps it, `reduction` leaves out order that other order implies, `capture` turns a queue's commands into a `graph`, `replay` submits it, `update` changes it, and `signal` is what the event of
//! a recorded command stands for; `alloc`, `usm`, `memory`, `rooms`, `pool_core`, `source` and `paged` are
//! USM, `native_pool` what of it a backend's own pools serve; `host` is what the host copies and fills itself; `threads` runs host tasks and callbacks, `native_command` what others give to a lane, `native_record` what they record, `loans` what their functions have meanwhile.
//!
//! Lock ranks, taken downwards only and at most one of each: a command buffer's; its native objects'; an out-of-order
//! queue's; a lane's; a pool's (under which nothing is called); and leaves, under which nothing else
//! is locked: the engine's places and domains, a domain's lanes and points, its pools and slabs,
//! gauges, address spaces, what is live of native pools, threads, a context's current pools, a recorded command's signal. What a pool knows of its native parts comes just before its gauges.

mod alloc;
mod capture;
mod command;
mod command_buffer;
mod command_buffer_api;
mod context;
mod context_api;
mod deferred;
mod domain;
mod driver;
mod engine;
mod enqueue;
mod event;
mod graph;
mod here;
mod hooks;
pub mod host;
mod host_task;
mod lane;
mod lanes;
mod launch;
mod loans;
mod memory;
mod native_command;
mod native_pool;
mod native_record;
mod out_of_order;
mod paged;
mod pattern;
mod pool_core;
mod pool_log;
mod pool_trace;
mod queue;
mod queue_api;
mod reach;
mod recording;
mod reduction;
mod replay;
mod rooms;
mod settings;
mod signal;
mod source;
mod threads;
mod transfer;
mod update;
mod usm;
mod usm_pool;
mod work;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use command_buffer::{CommandBuffer, RecordedCommand, UPDATES};
pub use context::Context;
pub use deferred::{Deferred, HostPoint, Marker, Promise, Shown, Signal, Stream};
pub use domain::Domain;
pub use driver::{Compiled, Driver, Kind, Landing, Notice, Step};
pub use engine::{Engine, FAILED};
pub use event::Event;
pub use graph::{ExecutableGraph, Graph};
pub use hooks::Hooks;
pub use lane::Progress;
pub use launch::{LaunchRequest, PlainLaunch, Wishes};
pub use native_command::NativeCall;
pub use native_pool::{NativeLimits, NativePool};
pub use native_record::NativeRecord;
pub use pattern::Pattern;
pub use queue::Queue;
pub use usm_pool::UsmPool;
pub use work::{Pitched, StampSource, Stamps, Work};

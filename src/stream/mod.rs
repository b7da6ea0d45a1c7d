//! The stream engine: queues, events, waits, contexts, USM and its pools, for any [`Driver`].
//!
//! Owns order: which lane a command goes on, what it waits for, what an event stands for, when a
//! block of memory may be used again. Uses `timeline` for what happens before what, `pool` for
//! memory, and a driver for the work itself. Must never know a backend.
//!
//! `driver` is what a backend implements, `launch` what a launch tells it; `hooks` what it may add. `engine` is what one adapter
//! shares, `domain` what one context does. `lane` submits, `out_of_order` chooses lanes, `reach`
//! says what an event covers; `queue`, `event`, `context` and `usm_pool` are the handles, the
//! `*_api` files their `hal` traits; `alloc`, `usm`, `memory`, `pool_core` and `source` are USM;
//! `threads` runs host tasks and callbacks, `native_command` what others give to a lane.
//!
//! Lock ranks, taken downwards only and at most one of each: an out-of-order queue's; a lane's; a
//! pool's (under which nothing is called); and leaves, under which nothing else is locked: the
//! engine's places and domains, a domain's lanes and points, its pools and slabs, gauges, threads,
//! a context's current pools.

mod alloc;
mod context;
mod context_api;
mod domain;
mod driver;
mod engine;
mod event;
mod hooks;
mod host_task;
mod lane;
mod launch;
mod memory;
mod native_command;
mod out_of_order;
mod pool_core;
mod queue;
mod queue_api;
mod reach;
mod source;
mod threads;
mod transfer;
mod usm;
mod usm_pool;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use context::Context;
pub use domain::Domain;
pub use driver::{Driver, Kind, Landing, Notice, Pitched, StampSource, Stamps, Work};
pub use engine::Engine;
pub use event::Event;
pub use hooks::Hooks;
pub use launch::{LaunchRequest, Wishes};
pub use queue::Queue;
pub use usm_pool::UsmPool;

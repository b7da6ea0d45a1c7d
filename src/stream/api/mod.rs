//! The `hal` traits of the engine's objects, for every driver, and what a backend may add to them.
//!
//! `generated` has the traits. The list in scripts/src/generate/hal/engine.rs says who answers a method: the engine,
//! or a hook of the backend.
//!
//! Owns the knot: only here a backend's handles are known to be the engine's. Uses every other folder, and none uses
//! it. Must never hold state.

#[rustfmt::skip]
mod generated;

pub mod device_info;
pub(crate) mod hooks;

pub use hooks::{Hooked, Hooks};

use crate::hal::Backend;
use crate::stream::{
    CommandBuffer, Context, Event, ExecutableGraph, Graph, Queue, RecordedCommand, UsmPool,
};

/// A driver whose handles of queues, events, contexts, pools, command buffers and graphs are the
/// engine's. Every driver is one that says so in its [`Backend`].
pub trait Runtime:
    Hooked
    + Backend<
        Queue = Queue<Self>,
        Event = Event<Self>,
        Context = Context<Self>,
        UsmPool = UsmPool<Self>,
        CommandBuffer = CommandBuffer<Self>,
        CommandBufferCommand = RecordedCommand<Self>,
        Graph = Graph<Self>,
        ExecutableGraph = ExecutableGraph<Self>,
    >
{
}

impl<D> Runtime for D where
    D: Hooked
        + Backend<
            Queue = Queue<D>,
            Event = Event<D>,
            Context = Context<D>,
            UsmPool = UsmPool<D>,
            CommandBuffer = CommandBuffer<D>,
            CommandBufferCommand = RecordedCommand<D>,
            Graph = Graph<D>,
            ExecutableGraph = ExecutableGraph<D>,
        >
{
}

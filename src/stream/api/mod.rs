//! The `hal` traits of queues, contexts and command buffers, for every driver, and what a backend may add to them.

mod command_buffer;
mod context;
pub(crate) mod hooks;
mod queue;

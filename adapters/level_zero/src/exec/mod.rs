//! Execution: lanes, the events that mark positions in them, and memory.
//!
//! A lane is an immediate command list. Its commands run in the order given. A marker is a counter-based event that
//! is signalled after the last command: the driver then stamps the event with the list's counter, and emits nothing.
//! A queue that batches its commands gathers them in regular lists, which its lanes append whole.

mod batch;
mod compiled;
mod copies;
mod event;
mod graph;
mod lane;
mod list;
mod memory;
mod mutable;
pub mod pages;
mod point;
mod residency;
mod ring;
#[cfg(test)]
mod tests;
mod times;
mod work;

pub use batch::Kept;
pub use compiled::{compile, record};
pub use copies::{Copies, Part, copies, for_kernel, home, transfer};
pub use event::{Event, Events};
pub use graph::whole;
pub use lane::{Lane, Stream};
pub use list::List;
pub use memory::{
    alloc, allocation, at_once, copy_now, free, import_of_buffer, import_of_user, is_relaxed,
    max_slab, range, run_now, zero,
};
pub use point::{Marker, Signal, host_point};
pub use residency::{
    Residency, add as add_memory, close as close_memory, open as open_memory,
    remove as remove_memory,
};
pub use ring::{Ring, descriptor_of, set_descriptor};
pub use work::{Native, append_plain};

//! Execution: lanes, the events that mark positions in them, and memory.
//!
//! A lane is an immediate command list. Its commands run in the order given. A marker is a counter-based event that
//! is signalled after the last command: the driver then stamps the event with the list's counter, and emits nothing.

mod compiled;
mod event;
mod lane;
mod list;
mod memory;
mod point;
#[cfg(test)]
mod tests;
mod times;
mod work;

pub use compiled::compile;
pub use event::{Event, Events};
pub use lane::{Lane, Stream};
pub use list::List;
pub use memory::{alloc, copy_now, free, is_relaxed, max_slab, range, run_now, zero};
pub use point::{Marker, Signal, host_point};
pub use work::{Native, append_plain};

//! Answers that the specification alone does not give. A function here, named after one of the
//! interface, is the answer of that one: `cargo xtask gen` looks at the names, and makes the others'
//! answers from the specification.
//!
//! Each takes its call's arguments as they are after the `before` callback. Outputs are written where
//! they are wanted; unsafe blocks rest on what the interface asks of its callers: a pointer is null,
//! or readable or writable for what its parameter says.

mod memory;
mod objects;
mod queue;
mod roots;

pub use memory::*;
pub use objects::*;
pub use queue::*;
pub use roots::*;

//! Answers that do not follow from the specification alone.
//!
//! A function here answers the interface function of its name: `cargo xtask gen` reads the names,
//! and generates the other answers.
//!
//! An answer takes the call's arguments as the `before` callback left them. Null outputs are not
//! written. Unsafe blocks rest on the specification's contract: the caller passes pointers that are
//! null, or readable or writable as their parameter says.

mod memory;
mod objects;
mod queue;
mod roots;

pub use memory::*;
pub use objects::*;
pub use queue::*;
pub use roots::*;

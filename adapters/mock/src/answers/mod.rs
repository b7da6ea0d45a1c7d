//! Answers that do not follow from the specification alone.
//!
//! `answer_to!` in `functions` names the interface function that each of them answers.
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

//! The calls that the conformance program makes.
//!
//! They are a valid call of each function, and an invalid call for each declared condition.

mod arguments;
mod solve;

pub use arguments::lists;

//! A test aid: a library that answers as the CUDA driver does, with devices that do nothing but
//! move bytes, and that fails where a test's script says so.
//!
//! Owns the objects behind the driver's handles, so that a leak, a use after the end or a call in the
//! wrong context is seen (`driver`); what streams run and when (`stream`); and the entry points
//! (`device`, `memory`, `pool`, `work`, `graph`, `code`). `script` is what a test tells it. Must never know who calls.

// Entry points take what the driver's callers pass; each says nothing that its manual does not.
#![allow(clippy::missing_safety_doc, non_snake_case, clippy::too_many_arguments)]

mod code;
mod device;
mod driver;
mod graph;
mod memory;
mod pool;
mod script;
mod stream;
mod work;

pub use script::{Answer, EACH, Fault};

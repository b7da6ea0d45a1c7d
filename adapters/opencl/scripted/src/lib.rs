//! A test aid: a library that answers as OpenCL does, with one device that does nothing but move
//! bytes, and that fails where a test's script says so.
//!
//! Owns the objects behind OpenCL's handles, so that a leak, a use after the last release or a call
//! that the interface forbids is seen (`driver`); what the device runs and when (`queue`); and the
//! entry points (`platform`, `memory`, `program`, `event`, `command`, `extension`), typed as OpenCL's
//! headers have them (`types`). `script` is what a test tells it. Must never know who calls.

// Entry points take what OpenCL's callers pass; each says nothing that OpenCL's manual does not.
#![allow(clippy::missing_safety_doc, non_snake_case, clippy::too_many_arguments)]

mod command;
mod driver;
mod event;
mod extension;
mod memory;
mod platform;
mod program;
mod queue;
mod script;
mod types;

pub use script::{Answer, EACH, Fault, Shape};

//! A test aid: a fake OpenCL library whose one device only moves bytes, and which fails where a test's script
//! says so.
//!
//! It owns the objects behind OpenCL's handles, and so detects a leak, a use after the last release or a
//! forbidden call (`driver`). It also owns the execution of commands (`queue`) and the entry points
//! (`platform`, `memory`, `program`, `event`, `command`, `extension`), whose types `types` checks against
//! OpenCL's headers. Tests control it through `script`. It must never know its caller.

// Entry points take the arguments of OpenCL's interface. OpenCL's manual documents them.
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

pub use script::{Fault, Shape};
pub use scripted::{Answer, EACH};

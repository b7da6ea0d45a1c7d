//! A test aid: a fake CUDA driver whose devices only move bytes, and which fails where a test's script says
//! so.
//!
//! It owns the objects behind the driver's handles, and so detects a leak, a use after destruction or a call
//! in the wrong context (`driver`). It also owns the execution of streams (`stream`), captures of them (`capture`) and
//! the entry points (`device`, `memory`, `image`, `external`, `peers`, `pool`, `share`, `work`, `graph`, `code`). In
//! `strict` are the calls that may wait for the device. Tests control it through `script`. It must never know its caller.

// Entry points take the arguments of the driver's interface. The driver's manual documents them.
#![allow(clippy::missing_safety_doc, non_snake_case, clippy::too_many_arguments)]

mod capture;
mod code;
mod device;
mod driver;
mod external;
mod graph;
mod image;
mod memory;
mod peers;
mod pool;
mod script;
mod share;
mod stream;
mod strict;
mod work;

pub use script::Fault;
pub use scripted::{Answer, EACH};

//! Handles and the C boundary.
//!
//! Has the handle header, reference counts and counts of live objects; handle lists, outputs and
//! info buffers; errors, logging and environment variables; and the panic guard. [`stack_bytes`] is
//! the stack size of threads that run a program's code. [`membarrier`] is a fence with one cheap side,
//! [`host_time`] the host's clock.
//!
//! Uses `abi` only. Knows no adapter: a backend's part of an object is the object's body.

mod boundary;
mod census;
pub mod chain;
pub mod checks;
mod clock;
pub mod env;
mod error;
mod fork;
mod handle;
mod info;
mod list;
pub mod log;
pub mod membarrier;
mod out;
mod spare;
mod stack;

pub use boundary::{boundary, check_thread_state};
pub use census::Census;
pub use clock::host_time;
pub use error::{Error, Result, ensure, last as last_error};
pub use fork::Origin;
pub use handle::{Body, Kind, Object};
pub use info::{Answers, InfoIn, InfoOut, Plain};
pub use list::{Handles, ListOut};
pub use out::{Out, OutHandle};
pub use stack::{has_usual_stack, stack_bytes};

//! Handles and the C boundary: the handle header, reference counts, a census of objects, borrowed
//! handle lists, outputs, info buffers, errors, logging, the environment, the
//! stack of threads that run a program's code, and the one panic guard.
//!
//! Uses `abi` only. Knows no adapter: what an object is to a backend is in the object's body.

mod boundary;
mod census;
pub mod chain;
pub mod checks;
pub mod env;
mod error;
mod fork;
mod handle;
mod info;
mod list;
pub mod log;
mod out;
mod spare;
mod stack;

pub use boundary::{boundary, check_thread_state};
pub use census::Census;
pub use error::{Error, Result, ensure, last as last_error};
pub use fork::Origin;
pub use handle::{Body, Kind, Object};
pub use info::{Answers, InfoIn, InfoOut, Plain};
pub use list::{Handles, ListOut};
pub use out::{Out, OutHandle};
pub use stack::{has_usual_stack, stack_bytes};

//! Lanes: in-order command queues of OpenCL, the events on them, and the memory of a context.
//!
//! Every command asks for its event: the last one is the lane's marker, exact and for nothing. What a
//! lane has to wait for goes into the wait list of its next command. Who may go on without a flush
//! stands on top of `outlet`.
//!
//! `lane` is a queue and what is pending on it, `batch` gives it commands, `marker` is how far it has
//! come, `outlet` when commands leave for the device, `times` when they ran; `state` is what a context
//! keeps. Uses `cl` and `device`. Must never know the engine's handles.

mod batch;
mod lane;
mod marker;
mod outlet;
mod state;
mod times;

pub use batch::{Native, Slot, plain_pattern};
pub use lane::{Lane, queue_property};
pub use marker::{Marker, Position, Signal, event_property, host_point, shown};
pub use state::{Slabs, State};
pub use times::{Ahead, now, time, times};

use outlet::Outlet;

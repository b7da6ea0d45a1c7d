//! What runs on a device: streams, the events on them, points that the host signals, the memory of
//! pools, and when things ran.
//!
//! A stream keeps its commands in order by itself, so a lane is a stream and nothing more. Nothing is
//! recorded behind a command unless the engine asks for a marker. What waits for the host is kept back
//! by the host: the top of `lane` says why. `gpu` is a device's primary context
//! and what is kept with it, `lane` a stream, `work` what one piece of work becomes there, `fill` how
//! patterns get repeated, `posts` how many small fills are one launch, `graph` recorded commands as one, `marker` how far a stream has come, `words` the memory that streams watch
//! for the host, `times` when commands ran, `memory` slabs and pages, `pool`
//! the driver's own pools. Uses `cu`. Must never know the
//! engine's handles.

mod fill;
mod gpu;
mod graph;
mod lane;
mod marker;
mod memory;
mod pool;
mod posts;
mod times;
mod words;
mod work;

pub use gpu::{Event, Gpu};
pub use graph::{compile, record};
pub use lane::Lane;
pub use marker::{Marker, Signal, host_point};
pub use memory::{Pages, host_may_have};
pub use pool::Pool;
pub use work::Native;

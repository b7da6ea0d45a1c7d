//! Execution on a device: streams, their events, points that the host signals, the memory of pools, and
//! timestamps.
//!
//! A stream keeps its commands in order, so a lane is one stream. An event is recorded behind a command only
//! when the engine requests a marker. Work that waits for the host is deferred: `lane` says why.
//!
//! | module | owns |
//! |---|---|
//! | `gpu` | a device's primary context and its caches |
//! | `lane` | a stream |
//! | `work` | the driver's calls for one piece of work |
//! | `fill` | repeated patterns |
//! | `boxes` | copies whose ends are arrays |
//! | `copies` | a buffer's copies on the devices of a context |
//! | `mailbox` | small fills that share a launch |
//! | `graph` | recorded commands as a graph |
//! | `marker` | positions in a stream, and points that the host signals |
//! | `semaphore_words` | host memory that streams wait on |
//! | `times` | when commands ran |
//! | `memory` | slabs and pages |
//! | `peers` | access of other devices to a device's memory |
//! | `remote` | commands on memory that their device does not reach |
//! | `pool` | the driver's own pools |
//!
//! Uses `cu`. Must never know the engine's handles.

mod boxes;
mod copies;
mod fill;
mod gpu;
mod graph;
mod lane;
mod mailbox;
mod marker;
mod memory;
mod peers;
mod pool;
mod remote;
mod semaphore_words;
mod times;
mod work;

pub use boxes::{BoxEnd, Boxes};
pub use copies::{Copies, Part, transfer};
pub use gpu::{Event, Gpu};
pub use graph::{compile, record, whole};
pub use lane::Lane;
pub use marker::{Marker, Signal, host_point};
pub use memory::{Pages, host_may_have};
pub use peers::Members;
pub use pool::Pool;
pub use remote::Remote;
pub use work::{Native, enqueue};

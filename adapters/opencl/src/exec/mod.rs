//! Lanes: in-order command queues of OpenCL, the events on them, and the memory of a context.
//!
//! Every command returns its event, and the last event is the lane's marker. A lane's waits go into the
//! wait list of its next command.
//!
//! | module | owns |
//! |---|---|
//! | `lane` | a queue and its pending waits |
//! | `batch` | the OpenCL commands of one piece of work |
//! | `marker` | positions in a lane |
//! | `submissions` | a queue's commands: `flush` decides when to flush, `outcomes` how commands ended |
//! | `times` | timestamps of commands |
//! | `state` | the adapter's data of a context |
//!
//! Uses `cl` and `device`. Must never know the engine's handles.

mod batch;
mod flush;
mod lane;
mod marker;
mod outcomes;
mod state;
mod submissions;
mod times;

pub use batch::{Native, Slot, plain_pattern};
pub use lane::{Lane, queue_property};
pub use marker::{Marker, Position, Signal, event_property, host_point, shown};
pub use state::{ContextData, Slabs};
pub use times::{Ahead, now, time, times};

use submissions::Submissions;

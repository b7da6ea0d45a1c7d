//! Lanes, epochs and frontiers: what "happens before" means in this library.
//!
//! Owns the identity of lanes, their observed completion and the algebra of frontiers. Uses only `std`, small vectors
//! and `sync`. Must never know a C type, a driver, a queue or an event.
//!
//! A lane is an in-order stream, and its commands have rising epochs. A point is a lane and an epoch. A
//! frontier is a set of points, at most one a lane: a sparse vector clock. A lane records which points of
//! other lanes its commands come after. An event carries the frontier of its command.
//!
//! A free stamps a block with its death, a frontier. An allocation may reuse the block without a wait
//! if its own frontier covers the death, or if the death was observed complete.
//!
//! | state of a point | set by | allows |
//! |---|---|---|
//! | submitted | [`Lane::advance`] | ordering on the same lane, by comparison |
//! | waited for | [`Lane::wait_for`], once the wait really stands on the lane | ordering on that lane |
//! | complete | [`Clock::raise`], [`Frontier::mark_complete`], from an observation only | everything |
//!
//! In a deterministic run a point is complete once the program itself awaited it
//! ([`Clock::raise_awaited`]). No decision then rests on [`Point::is_done`], the observed completion.
//!
//! Epochs and completion only rise, and lane identities are never reused. A clock also keeps the epochs
//! of failed commands (`failure`). The lock of those is a leaf, taken only once some command has failed.
//!
//! Model checks: `RUSTFLAGS="--cfg loom" cargo test -p unified-runtime --lib --release loom_`
//! (with a target directory of its own, since the flag rebuilds everything).

#![forbid(unsafe_code)]

mod clock;
mod failure;
mod frontier;
mod lane;
mod pruned;

pub use clock::{Clock, LaneId, Point};
pub use failure::Failure;
pub use frontier::Frontier;
pub use lane::Lane;
pub use pruned::{Prune, Pruned};

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod model_tests;
#[cfg(all(test, not(loom)))]
mod tests;

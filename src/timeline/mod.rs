//! Lanes, epochs and frontiers: what "happens before" means in this library.
//!
//! Owns the identity of lanes, their observed completion and the algebra of frontiers. Uses nothing
//! but `std`, locks that are not poisoned and counts without weak references (and `loom` in their place
//! when model-checked). Must never know a C type, a driver, a
//! queue or an event: those give it meaning from above.
//!
//! | state of a point | who moves it there | what it allows |
//! |---|---|---|
//! | submitted | [`Lane::advance`] | ordering on the same lane, by comparison |
//! | waited for | [`Lane::wait_for`], once the wait really stands on the lane | ordering on that lane |
//! | complete | [`Clock::raise`], [`Frontier::mark_complete`], from an observation only | everything |
//!
//! In a deterministic run "complete" is what the program itself awaited ([`Clock::raise_awaited`]);
//! whether a point is done is then for those who must know, and decides nothing.
//!
//! No state is ever left backwards: epochs and completion only rise, lane identities are never
//! reused. Which complete commands failed is kept beside (`failure`). Lock ranks: the one lock, of a
//! clock's failures, is a leaf, and taken only once some command has failed.
//!
//! Model checks: `RUSTFLAGS="--cfg loom" cargo test -p unified-runtime --lib --release loom_`
//! (with a target directory of its own, since the flag rebuilds everything).

#![forbid(unsafe_code)]

mod clock;
mod failure;
mod frontier;
mod gathered;
mod lane;
pub mod rank;
pub mod sync;

pub use clock::{Clock, LaneId, Point};
pub use failure::Failure;
pub use frontier::Frontier;
pub use gathered::{Gathered, Prune};
pub use lane::Lane;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod model_tests;
#[cfg(all(test, not(loom)))]
mod tests;

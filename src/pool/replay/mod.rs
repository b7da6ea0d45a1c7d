//! Replay: programs that repeat their requests get the addresses that they had.
//!
//! A step of training, a batch, a frame: programs repeat themselves. While a stream misses its cache often,
//! an **allocation trace** ([`Trace`]) records what it asks of a pool, in order, and what it got. When the
//! stream has live exactly what it had at some earlier moment of the trace, the requests since then are an
//! iteration, which may come again. The pool then makes a **replay plan** ([`Plan`]) of it: the memory of all
//! its blocks is held, and each block is served at the address that it had. No search is needed, no memory
//! moves, and no two blocks meet that did not meet before. A plan serves as long as each request is the one
//! that came before, and each free comes no later than it did. An earlier free does no harm.
//!
//! Several streams may have the same memory in turn, as the uses of the others complete. None of them can
//! hold it for itself. They get a **shared replay plan** where nothing is live that a traced stream allocated, and at
//! least one operation in 64 got what another stream had. It merges the iterations of all, in the order of their
//! operations. The merge costs half as many instructions as the iteration. It is made while the host waits, or when
//! the iteration begins again. Each stream is a [`Participant`]. Beyond the order of requests, a shared plan checks
//! what the memory of a block was before: it must have completed, have been used by the same stream, or come
//! before the request's dependencies. A plan of one stream is the same with one participant,
//! whose own order answers that.
//!
//! | replay state of a stream in a pool | entered by | left by |
//! |---|---|---|
//! | none | the start; the end of a trace or a plan | a miss, unless the backoff waits |
//! | tracing | a miss | a plan; few misses; a length limit; a long iteration that left nothing live and is not begun again |
//! | replaying | the iteration begins again, or the host waits before it, and the memory of all of it is free for it | another request; a want of memory |
//!
//! A trace or plan that comes to nothing costs a [`Backoff`], which all streams of a pool share. The stream's
//! cache owns its replay state, under the cache's lock (`cache::replay`). The pool owns plans and makes and
//! ends them (`cache::table::replay`). A plan has a lock of its own. The addresses in a trace may have been
//! left by their memory since: `heap::aliases` resolves them.

mod backoff;
mod interval_index;
mod plan;
mod trace;

pub(crate) use backoff::Backoff;
pub(crate) use interval_index::{ranges, union};
pub(crate) use plan::{Held, NEVER, Participant, Plan, SharedPlan};
pub(crate) use trace::{Iteration, Start, Trace, is_shared};

/// The replay state of a stream in a pool.
#[derive(Debug)]
pub(crate) enum Replay {
    Tracing(Box<Trace>),
    Replaying(Participant),
}

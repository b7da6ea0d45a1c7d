//! The order in which locks are taken.
//!
//! Every lock has a rank. A thread waits only for a lock whose rank is above those of all locks that it holds, so that
//! no threads wait for each other in a ring. Debug builds check that where a lock is taken; release builds know no ranks.
//!
//! The ranks of all layers stand here, since an order is only one. An adapter's locks come behind the engine's, which
//! calls the driver under a lane's lock.

use std::cell::Cell;

/// The rank of a lock of [`super::sync`], as a number.
pub type Rank = u8;

macro_rules! ranks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[repr(u8)]
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Order { $($name,)* COUNT }

        $($(#[$doc])* pub const $name: Rank = Order::$name as Rank;)*

        const NAMES: [&str; Order::COUNT as usize] = [$(stringify!($name)),*];
    };
}

ranks! {
    /// A command buffer's, and an executable graph's: a submission holds it and the queue's.
    COMMAND_BUFFER,
    /// A command buffer's native objects.
    NATIVE_RECORDS,
    /// The place of a queue in a capture.
    CAPTURE,
    /// A graph's commands.
    GRAPH,
    /// A trace's, held over the command that it tells of.
    TRACE,
    /// An out-of-order queue's.
    OUT_OF_ORDER,
    /// A lane's. The driver is called under it.
    LANE,
    /// Which commands of a lane depend on others. The driver is asked for failures under it.
    DEPENDENTS,
    /// The addresses of a pool's pages.
    ADDRESSES,
    /// The works of recorded commands in a native object, held over its submission.
    RECORDED_WORKS,
    /// What a lane keeps back: the driver's calls are made under it.
    DEFERRED,
    /// A driver's own locks under which it takes others of its own.
    DRIVER,
    /// An OpenCL kernel's arguments: a launch sets them under its lane's lock.
    KERNEL_ARGUMENTS,
    /// A context's list of pools.
    POOLS,
    /// What a pool knows of its native parts: its figures come behind.
    NATIVE_PARTS,
    /// A pool's. Nothing outside the pool is called under it.
    POOL,
    /// What counts how much of a pool is in use.
    USAGE,
    /// A lane's cache of blocks. Several are taken in the order of their lanes.
    CACHE,
    /// A replay plan.
    REPLAY_PLAN,
    /// The memory of a native context that other devices reach. The driver is called under it.
    RESIDENCY,
    /// A lock under which no other is taken.
    LEAF,
}

/// No rank: a lock that is a part of another lock, which has the rank. Nothing is waited for under it but by the thread
/// that waits for the other.
pub const UNRANKED: Rank = Rank::MAX;

/// The ranks of which a thread may hold several locks: caches, which have an order among themselves, and replay
/// plans, of which only the holder of [`USAGE`] takes a second.
const ORDERED: [Rank; 2] = [CACHE, REPLAY_PLAN];

/// A rank that the calling thread holds, until dropped. Never leaves its thread.
#[derive(Debug)]
pub(crate) struct Held {
    #[cfg(debug_assertions)]
    rank: Rank,
}

impl Held {
    /// Before a lock is waited for.
    #[inline(always)]
    pub fn new(rank: Rank) -> Self {
        enter(rank);
        Self {
            #[cfg(debug_assertions)]
            rank,
        }
    }

    /// Of a lock that was taken without waiting.
    #[cfg(all(test, not(loom)))]
    pub fn at_once(rank: Rank) -> Self {
        enter_at_once(rank);
        Self {
            #[cfg(debug_assertions)]
            rank,
        }
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        leave(self.rank);
    }
}

/// A lock of this rank will be waited for, and be held until [`leave`].
#[inline(always)]
pub(crate) fn enter(rank: Rank) {
    count(rank, |counts, at| {
        let first = at + usize::from(ORDERED.contains(&rank));
        if let Some(above) = counts[first..].iter().position(|count| *count > 0) {
            let (name, other) = (NAMES[at], NAMES[first + above]);
            panic!("a lock of rank {name} is waited for under one of rank {other}");
        }
        counts[at] += 1;
    });
}

/// As [`enter`], of a lock that was taken without waiting, which may happen in any order.
#[inline(always)]
pub(crate) fn enter_at_once(rank: Rank) {
    count(rank, |counts, at| counts[at] += 1);
}

/// A lock of this rank is not held any more.
#[inline(always)]
pub(crate) fn leave(rank: Rank) {
    count(rank, |counts, at| counts[at] -= 1);
}

/// How many locks of each rank a thread holds.
type Counts = [u16; Order::COUNT as usize];

/// Changes the thread's counts at a rank, in debug builds.
#[inline(always)]
fn count(rank: Rank, change: impl FnOnce(&mut Counts, usize)) {
    thread_local! {
        static HELD: Cell<Counts> = const { Cell::new([0; Order::COUNT as usize]) };
    }
    if cfg!(debug_assertions) && rank != UNRANKED {
        let mut counts = HELD.get();
        change(&mut counts, usize::from(rank));
        HELD.set(counts);
    }
}

#[cfg(all(test, debug_assertions, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::Mutex;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn locks_are_taken_in_their_order_alone() {
        let (lane, leaf) = (Mutex::<_, LANE>::new(1), Mutex::<_, LEAF>::new(2));
        let outer = lane.lock();
        let inner = leaf.lock();
        // In any order again.
        drop(outer);
        drop(inner);
        let refused = catch_unwind(AssertUnwindSafe(|| {
            let _inner = leaf.lock();
            let _outer = lane.lock();
        }));
        assert!(refused.is_err(), "a lane's lock under a leaf");
        // Unwinding has given the leaf up.
        let _outer = lane.lock();
        let other = Mutex::<_, LANE>::new(3);
        assert!(
            catch_unwind(AssertUnwindSafe(|| drop(other.lock()))).is_err(),
            "two lanes'"
        );
        assert!(other.try_lock().is_some(), "without waiting");
    }
}

//! The order in which locks are taken.
//!
//! Every lock has a rank. A thread waits only for a lock whose rank is above those of all locks that it holds, so that
//! no threads wait for each other in a ring. Debug builds check that where a lock is taken; release builds know no ranks.
//!
//! The ranks of all layers stand here, since an order is only one. An adapter's locks come behind the engine's, which
//! calls the driver under a lane's lock.

/// The rank of a lock of [`super::sync`], as a number.
pub type Rank = u8;

macro_rules! ranks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[repr(u8)]
        // Without the check nobody asks how many there are.
        #[allow(dead_code, non_camel_case_types, clippy::upper_case_acronyms)]
        enum Order { $($name,)* COUNT }

        $($(#[$doc])* pub const $name: Rank = Order::$name as Rank;)*

        #[cfg(debug_assertions)]
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

/// A rank that the calling thread holds, until dropped. Never leaves its thread.
#[derive(Debug)]
pub(crate) struct Held {
    #[cfg(debug_assertions)]
    rank: Rank,
}

/// The ranks of which a thread may hold several locks: caches, which have an order among themselves, and replay
/// plans, of which only the holder of [`USAGE`] takes a second.
#[cfg(debug_assertions)]
const ORDERED: [Rank; 2] = [CACHE, REPLAY_PLAN];

impl Held {
    /// Before a lock is waited for.
    #[inline(always)]
    pub fn new(rank: Rank) -> Self {
        enter(rank);
        Self::of(rank)
    }

    /// Of a lock that was taken without waiting.
    #[cfg(all(test, not(loom)))]
    pub fn at_once(rank: Rank) -> Self {
        enter_at_once(rank);
        Self::of(rank)
    }

    #[inline(always)]
    fn of(rank: Rank) -> Self {
        #[cfg(not(debug_assertions))]
        let _ = rank;
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
    #[cfg(debug_assertions)]
    held::enter(rank, true);
    #[cfg(not(debug_assertions))]
    let _ = rank;
}

/// As [`enter`], of a lock that was taken without waiting, which may happen in any order.
#[inline(always)]
pub(crate) fn enter_at_once(rank: Rank) {
    #[cfg(debug_assertions)]
    held::enter(rank, false);
    #[cfg(not(debug_assertions))]
    let _ = rank;
}

/// A lock of this rank is not held any more.
#[inline(always)]
pub(crate) fn leave(rank: Rank) {
    #[cfg(debug_assertions)]
    held::leave(rank);
    #[cfg(not(debug_assertions))]
    let _ = rank;
}

#[cfg(debug_assertions)]
mod held {
    use super::{NAMES, ORDERED, Order, Rank, UNRANKED};
    use std::cell::Cell;

    /// How many locks of each rank a thread holds.
    type Counts = [u16; Order::COUNT as usize];

    thread_local! {
        static HELD: Cell<Counts> = const { Cell::new([0; Order::COUNT as usize]) };
    }

    pub fn enter(rank: Rank, waits: bool) {
        if rank == UNRANKED {
            return;
        }
        HELD.with(|held| {
            let mut counts = held.get();
            let first = usize::from(rank) + usize::from(ORDERED.contains(&rank));
            let rank = usize::from(rank);
            let above = counts[first..].iter().position(|count| *count > 0);
            if let Some(other) = above.filter(|_| waits) {
                let (name, other) = (NAMES[rank], NAMES[first + other]);
                panic!("a lock of rank {name} is waited for under one of rank {other}");
            }
            counts[rank] += 1;
            held.set(counts);
        });
    }

    pub fn leave(rank: Rank) {
        if rank == UNRANKED {
            return;
        }
        HELD.with(|held| {
            let mut counts = held.get();
            counts[usize::from(rank)] -= 1;
            held.set(counts);
        });
    }
}

#[cfg(all(test, debug_assertions, not(loom)))]
mod tests {
    use super::*;
    use crate::timeline::sync::Mutex;
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

//! When what is known of where allocations end is out of date.
//!
//! To find the allocation around an address takes a pool's lock; who asks for every command keeps the
//! answer, with the number that stood here before. It holds until an allocation may end earlier than
//! it did: memory that is handed out anew, or again as less. What is freed ends no earlier.

use crate::timeline::sync::{AtomicU64, Ordering};
use std::ops::Range;
use std::sync::Arc;

/// A number that is never twice the same, and no other's.
#[derive(Debug)]
pub struct Ends(AtomicU64);

impl Default for Ends {
    fn default() -> Self {
        Self(AtomicU64::new(fresh()))
    }
}

impl Ends {
    /// Taken before one looks. Acquire: what was handed out before the number changed is seen then.
    #[inline]
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// An allocation may end earlier. Before anybody gets to know it.
    #[inline(never)]
    pub fn change(&self) {
        // Of two that change it at once each counts for both, since no number comes back.
        self.0.store(fresh(), Ordering::Release);
    }
}

/// Who changes them often: has numbers of its own, since the counter of all costs as much as a lock.
#[derive(Debug, Default)]
pub(crate) struct EndsTeller {
    ends: Arc<Ends>,
    own: Range<u64>,
}

impl EndsTeller {
    pub fn new(ends: &Arc<Ends>) -> Self {
        Self {
            ends: Arc::clone(ends),
            own: 0..0,
        }
    }

    /// As [`Ends::change`].
    #[inline]
    pub fn change(&mut self) {
        let next = self.own.next().unwrap_or_else(|| self.refill());
        self.ends.0.store(next, Ordering::Release);
    }

    #[cold]
    fn refill(&mut self) -> u64 {
        let first = some(OWN);
        self.own = first + 1..first + OWN;
        first
    }
}

/// How many a teller takes at once.
const OWN: u64 = 1 << 12;

fn fresh() -> u64 {
    some(1)
}

/// The first of so many numbers. Never 0. A plain `std` atomic, since loom's cannot live in a static, and
/// identity only.
fn some(count: u64) -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    NEXT.fetch_add(count, std::sync::atomic::Ordering::Relaxed)
}

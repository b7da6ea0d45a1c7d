//! When what is known of where allocations end is out of date.
//!
//! To find the allocation around an address takes a pool's lock; who asks for every command keeps the
//! answer, with the number that stood here before. It holds until an allocation may end earlier than
//! it did: memory that is handed out anew, or again as less. What is freed ends no earlier.

use crate::timeline::sync::{AtomicU64, Ordering};

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

/// Never 0. A plain `std` atomic, since loom's cannot live in a static, and identity only.
fn fresh() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

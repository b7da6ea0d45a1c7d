//! A collection that drops its completed members as it grows.

use super::Frontier;

/// A collection that drops completed members before an addition: before each while it is small, else after
/// as many additions as the last search left members. Additions so cost amortised constant time.
#[derive(Debug, Default)]
pub struct Pruned<T> {
    pub all: T,
    left: usize,
    added: usize,
}

/// A collection that [`Pruned`] keeps small.
pub trait Prune {
    fn size(&self) -> usize;
    /// Drops completed members.
    fn prune(&mut self);
}

impl Prune for Frontier {
    fn size(&self) -> usize {
        self.len()
    }

    fn prune(&mut self) {
        Frontier::prune(self);
    }
}

impl<T: Prune> Pruned<T> {
    /// The collection, for one addition.
    pub fn grow(&mut self) -> &mut T {
        if self.left <= MAX_SCANNED_MEMBERS || self.added >= self.left {
            self.prune();
        }
        self.added += 1;
        &mut self.all
    }

    pub fn prune(&mut self) {
        self.all.prune();
        (self.left, self.added) = (self.all.size(), 0);
    }
}

/// Members up to which each addition searches.
const MAX_SCANNED_MEMBERS: usize = 16;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::timeline::{Clock, Point};

    #[test]
    fn a_pruned_collection_drops_completed_points() {
        let mut pruned = Pruned::<Frontier>::default();
        let pending: Vec<_> = (0..100).map(|_| Point::new(&Clock::new(), 1)).collect();
        for point in &pending {
            pruned.grow().join_point(point);
        }
        for _ in 0..10_000 {
            let point = Point::new(&Clock::new(), 1);
            pruned.grow().join_point(&point);
            point.clock.raise(1);
            assert!(pruned.all.len() <= 3 * pending.len());
        }
        pruned.prune();
        assert_eq!(pruned.all.len(), pending.len());
    }
}

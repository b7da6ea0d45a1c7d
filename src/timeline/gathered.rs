//! What grows with each thing noted, and is kept as small as what is pending.

use super::Frontier;

/// A collection that is looked through for what has completed before each addition while it is small, else
/// only after as many additions as that left it: to look each time costs all that is pending.
#[derive(Debug, Default)]
pub struct Gathered<T> {
    pub all: T,
    left: usize,
    added: usize,
}

/// What [`Gathered`] keeps small.
pub trait Prune {
    fn size(&self) -> usize;
    /// Forgets what has completed.
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

impl<T: Prune> Gathered<T> {
    /// To add to.
    pub fn grow(&mut self) -> &mut T {
        if self.left <= FEW || self.added >= self.left {
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

/// Points that cost little to look through.
const FEW: usize = 16;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::timeline::{Clock, Point};

    #[test]
    fn what_is_gathered_forgets_what_has_completed() {
        let mut gathered = Gathered::<Frontier>::default();
        let pending: Vec<_> = (0..100).map(|_| Point::new(&Clock::new(), 1)).collect();
        for point in &pending {
            gathered.grow().join_point(point);
        }
        for _ in 0..10_000 {
            let point = Point::new(&Clock::new(), 1);
            gathered.grow().join_point(&point);
            point.clock.raise(1);
            assert!(gathered.all.len() <= 3 * pending.len());
        }
        gathered.prune();
        assert_eq!(gathered.all.len(), pending.len());
    }
}

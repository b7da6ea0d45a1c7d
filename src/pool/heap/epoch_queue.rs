//! What dies on one lane, in the order of epochs.
//!
//! Mostly a segment dies later than all before it, and what dies first is complete first: a queue with
//! something at either end. What comes out of turn is kept beside it, in a tree. With a tree alone an
//! allocation and its free on an out-of-order queue take 370 instructions more than 6,600.

use crate::pool::heap::segments::{NIL, SegId};
use crate::pool::options::MIN_GAPS;
use std::collections::{BTreeSet, VecDeque};

#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Ascending. What left from between others is a gap, until it stands at an end or gaps are most.
    line: VecDeque<Watched>,
    gaps: usize,
    late: BTreeSet<(u64, SegId)>,
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    key: (u64, SegId),
    gone: bool,
}

impl Watch {
    #[inline]
    pub fn insert(&mut self, epoch: u64, id: SegId) {
        let key = (epoch, id);
        match self.line.back() {
            Some(last) if last.key >= key => {
                self.late.insert(key);
            }
            _ => self.line.push_back(Watched { key, gone: false }),
        }
    }

    #[inline]
    pub fn remove(&mut self, epoch: u64, id: SegId) {
        let key = (epoch, id);
        let first = self.line.front().is_some_and(|first| first.key == key);
        let at = match first {
            true => Ok(0),
            false => self.line.binary_search_by_key(&key, |watched| watched.key),
        };
        match at.ok().and_then(|at| self.line.get_mut(at)) {
            // A gap may have the name of what came back later.
            Some(watched) if !watched.gone => {
                watched.gone = true;
                self.gaps += 1;
                self.close_gaps();
            }
            _ => {
                self.late.remove(&key);
            }
        }
    }

    fn close_gaps(&mut self) {
        while self.line.front().is_some_and(|first| first.gone) {
            self.line.pop_front();
            self.gaps -= 1;
        }
        while self.line.back().is_some_and(|last| last.gone) {
            self.line.pop_back();
            self.gaps -= 1;
        }
        if self.gaps > MIN_GAPS.max(self.line.len() / 2) {
            self.line.retain(|watched| !watched.gone);
            self.gaps = 0;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.line.is_empty() && self.late.is_empty()
    }

    /// The newest epoch; 0 if there is none.
    #[inline]
    pub fn newest(&self) -> u64 {
        let last = self.line.back().map_or(0, |last| last.key.0);
        last.max(self.late.last().map_or(0, |last| last.0))
    }

    /// What dies at this epoch or before.
    pub fn upto(&self, epoch: u64) -> impl Iterator<Item = SegId> {
        let ripe = self
            .line
            .iter()
            .take_while(move |watched| watched.key.0 <= epoch);
        let ripe = ripe
            .filter(|watched| !watched.gone)
            .map(|watched| watched.key.1);
        ripe.chain(self.late.range(..=(epoch, NIL)).map(|(_, id)| *id))
    }

    #[cfg(any(test, feature = "oracle"))]
    pub fn all(&self) -> BTreeSet<(u64, SegId)> {
        let line = self.line.iter().filter(|watched| !watched.gone);
        let line = line.map(|watched| watched.key);
        line.chain(self.late.iter().copied()).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::pool::oracle::Rng;

    #[test]
    fn what_is_watched_is_a_set() {
        let mut rng = Rng::new(5);
        let (mut watch, mut set) = (Watch::default(), BTreeSet::new());
        for step in 0..30_000_u64 {
            // First more come than go, then fewer; most in turn.
            if rng.chance(if step < 15_000 { 60 } else { 40 }) {
                let epoch = match rng.chance(80) {
                    true => step,
                    false => step.saturating_sub(rng.below(100)),
                };
                let id = rng.below(4) as SegId;
                if set.insert((epoch, id)) {
                    watch.insert(epoch, id);
                }
            } else if !set.is_empty() {
                // From the ends, from between, and what comes back at once.
                let at = [0, set.len() - 1, rng.below(set.len() as u64) as usize];
                let key = *set.iter().nth(at[rng.below(3) as usize]).expect("one");
                watch.remove(key.0, key.1);
                match rng.chance(20) {
                    true => watch.insert(key.0, key.1),
                    false => drop(set.remove(&key)),
                }
            }
            assert_eq!(watch.is_empty(), set.is_empty());
            assert_eq!(watch.newest(), set.last().map_or(0, |last| last.0));
            if step % 64 == 0 {
                let epoch = step.saturating_sub(rng.below(200));
                let mut ripe: Vec<_> = watch.upto(epoch).collect();
                let mut expected: Vec<_> = set.range(..=(epoch, NIL)).map(|key| key.1).collect();
                ripe.sort_unstable();
                expected.sort_unstable();
                assert_eq!(ripe, expected, "{step}");
            }
            assert!(
                watch.line.len() <= 2 * set.len() + 2 * MIN_GAPS + 2,
                "{step}"
            );
        }
    }
}

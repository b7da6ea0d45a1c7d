//! Values of ranges of addresses.

use crate::pool::provider::Slab;
use std::collections::BTreeMap;

/// Ranges without overlap by their starts: the end and the value of each.
#[derive(Debug)]
pub(crate) struct RangeMap<T>(BTreeMap<u64, (u64, T)>);

impl<T> Default for RangeMap<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Copy> RangeMap<T> {
    /// The parts of a range, ascending, each with its value; none where no value was set.
    pub fn parts(&self, range: Slab) -> impl Iterator<Item = (Slab, Option<T>)> {
        let mut at = range.base;
        std::iter::from_fn(move || {
            let base = at;
            let before = self.0.range(..=base).next_back();
            let (end, value) = match before.filter(|(_, (end, _))| *end > base) {
                Some((_, (end, value))) => (*end, Some(*value)),
                None => {
                    let next = self.0.range(base..range.end()).next();
                    (next.map_or(range.end(), |(start, _)| *start), None)
                }
            };
            at = end.min(range.end());
            let bytes = at.checked_sub(base).filter(|bytes| *bytes > 0)?;
            Some((Slab { base, bytes }, value))
        })
    }

    /// Sets the value of a range, whatever its parts had.
    pub fn insert(&mut self, range: Slab, value: T) {
        debug_assert!(range.bytes > 0, "an empty range");
        if let Some(same) = self.0.get_mut(&range.base)
            && same.0 == range.end()
        {
            same.1 = value;
            return;
        }
        self.split(range.base);
        self.split(range.end());
        let inside = self.0.extract_if(range.base..range.end(), |_, _| true);
        inside.for_each(drop);
        self.0.insert(range.base, (range.end(), value));
    }

    /// Makes two ranges of one that goes on behind an address.
    fn split(&mut self, addr: u64) {
        if let Some((_, (end, value))) = self.0.range_mut(..addr).next_back()
            && *end > addr
        {
            let rest = (std::mem::replace(end, addr), *value);
            self.0.insert(addr, rest);
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::pool::oracle::Rng;

    #[test]
    fn a_range_map_is_a_map_of_its_addresses() {
        let mut rng = Rng::new(11);
        let (mut map, mut each) = (RangeMap::default(), [None; 64]);
        for value in 0..5_000 {
            let base = rng.below(60);
            let bytes = 1 + rng.below(64 - base);
            let range = Slab { base, bytes };
            map.insert(range, value);
            each[base as usize..range.end() as usize].fill(Some(value));
            if rng.chance(2) {
                map.clear();
                each.fill(None);
            }
            let base = rng.below(64);
            let bytes = rng.below(65 - base);
            let mut at = base;
            for (part, value) in map.parts(Slab { base, bytes }) {
                assert_eq!(part.base, at);
                let all = &each[at as usize..part.end() as usize];
                assert!(!all.is_empty() && all.iter().all(|own| *own == value));
                at = part.end();
            }
            assert_eq!(at, base + bytes);
        }
    }
}

//! Free segments in the order of their sizes.
//!
//! Classes of sizes, four to a power of two, and a bit for each that has any; within a class, a short
//! list in order. A class of many is a tree instead.

use crate::pool::heap::segments::SegId;
use crate::pool::options::MAX_LIST_ENTRIES;
use std::collections::{BTreeSet, VecDeque};

/// Bytes, address, and the segment, or the first of several.
pub(crate) type Entry = (u64, u64, SegId);

const CLASSES: usize = 256;

/// Entries ascend by size, then by address: best fit, lowest first.
#[derive(Debug, Default)]
pub(crate) struct BySize {
    present: [u64; CLASSES / 64],
    /// As many as were needed so far.
    classes: Vec<Class>,
}

/// One of the two is empty.
#[derive(Debug, Default)]
struct Class {
    list: VecDeque<Entry>,
    tree: BTreeSet<Entry>,
}

impl BySize {
    pub fn insert(&mut self, entry: Entry) {
        let at = class_of(entry.0);
        if at >= self.classes.len() {
            self.classes.resize_with(at + 1, Class::default);
        }
        self.present[at / 64] |= 1 << (at % 64);
        let class = &mut self.classes[at];
        if !class.tree.is_empty() || class.list.len() == MAX_LIST_ENTRIES {
            class.tree.extend(class.list.drain(..));
            class.tree.insert(entry);
            return;
        }
        // What is filed in a row mostly ascends.
        match class.list.back() {
            Some(last) if *last > entry => {
                let place = class.list.partition_point(|other| *other < entry);
                class.list.insert(place, entry);
            }
            _ => class.list.push_back(entry),
        }
    }

    pub fn remove(&mut self, entry: &Entry) {
        let at = class_of(entry.0);
        let Some(class) = self.classes.get_mut(at) else {
            return;
        };
        if let Ok(place) = class.list.binary_search(entry) {
            class.list.remove(place);
        } else {
            class.tree.remove(entry);
        }
        if class.list.is_empty() && class.tree.is_empty() {
            self.present[at / 64] &= !(1 << (at % 64));
        }
    }

    /// Those of at least so many bytes, ascending.
    #[inline]
    pub fn from(&self, bytes: u64) -> impl Iterator<Item = Entry> {
        let mut next = Some(class_of(bytes));
        let classes = std::iter::from_fn(move || {
            let at = self.present_from(next?)?;
            next = Some(at + 1);
            Some(&self.classes[at])
        });
        let all = classes.flat_map(|class| class.list.iter().chain(&class.tree).copied());
        // Only the first class has smaller ones.
        all.skip_while(move |entry| entry.0 < bytes)
    }

    /// The first of [`BySize::from`] that `fits` makes something of.
    #[inline]
    pub fn first<T>(&self, bytes: u64, mut fits: impl FnMut(Entry) -> Option<T>) -> Option<T> {
        let mut at = class_of(bytes);
        loop {
            at = self.present_from(at)?;
            let class = &self.classes[at];
            let smaller = class.list.partition_point(|entry| entry.0 < bytes);
            let mut list = class.list.range(smaller..);
            let found = list.find_map(|entry| fits(*entry));
            if found.is_some() {
                return found;
            }
            if !class.tree.is_empty() {
                let mut tree = class.tree.range((bytes, 0, 0)..);
                let found = tree.find_map(|entry| fits(*entry));
                if found.is_some() {
                    return found;
                }
            }
            at += 1;
        }
    }

    /// The first class from `at` on that has any.
    #[inline]
    fn present_from(&self, at: usize) -> Option<usize> {
        let mut word = at / 64;
        let mut bits = self.present.get(word)? & (u64::MAX << (at % 64));
        while bits == 0 {
            word += 1;
            bits = *self.present.get(word)?;
        }
        Some(64 * word + bits.trailing_zeros() as usize)
    }
}

/// Ascends with the size.
#[inline]
fn class_of(bytes: u64) -> usize {
    let below = bytes.max(1).ilog2();
    // The two bits after the first.
    let part = (bytes.max(1) << (63 - below)) >> 61 & 3;
    4 * below as usize + part as usize
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::pool::oracle::Rng;

    #[test]
    fn entries_ascend_as_in_a_set() {
        let mut rng = Rng::new(3);
        let (mut sizes, mut set) = (BySize::default(), BTreeSet::new());
        for step in 0..30_000_u32 {
            // Few sizes and then many; first more come than go, then fewer.
            let (kind, height) = (rng.below(3), rng.below(40));
            let size = match kind {
                0 => 1 << height,
                1 => 256 * (1 + rng.below(8)),
                _ => 1 + rng.below(1 << height),
            };
            if rng.chance(if step < 15_000 { 70 } else { 30 }) {
                let entry = (size, u64::from(step) * 7919 % 30_011, step);
                sizes.insert(entry);
                set.insert(entry);
            } else if let Some(entry) = set.range((size, 0, 0)..).next().copied() {
                sizes.remove(&entry);
                set.remove(&entry);
            }
            let even = |entry: &Entry| entry.2.is_multiple_of(2).then_some(*entry);
            let first = set.range((size, 0, 0)..).find_map(even);
            assert_eq!(sizes.first(size, |entry| even(&entry)), first);
            let found = sizes.from(size).take(5);
            assert!(
                found.eq(set.range((size, 0, 0)..).take(5).copied()),
                "{step}"
            );
        }
        assert!(sizes.from(0).eq(set.iter().copied()));
    }
}

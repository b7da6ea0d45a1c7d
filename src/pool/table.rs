//! Addresses to numbers: open addressing with linear probing, at most half full.
//!
//! The standard map's hash alone would cost as much as all the rest of a free.

const EMPTY: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(crate) struct Table {
    /// A power of two of them, or none.
    slots: Vec<(u64, u32)>,
    used: usize,
}

impl Table {
    #[inline]
    pub fn get(&self, addr: u64) -> Option<u32> {
        let mut at = self.home(addr)?;
        loop {
            match self.slots[at] {
                (_, EMPTY) => return None,
                (found, value) if found == addr => return Some(value),
                _ => at = self.after(at),
            }
        }
    }

    /// `value` is not `u32::MAX`; `addr` is not in the table.
    pub fn insert(&mut self, addr: u64, value: u32) {
        if 2 * (self.used + 1) > self.slots.len() {
            let room = (2 * self.slots.len()).max(16);
            let old = std::mem::replace(&mut self.slots, vec![(0, EMPTY); room]);
            for (addr, value) in old.into_iter().filter(|(_, value)| *value != EMPTY) {
                self.place(addr, value);
            }
        }
        self.place(addr, value);
        self.used += 1;
    }

    pub fn remove(&mut self, addr: u64) -> Option<u32> {
        let mut at = self.home(addr)?;
        while self.slots[at].0 != addr || self.slots[at].1 == EMPTY {
            if self.slots[at].1 == EMPTY {
                return None;
            }
            at = self.after(at);
        }
        let value = self.slots[at].1;
        self.used -= 1;
        // What was pushed past the gap moves back into it (Knuth, vol. 3, 6.4, algorithm R).
        let mut next = self.after(at);
        while self.slots[next].1 != EMPTY {
            let home = self.home(self.slots[next].0)?;
            let mask = self.slots.len() - 1;
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(at) & mask {
                self.slots[at] = self.slots[next];
                at = next;
            }
            next = self.after(next);
        }
        self.slots[at].1 = EMPTY;
        Some(value)
    }

    /// Everything in it, as it is now.
    pub fn all(&self) -> Vec<(u64, u32)> {
        let full = self.slots.iter().filter(|(_, value)| *value != EMPTY);
        full.copied().collect()
    }

    fn place(&mut self, addr: u64, value: u32) {
        let Some(mut at) = self.home(addr) else {
            return;
        };
        while self.slots[at].1 != EMPTY {
            at = self.after(at);
        }
        self.slots[at] = (addr, value);
    }

    #[inline]
    fn home(&self, addr: u64) -> Option<usize> {
        let bits = self.slots.len().checked_ilog2()?;
        // Blocks start at multiples of some power of two: only the high bits of the product mix all.
        Some((addr.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits)) as usize)
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::pool::oracle::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn a_table_is_a_map() {
        let mut rng = Rng::new(7);
        let (mut table, mut map) = (Table::default(), BTreeMap::new());
        assert_eq!((table.get(256), table.remove(256)), (None, None));
        for step in 0..20_000 {
            let addr = 256 * rng.below(300);
            match map.remove(&addr) {
                Some(value) if rng.chance(60) => assert_eq!(table.remove(addr), Some(value)),
                Some(value) => {
                    map.insert(addr, value);
                }
                None => {
                    assert_eq!(table.remove(addr), None);
                    table.insert(addr, step);
                    map.insert(addr, step);
                }
            }
            let probe = 256 * rng.below(300);
            assert_eq!(table.get(probe), map.get(&probe).copied());
        }
        let mut all = table.all();
        all.sort_unstable();
        assert_eq!(all, map.into_iter().collect::<Vec<_>>());
    }
}

//! Addresses that gathered memory has left, and where it went.
//!
//! Owns what still leads to a page besides its present address. Such an address is given back once
//! nothing uses it, except that records and plans name addresses of their time: as long as there are
//! any, all of them stay and lead where they led. No address means two pages meanwhile.

use crate::pool::provider::Slab;
use crate::timeline::Frontier;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct Old {
    /// What may still be used, and until when.
    pending: Vec<(Slab, Frontier)>,
    /// What nothing uses, and a plan may again.
    kept: Vec<Slab>,
    kept_bytes: u64,
    /// Where what was left by its memory led then: its start, its bytes and the new address.
    moves: BTreeMap<u64, (u64, u64)>,
}

impl Old {
    /// The memory at `from` is at `to` now; what was enqueued before `death` still uses the old address.
    pub fn moved(&mut self, from: Slab, to: u64, death: Frontier) {
        self.pending.push((from, death));
        self.moves.insert(from.base, (from.bytes, to));
    }

    /// How many may still be used.
    pub fn pending(&self) -> u64 {
        self.pending.len() as u64
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.kept.is_empty()
    }

    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// What is used within a range is used until `death`.
    pub fn used(&mut self, range: Slab, death: &Frontier) {
        let meets = |slab: &Slab| slab.base < range.end() && slab.end() > range.base;
        for (slab, until) in &mut self.pending {
            if meets(slab) {
                until.join(death);
            }
        }
        for slab in self.kept.extract_if(.., |slab| meets(slab)) {
            self.kept_bytes -= slab.bytes;
            self.pending.push((slab, death.clone()));
        }
    }

    /// What has completed is used by nothing.
    pub fn expire(&mut self) {
        let done = self
            .pending
            .extract_if(.., |(_, death)| death.is_complete());
        for (slab, _) in done {
            self.kept_bytes += slab.bytes;
            self.kept.push(slab);
        }
    }

    /// What can be given back once there are no plans, except what `stays`.
    pub fn give_up(&mut self, stays: impl Fn(&Slab) -> bool) -> Vec<Slab> {
        self.moves.clear();
        let gone: Vec<Slab> = self.kept.extract_if(.., |slab| !stays(slab)).collect();
        self.kept_bytes -= gone.iter().map(|slab| slab.bytes).sum::<u64>();
        gone
    }

    /// The present addresses of what was at these once, in their order.
    pub fn present(&self, mut slab: Slab, out: &mut Vec<Slab>) {
        while slab.bytes > 0 {
            let before = self.moves.range(..=slab.base).next_back();
            let within = before.filter(|(base, (bytes, _))| slab.base < *base + bytes);
            let bytes = match within {
                Some((base, (bytes, to))) => {
                    let at = slab.base - base;
                    let part = slab.bytes.min(bytes - at);
                    let moved = Slab {
                        base: to + at,
                        bytes: part,
                    };
                    self.present(moved, out);
                    part
                }
                None => {
                    let next = self.moves.range(slab.base..slab.end()).next();
                    let bytes = next.map_or(slab.bytes, |(base, _)| base - slab.base);
                    match out.last_mut() {
                        Some(last) if last.end() == slab.base => last.bytes += bytes,
                        _ => out.push(Slab {
                            base: slab.base,
                            bytes,
                        }),
                    }
                    bytes
                }
            };
            slab.base += bytes;
            slab.bytes -= bytes;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn slab(base: u64, bytes: u64) -> Slab {
        Slab { base, bytes }
    }

    fn present(old: &Old, base: u64, bytes: u64) -> Vec<Slab> {
        let mut out = Vec::new();
        old.present(slab(base, bytes), &mut out);
        out
    }

    #[test]
    fn memory_is_found_however_often_it_moved() {
        let mut old = Old::default();
        assert_eq!(present(&old, 100, 50), [slab(100, 50)]);
        old.moved(slab(100, 20), 500, Frontier::new());
        old.moved(slab(140, 20), 520, Frontier::new());
        old.moved(slab(510, 20), 900, Frontier::new());
        let all = [
            slab(90, 10),
            slab(500, 10),
            slab(900, 10),
            slab(120, 20),
            slab(910, 10),
            slab(530, 10),
            slab(160, 5),
        ];
        assert_eq!(present(&old, 90, 75), all);
        assert_eq!(present(&old, 505, 10), [slab(505, 5), slab(900, 5)]);
        assert_eq!(present(&old, 900, 20), [slab(900, 20)]);
    }

    #[test]
    fn what_a_plan_may_use_stays() {
        let mut old = Old::default();
        old.moved(slab(100, 20), 500, Frontier::new());
        old.moved(slab(200, 20), 600, Frontier::new());
        assert_eq!(old.pending(), 2);
        old.expire();
        assert_eq!((old.pending(), old.kept_bytes()), (0, 40));
        old.used(slab(90, 11), &Frontier::new());
        assert_eq!((old.pending(), old.kept_bytes()), (1, 20));
        old.expire();
        assert_eq!(old.give_up(|old| old.base == 200), [slab(100, 20)]);
        assert!(!old.is_empty());
        assert_eq!(present(&old, 100, 20), [slab(100, 20)]);
        assert_eq!(old.give_up(|_| false), [slab(200, 20)]);
        assert!(old.is_empty());
    }
}

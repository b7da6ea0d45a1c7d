//! Address aliases: addresses that remapped pages have left, and where the pages are now.
//!
//! An alias is retired once no submitted command uses it. Aliases that a replay plan or an allocation trace
//! may name are kept, within a limit. No address leads to two pages at once.

use crate::pool::heap::range_map::RangeMap;
use crate::pool::provider::Slab;
use crate::timeline::Frontier;

#[derive(Debug, Default)]
pub(crate) struct AddressAliases {
    /// Aliases that submitted commands may use, until the frontier is complete.
    pending: Vec<(Slab, Frontier)>,
    /// Aliases that no command uses but a replay plan may.
    kept: Vec<Slab>,
    kept_bytes: u64,
    /// The distance by which the memory of an alias moved, modulo 2^64.
    moves: RangeMap<u64>,
}

impl AddressAliases {
    /// The memory at `from` is at `to` now. Commands up to `death` use the alias.
    pub fn add(&mut self, from: Slab, to: u64, death: Frontier) {
        self.moves.insert(from, to.wrapping_sub(from.base));
        self.pending.push((from, death));
    }

    /// Number of aliases that submitted commands may use.
    pub fn pending(&self) -> u64 {
        self.pending.len() as u64
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.kept.is_empty()
    }

    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// Commands up to `death` use aliases within a range.
    pub fn extend_use(&mut self, range: Slab, death: &Frontier) {
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

    /// Keeps the aliases whose last use has completed.
    pub fn expire(&mut self) {
        let is_done = |own: &mut (Slab, Frontier)| own.1.is_complete();
        for (slab, _) in self.pending.extract_if(.., is_done) {
            self.kept_bytes += slab.bytes;
            self.kept.push(slab);
        }
    }

    /// Removes the kept aliases, once no replay plan names them, except those that `stays` selects.
    pub fn take_unused(&mut self, stays: impl Fn(&Slab) -> bool) -> Vec<Slab> {
        self.moves.clear();
        let gone: Vec<Slab> = self.kept.extract_if(.., |slab| !stays(slab)).collect();
        self.kept_bytes -= gone.iter().map(|slab| slab.bytes).sum::<u64>();
        let kept = self.kept.iter().map(|slab| slab.bytes);
        debug_assert_eq!(kept.sum::<u64>(), self.kept_bytes, "bytes of aliases");
        gone
    }

    /// Appends the present addresses of a range of aliases to `out`, in order.
    pub fn resolve(&self, slab: Slab, out: &mut Vec<Slab>) {
        for (mut part, distance) in self.moves.parts(slab) {
            if let Some(distance) = distance {
                part.base = part.base.wrapping_add(distance);
                self.resolve(part, out);
                continue;
            }
            match out.last_mut() {
                Some(last) if last.end() == part.base => last.bytes += part.bytes,
                _ => out.push(part),
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn slab(base: u64, bytes: u64) -> Slab {
        Slab { base, bytes }
    }

    fn resolve(aliases: &AddressAliases, base: u64, bytes: u64) -> Vec<Slab> {
        let mut out = Vec::new();
        aliases.resolve(slab(base, bytes), &mut out);
        out
    }

    #[test]
    fn an_alias_resolves_however_often_memory_moved() {
        let mut aliases = AddressAliases::default();
        assert_eq!(resolve(&aliases, 100, 50), [slab(100, 50)]);
        aliases.add(slab(100, 20), 500, Frontier::new());
        aliases.add(slab(140, 20), 520, Frontier::new());
        aliases.add(slab(510, 20), 900, Frontier::new());
        let all = [
            slab(90, 10),
            slab(500, 10),
            slab(900, 10),
            slab(120, 20),
            slab(910, 10),
            slab(530, 10),
            slab(160, 5),
        ];
        assert_eq!(resolve(&aliases, 90, 75), all);
        assert_eq!(resolve(&aliases, 505, 10), [slab(505, 5), slab(900, 5)]);
        assert_eq!(resolve(&aliases, 900, 20), [slab(900, 20)]);
    }

    #[test]
    fn aliases_of_a_plan_stay() {
        let mut aliases = AddressAliases::default();
        aliases.add(slab(100, 20), 500, Frontier::new());
        aliases.add(slab(200, 20), 600, Frontier::new());
        assert_eq!(aliases.pending(), 2);
        aliases.expire();
        assert_eq!((aliases.pending(), aliases.kept_bytes()), (0, 40));
        aliases.extend_use(slab(90, 11), &Frontier::new());
        assert_eq!((aliases.pending(), aliases.kept_bytes()), (1, 20));
        aliases.expire();
        assert_eq!(
            aliases.take_unused(|aliases| aliases.base == 200),
            [slab(100, 20)]
        );
        assert!(!aliases.is_empty());
        assert_eq!(resolve(&aliases, 100, 20), [slab(100, 20)]);
        assert_eq!(aliases.take_unused(|_| false), [slab(200, 20)]);
        assert!(aliases.is_empty());
    }
}

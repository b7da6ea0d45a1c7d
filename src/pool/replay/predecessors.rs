//! Which blocks of a replay plan had a block's memory before it.

use crate::pool::provider::Slab;
use std::collections::BTreeMap;

/// For each block of an iteration, in order of allocation, the blocks that last had a part of its memory.
/// Where that is none of the same iteration, it is one of the iteration before, which was alike.
///
/// `find` reports the present addresses of the memory of a block by its number. Returns pairs of a block and
/// a predecessor, sorted.
pub(super) fn predecessors(count: u32, find: impl Fn(u32, &mut Vec<Slab>)) -> Vec<(u32, u32)> {
    let (mut last, mut slabs) = (LastUses::default(), Vec::new());
    let (mut found, mut unused) = (Vec::new(), Vec::new());
    for block in 0..count {
        slabs.clear();
        find(block, &mut slabs);
        for slab in &slabs {
            last.replace(*slab, block, &mut found, &mut unused);
        }
    }
    for (slab, block) in unused {
        let before = last.within(slab).map(|before| (block, before));
        found.extend(before);
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The block that used each range last: its start, its end and the block.
#[derive(Default)]
struct LastUses(BTreeMap<u64, (u64, u32)>);

impl LastUses {
    /// `block` uses a range now. Adds the blocks that used it before to `found`, and its parts that no block
    /// had used to `unused`.
    fn replace(
        &mut self,
        slab: Slab,
        block: u32,
        found: &mut Vec<(u32, u32)>,
        unused: &mut Vec<(Slab, u32)>,
    ) {
        if let Some((end, other)) = self.0.get_mut(&slab.base)
            && *end == slab.end()
        {
            // Mostly: a block of that size again.
            found.push((block, std::mem::replace(other, block)));
            return;
        }
        let mut skip = |base, end: u64| {
            let bytes = end - base;
            unused.push((Slab { base, bytes }, block));
        };
        if let Some((base, (end, other))) = self.around(slab.base) {
            self.0.insert(base, (slab.base, other));
            self.0.insert(slab.base, (end, other));
        }
        let mut at = slab.base;
        while let Some((base, (end, other))) = self.0.range(slab.base..slab.end()).next() {
            let (base, end, other) = (*base, *end, *other);
            if base > at {
                skip(at, base);
            }
            found.push((block, other));
            self.0.remove(&base);
            if end > slab.end() {
                self.0.insert(slab.end(), (end, other));
            }
            at = end.min(slab.end());
        }
        if at < slab.end() {
            skip(at, slab.end());
        }
        self.0.insert(slab.base, (slab.end(), block));
    }

    /// The use that begins before an address and ends behind it.
    fn around(&self, addr: u64) -> Option<(u64, (u64, u32))> {
        let before = self.0.range(..addr).next_back();
        let before = before.filter(|(_, (end, _))| *end > addr);
        before.map(|(base, rest)| (*base, *rest))
    }

    /// The blocks that used a range last.
    fn within(&self, slab: Slab) -> impl Iterator<Item = u32> {
        let inside = self.0.range(slab.base..slab.end());
        let around = self.around(slab.base).map(|(_, (_, block))| block);
        around
            .into_iter()
            .chain(inside.map(|(_, (_, block))| *block))
    }
}

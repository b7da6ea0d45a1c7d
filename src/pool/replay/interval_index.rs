//! The blocks of a replay plan by their addresses, and ranges of addresses.

use crate::pool::provider::Slab;
use crate::pool::request::Block;

/// The addresses of a block.
#[derive(Clone, Copy, Debug)]
struct Interval {
    addr: u64,
    end: u64,
    /// The last end of all intervals that start no later.
    last_end: u64,
    block: u32,
}

/// Blocks that are live at different times, by address.
#[derive(Debug)]
pub(super) struct IntervalIndex(Vec<Interval>);

impl IntervalIndex {
    pub fn new<'a>(blocks: impl Iterator<Item = &'a Block>) -> Self {
        let interval = |(block, nth): (&Block, u32)| Interval {
            addr: block.addr,
            end: block.addr + block.bytes,
            last_end: 0,
            block: nth,
        };
        let mut all: Vec<Interval> = blocks.zip(0..).map(interval).collect();
        all.sort_unstable_by_key(|own| own.addr);
        let mut last_end = 0;
        for own in &mut all {
            last_end = last_end.max(own.end);
            own.last_end = last_end;
        }
        Self(all)
    }

    /// The blocks that have an address in common with a range.
    pub fn meeting(&self, range: Slab) -> impl Iterator<Item = usize> {
        let before = self.0.partition_point(|own| own.addr < range.end());
        let near = self.0[..before].iter().rev();
        let near = near.take_while(move |own| own.last_end > range.base);
        near.filter(move |own| own.end > range.base)
            .map(|own| own.block as usize)
    }

    /// The blocks that start at an address.
    pub fn starting_at(&self, addr: u64) -> impl Iterator<Item = usize> {
        let first = self.0.partition_point(|own| own.addr < addr);
        let there = self.0[first..].iter();
        let there = there.take_while(move |own| own.addr == addr);
        there.map(|own| own.block as usize)
    }

    /// Whether some block starts before an address and ends behind it.
    pub fn goes_beyond(&self, addr: u64) -> bool {
        let before = self.0.partition_point(|own| own.addr < addr);
        before > 0 && self.0[before - 1].last_end > addr
    }
}

/// The addresses of all these blocks, ascending and without overlap.
pub(crate) fn ranges(blocks: &[Block]) -> Vec<Slab> {
    union(blocks.iter().map(Block::range).collect())
}

/// The addresses of all these slabs, ascending and without overlap.
pub(crate) fn union(mut slabs: Vec<Slab>) -> Vec<Slab> {
    slabs.sort_unstable_by_key(|slab| slab.base);
    let mut out: Vec<Slab> = Vec::new();
    for slab in slabs {
        match out.last_mut() {
            Some(last) if last.end() >= slab.base => {
                last.bytes = last.end().max(slab.end()) - last.base;
            }
            _ => out.push(slab),
        }
    }
    out
}

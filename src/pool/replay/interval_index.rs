//! Where the blocks of a plan lie, by their addresses.

use crate::pool::replay::Planned;
use crate::pool::request::Block;
use crate::pool::source::Slab;

/// The logarithm of how many places are remembered while all are collected.
const RECENT: u32 = 9;

/// Where a block of a plan lies, by addresses.
#[derive(Clone, Copy, Debug)]
struct Spot {
    addr: u64,
    end: u64,
    /// The last end of those that start no later.
    reach: u64,
    block: u32,
}

/// Where blocks lie that are live at different times, ascending.
#[derive(Debug)]
pub(super) struct Spots(Vec<Spot>);

impl Spots {
    pub fn new(blocks: &[Planned]) -> Self {
        let spot = |(planned, nth): (&Planned, u32)| Spot {
            addr: planned.block.addr,
            end: planned.block.addr + planned.block.bytes,
            reach: 0,
            block: nth,
        };
        let mut spots: Vec<Spot> = blocks.iter().zip(0..).map(spot).collect();
        spots.sort_unstable_by_key(|spot| spot.addr);
        let mut reach = 0;
        for spot in &mut spots {
            reach = reach.max(spot.end);
            spot.reach = reach;
        }
        Self(spots)
    }

    /// The blocks that hold an address.
    pub fn around(&self, addr: u64) -> impl Iterator<Item = usize> {
        let before = self.0.partition_point(|spot| spot.addr <= addr);
        let near = self.0[..before].iter().rev();
        let near = near.take_while(move |spot| spot.reach > addr);
        near.filter(move |spot| spot.end > addr)
            .map(|spot| spot.block as usize)
    }

    /// The blocks that start at an address.
    pub fn starting_at(&self, addr: u64) -> impl Iterator<Item = usize> {
        let first = self.0.partition_point(|spot| spot.addr < addr);
        let there = self.0[first..].iter();
        let there = there.take_while(move |spot| spot.addr == addr);
        there.map(|spot| spot.block as usize)
    }

    /// Whether some block starts before this end and goes beyond it.
    pub fn goes_beyond(&self, end: u64) -> bool {
        let before = self.0.partition_point(|spot| spot.addr < end);
        before > 0 && self.0[before - 1].reach > end
    }
}

/// The addresses of all these together, ascending and without overlap.
pub(crate) fn ranges<'a>(blocks: impl Iterator<Item = &'a Block>) -> Vec<Slab> {
    // The same place comes again and again, mostly soon.
    let mut recent = [(0, 0); 1 << RECENT];
    let mut all: Vec<Slab> = Vec::new();
    for block in blocks {
        let spread = block.addr.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - RECENT);
        let recent = &mut recent[spread as usize];
        if *recent != (block.addr, block.bytes) {
            *recent = (block.addr, block.bytes);
            all.push(extent(block));
        }
    }
    union(all)
}

/// The same memory, ascending and without overlap.
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

pub(crate) fn extent(block: &Block) -> Slab {
    Slab {
        base: block.addr,
        bytes: block.bytes,
    }
}

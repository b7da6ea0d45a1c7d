//! What several lanes ask of a pool again and again, each in turn.
//!
//! Lanes that have the same memory one after the other cannot each keep it for themselves. A [`Joint`] is
//! their records as one, in the order in which everything was, and kept by the pool. It serves as long as
//! that order comes again and each request comes after what its memory was last: by its dependencies, or
//! as that has completed.

use super::{ALLOC, Plan, Planned};
use crate::pool::request::{Block, Order, Reuse};
use crate::pool::source::Slab;
use crate::timeline::{Frontier, LaneId};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct Joint {
    /// Epochs in it are numbers of frees here.
    pub plan: Plan,
    parts: Vec<Part>,
    /// What `Part::before` is a range of.
    before: Vec<u32>,
    frees: u64,
}

/// What else there is of a block.
#[derive(Debug)]
struct Part {
    lane: LaneId,
    /// The blocks that its memory was before, from here to where the next one's begin.
    before: u32,
    /// Until when it was used last.
    death: Frontier,
}

/// What a lane did in a lap: when each operation was, and what, by the numbers of its blocks.
#[derive(Debug)]
pub(crate) struct Lap {
    pub lane: LaneId,
    pub ops: Vec<(u64, u32)>,
    pub blocks: Vec<Block>,
}

impl Lap {
    /// When it began, and for how many bytes its first request was.
    pub fn start(&self) -> (u64, u64) {
        (self.ops[0].0, self.blocks[0].requested)
    }
}

impl Joint {
    /// Of a lap of each lane. `find` tells where the memory of a block is.
    pub fn new(laps: &[Lap], find: impl Fn(&Block, &mut Vec<Slab>)) -> Self {
        let ops = laps.iter().enumerate();
        let ops =
            ops.flat_map(|(lap, own)| own.ops.iter().map(move |(stamp, op)| (stamp, lap, op)));
        let mut merged: Vec<(&u64, usize, &u32)> = ops.collect();
        merged.sort_unstable();
        // What each lap's blocks are here.
        let mut names: Vec<Vec<u32>> = vec![Vec::new(); laps.len()];
        let (mut ops, mut blocks) = (Vec::with_capacity(merged.len()), Vec::new());
        for (_, lap, op) in merged {
            let (own, names) = (&laps[lap], &mut names[lap]);
            ops.push(match *op {
                ALLOC => {
                    let nth = names.len();
                    names.push(blocks.len() as u32);
                    blocks.push((own.lane, own.blocks[nth]));
                    ALLOC
                }
                block => names[block as usize],
            });
        }
        let (mut uses, mut slabs) = (Uses::default(), Vec::new());
        let (mut found, mut bare) = (Vec::new(), Vec::new());
        for (nth, (_, block)) in (0..).zip(&blocks) {
            slabs.clear();
            find(block, &mut slabs);
            for slab in &slabs {
                uses.become_of(*slab, nth, &mut found, &mut bare);
            }
        }
        // What a block's memory was in the lap before is known at the end of the lap.
        for (slab, nth) in bare {
            uses.of(slab, |before| found.push((nth, before)));
        }
        found.sort_unstable();
        found.dedup();
        let mut before = Vec::with_capacity(found.len());
        let mut found = found.into_iter().peekable();
        let mut parts = Vec::with_capacity(blocks.len());
        for (nth, (lane, _)) in (0..).zip(&blocks) {
            parts.push(Part {
                lane: *lane,
                before: before.len() as u32,
                death: Frontier::new(),
            });
            while let Some((_, other)) = found.next_if(|(of, _)| *of == nth) {
                before.push(other);
            }
        }
        let blocks = blocks.into_iter().map(|(_, block)| Planned::new(block));
        Self {
            plan: Plan::of(ops, blocks.collect(), Vec::new()),
            parts,
            before,
            frees: 0,
        }
    }

    /// Whose block comes next, and for how many bytes its request is.
    pub fn next(&self) -> Option<(LaneId, u64)> {
        let nth = self.plan.block;
        Some((
            self.parts.get(nth)?.lane,
            self.plan.blocks[nth].block.requested,
        ))
    }

    /// The block that comes next is live, if it is that lane's for so many bytes and the order comes after
    /// all that its memory was; and what makes that so. If not, the plan has come to its end.
    pub fn take(
        &mut self,
        lane: LaneId,
        requested: u64,
        order: &Order<'_>,
    ) -> Option<(Block, Reuse)> {
        let nth = self.plan.block;
        let own = self.parts.get(nth)?;
        let end = self
            .parts
            .get(nth + 1)
            .map_or(self.before.len(), |next| next.before as usize);
        let before = &self.before[own.before as usize..end];
        if own.lane != lane {
            return None;
        }
        let mut reuse = Reuse::OwnLane;
        for nth in before {
            let Part {
                lane: last, death, ..
            } = &self.parts[*nth as usize];
            if !order.admits(death) {
                return None;
            }
            if *last != lane {
                reuse = match death.is_complete() {
                    true => Reuse::Completed,
                    false if reuse == Reuse::OwnLane => Reuse::Ordered,
                    false => reuse,
                };
            }
        }
        let (block, _) = self.plan.take(requested, u64::MAX).ok()?;
        Some((block, reuse))
    }

    /// Ends the live block at an address, used until `death`, if that is what comes next.
    pub fn put(&mut self, addr: u64, death: &Frontier) -> Option<Block> {
        let nth = self.plan.ops[self.plan.next];
        let block = self.plan.put(addr, self.frees)?;
        self.died(nth as usize, death);
        Some(block)
    }

    /// The same if it comes earlier than then.
    pub fn put_early(&mut self, addr: u64, death: &Frontier) -> Option<Block> {
        let nth = self.plan.live_at(addr)?;
        let block = self.plan.put_early(addr, self.frees)?;
        self.died(nth, death);
        Some(block)
    }

    fn died(&mut self, nth: usize, death: &Frontier) {
        self.frees += 1;
        let last = &mut self.parts[nth].death;
        last.clone_from(death);
        last.prune();
    }

    /// Until when a block was used last.
    pub fn death(&self, nth: usize) -> &Frontier {
        &self.parts[nth].death
    }
}

/// Which block was where last: where each stretch starts, where it ends, and of which.
#[derive(Default)]
struct Uses(BTreeMap<u64, (u64, u32)>);

impl Uses {
    /// A stretch is a block's from now on: whose it was, and what of it was nobody's.
    fn become_of(
        &mut self,
        slab: Slab,
        nth: u32,
        found: &mut Vec<(u32, u32)>,
        bare: &mut Vec<(Slab, u32)>,
    ) {
        let mut at = slab.base;
        let before = self.0.range(..slab.base).next_back();
        let around = before.filter(|(_, (end, _))| *end > slab.base);
        if let Some((base, (end, other))) = around.map(|(base, rest)| (*base, *rest)) {
            self.0.insert(base, (slab.base, other));
            self.0.insert(slab.base, (end, other));
        }
        while let Some((base, (end, other))) = self.0.range(slab.base..slab.end()).next() {
            let (base, end, other) = (*base, *end, *other);
            if base > at {
                let bytes = base - at;
                bare.push((Slab { base: at, bytes }, nth));
            }
            found.push((nth, other));
            self.0.remove(&base);
            if end > slab.end() {
                self.0.insert(slab.end(), (end, other));
            }
            at = end.min(slab.end());
        }
        if at < slab.end() {
            let bytes = slab.end() - at;
            bare.push((Slab { base: at, bytes }, nth));
        }
        self.0.insert(slab.base, (slab.end(), nth));
    }

    fn of(&self, slab: Slab, mut each: impl FnMut(u32)) {
        let before = self.0.range(..slab.base).next_back();
        let before = before.filter(|(_, (end, _))| *end > slab.base);
        let within = self.0.range(slab.base..slab.end());
        before
            .into_iter()
            .chain(within)
            .for_each(|(_, (_, nth))| each(*nth));
    }
}

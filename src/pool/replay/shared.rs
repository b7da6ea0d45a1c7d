//! What several lanes ask of a pool again and again, each in turn.
//!
//! Lanes that have the same memory one after the other cannot each keep it for themselves. A [`Joint`] is
//! their records as one, in the order in which everything was, and kept by the pool. It serves as long as
//! that order comes again and each request comes after what its memory was last: by its dependencies, or
//! as that has completed.

use crate::pool::cache::{Miss, Taken};
use crate::pool::replay::{ALLOC, Plan, Planned};
use crate::pool::request::{Block, Order, Reuse};
use crate::pool::source::Slab;
use crate::pool::stats::Counters;
use crate::timeline::rank;
use crate::timeline::sync::Brief;
use crate::timeline::{Clock, Frontier, Point};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The plan that lanes have together, shared by the pool and their stashes, whose locks come before this.
pub(crate) type Shared = Arc<Brief<Joint, { rank::JOINT_PLAN }>>;

/// A lane's part in it.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub joint: Shared,
    /// The lane's place among all.
    pub place: u32,
}

#[derive(Debug)]
pub(crate) struct Joint {
    /// Epochs in it are numbers of frees here.
    pub plan: Plan,
    lanes: Vec<Arc<Clock>>,
    parts: Vec<Part>,
    /// What `Part::before` is a range of.
    before: Vec<u32>,
    /// Blocks that were last used on other lanes than their own, or on several, until then.
    elsewhere: HashMap<u32, Frontier>,
    frees: u64,
    /// Most bytes live at once.
    pub peak: u64,
    /// Bytes live, and what they may rise to without asking.
    pub live: u64,
    pub credit: u64,
    pub served: Counters,
}

/// What else there is of a block.
#[derive(Debug)]
struct Part {
    /// Whose it is.
    place: u32,
    /// The blocks that its memory was before, from here to where the next one's begin.
    before: u32,
    /// Until when that lane used it last, or [`ELSEWHERE`].
    epoch: u64,
}

const ELSEWHERE: u64 = u64::MAX;

/// What a lane did in a lap: when each operation was, and what, by the numbers of its blocks.
#[derive(Debug)]
pub(crate) struct Lap {
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
    pub fn new(
        lanes: Vec<Arc<Clock>>,
        laps: &[Lap],
        find: impl Fn(&Block, &mut Vec<Slab>),
    ) -> Self {
        let (ops, blocks) = merge(laps);
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
        for (nth, (place, _)) in (0..).zip(&blocks) {
            parts.push(Part {
                place: *place,
                before: before.len() as u32,
                epoch: 0,
            });
            while let Some((_, other)) = found.next_if(|(of, _)| *of == nth) {
                before.push(other);
            }
        }
        let blocks = blocks.into_iter().map(|(_, block)| Planned::new(block));
        let blocks: Vec<Planned> = blocks.collect();
        Self {
            peak: peak(&ops, &blocks),
            plan: Plan::of(ops, blocks, Vec::new()),
            lanes,
            parts,
            before,
            elsewhere: HashMap::new(),
            frees: 0,
            live: 0,
            credit: 0,
            served: Counters::default(),
        }
    }

    /// Whose block comes next, and for how many bytes its request is.
    pub fn next(&self) -> Option<(u32, u64)> {
        let nth = self.plan.block;
        let block = &self.plan.blocks[nth].block;
        Some((self.parts.get(nth)?.place, block.requested))
    }

    /// The size of the block that comes next.
    pub fn next_bytes(&self) -> u64 {
        let next = self.plan.blocks.get(self.plan.block);
        next.map_or(0, |next| next.block.bytes)
    }

    /// The block that comes next is live, if it is that lane's for so many bytes and all that its memory
    /// was has completed, was used by the same lane, or comes before the order; whether an allocation may
    /// end earlier by that, and what makes it legal. If it is another, the plan has come to its end.
    #[inline]
    pub fn take(
        &mut self,
        place: u32,
        requested: u64,
        order: Option<&Order<'_>>,
    ) -> Taken<(Block, bool, Reuse)> {
        let nth = self.plan.block;
        let own = self.parts.get(nth).filter(|own| own.place == place);
        let own = own.ok_or(Miss::NoBlock)?;
        let end = self
            .parts
            .get(nth + 1)
            .map_or(self.before.len(), |next| next.before as usize);
        let (mut ordered, mut completed) = (false, false);
        for nth in &self.before[own.before as usize..end] {
            let last = &self.parts[*nth as usize];
            if last.place == place && last.epoch != ELSEWHERE {
                continue;
            }
            if self.is_complete(*nth) {
                completed = true;
            } else if order.is_some_and(|order| order.admits(&self.death(*nth))) {
                ordered = true;
            } else {
                return Err(Miss::NoBlock);
            }
        }
        let room = self.credit - self.live;
        let (block, ends_first) = self.plan.take(requested, room)?;
        self.live += block.bytes;
        self.served.planned += 1;
        self.served.planned_jointly += 1;
        let (reuse, counter) = match (ordered, completed) {
            (_, true) => (Reuse::Completed, &mut self.served.completed),
            (true, false) => (Reuse::Ordered, &mut self.served.ordered),
            (false, false) => (Reuse::OwnLane, &mut self.served.own_lane),
        };
        *counter += 1;
        Ok((block, ends_first, reuse))
    }

    /// Ends the lane's live block at an address at its `epoch`, if that is what comes next.
    #[inline]
    pub fn put(&mut self, place: u32, addr: u64, epoch: u64) -> Option<Block> {
        let nth = self.plan.ops[self.plan.next];
        self.parts
            .get(nth as usize)
            .filter(|own| own.place == place)?;
        let block = self.plan.put(addr, self.frees)?;
        self.died(nth, &block, epoch);
        self.served.releases += 1;
        Some(block)
    }

    /// The same if it comes earlier than then.
    pub fn put_early(&mut self, place: u32, addr: u64, epoch: u64) -> Option<Block> {
        let nth = self.plan.live_at(addr)?;
        if self.parts[nth].place != place {
            return None;
        }
        let block = self.plan.put_early(addr, self.frees)?;
        self.died(nth as u32, &block, epoch);
        self.served.releases += 1;
        Some(block)
    }

    /// The same of any lane's, used until `death`.
    pub fn put_until(&mut self, addr: u64, death: &Frontier) -> Option<Block> {
        let next = self.plan.ops[self.plan.next];
        let (nth, block) = match self.plan.put(addr, self.frees) {
            Some(block) => (next, block),
            None => {
                let nth = self.plan.live_at(addr)?;
                (nth as u32, self.plan.put_early(addr, self.frees)?)
            }
        };
        self.died(nth, &block, ELSEWHERE);
        let mut death = death.clone();
        death.prune();
        self.elsewhere.insert(nth, death);
        Some(block)
    }

    #[inline]
    fn died(&mut self, nth: u32, block: &Block, epoch: u64) {
        self.frees += 1;
        self.live -= block.bytes;
        let last = &mut self.parts[nth as usize].epoch;
        if std::mem::replace(last, epoch) == ELSEWHERE {
            self.elsewhere.remove(&nth);
        }
    }

    #[inline]
    fn is_complete(&self, nth: u32) -> bool {
        let last = &self.parts[nth as usize];
        match last.epoch {
            ELSEWHERE => self.elsewhere.get(&nth).is_none_or(Frontier::is_complete),
            epoch => epoch <= self.lanes[last.place as usize].reliable(),
        }
    }

    /// Until when a block was used last, as far as that has not completed.
    pub fn death(&self, nth: u32) -> Frontier {
        let last = &self.parts[nth as usize];
        match last.epoch {
            _ if self.is_complete(nth) => Frontier::new(),
            ELSEWHERE => self.elsewhere.get(&nth).cloned().unwrap_or_default(),
            epoch => Frontier::from(Point::new(&self.lanes[last.place as usize], epoch)),
        }
    }

    /// Gives up what nobody uses of the credit; how much that is.
    pub fn call_in(&mut self) -> u64 {
        let idle = self.credit - self.live;
        self.credit = self.live;
        idle
    }
}

/// What all lanes did, in the order in which it was, and each block's lane, by its place.
fn merge(laps: &[Lap]) -> (Vec<u32>, Vec<(u32, Block)>) {
    let ops = laps.iter().enumerate();
    let ops = ops.flat_map(|(lap, own)| own.ops.iter().map(move |(stamp, op)| (stamp, lap, op)));
    let mut merged: Vec<(&u64, usize, &u32)> = ops.collect();
    merged.sort_unstable();
    // What each lap's blocks are here.
    let mut names: Vec<Vec<u32>> = vec![Vec::new(); laps.len()];
    let (mut ops, mut blocks) = (Vec::with_capacity(merged.len()), Vec::new());
    for (_, lap, op) in merged {
        let names = &mut names[lap];
        ops.push(match *op {
            ALLOC => {
                let nth = names.len();
                names.push(blocks.len() as u32);
                blocks.push((lap as u32, laps[lap].blocks[nth]));
                ALLOC
            }
            block => names[block as usize],
        });
    }
    (ops, blocks)
}

fn peak(ops: &[u32], blocks: &[Planned]) -> u64 {
    let (mut live, mut peak, mut next) = (0, 0, 0);
    for op in ops {
        match *op {
            ALLOC => {
                live += blocks[next].block.bytes;
                next += 1;
            }
            nth => live -= blocks[nth as usize].block.bytes,
        }
        peak = peak.max(live);
    }
    peak
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

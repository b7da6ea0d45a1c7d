//! Replay plans: an iteration of one stream or several, with the memory of all its blocks.

use crate::pool::cache::{CacheResult, Miss, check_quota};
use crate::pool::heap::range_map::RangeMap;
use crate::pool::heap::segments::SegmentId;
use crate::pool::provider::Slab;
use crate::pool::replay::interval_index::IntervalIndex;
use crate::pool::replay::trace::{ALLOC, Iteration};
use crate::pool::request::{Block, Order, Reuse};
use crate::pool::stats::Counters;
use crate::sync::{Brief, rank};
use crate::timeline::{Clock, Frontier, Point};
use std::collections::HashMap;
use std::sync::Arc;

/// A plan as the pool and the stream caches share it. Their locks come before its own.
pub(crate) type SharedPlan = Arc<Brief<Plan, { rank::REPLAY_PLAN }>>;

/// A stream's part in a plan.
#[derive(Clone, Debug)]
pub(crate) struct Participant {
    pub plan: SharedPlan,
    /// The stream's place among the participants.
    pub index: u32,
}

/// Memory that is held for a plan: live to the heap, and no block.
#[derive(Debug)]
pub(crate) struct Held {
    pub slab: Slab,
    pub seg: SegmentId,
    /// What died there before: bytes and death.
    pub parts: Vec<(u64, Frontier)>,
}

/// A block of a plan.
#[derive(Debug)]
pub(crate) struct Planned {
    pub block: Block,
    pub live: bool,
    /// Another block of the plan ends later within its addresses.
    ends_first: bool,
    participant: u32,
    /// Where its predecessors begin in [`Plan::predecessors`].
    predecessors: u32,
    /// The number of its last free among those of the plan, or [`NEVER`].
    pub freed: u64,
    /// The participant's epoch at that free, or [`ELSEWHERE`].
    epoch: u64,
}

pub(crate) const NEVER: u64 = u64::MAX;
const ELSEWHERE: u64 = u64::MAX;

/// An iteration that is served again from the same addresses, request by request.
#[derive(Debug)]
pub(crate) struct Plan {
    ops: Vec<u32>,
    pub blocks: Vec<Planned>,
    index: IntervalIndex,
    /// The blocks that had a block's memory before it, for several participants.
    predecessors: Vec<u32>,
    participants: Vec<Arc<Clock>>,
    pub held: Vec<Held>,
    next_op: usize,
    next_block: usize,
    iterations: u64,
    /// Frees that came before their turn, and are still to be passed.
    early: usize,
    /// No further request can be served.
    diverged: bool,
    /// Frees so far.
    frees: u64,
    /// The last uses that were on other streams than the participant's.
    elsewhere: HashMap<u32, Frontier>,
    /// Most bytes live at once.
    pub peak: u64,
    /// Bytes live, and what they may rise to without a rise of the pool's high.
    pub live: u64,
    pub quota: u64,
    pub served: Counters,
}

impl Plan {
    /// A plan of an iteration of each participant. `find` reports where the memory of a block is now.
    pub fn new(
        participants: Vec<Arc<Clock>>,
        iterations: &[Iteration],
        find: impl Fn(&Block, &mut Vec<Slab>),
    ) -> Self {
        let (ops, mut blocks, peak) = merge(iterations);
        let found = match participants.len() {
            1 => Vec::new(),
            _ => predecessors(&blocks, find),
        };
        let index = IntervalIndex::new(blocks.iter().map(|own| &own.block));
        let mut next = 0;
        for (nth, own) in (0..).zip(&mut blocks) {
            own.ends_first = index.goes_beyond(own.block.addr + own.block.bytes);
            own.predecessors = next as u32;
            next += found[next..]
                .iter()
                .take_while(|(of, _)| *of == nth)
                .count();
        }
        Self {
            peak,
            ops,
            blocks,
            index,
            predecessors: found.into_iter().map(|(_, before)| before).collect(),
            participants,
            held: Vec::new(),
            next_op: 0,
            next_block: 0,
            iterations: 0,
            early: 0,
            diverged: false,
            frees: 0,
            elsewhere: HashMap::new(),
            live: 0,
            quota: 0,
            served: Counters::default(),
        }
    }

    pub fn is_shared(&self) -> bool {
        self.participants.len() > 1
    }

    /// Whether it served a whole iteration.
    pub fn has_served(&self) -> bool {
        self.iterations > 0
    }

    /// The size of the next block.
    pub fn next_bytes(&self) -> u64 {
        let next = self.blocks.get(self.next_block);
        next.map_or(0, |next| next.block.bytes)
    }

    /// Serves the next block if this is the request for it, and if all that had its memory before has
    /// completed, was on the same stream, or comes before `order`. Returns the block, whether an allocation
    /// may end earlier now than it did, and what allowed the reuse. A miss ends the plan, unless it is for
    /// quota or `order` was left out.
    #[inline]
    pub fn allocate(
        &mut self,
        participant: u32,
        requested: u64,
        order: Option<&Order<'_>>,
    ) -> CacheResult<(Block, bool, Reuse)> {
        let asked = self.ops[self.next_op] == ALLOC && !self.diverged;
        let next = self.blocks.get(self.next_block).filter(|_| asked);
        let is_it =
            |next: &&Planned| next.participant == participant && next.block.requested == requested;
        let next = next.filter(is_it).ok_or(Miss::NoBlock)?;
        let reuse = match self.participants.len() {
            1 => Reuse::OwnLane,
            _ => self.reuse(next, order).ok_or(Miss::NoBlock)?,
        };
        let (block, ends_first) = (next.block, next.ends_first);
        check_quota(block.bytes, self.quota - self.live)?;
        debug_assert!(
            self.live_in(block.range()).is_none(),
            "live blocks that overlap"
        );
        self.blocks[self.next_block].live = true;
        self.live += block.bytes;
        let shared = u64::from(self.is_shared());
        self.served.replayed += 1;
        self.served.replayed_shared += shared;
        self.served.count(reuse);
        self.next_block += 1;
        self.advance();
        Ok((block, ends_first, reuse))
    }

    /// What allows a participant to use the memory of its next block.
    fn reuse(&self, next: &Planned, order: Option<&Order<'_>>) -> Option<Reuse> {
        let end = self.blocks.get(self.next_block + 1);
        let end = end.map_or(self.predecessors.len(), |after| after.predecessors as usize);
        let mut reuse = Reuse::OwnLane;
        for nth in &self.predecessors[next.predecessors as usize..end] {
            let last = &self.blocks[*nth as usize];
            if last.participant == next.participant && last.epoch != ELSEWHERE {
                continue;
            }
            if self.is_complete(*nth) {
                reuse = Reuse::Completed;
            } else if !order?.admits(&self.death(*nth)) {
                return None;
            } else if reuse == Reuse::OwnLane {
                reuse = Reuse::Ordered;
            }
        }
        Some(reuse)
    }

    /// Ends the participant's live block that starts at an address, at its `epoch`.
    #[inline]
    pub fn free(&mut self, participant: u32, addr: u64, epoch: u64) -> Option<Block> {
        let nth = self.find(addr)?;
        if self.blocks[nth].participant != participant {
            return None;
        }
        self.served.releases += 1;
        Some(self.end(nth, epoch))
    }

    /// Ends the live block that starts at an address and is used until `death`.
    pub fn free_elsewhere(&mut self, addr: u64, death: &Frontier) -> Option<Block> {
        let nth = self.find(addr)?;
        let block = self.end(nth, ELSEWHERE);
        let mut death = death.clone();
        death.prune();
        self.elsewhere.insert(nth as u32, death);
        // A plan of one participant has no predecessors, by which later requests would wait for it.
        self.diverged |= !self.is_shared();
        Some(block)
    }

    /// A live block that has an address in common with a range.
    pub fn live_in(&self, range: Slab) -> Option<Block> {
        let mut meeting = self.index.meeting(range);
        let nth = meeting.find(|nth| self.blocks[*nth].live)?;
        Some(self.blocks[nth].block)
    }

    /// Whether the last use of a block has completed.
    fn is_complete(&self, nth: u32) -> bool {
        let own = &self.blocks[nth as usize];
        match own.epoch {
            ELSEWHERE => self.elsewhere.get(&nth).is_none_or(Frontier::is_complete),
            epoch => epoch <= self.participants[own.participant as usize].reliable(),
        }
    }

    /// The frontier after which the last use of a block is over.
    pub fn death(&self, nth: u32) -> Frontier {
        let own = &self.blocks[nth as usize];
        let clock = &self.participants[own.participant as usize];
        match own.epoch {
            _ if self.is_complete(nth) => Frontier::new(),
            ELSEWHERE => self.elsewhere.get(&nth).cloned().unwrap_or_default(),
            epoch => Frontier::from(Point::new(clock, epoch)),
        }
    }

    /// The frontier after which all uses of dead blocks are over.
    pub fn last_death(&self) -> Frontier {
        let dead = self.blocks.iter().filter(|own| own.freed != NEVER);
        let dead = dead.filter(|own| own.epoch != ELSEWHERE);
        let clock = |own: &Planned| &self.participants[own.participant as usize];
        let mut last: Frontier = dead.map(|own| Point::new(clock(own), own.epoch)).collect();
        last.prune();
        let elsewhere = self.elsewhere.values();
        elsewhere.for_each(|death| last.join(death));
        last
    }

    /// Gives up the quota that is not in use; how much that was.
    pub fn return_quota(&mut self) -> u64 {
        debug_assert!(self.live <= self.quota, "live beyond the quota");
        let idle = self.quota - self.live;
        self.quota = self.live;
        idle
    }

    /// The live block that starts at an address: mostly that of the next operation.
    #[inline]
    fn find(&self, addr: u64) -> Option<usize> {
        let is_it = |own: &Planned| own.live && own.block.addr == addr;
        let next = self.ops[self.next_op] as usize;
        match self.blocks.get(next).is_some_and(is_it) {
            true => Some(next),
            false => {
                let mut there = self.index.starting_at(addr);
                there.find(|nth| self.blocks[*nth].live)
            }
        }
    }

    /// Ends a live block. To free it earlier than in the iteration before does no harm.
    #[inline]
    fn end(&mut self, nth: usize, epoch: u64) -> Block {
        let own = &mut self.blocks[nth];
        let block = own.block;
        own.live = false;
        own.freed = self.frees;
        if std::mem::replace(&mut own.epoch, epoch) == ELSEWHERE {
            self.elsewhere.remove(&(nth as u32));
        }
        self.frees += 1;
        self.live -= block.bytes;
        match self.ops[self.next_op] as usize == nth {
            true => self.advance(),
            false => self.early += 1,
        }
        block
    }

    /// Passes an operation, and the frees behind it that came already.
    #[inline]
    fn advance(&mut self) {
        loop {
            self.next_op += 1;
            if self.next_op == self.ops.len() {
                (self.next_op, self.next_block) = (0, 0);
                self.iterations += 1;
            }
            if self.early == 0 {
                return;
            }
            let next = self.blocks.get(self.ops[self.next_op] as usize);
            if next.is_none_or(|next| next.live) {
                return;
            }
            self.early -= 1;
        }
    }
}

/// All operations in the order in which they were, the blocks with their participants, and the most bytes live.
fn merge(iterations: &[Iteration]) -> (Vec<u32>, Vec<Planned>, u64) {
    let each = iterations.iter().enumerate();
    let each = each.flat_map(|(of, own)| own.ops.iter().map(move |(at, op)| (*at, of, *op)));
    let mut merged: Vec<(u64, usize, u32)> = each.collect();
    if iterations.len() > 1 {
        // Stable sorting merges runs that are sorted already: the iterations.
        merged.sort();
    }
    // The number here of each block of each iteration.
    let mut numbers: Vec<Vec<u32>> = vec![Vec::new(); iterations.len()];
    let (mut ops, mut blocks) = (Vec::with_capacity(merged.len()), Vec::<Planned>::new());
    let (mut live, mut peak) = (0, 0);
    for (_, of, op) in merged {
        let own = &mut numbers[of];
        ops.push(match op {
            ALLOC => {
                let block = iterations[of].blocks[own.len()];
                live += block.bytes;
                peak = live.max(peak);
                own.push(blocks.len() as u32);
                blocks.push(Planned {
                    block,
                    live: false,
                    ends_first: false,
                    participant: of as u32,
                    predecessors: 0,
                    freed: NEVER,
                    epoch: 0,
                });
                ALLOC
            }
            block => {
                let nth = own[block as usize];
                live -= blocks[nth as usize].block.bytes;
                nth
            }
        });
    }
    (ops, blocks, peak)
}

/// For each block of an iteration, in order of allocation, the blocks that last had a part of its memory.
/// Where that is none of the same iteration, it is one of the iteration before, which was alike.
///
/// `find` reports the present addresses of the memory of a block. Returns pairs of a block and a predecessor, sorted.
fn predecessors(blocks: &[Planned], find: impl Fn(&Block, &mut Vec<Slab>)) -> Vec<(u32, u32)> {
    let (mut last, mut slabs) = (RangeMap::default(), Vec::new());
    let (mut found, mut unused) = (Vec::new(), Vec::new());
    for (block, own) in (0..).zip(blocks) {
        slabs.clear();
        find(&own.block, &mut slabs);
        for slab in &slabs {
            for (part, before) in last.parts(*slab) {
                match before {
                    Some(before) => found.push((block, before)),
                    None => unused.push((block, part)),
                }
            }
            last.insert(*slab, block);
        }
    }
    for (block, slab) in unused {
        let before = last.parts(slab).filter_map(|(_, before)| before);
        found.extend(before.map(|before| (block, before)));
    }
    found.sort_unstable();
    found.dedup();
    found
}

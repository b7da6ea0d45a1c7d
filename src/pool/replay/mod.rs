//! What a lane asks of a pool again and again, and how the same blocks serve it again.
//!
//! Programs repeat themselves: a step of training, a batch, a frame. A [`Record`] is what a lane asked
//! of a pool, in order, and what it got. Where the lane has again what it had live at some earlier
//! moment, and nothing else, what it did in between may come again; served from the same addresses it
//! needs no search, and no two blocks meet that did not meet before. A [`Plan`] is such a stretch of a
//! record, with the memory of all its blocks held for it. It serves as long as each request is the one
//! that came before, with nothing live that was freed before it then, and for as many laps. What is freed
//! earlier than then does no harm.
//!
//! | what a lane has of a pool | from | until |
//! |---|---|---|
//! | nothing | the start; a time with few misses | a request finds nothing in the stash; after records that came to nothing, the third to do so, the fifth, the ninth, ... |
//! | a record | such a miss | a plan is made of it; it is too long; a time with few misses |
//! | neither, for as long as the pool takes | the lane is where it was, and waits or begins again | the plan is made, or it cannot be |
//! | a plan | the lane is where it was, and begins as then | a request is another, or comes before a free; the pool wants the memory |
//! | a part in a joint plan | several lanes are, and had the same memory in turn | the same, of any of them |
//!
//! All are kept by the stash, under its lock; a joint plan is shared, under one of its own. The addresses in a record may have been
//! left by their memory since: see `old`.

mod backoff;
mod interval_index;
mod shared;

pub(crate) use backoff::Patience;
pub(crate) use interval_index::{extent, ranges, union};
pub(crate) use shared::{Joint, Lap, Seat, Shared};

use crate::pool::cache::{Miss, Taken, afford};
use crate::pool::heap::segments::SegId;
use crate::pool::options::{
    MAX_HITS_PER_MISS, MAX_OPS_PER_MISS, MAX_TRACE_OPS, MIN_REPLAY_MISSES, MIN_SHARED_ALLOCATIONS,
    MIN_TRACE_ALLOCATIONS,
};
use crate::pool::request::Block;
use crate::pool::source::Slab;
use crate::timeline::Frontier;
use crate::timeline::sync::{AtomicU64, Ordering};
use interval_index::Spots;
use std::cell::OnceCell;
use std::sync::Arc;

/// An allocation, among the numbers of blocks that are freed.
const ALLOC: u32 = u32::MAX;

/// A moment to which a lane may come back.
#[derive(Clone, Copy, Debug, Default)]
struct Anchor {
    /// Where in the record it is: operations, blocks and misses before it.
    op: usize,
    block: usize,
    misses: usize,
    /// Allocations before it that got what other lanes had before.
    shared: usize,
    /// Blocks of the record that were live then, and are still.
    live: usize,
}

/// Whether lanes that got in a lap, of so many operations, what others had may have a plan together.
pub(crate) fn is_shared(shared: usize, ops: usize) -> bool {
    shared >= MIN_SHARED_ALLOCATIONS && shared * MAX_OPS_PER_MISS >= ops
}

/// A block of a record, or of a plan.
#[derive(Debug)]
pub(crate) struct Planned {
    pub block: Block,
    pub live: bool,
    /// Whether others end later at addresses of its own, if that is known.
    ends_first: Option<bool>,
    /// The lane's epoch when it last died there, or [`NEVER`].
    pub epoch: u64,
}

pub(crate) const NEVER: u64 = u64::MAX;

impl Planned {
    fn new(block: Block) -> Self {
        Self {
            block,
            live: false,
            ends_first: None,
            epoch: NEVER,
        }
    }
}

/// How many records of a pool have something live.
#[derive(Clone, Debug, Default)]
pub(crate) struct Busy(Arc<AtomicU64>);

/// Whether a record has.
#[derive(Debug)]
struct Share {
    busy: Busy,
    live: bool,
}

impl Share {
    fn set(&mut self, live: bool) {
        if std::mem::replace(&mut self.live, live) == live {
            return;
        }
        // Relaxed: only a hint that it is worth to look under the locks.
        match live {
            true => self.busy.0.fetch_add(1, Ordering::Relaxed),
            false => self.busy.0.fetch_sub(1, Ordering::Relaxed),
        };
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// A number for each operation in turn. A plain `std` atomic: loom's cannot live in a static, and what
/// threads do side by side has no order that would come again.
fn stamp() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// What a lane asked of a pool, in order.
#[derive(Debug)]
pub(crate) struct Record {
    /// What entries know it by.
    pub number: u32,
    ops: Vec<u32>,
    /// When each was, among those of all lanes.
    stamps: Vec<u64>,
    blocks: Vec<Planned>,
    /// With what was live then still live, the fewest first.
    anchors: Vec<Anchor>,
    live: usize,
    share: Share,
    misses: usize,
    /// Allocations since the last miss.
    quiet: usize,
    /// The last operation was a free.
    freed: bool,
    /// The lane is where it was there.
    due: Option<Anchor>,
    /// Where its lap began, if no block from before was freed since.
    lap: Option<Anchor>,
    /// All lanes have ended a lap, and this one did nothing since.
    ended: bool,
    /// Allocations that got what other lanes had before.
    shared: usize,
}

impl Record {
    pub fn new(number: u32, busy: &Busy) -> Self {
        let busy = busy.clone();
        Self {
            number,
            ops: Vec::new(),
            stamps: Vec::new(),
            blocks: Vec::new(),
            anchors: vec![Anchor::default()],
            live: 0,
            share: Share { busy, live: false },
            misses: 0,
            quiet: 0,
            freed: false,
            due: None,
            lap: Some(Anchor::default()),
            ended: false,
            shared: 0,
        }
    }

    /// Whether it is of no use any more.
    pub fn is_spent(&self) -> bool {
        let quiet = self.quiet > MIN_TRACE_ALLOCATIONS.max(MAX_HITS_PER_MISS * self.misses);
        let sparse = self.blocks.len() > MIN_TRACE_ALLOCATIONS + MAX_OPS_PER_MISS * self.misses;
        quiet || sparse || self.ops.len() >= MAX_TRACE_OPS
    }

    /// Notes an allocation; the number of its block.
    pub fn alloc(&mut self, block: &Block, missed: bool) -> u32 {
        let anchor = self.here();
        if std::mem::take(&mut self.freed)
            && self
                .anchors
                .last()
                .is_none_or(|last| last.live != self.live)
        {
            self.anchors.push(anchor);
        }
        self.due = None;
        if std::mem::take(&mut self.ended) {
            self.lap = Some(anchor);
        }
        self.quiet = if missed { 0 } else { self.quiet + 1 };
        self.misses += usize::from(missed);
        self.live += 1;
        self.share.set(true);
        self.ops.push(ALLOC);
        self.stamps.push(stamp());
        self.blocks.push(Planned::new(*block));
        (self.blocks.len() - 1) as u32
    }

    /// Notes the free of a block that it has the allocation of, or of another.
    pub fn free(&mut self, block: Option<u32>) {
        self.due = None;
        self.freed = true;
        let Some(block) = block else {
            // It was live at all anchors.
            self.anchors.clear();
            self.lap = None;
            return;
        };
        self.ops.push(block);
        self.stamps.push(stamp());
        self.live -= 1;
        self.share.set(self.live > 0);
        while self
            .anchors
            .pop_if(|last| last.block > block as usize)
            .is_some()
        {}
        // Of what was live there nothing was freed since, so as many are the same.
        let here = self.here();
        let Some(back) = self
            .anchors
            .last_mut()
            .filter(|last| last.live == here.live)
        else {
            return;
        };
        if here.shared - back.shared >= MIN_SHARED_ALLOCATIONS {
            // What lanes have in turn none can keep for itself: it counts from here.
            *back = here;
        }
        let worth = |anchor: &Anchor| {
            let (ops, misses) = (self.ops.len() - anchor.op, self.misses - anchor.misses);
            misses >= MIN_REPLAY_MISSES && misses * MAX_OPS_PER_MISS >= ops
        };
        self.due = Some(*back).filter(worth);
    }

    /// A block was freed in a way that cannot come again the same in a plan of one lane.
    pub fn lose(&mut self, block: u32) {
        self.free(Some(block));
        self.due = None;
        self.anchors.clear();
    }

    /// Whether the lane begins again, with a request for so many bytes, what it did before and should have
    /// a plan for. If not, it counts from here.
    pub fn begins_again(&mut self, requested: u64, patience: &mut Patience) -> bool {
        let Some(due) = self.due else {
            return false;
        };
        if self.blocks[due.block].block.requested == requested && !patience.waits() {
            return true;
        }
        let here = self.here();
        if let Some(last) = self.anchors.last_mut() {
            *last = here;
        }
        self.due = None;
        false
    }

    /// Blocks that the lane would have again, if it begins again.
    pub fn again(&self) -> Option<&[Planned]> {
        self.due.map(|due| &self.blocks[due.block..])
    }

    /// No plan can be made of it now.
    pub fn refuse(&mut self) {
        self.due = None;
        self.anchors.clear();
    }

    /// The last allocation got what another lane had before.
    pub fn shares(&mut self) {
        self.shared += 1;
    }

    /// How many of its lap did.
    pub fn shared(&self) -> usize {
        self.shared - self.lap.map_or(0, |lap| lap.shared)
    }

    /// Operations of its lap.
    pub fn lap_ops(&self) -> usize {
        self.ops.len() - self.lap.map_or(0, |lap| lap.op)
    }

    /// Whether with the next free all lanes will have ended a lap in which they shared memory.
    pub fn ends_all(&self) -> bool {
        let last = self.live == 1 && self.share.busy.0.load(Ordering::Relaxed) == 1;
        last && self.shared() >= MIN_SHARED_ALLOCATIONS && !self.ended
    }

    /// Whether all that it has the allocations of is free again.
    pub fn is_at_rest(&self) -> bool {
        self.live == 0
    }

    /// All lanes have ended a lap, unless that is so already.
    pub fn end_lap(&mut self) {
        if std::mem::replace(&mut self.ended, true) || self.lap.is_none() {
            self.lap = Some(self.here());
        }
    }

    /// Whether all lanes have ended a lap, and this one did nothing since.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// When the lap that has ended began, and for how many bytes its first request was. None if there was
    /// nothing in it.
    pub fn lap_start(&self) -> Option<(u64, u64)> {
        let lap = self.lap.filter(|_| self.ended)?;
        let first = self.blocks.get(lap.block)?;
        Some((self.stamps[lap.op], first.block.requested))
    }

    /// The lap that has ended, unless there was nothing in it.
    pub fn lap(&self) -> Option<Lap> {
        let lap = self
            .lap
            .filter(|lap| self.ended && self.blocks.len() > lap.block)?;
        let ops = self.stamps[lap.op..].iter().zip(&self.ops[lap.op..]);
        let name = |op: u32| match op {
            ALLOC => ALLOC,
            block => block - lap.block as u32,
        };
        let blocks = self.blocks[lap.block..].iter();
        Some(Lap {
            ops: ops.map(|(stamp, op)| (*stamp, name(*op))).collect(),
            blocks: blocks.map(|planned| planned.block).collect(),
        })
    }

    fn here(&self) -> Anchor {
        Anchor {
            op: self.ops.len(),
            block: self.blocks.len(),
            misses: self.misses,
            shared: self.shared,
            live: self.live,
        }
    }
}

/// Memory that is held for a plan: to the store it is live, and no block.
#[derive(Debug)]
pub(crate) struct Held {
    pub slab: Slab,
    pub seg: SegId,
    /// What died there before.
    pub parts: Vec<(u64, Frontier)>,
}

/// What a lane does, lap for lap.
#[derive(Debug)]
pub(crate) struct Plan {
    ops: Vec<u32>,
    pub blocks: Vec<Planned>,
    /// Once somebody wants to know.
    spots: OnceCell<Spots>,
    pub held: Vec<Held>,
    /// The next operation, and the next block.
    next: usize,
    block: usize,
    laps: u64,
    /// Frees that came before their time, and are still to be passed.
    early: usize,
    /// The program did something else.
    off: bool,
    /// Blocks that died elsewhere.
    pub elsewhere: Vec<(usize, Frontier)>,
}

impl Plan {
    /// What a lane did since the moment to which it is back.
    pub fn new(mut record: Record, held: Vec<Held>) -> Self {
        let due = record.due.unwrap_or_default();
        if due.op > 0 {
            record.ops.drain(..due.op);
            record.blocks.drain(..due.block);
            let blocks = record.ops.iter_mut().filter(|op| **op != ALLOC);
            blocks.for_each(|block| *block -= due.block as u32);
        }
        Self::of(record.ops, record.blocks, held)
    }

    fn of(ops: Vec<u32>, blocks: Vec<Planned>, held: Vec<Held>) -> Self {
        Self {
            ops,
            blocks,
            spots: OnceCell::new(),
            held,
            next: 0,
            block: 0,
            laps: 0,
            early: 0,
            off: false,
            elsewhere: Vec::new(),
        }
    }

    fn spots(&self) -> &Spots {
        self.spots.get_or_init(|| Spots::new(&self.blocks))
    }

    pub fn bytes(&self) -> u64 {
        self.held.iter().map(|held| held.slab.bytes).sum()
    }

    /// Whether it has served a whole lap.
    pub fn has_served(&self) -> bool {
        self.laps > 0
    }

    /// The block that comes next is live, if the request is the one for it and `room` bytes are enough;
    /// and whether an allocation may end earlier by that. If it is another, the plan has come to its end.
    #[inline]
    pub fn take(&mut self, requested: u64, room: u64) -> Taken<(Block, bool)> {
        let asked = self.ops[self.next] == ALLOC && !self.off;
        let next = self.blocks.get_mut(self.block).filter(|_| asked);
        let Some(next) = next.filter(|next| next.block.requested == requested) else {
            self.off = true;
            return Err(Miss::NoBlock);
        };
        afford(next.block.bytes, room)?;
        next.live = true;
        let (block, ends_first) = (next.block, next.ends_first);
        let ends_first = ends_first.unwrap_or_else(|| self.look(self.block));
        self.block += 1;
        self.step();
        Ok((block, ends_first))
    }

    /// Whether others of its blocks end later than this one at addresses of its own. Not looked for in the
    /// first lap, which may be the only one.
    #[inline(never)]
    fn look(&mut self, block: usize) -> bool {
        if self.laps == 0 {
            return true;
        }
        let end = extent(&self.blocks[block].block).end();
        let known = self.spots().goes_beyond(end);
        self.blocks[block].ends_first = Some(known);
        known
    }

    /// Looks at all its blocks, for whoever has the time.
    pub fn study(&mut self) {
        let spots = Spots::new(&self.blocks);
        for planned in &mut self.blocks {
            planned.ends_first = Some(spots.goes_beyond(extent(&planned.block).end()));
        }
        self.spots = OnceCell::from(spots);
    }

    /// Ends the live block at an address at the lane's `epoch`, if that is what comes next.
    #[inline]
    pub fn put(&mut self, addr: u64, epoch: u64) -> Option<Block> {
        // No block has the number of an allocation.
        let next = self.blocks.get_mut(self.ops[self.next] as usize);
        let next = next.filter(|next| next.block.addr == addr && next.live)?;
        next.live = false;
        next.epoch = epoch;
        let block = next.block;
        self.step();
        Some(block)
    }

    /// The same if it comes earlier than then, which harms nobody.
    pub fn put_early(&mut self, addr: u64, epoch: u64) -> Option<Block> {
        let block = self.live_at(addr)?;
        self.early += 1;
        let planned = &mut self.blocks[block];
        planned.live = false;
        planned.epoch = epoch;
        Some(planned.block)
    }

    /// The same for one that is used elsewhere until `death`.
    pub fn put_elsewhere(&mut self, addr: u64, death: &Frontier) -> Option<Block> {
        let block = self.live_at(addr)?;
        self.off = true;
        self.elsewhere.push((block, death.clone()));
        let planned = &mut self.blocks[block];
        planned.live = false;
        Some(planned.block)
    }

    /// The live block that starts at an address.
    fn live_at(&self, addr: u64) -> Option<usize> {
        let mut there = self.spots().starting_at(addr);
        there.find(|block| self.blocks[*block].live)
    }

    /// The live block that holds an address.
    pub fn around(&self, addr: u64) -> Option<Block> {
        let mut around = self.spots().around(addr).map(|block| &self.blocks[block]);
        Some(around.find(|planned| planned.live)?.block)
    }

    /// The sum of its live blocks.
    pub fn live_bytes(&self) -> u64 {
        let live = self.blocks.iter().filter(|planned| planned.live);
        live.map(|planned| planned.block.bytes).sum()
    }

    #[inline]
    fn step(&mut self) {
        self.pass();
        if self.early > 0 {
            self.pass_early();
        }
    }

    #[inline]
    fn pass(&mut self) {
        self.next += 1;
        if self.next == self.ops.len() {
            (self.next, self.block) = (0, 0);
            self.laps += 1;
        }
    }

    /// Passes the frees that have come already.
    #[inline(never)]
    fn pass_early(&mut self) {
        while self.early > 0
            && let Some(next) = self.blocks.get(self.ops[self.next] as usize)
            && !next.live
        {
            self.early -= 1;
            self.pass();
        }
    }
}

/// What a stash keeps of how a lane uses a pool.
#[derive(Debug)]
pub(crate) enum Track {
    Record(Record),
    /// The pool makes a plan; whether the lane did anything meanwhile.
    Turning(bool),
    Plan(Plan),
    /// One for this lane and others together.
    Joint(Seat),
}

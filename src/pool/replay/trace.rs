//! Allocation traces: what a stream asked of a pool, in order, and what it got.

use crate::pool::options::{
    LONG_ITERATION_ALLOCATIONS, MAX_OPS_PER_MISS, MAX_TRACE_OPS, MIN_REPLAY_MISSES,
    MIN_SHARED_ALLOCATIONS, MIN_TRACE_ALLOCATIONS,
};
use crate::pool::request::Block;
use std::sync::{Arc, Weak};

/// An allocation, among the numbers of blocks that are freed.
pub(super) const ALLOC: u32 = u32::MAX;

/// A moment of a trace that the stream may come back to.
#[derive(Clone, Copy, Debug, Default)]
struct Anchor {
    /// Operations, blocks, misses and shared allocations before it.
    op: usize,
    block: usize,
    misses: usize,
    shared: usize,
    /// Blocks of the trace that were live at it.
    live: usize,
}

/// A number for each operation of all traces, ascending. A plain `std` atomic: loom's cannot live in a
/// static, and threads side by side have no order that would come again.
fn sequence_number() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// One iteration of a stream: the sequence number of each operation with the number of the block that it
/// frees or [`ALLOC`], and the blocks in order of allocation.
#[derive(Debug)]
pub(crate) struct Iteration {
    pub(super) ops: Vec<(u64, u32)>,
    pub blocks: Vec<Block>,
}

impl Iteration {
    pub fn start(&self) -> Start {
        Start {
            sequence: self.ops[0].0,
            requested: self.blocks[0].requested,
        }
    }
}

/// The first request of an iteration: its sequence number, by which starts are ordered, and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Start {
    sequence: u64,
    pub requested: u64,
}

/// What a stream asked of a pool, in order.
#[derive(Debug)]
pub(crate) struct Trace {
    /// Identifies it in the blocks that it has.
    pub number: u32,
    ops: Vec<(u64, u32)>,
    blocks: Vec<Block>,
    /// Moments since which no block that was live at them was freed, fewest live blocks first.
    anchors: Vec<Anchor>,
    live: usize,
    /// The pool's mark, of which each of its traces has a reference while it has live blocks.
    mark: Weak<()>,
    own_mark: Option<Arc<()>>,
    /// What it cost in the backoff's unit.
    pub misses: usize,
    /// The last operation was a free.
    freed: bool,
    /// The stream is where it was at this anchor.
    repeated: Option<Anchor>,
    /// A long iteration that left nothing live was not begun again.
    failed: bool,
    /// Where the iteration of all streams began, if no earlier block was freed since.
    iteration: Option<Anchor>,
    /// The iteration of all streams ended, and this one did nothing since.
    ended: bool,
    /// Allocations that got what other streams had.
    shared: usize,
}

impl Trace {
    pub fn new(number: u32, mark: &Weak<()>) -> Self {
        Self {
            number,
            ops: Vec::new(),
            blocks: Vec::new(),
            anchors: vec![Anchor::default()],
            live: 0,
            mark: Weak::clone(mark),
            own_mark: None,
            misses: 0,
            freed: false,
            repeated: None,
            failed: false,
            iteration: Some(Anchor::default()),
            ended: false,
            shared: 0,
        }
    }

    /// Whether it ends without a plan: too few misses for its length, too long, or not repeated.
    pub fn is_spent(&self) -> bool {
        let sparse = self.blocks.len() > MIN_TRACE_ALLOCATIONS + MAX_OPS_PER_MISS * self.misses;
        self.failed || sparse || self.ops.len() >= MAX_TRACE_OPS
    }

    /// Adds an allocation; the number of its block.
    pub fn allocate(&mut self, block: &Block, missed: bool) -> u32 {
        let anchor = self.here();
        let last = self.anchors.last();
        debug_assert!(
            last.is_none_or(|last| last.live <= self.live),
            "a block that was live at an anchor was freed"
        );
        if std::mem::take(&mut self.freed) && last.is_none_or(|last| last.live != self.live) {
            self.anchors.push(anchor);
        }
        self.repeated = None;
        if std::mem::take(&mut self.ended) {
            self.iteration = Some(anchor);
        }
        self.misses += usize::from(missed);
        if self.live == 0 {
            self.own_mark = self.mark.upgrade();
        }
        self.live += 1;
        self.ops.push((sequence_number(), ALLOC));
        self.blocks.push(*block);
        (self.blocks.len() - 1) as u32
    }

    /// Adds the free of a block of the trace, or of an earlier one.
    pub fn free(&mut self, block: Option<u32>) {
        self.repeated = None;
        self.freed = true;
        let Some(block) = block else {
            // It was live at all anchors.
            self.anchors.clear();
            self.iteration = None;
            return;
        };
        debug_assert!(self.live > 0, "a free without an allocation");
        self.ops.push((sequence_number(), block));
        self.live -= 1;
        if self.live == 0 {
            self.own_mark = None;
        }
        let block = block as usize;
        while self.anchors.pop_if(|last| last.block > block).is_some() {}
        // No block that was live at the last anchor was freed since: as many live blocks are the same ones.
        let here = self.here();
        let anchor = self.anchors.last_mut();
        let Some(anchor) = anchor.filter(|anchor| anchor.live == here.live) else {
            return;
        };
        if here.shared - anchor.shared >= MIN_SHARED_ALLOCATIONS {
            // No stream can hold for itself what several have in turn.
            *anchor = here;
        }
        let ops = here.op - anchor.op;
        let misses = here.misses - anchor.misses;
        let is_worth = misses >= MIN_REPLAY_MISSES && misses * MAX_OPS_PER_MISS >= ops;
        self.repeated = is_worth.then_some(*anchor);
    }

    /// Adds the free of a block in a way that a plan of one stream cannot repeat.
    pub fn free_elsewhere(&mut self, block: u32) {
        self.free(Some(block));
        self.repeated = None;
        self.anchors.clear();
    }

    /// Whether a request for so many bytes begins an iteration again. If not, later ones count from here.
    pub fn begins_again(&mut self, requested: u64) -> bool {
        let Some(anchor) = self.repeated else {
            return false;
        };
        if self.blocks[anchor.block].requested == requested {
            return true;
        }
        let is_long = self.blocks.len() - anchor.block >= LONG_ITERATION_ALLOCATIONS;
        // Iterations within others come back to live blocks, and may belong to one that does repeat.
        self.failed |= is_long && self.live == 0;
        let here = self.here();
        if let Some(last) = self.anchors.last_mut() {
            *last = here;
        }
        self.repeated = None;
        false
    }

    /// Whether the stream is where it was before, with an iteration that is worth a plan.
    pub fn is_repeated(&self) -> bool {
        self.repeated.is_some()
    }

    /// What the stream did since it was where it is now.
    pub fn repeated(&self) -> Option<Iteration> {
        self.since(self.repeated?)
    }

    /// The last allocation got what another stream had before.
    pub fn share(&mut self) {
        self.shared += 1;
    }

    /// Allocations of the iteration of all streams that got what other streams had.
    pub fn shared(&self) -> usize {
        self.shared - self.iteration.map_or(0, |start| start.shared)
    }

    /// Operations of the iteration of all streams.
    pub fn iteration_ops(&self) -> usize {
        self.ops.len() - self.iteration.map_or(0, |start| start.op)
    }

    /// Whether the next free ends an iteration of all streams in which they shared memory.
    pub fn ends_all(&self) -> bool {
        // The pool's reference and this one. Only a hint that it is worth to look under the locks.
        let last = self.live == 1 && self.mark.strong_count() == 2;
        last && self.shared() >= MIN_SHARED_ALLOCATIONS && !self.ended
    }

    /// Whether none of its blocks is live.
    pub fn is_at_rest(&self) -> bool {
        self.live == 0
    }

    /// The iteration of all streams ended, unless that is known.
    pub fn end_iteration(&mut self) {
        if std::mem::replace(&mut self.ended, true) || self.iteration.is_none() {
            self.iteration = Some(self.here());
        }
    }

    /// Whether the iteration of all streams ended, and this one did nothing since.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// This stream's part of the ended iteration of all streams; none if it did nothing.
    pub fn ended(&self) -> Option<Iteration> {
        self.since(self.iteration.filter(|_| self.ended)?)
    }

    /// Whether a plan that was made of the iteration with this start may begin now.
    pub fn may_replay(&self, start: Start) -> bool {
        let ended = self.iteration.filter(|_| self.ended);
        let mut starts = [self.repeated, ended].into_iter().flatten();
        starts.any(|anchor| {
            let op = self.ops.get(anchor.op);
            op.is_some_and(|(sequence, _)| *sequence == start.sequence)
        })
    }

    fn since(&self, anchor: Anchor) -> Option<Iteration> {
        let blocks = self.blocks.get(anchor.block..)?;
        let number = |(sequence, op): &(u64, u32)| match *op {
            ALLOC => (*sequence, ALLOC),
            block => (*sequence, block - anchor.block as u32),
        };
        (!blocks.is_empty()).then(|| Iteration {
            ops: self.ops[anchor.op..].iter().map(number).collect(),
            blocks: blocks.to_vec(),
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

/// Whether streams that share so many allocations of so many operations may have a plan together.
pub(crate) fn is_shared(shared: usize, ops: usize) -> bool {
    shared >= MIN_SHARED_ALLOCATIONS && shared * MAX_OPS_PER_MISS >= ops
}

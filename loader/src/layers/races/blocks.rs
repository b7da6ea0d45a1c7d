//! USM blocks: the commands that allocated, used and freed each, and whether the program ordered
//! them.
//!
//! Owns the records and the findings; `order` decides what is ordered. A freed block stays recorded
//! until its address is allocated again, or may belong to memory that is not USM.
//!
//! A use that precedes a later use may be dropped: a free after the later one is after both. Uses
//! are pruned when their number has doubled, so that a use costs amortised constant time even where
//! thousands are unordered.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::order::{Mark, Order};
use crate::layers::maker::{Handle, Maker, Makers, suffix};

/// A command, as findings describe it.
#[derive(Clone, Debug)]
pub struct Operation {
    pub function: &'static str,
    pub kernel: Option<Arc<str>>,
    /// None for an operation of the host.
    pub queue: Option<OnQueue>,
    /// Whether the command returned an event.
    pub event: bool,
    /// The source location that the application reports.
    pub place: Option<Arc<str>>,
}

/// A queue, and the number of a command on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnQueue {
    pub queue: Handle,
    /// The number of the command on its queue, from 1.
    pub command: u64,
}

impl Operation {
    /// The operation without its source location, which is that of the current call.
    fn now(&self) -> impl fmt::Display {
        fmt::from_fn(|out| {
            match &self.kernel {
                Some(kernel) => write!(out, "kernel {kernel}")?,
                None => out.write_str(self.function)?,
            }
            let Some(at) = self.queue else { return Ok(()) };
            write!(out, " (command {} of queue {})", at.command, at.queue)
        })
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.now().fmt(out)?;
        match &self.place {
            Some(place) => write!(out, " at {place}"),
            None => Ok(()),
        }
    }
}

/// The memory that an operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub address: usize,
    /// The size in bytes. Without one, as for a kernel's argument, everything from the address on
    /// may be used.
    pub size: Option<usize>,
}

impl Range {
    fn of_block(address: usize, size: usize) -> Range {
        Range {
            address,
            size: Some(size),
        }
    }

    /// The end of the range within a block that ends at `end`.
    fn end(&self, end: usize) -> usize {
        self.size
            .map_or(end, |size| self.address.saturating_add(size).min(end))
    }
}

impl fmt::Display for Range {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size {
            Some(size) => write!(out, "{size} bytes at {:#x}", self.address),
            None => write!(out, "memory from {:#x} on", self.address),
        }
    }
}

/// An allocation, a use or a free of a block.
#[derive(Clone, Debug)]
pub struct Step {
    pub what: Operation,
    /// None for an operation that took effect on the host at once.
    pub mark: Option<Mark>,
    /// An operation after all of this order is after this step. Set for an allocation that returns
    /// no event: it may only use memory that is free after all earlier commands.
    pub implied_by: Option<Order>,
}

impl Step {
    /// A step that takes effect on the host at once.
    pub fn host(what: Operation) -> Step {
        Step {
            what,
            mark: None,
            implied_by: None,
        }
    }

    /// Whether the step precedes a command with this order.
    fn before(&self, order: &Order) -> bool {
        let marked = self
            .mark
            .as_ref()
            .is_none_or(|mark| order.comes_after(mark));
        marked
            || self
                .implied_by
                .as_ref()
                .is_some_and(|all| order.comes_after_all(all))
    }

    fn is_complete(&self) -> bool {
        self.mark.as_ref().is_none_or(Mark::is_complete)
    }
}

#[derive(Debug)]
struct Block {
    size: usize,
    /// Distinguishes blocks that had the same address.
    serial: u64,
    maker: Maker,
    allocation: Step,
    uses: Uses,
    freed: Option<Step>,
    reported: Vec<FindingKind>,
}

/// The commands that used a block, in the order of submission.
#[derive(Debug, Default)]
struct Uses {
    steps: Vec<(Step, Range)>,
    /// At this number, uses that precede a later one are removed.
    prune_at: usize,
}

/// Minimum number of a block's uses before they are pruned.
const MIN_PRUNED_USES: usize = 16;

impl Uses {
    /// Adds a use that is ordered after `before`.
    fn add(&mut self, step: Step, range: Range, before: &Order) {
        if self.steps.len() >= self.prune_at.max(MIN_PRUNED_USES) {
            self.steps.retain(|(earlier, _)| !earlier.before(before));
            self.prune_at = 2 * self.steps.len();
        }
        self.steps.push((step, range));
    }

    fn remove(&mut self, mark: &Mark) {
        let is_it = |step: &Step| step.mark.as_ref().is_some_and(|own| own.is(mark));
        self.steps.retain(|(step, _)| !is_it(step));
    }

    /// The last use that does not precede `before`. A pruned use precedes one that is kept.
    fn racing(&self, before: &Order) -> Option<(Operation, Range)> {
        let mut latest = self.steps.iter().rev();
        let (used, range) = latest.find(|(used, _)| !used.before(before))?;
        Some((used.what.clone(), *range))
    }
}

/// The memory that an argument may point to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only USM is allowed.
    Usm,
    /// USM and the application's other memory are allowed.
    Any,
}

/// The kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    UseBeforeAllocation,
    UseAfterFree,
    UseAndFree,
    FreeBeforeAllocation,
    FreeBeforeUse,
    DoubleFree,
    DoubleFreeAtOnce,
}

/// An error in the order of a program's operations on a block.
#[derive(Debug)]
pub struct Finding {
    pub kind: FindingKind,
    /// The end of the block.
    end: usize,
    /// What made the block.
    maker: Maker,
    /// The command that is submitted now, and its memory.
    pub now: (Operation, Range),
    /// The earlier command that it conflicts with, and its memory.
    pub then: (Operation, Range),
}

impl Finding {
    /// The bytes of the block that both operations are about.
    fn overlap(&self) -> impl fmt::Display {
        let (now, then) = (&self.now.1, &self.then.1);
        let start = now.address.max(then.address);
        let size = now
            .end(self.end)
            .min(then.end(self.end))
            .saturating_sub(start);
        let may = if now.size.is_none() || then.size.is_none() {
            "may overlap"
        } else {
            "overlap"
        };
        fmt::from_fn(move |out| write!(out, "they {may} in {size} bytes at {start:#x}"))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((now, mine), (then, other)) = (&self.now, &self.then);
        let (now, overlap, hint) = (now.now(), self.overlap(), hint(then));
        // The operation that is about the whole block has the name of the block.
        let block = suffix(Some(self.maker));
        match self.kind {
            FindingKind::UseBeforeAllocation => write!(
                out,
                "race: {now} uses {mine}; {then} allocates {other}{block}; {overlap}; no event \
                 orders the use after the allocation{hint}"
            ),
            FindingKind::UseAfterFree => write!(
                out,
                "use after free: {now} uses {mine}; {then} had freed {other}{block}; {overlap}"
            ),
            FindingKind::UseAndFree => write!(
                out,
                "race: {now} uses {mine}; {then} frees {other}{block}; {overlap}; no event orders \
                 them"
            ),
            FindingKind::FreeBeforeAllocation => write!(
                out,
                "race: {now} frees {mine}{block}; {then} allocates {other}; {overlap}; no event \
                 orders the free after the allocation{hint}"
            ),
            FindingKind::FreeBeforeUse => write!(
                out,
                "race: {now} frees {mine}{block}; {then} uses {other}; {overlap}; no event orders \
                 the free after the use{hint}"
            ),
            FindingKind::DoubleFree => write!(
                out,
                "double free: {now} frees {mine}{block}; {then} freed it before"
            ),
            FindingKind::DoubleFreeAtOnce => write!(
                out,
                "double free: {now} frees {mine}{block}; {then} frees it too; no event orders them"
            ),
        }
    }
}

/// The likely cause of a finding, for its message.
fn hint(first: &Operation) -> &'static str {
    match (first.queue, first.event) {
        (Some(_), false) => " (it returned no event)",
        _ => "",
    }
}

/// A recorded free, which is reverted if the adapter refuses it.
pub struct Freed {
    address: usize,
    serial: u64,
}

/// The block that a free is for.
pub enum Free {
    Unknown,
    Recorded(Freed),
    /// A block that is already freed.
    AlreadyFreed,
}

#[derive(Debug, Default)]
pub struct Blocks {
    by_address: BTreeMap<usize, Block>,
    /// Blocks that are the memory of the application's own pools.
    outer: BTreeMap<usize, Block>,
    makers: Makers,
    serials: u64,
}

/// Maximum number of recorded blocks. Beyond it, freed ones are removed.
const MAX_BLOCKS: usize = 1 << 16;

impl Blocks {
    /// Records a new block. It replaces records of its addresses, except for a live block around
    /// it, which is the memory of a pool.
    pub fn allocated(&mut self, address: usize, size: usize, allocation: Step) {
        let around = find(&mut self.by_address, address);
        let pool = around.filter(|(base, block)| {
            block.freed.is_none() && base + block.size >= address.saturating_add(size)
        });
        if let Some(base) = pool.map(|(base, _)| base) {
            let block = self.by_address.remove(&base);
            self.outer.extend(block.map(|block| (base, block)));
        }
        self.forget(address, size);
        if self.by_address.len() >= MAX_BLOCKS {
            self.by_address.retain(|_, block| block.freed.is_none());
        }
        self.serials += 1;
        let block = Block {
            size,
            serial: self.serials,
            maker: self.makers.made(allocation.what.function),
            allocation,
            uses: Uses::default(),
            freed: None,
            reported: Vec::new(),
        };
        self.by_address.insert(address, block);
    }

    /// Removes the blocks that overlap a range which is used for other memory.
    pub fn forget(&mut self, address: usize, size: usize) {
        let end = address.saturating_add(size.max(1));
        let overlapping: Vec<usize> = self
            .by_address
            .range(..end)
            .rev()
            .take_while(|(base, block)| {
                **base >= address || base.saturating_add(block.size) > address
            })
            .map(|(base, _)| *base)
            .collect();
        for base in overlapping {
            self.by_address.remove(&base);
        }
    }

    /// The block at an address: an allocation, or the memory of a pool.
    fn block_at(&mut self, address: usize) -> Option<(usize, &mut Block)> {
        let inner = find(&mut self.by_address, address);
        inner.or_else(|| find(&mut self.outer, address))
    }

    /// Before the memory of a pool is freed, ends the allocations in it.
    fn promote_pool_memory(&mut self, address: usize) {
        let inner = self.by_address.get(&address);
        if inner.is_none_or(|block| block.freed.is_some())
            && let Some(block) = self.outer.remove(&address)
        {
            self.forget(address, block.size);
            self.by_address.insert(address, block);
        }
    }

    /// Records that a command uses a range of memory.
    pub fn used(
        &mut self,
        range: Range,
        access: Access,
        by: Step,
        before: &Order,
    ) -> Option<Finding> {
        let (base, block) = self.block_at(range.address)?;
        let whole = Range::of_block(base, block.size);
        if let Some(freed) = &block.freed {
            if access == Access::Any && freed.is_complete() {
                // The memory was returned, and may now be the application's own.
                self.by_address.remove(&base);
                return None;
            }
            let kind = match freed.before(before) {
                true => FindingKind::UseAfterFree,
                false => FindingKind::UseAndFree,
            };
            let then = freed.what.clone();
            return block.report(kind, base, (by.what, range), (then, whole));
        }
        let mut finding = None;
        if !block.allocation.before(before) {
            let then = block.allocation.what.clone();
            let kind = FindingKind::UseBeforeAllocation;
            finding = block.report(kind, base, (by.what.clone(), range), (then, whole));
        }
        if by.mark.is_some() {
            block.uses.add(by, range, before);
        }
        finding
    }

    /// The number of a block's recorded uses.
    #[cfg(test)]
    pub fn uses(&self, address: usize) -> usize {
        self.by_address[&address].uses.steps.len()
    }

    /// Removes a use by a command that the adapter refused.
    pub fn remove_use(&mut self, address: usize, by: &Mark) {
        if let Some((_, block)) = self.block_at(address) {
            block.uses.remove(by);
        }
    }

    /// Records a free before the adapter is called.
    pub fn freed(
        &mut self,
        address: usize,
        by: Step,
        before: &Order,
        findings: &mut Vec<Finding>,
    ) -> Free {
        self.promote_pool_memory(address);
        let Some(block) = self.by_address.get_mut(&address) else {
            return Free::Unknown;
        };
        let whole = Range::of_block(address, block.size);
        if let Some(freed) = &block.freed {
            let kind = match freed.before(before) {
                true => FindingKind::DoubleFree,
                false => FindingKind::DoubleFreeAtOnce,
            };
            let then = freed.what.clone();
            findings.extend(block.report(kind, address, (by.what, whole), (then, whole)));
            return Free::AlreadyFreed;
        }
        // A free on the host waits for earlier commands, or does not reuse the memory before they
        // end.
        if by.mark.is_some() {
            if !block.allocation.before(before) {
                let then = block.allocation.what.clone();
                let kind = FindingKind::FreeBeforeAllocation;
                let now = (by.what.clone(), whole);
                findings.extend(block.report(kind, address, now, (then, whole)));
            }
            if let Some(then) = block.uses.racing(before) {
                let kind = FindingKind::FreeBeforeUse;
                findings.extend(block.report(kind, address, (by.what.clone(), whole), then));
            }
        }
        block.freed = Some(by);
        let serial = block.serial;
        Free::Recorded(Freed { address, serial })
    }

    /// Reverts a free that failed: the block is alive.
    pub fn revert_free(&mut self, freed: &Freed) {
        let block = self.by_address.get_mut(&freed.address);
        if let Some(block) = block.filter(|block| block.serial == freed.serial) {
            block.freed = None;
        }
    }

    /// Completes a free: the block's uses are not needed any more.
    pub fn complete_free(&mut self, freed: &Freed) {
        let block = self.by_address.get_mut(&freed.address);
        if let Some(block) = block.filter(|block| block.serial == freed.serial) {
            block.uses = Uses::default();
        }
    }
}

/// The block that contains an address.
fn find(blocks: &mut BTreeMap<usize, Block>, address: usize) -> Option<(usize, &mut Block)> {
    let (base, block) = blocks.range_mut(..=address).next_back()?;
    (address - base < block.size).then_some((*base, block))
}

impl Block {
    /// A finding, unless one of this kind was reported for the block.
    fn report(
        &mut self,
        kind: FindingKind,
        address: usize,
        now: (Operation, Range),
        then: (Operation, Range),
    ) -> Option<Finding> {
        if self.reported.contains(&kind) {
            return None;
        }
        self.reported.push(kind);
        Some(Finding {
            kind,
            end: address.saturating_add(self.size),
            maker: self.maker,
            now,
            then,
        })
    }
}

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

/// A command, as findings describe it.
#[derive(Clone, Debug)]
pub struct Operation {
    pub function: &'static str,
    pub kernel: Option<Arc<str>>,
    /// The queue's number, from 1; none for an operation of the host.
    pub queue: Option<u64>,
    /// Whether the command returned an event.
    pub event: bool,
    /// The source location that the application reports.
    pub place: Option<Arc<str>>,
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kernel {
            Some(kernel) => write!(out, "kernel {kernel}")?,
            None => out.write_str(self.function)?,
        }
        if let Some(queue) = self.queue {
            write!(out, " on queue {queue}")?;
        }
        match &self.place {
            Some(place) => write!(out, " ({place})"),
            None => Ok(()),
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
    allocation: Step,
    uses: Uses,
    freed: Option<Step>,
    reported: Vec<FindingKind>,
}

/// The commands that used a block, in the order of submission.
#[derive(Debug, Default)]
struct Uses {
    steps: Vec<Step>,
    /// At this number, uses that precede a later one are removed.
    prune_at: usize,
}

/// Minimum number of a block's uses before they are pruned.
const MIN_PRUNED_USES: usize = 16;

impl Uses {
    /// Adds a use that is ordered after `before`.
    fn add(&mut self, step: Step, before: &Order) {
        if self.steps.len() >= self.prune_at.max(MIN_PRUNED_USES) {
            self.steps.retain(|earlier| !earlier.before(before));
            self.prune_at = 2 * self.steps.len();
        }
        self.steps.push(step);
    }

    fn remove(&mut self, mark: &Mark) {
        let is_it = |step: &Step| step.mark.as_ref().is_some_and(|own| own.is(mark));
        self.steps.retain(|step| !is_it(step));
    }

    /// The last use that does not precede `before`. A pruned use precedes one that is kept.
    fn racing(&self, before: &Order) -> Option<&Step> {
        self.steps.iter().rev().find(|used| !used.before(before))
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
    pub address: usize,
    pub size: usize,
    /// The command that is submitted now.
    pub now: Operation,
    /// The earlier command that it conflicts with.
    pub then: Operation,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding {
            address,
            size,
            now,
            then,
            ..
        } = self;
        let memory = format_args!("{address:#x} ({size} bytes)");
        match self.kind {
            FindingKind::UseBeforeAllocation => write!(
                out,
                "race: {now} uses {memory}, allocated by {then}; no event orders the use after the \
                 allocation{}",
                hint(then)
            ),
            FindingKind::UseAfterFree => {
                write!(
                    out,
                    "use after free: {now} uses {memory}, freed by {then} before"
                )
            }
            FindingKind::UseAndFree => write!(
                out,
                "race: {now} uses {memory}, freed by {then}; no event orders them"
            ),
            FindingKind::FreeBeforeAllocation => write!(
                out,
                "race: {now} frees {memory}, allocated by {then}; no event orders the free after the \
                 allocation{}",
                hint(then)
            ),
            FindingKind::FreeBeforeUse => write!(
                out,
                "race: {now} frees {memory}, used by {then}; no event orders the free after the \
                 use{}",
                hint(then)
            ),
            FindingKind::DoubleFree => {
                write!(
                    out,
                    "double free: {now} frees {memory}, freed by {then} before"
                )
            }
            FindingKind::DoubleFreeAtOnce => write!(
                out,
                "double free: {now} frees {memory}, freed by {then} too; no event orders them"
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

    /// Records that a command uses the memory at `address`.
    pub fn used(
        &mut self,
        address: usize,
        access: Access,
        by: Step,
        before: &Order,
    ) -> Option<Finding> {
        let (base, block) = self.block_at(address)?;
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
            return block.report(kind, base, by.what, then);
        }
        let mut finding = None;
        if !block.allocation.before(before) {
            let then = block.allocation.what.clone();
            finding = block.report(
                FindingKind::UseBeforeAllocation,
                base,
                by.what.clone(),
                then,
            );
        }
        if by.mark.is_some() {
            block.uses.add(by, before);
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
        if let Some(freed) = &block.freed {
            let kind = match freed.before(before) {
                true => FindingKind::DoubleFree,
                false => FindingKind::DoubleFreeAtOnce,
            };
            let then = freed.what.clone();
            findings.extend(block.report(kind, address, by.what, then));
            return Free::AlreadyFreed;
        }
        // A free on the host waits for earlier commands, or does not reuse the memory before they
        // end.
        if by.mark.is_some() {
            if !block.allocation.before(before) {
                let then = block.allocation.what.clone();
                let kind = FindingKind::FreeBeforeAllocation;
                findings.extend(block.report(kind, address, by.what.clone(), then));
            }
            let racing = block.uses.racing(before);
            if let Some(then) = racing.map(|used| used.what.clone()) {
                let kind = FindingKind::FreeBeforeUse;
                findings.extend(block.report(kind, address, by.what.clone(), then));
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
        now: Operation,
        then: Operation,
    ) -> Option<Finding> {
        if self.reported.contains(&kind) {
            return None;
        }
        self.reported.push(kind);
        Some(Finding {
            kind,
            address,
            size: self.size,
            now,
            then,
        })
    }
}

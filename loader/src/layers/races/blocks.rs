//! USM blocks: who allocated, used and freed each, and whether the program ordered that.
//!
//! Owns the records and the findings; what is ordered, `order` says. A block that is dead stays known
//! until its address is allocated again, or may be anyone's memory again.
//!
//! A use that a later use comes after may be forgotten: a free that comes after the later one comes
//! after both. They are looked for once as many were added as were left, so that thousands of uses which
//! nothing orders cost no more each than a few.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::order::{Mark, Order};

/// What a command is, for those who read about it.
#[derive(Clone, Debug)]
pub struct What {
    pub function: &'static str,
    pub kernel: Option<Arc<str>>,
    /// Counted from 1; none for what takes effect on the host.
    pub queue: Option<u64>,
    /// An event was asked for.
    pub event: bool,
    /// Where the application says that it was.
    pub place: Option<Arc<str>>,
}

impl fmt::Display for What {
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

/// Something that happened to a block.
#[derive(Clone, Debug)]
pub struct Step {
    pub what: What,
    /// None for what took effect on the host at once.
    pub mark: Option<Mark>,
    /// What comes after this may count on it too: an allocation that nothing can wait for takes only
    /// what is free after all that comes before it.
    pub instead: Option<Order>,
}

impl Step {
    /// Something that takes effect on the host.
    pub fn host(what: What) -> Step {
        Step {
            what,
            mark: None,
            instead: None,
        }
    }

    fn before(&self, order: &Order) -> bool {
        let marked = self
            .mark
            .as_ref()
            .is_none_or(|mark| order.comes_after(mark));
        marked
            || self
                .instead
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
    born: Step,
    uses: Uses,
    freed: Option<Step>,
    reported: Vec<Trouble>,
}

/// What used a block, in the order in which it was enqueued.
#[derive(Debug, Default)]
struct Uses {
    steps: Vec<Step>,
    /// From so many on, uses that a later one comes after are removed.
    prune_at: usize,
}

/// Fewer uses of a block are not pruned.
const MIN_PRUNED_USES: usize = 16;

impl Uses {
    /// Adds a use that comes after `before`.
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

    /// The last that does not come before. What comes before others that do not is not it.
    fn racing(&self, before: &Order) -> Option<&Step> {
        self.steps.iter().rev().find(|used| !used.before(before))
    }
}

/// How an argument reaches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only USM is allowed there.
    Usm,
    /// The application's own memory is allowed there too.
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    UseBeforeAllocation,
    UseAfterFree,
    UseAndFree,
    FreeBeforeAllocation,
    FreeBeforeUse,
    DoubleFree,
    DoubleFreeAtOnce,
}

/// Something wrong with what a program does to a block.
#[derive(Debug)]
pub struct Finding {
    pub trouble: Trouble,
    pub address: usize,
    pub size: usize,
    /// What is being done now.
    pub now: What,
    /// What it is in conflict with.
    pub then: What,
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
        match self.trouble {
            Trouble::UseBeforeAllocation => write!(
                out,
                "race: {now} uses {memory}, allocated by {then}; no event orders the use after the \
                 allocation{}",
                hint(then)
            ),
            Trouble::UseAfterFree => {
                write!(
                    out,
                    "use after free: {now} uses {memory}, freed by {then} before"
                )
            }
            Trouble::UseAndFree => write!(
                out,
                "race: {now} uses {memory}, freed by {then}; no event orders them"
            ),
            Trouble::FreeBeforeAllocation => write!(
                out,
                "race: {now} frees {memory}, allocated by {then}; no event orders the free after the \
                 allocation{}",
                hint(then)
            ),
            Trouble::FreeBeforeUse => write!(
                out,
                "race: {now} frees {memory}, used by {then}; no event orders the free after the \
                 use{}",
                hint(then)
            ),
            Trouble::DoubleFree => {
                write!(
                    out,
                    "double free: {now} frees {memory}, freed by {then} before"
                )
            }
            Trouble::DoubleFreeAtOnce => write!(
                out,
                "double free: {now} frees {memory}, freed by {then} too; no event orders them"
            ),
        }
    }
}

/// What is missing most simply.
fn hint(first: &What) -> &'static str {
    match (first.queue, first.event) {
        (Some(_), false) => " (it asked for no event)",
        _ => "",
    }
}

/// A free that was noted, to be taken back if it fails.
pub struct Freed {
    address: usize,
    serial: u64,
}

/// What a free is of.
pub enum Free {
    Unknown,
    Noted(Freed),
    /// Something that is dead already.
    Twice,
}

#[derive(Debug, Default)]
pub struct Blocks {
    by_address: BTreeMap<usize, Block>,
    /// Blocks in which a pool of the application's allocates.
    outer: BTreeMap<usize, Block>,
    serials: u64,
}

/// Most recorded blocks. Beyond, freed ones are removed.
const MAX_BLOCKS: usize = 1 << 16;

impl Blocks {
    /// The program got a block. Whatever was known of its addresses is no longer true, except that
    /// a live block around it is a pool's memory.
    pub fn allocated(&mut self, address: usize, size: usize, born: Step) {
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
            born,
            uses: Uses::default(),
            freed: None,
            reported: Vec::new(),
        };
        self.by_address.insert(address, block);
    }

    /// These addresses are someone else's.
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

    fn around(&mut self, address: usize) -> Option<(usize, &mut Block)> {
        let inner = find(&mut self.by_address, address);
        inner.or_else(|| find(&mut self.outer, address))
    }

    /// Before a free of a pool's memory: what the pool allocated is gone with it.
    fn take_out(&mut self, address: usize) {
        let inner = self.by_address.get(&address);
        if inner.is_none_or(|block| block.freed.is_some())
            && let Some(block) = self.outer.remove(&address)
        {
            self.forget(address, block.size);
            self.by_address.insert(address, block);
        }
    }

    /// A command uses what lies at `address`.
    pub fn used(
        &mut self,
        address: usize,
        access: Access,
        by: Step,
        before: &Order,
    ) -> Option<Finding> {
        let (base, block) = self.around(address)?;
        if let Some(freed) = &block.freed {
            if access == Access::Any && freed.is_complete() {
                // Memory that was given back may be the application's by now.
                self.by_address.remove(&base);
                return None;
            }
            let trouble = match freed.before(before) {
                true => Trouble::UseAfterFree,
                false => Trouble::UseAndFree,
            };
            let then = freed.what.clone();
            return block.report(trouble, base, by.what, then);
        }
        let mut finding = None;
        if !block.born.before(before) {
            let then = block.born.what.clone();
            finding = block.report(Trouble::UseBeforeAllocation, base, by.what.clone(), then);
        }
        if by.mark.is_some() {
            block.uses.add(by, before);
        }
        finding
    }

    /// How many uses of a block are kept.
    #[cfg(test)]
    pub fn uses(&self, address: usize) -> usize {
        self.by_address[&address].uses.steps.len()
    }

    /// A command that was noted was not taken after all.
    pub fn unused(&mut self, address: usize, by: &Mark) {
        if let Some((_, block)) = self.around(address) {
            block.uses.remove(by);
        }
    }

    /// A block is about to be freed.
    pub fn freed(
        &mut self,
        address: usize,
        by: Step,
        before: &Order,
        findings: &mut Vec<Finding>,
    ) -> Free {
        self.take_out(address);
        let Some(block) = self.by_address.get_mut(&address) else {
            return Free::Unknown;
        };
        if let Some(freed) = &block.freed {
            let trouble = match freed.before(before) {
                true => Trouble::DoubleFree,
                false => Trouble::DoubleFreeAtOnce,
            };
            let then = freed.what.clone();
            findings.extend(block.report(trouble, address, by.what, then));
            return Free::Twice;
        }
        // A free on the host waits for what was enqueued, or makes no one else's memory of it.
        if by.mark.is_some() {
            if !block.born.before(before) {
                let then = block.born.what.clone();
                let trouble = Trouble::FreeBeforeAllocation;
                findings.extend(block.report(trouble, address, by.what.clone(), then));
            }
            let racing = block.uses.racing(before);
            if let Some(then) = racing.map(|used| used.what.clone()) {
                let trouble = Trouble::FreeBeforeUse;
                findings.extend(block.report(trouble, address, by.what.clone(), then));
            }
        }
        block.freed = Some(by);
        let serial = block.serial;
        Free::Noted(Freed { address, serial })
    }

    /// The free failed: the block is alive.
    pub fn restore(&mut self, freed: &Freed) {
        let block = self.by_address.get_mut(&freed.address);
        if let Some(block) = block.filter(|block| block.serial == freed.serial) {
            block.freed = None;
        }
    }

    /// A free is over: of what it used, nothing is needed any more.
    pub fn settle(&mut self, freed: &Freed) {
        let block = self.by_address.get_mut(&freed.address);
        if let Some(block) = block.filter(|block| block.serial == freed.serial) {
            block.uses = Uses::default();
        }
    }
}

/// The block that an address lies in.
fn find(blocks: &mut BTreeMap<usize, Block>, address: usize) -> Option<(usize, &mut Block)> {
    let (base, block) = blocks.range_mut(..=address).next_back()?;
    (address - base < block.size).then_some((*base, block))
}

impl Block {
    /// Each trouble with a block is told once.
    fn report(
        &mut self,
        trouble: Trouble,
        address: usize,
        now: What,
        then: What,
    ) -> Option<Finding> {
        if self.reported.contains(&trouble) {
            return None;
        }
        self.reported.push(trouble);
        Some(Finding {
            trouble,
            address,
            size: self.size,
            now,
            then,
        })
    }
}

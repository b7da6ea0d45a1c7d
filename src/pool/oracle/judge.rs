//! What every answer of the pool must satisfy.

use super::fake::Extent;
use super::model::{By, Past, Places, Range};
use super::report::{How, Outcome};
use super::run::{Engine, Queue};
use super::script::Step;
use crate::pool::{
    Acquired, Block, Compaction, DecisionTrace, Figures, PoolError, SlabProvider, WaitPolicy,
};
use crate::timeline::{Frontier, Lane};

/// A request as the judge sees it, with what was reserved before it.
pub(super) struct Question<'a> {
    pub bytes: u64,
    pub align: u64,
    pub may_wait: bool,
    /// Bytes by which the pool grew for it.
    pub grew: u64,
    pub before: u64,
    pub places: &'a Places<'a>,
}

impl Engine<'_> {
    /// Checks that the block is where nothing live and nothing pending is.
    pub(super) fn placed(
        &mut self,
        got: &Acquired,
        grew: bool,
        past: &Past,
    ) -> Result<Outcome, String> {
        let block = got.block();
        let (addr, end) = (block.addr, block.addr + block.bytes);
        let memory = self.provider.memory_at(addr, end);
        if memory.iter().map(|(_, bytes)| bytes).sum::<u64>() != block.bytes {
            return Err(format!("{block:?} lies in no slab"));
        }
        let meets = |range: &&Range| range.shares(&memory);
        if let Some(live) = self.model.live.values().find(meets) {
            return Err(format!(
                "illegal: overlaps {}, which is live",
                self.script.name(live.step)
            ));
        }
        let unordered = |r: &&Range| !self.model.precedes(&r.past, past, By::Enforced);
        if let Some(dead) = self.model.dead.iter().filter(meets).find(unordered) {
            return Err(format!(
                "illegal: {} may still be in use",
                self.script.name(dead.step)
            ));
        }
        let how = match () {
            () if grew => How::Grew,
            () if self.ever.iter().any(|(from, to)| *from < end && *to > addr) => How::Reused,
            () => How::Fresh,
        };
        self.ever.push((addr, end));
        let step = self.events.len();
        self.model.live.insert(
            addr,
            Range {
                step,
                addr,
                end,
                memory,
                past: past.clone(),
            },
        );
        Ok(Outcome {
            how,
            block: Some(block),
            waits: got.wait().map_or(0, Frontier::len),
            blocks: 0,
        })
    }

    pub(super) fn judge(
        &self,
        ask: &Question<'_>,
        answer: &Result<Acquired, PoolError>,
        past: &Past,
    ) -> Result<(), String> {
        let config = &self.script.setup.config;
        let need = match answer {
            Ok(acquired) => {
                let block = acquired.block();
                self.rounded(ask, &block)?;
                block.bytes
            }
            Err(PoolError::Exhausted { need }) => *need,
            Err(PoolError::InvalidSize) if ask.bytes == 0 => return Ok(()),
            Err(error) => return Err(format!("unexpected: {error}")),
        };
        let size = (need, ask.align);
        let waited = answer.as_ref().is_ok_and(|a| a.wait().is_some());
        if ask.grew == 0 && !waited && answer.is_ok() {
            return Ok(());
        }
        if !self.is_exact() {
            return Ok(());
        }
        let legal = |range: &Range| self.model.precedes(&range.past, past, By::Known);
        if self.model.fits(ask.places, config.min_align, size, legal) {
            return Err("missed: a legal block would have fit".into());
        }
        // Pages can be collected for what does not fit into one.
        let page = self
            .provider
            .page()
            .filter(|page| need > *page && ask.align <= *page);
        let whole = page.map_or(need, |page| need.next_multiple_of(page));
        let pages = |usable: &dyn Fn(&Range) -> bool| match page {
            Some(_) => self.model.unused(ask.places.extents, usable),
            None => 0,
        };
        let compaction = config.options.compaction;
        let page = page.filter(|_| compaction != Compaction::Never);
        let done = |range: &Range| self.model.is_done(&range.past, By::Known);
        let once = self.script.setup.maps_once;
        let ready = if once { pages(&done) } else { pages(&legal) };
        // With growth ahead of need it grows by more.
        let exact = page.is_some() && config.options.growth_share == 0;
        let always = exact && compaction == Compaction::Always;
        if always && answer.is_ok() && ask.grew > whole.saturating_sub(ready) {
            return Err("missed: it grew by more than there was no legal page for".into());
        }
        let waits = if ask.may_wait {
            config.waits
        } else {
            WaitPolicy::Never
        };
        if waited && waits == WaitPolicy::Never {
            return Err("a wait against the policy".into());
        }
        let slack = self.slack(ask);
        let room = config.max_bytes.unwrap_or(1 << 60) - ask.before;
        let unit = self.provider.page().unwrap_or(1);
        let could_grow = (need + slack).next_multiple_of(unit) <= room
            || page.is_some() && whole <= room + ready;
        if could_grow && waited && waits == WaitPolicy::Bounded || could_grow && answer.is_err() {
            return Err("it could have grown".into());
        }
        let any = || {
            // Where a page has one address at a time, the stream cannot wait for it.
            let all = if once { ready } else { pages(&|_| true) };
            let short = answer.is_err() && whole <= room + all;
            self.model
                .fits(ask.places, config.min_align, size, |_| true)
                || page.is_some() && (short || exact && ask.grew > whole.saturating_sub(all))
        };
        if !waited
            && (answer.is_err() && waits != WaitPolicy::Never || waits == WaitPolicy::Always)
            && any()
        {
            return Err("missed: a pending block would have fit".into());
        }
        let idle = self.model.unused(ask.places.extents, done);
        if answer.is_err() && (need + slack).next_multiple_of(unit) <= room + idle {
            return Err("giving back idle slabs would have made room".into());
        }
        Ok(())
    }

    /// Checks that the host is told to wait exactly where that helps. That what it is told suffices shows
    /// when the request is repeated.
    pub(super) fn judge_block(
        &self,
        ask: &Question<'_>,
        need: u64,
        wait: Option<&Frontier>,
    ) -> Result<(), String> {
        let config = &self.script.setup.config;
        let Some(wait) = wait else {
            // As `places`, from before the request: it may have released what `left` counts.
            let room = config.max_bytes.unwrap_or(1 << 60) - ask.before;
            let unit = self.provider.page().unwrap_or(1);
            let left = self.model.unused(ask.places.extents, |_| true);
            let grows = (need + self.slack(ask)).next_multiple_of(unit) <= room + left;
            let size = (need, ask.align);
            let fits = self
                .model
                .fits(ask.places, config.min_align, size, |_| true);
            return match (grows || fits) && config.waits != WaitPolicy::Never {
                true => Err("missed: the host could have waited".into()),
                false => Ok(()),
            };
        };
        if config.waits == WaitPolicy::Never {
            return Err("the host waits against the policy".into());
        }
        let mut waited = Past::default();
        self.model.wait(&mut waited, wait)?;
        match wait.is_empty() || self.model.is_done(&waited, By::Known) {
            true => Err("the host waits for nothing".into()),
            false => Ok(()),
        }
    }

    /// Whether the pool uses all that is legal. An extent of a stream that coalesces counts as in use until all that was
    /// joined in it is complete.
    fn is_exact(&self) -> bool {
        !self.script.setup.config.options.coalescing
    }

    /// What alignment may cost of a slab.
    fn slack(&self, ask: &Question<'_>) -> u64 {
        match ask.align > self.script.setup.granularity {
            true => ask.align - 1,
            false => 0,
        }
    }

    /// Checks what is told of a miss: that some dependency would have made free memory usable exactly
    /// where there was enough, and that the one named would have.
    pub(super) fn explained(
        &self,
        ask: &Question<'_>,
        answer: &Result<Acquired, PoolError>,
        past: &Past,
        decision: &DecisionTrace,
    ) -> Result<(), String> {
        let need = match answer {
            Ok(acquired) => acquired.block().bytes,
            Err(PoolError::Exhausted { need }) => *need,
            Err(_) => return Ok(()),
        };
        if answer.is_ok() != decision.reuse.is_some() {
            return Err(format!("{answer:?} told as {decision:?}"));
        }
        let waited = answer.as_ref().is_ok_and(|a| a.wait().is_some());
        if ask.grew == 0 && !waited && answer.is_ok() {
            return Ok(());
        }
        let unit = self.script.setup.config.min_align;
        let page = self.provider.page();
        let compaction = self.script.setup.config.options.compaction;
        let page = page.filter(|page| need > *page && ask.align <= *page);
        let page = page.filter(|_| compaction != Compaction::Never);
        let enough = |usable: &dyn Fn(&Range) -> bool| {
            self.model.fits(ask.places, unit, (need, ask.align), usable)
                || page.is_some_and(|page| {
                    self.model.unused(ask.places.extents, usable) >= need.next_multiple_of(page)
                })
        };
        let Some(lack) = &decision.missing else {
            // Where the pool would rather grow than remap what it may have, nothing is lacking.
            let legal = |range: &Range| self.model.precedes(&range.past, past, By::Known);
            let rather = compaction != Compaction::Always && enough(&legal);
            return match enough(&|_| true) && !rather {
                true => Err("a miss is not explained".into()),
                false => Ok(()),
            };
        };
        let mut then = past.clone();
        self.model.wait(&mut then, &lack.wait)?;
        match enough(&|range| self.model.precedes(&range.past, &then, By::Enforced)) {
            true => Ok(()),
            false => Err(format!("{lack:?} would not have served")),
        }
    }

    fn rounded(&self, ask: &Question<'_>, block: &Block) -> Result<(), String> {
        let unit = self.script.setup.config.min_align;
        let over = block
            .bytes
            .checked_sub(ask.bytes)
            .ok_or("a block too small")?;
        let fair = over < unit || over < ask.bytes / 8 && over < 1 << 20;
        let aligned =
            block.addr.is_multiple_of(unit.max(ask.align)) && block.bytes.is_multiple_of(unit);
        if !fair || !aligned || block.requested != ask.bytes {
            return Err(format!("badly rounded: {block:?} for {} bytes", ask.bytes));
        }
        Ok(())
    }

    /// Checks what went back to the provider, and that what had to go went.
    pub(super) fn given_back(&self, step: &Step, before: &[Extent]) -> Result<(), String> {
        let after = self.provider.extents();
        let stays = |extent: &&Extent| after.iter().any(|other| other.number == extent.number);
        let gone = || before.iter().filter(|extent| !stays(extent));
        for extent in gone() {
            if !self.model.is_idle(extent, By::Enforced) {
                return Err(format!("illegal: {extent:?} given back while in use"));
            }
        }
        for slab in self.provider.take_retired() {
            let meets = |range: &&Range| range.addr < slab.end() && range.end > slab.base;
            if let Some(range) = self.model.live.values().find(meets) {
                let name = self.script.name(range.step);
                return Err(format!("illegal: {name} is live at {slab:?}, given back"));
            }
            let mut dead = self.model.dead.iter().filter(meets);
            if let Some(range) = dead.find(|r| !self.model.is_done(&r.past, By::Enforced)) {
                let name = self.script.name(range.step);
                return Err(format!(
                    "illegal: {name} may still use what led to {slab:?}"
                ));
            }
        }
        let keep = match step {
            Step::Settle | Step::Wait(_) | Step::Finish(_) => self.pool.config().release_threshold,
            Step::Trim(bytes) => *bytes,
            _ => return Ok(()),
        };
        let reserved: u64 = after.iter().map(|extent| extent.bytes).sum();
        if reserved > keep
            && self.is_exact()
            && after
                .iter()
                .any(|extent| self.model.is_idle(extent, By::Known))
        {
            return Err(format!(
                "{reserved} bytes kept, though idle and above {keep}"
            ));
        }
        if gone().any(|extent| reserved + extent.bytes <= keep) {
            return Err(format!("more given back than {keep} asks"));
        }
        Ok(())
    }

    pub(super) fn figures(&mut self) -> Result<(), String> {
        let found = self.pool.figures();
        let used = self
            .model
            .live
            .values()
            .map(|range| range.end - range.addr)
            .sum();
        let reserved = self.provider.bytes_out();
        self.highs.used_high = self.highs.used_high.max(used);
        self.highs.reserved_high = self.highs.reserved_high.max(reserved);
        let right = Figures {
            used,
            reserved,
            ..self.highs
        };
        if found != right {
            return Err(format!("figures {found:?} instead of {right:?}"));
        }
        let max = self.script.setup.config.max_bytes;
        if max.is_some_and(|max| reserved > max) {
            return Err(format!("{reserved} bytes reserved, above the maximum"));
        }
        self.pool.audit()?;
        for queue in self.queues.values() {
            match queue {
                Queue::InOrder(lane, _) => lane.audit()?,
                Queue::OutOfOrder { lanes, .. } => lanes.iter().try_for_each(Lane::audit)?,
            }
        }
        match self.provider.wrong().pop() {
            Some(wrong) => Err(wrong),
            None => Ok(()),
        }
    }
}

//! An engine in miniature: runs a script on a pool and on the model, and judges every answer.

use super::fake::FakeSource;
use super::model::{By, Model, Past, Range};
use super::script::{QueueName, Script, Step};
use crate::pool::{Acquired, Block, Figures, Order, Pool, PoolError, Request, Slab, WaitPolicy};
use crate::timeline::{Frontier, Lane};
use std::collections::HashMap;
use std::sync::Arc;

/// Physical lanes of an out-of-order queue.
const LANES: usize = 3;

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The pool grew for it.
    Grew,
    /// Memory that no earlier block had.
    Fresh,
    /// Memory of an earlier block.
    Reused,
    Failed(PoolError),
    Freed,
    Unknown,
    Other,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub how: How,
    pub block: Option<Block>,
    /// Lanes that have to be waited for.
    pub waits: usize,
}

/// What became of a script.
#[derive(Debug)]
pub struct Report {
    pub outcomes: Vec<Outcome>,
    pub pool: Pool<Arc<FakeSource>>,
    pub source: Arc<FakeSource>,
}

enum Queue {
    InOrder(Box<Lane>),
    OutOfOrder {
        lanes: Vec<Lane>,
        all: Frontier,
        barrier: Frontier,
    },
}

struct Engine<'a> {
    script: &'a Script,
    source: Arc<FakeSource>,
    pool: Pool<Arc<FakeSource>>,
    queues: HashMap<QueueName, Queue>,
    /// Of each step, on either side.
    events: Vec<Frontier>,
    pasts: Vec<Past>,
    model: Model,
    outcomes: Vec<Outcome>,
    highs: Figures,
    ever: Vec<(u64, u64)>,
}

/// Runs a script. The error is the first answer that the model refutes, or says `invalid` when the
/// script itself uses or frees a block without ordering.
pub fn run(script: &Script) -> Result<Report, String> {
    let source = Arc::new(FakeSource::new(script.setup.granularity));
    let mut engine = Engine {
        script,
        pool: Pool::new(Arc::clone(&source), script.setup.config),
        source,
        queues: HashMap::new(),
        events: Vec::new(),
        pasts: Vec::new(),
        model: Model::default(),
        outcomes: Vec::new(),
        highs: Figures::default(),
        ever: Vec::new(),
    };
    for (at, step) in script.steps.iter().enumerate() {
        engine
            .step(step)
            .map_err(|why| format!("{why}, at {}", script.name(at)))?;
        engine
            .figures()
            .map_err(|why| format!("{why}, after {}", script.name(at)))?;
    }
    let Engine {
        outcomes,
        pool,
        source,
        ..
    } = engine;
    Ok(Report {
        outcomes,
        pool,
        source,
    })
}

impl Engine<'_> {
    fn step(&mut self, step: &Step) -> Result<(), String> {
        let slabs = self.source.slabs();
        let mut outcome = Outcome {
            how: How::Other,
            block: None,
            waits: 0,
        };
        let (mut event, mut past) = (Frontier::new(), Past::default());
        match step {
            Step::Alloc {
                queue,
                bytes,
                align,
                after,
                may_wait,
            } => {
                let request = (*bytes, *align, *may_wait);
                (outcome, event, past) = self.alloc(*queue, request, after, &slabs)?;
            }
            Step::Free {
                queue,
                block,
                after,
            } => {
                (outcome, event, past) = self.free(*queue, *block, after)?;
            }
            Step::Run { queue, uses, after } => {
                (event, past) = self.command(*queue, uses, after)?
            }
            Step::Barrier { queue, after } => (event, past) = self.barrier(*queue, after)?,
            Step::Wait(step) => {
                self.events[*step].mark_complete();
                let done = self.pasts[*step].clone();
                self.model.complete(&done);
                self.pool.settle();
            }
            Step::Finish(queue) => self.finish(*queue),
            Step::Settle => self.pool.settle(),
            Step::Trim(bytes) => self.pool.trim(*bytes),
            Step::Threshold(bytes) => self.pool.set_release_threshold(*bytes),
        }
        self.events.push(event);
        self.pasts.push(past);
        self.outcomes.push(outcome);
        self.given_back(step, &slabs)
    }

    /// Sees to it that the queue exists; an in-order one starts with a command in flight.
    fn open(&mut self, name: QueueName) {
        if self.queues.contains_key(&name) {
            return;
        }
        let queue = match name {
            QueueName::InOrder(_) => {
                let mut lane = Box::new(Lane::new());
                lane.advance();
                self.model.command(name, lane.id(), Past::default());
                Queue::InOrder(lane)
            }
            QueueName::OutOfOrder(_) => Queue::OutOfOrder {
                lanes: (0..LANES).map(|_| Lane::new()).collect(),
                all: Frontier::new(),
                barrier: Frontier::new(),
            },
            QueueName::Host => return,
        };
        self.queues.insert(name, queue);
    }

    /// What a step waits for, on either side.
    fn dependencies(&mut self, queue: QueueName, after: &[usize]) -> (Frontier, Past) {
        self.open(queue);
        let mut frontier = Frontier::new();
        after
            .iter()
            .for_each(|step| frontier.join(&self.events[*step]));
        let past = self
            .model
            .before(queue, after.iter().map(|step| &self.pasts[*step]));
        match self.queues.get_mut(&queue) {
            Some(Queue::InOrder(lane)) => lane.wait_for(&frontier),
            Some(Queue::OutOfOrder { barrier, .. }) => frontier.join(barrier),
            None => {}
        }
        (frontier, past)
    }

    fn command(
        &mut self,
        queue: QueueName,
        uses: &[usize],
        after: &[usize],
    ) -> Result<(Frontier, Past), String> {
        let (frontier, past) = self.dependencies(queue, after);
        let pick = self.events.len() % LANES;
        let (event, lane) = match self.queues.get_mut(&queue) {
            Some(Queue::InOrder(lane)) => {
                lane.advance();
                (lane.frontier(), lane.id())
            }
            Some(Queue::OutOfOrder { lanes, all, .. }) => {
                lanes[pick].wait_for(&frontier);
                lanes[pick].advance();
                let event = lanes[pick].frontier();
                all.join(&event);
                (event, lanes[pick].id())
            }
            None => return Err("invalid: the host runs nothing".into()),
        };
        let past = self.model.command(queue, lane, past);
        for block in uses {
            let addr = self.outcomes[*block].block.map(|b| b.addr);
            let Some(range) = addr.and_then(|addr| self.model.live.get(&addr)) else {
                continue;
            };
            if !self
                .model
                .precedes(&self.pasts[*block], &past, By::Enforced)
            {
                return Err("invalid: a use before its allocation".into());
            }
            let mut used = range.past.clone();
            used.join(&past);
            if let Some(range) = addr.and_then(|addr| self.model.live.get_mut(&addr)) {
                range.past = used;
            }
        }
        Ok((event, past))
    }

    fn barrier(&mut self, queue: QueueName, after: &[usize]) -> Result<(Frontier, Past), String> {
        let (frontier, past) = self.dependencies(queue, after);
        let event = match self.queues.get_mut(&queue) {
            Some(Queue::InOrder(lane)) => lane.frontier(),
            Some(Queue::OutOfOrder { all, barrier, .. }) => {
                all.join(&frontier);
                *barrier = all.clone();
                all.clone()
            }
            None => return Err("invalid: the host has no barrier".into()),
        };
        let past = self.model.all_of(queue, true, &past);
        Ok((event, past))
    }

    fn finish(&mut self, queue: QueueName) {
        self.open(queue);
        match self.queues.get(&queue) {
            Some(Queue::InOrder(lane)) => lane.frontier().mark_complete(),
            Some(Queue::OutOfOrder { all, .. }) => all.mark_complete(),
            None => {}
        }
        let done = self.model.all_of(queue, false, &Past::default());
        self.model.complete(&done);
        self.pool.settle();
    }

    fn free(
        &mut self,
        queue: QueueName,
        block: usize,
        after: &[usize],
    ) -> Result<(Outcome, Frontier, Past), String> {
        let (frontier, mut past) = self.dependencies(queue, after);
        let mut outcome = Outcome {
            how: How::Unknown,
            block: None,
            waits: 0,
        };
        // A failed allocation has nothing to free, and a null pointer is not the pool's business.
        let Some(Block { addr, .. }) = self.outcomes[block].block else {
            let event = self.enqueued(queue, &frontier);
            self.model.passed(queue, &past);
            return Ok((outcome, event, past));
        };
        let death = match self.queues.get(&queue) {
            Some(Queue::InOrder(lane)) => lane.tip(),
            Some(Queue::OutOfOrder { .. }) => frontier.clone(),
            None => {
                past = self.model.everything();
                self.all_tips()
            }
        };
        let range = self.model.live.remove(&addr);
        match (self.pool.release(addr, death), range) {
            (Ok(block), Some(range)) => {
                if !self.model.precedes(&range.past, &past, By::Enforced) {
                    return Err("invalid: a free before a use".into());
                }
                if block.addr != range.addr || block.addr + block.bytes != range.end {
                    return Err(format!("{block:?} released instead of {range:?}"));
                }
                outcome = Outcome {
                    how: How::Freed,
                    block: Some(block),
                    waits: 0,
                };
                let dead = Range {
                    past: past.clone(),
                    ..range
                };
                self.model.dead.push(dead);
            }
            (Err(_), None) => {}
            (Ok(block), None) => return Err(format!("{block:?} released twice")),
            (Err(error), Some(_)) => return Err(error.to_string()),
        }
        if queue == QueueName::Host {
            // The call has returned; it leaves nothing to wait for.
            past = Past::default();
        }
        let event = self.enqueued(queue, &frontier);
        self.model.passed(queue, &past);
        Ok((outcome, event, past))
    }

    fn alloc(
        &mut self,
        queue: QueueName,
        (bytes, align, may_wait): (u64, u64, bool),
        after: &[usize],
        slabs: &[Slab],
    ) -> Result<(Outcome, Frontier, Past), String> {
        let (mut frontier, mut past) = self.dependencies(queue, after);
        let order = match self.queues.get(&queue) {
            Some(Queue::InOrder(lane)) => Order::Lane(lane),
            Some(Queue::OutOfOrder { .. }) => Order::Frontier(&frontier),
            None => Order::Sync,
        };
        let before = self.pool.figures().reserved;
        let growths = self.pool.counters().growths;
        let answer = self.pool.acquire(&Request {
            bytes,
            align,
            order,
            may_wait,
        });
        let grew = self.pool.counters().growths > growths;
        let question = Question {
            bytes,
            align,
            may_wait,
            grew,
            before,
            slabs,
        };
        self.judge(&question, &answer, &past)?;
        let acquired = match answer {
            Ok(acquired) => acquired,
            Err(error) => {
                let outcome = Outcome {
                    how: How::Failed(error),
                    block: None,
                    waits: 0,
                };
                let event = self.enqueued(queue, &frontier);
                self.model.passed(queue, &past);
                return Ok((outcome, event, past));
            }
        };
        if let Some(wait) = acquired.wait() {
            self.model.wait(&mut past, wait)?;
            match self.queues.get_mut(&queue) {
                Some(Queue::InOrder(lane)) => lane.wait_for(wait),
                Some(Queue::OutOfOrder { .. }) => frontier.join(wait),
                None => {
                    wait.mark_complete();
                    self.model.complete(&past);
                }
            }
        }
        let outcome = self.placed(&acquired, grew, &past)?;
        let event = self.enqueued(queue, &frontier);
        self.model.passed(queue, &past);
        Ok((outcome, event, past))
    }

    /// The event of an allocation or a free.
    fn enqueued(&mut self, queue: QueueName, frontier: &Frontier) -> Frontier {
        match self.queues.get_mut(&queue) {
            Some(Queue::InOrder(lane)) => lane.frontier(),
            Some(Queue::OutOfOrder { all, .. }) => {
                all.join(frontier);
                frontier.clone()
            }
            None => Frontier::new(),
        }
    }

    fn all_tips(&self) -> Frontier {
        let mut out = Frontier::new();
        for queue in self.queues.values() {
            match queue {
                Queue::InOrder(lane) => out.join(&lane.tip()),
                Queue::OutOfOrder { lanes, .. } => lanes.iter().for_each(|l| out.join(&l.tip())),
            }
        }
        out
    }
}

/// A request as the judge sees it, with what was reserved before it.
struct Question<'a> {
    bytes: u64,
    align: u64,
    may_wait: bool,
    grew: bool,
    before: u64,
    slabs: &'a [Slab],
}

/// Judgement: what an answer must satisfy.
impl Engine<'_> {
    /// Checks that the block is where nothing live and nothing pending is.
    fn placed(&mut self, got: &Acquired, grew: bool, past: &Past) -> Result<Outcome, String> {
        let block = got.block();
        let (addr, end) = (block.addr, block.addr + block.bytes);
        let within = |slab: &Slab| slab.base <= addr && end <= slab.base + slab.bytes;
        if !self.source.slabs().iter().any(within) {
            return Err(format!("{block:?} lies in no slab"));
        }
        let meets = |range: &&Range| range.addr < end && range.end > addr;
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
                past: past.clone(),
            },
        );
        Ok(Outcome {
            how,
            block: Some(block),
            waits: got.wait().map_or(0, Frontier::len),
        })
    }

    fn judge(
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
        if !ask.grew && !waited && answer.is_ok() {
            return Ok(());
        }
        let legal = |range: &Range| self.model.precedes(&range.past, past, By::Known);
        if self.model.fits(ask.slabs, config.min_align, size, legal) {
            return Err("missed: a legal block would have fit".into());
        }
        let waits = if ask.may_wait {
            config.waits
        } else {
            WaitPolicy::Never
        };
        if waited && waits == WaitPolicy::Never {
            return Err("a wait against the policy".into());
        }
        let slack = if ask.align > self.script.setup.granularity {
            ask.align - 1
        } else {
            0
        };
        let room = config.max_bytes.unwrap_or(1 << 60) - ask.before;
        let could_grow = need + slack <= room;
        if could_grow && waited && waits == WaitPolicy::Bounded || could_grow && answer.is_err() {
            return Err("it could have grown".into());
        }
        let any = || self.model.fits(ask.slabs, config.min_align, size, |_| true);
        if !waited
            && (answer.is_err() && waits != WaitPolicy::Never || waits == WaitPolicy::Always)
            && any()
        {
            return Err("missed: a pending block would have fit".into());
        }
        let idle = ask
            .slabs
            .iter()
            .filter(|slab| self.model.is_idle(**slab, By::Known));
        let idle: u64 = idle.map(|slab| slab.bytes).sum();
        if answer.is_err() && need + slack <= room + idle {
            return Err("giving back idle slabs would have made room".into());
        }
        Ok(())
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

    /// Checks what went back to the source, and that what had to go went.
    fn given_back(&self, step: &Step, before: &[Slab]) -> Result<(), String> {
        let after = self.source.slabs();
        for slab in before.iter().filter(|slab| !after.contains(slab)) {
            if !self.model.is_idle(*slab, By::Enforced) {
                return Err(format!("illegal: {slab:?} given back while in use"));
            }
        }
        let keep = match step {
            Step::Settle | Step::Wait(_) | Step::Finish(_) => self.pool.release_threshold(),
            Step::Trim(bytes) => *bytes,
            _ => return Ok(()),
        };
        let reserved: u64 = after.iter().map(|slab| slab.bytes).sum();
        if reserved > keep
            && after
                .iter()
                .any(|slab| self.model.is_idle(*slab, By::Known))
        {
            return Err(format!(
                "{reserved} bytes kept, though idle and above {keep}"
            ));
        }
        let needless = before.iter().filter(|slab| !after.contains(slab));
        if needless
            .into_iter()
            .any(|slab| reserved + slab.bytes <= keep)
        {
            return Err(format!("more given back than {keep} asks"));
        }
        Ok(())
    }

    fn figures(&mut self) -> Result<(), String> {
        let found = self.pool.figures();
        let used = self
            .model
            .live
            .values()
            .map(|range| range.end - range.addr)
            .sum();
        let reserved = self.source.bytes_out();
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
        match self.source.wrong().pop() {
            Some(wrong) => Err(wrong),
            None => Ok(()),
        }
    }
}

impl Report {
    /// Whether a claim of [`check`](super::check)'s language holds; the error is what was found.
    pub fn holds(&self, script: &Script, claim: &str) -> Result<(), String> {
        let words: Vec<&str> = claim
            .split([' ', ','])
            .filter(|word| !word.is_empty())
            .collect();
        let at = |name: &str| script.find(name).ok_or_else(|| format!("no step {name}"));
        let outcome = &self.outcomes[at(words.first().ok_or("an empty claim")?)?];
        let same = |other: &str, inside: bool| -> Result<bool, String> {
            let other = self.outcomes[at(other)?].block;
            let (Some(new), Some(old)) = (outcome.block, other) else {
                return Ok(false);
            };
            let starts = new.addr == old.addr;
            let lies = old.addr <= new.addr && new.addr + new.bytes <= old.addr + old.bytes;
            Ok(outcome.how == How::Reused && if inside { lies } else { starts })
        };
        let held = match words[1..] {
            ["grows"] => outcome.how == How::Grew,
            ["fresh"] => outcome.how == How::Fresh,
            ["exhausted"] => matches!(outcome.how, How::Failed(PoolError::Exhausted { .. })),
            ["unknown"] => outcome.how == How::Unknown,
            ["=", other, "no", "wait"] => same(other, false)? && outcome.waits == 0,
            ["=", other, "waits"] => same(other, false)? && outcome.waits > 0,
            ["in", other] => same(other, true)? && outcome.waits == 0,
            ["in", other, "waits"] => same(other, true)? && outcome.waits > 0,
            _ => return Err("a claim in no known form".into()),
        };
        if held {
            Ok(())
        } else {
            Err(format!("found {outcome:?}"))
        }
    }
}

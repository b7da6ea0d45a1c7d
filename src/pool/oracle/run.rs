//! An engine in miniature: runs a script on a pool and on the model, and has every answer judged.

use super::fake::FakeProvider;
use super::judge::Question;
use super::model::{By, Model, Past, Places, Range};
use super::report::{How, Outcome, Report};
use super::script::{QueueName, Script, Step};
use crate::pool::{
    Acquired, Block, DecisionTrace, Figures, Order, Pool, PoolError, Request, Reuse, StreamCache,
};
use crate::timeline::{Clock, Frontier, Lane};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// Physical lanes of an out-of-order queue.
const LANES: usize = 3;

pub(super) enum Queue {
    InOrder(Box<Lane>, Arc<StreamCache>),
    OutOfOrder {
        lanes: Vec<Lane>,
        all: Frontier,
        barrier: Frontier,
    },
}

pub(super) struct Engine<'a> {
    pub script: &'a Script,
    pub provider: Arc<FakeProvider>,
    pub pool: Pool<Arc<FakeProvider>>,
    pub caches: bool,
    pub cached: u64,
    pub queues: HashMap<QueueName, Queue>,
    /// Of each step, on either side.
    pub events: Vec<Frontier>,
    pub pasts: Vec<Past>,
    pub model: Model,
    pub outcomes: Vec<Outcome>,
    pub highs: Figures,
    pub ever: Vec<(u64, u64)>,
}

/// Runs a script. The error is the first answer that the model refutes, or says `invalid` when the
/// script itself uses or frees a block without ordering.
pub fn run(script: &Script) -> Result<Report, String> {
    run_with(script, true)
}

/// Runs a script as [`run`] does, with or without a cache for each in-order queue. A deterministic script runs twice.
/// The second time completion is observed that the program does not await and the model hears nothing of: that must
/// change no answer.
pub fn run_with(script: &Script, caches: bool) -> Result<Report, String> {
    let report = run_once(script, caches, false)?;
    if script.setup.deterministic {
        report.agrees(script, &run_once(script, caches, true)?)?;
    }
    Ok(report)
}

fn run_once(script: &Script, caches: bool, observing: bool) -> Result<Report, String> {
    let granularity = script.setup.granularity;
    let provider = Arc::new(match script.setup.paged {
        true if script.setup.maps_once => FakeProvider::paged(granularity).mapping_once(),
        true if script.setup.leaves_mapped => FakeProvider::paged(granularity).leaving_mapped(),
        true => FakeProvider::paged(granularity),
        false => FakeProvider::new(granularity),
    });
    let mut engine = Engine {
        script,
        pool: Pool::new(Arc::clone(&provider), script.setup.config),
        provider,
        caches,
        cached: 0,
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
        if observing && at % 3 == 0 {
            engine.observe();
        }
    }
    let Engine {
        outcomes,
        pool,
        provider,
        cached,
        ..
    } = engine;
    Ok(Report {
        outcomes,
        pool,
        provider,
        cached,
    })
}

impl Engine<'_> {
    fn step(&mut self, step: &Step) -> Result<(), String> {
        let (slabs, extents) = (self.provider.slabs(), self.provider.extents());
        let places = Places {
            slabs: &slabs,
            extents: &extents,
        };
        let mut outcome = Outcome {
            how: How::Other,
            block: None,
            waits: 0,
            blocks: 0,
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
                let after = self.dependencies(*queue, after);
                (outcome, event, past) = self.alloc(*queue, request, after, &places)?;
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
                self.events[*step].mark_awaited();
                let done = self.pasts[*step].clone();
                self.model.complete(&done);
                self.pool.settle();
            }
            Step::Finish(queue) => self.finish(*queue),
            Step::Settle => self.pool.settle(),
            Step::Trim(bytes) => self.pool.shrink(*bytes),
            Step::Threshold(bytes) => self.pool.set_release_threshold(*bytes),
        }
        self.events.push(event);
        self.pasts.push(past);
        self.outcomes.push(outcome);
        self.given_back(step, &extents)
    }

    fn lane(&self) -> Lane {
        Lane::with(Clock::of(self.script.setup.deterministic))
    }

    /// All that was enqueued has completed, and was seen to.
    fn observe(&self) {
        for queue in self.queues.values() {
            let seen = |lane: &Lane| lane.clock().raise(lane.epoch());
            match queue {
                Queue::InOrder(lane, _) => seen(lane),
                Queue::OutOfOrder { lanes, .. } => lanes.iter().for_each(seen),
            }
        }
    }

    /// Sees to it that the queue exists; an in-order one starts with a command in flight.
    fn open(&mut self, name: QueueName) {
        if self.queues.contains_key(&name) {
            return;
        }
        let queue = match name {
            QueueName::InOrder(_) => {
                let mut lane = Box::new(self.lane());
                lane.advance();
                self.model.command(name, lane.id(), Past::default());
                let cache = StreamCache::new(lane.clock(), &Arc::default());
                Queue::InOrder(lane, cache)
            }
            QueueName::OutOfOrder(_) => Queue::OutOfOrder {
                lanes: (0..LANES).map(|_| self.lane()).collect(),
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
            Some(Queue::InOrder(lane, _)) => lane.wait_for(&frontier),
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
            Some(Queue::InOrder(lane, _)) => {
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
            Some(Queue::InOrder(lane, _)) => lane.frontier(),
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
            Some(Queue::InOrder(lane, cache)) => {
                if cache.replayable().contains(&self.pool.key()) {
                    self.pool.plan(cache, lane);
                }
                lane.frontier().mark_awaited();
            }
            Some(Queue::OutOfOrder { all, .. }) => all.mark_awaited(),
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
            blocks: 0,
        };
        // A failed allocation has nothing to free, and a null pointer is not the pool's business.
        let Some(Block { addr, .. }) = self.outcomes[block].block else {
            let event = self.enqueued(queue, &frontier);
            self.model.passed(queue, &past);
            return Ok((outcome, event, past));
        };
        let death = match self.queues.get(&queue) {
            Some(Queue::InOrder(lane, _)) => lane.tip(),
            Some(Queue::OutOfOrder { .. }) => frontier.clone(),
            None => {
                past = self.model.everything();
                self.all_tips()
            }
        };
        let range = self.model.live.remove(&addr);
        let cached = match self.queues.get(&queue) {
            Some(Queue::InOrder(lane, cache)) if self.caches => {
                let point = lane.tip_epoch();
                point.and_then(|epoch| cache.free(addr, epoch))
            }
            _ => None,
        };
        let freed = cached.or_else(|| self.pool.release(addr, death));
        match (freed, range) {
            (Some(block), Some(range)) => {
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
                    blocks: 0,
                };
                let dead = Range {
                    past: past.clone(),
                    ..range
                };
                self.model.dead.push(dead);
            }
            (None, None) => {}
            (Some(block), None) => return Err(format!("{block:?} released twice")),
            (None, Some(_)) => return Err(format!("{addr:#x} is no live allocation")),
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
        (mut frontier, mut past): (Frontier, Past),
        places: &Places<'_>,
    ) -> Result<(Outcome, Frontier, Past), String> {
        let order = match self.queues.get(&queue) {
            Some(Queue::InOrder(lane, _)) => Order::Lane(lane),
            Some(Queue::OutOfOrder { .. }) => Order::Frontier(&frontier),
            None => Order::Sync,
        };
        let before = self.pool.figures().reserved;
        let grown = self.pool.counters().grown_bytes;
        let decision = RefCell::<DecisionTrace>::default();
        let request = Request {
            bytes,
            align,
            order,
            may_wait,
            decision: Some(&decision),
        };
        let answer = match self.queues.get(&queue) {
            Some(Queue::InOrder(_, cache)) if self.caches => {
                let cached = (align <= 1)
                    .then(|| cache.alloc(self.pool.key(), bytes))
                    .flatten();
                self.cached += u64::from(cached.is_some());
                if cached.is_some() {
                    // A cache tells nothing.
                    decision.borrow_mut().reuse = Some(Reuse::OwnLane);
                }
                let cached = cached.map(|block| Ok(Acquired::Ready(block)));
                cached.unwrap_or_else(|| self.pool.acquire_on(cache, &request))
            }
            _ => self.pool.acquire(&request),
        };
        let grew = self.pool.counters().grown_bytes - grown;
        let question = Question {
            bytes,
            align,
            may_wait,
            grew,
            before,
            places,
        };
        self.judge(&question, &answer, &past)?;
        self.explained(&question, &answer, &past, &decision.borrow())?;
        let acquired = match answer {
            Ok(acquired) => acquired,
            Err(error) => {
                if let Some(wait) = self.awaited(&question, &request, error)? {
                    let blocks = wait.len();
                    self.block(&wait)?;
                    let again = (frontier, past);
                    let served = self.alloc(queue, (bytes, align, may_wait), again, places)?;
                    let (outcome, event, past) = served;
                    return match outcome.block {
                        Some(_) => Ok((Outcome { blocks, ..outcome }, event, past)),
                        None => Err("the host has waited for nothing".into()),
                    };
                }
                self.pool.record_failure();
                let outcome = Outcome {
                    how: How::Failed(error),
                    block: None,
                    waits: 0,
                    blocks: 0,
                };
                let event = self.enqueued(queue, &frontier);
                self.model.passed(queue, &past);
                return Ok((outcome, event, past));
            }
        };
        if let Some(wait) = acquired.wait() {
            self.model.wait(&mut past, wait)?;
            match self.queues.get_mut(&queue) {
                Some(Queue::InOrder(lane, _)) => lane.wait_for(wait),
                Some(Queue::OutOfOrder { .. }) => frontier.join(wait),
                None => {
                    wait.mark_awaited();
                    self.model.complete(&past);
                }
            }
        }
        let outcome = self.placed(&acquired, grew > 0, &past)?;
        let event = self.enqueued(queue, &frontier);
        self.model.passed(queue, &past);
        Ok((outcome, event, past))
    }

    /// What the host has to wait for before a request is repeated that failed.
    fn awaited(
        &self,
        question: &Question<'_>,
        request: &Request<'_>,
        error: PoolError,
    ) -> Result<Option<Frontier>, String> {
        let PoolError::Exhausted { need } = error else {
            return Ok(None);
        };
        if !self.script.setup.blocks {
            return Ok(None);
        }
        let max = self.script.setup.config.max_bytes;
        let room = max.map(|max| max - self.pool.figures().reserved);
        let wait = self.pool.awaited(request, room, Vec::new());
        self.judge_block(question, need, wait.as_ref())?;
        Ok(wait)
    }

    /// The host waits.
    fn block(&mut self, wait: &Frontier) -> Result<(), String> {
        wait.mark_awaited();
        let mut done = Past::default();
        self.model.wait(&mut done, wait)?;
        self.model.complete(&done);
        Ok(())
    }

    /// The event of an allocation or a free.
    fn enqueued(&mut self, queue: QueueName, frontier: &Frontier) -> Frontier {
        match self.queues.get_mut(&queue) {
            Some(Queue::InOrder(lane, _)) => lane.frontier(),
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
                Queue::InOrder(lane, _) => out.join(&lane.tip()),
                Queue::OutOfOrder { lanes, .. } => lanes.iter().for_each(|l| out.join(&l.tip())),
            }
        }
        out
    }
}

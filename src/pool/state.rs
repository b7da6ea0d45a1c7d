//! What a pool keeps under its lock, and the steps of an attempt to serve a request.
//!
//! Every call to the source happens between two steps, outside the lock. Bytes asked for count
//! against the maximum before the call (`growing`), bytes handed back until after it (`leaving`), so
//! that threads together never exceed it.

mod awaiting;
mod growth;
mod leaving;
mod moves;

pub use awaiting::Leavable;
pub(crate) use growth::{Grown, Growth};
pub(crate) use leaving::Leaving;
use moves::Moves;

use super::lending::Lending;
use super::offsets::{Place, SegId};
use super::options::Compaction;
use super::pages;
use super::policy::{self, Grain, Need};
use super::request::{Acquired, Block, Config, Order, PoolError, Request, Reuse, WaitPolicy};
use super::source::{Slab, SourceError};
use super::stash::Stash;
use super::stats::Stats;
use super::store::{Piece, Store};
use crate::timeline::Frontier;
use std::sync::Arc;

/// Bytes up to which a request would rather not empty a stash, and the part of what the pool holds.
const SMALL: u64 = 1 << 20;
const FEW: u64 = 256;
/// The least part of a larger request that a block is taken back for.
const PART: u64 = 16;
/// How many times what a pool holds the old addresses come to that are kept for plans.
const MUCH_KEPT: u64 = 8;

#[derive(Debug)]
pub(crate) struct State {
    pub store: Store,
    pub stats: Stats,
    pub lending: Lending,
    config: Config,
    grain: Grain,
    closed: bool,
    growing: u64,
    leaving: u64,
    /// Bytes that are being gathered at another address.
    moving: u64,
    moves: Moves,
}

/// What one request has been through.
#[derive(Debug, Default)]
pub(crate) struct Attempt<'a> {
    /// Whom the block is lent to.
    pub stash: Option<&'a Arc<Stash>>,
    /// Completion was looked for.
    observed: bool,
    /// Nothing was ready when it was first looked for.
    missed: bool,
    /// The source refused a whole chunk; ask for what is needed.
    tight: bool,
    /// A slab was not aligned as promised.
    padded: bool,
    /// This request made the pool grow.
    grew: bool,
    /// The source's last word; no more growth until something is given back to it.
    refused: Option<SourceError>,
    /// The source could not gather.
    scattered: bool,
    /// New memory was asked for rather than gathering.
    spared: bool,
}

pub(crate) enum Step {
    Done(Result<Acquired, PoolError>),
    /// Have the source look for what has completed.
    Observe,
    /// Ask the source for so much.
    Grow(Growth),
    /// Ask it to make one slab of these.
    Gather(Gather),
    /// Give these back and try again.
    Shed(Leaving),
    /// Wait for another thread's call to the source.
    Pause,
}

/// Free pages on their way to another address, and how many new bytes go with them.
pub(crate) struct Gather {
    pub pieces: Vec<Piece>,
    pub page: u64,
    pub fresh: u64,
    /// Whether the request comes after all that died there.
    pub ready: bool,
}

impl Gather {
    pub fn slabs(&self) -> Vec<Slab> {
        self.pieces.iter().map(|piece| piece.slab).collect()
    }
}

impl<'a> Attempt<'a> {
    pub fn new(stash: Option<&'a Arc<Stash>>) -> Self {
        Self {
            stash,
            ..Self::default()
        }
    }
}

impl State {
    pub fn new(config: Config, grain: Grain, page: Option<u64>, lending: Lending) -> Self {
        let min_align = config.min_align.clamp(1, 1 << 20).next_power_of_two();
        Self {
            store: Store::new(page, min_align),
            stats: Stats::default(),
            lending,
            config: Config {
                min_align,
                // Pages need not be asked for in advance: later ones can join them.
                chunk_bytes: page.map_or(config.chunk_bytes, |_| 0),
                ..config
            },
            grain,
            closed: false,
            growing: 0,
            leaving: 0,
            moving: 0,
            moves: Moves::default(),
        }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn set_release_threshold(&mut self, bytes: u64) {
        self.config.release_threshold = bytes;
    }

    pub fn is_closed(&self) -> bool {
        self.closed
    }

    pub fn close(&mut self) {
        self.closed = true;
        self.lending.end(&mut self.store);
    }

    pub fn is_drained(&self) -> bool {
        self.closed
            && self.stats.figures.reserved == 0
            && self.growing == 0
            && self.lending.old.is_empty()
    }

    /// See [`Lending::tidy`].
    pub fn tidy(&mut self) {
        self.lending.tidy(&mut self.store);
    }

    /// Before a request that the stash did not serve. True if it may now.
    pub fn turn(&mut self, stash: &Arc<Stash>, request: &Request<'_>) -> bool {
        self.lending.turn(&mut self.store, stash, request)
    }

    /// Whether it is worth to have the source look for what has completed: if all has, lanes that begin
    /// again with this request have a plan together.
    pub fn may_join(&self, stash: &Stash, request: &Request<'_>) -> bool {
        self.grain.observes && self.lending.may_join(stash, request.bytes)
    }

    /// What a joint plan has for the request.
    pub fn take_joint(&mut self, stash: &Arc<Stash>, request: &Request<'_>) -> Option<Block> {
        let (block, reuse) = self.lending.take_joint(&mut self.store, stash, request)?;
        request.tell(|story| story.reuse = Some(reuse));
        Some(block)
    }

    pub fn plan(&mut self, stash: &Arc<Stash>, order: &Order<'_>) {
        self.lending.plan(&mut self.store, stash, order, None);
    }

    /// How many old addresses may still be used, or will be left.
    pub fn lingering(&self) -> u64 {
        self.lending.old.pending() + u64::from(self.moving > 0)
    }

    /// Decides the next step of a request.
    pub fn step(&mut self, need: &Need, request: &Request<'_>, attempt: &mut Attempt<'_>) -> Step {
        if self.closed {
            return Step::Done(Err(PoolError::Closed));
        }
        if let Some((place, reuse)) = self.ready(need, request) {
            let block = self.take(place, need, attempt);
            let reuse = if attempt.grew { Reuse::Grown } else { reuse };
            self.serves(reuse, request, attempt);
            return Step::Done(Ok(Acquired::Ready(block)));
        }
        // What stashes cache was taken back, so that this is all that there is to see complete.
        if self.grain.observes
            && self.store.index.is_pending()
            && !std::mem::replace(&mut attempt.observed, true)
        {
            return Step::Observe;
        }
        if !std::mem::replace(&mut attempt.missed, true) {
            let reserved = self.stats.figures.reserved;
            self.moves.miss(&self.store, reserved, need.bytes);
            // Once: later there may be memory that came for this very request.
            request.tell(|story| story.lack = policy::lack(&self.store, need, &request.order));
        }
        if std::mem::take(&mut attempt.grew) {
            // It grew and still nothing fits, so the slab was misaligned.
            if std::mem::replace(&mut attempt.padded, true) {
                attempt.refused = Some(SourceError::OutOfMemory);
            }
        }
        if let Some(error) = attempt.refused.filter(|e| *e != SourceError::OutOfMemory) {
            // Not a lack of memory, so neither waiting nor giving back would mend it.
            return Step::Done(Err(PoolError::Source(error)));
        }
        let waits = self.waits(request);
        if waits == WaitPolicy::Always
            && let Some(acquired) = self.take_after(need, request, attempt)
        {
            return Step::Done(Ok(acquired));
        }
        if let Some(gather) = self.gather(need, request, attempt, true) {
            return Step::Gather(gather);
        }
        if waits == WaitPolicy::Always
            && let Some(gather) = self.gather(need, request, attempt, false)
        {
            return Step::Gather(gather);
        }
        let growth = self.growth(need, attempt);
        if let (Ok(growth), None) = (growth, attempt.refused) {
            self.growing += growth.bytes;
            return Step::Grow(growth);
        }
        if waits == WaitPolicy::Bounded
            && let Some(acquired) = self.take_after(need, request, attempt)
        {
            return Step::Done(Ok(acquired));
        }
        if waits == WaitPolicy::Bounded
            && let Some(gather) = self.gather(need, request, attempt, false)
        {
            return Step::Gather(gather);
        }
        let leaving = self.shed(growth.err());
        if !leaving.is_empty() {
            attempt.refused = None;
            return Step::Shed(leaving);
        }
        if self.growing + self.leaving + self.moving > 0 {
            attempt.refused = None;
            return Step::Pause;
        }
        Step::Done(Err(match attempt.refused {
            Some(error) => PoolError::Source(error),
            None => PoolError::Exhausted { need: need.bytes },
        }))
    }

    fn waits(&self, request: &Request<'_>) -> WaitPolicy {
        if request.may_wait {
            self.config.waits
        } else {
            WaitPolicy::Never
        }
    }

    /// A block is ready without a wait.
    fn serves(&mut self, reuse: Reuse, request: &Request<'_>, attempt: &Attempt<'_>) {
        self.count(reuse);
        if let Some(stash) = attempt.stash {
            self.lending.got(stash, reuse);
        }
        request.tell(|story| story.reuse = Some(reuse));
    }

    /// Takes pages out that together will serve the request.
    fn gather(
        &mut self,
        need: &Need,
        request: &Request<'_>,
        attempt: &mut Attempt<'_>,
        ready: bool,
    ) -> Option<Gather> {
        // As mostly where a program only grows, nothing is free.
        let wanted = match self.config.options.compaction {
            Compaction::Never => false,
            Compaction::Pressure => {
                attempt.refused.is_some() || self.growth(need, attempt).is_err()
            }
            Compaction::Always => true,
        };
        if !wanted || attempt.scattered || self.store.free_bytes() == 0 {
            return None;
        }
        let max = self.config.max_bytes.unwrap_or(u64::MAX);
        let room = match attempt.refused {
            Some(_) => 0,
            None if ready && self.waits(request) == WaitPolicy::Always => 0,
            None => max.saturating_sub(self.stats.figures.reserved + self.growing),
        };
        let (store, order) = (&self.store, &request.order);
        let others = self.lending.others(order.own_lane());
        let collect = |page| match ready {
            true => pages::collect(store, need, order, &others, room, page),
            false => pages::collect_pending(store, need, order, room, page),
        };
        let of = |page| Some((page, collect(page)?));
        let found = store.offsets.pages().filter_map(of);
        // What is new, then how many pages are to be moved.
        let cost = |(page, found): &(u64, pages::Collection)| (found.fresh, found.moved() / page);
        let (page, found) = found.min_by_key(cost)?;
        let rather =
            ready && attempt.refused.is_none() && self.waits(request) != WaitPolicy::Always;
        if rather && self.is_dear(found.moved(), need, attempt) {
            attempt.spared = true;
            return None;
        }
        let pieces = self.store.detach_all(&found.pieces);
        self.growing += found.fresh;
        self.moving += pieces.iter().map(|piece| piece.slab.bytes).sum::<u64>();
        Some(Gather {
            pieces,
            page,
            fresh: found.fresh,
            ready,
        })
    }

    /// Whether new memory is better than to move so many bytes.
    fn is_dear(&self, bytes: u64, need: &Need, attempt: &Attempt<'_>) -> bool {
        let reserved = self.stats.figures.reserved;
        if self.grain.largest.is_none() || !self.moves.is_much(bytes, reserved) {
            return false;
        }
        let held = reserved + self.growing;
        let fits = |growth: Growth| self.moves.may_hold(held + growth.bytes);
        self.growth(need, attempt).is_ok_and(fits)
    }

    /// Takes in the source's answer to [`Step::Gather`]. Also if the pool was closed meanwhile: what
    /// has died but not completed stays until it has.
    pub fn gathered(
        &mut self,
        gather: Gather,
        answer: Result<Slab, SourceError>,
        attempt: &mut Attempt<'_>,
    ) {
        let moved: u64 = gather.pieces.iter().map(|piece| piece.slab.bytes).sum();
        self.growing -= gather.fresh;
        self.moving -= moved;
        let unit = self.config.min_align;
        let slab = answer.map_err(|error| match gather.fresh {
            0 => attempt.scattered = true,
            _ => attempt.refused = Some(error),
        });
        let Ok(slab) = slab else {
            for piece in &gather.pieces {
                self.store
                    .add_slab(piece.slab, piece.page, unit, &piece.parts);
            }
            return;
        };
        if gather.fresh > 0 {
            self.stats.reserve(gather.fresh);
            attempt.grew = gather.ready;
        }
        self.stats.counters.gathers += 1;
        self.moves.moved(moved);
        self.stats.counters.gathered_bytes += moved;
        let (mut parts, mut to) = (Vec::new(), slab.base);
        for mut piece in gather.pieces {
            let mut all = Frontier::new();
            piece.parts.iter().for_each(|(_, death)| all.join(death));
            self.lending.moved(piece.slab, to, all);
            to += piece.slab.bytes;
            parts.append(&mut piece.parts);
        }
        self.store.add_slab(slab, gather.page, unit, &parts);
    }

    pub fn release(&mut self, addr: u64, death: Frontier) -> Option<Block> {
        let block = self.lending.release(&mut self.store, addr, death)?;
        self.stats.counters.releases += 1;
        Some(block)
    }

    /// The live allocation among whose requested bytes `addr` is.
    pub fn lookup(&self, addr: u64) -> Option<Block> {
        let block = self.lending.look(&self.store, addr)?;
        (addr - block.addr < block.requested).then_some(block)
    }

    /// What has to be seen before anything is counted or given back: what stashes cache is free.
    pub fn recall(&mut self) {
        self.lending.end_joint(&mut self.store);
        self.lending
            .recall(&mut self.store, (1, 0), |_| true, |_, _| true);
    }

    /// A place without a wait, with what stashes cache taken back as far as the order of choice
    /// comes to it: the own lane's, then what is ordered, what is complete, and all before growth.
    /// Small requests take no more than one block out of their own lane's stash before growth: to empty
    /// it costs all its next requests their short way, and little is gained by placing small blocks well.
    fn ready(&mut self, need: &Need, request: &Request<'_>) -> Option<(Place, Reuse)> {
        let (order, store, lending) = (&request.order, &mut self.store, &mut self.lending);
        let small = need.bytes <= SMALL.max(self.stats.figures.reserved / FEW);
        if let Order::Lane(lane) = order {
            lending.saw(lane);
        }
        // Small blocks are placed by fit alone.
        let lane = order.own_lane().filter(|_| need.bytes > SMALL);
        if let Some(own) = order.own_lane() {
            let mut place =
                policy::own(store, need, order, &lending.others(lane)).filter(|_| small);
            if place.is_none() {
                match small {
                    true => lending.recall_one(store, own, need.bytes),
                    false => {
                        let enough = (need.bytes, need.bytes / PART);
                        lending.recall(store, enough, |lane| lane == own, |_, _| true);
                    }
                }
                place = policy::own(store, need, order, &lending.others(lane));
            }
            if let Some(place) = place {
                return Some((place, Reuse::OwnLane));
            }
        }
        let other = |lane| order.own_lane() != Some(lane);
        let enough = (need.bytes, 0);
        // What died there later than the request reaches is of no use to it, and of use there.
        let reached = |stash: &Stash, oldest| {
            let horizon = order.horizon(stash.lane());
            horizon.is_some_and(|horizon| horizon >= oldest)
        };
        lending.recall(store, enough, other, reached);
        if let Some(found) = policy::ready(store, need, order, &lending.others(lane)) {
            return Some(found);
        }
        // After what is free for all: who loses blocks to another lane misses them next, and would take
        // that lane's in turn.
        if lending.recall(store, enough, other, Stash::is_complete)
            && let Some(found) = policy::ready(store, need, order, &lending.others(lane))
        {
            return Some(found);
        }
        let joined = lending.end_joint(store);
        if !lending.recall(store, (1, 0), |_| true, |_, _| true) && !joined {
            return None;
        }
        let others = lending.others(lane);
        let own = policy::own(store, need, order, &others).map(|place| (place, Reuse::OwnLane));
        own.or_else(|| policy::ready(store, need, order, &others))
    }

    fn take_after(
        &mut self,
        need: &Need,
        request: &Request<'_>,
        attempt: &Attempt<'_>,
    ) -> Option<Acquired> {
        let place = policy::least_wait(&self.store, need, &request.order)?;
        let wait = self.store.missing(place, need.bytes, &request.order);
        let block = self.take(place, need, attempt);
        let reuse = match wait.is_empty() {
            // It completed since it was last looked at.
            true => Reuse::Completed,
            false => Reuse::Waited,
        };
        self.count(reuse);
        request.tell(|story| story.reuse = Some(reuse));
        if wait.is_empty() {
            return Some(Acquired::Ready(block));
        }
        self.stats.counters.waits += wait.len() as u64;
        Some(Acquired::After(block, wait))
    }

    fn take(&mut self, place: Place, need: &Need, attempt: &Attempt<'_>) -> Block {
        let taken = self.store.take(place, need.bytes, need.requested);
        self.lend(taken, attempt)
    }

    /// A block of the store's is live from now on.
    fn lend(&mut self, (seg, block): (SegId, Block), attempt: &Attempt<'_>) -> Block {
        self.lending.take(
            &mut self.store,
            (seg, &block),
            attempt.stash,
            self.config.min_align,
        );
        block
    }

    fn count(&mut self, reuse: Reuse) {
        let counters = &mut self.stats.counters;
        *match reuse {
            Reuse::OwnLane => &mut counters.own_lane,
            Reuse::Ordered => &mut counters.ordered,
            Reuse::Completed => &mut counters.completed,
            Reuse::Waited => &mut counters.waited,
            Reuse::Grown => &mut counters.grown,
        } += 1;
    }
}

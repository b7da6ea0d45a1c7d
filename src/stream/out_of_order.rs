//! An out-of-order queue: a few lanes, and which command goes on which.
//!
//! What waits for a point that the host has yet to signal may never end by itself. It goes on a lane
//! on which nothing independent can come behind it: a lane held by host points takes only commands
//! that wait for all of those points anyway.

use super::lane::LaneCore;
use super::reach::Reach;
use super::{Context, Driver, Stamps, Work};
use crate::abi::ur_queue_flags_t;
use crate::object::{Object, Result};
use crate::timeline::{Frontier, Point};
use std::borrow::Cow;
use std::sync::Arc;

/// Lanes for commands that end by themselves. Those that the host holds up come on top.
const MOST_LANES: usize = 4;

pub(crate) struct OutOfOrder<D: Driver> {
    context: Arc<Object<Context<D>>>,
    device: Arc<Object<D::Device>>,
    flags: ur_queue_flags_t,
    lanes: Vec<Arc<LaneCore<D>>>,
    /// What every later command comes after.
    barrier: Reach,
    /// What is pending on no lane: host tasks, allocations and frees.
    loose: Reach,
}

impl<D: Driver> OutOfOrder<D> {
    pub fn new(
        context: &Arc<Object<Context<D>>>,
        device: &Arc<Object<D::Device>>,
        flags: ur_queue_flags_t,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            device: Arc::clone(device),
            flags,
            lanes: Vec::new(),
            barrier: Reach::default(),
            loose: Reach::default(),
        }
    }

    /// A wait list with what the queue demands besides.
    pub fn with_barrier<'a>(&mut self, waits: &'a Reach) -> Cow<'a, Reach> {
        self.barrier.prune();
        if self.barrier.done.is_empty() && self.barrier.order.is_empty() {
            return Cow::Borrowed(waits);
        }
        let mut all = waits.clone();
        all.join(&self.barrier);
        Cow::Owned(all)
    }

    /// A lane for a native command, on which nothing else is placed meanwhile, and what that waits for.
    pub fn lend(&mut self, waits: &Reach) -> Result<(Arc<LaneCore<D>>, Reach)> {
        let waits = self.with_barrier(waits).into_owned();
        let lane = self.place(&waits)?;
        lane.lend()?;
        Ok((lane, waits))
    }

    pub fn submit(
        &mut self,
        waits: &Reach,
        work: Work<D>,
        stamps: Option<Arc<Stamps>>,
        wanted: bool,
    ) -> Result<Option<Reach>> {
        self.submit_with(waits, wanted, |lane, epoch| {
            D::submit(lane, epoch, work, stamps)
        })
    }

    /// As [`LaneCore::submit_with`], on the lane that suits.
    pub fn submit_with(
        &mut self,
        waits: &Reach,
        wanted: bool,
        give: impl FnOnce(&D::Lane, u64) -> Result<()>,
    ) -> Result<Option<Reach>> {
        let waits = self.with_barrier(waits);
        let lane = self.place(&waits)?;
        lane.submit_with(&waits, wanted, give)
    }

    /// An event wait or a barrier, without a command on any lane.
    pub fn join_events(&mut self, waits: &Reach, everything: bool, barrier: bool) -> Result<Reach> {
        let mut reach = self.with_barrier(waits).into_owned();
        if everything {
            for lane in &self.lanes {
                reach.join(&lane.reach_now()?);
            }
            self.loose.prune();
            reach.join(&self.loose);
        }
        reach.prune();
        if barrier {
            self.barrier = reach.clone();
            if everything {
                self.loose = Reach::default();
            }
        }
        self.add_loose(&reach);
        Ok(reach)
    }

    /// A host task: what it waits for. The point is pending from now on.
    pub fn hold(&mut self, waits: &Reach, point: &Point) -> Reach {
        let before = self.with_barrier(waits).into_owned();
        self.add_loose(&Reach {
            done: point.clone().into(),
            order: point.clone().into(),
            ..Reach::default()
        });
        before
    }

    /// Something without a lane that `urQueueFinish` and barriers have to cover.
    pub fn add_loose(&mut self, reach: &Reach) {
        self.loose.prune();
        if !reach.done.is_complete() {
            self.loose.join(reach);
        }
    }

    /// The lane to show to others: the same each time, and none that a native command has.
    pub fn shown(&mut self) -> Result<&Arc<LaneCore<D>>> {
        let mut lanes = self.lanes.iter();
        let found = lanes.position(|lane| lane.is_exposed());
        let at = match found.or_else(|| self.lanes.iter().position(|lane| !lane.is_lent())) {
            Some(at) => at,
            None => {
                self.add_lane()?;
                self.lanes.len() - 1
            }
        };
        Ok(&self.lanes[at])
    }

    pub fn flush(&self) -> Result<()> {
        self.lanes.iter().try_for_each(|lane| lane.flush())
    }

    pub fn forget(&self, done: &Frontier) {
        let reached = |lane: &&Arc<LaneCore<D>>| done.epoch_of(lane.clock.id()).is_some();
        for lane in self.lanes.iter().filter(reached) {
            lane.forget();
        }
    }

    pub fn everything(&self) -> Frontier {
        let mut all = self.loose.done.clone();
        all.join(&self.barrier.done);
        for lane in &self.lanes {
            all.join(&lane.tip());
        }
        all
    }

    pub fn retire(&mut self) {
        for lane in self.lanes.drain(..) {
            lane.retire();
        }
    }

    /// The lane for a command that waits for this: one whose last command it follows anyway, one
    /// that is idle, a new one, or the one with the least to do.
    fn place(&mut self, waits: &Reach) -> Result<Arc<LaneCore<D>>> {
        let engine = self.context.domain().engine();
        // Mostly nothing waits for the host, and no lane is held by it.
        let quiet = engine.all_signalled();
        let hosts = if quiet {
            Frontier::new()
        } else {
            engine.unsignalled(&waits.order)
        };
        let mut best: Option<(Fit, &Arc<LaneCore<D>>)> = None;
        let mut free = 0;
        for lane in self.lanes.iter().filter(|lane| !lane.is_lent()) {
            let held = match quiet {
                true => Frontier::new(),
                false => engine.unsignalled(&lane.waited()),
            };
            free += usize::from(held.is_empty());
            if !held.points().all(|point| hosts.covers_point(point)) {
                continue;
            }
            let fit = Fit::of(lane, &held, waits);
            if fit == Fit::Follows {
                return Ok(Arc::clone(lane));
            }
            if best.as_ref().is_none_or(|(other, _)| fit < *other) {
                best = Some((fit, lane));
            }
        }
        let room = !hosts.is_empty() || free < MOST_LANES;
        match best {
            Some((fit, lane)) if fit == Fit::Idle || !room => Ok(Arc::clone(lane)),
            _ => self.add_lane(),
        }
    }

    fn add_lane(&mut self) -> Result<Arc<LaneCore<D>>> {
        let lane = LaneCore::open(&self.context, &self.device, self.flags)?;
        self.lanes.push(Arc::clone(&lane));
        Ok(lane)
    }
}

/// How well a lane suits a command, the best first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// Its last command is one that the new one waits for.
    Follows,
    Idle,
    /// So many commands are not known to be complete.
    Busy(u64),
}

impl Fit {
    fn of<D: Driver>(lane: &LaneCore<D>, held: &Frontier, waits: &Reach) -> Self {
        let tail = lane.last();
        match tail.saturating_sub(lane.clock.reliable()) {
            0 if held.is_empty() => Self::Idle,
            left if left > 0 && waits.done.epoch_of(lane.clock.id()) == Some(tail) => Self::Follows,
            left => Self::Busy(left),
        }
    }
}

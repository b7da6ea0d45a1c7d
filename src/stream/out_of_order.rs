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

/// A lane as a command finds it.
struct Candidate {
    at: usize,
    tail: Point,
    /// Host points that the lane is held by.
    held: Frontier,
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
    pub fn with_barrier(&mut self, waits: &Reach) -> Reach {
        self.barrier.prune();
        let mut all = waits.clone();
        all.join(&self.barrier);
        all
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
        let mut reach = self.with_barrier(waits);
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
        let before = self.with_barrier(waits);
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

    /// A lane to show to others.
    pub fn first(&mut self) -> Result<&Arc<LaneCore<D>>> {
        if self.lanes.is_empty() {
            let lane = LaneCore::open(&self.context, &self.device, self.flags)?;
            self.lanes.push(lane);
        }
        Ok(&self.lanes[0])
    }

    pub fn flush(&self) -> Result<()> {
        self.lanes.iter().try_for_each(|lane| lane.flush())
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
        let hosts = engine.unsignalled(&waits.order);
        let (mut open, mut free) = (Vec::new(), 0);
        for (at, lane) in self.lanes.iter().enumerate() {
            let (tail, waited) = lane.position();
            let held = engine.unsignalled(&waited);
            free += usize::from(held.is_empty());
            if held.points().all(|point| hosts.covers_point(point)) {
                open.push(Candidate { at, tail, held });
            }
        }
        let follows = |lane: &&Candidate| {
            !lane.tail.is_complete()
                && waits.done.epoch_of(lane.tail.lane()) == Some(lane.tail.epoch)
        };
        let idle = |lane: &&Candidate| lane.tail.is_complete() && lane.held.is_empty();
        let found = open.iter().find(follows).or_else(|| open.iter().find(idle));
        let least = || {
            let room = if hosts.is_empty() {
                free < MOST_LANES
            } else {
                true
            };
            open.iter()
                .filter(|_| !room)
                .min_by_key(|lane| lane.tail.outstanding())
        };
        if let Some(lane) = found.or_else(least) {
            return Ok(Arc::clone(&self.lanes[lane.at]));
        }
        let lane = LaneCore::open(&self.context, &self.device, self.flags)?;
        self.lanes.push(Arc::clone(&lane));
        Ok(lane)
    }
}

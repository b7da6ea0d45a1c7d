//! An out-of-order queue: a few lanes, and the choice of a lane for each command.
//!
//! A command that waits for a pending host point may never end by itself. It goes on a lane where
//! no independent command can follow it: a lane held by host points takes only commands that wait
//! for all of these points anyway. Few lanes serve the same points, and unneeded ones end.
//!
//! A native command may wait for the program as well, so it counts as a host point while it is
//! pending. A driver may open no stream meanwhile, and let no other call return. So a queue that takes
//! native commands opens its lanes before the first one. Of these lanes one is kept for commands that
//! wait for no host point.

use crate::object::{Object, Result};
use crate::stream::driver::FAILED;
use crate::stream::driver::Progress;
use crate::stream::engine::dependencies::{Dependencies, EventDependencies};
use crate::stream::engine::{HostPoint, HostSignal};
use crate::stream::lane::LaneCore;
use crate::stream::{Context, Driver, QueueOptions, Timestamps, Work};
use crate::timeline::{Failure, Frontier, Point, Pruned};
use std::borrow::Cow;
use std::sync::Arc;

/// Number of lanes for commands that end by themselves, and for commands that wait for the same
/// host points.
const MAX_LANES: usize = 4;
/// Number of lanes of a queue that takes native commands.
const NATIVE_LANES: usize = MAX_LANES + 1;
/// Number of lanes from which further sets of host points get one lane each, and up to which idle
/// lanes stay.
const MAX_HOST_WAIT_LANES: usize = 4 * MAX_LANES;

pub(crate) struct OutOfOrder<D: Driver> {
    context: Arc<Object<Context<D>>>,
    device: Arc<Object<D::Device>>,
    options: QueueOptions,
    lanes: Vec<Arc<LaneCore<D>>>,
    /// Whether the queue has taken a native command.
    takes_native: bool,
    /// Whether a lane may come after a pending native command.
    behind_native: bool,
    /// Dependencies of every later command.
    barrier: Dependencies,
    /// Pending dependencies that are on no lane: host tasks, and the predecessors of allocations
    /// and frees.
    off_lane: Pruned<Dependencies>,
}

impl<D: Driver> OutOfOrder<D> {
    pub fn new(
        context: &Arc<Object<Context<D>>>,
        device: &Arc<Object<D::Device>>,
        options: QueueOptions,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            device: Arc::clone(device),
            options,
            lanes: Vec::new(),
            takes_native: false,
            behind_native: false,
            barrier: Dependencies::default(),
            off_lane: Pruned::default(),
        }
    }

    pub fn lanes(&self) -> impl Iterator<Item = &LaneCore<D>> {
        self.lanes.iter().map(|lane| &**lane)
    }

    /// The wait list joined with the barrier.
    fn with_barrier<'a>(&mut self, waits: &'a Dependencies) -> Cow<'a, Dependencies> {
        if self.barrier.is_empty() {
            return Cow::Borrowed(waits);
        }
        self.barrier.prune();
        if self.barrier.unreported().is_none() {
            self.barrier.failed = None;
        }
        let mut all = waits.clone();
        all.join(&self.barrier);
        Cow::Owned(all)
    }

    /// The dependencies of a command without work.
    pub fn dependencies_after(&mut self, waits: &Dependencies) -> Dependencies {
        Dependencies {
            // A wait list of one event has that event's own point.
            own: false,
            ..self.with_barrier(waits).into_owned()
        }
    }

    /// Leases a lane to a native command, with the dependencies of that. No other command is placed
    /// there meanwhile.
    pub fn lease(&mut self, waits: &Dependencies) -> Result<(Arc<LaneCore<D>>, Dependencies)> {
        let waits = self.dependencies_after(waits);
        while self.lanes.len() < NATIVE_LANES {
            self.add_lane()?;
        }
        self.takes_native = true;
        let at = self.choose_lane(&waits, true)?;
        let lane = &self.lanes[at];
        debug_assert!(!lane.is_leased(), "a lane leased twice");
        lane.lease()?;
        self.behind_native = true;
        Ok((Arc::clone(lane), waits))
    }

    pub fn submit(
        &mut self,
        waits: &Dependencies,
        work: Work<D>,
        timestamps: Option<Arc<Timestamps>>,
        wanted: bool,
    ) -> Result<Option<EventDependencies>> {
        self.submit_with(waits, wanted, |lane, epoch| {
            D::submit(lane, epoch, work, timestamps)
        })
    }

    /// As [`LaneCore::submit_with`], on the chosen lane.
    pub fn submit_with(
        &mut self,
        waits: &Dependencies,
        wanted: bool,
        submit: impl FnOnce(&D::Lane, u64) -> Result<Progress>,
    ) -> Result<Option<EventDependencies>> {
        let all = self.with_barrier(waits);
        let at = self.choose_lane(&all, false)?;
        let lane = &self.lanes[at];
        debug_assert!(!lane.is_leased(), "a command among a native one's");
        match all {
            Cow::Borrowed(waits) => lane.submit_with(&[waits], wanted, submit),
            // Separate, since their failures are found differently.
            Cow::Owned(_) => lane.submit_with(&[waits, &self.barrier], wanted, submit),
        }
    }

    /// An event wait or a barrier, without a command on any lane.
    pub fn join_events(
        &mut self,
        waits: &Dependencies,
        everything: bool,
        barrier: bool,
    ) -> Result<Dependencies> {
        let mut deps = self.dependencies_after(waits);
        if everything {
            for lane in &self.lanes {
                deps.join(&*lane.recorded_dependencies()?);
            }
            self.off_lane.prune();
            deps.join(&self.off_lane.all);
        }
        deps.prune();
        if barrier {
            self.barrier = Dependencies {
                everything,
                ..deps.clone()
            };
            if everything {
                self.off_lane = Pruned::default();
            }
        }
        self.add_off_lane(&deps);
        Ok(deps)
    }

    /// Adds a host task. Returns its pending point and the dependencies of the host.
    pub fn hold(
        &mut self,
        waits: &Dependencies,
        signal: HostSignal<D>,
    ) -> (HostPoint<D>, Dependencies) {
        let before = self.dependencies_after(waits);
        let domain = self.context.domain();
        let host = domain.engine().separate_host_point(domain, signal);
        let point = Frontier::from(host.point.clone());
        self.add_off_lane(&Dependencies {
            done: point.clone(),
            order: point,
            ..Dependencies::default()
        });
        (host, before)
    }

    /// Adds dependencies on no lane, which `urQueueFinish` and barriers have to cover. Points on
    /// the lanes are covered anyway.
    pub fn add_off_lane(&mut self, deps: &Dependencies) {
        let on_lanes = |point: &Point| {
            let mut lanes = self.lanes.iter();
            lanes.any(|lane| lane.clock.id() == point.lane())
        };
        let covered = |point: &Point| point.is_complete() || on_lanes(point);
        if !deps.done.points().all(covered) {
            self.off_lane.grow().join(deps);
        }
    }

    /// The lane whose native stream is given out: always the same one, and none that is leased.
    pub fn shown(&mut self) -> Result<&Arc<LaneCore<D>>> {
        let mut lanes = self.lanes.iter();
        let found = lanes.position(|lane| lane.is_native_shared());
        let at = match found.or_else(|| self.lanes.iter().position(|lane| !lane.is_leased())) {
            Some(at) => at,
            None => self.add_lane()?,
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
        let mut all = self.off_lane.all.done.clone();
        all.join(&self.barrier.done);
        for lane in &self.lanes {
            all.join(&lane.tip());
        }
        all
    }

    /// Reports the failures of the whole queue. An error if one of them was not reported before.
    pub fn report(&mut self) -> Result<()> {
        let barrier = match self.barrier.unreported().is_some_and(|why| why.report()) {
            true => Err(FAILED),
            false => Ok(()),
        };
        let failed = self.lanes.iter().map(|lane| lane.report());
        failed.fold(barrier, Result::and)
    }

    pub fn retire(&mut self) {
        for lane in self.lanes.drain(..) {
            lane.retire();
        }
    }

    /// The index of the lane for a command after `waits`, in this order: a lane whose last command
    /// it follows, an idle lane, a new lane, the lane with the fewest pending commands.
    fn choose_lane(&mut self, waits: &Dependencies, native: bool) -> Result<usize> {
        if Failure::any() {
            // A failed lane may drop commands.
            self.lanes.iter().try_for_each(|lane| lane.poll())?;
        }
        let after_native = |point: &Point| point.clock.pending_native().is_some();
        self.behind_native |= waits.order.points().any(after_native);
        let engine = self.context.domain().engine();
        if self.behind_native || !engine.all_signalled() {
            return self.choose_lane_around_hosts(waits, native);
        }
        // The usual case: no lane waits for the host.
        self.end_idle();
        let (mut best, mut count) = (None, 0);
        for (at, lane) in self.lanes.iter().enumerate() {
            if lane.is_leased() {
                continue;
            }
            let pending = lane.pending_commands();
            if pending > 0 && lane.is_last_of(waits) {
                return Ok(at);
            }
            count += 1;
            if best.is_none_or(|(least, _)| pending < least) {
                best = Some((pending, at));
            }
        }
        match best {
            Some((pending, at)) if pending == 0 || count >= MAX_LANES => Ok(at),
            _ => self.add_lane(),
        }
    }

    fn choose_lane_around_hosts(&mut self, waits: &Dependencies, native: bool) -> Result<usize> {
        let hosts = waits.order.held();
        let lanes = self.lanes.iter().enumerate();
        let lanes: Vec<_> = lanes
            .filter(|(_, lane)| !lane.is_leased())
            .map(|(at, lane)| (at, lane, lane.held()))
            .collect();
        let after_native = |point: &Point| !point.clock.is_host();
        self.behind_native = lanes.len() < self.lanes.len()
            || hosts.points().any(after_native)
            || lanes
                .iter()
                .any(|(.., held)| held.points().any(after_native));
        // The command would hold its lane. The last lane that nothing holds is for others.
        let holds = native || !hosts.is_empty();
        let unheld = lanes.iter().filter(|(.., held)| held.is_empty()).count();
        let keeps = self.takes_native && holds && unheld <= 1;
        // Lanes that may take the command, and whether their host points are exactly the command's.
        let open: Vec<_> = lanes
            .iter()
            .filter(|(.., held)| held.points().all(|point| hosts.covers_point(point)))
            .filter(|(.., held)| !(keeps && held.is_empty()))
            .map(|(at, lane, held)| (*at, *lane, held.len() == hosts.len()))
            .collect();
        let same_hosts = || open.iter().filter(|(.., same_hosts)| *same_hosts);
        let max = match !hosts.is_empty() && self.lanes.len() >= MAX_HOST_WAIT_LANES {
            true => 1,
            false => MAX_LANES,
        };
        // A lane that has to wait for more host points is lost to commands that wait for fewer.
        let room = same_hosts().count() < max;
        let fits = |same_hosts: bool| same_hosts || room;
        let follows = |lane: &LaneCore<D>| lane.pending_commands() > 0 && lane.is_last_of(waits);
        let free = |lane: &LaneCore<D>| lane.pending_commands() == 0;
        let found = open
            .iter()
            .find(|(_, lane, same_hosts)| fits(*same_hosts) && follows(lane))
            .or_else(|| {
                open.iter()
                    .find(|(_, lane, same_hosts)| fits(*same_hosts) && free(lane))
            });
        let least = || same_hosts().min_by_key(|(_, lane, _)| lane.pending_commands());
        let found = found.or_else(|| least().filter(|_| !room || self.takes_native));
        // Further native commands go behind earlier ones.
        let behind = || {
            let held = lanes.iter().filter(|(.., held)| native && !held.is_empty());
            held.min_by_key(|(_, lane, _)| lane.pending_commands())
        };
        match found
            .map(|(at, ..)| *at)
            .or_else(|| behind().map(|(at, ..)| *at))
        {
            Some(at) => Ok(at),
            None => self.add_lane(),
        }
    }

    /// Ends idle lanes beyond the usual number.
    fn end_idle(&mut self) {
        if self.lanes.len() <= MAX_HOST_WAIT_LANES {
            return;
        }
        let usual = match self.takes_native {
            true => NATIVE_LANES,
            false => MAX_LANES,
        };
        let mut at = usual;
        while at < self.lanes.len() && self.lanes.len() > usual {
            let lane = &self.lanes[at];
            let reported = lane.clock.unreported(u64::MAX).is_none();
            match lane.pending_commands() == 0
                && reported
                && !lane.is_leased()
                && !lane.is_native_shared()
            {
                true => self.lanes.swap_remove(at).retire(),
                false => at += 1,
            }
        }
    }

    fn add_lane(&mut self) -> Result<usize> {
        let lane = LaneCore::open(
            Arc::clone(&self.context) as _,
            &self.device,
            &self.options,
            false,
        )?;
        self.lanes.push(lane);
        Ok(self.lanes.len() - 1)
    }
}

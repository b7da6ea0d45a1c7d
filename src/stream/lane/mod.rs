//! One in-order stream, and the clock and the order of its commands.
//!
//! Owns submission: order on the stream, waits for other lanes, markers, failures, and the cache of
//! blocks. Uses `engine` and `driver`; asks its context by [`LaneOwner`]. Must never know a queue,
//! an event or a pool's handle.
//!
//! The submission lock keeps epochs in the order in which the driver receives commands. So the
//! driver is called under it: to submit, to wait, to record a marker and, with many markers, to
//! query one. No thread waits for a lane's lock while it holds another's: markers of other lanes
//! are found before.

pub(crate) mod lanes;
pub(crate) mod tail;

mod biased_lock;
pub(crate) mod extents;
mod failures;
mod foreign;
mod markers;
pub(crate) mod part;
mod status;
mod submission;

pub(crate) use submission::SubmissionGuard;

use crate::object::{Object, Origin, Result};
use crate::pool::{CacheResult, ExtentVersion, PoolKey, StreamCache};
use crate::stream::engine::dependencies::{
    Dependencies, EventDependencies, MarkerRequest, MarkerRequests, OwnMarkerRequest, PendingWaits,
};
use crate::stream::engine::{HostPoint, HostSignal, HostTimeline, LaneProgress, Mark, Scope};

use crate::stream::driver::Progress;
use crate::stream::lane::tail::Tail;
use crate::stream::{Driver, Engine, QueueOptions, Timestamps, Work};
use crate::timeline::{Clock, Frontier, Lane, LaneId, Point};
use biased_lock::{BiasedLock, BiasedLockGuard, RawBiasedLock};
use failures::Dependents;
use lanes::{Lanes, Parkable};
use markers::MarkerLimit;
use part::Part;
use smallvec::SmallVec;
use status::LaneStatus;
use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::hint::cold_path;
use std::sync::{Arc, Weak};

/// Fields that every command reads come first, as in [`Queue`](crate::stream::Queue).
#[repr(C)]
pub(crate) struct LaneCore<D: Driver> {
    native: D::Lane,
    /// The version of allocation extents in the context: cached ones are valid while it stays.
    extent_version: Arc<ExtentVersion>,
    /// The process that the engine began in.
    origin: Origin,
    /// What other threads read without the submission lock.
    status: LaneStatus,
    state: BiasedLock<LaneState<D>>,
    /// Blocks that the lane may reuse at once, under a lock of its own.
    pub cache: Arc<StreamCache>,
    pub clock: Arc<Clock>,
    pub device: Arc<Object<D::Device>>,
    engine: Arc<Engine<D>>,
    /// Whether each command depends on the command before it, as on an in-order queue.
    in_order: bool,
    /// Dependencies between commands of the lane that the stream order does not imply.
    dependents: Dependents,
    /// Pending commands keep the context, and so the pools that they use.
    owner: Arc<dyn LaneOwner<D>>,
}

/// The context of a lane, kept alive by the lane.
pub(crate) trait LaneOwner<D: Driver>: Send + Sync {
    fn scope(&self) -> &Scope<D>;

    fn lanes(&self) -> &Lanes<LaneCore<D>>;

    /// The version of allocation extents.
    fn extent_version(&self) -> &Arc<ExtentVersion>;
}

/// Points of other lanes that a lane has not waited for yet, one a lane.
type Missing<'a> = SmallVec<[&'a Point; 4]>;

/// Markers that prove those points complete.
type Marks<D> = SmallVec<[Mark<D>; 4]>;

#[repr(C)]
pub(crate) struct LaneState<D: Driver> {
    /// Whether a rare condition has to be checked before the next command: a marker request, a
    /// parked lane, a stopped lane.
    attention: bool,
    /// Shared with events that may want the last command recorded exactly.
    request: Option<OwnMarkerRequest>,
    /// Dependencies shared by events at the end of the lane.
    tail: Tail,
    pub order: Lane,
    pending_waits: PendingWaits,
    /// Recorded markers, ascending by epoch. Empty if the driver tracks completion.
    markers: VecDeque<(u64, D::Marker)>,
    marker_limit: MarkerLimit,
    /// Points of this lane that the host signals, if there was one.
    host_timeline: Option<HostTimeline>,
}

impl<D: Driver> LaneCore<D> {
    pub fn open(
        owner: Arc<dyn LaneOwner<D>>,
        device: &Arc<Object<D::Device>>,
        options: &QueueOptions,
        in_order: bool,
    ) -> Result<Arc<Self>> {
        let home = Arc::clone(&owner);
        let make = |clock: &Arc<Clock>| D::lane(home.scope(), device, options, clock);
        Self::over(owner, device, in_order, make)
    }

    /// A lane over the native stream that `make` returns.
    pub fn over(
        owner: Arc<dyn LaneOwner<D>>,
        device: &Arc<Object<D::Device>>,
        in_order: bool,
        make: impl FnOnce(&Arc<Clock>) -> Result<D::Lane>,
    ) -> Result<Arc<Self>> {
        let engine = owner.scope().engine();
        let order = Lane::with(Clock::of(engine.is_deterministic()));
        let clock = Arc::clone(order.clock());
        let native = make(&clock)?;
        let cache = StreamCache::new(&clock, owner.extent_version());
        let state = LaneState {
            order,
            pending_waits: PendingWaits::default(),
            markers: VecDeque::new(),
            marker_limit: MarkerLimit::default(),
            attention: false,
            request: None,
            tail: Tail::new(&clock),
            host_timeline: None,
        };
        let lane = Arc::new(Self {
            clock,
            device: Arc::clone(device),
            engine: Arc::clone(engine),
            native,
            status: LaneStatus::new(),
            in_order,
            dependents: Dependents::default(),
            state: BiasedLock::from_raw(RawBiasedLock::new(), state),
            cache,
            extent_version: Arc::clone(owner.extent_version()),
            origin: engine.origin(),
            owner,
        });
        let source = Arc::downgrade(&lane) as Weak<dyn LaneProgress<D>>;
        lane.engine.add_lane(lane.clock.id(), source);
        lane.owner.lanes().add(&lane);
        Ok(lane)
    }

    /// Submits a command after `waits`. Returns the dependencies of its event if `wanted`.
    pub fn submit(
        &self,
        waits: &Dependencies,
        work: Work<D>,
        timestamps: Option<Arc<Timestamps>>,
        wanted: bool,
    ) -> Result<Option<EventDependencies>> {
        self.submit_with(&[waits], wanted, |lane, epoch| {
            D::submit(lane, epoch, work, timestamps)
        })
    }

    /// As [`LaneCore::submit`], after several sets of dependencies. `submit` replaces
    /// [`Driver::submit`].
    pub fn submit_with(
        &self,
        waits: &[impl Borrow<Dependencies>],
        wanted: bool,
        submit: impl FnOnce(&D::Lane, u64) -> Result<Progress>,
    ) -> Result<Option<EventDependencies>> {
        let mut state = self.after_all(waits)?;
        self.depend(&state, waits);
        let failed = waits
            .iter()
            .any(|waits| waits.borrow().unreported().is_some());
        self.submit_locked(&mut state, wanted, failed, submit)
    }

    /// Begins the submission of a command that waits for nothing outside the lane. The guard holds
    /// the submission lock.
    #[inline(always)]
    pub fn submission(&self) -> SubmissionGuard<'_, D> {
        let state = self.state.lock();
        SubmissionGuard { lane: self, state }
    }

    /// Whether these bytes are known to lie inside allocations that the lane's device accesses.
    #[inline(always)]
    pub fn accesses<const N: usize>(&self, addrs: [usize; N], bytes: usize) -> bool {
        extents::serves(self.extent_version.now(), &self.device, addrs, bytes)
    }

    /// Submits several commands in a row, the first of them after `waits`. Returns the dependencies
    /// of all submitted ones, and whether all were.
    pub fn submit_all(
        &self,
        waits: &Dependencies,
        parts: &mut [Part<'_, D>],
    ) -> (EventDependencies, Result<()>) {
        // Locks of other lanes are taken before the lock of this one.
        let found: Result<Vec<_>> = parts
            .iter()
            .map(|part| self.foreign_points(&part.waits))
            .collect();
        let (found, mut state) = match found.and_then(|found| Ok((found, self.after(waits)?))) {
            Ok(ready) => ready,
            Err(error) => return (EventDependencies::default(), Err(error)),
        };
        let failed = waits.unreported().is_some();
        let mut submit_parts = |state: &mut LaneState<D>| {
            for (part, (missing, marks)) in parts.iter_mut().zip(&found) {
                if !missing.iter().all(|point| state.order.orders_point(point)) {
                    let missing = missing.iter();
                    self.wait_for(state, missing, &[&part.waits], marks)?;
                }
                state.wait_for(&part.waits.order);
                if let Some(task) = &mut part.host_task {
                    let deps = task.enqueue(|signal| self.hold_locked(state, signal))?;
                    part.deps = Some(deps.into());
                    continue;
                }
                self.depend(state, &[&part.waits]);
                let failed = failed || part.waits.unreported().is_some();
                part.deps = self.submit_locked(state, part.wanted, failed, |lane, epoch| {
                    part.work.submit(lane, epoch, part.timestamps.clone())
                })?;
            }
            Ok(())
        };
        let result = submit_parts(&mut state);
        (self.dependencies(&mut state), result)
    }

    /// Submits a command under the lock, or a marker in its place if a dependency `failed`.
    fn submit_locked(
        &self,
        state: &mut LaneState<D>,
        wanted: bool,
        failed: bool,
        submit: impl FnOnce(&D::Lane, u64) -> Result<Progress>,
    ) -> Result<Option<EventDependencies>> {
        self.record_if_watched(state)?;
        let watched = match failed || self.is_stopped() {
            false => {
                let submitted = submit(&self.native, state.order.epoch() + 1);
                self.record_submission(state, submitted)?
            }
            true => self.drop_command(state)?,
        };
        Ok(wanted.then(|| self.tail_dependencies(state, true, watched)))
    }

    /// Records the result of a submission. Returns whether completion is still to be observed.
    #[inline(always)]
    fn record_submission(
        &self,
        state: &mut LaneState<D>,
        submitted: Result<Progress>,
    ) -> Result<bool> {
        let submitted = match submitted {
            Ok(submitted) => submitted,
            Err(error) => {
                cold_path();
                self.record_refusal(state);
                return Err(error);
            }
        };
        self.step(state);
        let watched = submitted == Progress::Pending;
        if !watched {
            self.clock.raise(state.order.epoch());
        }
        Ok(watched)
    }

    /// Records that the driver refused a command.
    #[cold]
    fn record_refusal(&self, state: &mut LaneState<D>) {
        if !D::TRACKS {
            // The driver may have accepted a part: the next epoch covers that.
            state.order.step();
            state.tail.clear();
            self.publish(state);
        }
    }

    /// Advances the lane by one command.
    #[inline(always)]
    fn step(&self, state: &mut LaneState<D>) {
        let alone = state.pending_waits.is_empty();
        state.order.step();
        let epoch = state.order.epoch();
        match alone {
            true => state.tail.step(epoch),
            false => {
                cold_path();
                self.step_joined(state, epoch);
            }
        }
        debug_assert!(
            self.clock.completed() <= epoch,
            "complete beyond the last command"
        );
        self.status.publish(epoch, true);
    }

    /// Advances the lane by one command, which now proves all pending waits.
    #[inline(never)]
    fn step_joined(&self, state: &mut LaneState<D>, epoch: u64) {
        state.tail.step_joined(epoch);
        state.pending_waits.clear();
    }

    /// The incomplete points of other lanes in `waits`, with markers for them.
    fn foreign_points(&self, waits: &Dependencies) -> Result<(Vec<Point>, Marks<D>)> {
        let foreign = |point: &&Point| point.lane() != self.clock.id() && !point.is_complete();
        let missing: Missing<'_> = waits.done.points().filter(foreign).collect();
        let marks = self.marks_of(&missing)?;
        Ok((missing.iter().copied().cloned().collect(), marks))
    }

    /// Makes the stream wait for markers that prove `missing`, which are points of `waits`.
    fn wait_for<'a>(
        &self,
        state: &mut LaneState<D>,
        missing: impl IntoIterator<Item = &'a Point>,
        waits: &[impl Borrow<Dependencies>],
        marks: &[Mark<D>],
    ) -> Result<()> {
        if !marks.is_empty() {
            self.record_if_watched(state)?;
        }
        let mut waited = marks.iter().map(|mark| D::wait(&self.native, &mark.marker));
        let waited = waited.try_for_each(|waited| waited);
        // Even if a wait was refused: the stream makes the waits before it.
        state.pending_waits.add(missing);
        for waits in waits {
            state.pending_waits.add_requests(&waits.borrow().requests);
        }
        state.pending_waits.prune();
        state.tail.change();
        self.publish(state);
        waited
    }

    /// Makes later commands wait for `waits`. Returns the locked state, with that order.
    #[inline]
    pub fn after(&self, waits: &Dependencies) -> Result<BiasedLockGuard<'_, LaneState<D>>> {
        self.after_all(&[waits])
    }

    /// As [`LaneCore::after`], for several sets of dependencies.
    #[inline]
    pub fn after_all(
        &self,
        waits: &[impl Borrow<Dependencies>],
    ) -> Result<BiasedLockGuard<'_, LaneState<D>>> {
        let state = self.state.lock();
        match waits.iter().all(|waits| waits.borrow().done.is_empty()) {
            true => Ok(state),
            false => self.after_others(state, waits),
        }
    }

    fn after_others<'a>(
        &'a self,
        mut state: BiasedLockGuard<'a, LaneState<D>>,
        waits: &[impl Borrow<Dependencies>],
    ) -> Result<BiasedLockGuard<'a, LaneState<D>>> {
        let points = waits.iter().flat_map(|waits| waits.borrow().done.points());
        let foreign = points.filter(|point| !state.order.orders_point(point));
        let mut missing: Missing<'_> = foreign.collect();
        if !missing.is_empty() {
            missing.sort_unstable_by_key(|point| (point.lane(), Reverse(point.epoch)));
            missing.dedup_by_key(|point| point.lane());
            debug_assert!(
                missing.iter().all(|point| point.lane() != self.clock.id()),
                "a wait for a later command of the same lane"
            );
            drop(state);
            let marks = self.marks_of(&missing)?;
            state = self.state.lock();
            self.wait_for(&mut state, missing, waits, &marks)?;
        }
        for waits in waits {
            state.wait_for(&waits.borrow().order);
        }
        Ok(state)
    }

    /// Makes later commands wait for a host-signalled point. Returns the point and the dependencies
    /// of the host. Those are recorded first, so that their marker does not cover this wait.
    pub fn hold(
        &self,
        waits: &Dependencies,
        signal: HostSignal<D>,
    ) -> Result<(HostPoint<D>, Dependencies)> {
        let mut state = self.after(waits)?;
        self.hold_locked(&mut state, signal)
    }

    fn hold_locked(
        &self,
        state: &mut LaneState<D>,
        signal: HostSignal<D>,
    ) -> Result<(HostPoint<D>, Dependencies)> {
        self.cover(state)?;
        let before = Dependencies {
            done: state.tip(),
            order: state.order.frontier(),
            ..Dependencies::default()
        };
        if !D::TRACKS && !state.order.current().is_done() {
            self.insert_marker(state)?;
        }
        D::wait(&self.native, &signal.marker)?;
        // All host points of the lane share one timeline, in order: many pending ones cost one lane
        // in a frontier.
        let timeline = state
            .host_timeline
            .get_or_insert_with(|| HostTimeline::new(&self.engine));
        let held = self
            .engine
            .append_host_point(self.owner.scope(), signal, timeline);
        let mut order = before.order.clone();
        order.join_point(&held.point);
        state.wait_for(&order);
        // The host point covers all other pending waits.
        state.pending_waits.clear();
        state.pending_waits.add([&held.point]);
        self.publish(state);
        Ok((held, before))
    }

    /// Dependencies of an event for everything up to here, without a command of its own.
    pub fn dependencies(&self, state: &mut LaneState<D>) -> EventDependencies {
        self.cover_or_log(state);
        self.tail_dependencies(state, false, true)
    }

    /// Dependencies of an event made now. If `watched`, the last command may have to be recorded
    /// exactly.
    fn tail_dependencies(
        &self,
        state: &mut LaneState<D>,
        own: bool,
        watched: bool,
    ) -> EventDependencies {
        let watched = watched && !D::TRACKS;
        // Foreign work may follow at any time, so the marker is recorded now.
        if watched
            && self.is_open()
            && let Err(error) = self.insert_marker(state)
        {
            log::error!("recording an event failed: {:?}", error.code());
        }
        let LaneState {
            request,
            tail,
            attention,
            ..
        } = state;
        *attention |= watched;
        let request: Option<&MarkerRequest> = watched.then(|| &**request.get_or_insert_default());
        let deps = match tail.reuse(own, request) {
            Some(deps) => deps,
            None => Self::new_tail_dependencies(state, own, watched),
        };
        debug_assert_eq!(
            deps.done.epoch_of(self.clock.id()).unwrap_or(0),
            state.order.epoch(),
            "an event of another command than the lane's last"
        );
        deps
    }

    #[inline(never)]
    fn new_tail_dependencies(
        state: &mut LaneState<D>,
        own: bool,
        watched: bool,
    ) -> EventDependencies {
        let LaneState {
            order,
            pending_waits,
            request,
            tail,
            ..
        } = state;
        tail.renew(|deps| {
            order.record(&mut deps.done, &mut deps.order);
            let points = pending_waits.points().iter();
            points.for_each(|point| deps.done.join_point(point));
            let request = watched.then(|| MarkerRequest::clone(request.get_or_insert_default()));
            deps.requests = MarkerRequests::of(request);
            deps.requests.join(pending_waits.requests());
            deps.own = own;
            deps.failed = None;
        })
    }

    /// The least frontier that proves everything submitted or waited for so far.
    pub fn tip(&self) -> Frontier {
        let mut state = self.state.lock();
        if !self.status.is_retired() && !self.is_stream_captured() {
            self.cover_or_log(&mut state);
        }
        state.tip()
    }

    /// Lets `plan` prepare a repetition of the lane's allocations while the host waits. Not called
    /// if no pool may profit.
    pub fn plan(&self, plan: impl FnOnce(&[PoolKey], &Arc<StreamCache>, &Lane)) {
        let keys = self.cache.replayable();
        if !keys.is_empty() {
            plan(&keys, &self.cache, &self.state.lock().order);
        }
    }

    /// As [`LaneCore::dependencies`], with the last command recorded exactly.
    pub fn recorded_dependencies(&self) -> Result<EventDependencies> {
        let mut state = self.state.lock();
        let deps = self.dependencies(&mut state);
        if !D::TRACKS && !state.order.current().is_done() {
            self.insert_marker(&mut state)?;
        }
        Ok(deps)
    }

    /// Points of other lanes that the lane waits for.
    pub fn waited(&self) -> Frontier {
        self.state.lock().order.waited().collect()
    }

    /// Number of commands not known to be complete. Exact while the caller prevents submissions.
    pub fn pending_commands(&self) -> u64 {
        self.status.last().saturating_sub(self.clock.reliable())
    }

    /// Whether `waits` names the last command of this lane.
    pub fn is_last_of(&self, waits: &Dependencies) -> bool {
        waits.done.epoch_of(self.clock.id()) == Some(self.status.last())
    }

    /// Frees a block of the cache. False if that takes a wait or another lock than the lane's, or if
    /// a native command may use the block.
    #[inline(always)]
    pub fn free(&self, addr: usize) -> bool {
        match self.status.tip() {
            Some(epoch) => self.cache.try_free(addr as u64, epoch),
            None => self.status.is_native_shared() && self.free_behind_foreign(addr),
        }
    }

    /// Frees a block that foreign work before the free may use.
    #[inline(never)]
    fn free_behind_foreign(&self, addr: usize) -> bool {
        self.free_locked(&mut self.state.lock(), addr)
    }

    /// As [`LaneCore::free`], under the lane's lock.
    fn free_locked(&self, state: &mut LaneState<D>, addr: usize) -> bool {
        match self.status.tip() {
            Some(epoch) => self.cache.try_free(addr as u64, epoch),
            None => {
                let covered = self.status.is_native_shared() && self.cover(state).is_ok();
                covered && self.free_covered(state, addr)
            }
        }
    }

    /// As [`LaneCore::free`], behind [`LaneCore::cover`] and under the same lock.
    pub fn free_covered(&self, state: &LaneState<D>, addr: usize) -> bool {
        let alone = state.pending_waits.is_empty();
        alone && self.cache.try_free(addr as u64, state.order.epoch())
    }

    /// As [`LaneCore::free`], with the dependencies of an event.
    pub fn free_with_event(&self, addr: usize) -> Option<EventDependencies> {
        let mut state = self.state.lock();
        let freed = self.free_locked(&mut state, addr);
        freed.then(|| self.dependencies(&mut state))
    }

    /// Allocates from the lane's own cache of blocks.
    #[inline(always)]
    pub fn alloc(&self, key: PoolKey, bytes: u64) -> CacheResult<u64> {
        self.cache.lock().alloc(key, bytes, |block| block.addr)
    }

    /// As [`LaneCore::alloc`], with the dependencies of an event.
    pub fn alloc_with_event(
        &self,
        key: PoolKey,
        bytes: u64,
    ) -> CacheResult<(u64, EventDependencies)> {
        let mut state = self.state.lock();
        let addr = self.alloc(key, bytes)?;
        Ok((addr, self.dependencies(&mut state)))
    }

    pub fn flush(&self) -> Result<()> {
        D::flush(&self.native)
    }

    /// Drops the lane once all of its commands have ended. Does not wait.
    ///
    /// A lane whose stream is idle is dropped here. A thread of the engine drops any other one later, at a time that no
    /// caller knows. To destroy a stream or the memory of a context may wait for the device, and a program that makes
    /// the device wait for itself would then never go on.
    pub fn retire(self: Arc<Self>) {
        // The program may have destroyed an adopted stream with the queue.
        if !self.status.is_retired() {
            self.observe_idle();
        }
        let tip = self.tip();
        self.status.retire();
        self.owner.scope().add_orphan(&tip);
        // Now: the time of the drop depends on when completion is seen.
        self.cache.retire();
        if tip.is_done() {
            return;
        }
        let engine = Arc::clone(&self.engine);
        let lane = Arc::clone(&self);
        if engine
            .when(tip.clone().into(), move |_| drop(lane))
            .is_err()
        {
            engine.wait_to_release(&tip);
        }
    }

    /// Looks whether the stream is idle, and records the end of its commands then. False if the driver tracks completion
    /// by itself, or cannot tell.
    fn observe_idle(&self) -> bool {
        let known = D::TRACKS || self.engine.is_deterministic() || self.engine.check().is_err();
        if known || self.is_stream_captured() {
            return false;
        }
        let mut state = self.state.lock();
        let idle = D::is_idle(&self.native).is_ok_and(|idle| idle);
        if idle {
            self.record_end(state.order.epoch());
            self.forget_complete(&mut state);
        }
        idle
    }

    #[inline]
    fn publish(&self, state: &LaneState<D>) {
        let alone = state.pending_waits.is_empty();
        self.status.publish(state.order.epoch(), alone);
        if self.is_parked() {
            self.wake();
        }
    }

    /// Moves the lane to the busy ones. Called under the submission lock.
    #[cold]
    #[inline(never)]
    fn wake(&self) {
        self.status.set_parked(false);
        self.owner.lanes().wake(self.clock.id());
    }

    pub fn is_parked(&self) -> bool {
        self.status.is_parked()
    }
}

impl<D: Driver> Parkable for LaneCore<D> {
    fn id(&self) -> LaneId {
        self.clock.id()
    }

    fn is_parked(&self) -> bool {
        self.status.is_parked()
    }

    /// Parks the lane if it is idle and has no foreign submitters. Never blocks, since the caller
    /// may hold the lock of a lane.
    fn park(&self) -> bool {
        if self.pending_commands() > 0 || self.is_open() {
            return false;
        }
        let Some(mut state) = self.state.try_lock() else {
            return false;
        };
        self.forget_complete(&mut state);
        if !state.pending_waits.is_empty() {
            state.pending_waits.prune();
            state.tail.change();
            self.publish(&state);
        }
        let idle =
            self.pending_commands() == 0 && state.pending_waits.is_empty() && !self.is_open();
        if idle {
            self.status.set_parked(true);
            state.attention = true;
        }
        idle
    }
}

impl<D: Driver> LaneState<D> {
    pub fn tip(&self) -> Frontier {
        tip(&self.order, &self.pending_waits)
    }

    /// Orders all later commands after the frontier.
    fn wait_for(&mut self, frontier: &Frontier) {
        if !frontier.is_empty() {
            self.order.wait_for(frontier);
            self.tail.change();
        }
    }
}

fn tip(order: &Lane, pending_waits: &PendingWaits) -> Frontier {
    let mut tip = match order.epoch() {
        0 => Frontier::new(),
        _ => Frontier::from(order.current()),
    };
    let points = pending_waits.points().iter();
    points.for_each(|point| tip.join_point(point));
    tip
}

impl<D: Driver> Drop for LaneCore<D> {
    fn drop(&mut self) {
        self.owner.lanes().remove(self.clock.id());
        self.engine.remove(&self.clock);
        if let Some(host_timeline) = &self.state.lock().host_timeline {
            self.engine.remove(host_timeline.clock());
        }
        self.cache.retire();
    }
}

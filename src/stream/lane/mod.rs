//! One physical in-order stream and what is known to come before its next command.
//!
//! Owns submission: order on the stream, waits for other lanes, markers, failures, and its cache of blocks. Uses
//! `engine` and `driver`; asks its context by [`LaneOwner`]. Must never know a queue, an event or a pool's handle.
//!
//! The submission lock keeps the order of epochs equal to the order in which the driver receives
//! commands, so the driver is called under it: to submit, to wait and to record, and, once there are
//! many records, to ask about one. Nobody waits for a lane's lock while holding another's: markers of
//! other lanes are found before.

pub(crate) mod extents;
pub(crate) mod lanes;
pub(crate) mod tail;

mod biased_lock;
mod failures;
mod foreign;
mod markers;
pub(crate) mod part;
mod submission;

pub(crate) use submission::SubmissionGuard;

use crate::abi::ur_queue_flags_t;
use crate::object::{Object, Origin, Result};
use crate::pool::{Ends, PoolKey, Stash, Taken};
use crate::stream::engine::dependencies::{
    Dependencies, EventDependencies, MarkerRequest, MarkerRequests, OwnMarkerRequest, PendingWaits,
};
use crate::stream::engine::{CompletionSource, HostPoint, HostSignal, HostTimeline, Mark, Scope};

use crate::stream::driver::Progress;
use crate::stream::lane::extents::ExtentCache;
use crate::stream::lane::tail::Tail;
use crate::stream::{Driver, Engine, Timestamps, Work};
use crate::timeline::{Clock, Frontier, Lane, Point, PointRef};
use biased_lock::{BiasedLock, BiasedLockGuard};
use failures::Dependents;
use lanes::Lanes;
use markers::MarkerLimit;
use part::Part;
use smallvec::SmallVec;
use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::hint::cold_path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// What every command looks at comes first, as in [`Queue`](crate::stream::Queue).
#[repr(C)]
pub(crate) struct LaneCore<D: Driver> {
    native: D::Lane,
    /// The domain's: until when `rooms` serve.
    ends: Arc<Ends>,
    /// The engine's.
    origin: Origin,
    /// Whether others can put work on the stream that we never see, from some point on.
    native_shared: AtomicBool,
    /// Whether a command failed that was not reported, on a lane that comes to a stop then.
    stopped: AtomicBool,
    /// Whether there are recorded markers, for who would else take the lock to give none back.
    marked: AtomicBool,
    /// Whether the context does not ask it for what is pending: see [`Lanes`](crate::stream::lane::lanes::Lanes).
    /// Written under the submission lock.
    parked: AtomicBool,
    /// The epoch of the tip while that is the lane's own last command alone, else [`JOINED`].
    /// Written under the submission lock. A free that reads it follows, by the caller's own order,
    /// every command that uses the block, so an older value is never too old.
    tip_epoch: AtomicU64,
    /// The epoch of the last command.
    last: AtomicU64,
    state: BiasedLock<State<D>>,
    /// Blocks that it may use again at once, under a lock of its own.
    pub stash: Arc<Stash>,
    pub clock: Arc<Clock>,
    pub device: Arc<Object<D::Device>>,
    engine: Arc<Engine<D>>,
    /// Whether each command depends on the one before: it is an in-order queue.
    in_order: bool,
    /// Commands that depend on others of the lane, as far as that says more than the lane's order.
    dependents: Dependents,
    /// Native commands that put work on the stream now.
    foreign_submitters: AtomicUsize,
    /// Work pending on the lane keeps its context, and so the pools that it uses.
    owner: Arc<dyn LaneOwner<D>>,
}

/// What lanes are opened in and keep as long as work is pending on them: a context.
pub(crate) trait LaneOwner<D: Driver>: Send + Sync {
    fn scope(&self) -> &Scope<D>;

    fn lanes(&self) -> &Lanes<D>;

    /// Until when what is known of allocations holds.
    fn ends(&self) -> &Arc<Ends>;
}

/// Points of other lanes that a lane has yet to wait for, one a lane.
type Missing<'a> = SmallVec<[PointRef<'a>; 4]>;

/// What proves them.
type Marks<D> = SmallVec<[Mark<D>; 4]>;

/// No epoch: the lane waits for something that no command of its follows yet.
const JOINED: u64 = u64::MAX;

#[repr(C)]
pub(crate) struct State<D: Driver> {
    /// Whether there may be more to do before the next command than to give it: the last one may have
    /// to be recorded, or the lane is parked or stopped.
    attention: bool,
    /// Held by others too while someone may want the last command recorded exactly.
    request: Option<OwnMarkerRequest>,
    /// What events made at the lane's end share.
    tail: Tail,
    pub order: Lane,
    pending_waits: PendingWaits,
    /// Recorded markers, ascending by epoch. Unused where the driver tracks.
    marks: VecDeque<(u64, D::Marker)>,
    look: MarkerLimit,
    extents: ExtentCache,
    /// What the host is to signal here, if it ever was.
    hosts: Option<HostTimeline>,
}

impl<D: Driver> LaneCore<D> {
    pub fn open(
        owner: Arc<dyn LaneOwner<D>>,
        device: &Arc<Object<D::Device>>,
        flags: ur_queue_flags_t,
        in_order: bool,
    ) -> Result<Arc<Self>> {
        let home = Arc::clone(&owner);
        let make = |clock: &Arc<Clock>| D::lane(home.scope(), device, flags, clock);
        Self::over(owner, device, in_order, make)
    }

    /// A lane over the stream that `make` gives.
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
        let stash = Stash::new(&clock, owner.ends());
        let state = State {
            order,
            pending_waits: PendingWaits::default(),
            marks: VecDeque::new(),
            look: MarkerLimit::default(),
            attention: false,
            request: None,
            tail: Tail::new(&clock),
            extents: ExtentCache::new(),
            hosts: None,
        };
        let lane = Arc::new(Self {
            clock,
            device: Arc::clone(device),
            engine: Arc::clone(engine),
            native,
            native_shared: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            in_order,
            dependents: Dependents::default(),
            foreign_submitters: AtomicUsize::new(0),
            state: BiasedLock::new(state),
            stash,
            tip_epoch: AtomicU64::new(0),
            last: AtomicU64::new(0),
            marked: AtomicBool::new(false),
            parked: AtomicBool::new(false),
            ends: Arc::clone(owner.ends()),
            origin: engine.origin(),
            owner,
        });
        let source = Arc::downgrade(&lane) as Weak<dyn CompletionSource<D>>;
        lane.engine.add_lane(lane.clock.id(), source);
        lane.owner.lanes().add(&lane);
        Ok(lane)
    }

    /// Gives the lane a command that comes after `waits`. What an event for it reaches, if wanted.
    pub fn submit(
        &self,
        waits: &Dependencies,
        work: Work<D>,
        timestamps: Option<Arc<Timestamps>>,
        wanted: bool,
    ) -> Result<Option<EventDependencies>> {
        self.submit_with(&[waits], wanted, |lane, epoch| {
            Progress::work::<D>(lane, epoch, work, timestamps)
        })
    }

    /// As [`LaneCore::submit`] after several, where `give` does what [`Driver::submit`] would.
    pub fn submit_with(
        &self,
        waits: &[impl Borrow<Dependencies>],
        wanted: bool,
        give: impl FnOnce(&D::Lane, u64) -> Result<Progress>,
    ) -> Result<Option<EventDependencies>> {
        let mut state = self.after_all(waits)?;
        self.depend(&state, waits);
        let failed = waits
            .iter()
            .any(|waits| waits.borrow().unreported().is_some());
        self.give(&mut state, wanted, failed, give)
    }

    /// As [`LaneCore::submit_with`], after nothing but what is on the lane: who has the turn gives the
    /// next command, and ends it.
    #[inline(always)]
    pub fn submission(&self) -> SubmissionGuard<'_, D> {
        let state = self.state.lock();
        SubmissionGuard { lane: self, state }
    }

    /// Keeps what this thread knows of the room from these addresses on for the next command.
    pub fn cache_extents(&self, addrs: &[usize]) {
        let state = self.state.lock();
        let known = addrs.iter().filter_map(|addr| extents::lookup(*addr));
        known.for_each(|extent| state.extents.insert(extent));
    }

    /// Gives the lane several commands in a row, the first of them after `waits`: how far all that
    /// was given reaches, and whether that is everything.
    pub fn submit_all(
        &self,
        waits: &Dependencies,
        parts: &mut [Part<'_, D>],
    ) -> (EventDependencies, Result<()>) {
        // Other lanes' locks come before this one's.
        let found: Result<Vec<_>> = parts.iter().map(|part| self.find(&part.waits)).collect();
        let (found, mut state) = match found.and_then(|found| Ok((found, self.after(waits)?))) {
            Ok(ready) => ready,
            Err(error) => return (EventDependencies::default(), Err(error)),
        };
        let failed = waits.unreported().is_some();
        let mut give = |state: &mut State<D>| {
            for (part, (missing, marks)) in parts.iter_mut().zip(&found) {
                if !missing.iter().all(|point| state.order.orders_point(point)) {
                    let missing = missing.iter().map(Point::by_ref);
                    self.wait_for(state, missing, &[&part.waits], marks)?;
                }
                state.wait_for(&part.waits.order);
                if let Some(held) = &mut part.held {
                    let deps = held.place(|signal| self.hold_here(state, signal))?;
                    part.deps = Some(deps.into());
                    continue;
                }
                self.depend(state, &[&part.waits]);
                let failed = failed || part.waits.unreported().is_some();
                part.deps = self.give(state, part.wanted, failed, |lane, epoch| {
                    part.given
                        .submit(lane, epoch, part.timestamps.clone())
                        .map(|()| Progress::Pending)
                })?;
            }
            Ok(())
        };
        let result = give(&mut state);
        (self.dependencies(&mut state), result)
    }

    /// Gives the lane a command; one that depends on what has `failed` is none.
    fn give(
        &self,
        state: &mut State<D>,
        wanted: bool,
        failed: bool,
        give: impl FnOnce(&D::Lane, u64) -> Result<Progress>,
    ) -> Result<Option<EventDependencies>> {
        self.record_if_watched(state)?;
        let watched = match failed || self.is_stopped() {
            false => {
                let given = give(&self.native, state.order.epoch() + 1);
                self.given(state, given)?
            }
            true => self.drop_command(state)?,
        };
        Ok(wanted.then(|| self.tail_dependencies(state, true, watched)))
    }

    /// What became of the next command: whether it is still to be watched.
    #[inline(always)]
    fn given(&self, state: &mut State<D>, given: Result<Progress>) -> Result<bool> {
        let given = match given {
            Ok(given) => given,
            Err(error) => {
                cold_path();
                self.record_refusal(state);
                return Err(error);
            }
        };
        self.step(state);
        let watched = given == Progress::Pending;
        if !watched {
            self.clock.raise(state.order.epoch());
        }
        Ok(watched)
    }

    /// A command was refused.
    #[cold]
    fn record_refusal(&self, state: &mut State<D>) {
        if !D::TRACKS {
            // A part of it may be there: what comes to pass now includes that.
            state.order.step();
            state.tail.clear();
            self.publish(state);
        }
    }

    /// There is one command more.
    #[inline(always)]
    fn step(&self, state: &mut State<D>) {
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
        self.publish_tip(epoch, epoch);
    }

    /// There is one command more, and it alone proves what was waited for since the last.
    #[inline(never)]
    fn step_joined(&self, state: &mut State<D>, epoch: u64) {
        state.tail.step_joined(epoch);
        state.pending_waits.clear();
    }

    /// The part of what is waited for that other lanes have yet to complete, with its markers.
    fn find(&self, waits: &Dependencies) -> Result<(Vec<Point>, Marks<D>)> {
        let foreign =
            |point: &PointRef<'_>| point.lane() != self.clock.id() && !point.is_complete();
        let missing: Missing<'_> = waits.done.points().filter(foreign).collect();
        let marks = self.marks_of(&missing)?;
        Ok((
            missing.iter().map(|point| point.to_point()).collect(),
            marks,
        ))
    }

    /// Has the stream wait for markers that prove `missing`, which are points of `waits`.
    fn wait_for<'a>(
        &self,
        state: &mut State<D>,
        missing: impl IntoIterator<Item = PointRef<'a>>,
        waits: &[impl Borrow<Dependencies>],
        marks: &[Mark<D>],
    ) -> Result<()> {
        if !marks.is_empty() {
            self.record_if_watched(state)?;
        }
        for mark in marks {
            D::wait(&self.native, &mark.marker)?;
        }
        state.pending_waits.add(missing);
        for waits in waits {
            state.pending_waits.hold(&waits.borrow().requests);
        }
        state.pending_waits.prune();
        state.tail.change();
        self.publish(state);
        Ok(())
    }

    /// Makes later commands wait for `waits` and lets `then` look at the order under the lock.
    #[inline]
    pub fn after(&self, waits: &Dependencies) -> Result<BiasedLockGuard<'_, State<D>>> {
        self.after_all(&[waits])
    }

    /// As [`LaneCore::after`], of several.
    #[inline]
    pub fn after_all(
        &self,
        waits: &[impl Borrow<Dependencies>],
    ) -> Result<BiasedLockGuard<'_, State<D>>> {
        let state = self.state.lock();
        match waits.iter().all(|waits| waits.borrow().done.is_empty()) {
            true => Ok(state),
            false => self.after_others(state, waits),
        }
    }

    fn after_others<'a>(
        &'a self,
        mut state: BiasedLockGuard<'a, State<D>>,
        waits: &[impl Borrow<Dependencies>],
    ) -> Result<BiasedLockGuard<'a, State<D>>> {
        let points = waits.iter().flat_map(|waits| waits.borrow().done.points());
        let foreign = points.filter(|point| !state.order.orders_point(*point));
        let mut missing: Missing<'_> = foreign.collect();
        if !missing.is_empty() {
            missing.sort_unstable_by_key(|point| (point.lane(), Reverse(point.epoch)));
            missing.dedup_by_key(|point| point.lane());
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

    /// Makes later commands wait for what the host signals: its point, and what the host waits for
    /// itself. That is recorded first, so that it never covers this wait.
    pub fn hold(
        &self,
        waits: &Dependencies,
        signal: HostSignal<D>,
    ) -> Result<(HostPoint<D>, Dependencies)> {
        let mut state = self.after(waits)?;
        self.hold_here(&mut state, signal)
    }

    fn hold_here(
        &self,
        state: &mut State<D>,
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
        // One line for all, each of which comes after those before it, so that many pending ones are
        // as easily told as one.
        let line = state
            .hosts
            .get_or_insert_with(|| HostTimeline::new(&self.engine));
        let held = self.engine.place(self.owner.scope(), signal, line);
        let mut order = before.order.clone();
        order.join_point(&held.point);
        state.wait_for(&order);
        // The host waits for all else that is waited for.
        state.pending_waits.clear();
        state.pending_waits.add([held.point.by_ref()]);
        self.publish(state);
        Ok((held, before))
    }

    /// What an event reaches that stands for everything up to here, without a command of its own.
    pub fn dependencies(&self, state: &mut State<D>) -> EventDependencies {
        self.cover_or_log(state);
        self.tail_dependencies(state, false, true)
    }

    /// What an event made now reaches. With `watched`, it may want the last command recorded exactly.
    fn tail_dependencies(
        &self,
        state: &mut State<D>,
        own: bool,
        watched: bool,
    ) -> EventDependencies {
        let watched = watched && !D::TRACKS;
        // Others may put work behind the command at any time: its record cannot wait for ours.
        if watched
            && self.is_open()
            && let Err(error) = self.insert_marker(state)
        {
            log::error!("recording an event failed: {:?}", error.code());
        }
        let State {
            request,
            tail,
            attention,
            ..
        } = state;
        *attention |= watched;
        let request: Option<&MarkerRequest> = watched.then(|| &**request.get_or_insert_default());
        match tail.again(own, request) {
            Some(deps) => deps,
            None => Self::new_tail_dependencies(state, own, watched),
        }
    }

    #[inline(never)]
    fn new_tail_dependencies(state: &mut State<D>, own: bool, watched: bool) -> EventDependencies {
        let State {
            order,
            pending_waits,
            request,
            tail,
            ..
        } = state;
        tail.renew(|told| {
            order.tell(&mut told.done, &mut told.order);
            let points = pending_waits.points().iter();
            points.for_each(|point| told.done.join_point(point));
            let request = watched.then(|| MarkerRequest::clone(request.get_or_insert_default()));
            told.requests = MarkerRequests::of(request);
            told.requests.join(pending_waits.requests());
            told.own = own;
            told.failed = None;
        })
    }

    /// The least frontier that proves everything submitted or waited for so far.
    pub fn tip(&self) -> Frontier {
        let mut state = self.state.lock();
        self.cover_or_log(&mut state);
        state.tip()
    }

    /// What the lane did may come again: `plan` sees to that while the host waits anyway. It is not
    /// called if no pool may gain by it.
    pub fn plan(&self, plan: impl FnOnce(&[PoolKey], &Arc<Stash>, &Lane)) {
        let keys = self.stash.wants_plans();
        if !keys.is_empty() {
            plan(&keys, &self.stash, &self.state.lock().order);
        }
    }

    /// As [`LaneCore::reach`], now, and recorded exactly.
    pub fn recorded_dependencies(&self) -> Result<EventDependencies> {
        let mut state = self.state.lock();
        let deps = self.dependencies(&mut state);
        if !D::TRACKS && !state.order.current().is_done() {
            self.insert_marker(&mut state)?;
        }
        Ok(deps)
    }

    /// Everything foreign that the lane waits for.
    pub fn waited(&self) -> Frontier {
        self.state.lock().order.waited().clone()
    }

    /// How many commands may not be relied on to be complete. Exact for who keeps others from
    /// submitting.
    pub fn left(&self) -> u64 {
        let last = self.last.load(Ordering::Relaxed);
        last.saturating_sub(self.clock.reliable())
    }

    /// Whether what is waited for reaches this lane's last command.
    pub fn is_last_of(&self, waits: &Dependencies) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        waits.done.epoch_of(self.clock.id()) == Some(last)
    }

    /// Frees a block of the stash: without a wait, an event or any other lane's lock. False if it
    /// takes more than that, or if work that we never saw may use the block.
    #[inline(always)]
    pub fn free(&self, addr: usize) -> bool {
        let epoch = self.tip_epoch.load(Ordering::Relaxed);
        let known = epoch != JOINED && !self.is_open();
        known && self.stash.frees(addr as u64, epoch)
    }

    /// As [`LaneCore::free`], and what an event of it reaches.
    pub fn free_with_event(&self, addr: usize) -> Option<EventDependencies> {
        let mut state = self.state.lock();
        self.free(addr).then(|| self.dependencies(&mut state))
    }

    /// The address of a block that died here, from the lane's own store.
    #[inline(always)]
    pub fn take(&self, key: PoolKey, bytes: u64) -> Taken<u64> {
        self.stash.lock().take(key, bytes, |block| block.addr)
    }

    /// As [`LaneCore::take`], and what an event of it reaches.
    pub fn alloc_with_event(&self, key: PoolKey, bytes: u64) -> Taken<(u64, EventDependencies)> {
        let mut state = self.state.lock();
        let addr = self.take(key, bytes)?;
        Ok((addr, self.dependencies(&mut state)))
    }

    pub fn flush(&self) -> Result<()> {
        D::flush(&self.native)
    }

    /// Lets the lane go once everything on it has ended, without waiting for that here.
    pub fn retire(self: Arc<Self>) {
        let tip = self.tip();
        self.owner.scope().add_orphan(&tip);
        // Now, rather than when the lane is dropped, which depends on time.
        self.stash.retire();
        if tip.is_done() {
            return;
        }
        let engine = Arc::clone(&self.engine);
        let lane = Arc::clone(&self);
        if engine
            .when(tip.clone().into(), move |_| drop(lane))
            .is_err()
            && let Err(error) = engine.wait(&tip)
        {
            log::error!("a lane ended with an error: {:?}", error.code());
        }
    }

    #[inline]
    fn publish(&self, state: &State<D>) {
        let alone = state.pending_waits.is_empty();
        let last = state.order.epoch();
        self.publish_tip(if alone { last } else { JOINED }, last);
        if self.is_parked() {
            self.wake();
        }
    }

    #[inline]
    fn publish_tip(&self, tip: u64, last: u64) {
        self.tip_epoch.store(tip, Ordering::Relaxed);
        // What is behind it was given before.
        self.last.store(last, Ordering::Release);
    }

    /// Something may be pending again. Under the submission lock.
    #[cold]
    #[inline(never)]
    fn wake(&self) {
        self.parked.store(false, Ordering::Relaxed);
        self.owner.lanes().wake(self.clock.id());
    }

    /// Parks an idle lane on which nobody else puts work. True if it is parked. Waits for no lock, as who
    /// asks may hold a lane's.
    pub fn park(&self) -> bool {
        if self.left() > 0 || self.is_open() {
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
        let idle = self.left() == 0 && state.pending_waits.is_empty() && !self.is_open();
        if idle {
            self.parked.store(true, Ordering::Relaxed);
            state.attention = true;
        }
        idle
    }

    pub fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Relaxed)
    }
}

impl<D: Driver> State<D> {
    pub fn tip(&self) -> Frontier {
        tip(&self.order, &self.pending_waits)
    }

    /// All later commands come after this.
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
        if let Some(hosts) = &self.state.lock().hosts {
            self.engine.remove(hosts.clock());
        }
        self.stash.retire();
    }
}

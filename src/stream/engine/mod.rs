//! What all contexts of an adapter share: where points come true, and the threads that wait for them.
//!
//! Owns completion: points of lanes and of the host, the driver's markers for them, and what runs once they are
//! complete. Uses `driver`; asks lanes and contexts by the traits [`CompletionSource`] and [`Pending`]. Must never know
//! a queue, a pool or an event.

pub(crate) mod dependencies;
pub(crate) mod leases;
mod scope;
pub(crate) mod threads;

use crate::abi::UR_RESULT_ERROR_DEVICE_LOST;
use crate::object::{Object, Origin, Result, ensure};
use crate::stream::driver::{FAILED, is_failure};
use crate::stream::engine::dependencies::Dependencies;
use crate::stream::engine::threads::{Job, Threads};
use crate::stream::settings::Settings;
use crate::stream::settings::pool_trace::Trace;
use crate::stream::{CompletionCallback, Devices, Driver};
use crate::timeline::sync::{Mutex, RwLock};

use crate::timeline::{Clock, Failure, Frontier, LaneId, Point, PointRef};
use rustc_hash::FxHashMap;
pub(crate) use scope::{Failures, Scope};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// One an adapter: its lanes, its host-signalled points and its threads.
pub struct Engine<D: Driver> {
    places: RwLock<FxHashMap<LaneId, Place<D>>>,
    /// Host-signalled points that were not signalled yet. While there are none, nothing can wait
    /// for one.
    unsignalled: AtomicUsize,
    contexts: Mutex<Vec<Weak<dyn Pending<D>>>>,
    threads: Threads,
    /// What threads of ours block for, where the driver tells of no completion by itself.
    blocked: Mutex<FxHashMap<LaneId, Blocked<D>>>,
    origin: Origin,
    /// Whether nothing that a program can see may depend on when a completion is seen.
    deterministic: bool,
}

/// Who can tell when a point is complete.
enum Place<D: Driver> {
    Lane(Weak<dyn CompletionSource<D>>),
    /// What is still to be signalled, ascending by epoch, and how far its line has come without it.
    Host(VecDeque<(u64, D::Marker)>, u64),
}

/// A lane, as the engine asks it how far it has come.
pub(crate) trait CompletionSource<D: Driver>: Send + Sync {
    /// A marker that covers the lane up to `epoch`, as exactly as it was recorded; none if that is
    /// complete already.
    fn mark(&self, epoch: u64) -> Result<Option<Mark<D>>>;

    /// All up to this epoch has ended, its own command well.
    fn record_end(&self, epoch: u64);

    /// The marker of the command with this epoch tells that it failed.
    fn record_failure(&self, epoch: u64) -> Result<()>;
}

/// A context, as a wait for one of its devices covers it.
pub(crate) trait Pending<D: Driver>: Send + Sync {
    /// Waits for everything enqueued on the device; an error if a command failed that no wait has
    /// reported.
    fn wait_device(&self, device: &Object<D::Device>) -> Result<()>;

    /// Gives back what pools hold beyond their thresholds, as far as it is complete.
    fn settle(&self);
}

/// What a thread blocks for on a lane, and will later.
struct Blocked<D: Driver> {
    at: u64,
    later: VecDeque<(Mark<D>, CompletionCallback)>,
}

/// A native marker, and the point that it proves complete.
pub(crate) struct Mark<D: Driver> {
    pub point: Point,
    pub marker: D::Marker,
}

impl<D: Driver> Clone for Mark<D> {
    fn clone(&self) -> Self {
        Self {
            point: self.point.clone(),
            marker: self.marker.clone(),
        }
    }
}

impl<D: Driver> Default for Engine<D> {
    fn default() -> Self {
        Self {
            places: RwLock::default(),
            unsignalled: AtomicUsize::new(0),
            contexts: Mutex::default(),
            threads: Threads::default(),
            blocked: Mutex::default(),
            origin: Origin::here(),
            deterministic: Settings::get().deterministic,
        }
    }
}

impl<D: Driver> Engine<D> {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// As `UR_POOL_DETERMINISTIC` asks for it.
    pub fn is_deterministic(&self) -> bool {
        self.deterministic
    }

    /// Waits until everything enqueued on the device has completed, in whatever context, then gives
    /// back what pools hold beyond their thresholds: `urDeviceWaitExp`.
    pub fn wait_device(&self, device: &Object<D::Device>) -> Result<()> {
        let contexts: Vec<_> = self
            .contexts
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        let waited = contexts.iter().map(|context| context.wait_device(device));
        let result = waited.fold(Ok(()), Result::and);
        contexts.iter().for_each(|context| context.settle());
        result
    }

    /// Ends the engine's threads when the adapter ends: waits for the jobs that are running.
    pub fn shut_down(&self) {
        // A forked child has none to wait for.
        if self.check().is_ok() {
            self.threads.shut_down();
        }
    }

    /// How many threads there are.
    #[cfg(test)]
    pub fn live_threads(&self) -> usize {
        self.threads.live()
    }

    /// The process that it began in.
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// A forked child has none of our threads: it gets an error instead of a hang.
    pub(crate) fn check(&self) -> Result<()> {
        ensure(!self.origin.is_forked(), UR_RESULT_ERROR_DEVICE_LOST)
    }

    pub(crate) fn add_context(&self, context: Weak<dyn Pending<D>>) {
        let mut contexts = self.contexts.lock();
        contexts.retain(|old| old.strong_count() > 0);
        contexts.push(context);
    }

    pub(crate) fn add_lane(&self, id: LaneId, lane: Weak<dyn CompletionSource<D>>) {
        self.insert(id, Place::Lane(lane));
    }

    /// A lane has ended: nothing on it is waited for any more.
    pub(crate) fn remove(&self, clock: &Clock) {
        clock.raise(u64::MAX);
        let mut places = self.places.write();
        let place = places.remove(&clock.id());
        drop(places);
        drop(place);
    }

    fn insert(&self, id: LaneId, place: Place<D>) {
        self.places.write().insert(id, place);
    }

    /// A marker that proves the point complete; none if it is complete already.
    pub(crate) fn mark<'a>(&self, point: impl Into<PointRef<'a>>) -> Result<Option<Mark<D>>> {
        let point = point.into();
        if point.is_done() {
            return Ok(None);
        }
        let lane = {
            let places = self.places.read();
            match places.get(&point.lane()) {
                // It has ended since.
                None => return Ok(None),
                Some(Place::Host(pending, _)) => {
                    // What is signalled already comes after one that is not.
                    let upto = pending.partition_point(|(epoch, _)| *epoch <= point.epoch);
                    let found = upto.checked_sub(1).and_then(|at| pending.get(at));
                    return Ok(found.map(|(epoch, marker)| Mark {
                        point: Point::new(point.clock, *epoch),
                        marker: marker.clone(),
                    }));
                }
                Some(Place::Lane(lane)) => lane.upgrade(),
            }
        };
        lane.map_or(Ok(None), |lane| lane.mark(point.epoch))
    }

    /// Whether all of it has completed. Asks the driver where that does not tell by itself.
    pub(crate) fn is_done(&self, frontier: &Frontier) -> Result<bool> {
        for point in frontier.points() {
            if point.is_done() {
                continue;
            }
            if D::TRACKS {
                return Ok(false);
            }
            if let Some(mark) = self.mark(point)? {
                match D::is_done(&mark.marker) {
                    Ok(false) => return Ok(false),
                    ended => self.ended(&mark, ended.map(drop))?,
                }
            }
        }
        Ok(true)
    }

    /// Records that what a marker covers has ended, and that its command failed if the driver says so.
    fn ended(&self, mark: &Mark<D>, how: Result<()>) -> Result<()> {
        if (D::TELLS_FAILURES || Failure::any())
            && how.is_ok()
            && let Some(lane) = self.lane_of(&mark.point)
        {
            lane.record_end(mark.point.epoch);
            return Ok(());
        }
        if let Err(error) = how {
            if !is_failure(error) {
                return Err(error);
            }
            match self.lane_of(&mark.point) {
                Some(lane) => return lane.record_failure(mark.point.epoch),
                None => mark.point.fail(&Failure::new()),
            }
        }
        mark.point.clock.raise(mark.point.epoch);
        Ok(())
    }

    fn lane_of(&self, point: &Point) -> Option<Arc<dyn CompletionSource<D>>> {
        let places = self.places.read();
        match places.get(&point.lane()) {
            Some(Place::Lane(lane)) => lane.upgrade(),
            _ => None,
        }
    }

    /// Blocks the host until all of it has ended, failed commands too, since the program asked for that.
    /// An error if the driver cannot tell; the rest is waited for all the same.
    pub(crate) fn wait(&self, frontier: &Frontier) -> Result<()> {
        let mut result = Ok(());
        for point in frontier.points() {
            result = result.and(self.wait_point(point));
        }
        trace_wait(frontier);
        result
    }

    fn wait_point(&self, point: PointRef<'_>) -> Result<()> {
        if !point.is_done()
            && let Some(mark) = self.mark(point)?
        {
            self.check()?;
            self.ended(&mark, D::block(&mark.marker))?;
        }
        point.clock.raise_awaited(point.epoch);
        Ok(())
    }

    /// As [`Engine::wait`], of a command that the program waits for: an error if that failed, which is
    /// reported by that.
    pub(crate) fn wait_dependencies(&self, deps: &Dependencies) -> Result<()> {
        self.wait(&deps.done)?;
        if deps.failure().is_some() {
            // The wait covers what that came after, too.
            for point in deps.order.points() {
                self.is_done(&Frontier::from(point.to_point()))?;
            }
            deps.report();
            return Err(FAILED);
        }
        deps.order.mark_awaited();
        trace_wait(&deps.order);
        Ok(())
    }

    /// Runs a job on a thread of ours once all of it has ended, or the driver is lost: the job is told
    /// why a command of it failed, if one did. Until then it wants each lane's command recorded before
    /// another follows: a later record could cover what waits for this very job.
    pub(crate) fn when(
        self: &Arc<Self>,
        before: Dependencies,
        job: impl FnOnce(Option<Arc<Failure>>) + Send + 'static,
    ) -> Result<()> {
        self.check()?;
        self.threads.promise()?;
        let done = before.done.clone();
        let job = move || {
            let failure = before.failure();
            drop(before);
            job(failure);
        };
        self.follow(done, Box::new(job), false);
        Ok(())
    }

    /// Follows the frontier point by point. `ours`: on one of our own threads.
    fn follow(self: &Arc<Self>, mut rest: Frontier, job: Job, ours: bool) {
        while let Some(point) = rest.points().next().map(PointRef::to_point) {
            rest.retain(|other| other.lane() != point.lane());
            let mark = match self.mark(&point) {
                Ok(None) => continue,
                Ok(Some(mark)) => mark,
                Err(error) => {
                    log::error!("a wait for a lane failed: {:?}", error.code());
                    continue;
                }
            };
            let engine = Arc::clone(self);
            let seen = mark.clone();
            // A driver's call back may not ask the driver how the command ended: a thread of ours does.
            let callback: CompletionCallback = Box::new(move || {
                let threads = engine.threads.clone();
                threads.push(Box::new(move || {
                    if let Err(error) = engine.is_ended(&seen) {
                        log::error!("asking how a command ended failed: {:?}", error.code());
                    }
                    engine.follow(rest, job, true);
                }));
            });
            if ours && self.threads.promise().is_err() {
                // The end has come: dropping the job completes what depends on it.
                return;
            }
            if let Some(callback) = D::notify(&mark.marker, callback) {
                self.block_for(mark, callback);
            }
            return;
        }
        if ours { job() } else { self.threads.push(job) }
    }

    /// Records how a command ended whose end the driver told of.
    fn is_ended(&self, mark: &Mark<D>) -> Result<()> {
        if mark.point.is_done() {
            return Ok(());
        }
        self.ended(mark, D::is_done(&mark.marker).map(drop))
            // On a device that is lost all has ended.
            .inspect_err(|_| mark.point.clock.raise(mark.point.epoch))
    }

    /// Has a thread block for a lane: one for all of its points, in their order. A point before that
    /// which it blocks for has one of its own, as the later one may wait for what it sets off.
    fn block_for(self: &Arc<Self>, mark: Mark<D>, callback: CompletionCallback) {
        let (lane, epoch) = (mark.point.lane(), mark.point.epoch);
        let mut blocked = self.blocked.lock();
        let alone = match blocked.get_mut(&lane) {
            Some(Blocked { at, later }) if *at <= epoch => {
                let place = later.partition_point(|(other, _)| other.point.epoch <= epoch);
                later.insert(place, (mark, callback));
                return;
            }
            Some(_) => true,
            None => {
                let later = VecDeque::new();
                blocked.insert(lane, Blocked { at: epoch, later });
                false
            }
        };
        drop(blocked);
        // One promise is for the notice, one for the job that blocks.
        if self.threads.promise().is_err() {
            let left = (!alone).then(|| self.blocked.lock().remove(&lane));
            return drop(left);
        }
        let engine = Arc::clone(self);
        self.threads.push(Box::new(move || {
            let mut next = Some((mark, callback));
            while let Some((mark, callback)) = next {
                if let Err(error) = engine.ended(&mark, D::block(&mark.marker)) {
                    log::error!("waiting for a lane failed: {:?}", error.code());
                }
                callback();
                next = (!alone).then(|| engine.next_blocked(lane)).flatten();
            }
        }));
    }

    fn next_blocked(&self, lane: LaneId) -> Option<(Mark<D>, CompletionCallback)> {
        let mut blocked = self.blocked.lock();
        let Blocked { at, later } = blocked.get_mut(&lane)?;
        let next = later.pop_front();
        match &next {
            Some((mark, _)) => *at = mark.point.epoch,
            None => drop(blocked.remove(&lane)),
        }
        next
    }

    /// What the host is to signal, without a place yet.
    pub(crate) fn host_signal(&self, devices: &Devices<D>) -> Result<HostSignal<D>> {
        let (marker, signal) = D::host_point(devices)?;
        Ok(HostSignal { marker, signal })
    }

    /// A new point that the host signals, and that comes after no other one.
    pub(crate) fn host_point(self: &Arc<Self>, scope: &Scope<D>) -> Result<HostPoint<D>> {
        let signal = self.host_signal(scope)?;
        Ok(self.separate_host_point(scope, signal))
    }

    /// Makes a signal the next point of a line, which the host signals after all points before it.
    pub(crate) fn place(
        self: &Arc<Self>,
        scope: &Scope<D>,
        signal: HostSignal<D>,
        line: &mut HostTimeline,
    ) -> HostPoint<D> {
        line.last += 1;
        let point = Point::new(&line.clock, line.last);
        self.insert_host_point(scope, signal, point, line.last)
    }

    /// Makes a signal the one point of a line.
    pub(crate) fn separate_host_point(
        self: &Arc<Self>,
        scope: &Scope<D>,
        signal: HostSignal<D>,
    ) -> HostPoint<D> {
        let point = Point::new(&Clock::of_host(self.deterministic), 1);
        self.insert_host_point(scope, signal, point, u64::MAX)
    }

    /// `end`: how far the line has come once all of its points so far are signalled.
    fn insert_host_point(
        self: &Arc<Self>,
        scope: &Scope<D>,
        HostSignal { marker, signal }: HostSignal<D>,
        point: Point,
        end: u64,
    ) -> HostPoint<D> {
        let mut places = self.places.write();
        let none = || Place::Host(VecDeque::new(), 0);
        if let Place::Host(pending, last) = places.entry(point.lane()).or_insert_with(none) {
            pending.push_back((point.epoch, marker));
            *last = end;
        }
        drop(places);
        self.unsignalled.fetch_add(1, Ordering::AcqRel);
        scope.add_host_point(&point);
        HostPoint {
            point,
            signal: Some(signal),
            engine: Arc::clone(self),
        }
    }

    /// A point was signalled: how far its line has come depends on those before it.
    fn signalled(&self, point: &Point) {
        let mut places = self.places.write();
        let Some(Place::Host(pending, last)) = places.get_mut(&point.lane()) else {
            return;
        };
        let at = pending.partition_point(|(epoch, _)| *epoch < point.epoch);
        let gone = pending.remove(at);
        match pending.front() {
            Some((next, _)) => point.clock.raise(next - 1),
            None => {
                point.clock.raise(*last);
                drop(places.remove(&point.lane()));
            }
        }
        drop(places);
        drop(gone);
    }

    /// A point that something outside completes, as the marker tells.
    pub(crate) fn foreign_point(self: &Arc<Self>, marker: D::Marker) -> ForeignPoint<D> {
        let clock = Clock::of_host(self.deterministic);
        self.insert(clock.id(), Place::Host(VecDeque::from([(1, marker)]), 1));
        self.unsignalled.fetch_add(1, Ordering::AcqRel);
        ForeignPoint {
            point: Point::new(&clock, 1),
            engine: Arc::clone(self),
        }
    }

    /// Whether there is no point that the host has yet to signal, as far as that may be relied on.
    pub(crate) fn all_signalled(&self) -> bool {
        !self.deterministic && self.unsignalled.load(Ordering::Acquire) == 0
    }

    /// The points of the frontier that the host has yet to signal.
    pub(crate) fn unsignalled(&self, frontier: &Frontier) -> Frontier {
        if self.all_signalled() {
            return Frontier::new();
        }
        let hosts = |point: &PointRef<'_>| point.clock.is_host() && !point.is_complete();
        frontier.points().filter(hosts).collect()
    }

    /// All points of a context that the host has yet to signal.
    pub(crate) fn unsignalled_of(&self, scope: &Scope<D>) -> Frontier {
        if self.all_signalled() {
            return Frontier::new();
        }
        scope.host_points()
    }
}

#[inline]
fn trace_wait(frontier: &Frontier) {
    if let Some(trace) = Trace::get() {
        trace.waited(frontier);
    }
}

/// A point that something outside completes. Dropped when it was seen complete.
pub(crate) struct ForeignPoint<D: Driver> {
    pub point: Point,
    engine: Arc<Engine<D>>,
}

impl<D: Driver> Drop for ForeignPoint<D> {
    fn drop(&mut self) {
        self.engine.remove(&self.point.clock);
        self.engine.unsignalled.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What the host is to signal, and what lanes can wait for.
pub(crate) struct HostSignal<D: Driver> {
    pub marker: D::Marker,
    signal: D::Signal,
}

/// Points that the host signals one after the other. Its end is that of its clock.
pub(crate) struct HostTimeline {
    clock: Arc<Clock>,
    last: u64,
}

impl HostTimeline {
    pub fn new<D: Driver>(engine: &Engine<D>) -> Self {
        Self {
            clock: Clock::of_host(engine.deterministic),
            last: 0,
        }
    }

    pub fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }
}

/// A point that the host signals: by [`HostPoint::signal`], or by being dropped.
pub(crate) struct HostPoint<D: Driver> {
    pub point: Point,
    signal: Option<D::Signal>,
    engine: Arc<Engine<D>>,
}

impl<D: Driver> HostPoint<D> {
    pub fn signal(self) {
        drop(self);
    }

    /// Completes it as failed: what waits for it does not run.
    pub fn fail(mut self, why: &Arc<Failure>) {
        self.point.fail(why);
        if let Some(own) = self.signal.take() {
            // First, so that streams have dropped what waits for it once the program is told.
            D::fail(own);
            self.is_over();
        }
    }

    /// Signals it, or has it fail for this reason.
    pub fn end(self, failure: Option<Arc<Failure>>) {
        match failure {
            None => self.signal(),
            Some(why) => self.fail(&why),
        }
    }

    fn is_over(&self) {
        self.engine.signalled(&self.point);
        self.engine.unsignalled.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<D: Driver> Drop for HostPoint<D> {
    fn drop(&mut self) {
        if let Some(own) = self.signal.take() {
            // First, so that nobody sees what waited for it complete before it.
            self.is_over();
            D::signal(own);
        }
    }
}

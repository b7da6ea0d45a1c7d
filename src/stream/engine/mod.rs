//! Completion of points, shared by all contexts of an adapter.
//!
//! Owns completion: points of lanes and of the host, the driver's markers for them, and callbacks
//! on completion. Uses `driver`; asks lanes and contexts by the traits [`LaneProgress`] and
//! [`Pending`]. Must never know a queue, a pool or an event.

pub(crate) mod dependencies;
pub(crate) mod leases;
mod scope;
mod slot;
pub(crate) mod threads;

use crate::abi::UR_RESULT_ERROR_DEVICE_LOST;
use crate::object::{Object, Origin, Result, ensure};
use crate::pool::Options;
use crate::stream::driver::{FAILED, is_failure};
use crate::stream::engine::dependencies::Dependencies;
use crate::stream::engine::threads::{Job, Threads};
use crate::stream::settings::Settings;
use crate::stream::settings::pool_trace::Trace;
use crate::stream::{CompletionCallback, Devices, Driver};
use crate::sync::{AtomicUsize, Mutex, Ordering, RwLock};
use crate::timeline::{Clock, Failure, Frontier, LaneId, Point};
use rustc_hash::FxHashMap;
pub(crate) use scope::{Failures, Scope};
pub use slot::EngineSlot;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Between two queries of commands that the driver refuses to wait for.
const QUERY_INTERVAL: Duration = Duration::from_millis(1);

/// One per adapter: its lanes, its host-signalled points and its threads.
pub struct Engine<D: Driver> {
    sources: RwLock<FxHashMap<LaneId, CompletionSource<D>>>,
    /// Number of host-signalled points that are pending. With none, no lane can wait for the host.
    unsignalled: AtomicUsize,
    contexts: Mutex<Vec<Weak<dyn Pending<D>>>>,
    threads: Threads,
    /// Lanes that a thread of the engine blocks for, where the driver has no completion callback.
    blocked: Mutex<FxHashMap<LaneId, Blocked<D>>>,
    origin: Origin,
    /// Whether visible results must not depend on when a completion is observed.
    deterministic: bool,
    /// Options of the pools of its contexts.
    pool_options: Options,
    tight_options: Options,
}

/// The source of a point's completion.
enum CompletionSource<D: Driver> {
    Lane(Weak<dyn LaneProgress<D>>),
    /// Pending markers, ascending by epoch, and the epoch that is complete without them.
    Host(VecDeque<(u64, D::Marker)>, u64),
}

/// A lane as the engine queries it for progress.
pub(crate) trait LaneProgress<D: Driver>: Send + Sync {
    /// A marker that covers the lane up to `epoch`, recorded as early as possible. None if the
    /// epoch is complete.
    fn mark(&self, epoch: u64) -> Result<Option<Mark<D>>>;

    /// Records that all commands up to this epoch have ended and that the last one succeeded.
    fn record_end(&self, epoch: u64);

    /// Records that the marker of the command with this epoch reported a failure.
    fn record_failure(&self, epoch: u64) -> Result<()>;
}

/// A context as a wait for a device covers it.
pub(crate) trait Pending<D: Driver>: Send + Sync {
    /// Waits for everything enqueued on the device; an error if a command failed that no wait has
    /// reported.
    fn wait_device(&self, device: &Object<D::Device>) -> Result<()>;

    /// Gives back what pools hold beyond their thresholds, as far as it is complete.
    fn settle(&self);

    /// Makes commands look anew for memory that their device reaches.
    fn access_changed(&self);
}

/// The epoch that a thread blocks for on a lane, and later ones in its queue.
struct Blocked<D: Driver> {
    at: u64,
    later: VecDeque<(Mark<D>, CompletionCallback)>,
}

/// A native marker, and the point that it proves complete.
pub(crate) struct Mark<D: Driver> {
    pub point: Point,
    pub marker: D::Marker,
}

impl<D: Driver> Mark<D> {
    /// Whether its completion proves the point's.
    fn covers(&self, point: &Point) -> bool {
        self.point.lane() == point.lane() && self.point.epoch >= point.epoch
    }
}

impl<D: Driver> Clone for Mark<D> {
    fn clone(&self) -> Self {
        Self {
            point: self.point.clone(),
            marker: self.marker.clone(),
        }
    }
}

impl<D: Driver> Engine<D> {
    /// An engine with the options of the environment.
    pub fn new() -> Arc<Self> {
        let settings = Settings::get();
        Self::with_options(settings.options, settings.tight_options)
    }

    /// An engine whose pools have these options, or the others if they are asked to be tight.
    pub(crate) fn with_options(pool_options: Options, tight_options: Options) -> Arc<Self> {
        Arc::new(Self {
            sources: RwLock::default(),
            unsignalled: AtomicUsize::new(0),
            contexts: Mutex::default(),
            threads: Threads::default(),
            blocked: Mutex::default(),
            origin: Origin::here(),
            deterministic: Settings::get().deterministic,
            pool_options,
            tight_options,
        })
    }

    pub(crate) fn pool_options(&self, tight: bool) -> Options {
        match tight {
            true => self.tight_options,
            false => self.pool_options,
        }
    }

    /// As `UR_POOL_DETERMINISTIC` asks for it.
    pub fn is_deterministic(&self) -> bool {
        self.deterministic
    }

    /// Waits until everything enqueued on the device has completed, in whatever context, then gives
    /// back what pools hold beyond their thresholds: `urDeviceWaitExp`.
    pub fn wait_device(&self, device: &Object<D::Device>) -> Result<()> {
        let contexts = self.contexts();
        let waited = contexts.iter().map(|context| context.wait_device(device));
        let result = waited.fold(Ok(()), Result::and);
        contexts.iter().for_each(|context| context.settle());
        result
    }

    /// Called after a device has got or lost access to another one's memory.
    pub fn access_changed(&self) {
        let contexts = self.contexts();
        contexts.iter().for_each(|context| context.access_changed());
    }

    fn contexts(&self) -> Vec<Arc<dyn Pending<D>>> {
        self.contexts
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
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

    /// The process that the engine began in.
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// An error in a forked child, which has none of the engine's threads and would hang.
    pub(crate) fn check(&self) -> Result<()> {
        ensure(!self.origin.is_forked(), UR_RESULT_ERROR_DEVICE_LOST)
    }

    pub(crate) fn add_context(&self, context: Weak<dyn Pending<D>>) {
        let mut contexts = self.contexts.lock();
        contexts.retain(|old| old.strong_count() > 0);
        contexts.push(context);
    }

    pub(crate) fn add_lane(&self, id: LaneId, lane: Weak<dyn LaneProgress<D>>) {
        self.insert(id, CompletionSource::Lane(lane));
    }

    /// Removes a lane that has ended: all of its points are complete.
    pub(crate) fn remove(&self, clock: &Clock) {
        clock.raise(u64::MAX);
        let mut sources = self.sources.write();
        let source = sources.remove(&clock.id());
        drop(sources);
        drop(source);
    }

    fn insert(&self, id: LaneId, source: CompletionSource<D>) {
        self.sources.write().insert(id, source);
    }

    /// A marker that proves the point complete; none if it is complete already.
    pub(crate) fn mark(&self, point: &Point) -> Result<Option<Mark<D>>> {
        if point.is_done() {
            return Ok(None);
        }
        let lane = {
            let sources = self.sources.read();
            match sources.get(&point.lane()) {
                // The lane has ended.
                None => return Ok(None),
                Some(CompletionSource::Host(pending, _)) => {
                    // A later signalled point still depends on an earlier pending one.
                    let upto = pending.partition_point(|(epoch, _)| *epoch <= point.epoch);
                    let found = upto.checked_sub(1).and_then(|at| pending.get(at));
                    return Ok(found.map(|(epoch, marker)| Mark {
                        point: Point::new(&point.clock, *epoch),
                        marker: marker.clone(),
                    }));
                }
                Some(CompletionSource::Lane(lane)) => lane.upgrade(),
            }
        };
        let mark = lane.map_or(Ok(None), |lane| lane.mark(point.epoch));
        debug_assert!(
            mark.as_ref()
                .is_ok_and(|mark| mark.as_ref().is_none_or(|mark| mark.covers(point)))
                || mark.is_err(),
            "a marker that does not cover its point"
        );
        mark
    }

    /// Whether the frontier is complete. Queries the driver where it does not track.
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
                    ended => self.record_outcome(&mark, ended.map(drop))?,
                }
            }
        }
        Ok(true)
    }

    /// Records that the commands under a marker have ended, and a failure that the driver reports.
    fn record_outcome(&self, mark: &Mark<D>, how: Result<()>) -> Result<()> {
        if (D::REPORTS_FAILURES || Failure::any())
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

    fn lane_of(&self, point: &Point) -> Option<Arc<dyn LaneProgress<D>>> {
        let sources = self.sources.read();
        match sources.get(&point.lane()) {
            Some(CompletionSource::Lane(lane)) => lane.upgrade(),
            _ => None,
        }
    }

    /// Blocks until the frontier has ended, failed commands included. An error if the driver cannot
    /// tell; the other points are waited for all the same.
    #[inline]
    pub(crate) fn wait(&self, frontier: &Frontier) -> Result<()> {
        let mut result = Ok(());
        for point in frontier.points() {
            result = result.and(self.wait_point(point));
        }
        trace_wait(frontier);
        result
    }

    #[inline]
    fn wait_point(&self, point: &Point) -> Result<()> {
        if !point.is_done() {
            self.block_until(point)?;
        }
        point.clock.raise_awaited(point.epoch);
        Ok(())
    }

    #[inline(never)]
    fn block_until(&self, point: &Point) -> Result<()> {
        if let Some(mark) = self.mark(point)? {
            self.check()?;
            self.record_outcome(&mark, D::block(&mark.marker))?;
        }
        Ok(())
    }

    /// As [`Engine::wait`], before something is released that the commands use: a call of the driver that fails is no
    /// reason to release it. Ends early only if the driver refuses both to wait and to tell.
    pub(crate) fn wait_to_release(&self, frontier: &Frontier) {
        if self.check().is_err() {
            // Nothing ends in a forked child.
            return;
        }
        for point in frontier.points().filter(|point| !point.is_done()) {
            let ended = match self.mark_anyway(point) {
                Ok(None) => Ok(()),
                Ok(Some(mark)) => self.record_outcome(&mark, Self::block_anyway(&mark)),
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                log::error!("what commands may use is released: {:?}", error.code());
            }
        }
    }

    /// As [`Engine::mark`]. A driver that refuses a marker once is asked again.
    fn mark_anyway(&self, point: &Point) -> Result<Option<Mark<D>>> {
        self.mark(point).or_else(|_| self.mark(point))
    }

    /// Blocks until the commands under a marker have ended. A wait that the driver refuses says nothing about them, so
    /// that they are queried from then on. An error if the query is refused too.
    fn block_anyway(mark: &Mark<D>) -> Result<()> {
        match D::block(&mark.marker) {
            Err(error) if !is_failure(error) => {
                log::error!("waiting for a lane failed: {:?}", error.code());
                while !D::is_done(&mark.marker)? {
                    std::thread::sleep(QUERY_INTERVAL);
                }
                Ok(())
            }
            ended => ended,
        }
    }

    /// As [`Engine::wait`], on behalf of the program: an error if the command failed, and the
    /// failure counts as reported.
    pub(crate) fn wait_dependencies(&self, deps: &Dependencies) -> Result<()> {
        self.wait(&deps.done)?;
        if deps.failure().is_some() {
            // The wait also covers earlier commands.
            for point in deps.order.points() {
                self.is_done(&Frontier::from(point.clone()))?;
            }
            deps.report();
            return Err(FAILED);
        }
        deps.order.mark_awaited();
        trace_wait(&deps.order);
        Ok(())
    }

    /// Drops `what` on a thread of the engine once `used` has ended. Returns it if a lane takes no marker, as one that
    /// foreign code captures, where [`Engine::when`] would let the commands fail whose end nobody knows; also if it would
    /// submit what a lane holds back.
    pub(crate) fn drop_after<T: Send + Sync + 'static>(
        self: &Arc<Self>,
        used: &Frontier,
        what: Arc<T>,
    ) -> std::result::Result<(), Arc<T>> {
        for point in used.points() {
            match self.mark_anyway(point) {
                Ok(Some(mark)) if D::is_held_back(&mark.marker) => return Err(what),
                Ok(_) => {}
                Err(_) => return Err(what),
            }
        }
        let last = Arc::clone(&what);
        if self.when(used.clone().into(), move |_| drop(last)).is_err() {
            self.wait_to_release(used);
        }
        Ok(())
    }

    /// Runs a job on a thread of the engine once `before` has ended, or the driver is lost. The job
    /// receives the failure of a command in `before`. Until then the marker requests in `before`
    /// are held: a later marker could cover a command that waits for this job.
    pub(crate) fn when(
        self: &Arc<Self>,
        before: Dependencies,
        job: impl FnOnce(Option<Arc<Failure>>) + Send + 'static,
    ) -> Result<()> {
        self.check()?;
        self.threads.reserve()?;
        let done = before.done.clone();
        let job = move || {
            let failure = before.failure();
            drop(before);
            job(failure);
        };
        self.follow(done, Box::new(job), false);
        Ok(())
    }

    /// Follows the frontier point by point. `ours`: the caller is a thread of the engine.
    fn follow(self: &Arc<Self>, mut rest: Frontier, job: Job, ours: bool) {
        while let Some(point) = rest.points().next().cloned() {
            rest.retain(|other| other.lane() != point.lane());
            let mark = match self.mark_anyway(&point) {
                Ok(None) => continue,
                Ok(Some(mark)) => mark,
                Err(error) => {
                    log::error!("a wait for a lane failed: {:?}", error.code());
                    // Nobody knows when the command ends: what follows it must not run.
                    point.fail(&Failure::new());
                    continue;
                }
            };
            let engine = Arc::clone(self);
            let seen = mark.clone();
            // A driver's callback must not call the driver, so a thread of the engine queries the
            // outcome.
            let callback: CompletionCallback = Box::new(move || {
                let threads = engine.threads.clone();
                threads.push(Box::new(move || {
                    if let Err(error) = engine.record_reported_end(&seen) {
                        log::error!("asking how a command ended failed: {:?}", error.code());
                    }
                    engine.follow(rest, job, true);
                }));
            });
            if ours && self.threads.reserve().is_err() {
                // The engine is shut down: dropping the job completes its dependents.
                return;
            }
            if let Some(callback) = D::notify(&mark.marker, callback) {
                self.block_for(mark, callback);
            }
            return;
        }
        if ours { job() } else { self.threads.push(job) }
    }

    /// Records the outcome of a command whose end the driver reported.
    fn record_reported_end(&self, mark: &Mark<D>) -> Result<()> {
        if mark.point.is_done() {
            return Ok(());
        }
        self.record_outcome(mark, D::is_done(&mark.marker).map(drop))
            // On a lost device every command counts as ended.
            .inspect_err(|_| mark.point.clock.raise(mark.point.epoch))
    }

    /// Blocks a thread for a lane, one thread for all points of it in order. An earlier point gets
    /// a thread of its own, as the later one may depend on its callback.
    fn block_for(self: &Arc<Self>, mark: Mark<D>, callback: CompletionCallback) {
        let (lane, epoch) = (mark.point.lane(), mark.point.epoch);
        let mut blocked = self.blocked.lock();
        let alone = match blocked.get_mut(&lane) {
            Some(Blocked { at, later }) if *at <= epoch => {
                let source = later.partition_point(|(other, _)| other.point.epoch <= epoch);
                later.insert(source, (mark, callback));
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
        // One reservation is for the callback, one for the blocking job.
        if self.threads.reserve().is_err() {
            let left = (!alone).then(|| self.blocked.lock().remove(&lane));
            return drop(left);
        }
        let engine = Arc::clone(self);
        self.threads.push(Box::new(move || {
            let mut next = Some((mark, callback));
            while let Some((mark, callback)) = next {
                let ended = Self::block_anyway(&mark);
                if let Err(error) = engine.record_outcome(&mark, ended) {
                    log::error!("asking how a command ended failed: {:?}", error.code());
                    // On a lost device every command counts as ended.
                    mark.point.clock.raise(mark.point.epoch);
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
            Some((mark, _)) => {
                debug_assert!(
                    mark.point.epoch >= *at,
                    "a thread blocks for an earlier point"
                );
                *at = mark.point.epoch;
            }
            None => drop(blocked.remove(&lane)),
        }
        next
    }

    /// A host signal that is on no timeline yet.
    pub(crate) fn host_signal(&self, devices: &Devices<D>) -> Result<HostSignal<D>> {
        let (marker, signal) = D::host_point(devices)?;
        Ok(HostSignal { marker, signal })
    }

    /// A new host-signalled point without predecessors.
    pub(crate) fn host_point(self: &Arc<Self>, scope: &Scope<D>) -> Result<HostPoint<D>> {
        let signal = self.host_signal(scope)?;
        Ok(self.separate_host_point(scope, signal))
    }

    /// Appends a signal to a timeline: the host signals its points in order.
    pub(crate) fn append_host_point(
        self: &Arc<Self>,
        scope: &Scope<D>,
        signal: HostSignal<D>,
        timeline: &mut HostTimeline,
    ) -> HostPoint<D> {
        timeline.last += 1;
        let point = Point::new(&timeline.clock, timeline.last);
        self.insert_host_point(scope, signal, point, timeline.last)
    }

    /// Makes a signal the only point of a new timeline.
    pub(crate) fn separate_host_point(
        self: &Arc<Self>,
        scope: &Scope<D>,
        signal: HostSignal<D>,
    ) -> HostPoint<D> {
        let point = Point::new(&Clock::of_host(self.deterministic), 1);
        self.insert_host_point(scope, signal, point, u64::MAX)
    }

    /// `end`: the completed epoch of the timeline once all current points are signalled.
    fn insert_host_point(
        self: &Arc<Self>,
        scope: &Scope<D>,
        HostSignal { marker, signal }: HostSignal<D>,
        point: Point,
        end: u64,
    ) -> HostPoint<D> {
        let mut sources = self.sources.write();
        let none = || CompletionSource::Host(VecDeque::new(), 0);
        if let CompletionSource::Host(pending, last) =
            sources.entry(point.lane()).or_insert_with(none)
        {
            debug_assert!(
                pending
                    .back()
                    .is_none_or(|(before, _)| *before < point.epoch),
                "host points out of order"
            );
            pending.push_back((point.epoch, marker));
            *last = end;
        }
        drop(sources);
        self.unsignalled.fetch_add(1, Ordering::AcqRel);
        scope.add_host_point(&point);
        HostPoint {
            point,
            signal: Some(signal),
            engine: Arc::clone(self),
        }
    }

    /// Records a signalled point. The timeline advances to the first pending one.
    fn signalled(&self, point: &Point) {
        let mut sources = self.sources.write();
        let Some(CompletionSource::Host(pending, last)) = sources.get_mut(&point.lane()) else {
            return;
        };
        let at = pending.partition_point(|(epoch, _)| *epoch < point.epoch);
        let gone = pending.remove(at);
        debug_assert!(
            gone.as_ref()
                .is_some_and(|(epoch, _)| *epoch == point.epoch),
            "a host point is signalled once"
        );
        match pending.front() {
            Some((next, _)) => point.clock.raise(next - 1),
            None => {
                point.clock.raise(*last);
                drop(sources.remove(&point.lane()));
            }
        }
        drop(sources);
        drop(gone);
    }

    /// A point that is completed outside, as the marker tells.
    pub(crate) fn foreign_point(self: &Arc<Self>, marker: D::Marker) -> ForeignPoint<D> {
        let clock = Clock::of_host(self.deterministic);
        self.insert(
            clock.id(),
            CompletionSource::Host(VecDeque::from([(1, marker)]), 1),
        );
        self.unsignalled.fetch_add(1, Ordering::AcqRel);
        ForeignPoint {
            point: Point::new(&clock, 1),
            engine: Arc::clone(self),
        }
    }

    fn count_signalled(&self) {
        let before = self.unsignalled.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "more points signalled than there were");
    }

    /// Whether no host-signalled point is pending. False in a deterministic run.
    pub(crate) fn all_signalled(&self) -> bool {
        !self.deterministic && self.unsignalled.load(Ordering::Acquire) == 0
    }

    /// The pending host-signalled points of the frontier.
    pub(crate) fn unsignalled(&self, frontier: &Frontier) -> Frontier {
        if self.all_signalled() {
            return Frontier::new();
        }
        let hosts = |point: &&Point| point.clock.is_host() && !point.is_complete();
        frontier.points().filter(hosts).collect()
    }

    /// The pending host-signalled points of a context.
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

/// A point that is completed outside. Dropped once it was seen complete.
pub(crate) struct ForeignPoint<D: Driver> {
    pub point: Point,
    engine: Arc<Engine<D>>,
}

impl<D: Driver> Drop for ForeignPoint<D> {
    fn drop(&mut self) {
        self.engine.remove(&self.point.clock);
        self.engine.count_signalled();
    }
}

/// A host signal, and the marker that lanes wait for.
pub(crate) struct HostSignal<D: Driver> {
    pub marker: D::Marker,
    signal: D::Signal,
}

/// A timeline of points that the host signals in order.
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

/// A point that the host signals by [`HostPoint::signal`], or by dropping it.
pub(crate) struct HostPoint<D: Driver> {
    pub point: Point,
    signal: Option<D::Signal>,
    engine: Arc<Engine<D>>,
}

impl<D: Driver> HostPoint<D> {
    pub fn signal(self) {
        drop(self);
    }

    /// Completes it as failed: its dependents do not run.
    pub fn fail(mut self, why: &Arc<Failure>) {
        self.point.fail(why);
        if let Some(own) = self.signal.take() {
            // First, so that streams have dropped their dependents when the program learns of it.
            D::fail(own);
            self.complete();
        }
    }

    /// Signals it, or completes it as failed for this reason.
    pub fn end(self, failure: Option<Arc<Failure>>) {
        match failure {
            None => self.signal(),
            Some(why) => self.fail(&why),
        }
    }

    fn complete(&self) {
        self.engine.signalled(&self.point);
        self.engine.count_signalled();
    }
}

impl<D: Driver> Drop for HostPoint<D> {
    fn drop(&mut self) {
        if let Some(own) = self.signal.take() {
            // First, so that no dependent is seen complete before the point.
            self.complete();
            D::signal(own);
        }
    }
}

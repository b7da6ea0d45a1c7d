//! What all contexts of an adapter share: where points come true, and the threads that wait for them.

use super::lane::LaneCore;
use super::pool_trace::Trace;
use super::reach::Reach;
use super::settings::Settings;
use super::threads::{Job, Threads};
use super::{Domain, Driver, Notice};
use crate::abi::UR_RESULT_ERROR_DEVICE_LOST;
use crate::object::{Object, Origin, Result, ensure};
use crate::timeline::{Clock, Frontier, LaneId, Point, PointRef};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

/// One an adapter: its lanes, its host-signalled points and its threads.
pub struct Engine<D: Driver> {
    places: RwLock<FxHashMap<LaneId, Place<D>>>,
    /// Host-signalled points that were not signalled yet. While there are none, nothing can wait
    /// for one.
    unsignalled: AtomicUsize,
    domains: Mutex<Vec<Weak<Domain<D>>>>,
    threads: Threads,
    /// What threads of ours block for, where the driver tells of no completion by itself.
    blocked: Mutex<FxHashMap<LaneId, Blocked<D>>>,
    origin: Origin,
    /// Whether nothing that a program can see may depend on when a completion is seen.
    deterministic: bool,
}

/// Who can tell when a point is complete.
enum Place<D: Driver> {
    Lane(Weak<LaneCore<D>>),
    /// What is still to be signalled, ascending by epoch, and how far its line has come without it.
    Host(VecDeque<(u64, D::Marker)>, u64),
}

/// What a thread blocks for on a lane, and will later.
struct Blocked<D: Driver> {
    at: u64,
    later: VecDeque<(Mark<D>, Notice)>,
}

/// A native marker, and the point that it proves complete.
pub(crate) struct Mark<D: Driver> {
    pub point: Point,
    pub marker: D::Marker,
}

/// Locks that are entered even after a panic: what they guard is changed in single steps.
pub(crate) fn enter<T>(lock: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D: Driver> Default for Engine<D> {
    fn default() -> Self {
        Self {
            places: RwLock::default(),
            unsignalled: AtomicUsize::new(0),
            domains: Mutex::default(),
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
        let domains: Vec<_> = enter(&self.domains)
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for domain in &domains {
            let mut all = Frontier::new();
            for lane in domain.lanes().all() {
                if is_part::<D>(&lane.device, device) {
                    all.join(&lane.tip());
                }
            }
            all.join(&self.unsignalled_of(domain));
            all.join(&domain.orphans());
            self.wait(&all)?;
        }
        domains.iter().for_each(|domain| domain.settle());
        Ok(())
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
        ensure(!self.origin.is_left(), UR_RESULT_ERROR_DEVICE_LOST)
    }

    pub(crate) fn add_domain(&self, domain: &Arc<Domain<D>>) {
        let mut domains = enter(&self.domains);
        domains.retain(|old| old.strong_count() > 0);
        domains.push(Arc::downgrade(domain));
    }

    pub(crate) fn add_lane(&self, lane: &Arc<LaneCore<D>>) {
        self.insert(lane.clock.id(), Place::Lane(Arc::downgrade(lane)));
    }

    /// A lane has ended: nothing on it is waited for any more.
    pub(crate) fn remove(&self, clock: &Clock) {
        clock.raise(u64::MAX);
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let place = places.remove(&clock.id());
        drop(places);
        drop(place);
    }

    fn insert(&self, id: LaneId, place: Place<D>) {
        self.places
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, place);
    }

    /// A marker that proves the point complete; none if it is complete already.
    pub(crate) fn mark<'a>(&self, point: impl Into<PointRef<'a>>) -> Result<Option<Mark<D>>> {
        let point = point.into();
        if point.is_done() {
            return Ok(None);
        }
        let lane = {
            let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
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
                if !D::is_done(&mark.marker)? {
                    return Ok(false);
                }
                mark.point.clock.raise(mark.point.epoch);
            }
        }
        Ok(true)
    }

    /// Blocks the host until all of it has completed, since the program asked for that.
    pub(crate) fn wait(&self, frontier: &Frontier) -> Result<()> {
        for point in frontier.points() {
            if !point.is_done()
                && let Some(mark) = self.mark(point)?
            {
                self.check()?;
                D::block(&mark.marker)?;
                mark.point.clock.raise(mark.point.epoch);
            }
            point.clock.raise_awaited(point.epoch);
        }
        trace_wait(frontier);
        Ok(())
    }

    pub(crate) fn wait_reach(&self, reach: &Reach) -> Result<()> {
        self.wait(&reach.done)?;
        reach.order.mark_awaited();
        trace_wait(&reach.order);
        Ok(())
    }

    /// Runs a job on a thread of ours once all of it has completed, or the driver has failed. Until
    /// then it wants each lane's command recorded before another follows: a later record could cover
    /// what waits for this very job.
    pub(crate) fn when(self: &Arc<Self>, before: Reach, job: Job) -> Result<()> {
        self.check()?;
        self.threads.promise()?;
        let Reach { done, tickets, .. } = before;
        let job = move || {
            drop(tickets);
            job();
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
            let clock = Arc::clone(&mark.point.clock);
            let epoch = mark.point.epoch;
            let notice: Notice = Box::new(move || {
                clock.raise(epoch);
                let threads = engine.threads.clone();
                threads.push(Box::new(move || engine.follow(rest, job, true)));
            });
            if ours && self.threads.promise().is_err() {
                // The end has come: dropping the job completes what depends on it.
                return;
            }
            if let Some(notice) = D::notify(&mark.marker, notice) {
                self.block_for(mark, notice);
            }
            return;
        }
        if ours { job() } else { self.threads.push(job) }
    }

    /// Has a thread block for a lane: one for all of its points, in their order. A point before that
    /// which it blocks for has one of its own, as the later one may wait for what it sets off.
    fn block_for(self: &Arc<Self>, mark: Mark<D>, notice: Notice) {
        let (lane, epoch) = (mark.point.lane(), mark.point.epoch);
        let mut blocked = enter(&self.blocked);
        let alone = match blocked.get_mut(&lane) {
            Some(Blocked { at, later }) if *at <= epoch => {
                let place = later.partition_point(|(other, _)| other.point.epoch <= epoch);
                later.insert(place, (mark, notice));
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
            let left = (!alone).then(|| enter(&self.blocked).remove(&lane));
            return drop(left);
        }
        let engine = Arc::clone(self);
        self.threads.push(Box::new(move || {
            let mut next = Some((mark, notice));
            while let Some((mark, notice)) = next {
                if let Err(error) = D::block(&mark.marker) {
                    log::error!("waiting for a lane failed: {:?}", error.code());
                }
                notice();
                next = (!alone).then(|| engine.next_blocked(lane)).flatten();
            }
        }));
    }

    fn next_blocked(&self, lane: LaneId) -> Option<(Mark<D>, Notice)> {
        let mut blocked = enter(&self.blocked);
        let Blocked { at, later } = blocked.get_mut(&lane)?;
        let next = later.pop_front();
        match &next {
            Some((mark, _)) => *at = mark.point.epoch,
            None => drop(blocked.remove(&lane)),
        }
        next
    }

    /// What the host is to signal, without a place yet.
    pub(crate) fn host_signal(&self, domain: &Domain<D>) -> Result<HostSignal<D>> {
        let (marker, signal) = D::host_point(domain)?;
        Ok(HostSignal { marker, signal })
    }

    /// A new point that the host signals, and that comes after no other one.
    pub(crate) fn host_point(self: &Arc<Self>, domain: &Arc<Domain<D>>) -> Result<HostPoint<D>> {
        let signal = self.host_signal(domain)?;
        Ok(self.place_alone(domain, signal))
    }

    /// Makes a signal the next point of a line, which the host signals after all points before it.
    pub(crate) fn place(
        self: &Arc<Self>,
        domain: &Domain<D>,
        signal: HostSignal<D>,
        line: &mut HostLine,
    ) -> HostPoint<D> {
        line.last += 1;
        let point = Point::new(&line.clock, line.last);
        self.place_at(domain, signal, point, line.last)
    }

    /// Makes a signal the one point of a line.
    pub(crate) fn place_alone(
        self: &Arc<Self>,
        domain: &Domain<D>,
        signal: HostSignal<D>,
    ) -> HostPoint<D> {
        let point = Point::new(&Clock::of_host(self.deterministic), 1);
        self.place_at(domain, signal, point, u64::MAX)
    }

    /// `end`: how far the line has come once all of its points so far are signalled.
    fn place_at(
        self: &Arc<Self>,
        domain: &Domain<D>,
        HostSignal { marker, signal }: HostSignal<D>,
        point: Point,
        end: u64,
    ) -> HostPoint<D> {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let none = || Place::Host(VecDeque::new(), 0);
        if let Place::Host(pending, last) = places.entry(point.lane()).or_insert_with(none) {
            pending.push_back((point.epoch, marker));
            *last = end;
        }
        drop(places);
        self.unsignalled.fetch_add(1, Ordering::AcqRel);
        domain.add_host_point(&point);
        HostPoint {
            point,
            signal: Some(signal),
            engine: Arc::clone(self),
        }
    }

    /// A point was signalled: how far its line has come depends on those before it.
    fn signalled(&self, point: &Point) {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
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

    /// All points of a domain that the host has yet to signal.
    pub(crate) fn unsignalled_of(&self, domain: &Domain<D>) -> Frontier {
        if self.all_signalled() {
            return Frontier::new();
        }
        domain.host_points()
    }
}

#[inline]
fn trace_wait(frontier: &Frontier) {
    if let Some(trace) = Trace::get() {
        trace.waited(frontier);
    }
}

/// Whether a device is this one or a part of it.
fn is_part<D: Driver>(part: &Object<D::Device>, whole: &Object<D::Device>) -> bool {
    std::ptr::eq(part, whole) || D::parent(part).is_some_and(|parent| is_part::<D>(&parent, whole))
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
pub(crate) struct HostLine {
    clock: Arc<Clock>,
    last: u64,
}

impl HostLine {
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
}

impl<D: Driver> Drop for HostPoint<D> {
    fn drop(&mut self) {
        if let Some(signal) = self.signal.take() {
            // First, so that nobody sees what waited for it complete before it.
            self.engine.signalled(&self.point);
            D::signal(signal);
            self.engine.unsignalled.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

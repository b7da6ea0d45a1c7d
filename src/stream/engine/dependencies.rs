//! What comes before something: the frontier that must complete, and all that is known by then.

use crate::timeline::{Failure, Frontier, Point, PointRef, Prune};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Held by what may still want the last command of a lane recorded exactly.
#[derive(Clone, Debug, Default)]
pub(crate) struct MarkerRequest(Arc<AtomicBool>);

impl MarkerRequest {
    pub fn is(&self, other: &MarkerRequest) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How many there are of it, with its lane's own.
    pub fn count(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Whether its lane has recorded that command, or has ended: then it is worth nothing more.
    fn is_void(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A lane's own ticket. When it goes, all others of it are void: waits and events that have no end may
/// keep each other's.
#[derive(Debug, Default)]
pub(crate) struct OwnMarkerRequest(MarkerRequest);

impl Deref for OwnMarkerRequest {
    type Target = MarkerRequest;

    fn deref(&self) -> &MarkerRequest {
        &self.0
    }
}

impl Drop for OwnMarkerRequest {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// A reach that events share. Without weak references, so that whether it is shared is a look and no
/// atomic step.
pub(crate) type EventDependencies = triomphe::Arc<Dependencies>;

/// What the events of a wait list reach that are not complete.
pub(crate) type DependencyList<'a> = SmallVec<[Cow<'a, Dependencies>; 2]>;

/// MarkerRequests from which on a list looks for ones to forget before it grows.
const MANY: usize = 32;

/// The tickets of a reach. Nearly all have one at most, which lies in place; more are shared until one
/// is added.
#[derive(Clone, Debug, Default)]
pub(crate) struct MarkerRequests {
    one: Option<MarkerRequest>,
    more: Option<Arc<Vec<MarkerRequest>>>,
}

impl MarkerRequests {
    pub fn of(request: Option<MarkerRequest>) -> Self {
        Self {
            one: request,
            more: None,
        }
    }

    /// The first one.
    pub fn first(&self) -> Option<&MarkerRequest> {
        self.one.as_ref()
    }

    fn add(&mut self, request: MarkerRequest) {
        match self.one {
            None => self.one = Some(request),
            Some(_) => keep(Arc::make_mut(self.more.get_or_insert_default()), request),
        }
    }

    pub fn join<'a>(&mut self, others: impl IntoIterator<Item = &'a MarkerRequest>) {
        others
            .into_iter()
            .for_each(|request| self.add(MarkerRequest::clone(request)));
    }

    fn iter(&self) -> impl Iterator<Item = &MarkerRequest> {
        let more = self.more.as_deref().into_iter().flatten();
        self.one.iter().chain(more)
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Adds a ticket. One of each is enough, or they would double with every join.
fn keep(requests: &mut Vec<MarkerRequest>, request: MarkerRequest) {
    if requests.len() >= MANY && requests.len() == requests.capacity() {
        requests.retain(|request| !request.is_void());
        requests.sort_unstable_by_key(|request| Arc::as_ptr(&request.0));
        requests.dedup_by(|one, other| one.is(other));
    }
    requests.push(request);
}

/// What a lane was made to wait for since its last command: the least that proves it. Few points, and
/// mostly for no longer than until the next command.
#[derive(Debug, Default)]
pub(crate) struct PendingWaits {
    points: Vec<Point>,
    requests: Vec<MarkerRequest>,
}

impl PendingWaits {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Takes in points, one a lane.
    pub fn add<'a>(&mut self, points: impl IntoIterator<Item = PointRef<'a>>) {
        let first = self.points.is_empty();
        self.points
            .extend(points.into_iter().map(PointRef::to_point));
        if !first {
            self.points
                .sort_unstable_by_key(|point| (point.lane(), Reverse(point.epoch)));
            self.points.dedup_by_key(|point| point.lane());
        }
    }

    /// What may want the last commands before these points recorded exactly.
    pub fn hold(&mut self, requests: &MarkerRequests) {
        let kept = |request: &MarkerRequest| keep(&mut self.requests, request.clone());
        requests.iter().for_each(kept);
    }

    /// Forgets what was observed complete.
    pub fn prune(&mut self) {
        self.points.retain(|point| !point.is_complete());
        if self.points.is_empty() {
            self.requests.clear();
        }
    }

    pub fn clear(&mut self) {
        self.points.clear();
        self.requests.clear();
    }

    pub fn points(&self) -> &[Point] {
        &self.points
    }

    pub fn requests(&self) -> &[MarkerRequest] {
        &self.requests
    }
}

impl Prune for Dependencies {
    fn size(&self) -> usize {
        self.done.len().max(self.order.len())
    }

    fn prune(&mut self) {
        Dependencies::prune(self);
    }
}

/// How far an event, a wait list or a barrier reaches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dependencies {
    /// The least frontier whose completion proves it all.
    pub done: Frontier,
    /// Everything that has then completed, for elision.
    pub order: Frontier,
    /// Empty where the driver tracks.
    pub requests: MarkerRequests,
    /// Whether `done` is one command's own point, rather than what it shares with others.
    pub own: bool,
    /// Whether it stands for everything up to `done`, as a barrier does, rather than for single commands.
    pub everything: bool,
    /// Why a command of it failed that `done` has forgotten since it has ended.
    pub failed: Option<Arc<Failure>>,
}

impl From<Frontier> for Dependencies {
    /// The frontier alone, however it is proved.
    fn from(done: Frontier) -> Self {
        Self {
            done,
            ..Self::default()
        }
    }
}

impl Dependencies {
    pub fn join(&mut self, other: &Dependencies) {
        self.done.join(&other.done);
        self.order.join(&other.order);
        self.requests.join(other.requests.iter());
        if self.failed.is_none() {
            self.failed.clone_from(&other.failed);
        }
    }

    /// Why a command of it failed, if one did.
    #[inline]
    pub fn failure(&self) -> Option<Arc<Failure>> {
        if !Failure::any() {
            return None;
        }
        self.failed.clone().or_else(|| self.failure_in_done())
    }

    #[cold]
    fn failure_in_done(&self) -> Option<Arc<Failure>> {
        match self.everything {
            true => {
                let mut points = self.done.points();
                points.find_map(|point| point.clock.unreported(point.epoch))
            }
            false => self.done.failure(),
        }
    }

    /// As [`Dependencies::failure`], while the program was not told of that by a wait.
    #[inline]
    pub fn unreported(&self) -> Option<Arc<Failure>> {
        let failure = self.failure();
        failure.filter(|failure| !failure.is_reported())
    }

    /// The program was told of all failures in it.
    pub fn report(&self) {
        let all = self.done.points().chain(self.order.points());
        let failures = all.filter_map(|point| point.clock.failure(point.epoch));
        failures.chain(self.failed.clone()).for_each(|failure| {
            failure.report();
        });
    }

    pub fn join_frontier(&mut self, frontier: &Frontier) {
        self.done.join(frontier);
        self.order.join(frontier);
    }

    /// What a host-signalled point reaches whose host waits for this.
    pub fn held_by(&self, point: &Point) -> Self {
        let mut held = Self {
            done: Frontier::from(point.clone()),
            own: true,
            ..self.clone()
        };
        held.order.join_point(point);
        held
    }

    pub fn is_empty(&self) -> bool {
        self.done.is_empty() && self.order.is_empty() && self.failed.is_none()
    }

    /// What no wait list reaches.
    pub fn nothing() -> &'static Self {
        static NOTHING: Dependencies = Dependencies {
            done: Frontier::new(),
            order: Frontier::new(),
            requests: MarkerRequests {
                one: None,
                more: None,
            },
            own: false,
            everything: false,
            failed: None,
        };
        &NOTHING
    }

    /// What must complete before the command starts. One without a point of its own never runs.
    pub fn before(&self) -> Frontier {
        let Some(point) = self.done.single().filter(|_| self.own) else {
            return self.done.clone();
        };
        let mut out = self.order.clone();
        out.retain(|other| other.lane() != point.lane());
        if point.epoch > 1 {
            out.join_point(&Point::new(point.clock, point.epoch - 1));
        }
        out
    }

    /// Forgets what was observed complete.
    pub fn prune(&mut self) {
        if self.failed.is_none() {
            self.failed = self.failure();
        }
        self.done.prune();
        self.order.prune();
        if self.done.is_empty() {
            self.requests.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As of a queue that only ever waits for others' commands, each with an event.
    #[test]
    fn tickets_of_what_was_recorded_are_let_go() {
        let (mut pending_waits, mut told) = (PendingWaits::default(), MarkerRequests::default());
        let idle = OwnMarkerRequest::default();
        let mut most = 0;
        for _ in 0..10_000 {
            let issued = OwnMarkerRequest::default();
            let mut waited = MarkerRequests::of(Some(issued.clone()));
            waited.join([&*idle]);
            pending_waits.hold(&waited);
            // What its last event reaches has them too.
            told = MarkerRequests::of(told.first().cloned());
            told.join(pending_waits.requests());
            most = most
                .max(pending_waits.requests().len())
                .max(told.iter().count());
            assert!(
                pending_waits
                    .requests()
                    .iter()
                    .any(|request| request.is(&issued))
            );
        }
        assert!(most <= 4 * MANY, "{most} requests");
        assert!(
            pending_waits
                .requests()
                .iter()
                .any(|request| request.is(&idle))
        );
    }
}

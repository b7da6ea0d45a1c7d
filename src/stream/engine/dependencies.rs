//! Dependencies of a command or an event: the frontier that must complete, and the order that its
//! completion implies.

use crate::sync::{AtomicBool, Ordering, Shared};
use crate::timeline::{Failure, Frontier, Point, Prune};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::ops::Deref;
use std::sync::Arc;

/// A request to record the last command of a lane exactly. Held by events and waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct MarkerRequest(Shared<AtomicBool>);

impl MarkerRequest {
    pub fn is(&self, other: &MarkerRequest) -> bool {
        Shared::ptr_eq(&self.0, &other.0)
    }

    /// Number of holders, the lane included.
    pub fn count(&self) -> usize {
        Shared::strong_count(&self.0)
    }

    /// Whether the lane has recorded that command or has ended: the request is void then.
    fn is_void(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The request of the lane itself. Dropping it voids all clones, since waits and events may hold
/// each other's without end.
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

/// Dependencies that events share.
pub(crate) type EventDependencies = Shared<Dependencies>;

/// The incomplete dependencies of a wait list, one for each event.
pub(crate) type DependencyList<'a> = SmallVec<[Cow<'a, Dependencies>; 2]>;

/// Number of requests from which void ones are pruned before the list grows.
const MIN_REQUESTS_BEFORE_PRUNE: usize = 32;

/// The marker requests of dependencies. Nearly all have at most one, which is stored inline; more
/// are shared until one is added.
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
            Some(_) => insert(Arc::make_mut(self.more.get_or_insert_default()), request),
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

/// Inserts a request. Duplicates are removed, or they would double with every join.
fn insert(requests: &mut Vec<MarkerRequest>, request: MarkerRequest) {
    if requests.len() >= MIN_REQUESTS_BEFORE_PRUNE && requests.len() == requests.capacity() {
        requests.retain(|request| !request.is_void());
        requests.sort_unstable_by_key(|request| Shared::as_ptr(&request.0));
        requests.dedup_by(|one, other| one.is(other));
    }
    requests.push(request);
}

/// Waits of a lane since its last command: the points that prove them. Mostly empty.
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

    /// Adds points, one a lane.
    pub fn add<'a>(&mut self, points: impl IntoIterator<Item = &'a Point>) {
        let first = self.points.is_empty();
        self.points.extend(points.into_iter().cloned());
        if !first {
            self.points
                .sort_unstable_by_key(|point| (point.lane(), Reverse(point.epoch)));
            self.points.dedup_by_key(|point| point.lane());
        }
        debug_assert!(
            self.points
                .is_sorted_by(|one, next| one.lane() < next.lane()),
            "two pending points of one lane"
        );
    }

    /// Holds the marker requests of the points.
    pub fn add_requests(&mut self, requests: &MarkerRequests) {
        let kept = |request: &MarkerRequest| insert(&mut self.requests, request.clone());
        requests.iter().for_each(kept);
    }

    /// Removes completed points.
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

/// The dependencies of an event, a wait list or a barrier.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dependencies {
    /// The least frontier whose completion proves all of them.
    pub done: Frontier,
    /// Everything that is complete then: waits for it can be elided.
    pub order: Frontier,
    /// Marker requests; empty if the driver tracks completion.
    pub requests: MarkerRequests,
    /// Whether `done` is the point of one command, not shared with others.
    pub own: bool,
    /// Whether it covers everything up to `done`, as a barrier does, and not single commands.
    pub everything: bool,
    /// The failure of a command that was pruned from `done` when it had ended.
    pub failed: Option<Arc<Failure>>,
}

impl From<Frontier> for Dependencies {
    /// The frontier alone, without an order or requests.
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

    /// The failure of a command among them, if there is one.
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

    /// The failure of a command among them that no wait has reported.
    #[inline]
    pub fn unreported(&self) -> Option<Arc<Failure>> {
        let failure = self.failure();
        failure.filter(|failure| !failure.is_reported())
    }

    /// Marks all failures among them as reported.
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

    /// The dependencies of a host point whose host waits for these.
    pub fn after_host_point(&self, point: &Point) -> Self {
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

    /// The dependencies of an empty wait list.
    pub fn none() -> &'static Self {
        static NONE: Dependencies = Dependencies {
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
        &NONE
    }

    /// The frontier that must complete before the command starts.
    pub fn before(&self) -> Frontier {
        let Some(point) = self.done.single().filter(|_| self.own) else {
            return self.done.clone();
        };
        let mut out = self.order.clone();
        out.retain(|other| other.lane() != point.lane());
        if point.epoch > 1 {
            out.join_point(&Point::new(&point.clock, point.epoch - 1));
        }
        out
    }

    /// Removes completed points.
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

    /// A queue that only waits for commands of others, each with an event.
    #[test]
    fn recorded_requests_are_pruned() {
        let (mut pending_waits, mut requests) =
            (PendingWaits::default(), MarkerRequests::default());
        let idle = OwnMarkerRequest::default();
        let mut largest = 0;
        for _ in 0..10_000 {
            let own = OwnMarkerRequest::default();
            let mut waited = MarkerRequests::of(Some(own.clone()));
            waited.join([&*idle]);
            pending_waits.add_requests(&waited);
            // The queue's last event holds these requests too.
            requests = MarkerRequests::of(requests.first().cloned());
            requests.join(pending_waits.requests());
            largest = largest
                .max(pending_waits.requests().len())
                .max(requests.iter().count());
            assert!(
                pending_waits
                    .requests()
                    .iter()
                    .any(|request| request.is(&own))
            );
        }
        assert!(
            largest <= 4 * MIN_REQUESTS_BEFORE_PRUNE,
            "{largest} requests"
        );
        assert!(
            pending_waits
                .requests()
                .iter()
                .any(|request| request.is(&idle))
        );
    }
}

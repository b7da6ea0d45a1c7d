//! The dependencies of an event at the end of a lane. Events between two commands share them, and a
//! command advances them in place while no event holds them.
//!
//! Owns the last dependencies that were handed out, and what changed since. Knows no driver. The
//! lane's submission lock guards it.
//!
//! | since the last event | the next event gets |
//! |---|---|
//! | nothing | the shared dependencies |
//! | commands without new waits | the dependencies at a later epoch; a copy if an event holds them |
//! | anything else | new dependencies |

use crate::stream::engine::dependencies::{Dependencies, EventDependencies, MarkerRequest};
use crate::sync::{Ordering, fence};
use crate::timeline::{Clock, Point};
use std::sync::Arc;

pub(crate) struct Tail {
    /// The lane's last command.
    point: Point,
    last: Option<EventDependencies>,
    since: Since,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Since {
    Nothing,
    Commands,
    Waits,
}

impl Tail {
    pub fn new(clock: &Arc<Clock>) -> Self {
        Self {
            point: Point::new(clock, 0),
            last: None,
            since: Since::Waits,
        }
    }

    /// Records one more command, whose completion proves all earlier ones. Only the epoch changes.
    #[inline]
    pub fn step(&mut self, epoch: u64) {
        debug_assert!(epoch > self.point.epoch, "a command before the last one");
        self.point.epoch = epoch;
        self.since = self.since.max(Since::Commands);
    }

    /// Records one more command after waits for other lanes, whose completion it now proves.
    pub fn step_joined(&mut self, epoch: u64) {
        self.point.epoch = epoch;
        // The old dependencies may hold marker requests of other lanes.
        self.clear();
    }

    /// Records that the next event needs new dependencies.
    pub fn change(&mut self) {
        self.since = Since::Waits;
    }

    /// Releases the last dependencies, and their contents if no event holds them.
    pub fn clear(&mut self) {
        match self.last.as_mut().and_then(EventDependencies::get_mut) {
            Some(unheld) => *unheld = Dependencies::default(),
            None => self.last = None,
        }
        self.since = Since::Waits;
    }

    /// Whether an event or a wait holds the request, or holds the last dependencies with it.
    pub fn is_requested(&self, request: &MarkerRequest) -> bool {
        let own = |last: &&EventDependencies| {
            let first = last.requests.first();
            first.is_some_and(|first| first.is(request))
        };
        let Some(last) = self.last.as_ref().filter(own) else {
            return request.count() > 1;
        };
        if EventDependencies::strong_count(last) > 1 {
            return true;
        }
        // A thread that released the dependencies may have cloned a request out of them before.
        fence(Ordering::Acquire);
        request.count() > 2
    }

    /// The dependencies of an event made now, if they follow from the last ones. `own` and
    /// `request` are the values that they must have.
    #[inline(always)]
    pub fn reuse(
        &mut self,
        own: bool,
        request: Option<&MarkerRequest>,
    ) -> Option<EventDependencies> {
        if self.since == Since::Waits {
            return None;
        }
        let last = self.last.as_mut()?;
        if !same(last.requests.first(), request) {
            return None;
        }
        if self.since != Since::Nothing || last.own != own {
            let moved = EventDependencies::get_mut(last)?;
            moved.done.join_point(&self.point);
            moved.order.join_point(&self.point);
            moved.own = own;
            self.since = Since::Nothing;
        }
        Some(EventDependencies::clone(last))
    }

    /// Fills new dependencies by `fill`, in the memory of the last ones if no event holds those.
    pub fn renew(&mut self, fill: impl FnOnce(&mut Dependencies)) -> EventDependencies {
        self.since = Since::Nothing;
        if let Some(last) = &mut self.last
            && let Some(unheld) = EventDependencies::get_mut(last)
        {
            fill(unheld);
            return EventDependencies::clone(last);
        }
        let mut deps = Dependencies::default();
        fill(&mut deps);
        EventDependencies::clone(self.last.insert(EventDependencies::new(deps)))
    }
}

#[inline]
fn same(one: Option<&MarkerRequest>, other: Option<&MarkerRequest>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.is(other),
        (None, None) => true,
        _ => false,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::timeline::Frontier;

    fn at(clock: &Arc<Clock>, epoch: u64, request: &MarkerRequest) -> Dependencies {
        let point = Frontier::from(Point::new(clock, epoch));
        Dependencies {
            done: point.clone(),
            order: point,
            requests: crate::stream::engine::dependencies::MarkerRequests::of(Some(
                MarkerRequest::clone(request),
            )),
            own: true,
            everything: false,
            failed: None,
        }
    }

    fn deps_at(
        tail: &mut Tail,
        own: bool,
        request: &MarkerRequest,
        fill: impl FnOnce(&mut Dependencies),
    ) -> EventDependencies {
        match tail.reuse(own, Some(request)) {
            Some(deps) => deps,
            None => tail.renew(fill),
        }
    }

    fn never(_: &mut Dependencies) {
        unreachable!("it can be deps_at from the last")
    }

    #[test]
    fn held_dependencies_stay_and_unheld_ones_advance() {
        let (clock, request) = (Clock::new(), MarkerRequest::default());
        let mut tail = Tail::new(&clock);
        tail.step(1);
        let first = deps_at(&mut tail, true, &request, |it| {
            *it = at(&clock, 1, &request)
        });
        assert!(EventDependencies::ptr_eq(
            &first,
            &deps_at(&mut tail, true, &request, never)
        ));
        tail.step(2);
        let second = deps_at(&mut tail, true, &request, |it| {
            *it = at(&clock, 2, &request)
        });
        assert_eq!(first.done, Frontier::from(Point::new(&clock, 1)));
        drop(second);
        (3..6).for_each(|epoch| tail.step(epoch));
        let third = deps_at(&mut tail, false, &request, never);
        let five = Frontier::from(Point::new(&clock, 5));
        assert_eq!((&third.done, &third.order), (&five, &five));
        assert!(!third.own);
    }

    #[test]
    fn waits_make_new_dependencies() {
        let (clock, request) = (Clock::new(), MarkerRequest::default());
        let mut tail = Tail::new(&clock);
        for (since, change) in [(2, true), (3, false)] {
            drop(deps_at(&mut tail, true, &request, |it| {
                *it = at(&clock, 1, &request)
            }));
            match change {
                true => tail.change(),
                false => tail.step_joined(since),
            }
            let mut asked = false;
            deps_at(&mut tail, true, &request, |it| {
                asked = true;
                *it = at(&clock, since, &request);
            });
            assert!(asked, "after {since}");
            tail.clear();
        }
    }

    #[test]
    fn a_request_is_pending_while_an_event_or_its_dependencies_hold_it() {
        let (clock, request) = (Clock::new(), MarkerRequest::default());
        let mut tail = Tail::new(&clock);
        assert!(!tail.is_requested(&request));
        let deps = deps_at(&mut tail, true, &request, |it| {
            *it = at(&clock, 1, &request)
        });
        assert!(tail.is_requested(&request));
        let taken = deps.requests.first().cloned();
        drop(deps);
        assert!(tail.is_requested(&request));
        drop(taken);
        assert!(!tail.is_requested(&request));
        // A request that the last dependencies do not hold.
        let other = MarkerRequest::default();
        let deps = deps_at(&mut tail, true, &request, never);
        assert!(!tail.is_requested(&other));
        let held = MarkerRequest::clone(&other);
        drop(deps);
        assert!(tail.is_requested(&other));
        drop(held);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::stream::engine::dependencies::MarkerRequests;
    use loom::thread;

    fn event(tail: &mut Tail, epoch: u64, request: &MarkerRequest) -> EventDependencies {
        tail.step(epoch);
        let point = tail.point.clone();
        match tail.reuse(true, Some(request)) {
            Some(deps) => deps,
            None => tail.renew(|deps| {
                deps.done = point.into();
                deps.requests = MarkerRequests::of(Some(MarkerRequest::clone(request)));
                deps.own = true;
            }),
        }
    }

    fn epoch(deps: &EventDependencies) -> u64 {
        deps.done.single().map_or(0, |point| point.epoch)
    }

    /// A wait that takes the request out of an event's dependencies, and then drops those, is seen.
    #[test]
    fn loom_a_request_taken_out_of_dependencies_stays_pending() {
        loom::model(|| {
            let (clock, request) = (Clock::new(), MarkerRequest::default());
            let mut tail = Tail::new(&clock);
            let deps = event(&mut tail, 1, &request);
            let wait = thread::spawn(move || {
                let taken = deps.requests.first().cloned();
                drop(deps);
                taken
            });
            assert!(tail.is_requested(&request), "the wait is forgotten");
            drop(wait.join().unwrap());
            assert!(!tail.is_requested(&request));
        });
    }

    /// The dependencies of an event that another thread holds stay as they were.
    #[test]
    fn loom_held_dependencies_do_not_advance() {
        loom::model(|| {
            let (clock, request) = (Clock::new(), MarkerRequest::default());
            let mut tail = Tail::new(&clock);
            let deps = event(&mut tail, 1, &request);
            let reader = thread::spawn(move || {
                let other = EventDependencies::clone(&deps);
                assert_eq!(epoch(&deps), 1);
                drop(deps);
                assert_eq!(epoch(&other), 1);
            });
            let next = event(&mut tail, 2, &request);
            assert_eq!(epoch(&next), 2);
            reader.join().unwrap();
        });
    }
}

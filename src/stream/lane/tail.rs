//! Where a lane stands, as events made there tell: events of one place share what they reach, and a
//! command moves it on in place while nobody holds it.
//!
//! Owns the last reach that was handed out, and what has happened since. Knows no driver; its lane's
//! submission lock guards it.
//!
//! | since the last one | the next is |
//! |---|---|
//! | nothing | the same |
//! | commands that waited for nothing new | the same with a later epoch, if nobody holds it, else new |
//! | anything else | new |

use crate::stream::engine::dependencies::{Dependencies, EventDependencies, MarkerRequest};
use crate::timeline::{Clock, Point};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

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

    /// There is one command more, which is all that now proves the lane's end, as one was before: a
    /// later epoch is the one difference.
    #[inline]
    pub fn step(&mut self, epoch: u64) {
        self.point.epoch = epoch;
        self.since = self.since.max(Since::Commands);
    }

    /// As [`Tail::step`], where others' points were part of the proof before.
    pub fn step_joined(&mut self, epoch: u64) {
        self.point.epoch = epoch;
        // It may have others' tickets.
        self.clear();
    }

    /// What the next event reaches may have become anything else.
    pub fn change(&mut self) {
        self.since = Since::Waits;
    }

    /// Lets go of what the last reach has, and of that if anybody else holds it.
    pub fn clear(&mut self) {
        match self.last.as_mut().and_then(EventDependencies::get_mut) {
            Some(unheld) => *unheld = Dependencies::default(),
            None => self.last = None,
        }
        self.since = Since::Waits;
    }

    /// Whether anybody else has a ticket, or the last reach with it.
    pub fn is_wanted(&self, request: &MarkerRequest) -> bool {
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
        // Whoever let go of the reach may have taken a ticket out of it before.
        fence(Ordering::Acquire);
        request.count() > 2
    }

    /// What an event made now reaches, as long as that can be told from the last. `own` and `ticket` are as
    /// its reach is to have them.
    #[inline(always)]
    pub fn again(
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

    /// The same, where `tell` has to tell it, over whatever was told before.
    pub fn renew(&mut self, tell: impl FnOnce(&mut Dependencies)) -> EventDependencies {
        self.since = Since::Nothing;
        if let Some(last) = &mut self.last
            && let Some(unheld) = EventDependencies::get_mut(last)
        {
            tell(unheld);
            return EventDependencies::clone(last);
        }
        let mut deps = Dependencies::default();
        tell(&mut deps);
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

#[cfg(test)]
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

    fn told(
        tail: &mut Tail,
        own: bool,
        request: &MarkerRequest,
        tell: impl FnOnce(&mut Dependencies),
    ) -> EventDependencies {
        match tail.again(own, Some(request)) {
            Some(deps) => deps,
            None => tail.renew(tell),
        }
    }

    fn never(_: &mut Dependencies) {
        unreachable!("it can be told from the last")
    }

    #[test]
    fn what_is_held_stays_and_what_is_not_moves_on() {
        let (clock, request) = (Clock::new(), MarkerRequest::default());
        let mut tail = Tail::new(&clock);
        tail.step(1);
        let first = told(&mut tail, true, &request, |it| {
            *it = at(&clock, 1, &request)
        });
        assert!(EventDependencies::ptr_eq(
            &first,
            &told(&mut tail, true, &request, never)
        ));
        tail.step(2);
        let second = told(&mut tail, true, &request, |it| {
            *it = at(&clock, 2, &request)
        });
        assert_eq!(first.done, Frontier::from(Point::new(&clock, 1)));
        drop(second);
        (3..6).for_each(|epoch| tail.step(epoch));
        let third = told(&mut tail, false, &request, never);
        let five = Frontier::from(Point::new(&clock, 5));
        assert_eq!((&third.done, &third.order), (&five, &five));
        assert!(!third.own);
    }

    #[test]
    fn what_was_waited_for_is_asked_for_anew() {
        let (clock, request) = (Clock::new(), MarkerRequest::default());
        let mut tail = Tail::new(&clock);
        for (since, change) in [(2, true), (3, false)] {
            drop(told(&mut tail, true, &request, |it| {
                *it = at(&clock, 1, &request)
            }));
            match change {
                true => tail.change(),
                false => tail.step_joined(since),
            }
            let mut asked = false;
            told(&mut tail, true, &request, |it| {
                asked = true;
                *it = at(&clock, since, &request);
            });
            assert!(asked, "after {since}");
            tail.clear();
        }
    }

    #[test]
    fn a_ticket_is_wanted_while_anyone_has_it_or_the_reach_with_it() {
        let (clock, request) = (Clock::new(), MarkerRequest::default());
        let mut tail = Tail::new(&clock);
        assert!(!tail.is_wanted(&request));
        let deps = told(&mut tail, true, &request, |it| {
            *it = at(&clock, 1, &request)
        });
        assert!(tail.is_wanted(&request));
        let taken = deps.requests.first().cloned();
        drop(deps);
        assert!(tail.is_wanted(&request));
        drop(taken);
        assert!(!tail.is_wanted(&request));
        // One that the last reach does not have.
        let other = MarkerRequest::default();
        let deps = told(&mut tail, true, &request, never);
        assert!(!tail.is_wanted(&other));
        let held = MarkerRequest::clone(&other);
        drop(deps);
        assert!(tail.is_wanted(&other));
        drop(held);
    }
}

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

use crate::stream::engine::reach::{Reach, Reached, Ticket};
use crate::timeline::{Clock, Point};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

pub(crate) struct Here {
    /// The lane's last command.
    point: Point,
    last: Option<Reached>,
    since: Since,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Since {
    Nothing,
    Commands,
    Waits,
}

impl Here {
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

    /// As [`Here::step`], where others' points were part of the proof before.
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
        match self.last.as_mut().and_then(Reached::get_mut) {
            Some(unheld) => *unheld = Reach::default(),
            None => self.last = None,
        }
        self.since = Since::Waits;
    }

    /// Whether anybody else has a ticket, or the last reach with it.
    pub fn is_wanted(&self, ticket: &Ticket) -> bool {
        let own = |last: &&Reached| {
            let first = last.tickets.first();
            first.is_some_and(|first| first.is(ticket))
        };
        let Some(last) = self.last.as_ref().filter(own) else {
            return ticket.count() > 1;
        };
        if Reached::strong_count(last) > 1 {
            return true;
        }
        // Whoever let go of the reach may have taken a ticket out of it before.
        fence(Ordering::Acquire);
        ticket.count() > 2
    }

    /// What an event made now reaches, as long as that can be told from the last. `own` and `ticket` are as
    /// its reach is to have them.
    #[inline(always)]
    pub fn again(&mut self, own: bool, ticket: Option<&Ticket>) -> Option<Reached> {
        if self.since == Since::Waits {
            return None;
        }
        let last = self.last.as_mut()?;
        if !same(last.tickets.first(), ticket) {
            return None;
        }
        if self.since != Since::Nothing || last.own != own {
            let moved = Reached::get_mut(last)?;
            moved.done.join_point(&self.point);
            moved.order.join_point(&self.point);
            moved.own = own;
            self.since = Since::Nothing;
        }
        Some(Reached::clone(last))
    }

    /// The same, where `tell` has to tell it, over whatever was told before.
    pub fn renew(&mut self, tell: impl FnOnce(&mut Reach)) -> Reached {
        self.since = Since::Nothing;
        if let Some(last) = &mut self.last
            && let Some(unheld) = Reached::get_mut(last)
        {
            tell(unheld);
            return Reached::clone(last);
        }
        let mut reach = Reach::default();
        tell(&mut reach);
        Reached::clone(self.last.insert(Reached::new(reach)))
    }
}

#[inline]
fn same(one: Option<&Ticket>, other: Option<&Ticket>) -> bool {
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

    fn at(clock: &Arc<Clock>, epoch: u64, ticket: &Ticket) -> Reach {
        let point = Frontier::from(Point::new(clock, epoch));
        Reach {
            done: point.clone(),
            order: point,
            tickets: crate::stream::engine::reach::Tickets::of(Some(Ticket::clone(ticket))),
            own: true,
            everything: false,
            failed: None,
        }
    }

    fn told(here: &mut Here, own: bool, ticket: &Ticket, tell: impl FnOnce(&mut Reach)) -> Reached {
        match here.again(own, Some(ticket)) {
            Some(reach) => reach,
            None => here.renew(tell),
        }
    }

    fn never(_: &mut Reach) {
        unreachable!("it can be told from the last")
    }

    #[test]
    fn what_is_held_stays_and_what_is_not_moves_on() {
        let (clock, ticket) = (Clock::new(), Ticket::default());
        let mut here = Here::new(&clock);
        here.step(1);
        let first = told(&mut here, true, &ticket, |it| *it = at(&clock, 1, &ticket));
        assert!(Reached::ptr_eq(
            &first,
            &told(&mut here, true, &ticket, never)
        ));
        here.step(2);
        let second = told(&mut here, true, &ticket, |it| *it = at(&clock, 2, &ticket));
        assert_eq!(first.done, Frontier::from(Point::new(&clock, 1)));
        drop(second);
        (3..6).for_each(|epoch| here.step(epoch));
        let third = told(&mut here, false, &ticket, never);
        let five = Frontier::from(Point::new(&clock, 5));
        assert_eq!((&third.done, &third.order), (&five, &five));
        assert!(!third.own);
    }

    #[test]
    fn what_was_waited_for_is_asked_for_anew() {
        let (clock, ticket) = (Clock::new(), Ticket::default());
        let mut here = Here::new(&clock);
        for (since, change) in [(2, true), (3, false)] {
            drop(told(&mut here, true, &ticket, |it| {
                *it = at(&clock, 1, &ticket)
            }));
            match change {
                true => here.change(),
                false => here.step_joined(since),
            }
            let mut asked = false;
            told(&mut here, true, &ticket, |it| {
                asked = true;
                *it = at(&clock, since, &ticket);
            });
            assert!(asked, "after {since}");
            here.clear();
        }
    }

    #[test]
    fn a_ticket_is_wanted_while_anyone_has_it_or_the_reach_with_it() {
        let (clock, ticket) = (Clock::new(), Ticket::default());
        let mut here = Here::new(&clock);
        assert!(!here.is_wanted(&ticket));
        let reach = told(&mut here, true, &ticket, |it| *it = at(&clock, 1, &ticket));
        assert!(here.is_wanted(&ticket));
        let taken = reach.tickets.first().cloned();
        drop(reach);
        assert!(here.is_wanted(&ticket));
        drop(taken);
        assert!(!here.is_wanted(&ticket));
        // One that the last reach does not have.
        let other = Ticket::default();
        let reach = told(&mut here, true, &ticket, never);
        assert!(!here.is_wanted(&other));
        let held = Ticket::clone(&other);
        drop(reach);
        assert!(here.is_wanted(&other));
        drop(held);
    }
}

//! What comes before something: the frontier that must complete, and all that is known by then.

use crate::timeline::{Frontier, Point, PointRef};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

/// Held by what may still want the last command of a lane recorded exactly.
pub(crate) type Ticket = Arc<()>;

/// A reach that events share. Without weak references, so that whether it is shared is a look and no
/// atomic step.
pub(crate) type Reached = triomphe::Arc<Reach>;

/// What the events of a wait list reach that are not complete.
pub(crate) type Reaches<'a> = SmallVec<[Cow<'a, Reach>; 2]>;

/// Tickets beyond which a reach looks for ones to forget.
const MANY: usize = 32;

/// The tickets of a reach. Nearly all have one at most, which lies in place; more are shared until one
/// is added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tickets {
    one: Option<Ticket>,
    more: Option<Arc<Vec<Ticket>>>,
}

impl Tickets {
    pub fn of(ticket: Option<Ticket>) -> Self {
        Self {
            one: ticket,
            more: None,
        }
    }

    /// The first one.
    pub fn first(&self) -> Option<&Ticket> {
        self.one.as_ref()
    }

    fn add(&mut self, ticket: Ticket) {
        match self.one {
            None => self.one = Some(ticket),
            Some(_) => Arc::make_mut(self.more.get_or_insert_default()).push(ticket),
        }
    }

    pub fn join<'a>(&mut self, others: impl IntoIterator<Item = &'a Ticket>) {
        others
            .into_iter()
            .for_each(|ticket| self.add(Ticket::clone(ticket)));
        if let Some(more) = &mut self.more
            && more.len() >= MANY
        {
            thin(Arc::make_mut(more));
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Ticket> {
        let more = self.more.as_deref().into_iter().flatten();
        self.one.iter().chain(more)
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

/// One of each is enough, or they would double with every join; and what nobody else holds any more has
/// been recorded, or is worth no record.
fn thin(tickets: &mut Vec<Ticket>) {
    tickets.sort_unstable_by_key(Arc::as_ptr);
    tickets.dedup_by(|one, other| Arc::ptr_eq(one, other));
    tickets.retain(|ticket| Arc::strong_count(ticket) > 1);
}

/// What a lane was made to wait for since its last command: the least that proves it. Few points, and
/// mostly for no longer than until the next command.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    points: Vec<Point>,
    tickets: Vec<Ticket>,
}

impl Recent {
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
    pub fn hold(&mut self, tickets: &Tickets) {
        self.tickets.extend(tickets.iter().cloned());
        if self.tickets.len() >= MANY {
            thin(&mut self.tickets);
        }
    }

    /// Forgets what was observed complete.
    pub fn prune(&mut self) {
        self.points.retain(|point| !point.is_complete());
        if self.points.is_empty() {
            self.tickets.clear();
        }
    }

    pub fn clear(&mut self) {
        self.points.clear();
        self.tickets.clear();
    }

    pub fn points(&self) -> &[Point] {
        &self.points
    }

    pub fn tickets(&self) -> &[Ticket] {
        &self.tickets
    }
}

/// How far an event, a wait list or a barrier reaches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reach {
    /// The least frontier whose completion proves it all.
    pub done: Frontier,
    /// Everything that has then completed, for elision.
    pub order: Frontier,
    /// Empty where the driver tracks.
    pub tickets: Tickets,
    /// Whether `done` is one command's own point, rather than what it shares with others.
    pub own: bool,
}

impl From<Frontier> for Reach {
    /// The frontier alone, however it is proved.
    fn from(done: Frontier) -> Self {
        Self {
            done,
            ..Self::default()
        }
    }
}

impl Reach {
    pub fn join(&mut self, other: &Reach) {
        self.done.join(&other.done);
        self.order.join(&other.order);
        self.tickets.join(other.tickets.iter());
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
        self.done.is_empty() && self.order.is_empty()
    }

    /// What no wait list reaches.
    pub fn nothing() -> &'static Self {
        static NOTHING: Reach = Reach {
            done: Frontier::new(),
            order: Frontier::new(),
            tickets: Tickets {
                one: None,
                more: None,
            },
            own: false,
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
        self.done.prune();
        self.order.prune();
        if self.done.is_empty() {
            self.tickets.clear();
        }
    }
}

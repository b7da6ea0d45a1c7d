//! The order of commands that the program itself defines: queues and their commands as lanes.
//!
//! Owns the translation of queues into lanes, points and frontiers, whose rules are those of
//! `ur::timeline`. It must never know a handle, an adapter or an allocation.
//!
//! An in-order queue is one lane. An out-of-order queue has a **spine**, a lane on which every
//! command has an epoch. It also has a lane for each chain of ordered commands: a command takes the
//! lane of a command that precedes it, if it has one. A barrier or marker that waits for everything
//! is a point of the spine, which covers all earlier commands at once. A command is covered, or
//! complete, if its point on its lane or on the spine is.
//!
//! Native handles, external semaphores and graphs may order commands unseen. Such an order is
//! **unknown**: every comparison with it answers "ordered".

use std::collections::HashMap;

use ur::timeline::{Frontier, Lane, LaneId, Point, Prune, Pruned};

/// A command's position.
#[derive(Clone, Debug)]
pub struct Mark {
    own: Point,
    spine: Option<Point>,
    /// Whether its queue may be ordered by unseen commands.
    unknown: bool,
}

impl Mark {
    pub fn is_complete(&self) -> bool {
        let spine = self.spine.as_ref();
        self.own.is_complete() || spine.is_some_and(Point::is_complete)
    }

    /// Whether both are marks of one command.
    pub fn is(&self, other: &Mark) -> bool {
        self.own == other.own
    }
}

/// The commands that precede a command, or that an event covers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Order {
    frontier: Frontier,
    /// Whether unseen commands may precede as well.
    unknown: bool,
}

impl Order {
    /// An order after unseen commands.
    pub fn unknown() -> Order {
        Order {
            frontier: Frontier::new(),
            unknown: true,
        }
    }

    pub fn is_unknown(&self) -> bool {
        self.unknown
    }

    /// Whether the command at `mark` precedes, certainly or by unseen commands.
    pub fn comes_after(&self, mark: &Mark) -> bool {
        let covers = |point: &Point| self.frontier.covers_point(point);
        self.unknown
            || mark.unknown
            || mark.is_complete()
            || covers(&mark.own)
            || mark.spine.as_ref().is_some_and(covers)
    }

    /// Whether every command of `other` precedes.
    pub fn comes_after_all(&self, other: &Order) -> bool {
        self.unknown || other.unknown || self.frontier.covers(&other.frontier)
    }

    /// Adds the commands of `other`.
    pub fn join(&mut self, other: &Order) {
        self.frontier.join(&other.frontier);
        self.unknown |= other.unknown;
    }

    /// Records that all commands of this order were observed complete.
    pub fn complete(&self) {
        self.frontier.mark_complete();
    }

    #[cfg(test)]
    pub fn points(&self) -> usize {
        self.frontier.len()
    }

    fn with(&self, point: &Point) -> Order {
        let mut order = self.clone();
        order.frontier.prune();
        order.frontier.join_point(point);
        order
    }

    fn covers(&self, point: &Point) -> bool {
        point.is_complete() || self.frontier.covers_point(point)
    }
}

impl Prune for Order {
    fn size(&self) -> usize {
        self.frontier.len()
    }

    fn prune(&mut self) {
        self.frontier.prune();
    }
}

/// How a command is ordered on an out-of-order queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain,
    /// Waits for all earlier commands.
    Marker,
    /// All later commands wait for it.
    Barrier {
        /// Whether it waits for all earlier commands.
        all: bool,
    },
}

/// An enqueued command.
#[derive(Clone, Debug)]
pub struct Enqueued {
    pub mark: Mark,
    /// The commands that precede it.
    pub before: Order,
    /// The commands that its event covers.
    pub event: Order,
}

/// A queue.
#[derive(Debug)]
pub struct Queue {
    lanes: Lanes,
    /// Whether unseen commands may be on the queue.
    open: bool,
    /// Whether the next command follows unseen commands.
    unknown: bool,
}

#[derive(Debug)]
enum Lanes {
    InOrder(Lane),
    OutOfOrder(Box<OutOfOrder>),
}

#[derive(Debug, Default)]
struct OutOfOrder {
    spine: Lane,
    /// The commands that precede every later command.
    base: Order,
    /// The orders that commands since the last barrier waited for.
    reach: Pruned<Order>,
    /// Each lane with the spine's epoch of its last command.
    lanes: HashMap<LaneId, (Lane, u64)>,
    /// The spine's epoch that precedes every later command.
    spine_completed: u64,
    /// Lanes that any later command may be able to use.
    spare: Vec<LaneId>,
    /// At this number of lanes, those with only complete commands are made reusable.
    prune_at: usize,
}

impl Queue {
    pub fn new(in_order: bool) -> Queue {
        let lanes = match in_order {
            true => Lanes::InOrder(Lane::new()),
            false => Lanes::OutOfOrder(Box::default()),
        };
        Queue {
            lanes,
            open: false,
            unknown: false,
        }
    }

    pub fn is_in_order(&self) -> bool {
        matches!(self.lanes, Lanes::InOrder(_))
    }

    /// Records that unseen commands may be on the queue. Its commands count as complete.
    pub fn open(&mut self) {
        self.open = true;
        self.complete();
    }

    /// Adds a command that waits for `waits`.
    pub fn enqueue(&mut self, waits: &Order, kind: Kind) -> Enqueued {
        let mut enqueued = match &mut self.lanes {
            Lanes::InOrder(lane) => in_order(lane, waits),
            Lanes::OutOfOrder(queue) => queue.enqueue(waits, kind),
        };
        let orders_later = match (&self.lanes, kind) {
            (Lanes::InOrder(_), _) | (_, Kind::Barrier { .. }) => true,
            (_, Kind::Plain | Kind::Marker) => false,
        };
        let unknown = self.open || self.unknown || waits.unknown;
        self.unknown |= waits.unknown && orders_later;
        enqueued.mark.unknown = self.open;
        enqueued.before.unknown = unknown;
        enqueued.event.unknown = unknown;
        enqueued
    }

    /// The order of all commands so far.
    pub fn all(&self) -> Order {
        let frontier = match &self.lanes {
            Lanes::InOrder(lane) => lane.frontier(),
            Lanes::OutOfOrder(queue) => {
                let mut all = queue.base.frontier.clone();
                all.join(&queue.reach.all.frontier);
                all.join_point(&queue.spine.current());
                all
            }
        };
        Order {
            frontier,
            unknown: self.open || self.unknown,
        }
    }

    #[cfg(test)]
    pub fn lanes(&self) -> usize {
        match &self.lanes {
            Lanes::InOrder(_) => 1,
            Lanes::OutOfOrder(queue) => queue.lanes.len(),
        }
    }

    /// Records that all commands so far were observed complete.
    pub fn complete(&mut self) {
        self.all().complete();
        if let Lanes::OutOfOrder(queue) = &mut self.lanes {
            for (lane, _) in queue.lanes.values() {
                lane.frontier().mark_complete();
            }
            queue.base.frontier.prune();
            queue.reach = Pruned::default();
            queue.lanes.clear();
            queue.spare.clear();
        }
    }
}

fn in_order(lane: &mut Lane, waits: &Order) -> Enqueued {
    lane.wait_for(&waits.frontier);
    let before = lane.frontier();
    let own = lane.advance();
    let event = lane.frontier();
    let order = |frontier| Order {
        frontier,
        unknown: false,
    };
    Enqueued {
        mark: Mark {
            own,
            spine: None,
            unknown: false,
        },
        before: order(before),
        event: order(event),
    }
}

impl OutOfOrder {
    fn enqueue(&mut self, waits: &Order, kind: Kind) -> Enqueued {
        let mut before = self.base.clone();
        before.join(waits);
        if matches!(kind, Kind::Marker | Kind::Barrier { all: true }) {
            before.join(&self.reach.all);
            before.frontier.join_point(&self.spine.current());
        }
        before.prune();
        self.reach.grow().join(waits);
        let spine = self.spine.advance();
        let own = self.next_point(&before, spine.epoch);
        let event = before.with(&own);
        match kind {
            Kind::Plain | Kind::Marker => {}
            Kind::Barrier { all: false } => self.base = event.clone(),
            Kind::Barrier { all: true } => {
                self.base = event.clone();
                self.order_all_after(&spine);
            }
        }
        Enqueued {
            mark: Mark {
                own,
                spine: Some(spine),
                unknown: false,
            },
            before,
            event,
        }
    }

    /// Has all later commands follow all earlier ones. The spine expresses this, so that the points
    /// of other lanes are dropped.
    fn order_all_after(&mut self, spine: &Point) {
        let lanes = &self.lanes;
        self.reach = Pruned::default();
        let base = &mut self.base.frontier;
        base.retain(|point| !lanes.contains_key(&point.lane()));
        base.join_point(spine);
        self.spine_completed = spine.epoch;
        self.spare = self.lanes.keys().copied().collect();
    }

    /// Advances a lane whose last command precedes, or a new lane.
    fn next_point(&mut self, before: &Order, spine: u64) -> Point {
        let followed = before.frontier.points().map(|p| p.lane()).find(|id| {
            let lane = self.lanes.get(id);
            lane.is_some_and(|(lane, _)| before.covers(&lane.current()))
        });
        let id = followed.or_else(|| self.free_lane());
        let (lane, last) = match id.and_then(|id| self.lanes.get_mut(&id)) {
            Some(lane) => lane,
            None => {
                let lane = Lane::new();
                self.lanes.entry(lane.id()).or_insert((lane, 0))
            }
        };
        *last = spine;
        lane.advance()
    }

    /// A lane that any command may use.
    fn free_lane(&mut self) -> Option<LaneId> {
        let free = |(lane, last): &(Lane, u64), spine_completed| {
            *last <= spine_completed || lane.current().is_complete()
        };
        while let Some(id) = self.spare.pop() {
            if self
                .lanes
                .get(&id)
                .is_some_and(|lane| free(lane, self.spine_completed))
            {
                return Some(id);
            }
        }
        if self.lanes.len() > self.prune_at {
            let lanes = self.lanes.iter();
            let complete = lanes.filter(|(_, lane)| free(lane, self.spine_completed));
            self.spare = complete.map(|(id, _)| *id).collect();
            self.prune_at = 64.max(2 * (self.lanes.len() - self.spare.len()));
        }
        self.spare.pop()
    }
}

//! What comes before what, as far as the program itself said so: queues and their commands as lanes.
//!
//! Owns the translation of queues into lanes, points and frontiers; the rule is `ur::timeline`'s. It
//! must never know a handle, an adapter or an allocation.
//!
//! An in-order queue is one lane. An out-of-order queue is a **spine**, on which every command has an
//! epoch, and as many lanes as commands that nothing orders; a command goes on the lane of one that it
//! comes after, so that a chain of events costs one lane. A barrier or a marker that waits for
//! everything is the spine's point: it covers all earlier commands at once. A mark therefore is
//! covered through its lane or through its spine, and complete likewise.
//!
//! What the program may have ordered by means that are not seen here (native handles, external
//! semaphores, graphs) is **unknown**: it makes every answer "ordered", never "not ordered".

use std::collections::HashMap;

use ur::timeline::{Frontier, Gathered, Lane, LaneId, Point, Prune};

/// A command's place.
#[derive(Clone, Debug)]
pub struct Mark {
    own: Point,
    spine: Option<Point>,
    /// Its queue may be ordered by what is not seen.
    unknown: bool,
}

impl Mark {
    pub fn is_complete(&self) -> bool {
        let spine = self.spine.as_ref();
        self.own.is_complete() || spine.is_some_and(Point::is_complete)
    }

    pub fn is(&self, other: &Mark) -> bool {
        self.own == other.own
    }
}

/// What a command comes after, or what an event stands for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Order {
    frontier: Frontier,
    /// Perhaps more than is known.
    unknown: bool,
}

impl Order {
    /// After something that is not seen.
    pub fn unknown() -> Order {
        Order {
            frontier: Frontier::new(),
            unknown: true,
        }
    }

    pub fn is_unknown(&self) -> bool {
        self.unknown
    }

    /// Whether a command at `mark` certainly, or possibly by unseen means, comes before.
    pub fn comes_after(&self, mark: &Mark) -> bool {
        let covers = |point: &Point| self.frontier.covers_point(point);
        self.unknown
            || mark.unknown
            || mark.is_complete()
            || covers(&mark.own)
            || mark.spine.as_ref().is_some_and(covers)
    }

    /// Whether all that `other` comes after comes before.
    pub fn comes_after_all(&self, other: &Order) -> bool {
        self.unknown || other.unknown || self.frontier.covers(&other.frontier)
    }

    pub fn join(&mut self, other: &Order) {
        self.frontier.join(&other.frontier);
        self.unknown |= other.unknown;
    }

    /// It was observed complete.
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
    /// Waits for everything before it.
    Marker,
    /// Everything later waits for it.
    Barrier {
        /// It waits for everything before it.
        all: bool,
    },
}

/// An enqueued command.
#[derive(Clone, Debug)]
pub struct Enqueued {
    pub mark: Mark,
    /// What it comes after.
    pub before: Order,
    /// What its event stands for.
    pub event: Order,
}

/// A queue.
#[derive(Debug)]
pub struct Queue {
    lanes: Lanes,
    /// It may be ordered by what is not seen.
    open: bool,
    /// What comes next comes after something that is not seen.
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
    /// What every later command comes after.
    base: Order,
    /// What commands since the last barrier waited for.
    reach: Gathered<Order>,
    /// Each with the spine's epoch of its last command.
    lanes: HashMap<LaneId, (Lane, u64)>,
    /// The spine's epoch that every later command comes after.
    spine_completed: u64,
    /// Lanes that perhaps any later command may follow on.
    spare: Vec<LaneId>,
    /// From so many lanes on, complete ones are removed.
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

    /// From now on the queue may be ordered by what is not seen, and its commands may be complete.
    pub fn open(&mut self) {
        self.open = true;
        self.complete();
    }

    /// Takes a command that waits for `waits`.
    pub fn enqueue(&mut self, waits: &Order, kind: Kind) -> Enqueued {
        let mut enqueued = match &mut self.lanes {
            Lanes::InOrder(lane) => in_order(lane, waits),
            Lanes::OutOfOrder(queue) => queue.enqueue(waits, kind),
        };
        let later_too = match (&self.lanes, kind) {
            (Lanes::InOrder(_), _) | (_, Kind::Barrier { .. }) => true,
            (_, Kind::Plain | Kind::Marker) => false,
        };
        let unknown = self.open || self.unknown || waits.unknown;
        self.unknown |= waits.unknown && later_too;
        enqueued.mark.unknown = self.open;
        enqueued.before.unknown = unknown;
        enqueued.event.unknown = unknown;
        enqueued
    }

    /// Everything enqueued so far.
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

    /// Everything enqueued was observed complete.
    pub fn complete(&mut self) {
        self.all().complete();
        if let Lanes::OutOfOrder(queue) = &mut self.lanes {
            for (lane, _) in queue.lanes.values() {
                lane.frontier().mark_complete();
            }
            queue.base.frontier.prune();
            queue.reach = Gathered::default();
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
        let own = self.place(&before, spine.epoch);
        let event = before.with(&own);
        match kind {
            Kind::Plain | Kind::Marker => {}
            Kind::Barrier { all: false } => self.base = event.clone(),
            Kind::Barrier { all: true } => {
                self.base = event.clone();
                self.hold_back(&spine);
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

    /// All later commands come after all earlier ones: the spine says so, and no lane needs to.
    fn hold_back(&mut self, spine: &Point) {
        let lanes = &self.lanes;
        self.reach = Gathered::default();
        let base = &mut self.base.frontier;
        base.retain(|point| !lanes.contains_key(&point.lane()));
        base.join_point(spine);
        self.spine_completed = spine.epoch;
        self.spare = self.lanes.keys().copied().collect();
    }

    /// The next point of a lane whose last command comes before, or of a new one.
    fn place(&mut self, before: &Order, spine: u64) -> Point {
        let followed = before.frontier.points().map(|p| p.lane()).find(|id| {
            let lane = self.lanes.get(id);
            lane.is_some_and(|(lane, _)| before.covers(&lane.current()))
        });
        let id = followed.or_else(|| self.unused());
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

    /// A lane that every command may follow on.
    fn unused(&mut self) -> Option<LaneId> {
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

//! Requests and answers of a pool. Values only.

use crate::pool::options::Options;
use crate::pool::provider::{ProviderError, Slab};
use crate::pool::rounding::Rounding;
use crate::timeline::{Frontier, Lane, LaneId, Point};
use std::cell::RefCell;
use std::fmt;

/// When a wait may be inserted to reuse a block that is not ordered yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Never; such a request is exhausted instead.
    Never,
    /// Only rather than growing past a limit or failing.
    #[default]
    Bounded,
    /// Rather than growing at all.
    Always,
}

/// A pool's fixed properties and its first release threshold. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Limit on reserved bytes; none without one.
    pub max_bytes: Option<u64>,
    /// Reserved bytes that [`settle`](crate::pool::Pool::settle) leaves; `u64::MAX` keeps everything.
    pub release_threshold: u64,
    /// Least bytes of a growth, limits permitting.
    pub chunk_bytes: u64,
    /// Alignment of every block and unit of every size: a power of two, at most 1 MiB.
    pub min_align: u64,
    pub waits: WaitPolicy,
    pub options: Options,
}

impl Config {
    /// Whether the pool has a limit, and so grows, and gives memory back, as exactly as it can.
    pub(crate) fn is_bound(&self) -> bool {
        self.max_bytes.is_some() || self.release_threshold < u64::MAX
    }

    pub(crate) fn rounding(&self) -> Rounding {
        Rounding::new(self.min_align, &self.options)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_bytes: None,
            release_threshold: u64::MAX,
            chunk_bytes: 2 << 20,
            min_align: 256,
            waits: WaitPolicy::Bounded,
            options: Options::default(),
        }
    }
}

/// The dependencies of a request: memory that died before them needs no wait.
#[derive(Clone, Copy, Debug)]
pub enum Order<'a> {
    /// The next command of an in-order stream.
    Lane(&'a Lane),
    /// A command that follows these points and nothing else.
    Frontier(&'a Frontier),
    /// The host, now: only deaths observed complete.
    Sync,
}

impl Order<'_> {
    #[inline]
    pub fn orders_point(&self, point: &Point) -> bool {
        match self {
            Order::Lane(lane) => lane.orders_point(point),
            Order::Frontier(frontier) => frontier.covers_point(point) || point.is_complete(),
            Order::Sync => point.is_complete(),
        }
    }

    /// Whether the request comes after all of `death`.
    pub fn admits(&self, death: &Frontier) -> bool {
        death.points().all(|point| self.orders_point(point))
    }

    /// The last epoch of `lane` that the request comes after, completion aside.
    pub(crate) fn horizon(&self, lane: LaneId) -> Option<u64> {
        match self {
            Order::Lane(own) => own.horizon(lane),
            Order::Frontier(frontier) => frontier.epoch_of(lane),
            Order::Sync => None,
        }
    }

    /// The points that it comes after, without those of its own lane.
    pub(crate) fn foreign(&self) -> impl Iterator<Item = &Point> {
        let (lane, frontier) = match self {
            Order::Lane(lane) => (Some(lane.waited()), None),
            Order::Frontier(frontier) => (None, Some(frontier.points())),
            Order::Sync => (None, None),
        };
        lane.into_iter()
            .flatten()
            .chain(frontier.into_iter().flatten())
    }

    /// All points that it is known to come after.
    pub fn frontier(&self) -> Frontier {
        match self {
            Order::Lane(lane) => lane.frontier(),
            Order::Frontier(frontier) => (*frontier).clone(),
            Order::Sync => Frontier::new(),
        }
    }

    pub(crate) fn own_lane(&self) -> Option<LaneId> {
        match self {
            Order::Lane(lane) => Some(lane.id()),
            Order::Frontier(_) | Order::Sync => None,
        }
    }
}

/// One allocation to be made.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub bytes: u64,
    /// 0 or a power of two.
    pub align: u64,
    pub order: Order<'a>,
    /// Whether the caller can enforce an [`Acquired::After`]: on the lane, on the event it returns,
    /// or, for a synchronous request, on the host.
    pub may_wait: bool,
    /// Receives how the request was served; none on the common path.
    pub decision: Option<&'a RefCell<DecisionTrace>>,
}

impl<'a> Request<'a> {
    /// One of any alignment, whose caller enforces no wait and traces no decision.
    pub fn new(bytes: u64, order: Order<'a>) -> Self {
        Self {
            bytes,
            align: 0,
            order,
            may_wait: false,
            decision: None,
        }
    }
}

impl Request<'_> {
    /// Adds to the decision trace, if there is one.
    pub(crate) fn record(&self, add: impl FnOnce(&mut DecisionTrace)) {
        if let Some(decision) = self.decision {
            add(&mut decision.borrow_mut());
        }
    }
}

/// What allowed a request to use its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// It died on the request's own lane.
    OwnLane,
    /// It died before the request's dependencies.
    Ordered,
    /// It was never used, or its use has completed.
    Completed,
    /// The request waits for its death.
    Waited,
    /// The pool grew for it.
    Grown,
}

/// How a request was served, and which dependency would have spared it growth, a wait or failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionTrace {
    /// The points that it came after.
    pub order: Frontier,
    /// None if it failed.
    pub reuse: Option<Reuse>,
    /// None if it lacked none, or if too little memory was free whatever its order.
    pub missing: Option<MissingDependency>,
}

/// Free memory that would have served a request, had the request come after all of `wait`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingDependency {
    /// One range, or pages that could have been remapped into one.
    pub pieces: Vec<Slab>,
    /// Never empty.
    pub wait: Frontier,
}

/// A live allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub addr: u64,
    /// The rounded size, which used bytes count.
    pub bytes: u64,
    pub requested: u64,
}

impl Block {
    /// The addresses of the block.
    pub(crate) fn range(&self) -> Slab {
        Slab::new(self.addr, self.bytes)
    }
}

/// A block was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The request's order proves it unused.
    Ready(Block),
    /// It may be used once the frontier has completed. Never empty.
    After(Block, Frontier),
}

impl Acquired {
    pub fn block(&self) -> Block {
        match self {
            Self::Ready(block) | Self::After(block, _) => *block,
        }
    }

    /// The frontier that has to be waited for, if any.
    pub fn wait(&self) -> Option<&Frontier> {
        match self {
            Self::Ready(_) => None,
            Self::After(_, frontier) => Some(frontier),
        }
    }
}

/// No block was found; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// The maximum size leaves no room for `need` rounded bytes, and no block could be waited for.
    Exhausted { need: u64 },
    /// Zero, or not representable once rounded.
    InvalidSize,
    /// Not a power of two, or too large to be satisfied.
    InvalidAlignment,
    /// The pool is closed.
    Closed,
    /// The provider failed and nothing in the pool could serve instead.
    Provider(ProviderError),
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exhausted { need } => write!(f, "pool exhausted: {need} bytes needed"),
            Self::InvalidSize => f.write_str("invalid size"),
            Self::InvalidAlignment => f.write_str("invalid alignment"),
            Self::Closed => f.write_str("pool is closed"),
            Self::Provider(error) => write!(f, "memory provider failed: {error}"),
        }
    }
}

impl std::error::Error for PoolError {}

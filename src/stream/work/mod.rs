//! Commands as a lane is given them, and the times that they took.
//!
//! Owns plain data: work, launches, fill patterns, ranges and boxes. Uses the C types alone. Must never know
//! a driver, an order or an object.

pub(crate) mod call;
pub(crate) mod launch;
pub(crate) mod pattern;
pub(crate) mod transfer;

use crate::abi::*;
use crate::stream::Pattern;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What a backend adds to the commands that every backend has.
pub trait Payload: Sized + 'static {
    /// A kernel with its arguments, ready to be given to a lane. Owns copies of by-value arguments
    /// and keeps alive what it needs. Cheap to clone: a recorded launch is given again and again.
    type Launch: Clone + Send + Sync;
    /// Work beyond what every backend has; [`Infallible`](std::convert::Infallible) if there is none.
    /// Cheap to clone, too.
    type Native: Clone + Send + Sync;
}

/// Commands without side conditions: what a lane can be given to run.
pub enum Work<D: Payload> {
    /// Nothing: its completion alone matters.
    Marker,
    Copy {
        dst: usize,
        src: usize,
        bytes: usize,
    },
    /// Copies `region` (bytes, rows, slices) between two pitched blocks.
    CopyRect {
        dst: Pitched,
        src: Pitched,
        region: [usize; 3],
    },
    /// Repeats `pattern` over `bytes`, a multiple of its length.
    Fill {
        dst: usize,
        pattern: Pattern,
        bytes: usize,
    },
    /// Repeats `pattern` over each row of `region` (bytes, rows, slices).
    FillRect {
        dst: Pitched,
        pattern: Pattern,
        region: [usize; 3],
    },
    /// A hint: the range will be used on the host, or on the lane's device.
    Prefetch {
        addr: usize,
        bytes: usize,
        to_host: bool,
    },
    /// A hint on how the range will be used.
    Advise {
        addr: usize,
        bytes: usize,
        advice: ur_usm_advice_flags_t,
    },
    Launch(D::Launch),
    /// What only this backend knows.
    Native(D::Native),
}

impl<D: Payload> Clone for Work<D> {
    #[rustfmt::skip]
    fn clone(&self) -> Self {
        match *self {
            Self::Marker => Self::Marker,
            Self::Copy { dst, src, bytes } => Self::Copy { dst, src, bytes },
            Self::CopyRect { dst, src, region } => Self::CopyRect { dst, src, region },
            Self::Fill { dst, ref pattern, bytes } => {
                Self::Fill { dst, pattern: pattern.clone(), bytes }
            }
            Self::FillRect { dst, ref pattern, region } => {
                Self::FillRect { dst, pattern: pattern.clone(), region }
            }
            Self::Prefetch { addr, bytes, to_host } => Self::Prefetch { addr, bytes, to_host },
            Self::Advise { addr, bytes, advice } => Self::Advise { addr, bytes, advice },
            Self::Launch(ref launch) => Self::Launch(launch.clone()),
            Self::Native(ref native) => Self::Native(native.clone()),
        }
    }
}

/// Address of a region's first byte, and the bytes between its rows and slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pitched {
    pub addr: usize,
    pub row_pitch: usize,
    pub slice_pitch: usize,
}

/// When a profiled command started and ended, in nanoseconds of the device's clock; 0: not yet.
#[derive(Default)]
pub struct Timestamps {
    pub start: AtomicU64,
    pub end: AtomicU64,
    /// Where a driver that keeps the times itself is asked for them, once they are wanted.
    source: OnceLock<TimestampSource>,
}

/// Notes times that are known by now.
pub type TimestampSource = Box<dyn Fn(&Timestamps) + Send + Sync>;

impl Timestamps {
    /// Has `source` fill in the times when someone asks for them. Set once.
    pub fn fill_from(&self, source: TimestampSource) {
        // A command is submitted once, so there is never an earlier one.
        let _ = self.source.set(source);
    }

    /// The times of several commands as one: the earliest start and the latest end, once all have
    /// ended.
    pub(crate) fn over(parts: Vec<Arc<Timestamps>>) -> Arc<Self> {
        let whole = Self::default();
        whole.fill_from(Box::new(move |whole| {
            let (mut start, mut end) = (u64::MAX, 0);
            for part in &parts {
                part.refresh();
                match part.end.load(Ordering::Acquire) {
                    0 => return,
                    ended => end = end.max(ended),
                }
                start = start.min(part.start.load(Ordering::Acquire));
            }
            whole.start.store(start, Ordering::Relaxed);
            whole.end.store(end, Ordering::Release);
        }));
        Arc::new(whole)
    }

    /// The times between two commands: from the first one's end to the second one's.
    pub(crate) fn between(first: Arc<Timestamps>, second: Arc<Timestamps>) -> Arc<Self> {
        let between = Arc::new(Self::default());
        between.fill_from(Box::new(move |between| {
            let ended = |timestamps: &Timestamps| {
                timestamps.refresh();
                timestamps.end.load(Ordering::Acquire)
            };
            if let (start @ 1.., end @ 1..) = (ended(&first), ended(&second)) {
                between.start.store(start, Ordering::Relaxed);
                between.end.store(end.max(start), Ordering::Release);
            }
        }));
        between
    }

    /// The times of a command that only notes the time: both its end, as drivers take a while for nothing.
    pub(crate) fn one(of: Arc<Timestamps>) -> Arc<Self> {
        Self::between(Arc::clone(&of), of)
    }

    pub(crate) fn refresh(&self) {
        if self.end.load(Ordering::Acquire) == 0
            && let Some(source) = self.source.get()
        {
            source(self);
        }
    }
}

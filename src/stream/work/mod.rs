//! Commands as a lane receives them, and their timestamps.
//!
//! Owns plain data: work, launches, fill patterns, ranges and boxes. Uses the C types alone. Must
//! never know a driver, an order or an object.

pub(crate) mod call;
pub(crate) mod image_copy;
pub(crate) mod launch;
pub(crate) mod pattern;
pub(crate) mod transfer;

use crate::abi::*;
use crate::stream::Pattern;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The commands that a backend adds to the common ones.
pub trait Payload: Sized + 'static {
    /// A kernel with its arguments, ready for submission. Owns copies of by-value arguments and
    /// keeps its objects alive. Cheap to clone: a recorded launch is submitted repeatedly.
    type Launch: Clone + Send + Sync;
    /// Other commands of the backend; [`Infallible`](std::convert::Infallible) for none. Cheap to
    /// clone.
    type Native: Clone + Send + Sync;
}

/// A command without its order.
pub enum Work<D: Payload> {
    /// No work: only its completion matters.
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
    /// A command of the backend.
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

impl<D: Payload> Work<D> {
    /// The work with other starts of its destination and source.
    pub fn moved(self, to: usize, from: usize) -> Self {
        let at = |end: Pitched, start: usize| Pitched {
            addr: end.addr + start,
            ..end
        };
        match self {
            Self::Copy { dst, src, bytes } => Self::Copy {
                dst: dst + to,
                src: src + from,
                bytes,
            },
            Self::CopyRect { dst, src, region } => Self::CopyRect {
                dst: at(dst, to),
                src: at(src, from),
                region,
            },
            Self::Fill {
                dst,
                pattern,
                bytes,
            } => Self::Fill {
                dst: dst + to,
                pattern,
                bytes,
            },
            Self::FillRect {
                dst,
                pattern,
                region,
            } => Self::FillRect {
                dst: at(dst, to),
                pattern,
                region,
            },
            other => other,
        }
    }
}

/// A pitched region: the address of its first byte, and the bytes between its rows and slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pitched {
    pub addr: usize,
    pub row_pitch: usize,
    pub slice_pitch: usize,
}

/// Start and end of a profiled command, in nanoseconds of the device's clock; 0 for not yet.
#[derive(Default)]
pub struct Timestamps {
    pub start: AtomicU64,
    pub end: AtomicU64,
    /// Queried for the times, where the driver keeps them.
    source: OnceLock<TimestampSource>,
}

/// Stores the times that are known by now.
pub type TimestampSource = Box<dyn Fn(&Timestamps) + Send + Sync>;

impl Timestamps {
    /// Stores both times of a command that has ended.
    pub fn record(&self, start: u64, end: u64) {
        self.start.store(start, Ordering::Relaxed);
        // Last: a reader that finds an end finds the start, too.
        self.end.store(end, Ordering::Release);
    }

    /// Makes `source` fill in the times on demand. Set once.
    pub fn fill_from(&self, source: TimestampSource) {
        // A command is submitted once, so no source was set before.
        let _ = self.source.set(source);
    }

    /// The times of several commands: the earliest start and the latest end, once all have ended.
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
            whole.record(start, end);
        }));
        Arc::new(whole)
    }

    /// The times between two commands: from the end of the first to the end of the second.
    pub(crate) fn between(first: Arc<Timestamps>, second: Arc<Timestamps>) -> Arc<Self> {
        let between = Arc::new(Self::default());
        between.fill_from(Box::new(move |between| {
            let ended = |timestamps: &Timestamps| {
                timestamps.refresh();
                timestamps.end.load(Ordering::Acquire)
            };
            if let (start @ 1.., end @ 1..) = (ended(&first), ended(&second)) {
                between.record(start, end.max(start));
            }
        }));
        between
    }

    /// The times of a timestamp command: both are its end, as drivers take a while for an empty
    /// command.
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

//! What the stream engine asks of a backend: lanes that run work in order, markers that tell how
//! far a lane has come, points that the host signals, and slabs of memory.
//!
//! A driver moves work and memory; it decides nothing about order, reuse or events.

use super::{Context, Domain, Event, Hooks, LaunchRequest, Queue, UsmPool};
use crate::abi::*;
use crate::hal::Backend;
use crate::object::{Error, Object, Result};
use crate::timeline::Clock;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Which kind of USM a slab or an allocation is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    Host,
    Device,
    Shared,
}

/// Commands without side conditions: what a lane can be given to run.
pub enum Work<D: Driver> {
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
        pattern: Box<[u8]>,
        bytes: usize,
    },
    /// Repeats `pattern` over each row of `region` (bytes, rows, slices).
    FillRect {
        dst: Pitched,
        pattern: Box<[u8]>,
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

/// Address of a region's first byte, and the bytes between its rows and slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pitched {
    pub addr: usize,
    pub row_pitch: usize,
    pub slice_pitch: usize,
}

/// When a profiled command started and ended, in nanoseconds of the device's clock; 0: not yet.
#[derive(Default)]
pub struct Stamps {
    pub start: AtomicU64,
    pub end: AtomicU64,
    /// Where a driver that keeps the times itself is asked for them, once they are wanted.
    source: OnceLock<StampSource>,
}

/// Notes times that are known by now.
pub type StampSource = Box<dyn Fn(&Stamps) + Send + Sync>;

impl Stamps {
    /// Has `source` fill in the times when someone asks for them. Set once.
    pub fn fill_from(&self, source: StampSource) {
        // A command is submitted once, so there is never an earlier one.
        let _ = self.source.set(source);
    }

    /// The times between two commands: from the first one's end to the second one's.
    pub(crate) fn between(first: Arc<Stamps>, second: Arc<Stamps>) -> Arc<Self> {
        let between = Arc::new(Self::default());
        between.fill_from(Box::new(move |between| {
            let ended = |stamps: &Stamps| {
                stamps.refresh();
                stamps.end.load(Ordering::Acquire)
            };
            if let (start @ 1.., end @ 1..) = (ended(&first), ended(&second)) {
                between.start.store(start, Ordering::Relaxed);
                between.end.store(end.max(start), Ordering::Release);
            }
        }));
        between
    }

    pub(crate) fn refresh(&self) {
        if self.end.load(Ordering::Acquire) == 0
            && let Some(source) = self.source.get()
        {
            source(self);
        }
    }
}

/// Where a mapping lies: known when the work is made, or once it was submitted.
#[derive(Clone, Debug, Default)]
pub struct Landing(Arc<AtomicUsize>);

impl Landing {
    pub fn at(addr: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(addr)))
    }

    pub fn set(&self, addr: usize) {
        self.0.store(addr, Ordering::Release);
    }

    pub fn get(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

/// What runs when a marker is done.
pub type Notice = Box<dyn FnOnce() + Send>;

/// One backend. The engine's own objects stand for its queues, events, contexts and pools.
pub trait Driver:
    Backend<
        Queue = Queue<Self>,
        Event = Event<Self>,
        Context = Context<Self>,
        UsmPool = UsmPool<Self>,
    > + Hooks<Self>
{
    /// What the driver keeps with each context; `()` if nothing.
    type State: Send + Sync;
    /// A physical in-order stream of one device. Dropped only after all of it was seen complete, or
    /// to have failed.
    type Lane: Send + Sync;
    /// A position in a lane that can be waited for. Cheap to clone.
    type Marker: Clone + Send + Sync;
    /// Completes a host-signalled point when used; dropping it unused completes it too.
    type Signal: Send;
    /// A kernel with its arguments, ready to be given to a lane. Owns copies of by-value arguments
    /// and keeps alive what it needs.
    type Launch: Send;
    /// Work beyond what every backend has; [`Infallible`](std::convert::Infallible) if there is none.
    type Native: Send;

    /// Opens a lane. A driver that sees each command end (`TRACKS`) raises the clock itself.
    fn lane(
        domain: &Domain<Self>,
        device: &Object<Self::Device>,
        flags: ur_queue_flags_t,
        clock: &Arc<Clock>,
    ) -> Result<Self::Lane>;

    /// Whether the driver raises a lane's clock to a command's epoch as soon as it has completed.
    /// If not, the engine records markers and asks.
    const TRACKS: bool;

    /// Whether a lane can wait for a marker of another context. If not, a point of its own context
    /// stands in, which the host signals.
    const SPANS: bool = false;

    /// Gives work to a lane as the command with this epoch. Returns at once. With `stamps`, the
    /// driver notes there when the command started and ended. On failure of a driver that tracks
    /// nothing was given, and the epoch is used again; another may have given a part, which the next
    /// marker covers.
    fn submit(
        lane: &Self::Lane,
        epoch: u64,
        work: Work<Self>,
        stamps: Option<Arc<Stamps>>,
    ) -> Result<()>;

    /// A marker of everything submitted to the lane so far, up to `epoch`. A driver that tracks may
    /// be asked for any past epoch; the others are asked for the last one only.
    fn mark(lane: &Self::Lane, epoch: u64) -> Result<Self::Marker>;

    /// Later work on the lane waits for the marker, on the device's side. The marker is of the lane's
    /// own context unless the driver `SPANS` them.
    fn wait(lane: &Self::Lane, marker: &Self::Marker) -> Result<()>;

    /// Others give work to the lane from now on, or no longer. While they do, later waits must hold back
    /// their work too, rather than only the lane's next command.
    fn open(lane: &Self::Lane, open: bool) -> Result<()> {
        let _ = (lane, open);
        Ok(())
    }

    /// Whether everything before the marker has completed.
    fn is_done(marker: &Self::Marker) -> Result<bool>;

    /// Blocks the calling thread until then.
    fn block(marker: &Self::Marker) -> Result<()>;

    /// Has `then` run once the marker is done, on any thread and at once if it is done already.
    /// `then` is short, never blocks and runs no user code. A driver that cannot tell hands it back,
    /// and the engine blocks a thread of its own instead.
    fn notify(marker: &Self::Marker, then: Notice) -> Option<Notice> {
        let _ = marker;
        Some(then)
    }

    /// A point that the host signals: its marker, which lanes can wait for, and the means.
    /// A driver that tracks raises `clock` to 1 at the signal.
    fn host_point(
        domain: &Domain<Self>,
        clock: &Arc<Clock>,
    ) -> Result<(Self::Marker, Self::Signal)>;

    /// Completes a host-signalled point.
    fn signal(signal: Self::Signal);

    /// Checks a launch and makes it ready; nothing is enqueued yet.
    fn launch(
        device: &Object<Self::Device>,
        kernel: &Object<Self::Kernel>,
        request: &LaunchRequest<'_>,
    ) -> Result<Self::Launch>;

    /// Memory from the system: an address, zeroed if `zeroed`. `device` is none for host memory.
    fn acquire(
        domain: &Domain<Self>,
        device: Option<&Object<Self::Device>>,
        kind: Kind,
        bytes: usize,
        zeroed: bool,
    ) -> Result<usize>;

    /// Gives a slab back. All use of it has been observed complete.
    fn release(domain: &Domain<Self>, kind: Kind, addr: usize, bytes: usize);

    /// Smallest amount of memory that the system gives, in bytes: slabs are multiples of it.
    fn granularity(device: Option<&Object<Self::Device>>, kind: Kind) -> usize;

    /// Address and length in bytes of a buffer's memory on the device. Where buffers are no addresses
    /// it is 0, so that addresses made from it are offsets, and `on_buffers` knows.
    fn buffer(mem: &Object<Self::Mem>, device: &Object<Self::Device>) -> Result<(usize, usize)>;

    /// Work whose target or source lies in these buffers, as [`Driver::buffer`] gave their addresses.
    /// A driver whose buffers are no addresses puts its own work in place.
    fn on_buffers(
        work: Work<Self>,
        dst: Option<&Object<Self::Mem>>,
        src: Option<&Object<Self::Mem>>,
    ) -> Work<Self> {
        let _ = (dst, src);
        work
    }

    /// Largest alignment of a synchronous allocation, in bytes. It may cost as much memory again.
    const MOST_ALIGN: u64 = 2 << 20;

    /// The device that this one is a part of.
    fn parent(device: &Object<Self::Device>) -> Option<Arc<Object<Self::Device>>> {
        let _ = device;
        None
    }

    /// Most bytes that one synchronous allocation may have.
    fn max_alloc(device: &Object<Self::Device>) -> usize {
        let _ = device;
        usize::MAX
    }

    /// Where the host sees a range of a buffer, and the work that brings the contents there.
    fn map(
        mem: &Object<Self::Mem>,
        device: &Object<Self::Device>,
        flags: ur_map_flags_t,
        offset: usize,
        bytes: usize,
    ) -> Result<(Landing, Work<Self>)> {
        let _ = (mem, device, flags, offset, bytes);
        Err(Error::unsupported())
    }

    /// The work that ends a mapping and brings what the host wrote back.
    fn unmap(
        mem: &Object<Self::Mem>,
        device: &Object<Self::Device>,
        addr: usize,
    ) -> Result<Work<Self>> {
        let _ = (mem, device, addr);
        Err(Error::unsupported())
    }

    /// Address and length in bytes of a program's global variable on the device.
    fn global(
        program: &Object<Self::Program>,
        device: &Object<Self::Device>,
        name: &CStr,
    ) -> Result<(usize, usize)> {
        let _ = (program, device, name);
        Err(Error::unsupported())
    }

    /// Nanoseconds on the device's clock, the base of profiling times.
    fn now(device: &Object<Self::Device>) -> Result<u64>;
}

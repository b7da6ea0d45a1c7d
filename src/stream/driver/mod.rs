//! What the stream engine asks of a backend: lanes that run work in order, markers that tell how
//! far a lane has come, points that the host signals, and slabs of memory.
//!
//! A driver moves work and memory; it decides nothing about order, reuse or events.
//!
//! Owns the trait that a backend implements, what it is told of a context ([`Devices`]), and tools to implement it
//! with: `deferred` keeps back what waits for the host, `host` copies and fills. Uses `work`. Must never know an
//! engine, a lane or a handle.

pub(crate) mod deferred;
mod devices;
pub mod host;
mod native_pool;

use crate::abi::*;
use crate::hal::Backend;
use crate::object::{Error, Object, Result};
use crate::stream::work::Payload;
use crate::stream::{LaunchRequest, PlainLaunch, Timestamps, Work};
use crate::timeline::Clock;
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use devices::Devices;
pub use native_pool::{NativeLimits, NativePool};

/// What a wait answers that covers a failed command, and a driver of a marker whose command failed.
pub const FAILED: Error = Error::new(UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS);

/// Whether a command failed, rather than the driver's call that asks about it.
pub(crate) fn is_failure(error: Error) -> bool {
    error.code() == FAILED.code()
}

/// Which kind of USM a slab or an allocation is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    Host,
    Device,
    Shared,
}

impl Kind {
    /// In the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Host, Self::Device, Self::Shared];
}

/// Where a mapping lies: known when the work is made, or once it was submitted.
#[derive(Clone, Debug, Default)]
pub struct MappedPointer(Arc<AtomicUsize>);

impl MappedPointer {
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

/// One recorded command, as [`Driver::compile`] sees it.
pub struct Step<'a, D: Driver> {
    pub work: &'a Work<D>,
    /// The commands that it follows, by their places in the recording; all are before its own. Mostly
    /// without those that it follows through others of them.
    pub after: &'a [u32],
}

/// Recorded commands as one object of the backend's.
pub trait Compiled<D: Driver>: Send + Sync {
    /// Gives a lane all of it as one command, as [`Driver::submit`] does. Never called again before
    /// what was given last is ordered before.
    fn submit(&self, lane: &D::Lane, epoch: u64, timestamps: Option<Arc<Timestamps>>)
    -> Result<()>;

    /// Takes over new work for one of its commands, counted from its first. What was submitted
    /// before keeps the old. False if it cannot: it is then made anew.
    fn update(&self, at: usize, work: &Work<D>) -> bool {
        let _ = (at, work);
        false
    }
}

/// What became of work that a lane was given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Pending,
    /// It is complete, and all before it is.
    Done,
}

impl Progress {
    /// Gives work to a lane, or has the host do it at once.
    #[inline(always)]
    pub(crate) fn work<D: Driver>(
        lane: &D::Lane,
        epoch: u64,
        work: Work<D>,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<Self> {
        if timestamps.is_none() && D::at_once(lane, &work) {
            return Ok(Self::Done);
        }
        D::submit(lane, epoch, work, timestamps).map(|()| Self::Pending)
    }
}

/// A native object that others add commands to.
pub trait NativeRecord<D: Driver>: Send + Sync {
    fn handle(&self) -> ur_native_handle_t;

    /// All that it holds now, as one command.
    fn work(&self) -> Result<Work<D>>;
}

/// What runs when a marker is done.
pub type CompletionCallback = Box<dyn FnOnce() + Send>;

/// One backend, as the engine drives it.
pub trait Driver: Backend + Payload {
    /// What the driver keeps with each context; `()` if nothing.
    type ContextData: Send + Sync;
    /// A physical in-order stream of one device. Once a command of it fails, or waits for one that has,
    /// nothing that was submitted behind it runs, and markers tell so, until [`Driver::recover`]. Dropped
    /// only after all of it was seen to have ended.
    type Lane: Send + Sync;
    /// A position in a lane that can be waited for. Cheap to clone.
    type Marker: Clone + Send + Sync;
    /// Completes a host-signalled point when used; dropping it unused completes it too.
    type Signal: Send;
    /// What a launch that goes to a lane at once is, once it was checked.
    type Checked: Default;
    /// As `Checked`, of a launch that has no more than sizes and arguments.
    type Plain: Default;

    /// Opens a lane. A driver that sees each command end (`TRACKS`) raises the clock itself.
    fn lane(
        devices: &Devices<Self>,
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

    /// Whether what waits for an event of the backend's own is kept back by the host until that has
    /// ended, since the driver may run it although the event failed.
    const FOREIGN_ON_HOST: bool = false;

    /// Gives work to a lane as the command with this epoch. Returns at once. With `stamps`, the
    /// driver notes there when the command started and ended. On failure of a driver that tracks
    /// nothing was given, and the epoch is used again; another may have given a part, which the next
    /// marker covers.
    fn submit(
        lane: &Self::Lane,
        epoch: u64,
        work: Work<Self>,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<()>;

    /// Does the work itself, now, where the host does it sooner than it could be given to the lane:
    /// everything on the lane is complete, nothing is waited for, and it is little. Whether it is done.
    fn at_once(lane: &Self::Lane, work: &Work<Self>) -> bool {
        let _ = (lane, work);
        false
    }

    /// As [`Driver::submit`] of a copy without stamps: what is enqueued most need not be made a piece
    /// of work first.
    #[inline(always)]
    fn copy(
        lane: &Self::Lane,
        epoch: u64,
        dst: usize,
        src: usize,
        bytes: usize,
    ) -> Result<Progress> {
        Progress::work::<Self>(lane, epoch, Work::Copy { dst, src, bytes }, None)
    }

    /// As [`Driver::copy`], of a fill.
    #[inline(always)]
    fn fill(
        lane: &Self::Lane,
        epoch: u64,
        dst: usize,
        pattern: &[u8],
        bytes: usize,
    ) -> Result<Progress> {
        let pattern = pattern.into();
        #[rustfmt::skip]
        let work = Work::Fill { dst, pattern, bytes };
        Progress::work::<Self>(lane, epoch, work, None)
    }

    /// Whether a lane has completed all that it was given, if that can be told at once: where the driver
    /// does not track, this is asked before a pool asks for more memory.
    fn is_idle(lane: &Self::Lane) -> Result<bool> {
        let _ = lane;
        Ok(false)
    }

    /// As [`Driver::is_done`], of a marker of this lane, where nobody asked for that: false if asking might
    /// disturb what others do with the lane.
    fn is_seen_done(lane: &Self::Lane, marker: &Self::Marker) -> Result<bool> {
        let _ = lane;
        Self::is_done(marker)
    }

    /// Has the device start on everything submitted so far, where a driver may put that off. Who asks
    /// about a marker, is to be notified of it or has a lane wait for it need not call this.
    fn flush(lane: &Self::Lane) -> Result<()> {
        let _ = lane;
        Ok(())
    }

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

    /// Whether everything before the marker has completed. `IN_EVENT_LIST_EXEC_STATUS` ([`FAILED`])
    /// once its command has ended by failing, or without having run since what it depends on failed;
    /// any other error is one of the question, or of a driver that is lost.
    fn is_done(marker: &Self::Marker) -> Result<bool>;

    /// Blocks the calling thread until then. Errors are those of [`Driver::is_done`].
    fn block(marker: &Self::Marker) -> Result<()>;

    /// Blocks until the commands of the lane up to this epoch have ended: called once that one failed,
    /// as drivers may tell of a failure before earlier commands have ended.
    fn settle(lane: &Self::Lane, epoch: u64) -> Result<()> {
        let _ = (lane, epoch);
        Ok(())
    }

    /// Whether commands fail one by one where nothing depends on their order, so that a marker behind
    /// them does not tell.
    const TELLS_FAILURES: bool = false;

    /// On a lane of an out-of-order queue: the epochs of the commands that have failed and that this did
    /// not name before.
    fn failed(lane: &Self::Lane) -> Vec<u64> {
        let _ = lane;
        Vec::new()
    }

    /// The failure that the lane's markers tell of was recorded: what is submitted from now on runs
    /// again. Whether what came behind the failed command up to here did not run.
    fn recover(lane: &Self::Lane) -> bool {
        let _ = lane;
        false
    }

    /// Has `then` run once the marker is done, on any thread and at once if it is done already.
    /// `then` is short, never blocks and runs no user code. A driver that cannot tell hands it back,
    /// and the engine blocks a thread of its own instead.
    fn notify(marker: &Self::Marker, then: CompletionCallback) -> Option<CompletionCallback> {
        let _ = marker;
        Some(then)
    }

    /// A point that the host signals: its marker, which lanes can wait for, and the means.
    fn host_point(devices: &Devices<Self>) -> Result<(Self::Marker, Self::Signal)>;

    /// Completes a host-signalled point.
    fn signal(signal: Self::Signal);

    /// Completes a host-signalled point as failed: a lane that waits for it drops what comes behind,
    /// as far as the driver lets it.
    fn fail(signal: Self::Signal) {
        Self::signal(signal);
    }

    /// Calls a function of the user's, which may use the backend's own interface for this device: the
    /// calling thread is as that wants it meanwhile, and afterwards as it was. If it cannot be made so,
    /// nothing is called.
    fn call_user(device: &Object<Self::Device>, call: impl FnOnce()) -> Result<()> {
        let _ = device;
        call();
        Ok(())
    }

    /// As [`Driver::call_user`], of a function that is called in any case.
    fn call_user_anyway(device: &Object<Self::Device>, call: impl Fn()) {
        if let Err(error) = Self::call_user(device, &call) {
            log::error!("a user's function finds no device: {:?}", error.code());
            call();
        }
    }

    /// Checks a launch and makes it ready; nothing is enqueued yet.
    fn launch(
        device: &Object<Self::Device>,
        kernel: &Object<Self::Kernel>,
        request: &LaunchRequest<'_>,
    ) -> Result<Self::Launch>;

    /// Whether a launch goes to a lane by [`Driver::submit_launch`], without being made ready before.
    const LAUNCHES_AT_ONCE: bool = false;

    /// Checks a launch that goes to a lane at once, and notes what has to be known then.
    fn check_launch(
        device: &Object<Self::Device>,
        kernel: &Object<Self::Kernel>,
        request: &LaunchRequest<'_>,
        checked: &mut Self::Checked,
    ) -> Result<()> {
        let _ = (device, kernel, request, checked);
        Err(Error::unsupported())
    }

    /// Submits a launch that was checked: what only has to last for the call need not be copied.
    fn submit_launch(
        lane: &Self::Lane,
        epoch: u64,
        kernel: &Object<Self::Kernel>,
        request: &LaunchRequest<'_>,
        checked: &Self::Checked,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<()> {
        let _ = (lane, epoch, kernel, request, checked, timestamps);
        Err(Error::unsupported())
    }

    /// Whether [`Driver::is_plain`] is worth asking.
    const PLAIN: bool = false;

    /// Whether a launch with no more than sizes and arguments is right and goes to a lane by
    /// [`Driver::submit_plain`]; notes what has to be known then. If not, it is checked in full and
    /// goes another way.
    #[inline(always)]
    fn is_plain(
        device: &Object<Self::Device>,
        kernel: &Object<Self::Kernel>,
        launch: &PlainLaunch<'_>,
        plain: &mut Self::Plain,
    ) -> bool {
        let _ = (device, kernel, launch, plain);
        false
    }

    /// Submits a launch that was found plain; its kernel and arguments last for the call. `make` gives
    /// one that lasts longer.
    #[inline(always)]
    fn submit_plain(
        lane: &Self::Lane,
        epoch: u64,
        plain: &mut Self::Plain,
        make: impl FnOnce() -> Result<Self::Launch>,
    ) -> Result<Progress> {
        let _ = plain;
        Self::submit(lane, epoch, Work::Launch(make()?), None)?;
        Ok(Progress::Pending)
    }

    /// Memory from the system: an address, zeroed if `zeroed`. `device` is none for host memory.
    /// Not asked of memory that has pages.
    fn acquire(
        devices: &Devices<Self>,
        device: Option<&Object<Self::Device>>,
        kind: Kind,
        bytes: usize,
        zeroed: bool,
    ) -> Result<usize> {
        let _ = (devices, device, kind, bytes, zeroed);
        Err(Error::unsupported())
    }

    /// Gives a slab back. All use of it has been observed complete.
    fn release(devices: &Devices<Self>, kind: Kind, addr: usize, bytes: usize) {
        let _ = (devices, kind, addr, bytes);
    }

    /// Smallest amount of memory that the system gives, in bytes: slabs are multiples of it.
    fn granularity(device: Option<&Object<Self::Device>>, kind: Kind) -> usize;

    /// The size in bytes, a power of two, of the pages in which memory of this kind can be mapped at
    /// any address; none if it cannot, and slabs are [`Driver::acquire`]d. With pages, the rest of
    /// this list is called instead.
    fn page(device: Option<&Object<Self::Device>>, kind: Kind) -> Option<usize> {
        let _ = (device, kind);
        None
    }

    /// The largest size of pages for pools that hold much, a power of two: every one between the least
    /// and this may be asked for. None if larger ones are no cheaper.
    fn largest_page(device: Option<&Object<Self::Device>>, kind: Kind) -> Option<usize> {
        let _ = (device, kind);
        None
    }

    /// Addresses for pages of this size, none mapped yet: where they start, at a multiple of it.
    fn reserve(devices: &Devices<Self>, page: usize, bytes: usize) -> Result<usize> {
        let _ = (devices, page, bytes);
        Err(Error::unsupported())
    }

    /// Gives reserved addresses back. Nothing is mapped there.
    fn unreserve(devices: &Devices<Self>, addr: usize, bytes: usize) {
        let _ = (devices, addr, bytes);
    }

    /// New pages of this size, all with different names, zeroed if `zeroed`.
    fn create_pages(
        devices: &Devices<Self>,
        device: Option<&Object<Self::Device>>,
        kind: Kind,
        page: usize,
        count: usize,
        zeroed: bool,
    ) -> Result<Vec<u64>> {
        let _ = (devices, device, kind, page, count, zeroed);
        Err(Error::unsupported())
    }

    /// Gives pages back, which are mapped nowhere any more.
    fn destroy_pages(devices: &Devices<Self>, pages: &[u64]) {
        let _ = (devices, pages);
    }

    /// Maps pages of this size side by side at reserved addresses where none is mapped. A page may be mapped at
    /// older addresses too; what it holds need not be seen at the new one.
    fn map_pages(
        devices: &Devices<Self>,
        device: Option<&Object<Self::Device>>,
        kind: Kind,
        page: usize,
        addr: usize,
        pages: &[u64],
    ) -> Result<()> {
        let _ = (devices, device, kind, page, addr, pages);
        Err(Error::unsupported())
    }

    /// Whether an address that a page has left costs next to nothing while it leads there still, less
    /// than to unmap it: then as many stay mapped as are in use.
    const LEAVES_MAPPED: bool = false;

    /// Unmaps the pages in so many bytes from `addr` on, all use of which there was observed complete.
    fn unmap_pages(devices: &Devices<Self>, addr: usize, bytes: usize) {
        let _ = (devices, addr, bytes);
    }

    /// A pool of the backend's own for memory of this kind, asked for a pool that may be served by one.
    /// None if the backend has none, or the user does not want it: then ours serves.
    fn native_pool(
        devices: &Devices<Self>,
        device: Option<&Object<Self::Device>>,
        kind: Kind,
        limits: &NativeLimits,
    ) -> Option<Box<dyn NativePool<Self>>> {
        let _ = (devices, device, kind, limits);
        None
    }

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

    /// Whether commands on a device reach device memory of another one's pools. If not, those that are told
    /// of such memory are refused; a launch is not, whose arguments nobody looks at.
    fn can_access(device: &Object<Self::Device>, home: &Object<Self::Device>) -> bool {
        let _ = (device, home);
        true
    }

    /// Largest alignment of a synchronous allocation, in bytes. It may cost as much memory again.
    const MAX_ALIGN_BYTES: u64 = 2 << 20;

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
    ) -> Result<(MappedPointer, Work<Self>)> {
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

    /// Makes one native object of the commands of a recording from `from` on, of as many in a row as
    /// it can hold; what comes before `from` comes before all of it. None if it holds not even the
    /// first, or is not worth it: then that one is submitted by itself, each time. Order between
    /// such objects, events and completion are the engine's.
    fn compile(
        devices: &Devices<Self>,
        device: &Object<Self::Device>,
        steps: &[Step<'_, Self>],
        from: usize,
        updatable: bool,
    ) -> Option<(usize, Arc<dyn Compiled<Self>>)> {
        let _ = (devices, device, steps, from, updatable);
        None
    }

    /// Whether what others added to one command buffer's native object can become a command of another
    /// buffer, as it is then.
    const RECORDS_NEST: bool = false;

    /// A new native object that native commands of a command buffer are recorded into.
    fn native_record(
        devices: &Devices<Self>,
        device: &Object<Self::Device>,
    ) -> Result<Arc<dyn NativeRecord<Self>>> {
        let _ = (devices, device);
        Err(Error::unsupported())
    }

    /// Nanoseconds on the device's clock, the base of profiling times.
    fn now(device: &Object<Self::Device>) -> Result<u64>;
}

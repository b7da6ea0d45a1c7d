//! What the stream engine needs of a backend: lanes that run work in order, markers of positions in
//! a lane, host-signalled points, and slabs of memory.
//!
//! A driver runs work and provides memory. It decides nothing about order, reuse or events.
//!
//! Owns the trait that a backend implements, its view of a context ([`Devices`]), and tools to
//! implement it with: `deferred` submits work later that waits for the host, `host` copies, fills and
//! has slabs. Uses `work`. Must never know an engine, a lane or a handle.

pub(crate) mod deferred;
mod devices;
pub mod host;
mod native_pool;
mod queue_options;
mod user;

use crate::abi::*;
use crate::hal::Backend;
use crate::object::{Error, Object, Result};
use crate::stream::work::Payload;
use crate::stream::{HostFunction, LaunchRequest, PlainLaunch, Timestamps, Work};
use crate::timeline::Clock;
use std::ffi::{CStr, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use devices::Devices;
pub use native_pool::{NativeLimits, NativePool};
pub use queue_options::QueueOptions;
pub use user::in_user_function;
pub(crate) use user::{call_user, call_user_anyway};

/// The result of a wait that covers a failed command, and of a query for its marker.
pub const FAILED: Error = Error::new(UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS);

/// Whether the error is a failed command and not a failed query.
pub(crate) fn is_failure(error: Error) -> bool {
    error.code() == FAILED.code()
}

/// Whether the error is a lost device, which every later wait and query reports too.
pub(crate) fn is_lost(error: Error) -> bool {
    error.code() == UR_RESULT_ERROR_DEVICE_LOST
}

/// Which kind of USM a slab or an allocation is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    Host,
    Device,
    Shared,
}

impl Kind {
    /// All kinds, by number.
    pub const ALL: [Self; 3] = [Self::Host, Self::Device, Self::Shared];

    /// The error of an allocation that finds no memory of this kind.
    pub const fn exhausted(self) -> ur_result_t {
        match self {
            Self::Host => UR_RESULT_ERROR_OUT_OF_HOST_MEMORY,
            Self::Device | Self::Shared => UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
        }
    }
}

/// The host address of a mapping, set when the work is made or after its submission.
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
    /// A host task's function and its data, only for [`Driver::native_graph`].
    pub host: Option<(HostFunction, *mut c_void)>,
    /// Indices of its predecessors, all smaller than its own. Mostly without predecessors that
    /// others of them imply.
    pub after: &'a [u32],
}

/// Recorded commands as one native object.
pub trait Compiled<D: Driver>: Send + Sync {
    /// Submits all of it to a lane as one command, as [`Driver::submit`] does. A later call comes
    /// only after the last submission is ordered before it.
    fn submit(
        &self,
        lane: &D::Lane,
        epoch: u64,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<Progress>;

    /// Replaces the work of one command, counted from the first one. Earlier submissions keep the
    /// old work. Returns false if it cannot: the caller then compiles anew.
    fn update(&self, at: usize, work: &Work<D>) -> bool {
        let _ = (at, work);
        false
    }

    /// The backend's handles of the graph and of its executable form. None if it has none.
    fn native_graph(&self) -> Option<(ur_native_handle_t, ur_native_handle_t)> {
        None
    }
}

/// The result of a submission.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Pending,
    /// The work is complete, and so is everything before it.
    Done,
}

/// A native object that users add commands to.
pub trait NativeRecord<D: Driver>: Send + Sync {
    fn handle(&self) -> ur_native_handle_t;

    /// The record's current commands, as one command.
    fn work(&self) -> Result<Work<D>>;
}

/// A callback on the completion of a marker.
pub type CompletionCallback = Box<dyn FnOnce() + Send>;

/// One backend as the engine uses it.
pub trait Driver: Backend + Payload {
    /// Data of the driver in each context; `()` for none.
    type ContextData: Send + Sync;
    /// An in-order stream of one device. After a failed command or a wait for one, nothing behind
    /// it runs and its markers report the failure, until [`Driver::recover`]. Dropped only after
    /// all of its work was seen to end.
    type Lane: Send + Sync;
    /// A position in a lane that can be waited for. Cheap to clone.
    type Marker: Clone + Send + Sync;
    /// The right to signal a host point. Dropping it signals too.
    type Signal: Send;
    /// A checked launch of [`Driver::submit_plain`]; `()` if the driver has none.
    type Plain: Default;

    /// Checks what a queue is created with, beside its flags.
    fn check_options(device: &Object<Self::Device>, options: &QueueOptions) -> Result<()> {
        let _ = (device, options);
        Ok(())
    }

    /// Opens a lane. A driver that `TRACKS` raises the clock by itself.
    fn lane(
        devices: &Devices<Self>,
        device: &Object<Self::Device>,
        options: &QueueOptions,
        clock: &Arc<Clock>,
    ) -> Result<Self::Lane>;

    /// Whether the driver raises a lane's clock as soon as a command has completed. If not, the
    /// engine records markers and queries them.
    const TRACKS: bool;

    /// Whether a lane can wait for a marker of another context. If not, the host signals a point of
    /// its own context instead.
    const SPANS: bool = false;

    /// Whether the driver has [`Driver::register_host`].
    const REGISTERS: bool = false;

    /// Whether the host defers work that waits for an event of the backend, since the driver may
    /// run it although the event failed.
    const FOREIGN_ON_HOST: bool = false;

    /// Submits work to a lane as the command with this epoch: the general path, beside the short one
    /// of [`Driver::copy`], [`Driver::fill`] and [`Driver::submit_plain`]. Returns without waiting for
    /// the work. The driver records its start and end in `timestamps`, if given.
    ///
    /// A driver may run small work on the host instead, if the lane is idle and waits for nothing:
    /// [`Progress::Done`].
    ///
    /// After an error a driver that tracks has submitted nothing, and the epoch is used again.
    /// Another driver may have submitted a part, which the next marker covers.
    fn submit(
        lane: &Self::Lane,
        epoch: u64,
        work: Work<Self>,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<Progress>;

    /// Submits a copy without timestamps, as [`Driver::submit`] does. A driver may save making a
    /// [`Work`].
    #[inline(always)]
    fn copy(
        lane: &Self::Lane,
        epoch: u64,
        dst: usize,
        src: usize,
        bytes: usize,
    ) -> Result<Progress> {
        Self::submit(lane, epoch, Work::Copy { dst, src, bytes }, None)
    }

    /// As [`Driver::copy`], for a fill.
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
        Self::submit(lane, epoch, work, None)
    }

    /// Whether a lane has completed all of its work, if a query is cheap. A pool asks before it
    /// grows, where the driver does not track.
    fn is_idle(lane: &Self::Lane) -> Result<bool> {
        let _ = lane;
        Ok(false)
    }

    /// As [`Driver::is_done`], without a user's request. Returns false if the query might disturb
    /// foreign submitters.
    fn is_seen_done(lane: &Self::Lane, marker: &Self::Marker) -> Result<bool> {
        let _ = lane;
        Self::is_done(marker)
    }

    /// Whether the marker is of work that is not submitted before somebody watches the marker.
    fn is_held_back(marker: &Self::Marker) -> bool {
        let _ = marker;
        false
    }

    /// Makes the device start all submitted work, where a driver may delay that. Querying, watching
    /// or waiting for a marker implies it.
    fn flush(lane: &Self::Lane) -> Result<()> {
        let _ = lane;
        Ok(())
    }

    /// A marker of everything submitted to the lane up to `epoch`. A driver that tracks is asked
    /// for any past epoch, others for the last one only.
    fn mark(lane: &Self::Lane, epoch: u64) -> Result<Self::Marker>;

    /// Makes later work on the lane wait for the marker, on the device. The marker is of the same
    /// context unless the driver `SPANS` contexts.
    fn wait(lane: &Self::Lane, marker: &Self::Marker) -> Result<()>;

    /// `open`: foreign code may submit to this stream, so waits must be enqueued on the stream
    /// itself. Otherwise a wait may delay only the lane's next command.
    fn open(lane: &Self::Lane, open: bool) -> Result<()> {
        let _ = (lane, open);
        Ok(())
    }

    /// Whether everything before the marker has completed. [`FAILED`] (`IN_EVENT_LIST_EXEC_STATUS`)
    /// once its command has failed, or has not run since a dependency failed. Any other error is
    /// one of the query or of a lost driver.
    fn is_done(marker: &Self::Marker) -> Result<bool>;

    /// Blocks the calling thread until the marker is done. Errors are those of [`Driver::is_done`].
    fn block(marker: &Self::Marker) -> Result<()>;

    /// Blocks until the commands of the lane up to this epoch have ended. Called after a failure,
    /// as drivers may report one before earlier commands have ended.
    fn settle(lane: &Self::Lane, epoch: u64) -> Result<()> {
        let _ = (lane, epoch);
        Ok(())
    }

    /// Whether commands of an out-of-order queue fail one by one, so that a later marker does not
    /// report it.
    const REPORTS_FAILURES: bool = false;

    /// The epochs of failed commands that no earlier call returned, on a lane of an out-of-order
    /// queue.
    fn failed(lane: &Self::Lane) -> Vec<u64> {
        let _ = lane;
        Vec::new()
    }

    /// Makes the lane run later work again after a recorded failure. Returns whether it dropped the
    /// work behind the failed command.
    fn recover(lane: &Self::Lane) -> bool {
        let _ = lane;
        false
    }

    /// Calls `then` once the marker is done, on any thread, or at once if it is done. `then` is
    /// short, never blocks and runs no user code. Returns it if the driver has no callback: the
    /// engine then blocks a thread of its own.
    fn notify(marker: &Self::Marker, then: CompletionCallback) -> Option<CompletionCallback> {
        let _ = marker;
        Some(then)
    }

    /// A new host-signalled point: a marker that lanes can wait for, and the right to signal it.
    fn host_point(devices: &Devices<Self>) -> Result<(Self::Marker, Self::Signal)>;

    /// Completes a host-signalled point, as the drop of its right does.
    fn signal(signal: Self::Signal) {
        drop(signal);
    }

    /// Completes a host-signalled point as failed. Lanes that wait for it drop their later work, as
    /// far as the driver lets them.
    fn fail(signal: Self::Signal) {
        Self::signal(signal);
    }

    /// Calls a user function that may use the backend's own interface for this device. The driver
    /// sets the thread's state for it and restores that afterwards. If it cannot, the function is
    /// not called.
    fn call_user(device: &Object<Self::Device>, call: impl FnOnce()) -> Result<()> {
        let _ = device;
        call();
        Ok(())
    }

    /// Checks a launch and copies what it needs, for [`Work::Launch`]. Enqueues nothing.
    fn launch(
        device: &Object<Self::Device>,
        kernel: &Object<Self::Kernel>,
        request: &LaunchRequest<'_>,
    ) -> Result<Self::Launch> {
        let _ = (device, kernel, request);
        Err(Error::unsupported())
    }

    /// Whether [`Driver::submit_plain`] can submit the launch; records in `plain` what that needs.
    /// If not, also for a wrong launch, [`Driver::launch`] checks it in full.
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

    /// Submits a launch as [`Driver::submit`] does, straight from the caller's arguments: the short
    /// path of nearly all launches, which copies and allocates nothing. Kernel and arguments last
    /// for the call only. `make` returns the launch as [`Driver::launch`] does, for a lane that
    /// defers it.
    #[inline(always)]
    fn submit_plain(
        lane: &Self::Lane,
        epoch: u64,
        kernel: &Object<Self::Kernel>,
        launch: &PlainLaunch<'_>,
        plain: &mut Self::Plain,
        timestamps: Option<Arc<Timestamps>>,
        make: impl FnOnce() -> Result<Self::Launch>,
    ) -> Result<Progress> {
        let _ = (kernel, launch, plain);
        Self::submit(lane, epoch, Work::Launch(make()?), timestamps)
    }

    /// Allocates memory from the system, zeroed if `zeroed`. Returns its address. `device` is none
    /// for host memory. Not called for memory with pages. [`host_slabs!`](crate::host_slabs) takes the host's memory.
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

    /// Frees a slab, once and with its size. All use of it has been observed complete.
    fn release(devices: &Devices<Self>, kind: Kind, addr: usize, bytes: usize) {
        let _ = (devices, kind, addr, bytes);
    }

    /// Allocation granularity in bytes: slabs are multiples of it.
    fn granularity(device: Option<&Object<Self::Device>>, kind: Kind) -> usize;

    /// The size in bytes, a power of two, of pages that can be mapped at any address. None if
    /// memory of this kind has no pages: slabs then come from [`Driver::acquire`]. With pages, the
    /// following functions replace it.
    fn page(device: Option<&Object<Self::Device>>, kind: Kind) -> Option<usize> {
        let _ = (device, kind);
        None
    }

    /// The largest page size in bytes that is worth asking for: every multiple of the least size up to
    /// it may be asked for. None if larger pages are no cheaper.
    fn largest_page(device: Option<&Object<Self::Device>>, kind: Kind) -> Option<usize> {
        let _ = (device, kind);
        None
    }

    /// Reserves addresses for pages. Returns the first one, a multiple of the least page size.
    fn reserve(devices: &Devices<Self>, page: usize, bytes: usize) -> Result<usize> {
        let _ = (devices, page, bytes);
        Err(Error::unsupported())
    }

    /// Frees reserved addresses. Nothing is mapped there.
    fn unreserve(devices: &Devices<Self>, addr: usize, bytes: usize) {
        let _ = (devices, addr, bytes);
    }

    /// Allocates pages of this size, a multiple of the least one, zeroed if `zeroed`. Each has a handle
    /// of its own.
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

    /// Frees pages, which are mapped nowhere.
    fn destroy_pages(devices: &Devices<Self>, pages: &[u64]) {
        let _ = (devices, pages);
    }

    /// Maps pages of this size side by side at reserved, unmapped addresses. Unless the driver
    /// [maps once](Driver::MAPS_ONCE), a page may stay mapped at older addresses. Its contents need
    /// not be visible at the new one.
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

    /// Whether a page can be mapped at one address only. It is then unmapped before it is mapped
    /// elsewhere, all use of the old address observed complete.
    const MAPS_ONCE: bool = false;

    /// Whether a stale mapping costs less than to unmap it: as many bytes of stale mappings stay as
    /// are in use.
    const LEAVES_MAPPED: bool = false;

    /// Unmaps the pages in `bytes` from `addr` on. All use of these addresses was observed
    /// complete.
    fn unmap_pages(devices: &Devices<Self>, addr: usize, bytes: usize) {
        let _ = (devices, addr, bytes);
    }

    /// A pool of the backend for memory of this kind. None if the backend has none or the user does
    /// not want it: the pool of this library then serves.
    fn native_pool(
        devices: &Devices<Self>,
        device: Option<&Object<Self::Device>>,
        kind: Kind,
        limits: &NativeLimits,
    ) -> Option<Box<dyn NativePool<Self>>> {
        let _ = (devices, device, kind, limits);
        None
    }

    /// Makes memory of the host's accessible to all devices of the context at its own address.
    /// `read_only`: devices only read it. Called only if [`Driver::REGISTERS`].
    fn register_host(
        devices: &Devices<Self>,
        addr: usize,
        bytes: usize,
        read_only: bool,
    ) -> Result<()> {
        let _ = (devices, addr, bytes, read_only);
        Err(Error::unsupported())
    }

    /// Ends a registration. No command uses the memory any more.
    fn unregister_host(devices: &Devices<Self>, addr: usize) {
        let _ = (devices, addr);
    }

    /// Prepares memory of the host's for faster copies, where a driver can. A hint.
    fn import_host(devices: &Devices<Self>, addr: usize, bytes: usize) {
        let _ = (devices, addr, bytes);
    }

    /// Ends an import, if there is one of this address. No command uses the memory any more.
    fn release_host(devices: &Devices<Self>, addr: usize) {
        let _ = (devices, addr);
    }

    /// A native event that other processes can open, for [`Driver::record_shared`].
    fn shared_event(
        devices: &Devices<Self>,
        device: &Object<Self::Device>,
    ) -> Result<Self::Marker> {
        let _ = (devices, device);
        Err(Error::unsupported())
    }

    /// The work that records a shared event: the event is complete once everything before that work is.
    fn record_shared(event: &Self::Marker) -> Result<Work<Self>> {
        let _ = event;
        Err(Error::unsupported())
    }

    /// Address and length in bytes of a buffer's memory on the device. The address is 0 where
    /// buffers have none: addresses in [`Work`] are then offsets, and `on_buffers` resolves them.
    fn buffer(mem: &Object<Self::Mem>, device: &Object<Self::Device>) -> Result<(usize, usize)> {
        let _ = (mem, device);
        Err(Error::unsupported())
    }

    /// Resolves work on these buffers, made from the addresses of [`Driver::buffer`]. A driver
    /// whose buffers have no addresses returns native work.
    fn on_buffers(
        work: Work<Self>,
        dst: Option<&Object<Self::Mem>>,
        src: Option<&Object<Self::Mem>>,
    ) -> Work<Self> {
        let _ = (dst, src);
        work
    }

    /// Whether commands of a device can access device memory of another one's pools. If not, commands
    /// with such an address are made by [`Driver::remote`]. Arguments of launches are not checked.
    fn can_access(device: &Object<Self::Device>, home: &Object<Self::Device>) -> bool {
        let _ = (device, home);
        true
    }

    /// The device whose memory is at an address of no pool, if commands of `device` cannot access it.
    fn foreign_home(
        device: &Object<Self::Device>,
        addr: usize,
    ) -> Option<Arc<Object<Self::Device>>> {
        let _ = (device, addr);
        None
    }

    /// A copy or fill as a command of a device that cannot access all of its memory. `homes` are the
    /// devices of destination and source, none for memory that every device can access. `is_foreign`:
    /// the memory is none of a pool, so that [`Driver::can_access`] does not tell of it.
    /// `UNSUPPORTED_FEATURE` if the backend has no such command.
    fn remote(
        device: &Object<Self::Device>,
        work: Work<Self>,
        homes: [Option<&Object<Self::Device>>; 2],
        is_foreign: bool,
    ) -> Result<Work<Self>> {
        let _ = (device, work, homes, is_foreign);
        Err(Error::unsupported())
    }

    /// Largest alignment of a synchronous allocation, in bytes. It may double the memory used.
    const MAX_ALIGN_BYTES: u64 = 2 << 20;

    /// The parent of a sub-device.
    fn parent(device: &Object<Self::Device>) -> Option<Arc<Object<Self::Device>>> {
        let _ = device;
        None
    }

    /// Bytes that a default pool keeps reserved, all kinds of memory together.
    fn default_threshold() -> u64 {
        u64::MAX
    }

    /// Whether default pools keep free memory of a kind, below their threshold.
    fn keeps_by_default(kind: Kind) -> bool {
        let _ = kind;
        true
    }

    /// Largest synchronous allocation, in bytes.
    fn max_alloc(device: &Object<Self::Device>) -> usize {
        let _ = device;
        usize::MAX
    }

    /// Maps a range of a buffer: its host pointer, and the work that copies the contents there.
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

    /// The work that ends a mapping and copies the host's changes back.
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

    /// Compiles commands of a recording, from index `from` on, into one native object: as many in a
    /// row as it can hold. Commands before `from` precede the whole object. Returns their number
    /// and the object. None if it cannot hold the first one or does not pay: that command is then
    /// submitted by itself each time. The engine keeps order, events and completion.
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

    /// Whether graphs have native handles, by [`Driver::native_graph`].
    const NATIVE_GRAPHS: bool = false;

    /// Compiles all commands of a recording into one native graph, even if that does not pay. None if a
    /// native graph cannot hold one of them.
    fn native_graph(
        devices: &Devices<Self>,
        device: &Object<Self::Device>,
        steps: &[Step<'_, Self>],
    ) -> Option<Arc<dyn Compiled<Self>>> {
        let _ = (devices, device, steps);
        None
    }

    /// Whether the native commands of one command buffer can become a command of another buffer.
    const RECORDS_NEST: bool = false;

    /// A new native object that the native commands of a command buffer are recorded into.
    fn native_record(
        devices: &Devices<Self>,
        device: &Object<Self::Device>,
    ) -> Result<Arc<dyn NativeRecord<Self>>> {
        let _ = (devices, device);
        Err(Error::unsupported())
    }

    /// Whether native streams can be captured: by foreign code, and by [`Driver::begin_capture`].
    const CAPTURES_STREAMS: bool = false;

    /// Whether the native stream is captured now, so that its commands do not run.
    fn is_captured(lane: &Self::Lane) -> bool {
        let _ = lane;
        false
    }

    /// Begins a capture of the native stream. False if this stream cannot be captured.
    fn begin_capture(lane: &Self::Lane) -> Result<bool> {
        let _ = lane;
        Ok(false)
    }

    /// Ends a capture that [`Driver::begin_capture`] began. Returns the captured commands as one, none if
    /// there are none.
    fn end_capture(lane: &Self::Lane) -> Result<Option<Work<Self>>> {
        let _ = lane;
        Err(Error::unsupported())
    }

    /// Submits a host function as a command of the native stream, which is captured.
    fn host_function(lane: &Self::Lane, run: HostFunction, data: *mut c_void) -> Result<()> {
        let _ = (lane, run, data);
        Err(Error::unsupported())
    }

    /// Nanoseconds on the device's clock, the base of profiling times.
    fn now(device: &Object<Self::Device>) -> Result<u64>;
}

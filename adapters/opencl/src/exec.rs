//! Lanes: in-order command queues of OpenCL, the events on them, and the memory of a context.
//!
//! Every command asks for its event: the last one is the lane's marker, exact and for nothing. What a
//! lane has to wait for goes into the wait list of its next command.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::ptr::{self, null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use opencl_sys::*;
use ur::abi::*;
use ur::dl::guarded_callback;
use ur::object::{Error, Object, Result, ensure};
use ur::stream::{Notice, Pitched, Stamps, Work};

use crate::OpenCl;
use crate::cl::{self, Api, ContextRef, EventRef, QueueRef, Version, check, failure};
use crate::device::Device;
use crate::record::Recorder;

/// What the adapter keeps with each context.
pub struct State {
    pub context: ContextRef,
    /// Slabs that do not begin where their allocation does: from their start to its.
    moved: Mutex<HashMap<usize, usize>>,
}

impl State {
    pub fn new(context: ContextRef) -> Self {
        Self {
            context,
            moved: Mutex::default(),
        }
    }

    /// Memory at a multiple of `align`. Drivers align more than they promise, so ask without room to
    /// spare first.
    pub fn acquire(
        &self,
        bytes: usize,
        align: usize,
        ask: impl Fn(usize) -> Result<usize>,
        free: impl Fn(usize),
    ) -> Result<usize> {
        let start = ask(bytes)?;
        if start.is_multiple_of(align) {
            return Ok(start);
        }
        free(start);
        let start = ask(bytes.saturating_add(align))?;
        let slab = start.next_multiple_of(align);
        if slab != start {
            self.moved().insert(slab, start);
        }
        Ok(slab)
    }

    /// Where the allocation of a slab begins.
    pub fn forget(&self, slab: usize) -> usize {
        self.moved().remove(&slab).unwrap_or(slab)
    }

    fn moved(&self) -> MutexGuard<'_, HashMap<usize, usize>> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A position in a lane.
#[derive(Clone)]
pub struct Marker {
    pub event: EventRef,
    context: ContextRef,
}

impl Marker {
    pub fn new(event: EventRef, context: ContextRef) -> Self {
        Self { event, context }
    }

    fn status(&self) -> Result<cl_int> {
        event_property(&self.event, CL_EVENT_COMMAND_EXECUTION_STATUS)
    }

    /// Whether it is complete; an error if the command failed.
    pub fn is_done(&self) -> Result<bool> {
        match self.status()? {
            CL_COMPLETE => Ok(true),
            failed if failed < 0 => Err(failure(failed, "a command")),
            _ => Ok(false),
        }
    }

    pub fn block(&self) -> Result<()> {
        let raw = self.event.raw();
        check(
            // SAFETY: one live event.
            unsafe { (self.event.api().core.clWaitForEvents)(1, &raw) },
            "clWaitForEvents",
        )
    }

    /// Has `then` run when the command has ended; gives it back where that cannot be.
    pub fn notify(&self, then: Notice) -> Option<Notice> {
        let data = Box::into_raw(Box::new(then));
        let set = self.event.api().core.clSetEventCallback;
        // SAFETY: a live event; the callback takes the box over.
        let code = unsafe { set(self.event.raw(), CL_COMPLETE, Some(notice), data.cast()) };
        if code == CL_SUCCESS {
            return None;
        }
        // SAFETY: the callback was not set, so the box is still ours.
        Some(*unsafe { Box::from_raw(data) })
    }
}

/// The driver's call back at the end of a command.
extern "C" fn notice(_: cl_event, _: cl_int, data: *mut c_void) {
    guarded_callback((), || {
        // SAFETY: the box that `notify` gave, called once.
        let then = unsafe { Box::from_raw(data.cast::<Notice>()) };
        then();
    });
}

/// A point that the host signals. Dropping it signals too.
pub struct Signal(pub EventRef);

impl Drop for Signal {
    fn drop(&mut self) {
        let set = self.0.api().core.clSetUserEventStatus;
        // SAFETY: a live user event, completed once.
        let code = unsafe { set(self.0.raw(), CL_COMPLETE) };
        if code != CL_SUCCESS {
            log::error!("clSetUserEventStatus failed with {code}");
        }
    }
}

pub fn user_event(context: &ContextRef) -> Result<EventRef> {
    let mut code = 0;
    // SAFETY: a live context.
    unsafe {
        let raw = (context.api().core.clCreateUserEvent)(context.raw(), &mut code);
        EventRef::created(context.api(), raw, code, "clCreateUserEvent")
    }
}

/// Where a command goes: its queue, what it waits for and where its event is wanted.
pub struct Slot {
    pub queue: cl_command_queue,
    pub count: cl_uint,
    pub waits: *const cl_event,
    pub event: *mut cl_event,
}

/// Enqueues one command, as often as it is called.
type Enqueue = Arc<dyn Fn(&Api, &Slot) -> Result<()> + Send + Sync>;

/// A command that only OpenCL has.
#[derive(Clone)]
pub struct Native {
    pub run: Enqueue,
    /// Records the same command, where that can be.
    pub record: Option<Record>,
    /// Host memory that the command reads.
    pub keep: Option<Arc<[u8]>>,
}

/// Adds one command to a command buffer of OpenCL.
type Record = Arc<dyn Fn(&Recorder) -> Result<()> + Send + Sync>;

impl Native {
    /// With what records it.
    pub fn recorded_by(
        mut self,
        record: impl Fn(&Recorder) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.record = Some(Arc::new(record));
        self
    }

    pub fn new(run: impl Fn(&Api, &Slot) -> Result<()> + Send + Sync + 'static) -> Self {
        Self {
            run: Arc::new(run),
            record: None,
            keep: None,
        }
    }
}

/// An in-order command queue.
pub struct Lane {
    queue: QueueRef,
    context: ContextRef,
    profiles: bool,
    /// Whether the queue itself keeps commands in order. One of the user's own may not: then each
    /// waits for the one before.
    in_order: bool,
    /// Whether others put work on the queue: what it waits for is then there at once.
    open: AtomicBool,
    device: Arc<Object<Device>>,
    state: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    last: Option<EventRef>,
    /// What the next command waits for.
    waits: Vec<EventRef>,
    /// Host memory that commands read, until they are done.
    keep: VecDeque<(EventRef, Arc<[u8]>)>,
}

impl Lane {
    pub fn open(
        context: &ContextRef,
        device: &Object<Device>,
        flags: ur_queue_flags_t,
    ) -> Result<Self> {
        let api = context.api();
        let profiles = flags.contains(UR_QUEUE_FLAG_PROFILING_ENABLE);
        let bits = if profiles {
            CL_QUEUE_PROFILING_ENABLE
        } else {
            0
        };
        let mut code = 0;
        let with_properties = api.core.clCreateCommandQueueWithProperties;
        let modern = with_properties.filter(|_| device.version >= Version::new(2, 0));
        // SAFETY: a live context and device, and a property list that ends with zero.
        let queue = unsafe {
            let raw = match modern {
                Some(create) => {
                    let list = [cl_queue_properties::from(CL_QUEUE_PROPERTIES), bits, 0];
                    create(context.raw(), device.raw(), list.as_ptr(), &mut code)
                }
                None => {
                    (api.core.clCreateCommandQueue)(context.raw(), device.raw(), bits, &mut code)
                }
            };
            QueueRef::created(api, raw, code, "clCreateCommandQueue")
        }?;
        Ok(Self::over(queue, context, device, profiles, true))
    }

    fn over(
        queue: QueueRef,
        context: &ContextRef,
        device: &Object<Device>,
        profiles: bool,
        in_order: bool,
    ) -> Self {
        let (context, device) = (context.clone(), device.arc());
        let open = AtomicBool::new(false);
        Self {
            queue,
            context,
            profiles,
            in_order,
            open,
            device,
            state: Mutex::default(),
        }
    }

    /// A command queue of the user's own, and its flags.
    pub fn adopt(
        queue: QueueRef,
        context: &ContextRef,
        device: &Object<Device>,
    ) -> Result<(Self, ur_queue_flags_t)> {
        let bits: cl_command_queue_properties = queue_property(&queue, CL_QUEUE_PROPERTIES)?;
        let profiles = bits & CL_QUEUE_PROFILING_ENABLE != 0;
        let in_order = bits & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0;
        let flag = |set: bool, flag: ur_queue_flags_t| if set { flag.0 } else { 0 };
        let flags = flag(profiles, UR_QUEUE_FLAG_PROFILING_ENABLE)
            | flag(!in_order, UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE);
        let lane = Self::over(queue, context, device, profiles, in_order);
        lane.open.store(true, Ordering::Relaxed);
        Ok((lane, ur_queue_flags_t(flags)))
    }

    /// The queue, to be given to the user, with all that it has to wait for on it.
    pub fn expose(&self) -> Result<&QueueRef> {
        self.open.store(true, Ordering::Relaxed);
        let mut pending = self.pending();
        if !pending.waits.is_empty() {
            Batch {
                lane: self,
                pending: &mut pending,
                first: None,
            }
            .barrier()?;
        }
        Ok(&self.queue)
    }

    pub fn queue(&self) -> &QueueRef {
        &self.queue
    }

    fn api(&self) -> &'static Api {
        self.queue.api()
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn submit(&self, work: Work<OpenCl>, stamps: Option<Arc<Stamps>>) -> Result<()> {
        let mut pending = self.pending();
        pending.forget_complete()?;
        let mut batch = Batch {
            lane: self,
            pending: &mut pending,
            first: None,
        };
        batch.work(work)?;
        let first = batch.first.take();
        self.given(&mut pending, first, stamps)
    }

    /// Gives the lane a buffer of recorded commands or, where that is not taken, the commands.
    pub fn submit_recorded(
        &self,
        works: &[Work<OpenCl>],
        stamps: Option<Arc<Stamps>>,
        enqueue: impl Fn(&Slot) -> Result<()>,
    ) -> Result<()> {
        let mut pending = self.pending();
        pending.forget_complete()?;
        let mut batch = Batch {
            lane: self,
            pending: &mut pending,
            first: None,
        };
        let taken = self.in_order && batch.give(|_, slot| enqueue(slot)).is_ok();
        if !taken {
            works.iter().try_for_each(|work| batch.work(work.clone()))?;
        }
        let first = batch.first.take();
        self.given(&mut pending, first, stamps)
    }

    /// Sends what was given on its way, and has its times noted.
    fn given(
        &self,
        pending: &mut Pending,
        first: Option<EventRef>,
        stamps: Option<Arc<Stamps>>,
    ) -> Result<()> {
        check(
            // SAFETY: a live queue.
            unsafe { (self.api().core.clFlush)(self.queue.raw()) },
            "clFlush",
        )?;
        if let Some(stamps) = stamps
            && let (Some(first), Some(last)) = (first, pending.last.clone())
        {
            self.stamp(&stamps, first, last)?;
        }
        Ok(())
    }

    /// Has the times of a command noted.
    fn stamp(&self, stamps: &Arc<Stamps>, first: EventRef, last: EventRef) -> Result<()> {
        if self.profiles {
            times(stamps, first, last);
            return Ok(());
        }
        // The queue keeps no times: take those of the call back, on a clock that runs like the
        // device's.
        let (base, since) = (now(&self.device)?, Instant::now());
        let stamps = Arc::clone(stamps);
        let marker = Marker::new(last, self.context.clone());
        let note: Notice = Box::new(move || {
            let at = base.saturating_add(since.elapsed().as_nanos() as u64);
            stamps.start.store(at, Ordering::Relaxed);
            stamps.end.store(at, Ordering::Release);
        });
        marker.notify(note);
        Ok(())
    }

    /// A marker of everything submitted so far.
    pub fn mark(&self) -> Result<Marker> {
        let mut pending = self.pending();
        let event = match &pending.last {
            Some(event) => event.clone(),
            None => {
                let mut batch = Batch {
                    lane: self,
                    pending: &mut pending,
                    first: None,
                };
                batch.marker()?
            }
        };
        Ok(Marker::new(event, self.context.clone()))
    }

    pub fn wait(&self, marker: &Marker) -> Result<()> {
        ensure(
            marker.context == self.context,
            UR_RESULT_ERROR_INVALID_CONTEXT,
        )?;
        let mut pending = self.pending();
        pending.waits.push(marker.event.clone());
        if self.open.load(Ordering::Relaxed) {
            Batch {
                lane: self,
                pending: &mut pending,
                first: None,
            }
            .barrier()?;
        }
        Ok(())
    }
}

pub fn queue_property<T: Copy>(queue: &QueueRef, what: cl_command_queue_info) -> Result<T> {
    // SAFETY: a live queue.
    let ask = |size, value, ret| unsafe {
        (queue.api().core.clGetCommandQueueInfo)(queue.raw(), what, size, value, ret)
    };
    cl::value(ask, "clGetCommandQueueInfo")
}

pub fn event_property<T: Copy>(event: &EventRef, what: cl_event_info) -> Result<T> {
    // SAFETY: a live event.
    let ask = |size, value, ret| unsafe {
        (event.api().core.clGetEventInfo)(event.raw(), what, size, value, ret)
    };
    cl::value(ask, "clGetEventInfo")
}

/// Has `stamps` filled in from a profiled command's events.
pub fn times(stamps: &Stamps, first: EventRef, last: EventRef) {
    stamps.fill_from(Box::new(move |stamps| {
        let start = time(&first, CL_PROFILING_COMMAND_START);
        if let (Some(start), Some(end)) = (start, time(&last, CL_PROFILING_COMMAND_END)) {
            stamps.start.store(start, Ordering::Relaxed);
            stamps.end.store(end.max(start), Ordering::Release);
        }
    }));
}

/// A profiled event's time, once it is known.
pub fn time(event: &EventRef, what: cl_profiling_info) -> Option<u64> {
    // SAFETY: a live event.
    let ask = |size, value, ret| unsafe {
        (event.api().core.clGetEventProfilingInfo)(event.raw(), what, size, value, ret)
    };
    cl::value::<u64>(ask, "clGetEventProfilingInfo")
        .ok()
        .filter(|time| *time > 0)
}

/// Nanoseconds on the device's clock, or on ours where it tells none.
pub fn now(device: &Object<Device>) -> Result<u64> {
    use std::sync::LazyLock;
    static BASE: LazyLock<Instant> = LazyLock::new(Instant::now);
    match device.timers() {
        Ok((device, _)) => Ok(device),
        Err(_) => Ok(BASE.elapsed().as_nanos() as u64 + 1),
    }
}

impl Pending {
    fn forget_complete(&mut self) -> Result<()> {
        while let Some((event, _)) = self.keep.front() {
            if event_property::<cl_int>(event, CL_EVENT_COMMAND_EXECUTION_STATUS)? > 0 {
                break;
            }
            self.keep.pop_front();
        }
        Ok(())
    }
}

/// The commands that one piece of work becomes.
struct Batch<'a> {
    lane: &'a Lane,
    pending: &'a mut Pending,
    first: Option<EventRef>,
}

/// The most bytes of a pattern that OpenCL repeats by itself.
const MAX_PATTERN: usize = 128;

/// Whether OpenCL repeats a pattern by itself.
pub fn plain_pattern(dst: usize, pattern: &[u8]) -> bool {
    let size = pattern.len();
    size.is_power_of_two() && size <= MAX_PATTERN && dst.is_multiple_of(size)
}

impl Batch<'_> {
    /// Enqueues one command after what the lane has to wait for.
    fn give(&mut self, run: impl FnOnce(&Api, &Slot) -> Result<()>) -> Result<EventRef> {
        let before = self.pending.last.as_ref().filter(|_| !self.lane.in_order);
        let waits: Vec<cl_event> = self
            .pending
            .waits
            .iter()
            .chain(before)
            .map(EventRef::raw)
            .collect();
        let mut event = null_mut();
        let slot = Slot {
            queue: self.lane.queue.raw(),
            count: waits.len() as cl_uint,
            waits: if waits.is_empty() {
                null()
            } else {
                waits.as_ptr()
            },
            event: &mut event,
        };
        run(self.lane.api(), &slot)?;
        // SAFETY: the call succeeded, so the event is there and ours.
        let event = unsafe { EventRef::adopted(self.lane.api(), event, true) }?;
        self.pending.waits.clear();
        self.pending.last = Some(event.clone());
        self.first.get_or_insert_with(|| event.clone());
        Ok(event)
    }

    fn work(&mut self, work: Work<OpenCl>) -> Result<()> {
        match work {
            Work::Marker | Work::Advise { .. } => self.marker().map(drop),
            Work::Copy { dst, src, bytes } => self.copy(dst, src, bytes),
            Work::CopyRect { dst, src, region } => runs(region, Some(&src), &dst)
                .try_for_each(|(src, dst, bytes)| self.copy(dst, src, bytes)),
            Work::Fill {
                dst,
                pattern,
                bytes,
            } => self.fill(dst, &pattern, bytes),
            Work::FillRect {
                dst,
                pattern,
                region,
            } => runs(region, None, &dst)
                .try_for_each(|(_, dst, bytes)| self.fill(dst, &pattern, bytes)),
            Work::Prefetch {
                addr,
                bytes,
                to_host,
            } => self.prefetch(addr, bytes, to_host),
            Work::Launch(launch) => self.give(|api, slot| launch.enqueue(api, slot)).map(drop),
            Work::Native(Native { run, keep, .. }) => {
                let event = self.give(|api, slot| run(api, slot))?;
                self.pending.keep.extend(keep.map(|keep| (event, keep)));
                Ok(())
            }
        }
    }

    /// What waits hold back everything that follows, work of others too.
    fn barrier(&mut self) -> Result<()> {
        let last = self.pending.last.clone();
        let barrier = self.give(|api, slot| {
            let enqueue = api.core.clEnqueueBarrierWithWaitList;
            // SAFETY: a live queue and wait list.
            let code = unsafe { enqueue(slot.queue, slot.count, slot.waits, slot.event) };
            check(code, "clEnqueueBarrierWithWaitList")
        });
        // The lane's last command is what it was: the barrier is none of the engine's.
        self.pending.last = last.or_else(|| self.pending.last.take());
        barrier.map(drop)
    }

    fn marker(&mut self) -> Result<EventRef> {
        if !self.lane.in_order && self.lane.open.load(Ordering::Relaxed) {
            // Without a list it waits for everything on the queue, work of others included.
            self.barrier_of_all()?;
        }
        self.give(|api, slot| {
            let enqueue = api.core.clEnqueueMarkerWithWaitList;
            // SAFETY: a live queue and wait list.
            let code = unsafe { enqueue(slot.queue, slot.count, slot.waits, slot.event) };
            check(code, "clEnqueueMarkerWithWaitList")
        })
    }

    fn barrier_of_all(&mut self) -> Result<()> {
        let (queue, mut event) = (self.lane.queue.raw(), null_mut());
        let enqueue = self.lane.api().core.clEnqueueBarrierWithWaitList;
        check(
            // SAFETY: a live queue; no list.
            unsafe { enqueue(queue, 0, null(), &mut event) },
            "clEnqueueBarrierWithWaitList",
        )?;
        // SAFETY: the call succeeded, so the event is there and ours.
        self.pending
            .waits
            .push(unsafe { EventRef::adopted(self.lane.api(), event, true) }?);
        Ok(())
    }

    fn copy(&mut self, dst: usize, src: usize, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return self.marker().map(drop);
        }
        let (dst, src) = (
            ptr::with_exposed_provenance_mut(dst),
            ptr::with_exposed_provenance(src),
        );
        self.give(|api, slot| {
            let Slot {
                queue,
                count,
                waits,
                event,
            } = *slot;
            // SAFETY: the caller promises both ranges until the command has ended.
            let code = unsafe {
                match (api.ext.clEnqueueMemcpyINTEL, api.core.clEnqueueSVMMemcpy) {
                    (Some(copy), _) => copy(queue, CL_FALSE, dst, src, bytes, count, waits, event),
                    (None, Some(copy)) => {
                        copy(queue, CL_FALSE, dst, src, bytes, count, waits, event)
                    }
                    (None, None) => return Err(Error::unsupported()),
                }
            };
            check(code, "clEnqueueMemcpy")
        })
        .map(drop)
    }

    fn fill(&mut self, dst: usize, pattern: &Arc<[u8]>, bytes: usize) -> Result<()> {
        let size = pattern.len();
        if bytes == 0 || size == 0 {
            return self.marker().map(drop);
        }
        if !plain_pattern(dst, pattern) {
            return self.fill_by_copies(dst, pattern, bytes);
        }
        let (to, from) = (
            ptr::with_exposed_provenance_mut(dst),
            pattern.as_ptr().cast(),
        );
        self.give(|api, slot| {
            let Slot {
                queue,
                count,
                waits,
                event,
            } = *slot;
            // SAFETY: the caller promises the range; the pattern is copied by the call.
            let code = unsafe {
                match (api.ext.clEnqueueMemFillINTEL, api.core.clEnqueueSVMMemFill) {
                    (Some(fill), _) => fill(queue, to, from, size, bytes, count, waits, event),
                    (None, Some(fill)) => fill(queue, to, from, size, bytes, count, waits, event),
                    (None, None) => return Err(Error::unsupported()),
                }
            };
            check(code, "clEnqueueMemFill")
        })
        .map(drop)
    }

    /// Writes the pattern once and doubles what is there until all is full.
    fn fill_by_copies(&mut self, dst: usize, pattern: &Arc<[u8]>, bytes: usize) -> Result<()> {
        let staged = Arc::clone(pattern);
        let mut done = staged.len().min(bytes);
        self.copy(dst, staged.as_ptr().expose_provenance(), done)?;
        let event = self.pending.last.clone();
        self.pending.keep.extend(event.map(|event| (event, staged)));
        while done < bytes {
            let more = done.min(bytes - done);
            self.copy(dst + done, dst, more)?;
            done += more;
        }
        Ok(())
    }

    fn prefetch(&mut self, addr: usize, bytes: usize, to_host: bool) -> Result<()> {
        let Some(migrate) = self
            .lane
            .api()
            .ext
            .clEnqueueMigrateMemINTEL
            .filter(|_| bytes > 0)
        else {
            return self.marker().map(drop);
        };
        let addr: *const c_void = ptr::with_exposed_provenance(addr);
        let flags = if to_host {
            CL_MIGRATE_MEM_OBJECT_HOST
        } else {
            0
        };
        let moved = self.give(|_, slot| {
            let Slot {
                queue,
                count,
                waits,
                event,
            } = *slot;
            check(
                // SAFETY: a hint about a range that the caller promises.
                unsafe { migrate(queue, addr, bytes, flags, count, waits, event) },
                "clEnqueueMigrateMemINTEL",
            )
        });
        // A driver that does not take the hint leaves only its place in the order.
        moved.or_else(|_| self.marker()).map(drop)
    }
}

/// The runs of bytes that a box consists of: source, target, length.
fn runs(
    region: [usize; 3],
    src: Option<&Pitched>,
    dst: &Pitched,
) -> impl Iterator<Item = (usize, usize, usize)> {
    let src = src.unwrap_or(dst);
    let [mut width, mut height, mut depth] = region;
    let (mut rows, mut slices) = (
        (src.row_pitch, dst.row_pitch),
        (src.slice_pitch, dst.slice_pitch),
    );
    if rows == (width, width) {
        (width, rows) = (width * height, slices);
        (height, slices) = (depth, (0, 0));
        depth = 1;
        if height > 1 && rows == (width, width) {
            (width, height) = (width * height, 1);
        }
    }
    let (from, to) = (src.addr, dst.addr);
    (0..depth).flat_map(move |z| {
        (0..height).map(move |y| {
            let place = |start: usize, row: usize, slice: usize| start + z * slice + y * row;
            (
                place(from, rows.0, slices.0),
                place(to, rows.1, slices.1),
                width,
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pitched(addr: usize, row_pitch: usize, slice_pitch: usize) -> Pitched {
        Pitched {
            addr,
            row_pitch,
            slice_pitch,
        }
    }

    #[test]
    fn a_packed_box_is_one_run_and_others_are_one_a_row() {
        let all = |region, src: Pitched, dst: Pitched| -> Vec<_> {
            runs(region, Some(&src), &dst).collect()
        };
        let packed = pitched(100, 4, 8);
        assert_eq!(all([4, 2, 3], packed, pitched(500, 4, 8)), [(100, 500, 24)]);
        assert_eq!(
            all([4, 2, 2], packed, pitched(500, 4, 10)),
            [(100, 500, 8), (108, 510, 8)]
        );
        assert_eq!(
            all([2, 2, 2], packed, pitched(500, 3, 6)),
            [(100, 500, 2), (104, 503, 2), (108, 506, 2), (112, 509, 2)]
        );
        assert_eq!(all([4, 1, 1], packed, pitched(500, 9, 9)), [(100, 500, 4)]);
    }
}

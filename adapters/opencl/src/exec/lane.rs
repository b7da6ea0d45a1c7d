//! In-order command queues: created here, or adopted.
//!
//! Work that waits for the host is deferred (`ur::stream::Deferred`), since drivers run the commands
//! behind a failed wait.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use opencl_sys::*;
use ur::abi::*;
use ur::object::{Error, Object, Result};
use ur::stream::{
    CompletionCallback, Deferred, HostPoint, LaunchRequest, Progress, Timestamps, Work,
};
use ur::sync::{Mutex, MutexGuard, rank};

use super::batch::{Batch, BatchInfo, Slot};
use super::marker::{self, Marker, outcome};
use super::{Position, Submissions, event_property, times};
use crate::OpenCl;
use crate::cl::{self, Api, ContextRef, EventRef, QueueRef, Version};
use crate::device::Device;
use crate::kernel::{Kernel, Launch};

/// Most waits that are held for the next command's wait list. More become a barrier at once.
const MAX_PENDING_WAITS: usize = 32;

/// An in-order command queue.
pub struct Lane {
    pub(super) submissions: Arc<Submissions>,
    profiles: bool,
    /// Whether the queue itself keeps commands in order. Otherwise, in an adopted out-of-order queue, each
    /// command waits for the command before it.
    pub(super) in_order: bool,
    /// Whether foreign code may submit to the queue, so that waits are enqueued at once.
    pub(super) open: AtomicBool,
    device: Arc<Object<Device>>,
    deferred: Deferred<Self>,
    state: Mutex<Pending, { rank::DRIVER }>,
}

/// A deferred submission.
type Later = Box<dyn FnOnce(&Lane) -> Result<()> + Send>;

/// State that the next command needs.
#[derive(Default)]
pub(super) struct Pending {
    /// The epoch of the engine's last command.
    pub epoch: u64,
    pub last: Last,
    /// The next command's waits.
    pub waits: Vec<Position>,
    /// Host memory that commands read, with markers of the commands.
    pub host_memory: VecDeque<(Position, Arc<[u8]>)>,
}

/// The event of the last command. It becomes a marker on demand.
#[derive(Default)]
pub(super) enum Last {
    #[default]
    None,
    Event(EventRef),
    Marked(Position),
}

impl Last {
    pub fn event(&self) -> Option<&EventRef> {
        match self {
            Self::None => None,
            Self::Event(event) => Some(event),
            Self::Marked(marker) => Some(marker.event()),
        }
    }

    /// Drops the event of a failed command, so that the next command does not wait for it. Whether it did.
    fn forget_failure(&mut self) -> bool {
        let outcome = self.event().and_then(outcome);
        let failed = matches!(outcome, Some(Err(_)));
        if failed {
            *self = Self::None;
        }
        failed
    }

    pub fn mark(&mut self, lane: &Lane) -> Option<Position> {
        let marker = match std::mem::take(self) {
            Self::None => return None,
            Self::Event(event) => lane.marker_of(event),
            Self::Marked(marker) => marker,
        };
        *self = Self::Marked(marker.clone());
        Some(marker)
    }
}

impl Lane {
    pub fn open(
        context: &ContextRef,
        device: &Object<Device>,
        flags: ur_queue_flags_t,
    ) -> Result<Arc<Self>> {
        let api = context.api();
        let profiles = flags.contains(UR_QUEUE_FLAG_PROFILING_ENABLE);
        let bits = if profiles {
            CL_QUEUE_PROFILING_ENABLE
        } else {
            0
        };
        let mut code = 0;
        let with_properties = api.core.clCreateCommandQueueWithProperties;
        let modern = with_properties.filter(|_| device.version() >= Version::new(2, 0));
        // SAFETY: context and device are alive, and the property list ends with 0.
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
        let of_several = flags.contains(UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE);
        Ok(Self::over(queue, device, profiles, true, of_several))
    }

    /// `of_several`: one stream of an out-of-order queue. Its commands depend on their wait lists only.
    fn over(
        queue: QueueRef,
        device: &Object<Device>,
        profiles: bool,
        in_order: bool,
        of_several: bool,
    ) -> Arc<Self> {
        let chained = !of_several;
        let open = AtomicBool::new(false);
        Arc::new(Self {
            submissions: Arc::new(Submissions::new(queue, chained)),
            profiles,
            in_order,
            open,
            device: device.arc(),
            deferred: Deferred::default(),
            state: Mutex::default(),
        })
    }

    /// Adopts a native command queue. Returns the lane and the queue's flags.
    pub fn adopt(
        queue: QueueRef,
        device: &Object<Device>,
    ) -> Result<(Arc<Self>, ur_queue_flags_t)> {
        let bits: cl_command_queue_properties = queue_property(&queue, CL_QUEUE_PROPERTIES)?;
        let profiles = bits & CL_QUEUE_PROFILING_ENABLE != 0;
        let in_order = bits & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0;
        let flag = |set: bool, flag: ur_queue_flags_t| if set { flag.0 } else { 0 };
        let flags = flag(profiles, UR_QUEUE_FLAG_PROFILING_ENABLE)
            | flag(!in_order, UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE);
        let lane = Self::over(queue, device, profiles, in_order, false);
        Ok((lane, ur_queue_flags_t(flags)))
    }

    /// `open = true`: foreign code may submit to this queue, so waits must be enqueued on it at once.
    pub fn set_open(self: &Arc<Self>, open: bool) -> Result<()> {
        {
            let mut pending = self.pending();
            if open && !pending.waits.is_empty() {
                Batch::of(self, &mut pending).barrier()?;
            }
            self.open.store(open, Ordering::Relaxed);
        }
        Deferred::set_open(self, open)
    }

    pub fn queue(&self) -> &QueueRef {
        &self.submissions.queue
    }

    pub(super) fn api(&self) -> &'static Api {
        self.queue().api()
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.state.lock()
    }

    pub(super) fn marker_of(&self, event: EventRef) -> Position {
        Position::on(event, &self.submissions, self.submissions.last())
    }

    pub fn submit(
        self: &Arc<Self>,
        epoch: u64,
        work: Work<OpenCl>,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<Progress> {
        if timestamps.is_none() && self.runs_here(&work) {
            return Ok(Progress::Done);
        }
        let now = |(work, timestamps)| {
            self.enqueue_batch(epoch, timestamps, |batch: &mut Batch<'_>| batch.work(work))
        };
        if matches!(&work, Work::Native(native) if native.answers) {
            // Such a lane is open, so that its waits for the host are enqueued on the queue.
            Deferred::submit_all(self)?;
            now((work, timestamps))?;
        } else if self.deferred.is_deferring() {
            let later = |(work, timestamps)| Ok(Self::later(epoch, work, timestamps));
            self.deferred.submit((work, timestamps), now, later)?;
        } else {
            now((work, timestamps))?;
        }
        Ok(Progress::Pending)
    }

    fn later(epoch: u64, work: Work<OpenCl>, timestamps: Option<Arc<Timestamps>>) -> Later {
        Box::new(move |lane| lane.enqueue_batch(epoch, timestamps, |batch| batch.work(work)))
    }

    /// Submits a plain launch. `make` returns one that can be deferred.
    pub fn launch(
        &self,
        epoch: u64,
        kernel: &Kernel,
        request: &LaunchRequest<'_>,
        timestamps: Option<Arc<Timestamps>>,
        make: impl FnOnce() -> Result<Arc<Launch>>,
    ) -> Result<()> {
        let now = |timestamps| {
            self.enqueue_batch(epoch, timestamps, |batch| {
                batch.info.weighs = true;
                batch.enqueue(|api, slot| kernel.launch_plain(request, api, slot))
            })
        };
        if !self.deferred.is_deferring() {
            return now(timestamps);
        }
        let later = |timestamps| Ok(Self::later(epoch, Work::Launch(make()?), timestamps));
        self.deferred.submit(timestamps, now, later)
    }

    fn enqueue_batch(
        &self,
        epoch: u64,
        timestamps: Option<Arc<Timestamps>>,
        run: impl FnOnce(&mut Batch<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut pending = self.pending();
        pending.forget_complete()?;
        let waits = pending.forget_ended_waits();
        if waits.is_err()
            || self
                .submissions
                .outcomes
                .has_failed(self.submissions.last())
        {
            self.deferred.fail();
            return Ok(());
        }
        pending.epoch = epoch;
        let mut batch = Batch::of(self, &mut pending);
        self.record_times_before(&mut batch, timestamps.is_some())?;
        run(&mut batch)?;
        let info = batch.info;
        self.finish_batch(&mut pending, info, timestamps)
    }

    /// Runs a small command on the host, where that is faster than a submission to an idle device.
    /// Returns whether it ran.
    fn runs_here(&self, work: &Work<OpenCl>) -> bool {
        if !self.device.shares_addresses() || !work.suits_host() {
            return false;
        }
        let pending = self.pending();
        let open = self.open.load(Ordering::Relaxed) || !self.in_order;
        let free = pending.waits.is_empty() && !self.deferred.is_deferring();
        if open || !free || !self.submissions.is_quiet() {
            return false;
        }
        work.run_on_host();
        true
    }

    /// Submits a buffer of recorded commands or, if the driver refuses it, the commands.
    pub fn submit_recorded(
        &self,
        epoch: u64,
        works: &[Work<OpenCl>],
        timestamps: Option<Arc<Timestamps>>,
        enqueue: impl Fn(&Slot) -> Result<()>,
    ) -> Result<()> {
        let now = |timestamps| {
            self.enqueue_batch(epoch, timestamps, |batch| {
                batch.info.weighs = true;
                let accepted = self.in_order && batch.enqueue(|_, slot| enqueue(slot)).is_ok();
                match accepted {
                    true => Ok(()),
                    false => works.iter().try_for_each(|work| batch.work(work.clone())),
                }
            })
        };
        if !self.deferred.is_deferring() {
            return now(timestamps);
        }
        let later = |timestamps| {
            let works = works.to_vec();
            let later: Later = Box::new(move |lane: &Lane| {
                let each =
                    |batch: &mut Batch<'_>| works.into_iter().try_for_each(|work| batch.work(work));
                lane.enqueue_batch(epoch, timestamps, each)
            });
            Ok(later)
        };
        self.deferred.submit(timestamps, now, later)
    }

    /// Prepares the batch's profiling if its times are wanted.
    fn record_times_before(&self, batch: &mut Batch<'_>, timed: bool) -> Result<()> {
        if timed && self.profiles {
            batch.info.timed = true;
            batch.info.queued = times::queued(&self.device)?;
        }
        Ok(())
    }

    /// Flushes the batch if a flush is due and sets up its timestamps.
    fn finish_batch(
        &self,
        pending: &mut Pending,
        info: BatchInfo,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<()> {
        self.submissions.flush_if_due(!info.weighs)?;
        if let Some(timestamps) = timestamps
            && let Some(last) = pending.last.mark(self)
        {
            match info.first {
                Some(first) => {
                    let queued = info.queued.map(|at| (Arc::clone(&self.device), at));
                    times::times(&timestamps, first, last, queued);
                }
                None => times::observed(&timestamps, &last, &self.device)?,
            }
        }
        Ok(())
    }

    /// Flushes everything submitted so far.
    pub fn flush(&self) -> Result<()> {
        self.submissions.flush(self.submissions.last())
    }

    /// A marker of everything submitted so far.
    pub fn mark(self: &Arc<Self>) -> Result<Marker> {
        Deferred::mark(self)
    }

    /// Later commands wait for the marker.
    pub fn wait(self: &Arc<Self>, marker: &Marker) -> Result<()> {
        Deferred::wait(self, marker)
    }

    /// Forgets the failure that the lane's markers report. Whether there was one.
    pub fn recover(&self) -> bool {
        let failed = {
            let mut pending = self.pending();
            pending
                .waits
                .retain(|wait| !matches!(wait.outcome(), Some(Err(_))));
            pending.last.forget_failure()
        };
        let outcome = self.submissions.outcomes.recover();
        self.deferred.recover() || failed || outcome
    }

    /// The epochs of the failed commands that were not reported yet.
    pub fn unreported(&self) -> Vec<u64> {
        self.submissions.outcomes.unreported()
    }

    /// Blocks until the commands up to this epoch have ended. `clFinish` would also wait for later
    /// commands, which may wait for the host.
    pub fn settle(&self, epoch: u64) -> Result<()> {
        self.submissions.settle(epoch)
    }

    fn wait_for(&self, position: Position) -> Result<()> {
        let mut pending = self.pending();
        pending.waits.push(position);
        if pending.waits.len() >= MAX_PENDING_WAITS && pending.forget_ended_waits().is_err() {
            self.deferred.fail();
        }
        if self.open.load(Ordering::Relaxed) || pending.waits.len() >= MAX_PENDING_WAITS {
            Batch::of(self, &mut pending).barrier()?;
        }
        Ok(())
    }
}

impl ur::stream::Stream for Lane {
    type Work = Later;
    type Event = Position;
    type Point = EventRef;

    fn deferred(&self) -> &Deferred<Self> {
        &self.deferred
    }

    fn is_chained(&self) -> bool {
        self.submissions.outcomes.chained
    }

    fn submit(&self, work: Later) -> Result<()> {
        work(self)
    }

    fn record(&self) -> Result<Position> {
        let mut pending = self.pending();
        if matches!(pending.last, Last::None) {
            Batch::of(self, &mut pending).marker()?;
        }
        pending.last.mark(self).ok_or(Error::unsupported())
    }

    /// Flushes the awaited queue first: the driver may otherwise never start the command.
    fn wait(&self, position: &Position) -> Result<()> {
        position.flush()?;
        self.wait_for(position.clone())
    }

    fn wait_point(&self, point: &Arc<HostPoint<Self>>) -> Result<()> {
        self.wait_for(Position::host(point))
    }

    fn signal(point: &EventRef) {
        marker::signal(point);
    }

    fn is_done(position: &Position) -> Result<bool> {
        position.is_done()
    }

    fn block(position: &Position) -> Result<()> {
        position.block()
    }

    fn notify(position: &Position, then: CompletionCallback) -> Option<CompletionCallback> {
        position.notify(then)
    }
}

impl Pending {
    /// Drops complete waits. If one failed, returns the error and drops all: some drivers never end a
    /// command that waits for an event that failed before.
    fn forget_ended_waits(&mut self) -> Result<()> {
        let mut result = Ok(());
        self.waits.retain(|position| match position.outcome() {
            None => true,
            Some(ended) => {
                result = result.and(ended);
                false
            }
        });
        if result.is_err() {
            self.waits.clear();
        }
        result
    }

    fn forget_complete(&mut self) -> Result<()> {
        while let Some((marker, _)) = self.host_memory.front() {
            let what = CL_EVENT_COMMAND_EXECUTION_STATUS;
            if event_property::<cl_int>(marker.event(), what)? > 0 {
                break;
            }
            self.host_memory.pop_front();
        }
        Ok(())
    }
}

pub fn queue_property<T: Copy>(queue: &QueueRef, what: cl_command_queue_info) -> Result<T> {
    // SAFETY: `QueueRef` holds a reference to the queue.
    let query = |size, value, ret| unsafe {
        (queue.api().core.clGetCommandQueueInfo)(queue.raw(), what, size, value, ret)
    };
    cl::value(query, "clGetCommandQueueInfo")
}

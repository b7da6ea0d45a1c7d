//! In-order command queues: opened by us, or the user's own.
//!
//! What waits for the host is kept back by the host (`ur::stream::Deferred`): drivers run what comes
//! behind a wait that failed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use opencl_sys::*;
use ur::abi::*;
use ur::object::{Error, Object, Result};
use ur::stream::{CompletionCallback, Deferred, HostPoint, LaunchRequest, Timestamps, Work};
use ur::timeline::rank;
use ur::timeline::sync::{Mutex, MutexGuard};

use super::batch::{Batch, Notes, Slot};
use super::marker::{self, Marker, outcome};
use super::{Outlet, Position, event_property, times};
use crate::OpenCl;
use crate::cl::{self, Api, ContextRef, EventRef, QueueRef, Version};
use crate::device::Device;
use crate::kernel::Kernel;

/// Waits beyond which they do not stay for the next command, which may never come.
const MOST_WAITS: usize = 32;

/// An in-order command queue.
pub struct Lane {
    pub(super) outlet: Arc<Outlet>,
    profiles: bool,
    /// Whether the queue itself keeps commands in order. One of the user's own may not: then each
    /// waits for the one before.
    pub(super) in_order: bool,
    /// Whether others put work on the queue: what it waits for is then there at once.
    pub(super) open: AtomicBool,
    device: Arc<Object<Device>>,
    deferred: Deferred<Self>,
    state: Mutex<Pending, { rank::DRIVER }>,
}

/// What a lane gives its queue, later than it was submitted.
type Later = Box<dyn FnOnce(&Lane) -> Result<()> + Send>;

/// What the next command has to know of those before it.
#[derive(Default)]
pub(super) struct Pending {
    /// The epoch of the engine's last command.
    pub epoch: u64,
    pub last: Last,
    /// What the next command waits for.
    pub waits: Vec<Position>,
    /// Host memory that commands read, until they are done.
    pub keep: VecDeque<(Position, Arc<[u8]>)>,
}

/// The event of the last command. Most are never asked for, so it becomes a marker only then.
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

    /// Lets go of an event whose command failed: what comes next does not wait for it. Whether it did.
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
        let of_several = flags.contains(UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE);
        Ok(Self::over(queue, device, profiles, true, of_several))
    }

    /// `of_several`: one of the streams of an out-of-order queue, whose commands depend on what they
    /// wait for alone.
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
            outlet: Arc::new(Outlet::new(queue, chained)),
            profiles,
            in_order,
            open,
            device: device.arc(),
            deferred: Deferred::default(),
            state: Mutex::default(),
        })
    }

    /// A command queue of the user's own, and its flags.
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

    /// Others put work on the queue from now on, or no longer: what it has to wait for is then on it.
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
        &self.outlet.queue
    }

    pub(super) fn api(&self) -> &'static Api {
        self.queue().api()
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.state.lock()
    }

    pub(super) fn marker_of(&self, event: EventRef) -> Position {
        Position::on(event, &self.outlet, self.outlet.given())
    }

    pub fn submit(
        self: &Arc<Self>,
        epoch: u64,
        work: Work<OpenCl>,
        stamps: Option<Arc<Timestamps>>,
    ) -> Result<()> {
        if matches!(&work, Work::Native(native) if native.answers) {
            // The queue waits for the host by itself then.
            Deferred::submit_all(self)?;
            return self.give(epoch, stamps, |batch| batch.work(work));
        }
        if !self.deferred.is_deferring() {
            return self.give(epoch, stamps, |batch| batch.work(work));
        }
        let later = |(work, stamps)| Ok(Self::later(epoch, work, stamps));
        self.deferred.submit(
            (work, stamps),
            |(work, stamps)| self.give(epoch, stamps, |batch| batch.work(work)),
            later,
        )
    }

    fn later(epoch: u64, work: Work<OpenCl>, stamps: Option<Arc<Timestamps>>) -> Later {
        Box::new(move |lane| lane.give(epoch, stamps, |batch| batch.work(work)))
    }

    pub fn launch(
        &self,
        epoch: u64,
        kernel: &Kernel,
        request: &LaunchRequest<'_>,
        stamps: Option<Arc<Timestamps>>,
    ) -> Result<()> {
        let now = |stamps| {
            self.give(epoch, stamps, |batch| {
                batch.notes.weighs = true;
                batch.give(|api, slot| kernel.launch_now(request, api, slot))
            })
        };
        if !self.deferred.is_deferring() {
            return now(stamps);
        }
        let later = |stamps| {
            let launch = Arc::new(kernel.launch(&self.device, request)?);
            Ok(Self::later(epoch, Work::Launch(launch), stamps))
        };
        self.deferred.submit(stamps, now, later)
    }

    fn give(
        &self,
        epoch: u64,
        stamps: Option<Arc<Timestamps>>,
        run: impl FnOnce(&mut Batch<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut pending = self.pending();
        pending.forget_complete()?;
        let waits = pending.forget_ended_waits();
        if waits.is_err() || self.outlet.has_failed(self.outlet.given()) {
            self.deferred.fail();
            return Ok(());
        }
        pending.epoch = epoch;
        let mut batch = Batch::of(self, &mut pending);
        self.note(&mut batch, stamps.is_some())?;
        run(&mut batch)?;
        let notes = batch.notes;
        self.given(&mut pending, notes, stamps)
    }

    /// Does a little work itself, where that takes less time than to give it to an idle device.
    pub fn at_once(&self, work: &Work<OpenCl>) -> bool {
        if !self.device.shares_addresses() || !work.suits_host() {
            return false;
        }
        let pending = self.pending();
        let open = self.open.load(Ordering::Relaxed) || !self.in_order;
        let free = pending.waits.is_empty() && !self.deferred.is_deferring();
        if open || !free || !self.outlet.is_quiet() {
            return false;
        }
        work.run_on_host();
        true
    }

    /// Gives the lane a buffer of recorded commands or, where that is not taken, the commands.
    pub fn submit_recorded(
        &self,
        epoch: u64,
        works: &[Work<OpenCl>],
        stamps: Option<Arc<Timestamps>>,
        enqueue: impl Fn(&Slot) -> Result<()>,
    ) -> Result<()> {
        let now = |stamps| {
            self.give(epoch, stamps, |batch| {
                batch.notes.weighs = true;
                let taken = self.in_order && batch.give(|_, slot| enqueue(slot)).is_ok();
                match taken {
                    true => Ok(()),
                    false => works.iter().try_for_each(|work| batch.work(work.clone())),
                }
            })
        };
        if !self.deferred.is_deferring() {
            return now(stamps);
        }
        let later = |stamps| {
            let works = works.to_vec();
            let later: Later = Box::new(move |lane: &Lane| {
                let each =
                    |batch: &mut Batch<'_>| works.into_iter().try_for_each(|work| batch.work(work));
                lane.give(epoch, stamps, each)
            });
            Ok(later)
        };
        self.deferred.submit(stamps, now, later)
    }

    /// Prepares for a batch whose times may be wanted.
    fn note(&self, batch: &mut Batch<'_>, timed: bool) -> Result<()> {
        if timed && self.profiles {
            batch.notes.timed = true;
            batch.notes.queued = times::queued(&self.device)?;
        }
        Ok(())
    }

    /// Sends what was given on its way, and has its times noted.
    fn given(
        &self,
        pending: &mut Pending,
        notes: Notes,
        stamps: Option<Arc<Timestamps>>,
    ) -> Result<()> {
        self.outlet.start(!notes.weighs)?;
        if let Some(stamps) = stamps
            && let Some(last) = pending.last.mark(self)
        {
            match notes.first {
                Some(first) => {
                    let queued = notes.queued.map(|at| (Arc::clone(&self.device), at));
                    times::times(&stamps, first, last, queued);
                }
                None => times::observed(&stamps, &last, &self.device)?,
            }
        }
        Ok(())
    }

    /// Has the device start on everything submitted so far.
    pub fn flush(&self) -> Result<()> {
        self.outlet.flush(self.outlet.given())
    }

    /// A marker of everything submitted so far.
    pub fn mark(self: &Arc<Self>) -> Result<Marker> {
        Deferred::mark(self)
    }

    /// Later commands wait for the marker.
    pub fn wait(self: &Arc<Self>, marker: &Marker) -> Result<()> {
        Deferred::wait(self, marker)
    }

    /// The failure that the lane's markers tell of was recorded. Whether there was any.
    pub fn recover(&self) -> bool {
        let failed = {
            let mut pending = self.pending();
            pending
                .waits
                .retain(|wait| !matches!(wait.outcome(), Some(Err(_))));
            pending.last.forget_failure()
        };
        let told = self.outlet.recover();
        self.deferred.recover() || failed || told
    }

    /// The epochs of the commands that failed and that nobody was told of.
    pub fn untold(&self) -> Vec<u64> {
        self.outlet.untold()
    }

    /// Blocks until what the queue was given up to this epoch has ended. Not `clFinish`: what is behind
    /// may wait for the host.
    pub fn settle(&self, epoch: u64) -> Result<()> {
        self.outlet.settle(epoch)
    }

    fn wait_for(&self, position: Position) -> Result<()> {
        let mut pending = self.pending();
        pending.waits.push(position);
        if pending.waits.len() >= MOST_WAITS && pending.forget_ended_waits().is_err() {
            self.deferred.fail();
        }
        if self.open.load(Ordering::Relaxed) || pending.waits.len() >= MOST_WAITS {
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
        self.outlet.chained
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

    /// What is waited for is on its way by then: its own queue may otherwise hold it back for ever.
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
    /// What is complete already holds nothing back. An error if any of it failed: then all is let go
    /// of, as some drivers never end what waits for an event that had failed before.
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
        while let Some((marker, _)) = self.keep.front() {
            let what = CL_EVENT_COMMAND_EXECUTION_STATUS;
            if event_property::<cl_int>(marker.event(), what)? > 0 {
                break;
            }
            self.keep.pop_front();
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

//! In-order command queues: opened by us, or the user's own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opencl_sys::*;
use ur::abi::*;
use ur::object::{Object, Result};
use ur::stream::{Stamps, Work};

use super::batch::Batch;
use super::{Marker, event_property, times};
use crate::OpenCl;
use crate::cl::{self, Api, ContextRef, EventRef, QueueRef, Version, check};
use crate::device::Device;

/// An in-order command queue.
pub struct Lane {
    pub(super) queue: QueueRef,
    profiles: bool,
    /// Whether the queue itself keeps commands in order. One of the user's own may not: then each
    /// waits for the one before.
    pub(super) in_order: bool,
    /// Whether others put work on the queue: what it waits for is then there at once.
    pub(super) open: AtomicBool,
    device: Arc<Object<Device>>,
    state: Mutex<Pending>,
}

/// What the next command has to know of those before it.
#[derive(Default)]
pub(super) struct Pending {
    pub last: Option<EventRef>,
    /// What the next command waits for.
    pub waits: Vec<EventRef>,
    /// Host memory that commands read, until they are done.
    pub keep: VecDeque<(EventRef, Box<[u8]>)>,
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
        Ok(Self::over(queue, device, profiles, true))
    }

    fn over(queue: QueueRef, device: &Object<Device>, profiles: bool, in_order: bool) -> Self {
        let open = AtomicBool::new(false);
        Self {
            queue,
            profiles,
            in_order,
            open,
            device: device.arc(),
            state: Mutex::default(),
        }
    }

    /// A command queue of the user's own, and its flags.
    pub fn adopt(queue: QueueRef, device: &Object<Device>) -> Result<(Self, ur_queue_flags_t)> {
        let bits: cl_command_queue_properties = queue_property(&queue, CL_QUEUE_PROPERTIES)?;
        let profiles = bits & CL_QUEUE_PROFILING_ENABLE != 0;
        let in_order = bits & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0;
        let flag = |set: bool, flag: ur_queue_flags_t| if set { flag.0 } else { 0 };
        let flags = flag(profiles, UR_QUEUE_FLAG_PROFILING_ENABLE)
            | flag(!in_order, UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE);
        let lane = Self::over(queue, device, profiles, in_order);
        Ok((lane, ur_queue_flags_t(flags)))
    }

    /// Others put work on the queue from now on, or no longer: what it has to wait for is then on it.
    pub fn set_open(&self, open: bool) -> Result<()> {
        let mut pending = self.pending();
        if open && !pending.waits.is_empty() {
            Batch::of(self, &mut pending).barrier()?;
        }
        self.open.store(open, Ordering::Relaxed);
        Ok(())
    }

    pub fn queue(&self) -> &QueueRef {
        &self.queue
    }

    pub(super) fn api(&self) -> &'static Api {
        self.queue.api()
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn submit(&self, work: Work<OpenCl>, stamps: Option<Arc<Stamps>>) -> Result<()> {
        let mut pending = self.pending();
        pending.forget_complete()?;
        let mut batch = Batch::of(self, &mut pending);
        batch.work(work)?;
        let first = batch.first.take();
        check(
            // SAFETY: a live queue.
            unsafe { (self.api().core.clFlush)(self.queue.raw()) },
            "clFlush",
        )?;
        if let Some(stamps) = stamps
            && let (Some(first), Some(last)) = (first, pending.last.clone())
        {
            if self.profiles {
                times::times(&stamps, first, last);
            } else {
                let marker = Marker::new(last);
                times::observed(&stamps, &marker, &self.device)?;
            }
        }
        Ok(())
    }

    /// A marker of everything submitted so far.
    pub fn mark(&self) -> Result<Marker> {
        let mut pending = self.pending();
        let event = match &pending.last {
            Some(event) => event.clone(),
            None => Batch::of(self, &mut pending).marker()?,
        };
        Ok(Marker::new(event))
    }

    pub fn wait(&self, marker: &Marker) -> Result<()> {
        let mut pending = self.pending();
        pending.waits.push(marker.event.clone());
        if self.open.load(Ordering::Relaxed) {
            Batch::of(self, &mut pending).barrier()?;
        }
        Ok(())
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

pub fn queue_property<T: Copy>(queue: &QueueRef, what: cl_command_queue_info) -> Result<T> {
    // SAFETY: a live queue.
    let ask = |size, value, ret| unsafe {
        (queue.api().core.clGetCommandQueueInfo)(queue.raw(), what, size, value, ret)
    };
    cl::value(ask, "clGetCommandQueueInfo")
}

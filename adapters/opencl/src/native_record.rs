//! Native commands of command buffers: foreign code records into a native command buffer, which becomes
//! one command.
//!
//! This module creates, finalizes and enqueues native buffers, which is the same in all versions of the
//! extension. A native buffer cannot be copied. So its commands are fixed once it is a command, and it
//! belongs to one command buffer.

use std::ptr::null_mut;
use std::sync::Arc;

use opencl_sys::*;
use ur::abi::ur_native_handle_t;
use ur::object::{Error, Object, Result};
use ur::stream::{Devices, NativeRecord, Work};

use crate::OpenCl;
use crate::cl::{Api, EventRef, Version, check, failure};
use crate::device::Device;
use crate::exec::{Lane, Native, Slot};
use crate::record::{self, Recorder};

/// A native command buffer that foreign code records into, and the queue that it was made for.
struct Record(Arc<Recorded>);

struct Recorded {
    buffer: Recorder,
    lane: Arc<Lane>,
}

/// Creates an empty command buffer on a queue of its own.
pub fn open(
    devices: &Devices<OpenCl>,
    device: &Object<Device>,
) -> Result<Arc<dyn NativeRecord<OpenCl>>> {
    if !record::has_buffers(device, Version::new(0, 9)) {
        return Err(Error::unsupported());
    }
    let context = &devices.state().context;
    let lane = Lane::open(context, device, Default::default())?;
    let buffer = Recorder::open(context.api(), lane.queue(), 0);
    let buffer = buffer.map_err(|code| failure(code, "clCreateCommandBufferKHR"))?;
    Ok(Arc::new(Record(Arc::new(Recorded { buffer, lane }))))
}

impl NativeRecord<OpenCl> for Record {
    fn handle(&self) -> ur_native_handle_t {
        self.0.buffer.raw().expose_provenance()
    }

    fn work(&self) -> Result<Work<OpenCl>> {
        let code = self.0.buffer.finalize();
        check(code, "clFinalizeCommandBufferKHR")?;
        let recorded = Arc::clone(&self.0);
        let run = move |api: &Api, slot: &Slot| recorded.enqueue(api, slot);
        Ok(Work::Native(Native::new(run)))
    }
}

impl Recorded {
    fn enqueue(&self, api: &Api, slot: &Slot) -> Result<()> {
        match self.buffer.enqueue(slot) {
            // The driver requires a queue with the properties of the buffer's queue.
            CL_INCOMPATIBLE_COMMAND_QUEUE_KHR => self.enqueue_on_own_queue(api, slot),
            code => check(code, "clEnqueueCommandBufferKHR"),
        }
    }

    /// Enqueues the buffer on its own queue, between two markers on the submitting queue.
    fn enqueue_on_own_queue(&self, api: &Api, slot: &Slot) -> Result<()> {
        let own = self.lane.queue().raw();
        let before = self.event_of(|event| mark(api, &Slot { event, ..*slot }))?;
        flush(api, slot.queue)?;
        let done = self.event_of(|event| {
            let own_slot = Slot {
                queue: own,
                count: 1,
                waits: &before.raw(),
                event,
            };
            check(self.buffer.enqueue(&own_slot), "clEnqueueCommandBufferKHR")
        })?;
        flush(api, own)?;
        let behind = Slot {
            count: 1,
            waits: &done.raw(),
            ..*slot
        };
        mark(api, &behind)
    }

    /// Enqueues a command and returns its event.
    fn event_of(&self, enqueue: impl FnOnce(*mut cl_event) -> Result<()>) -> Result<EventRef> {
        let mut event = null_mut();
        enqueue(&mut event)?;
        // SAFETY: a successful call returns an event with a reference for the caller.
        unsafe { EventRef::adopted(self.buffer.api(), event, true) }
    }
}

fn mark(api: &Api, slot: &Slot) -> Result<()> {
    let enqueue = api.core.clEnqueueMarkerWithWaitList;
    // SAFETY: queue and waits are alive.
    let code = unsafe { enqueue(slot.queue, slot.count, slot.waits, slot.event) };
    check(code, "clEnqueueMarkerWithWaitList")
}

/// Flushes a queue that another queue waits for: the driver may hold its commands otherwise.
fn flush(api: &Api, queue: cl_command_queue) -> Result<()> {
    // SAFETY: `QueueRef` holds a reference to the queue.
    check(unsafe { (api.core.clFlush)(queue) }, "clFlush")
}

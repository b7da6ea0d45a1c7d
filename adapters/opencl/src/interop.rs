//! Native handles of queues and events: adopted ones, and those given out.

use std::ptr;
use std::sync::Arc;

use opencl_sys::*;
use ur::abi::*;
use ur::object::{Object, Result, ensure};
use ur::stream::{Context, Event, Queue, Timestamps};

use crate::OpenCl;
use crate::cl::{EventRef, QueueRef};
use crate::device::Device;
use crate::exec::{self, Lane, Marker, Position};

/// The command type that stands for one of OpenCL's.
#[rustfmt::skip]
fn command(native: cl_command_type) -> ur_command_t {
    match native {
        CL_COMMAND_NDRANGE_KERNEL | CL_COMMAND_TASK => UR_COMMAND_KERNEL_LAUNCH,
        CL_COMMAND_MARKER => UR_COMMAND_EVENTS_WAIT,
        CL_COMMAND_BARRIER => UR_COMMAND_EVENTS_WAIT_WITH_BARRIER,
        CL_COMMAND_READ_BUFFER => UR_COMMAND_MEM_BUFFER_READ,
        CL_COMMAND_WRITE_BUFFER => UR_COMMAND_MEM_BUFFER_WRITE,
        CL_COMMAND_READ_BUFFER_RECT => UR_COMMAND_MEM_BUFFER_READ_RECT,
        CL_COMMAND_WRITE_BUFFER_RECT => UR_COMMAND_MEM_BUFFER_WRITE_RECT,
        CL_COMMAND_COPY_BUFFER => UR_COMMAND_MEM_BUFFER_COPY,
        CL_COMMAND_COPY_BUFFER_RECT => UR_COMMAND_MEM_BUFFER_COPY_RECT,
        CL_COMMAND_FILL_BUFFER => UR_COMMAND_MEM_BUFFER_FILL,
        CL_COMMAND_READ_IMAGE => UR_COMMAND_MEM_IMAGE_READ,
        CL_COMMAND_WRITE_IMAGE => UR_COMMAND_MEM_IMAGE_WRITE,
        CL_COMMAND_COPY_IMAGE => UR_COMMAND_MEM_IMAGE_COPY,
        CL_COMMAND_MAP_BUFFER => UR_COMMAND_MEM_BUFFER_MAP,
        CL_COMMAND_UNMAP_MEM_OBJECT => UR_COMMAND_MEM_UNMAP,
        CL_COMMAND_SVM_MEMCPY | CL_COMMAND_MEMCPY_INTEL => UR_COMMAND_USM_MEMCPY,
        CL_COMMAND_SVM_MEMFILL | CL_COMMAND_MEMFILL_INTEL => UR_COMMAND_USM_FILL,
        CL_COMMAND_MIGRATEMEM_INTEL => UR_COMMAND_USM_PREFETCH,
        CL_COMMAND_MEMADVISE_INTEL => UR_COMMAND_USM_ADVISE,
        _ => UR_COMMAND_ENQUEUE_NATIVE_EXP,
    }
}

/// `urQueueCreateWithNativeHandle`: a queue over a native command queue.
pub fn adopt_queue(
    this: &Object<Context<OpenCl>>,
    native: ur_native_handle_t,
    device: Option<&Object<Device>>,
    properties: Option<&ur_queue_native_properties_t>,
) -> Result<Arc<Object<Queue<OpenCl>>>> {
    let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
    let (raw, context) = (
        ptr::with_exposed_provenance_mut(native),
        &this.domain().state().context,
    );
    // SAFETY: `urQueueCreateWithNativeHandle` requires a native command queue.
    let queue = unsafe { QueueRef::adopted(context.api(), raw, false) }?;
    let of: usize = exec::queue_property(&queue, CL_QUEUE_CONTEXT)?;
    ensure(of == context.raw().addr(), UR_RESULT_ERROR_INVALID_CONTEXT)?;
    let id: usize = exec::queue_property(&queue, CL_QUEUE_DEVICE)?;
    let own = this
        .devices()
        .iter()
        .find(|device| device.raw().addr() == id);
    let device = match (device, own) {
        (Some(device), _) => device.arc(),
        (None, Some(own)) => Arc::clone(own),
        (None, None) => Device::from_native(id)?,
    };
    let (lane, flags) = Lane::adopt(queue.clone(), &device)?;
    let adopted = Queue::adopt(this, &device, flags, lane, false)?;
    queue.own(owned);
    Ok(adopted)
}

/// The native command queue of an in-order queue.
pub fn queue_handle(
    this: &Object<Queue<OpenCl>>,
    _: Option<&ur_queue_native_desc_t>,
) -> Result<ur_native_handle_t> {
    let raw = this.with_native(|lane| lane.queue().raw())?;
    Ok(raw.expose_provenance())
}

/// The native event of an event.
pub fn event_handle(this: &Object<Event<OpenCl>>) -> Result<ur_native_handle_t> {
    // Foreign code may wait for the event on another queue.
    Ok(exec::shown(&this.marker()?)?.raw().expose_provenance())
}

/// The queue of an adopted event: an existing one over the event's command queue, or a new one.
pub fn queue_of(
    this: &Object<Context<OpenCl>>,
    marker: &Marker,
) -> Result<Option<Arc<Object<Queue<OpenCl>>>>> {
    let Marker::Event(position) = marker else {
        return Ok(None);
    };
    let Some(queue) = position.queue() else {
        return Ok(None);
    };
    let raw = queue.raw();
    if let Some(own) = Queue::find(this, |lane| lane.queue().raw() == raw) {
        return Ok(Some(own));
    }
    adopt_queue(this, raw.expose_provenance(), None, None).map(Some)
}

/// `urEventCreateWithNativeHandle`: an event over a native event.
pub fn adopt_event(
    this: &Object<Context<OpenCl>>,
    native: ur_native_handle_t,
    properties: Option<&ur_event_native_properties_t>,
) -> Result<Arc<Object<Event<OpenCl>>>> {
    let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
    let (raw, context) = (
        ptr::with_exposed_provenance_mut(native),
        &this.domain().state().context,
    );
    // SAFETY: `urEventCreateWithNativeHandle` requires a native event.
    let event = unsafe { EventRef::adopted(context.api(), raw, false) }?;
    let of: usize = exec::event_property(&event, CL_EVENT_CONTEXT)?;
    ensure(of == context.raw().addr(), UR_RESULT_ERROR_INVALID_CONTEXT)?;
    let command = command(exec::event_property(&event, CL_EVENT_COMMAND_TYPE)?);
    let queued = exec::time(&event, CL_PROFILING_COMMAND_QUEUED);
    let queue: usize = exec::event_property(&event, CL_EVENT_COMMAND_QUEUE)?;
    let queue = (queue != 0).then(|| {
        let raw = ptr::with_exposed_provenance_mut(queue);
        // SAFETY: the driver returned the queue of a live event.
        unsafe { QueueRef::adopted(context.api(), raw, false) }
    });
    // The driver refuses to retain a queue that was released.
    let queue = queue.and_then(Result::ok);
    let position = Position::adopted(event.clone(), queue);
    let timestamps = queued.map(|queued| {
        let timestamps = Arc::new(Timestamps::default());
        exec::times(&timestamps, position.clone(), position.clone(), None);
        (queued, timestamps)
    });
    let adopted = Event::adopt(this, command, Marker::Event(position), timestamps)?;
    event.own(owned);
    Ok(adopted)
}

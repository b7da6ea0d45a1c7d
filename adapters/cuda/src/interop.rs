//! Native handles: streams and events of the driver, adopted and given out.

use std::ptr::{self, null_mut};
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Object, Result, chain, ensure};
use ur::stream::{Context, Event, NativeMarker, Queue};

use crate::Cuda;
use crate::device::Device;
use crate::exec::{self, Gpu, Lane, Marker};
use crate::vendor::{RawStream, is_capturable, is_captured};

/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: u32 = 1;

/// A queue over a foreign stream; null is the default stream.
pub fn adopt_queue(
    this: &Object<Context<Cuda>>,
    native: ur_native_handle_t,
    device: Option<&Object<Device>>,
    properties: Option<&ur_queue_native_properties_t>,
) -> Result<Arc<Object<Queue<Cuda>>>> {
    let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
    let stream: RawStream = ptr::with_exposed_provenance_mut(native);
    let device = match device {
        Some(device) => device.arc(),
        None => owner(this, stream)?,
    };
    let gpu = device.gpu()?;
    let flags = flags(&gpu, stream)?;
    let lane = Lane::adopt(&gpu, stream, owned && native != 0);
    // SAFETY: `urQueueCreateWithNativeHandle` promises live structs in the chain.
    let promise = properties.and_then(|properties| unsafe {
        chain::find::<ur_base_properties_t>(properties.pNext, chain::NEVER_CAPTURED)
    });
    let captured = promise.is_none() && is_capturable(stream);
    Queue::adopt(this, &device, flags, lane, captured)
}

/// The device that a stream belongs to.
fn owner(this: &Object<Context<Cuda>>, stream: RawStream) -> Result<Arc<Object<Device>>> {
    let devices = this.devices();
    if stream.is_null() {
        return Ok(Arc::clone(&devices[0]));
    }
    let gpu = devices[0].gpu()?;
    let _current = gpu.enter()?;
    let mut context = null_mut();
    // SAFETY: the caller promises a live stream.
    let code = unsafe { (gpu.api.cuStreamGetCtx)(stream, &mut context) };
    gpu.check(code, "cuStreamGetCtx")?;
    let own = |device: &&Arc<Object<Device>>| {
        device
            .gpu()
            .is_ok_and(|gpu| ptr::eq(gpu.context(), context))
    };
    let found = devices.iter().find(own).cloned();
    found.ok_or(Error::new(UR_RESULT_ERROR_INVALID_CONTEXT))
}

fn flags(gpu: &Gpu, stream: RawStream) -> Result<ur_queue_flags_t> {
    if stream.is_null() {
        return Ok(UR_QUEUE_FLAG_USE_DEFAULT_STREAM);
    }
    let _current = gpu.enter()?;
    let (mut bits, mut priority, mut context) = (0, 0, null_mut());
    // SAFETY: the caller promises a live stream, and the output has room.
    let code = unsafe { (gpu.api.cuStreamGetCtx)(stream, &mut context) };
    gpu.check(code, "cuStreamGetCtx")?;
    let same = ptr::eq(context, gpu.context());
    ensure(same, UR_RESULT_ERROR_INVALID_CONTEXT)?;
    // The next two queries would end the capture of a captured stream.
    if is_captured(gpu.api, context, stream) {
        return Ok(ur_queue_flags_t(0));
    }
    // SAFETY: the caller promises a live stream; each output has room.
    unsafe {
        let code = (gpu.api.cuStreamGetFlags)(stream, &mut bits);
        gpu.check(code, "cuStreamGetFlags")?;
        let code = (gpu.api.cuStreamGetPriority)(stream, &mut priority);
        gpu.check(code, "cuStreamGetPriority")?;
    }
    let mut flags = ur_queue_flags_t(0);
    if bits & NON_BLOCKING == 0 {
        flags |= UR_QUEUE_FLAG_SYNC_WITH_DEFAULT_STREAM;
    }
    Ok(match priority {
        ..0 => flags | UR_QUEUE_FLAG_PRIORITY_HIGH,
        0 => flags,
        1.. => flags | UR_QUEUE_FLAG_PRIORITY_LOW,
    })
}

/// The stream of a queue.
pub fn queue_handle(
    this: &Object<Queue<Cuda>>,
    _: Option<&ur_queue_native_desc_t>,
) -> Result<ur_native_handle_t> {
    this.with_native(|lane| lane.stream().expose_provenance())
}

/// An event over a foreign event of the driver.
pub fn adopt_event(
    this: &Object<Context<Cuda>>,
    native: ur_native_handle_t,
    properties: Option<&ur_event_native_properties_t>,
) -> Result<Arc<Object<Event<Cuda>>>> {
    let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
    let raw = ptr::with_exposed_provenance_mut(native);
    let mut failed = Error::new(UR_RESULT_ERROR_INVALID_VALUE);
    let mut home = None;
    let adopt = |gpu| {
        let marker = Marker::Event(Arc::new(exec::Event::adopt(gpu, raw, owned)));
        Event::adopt(this, UR_COMMAND_ENQUEUE_NATIVE_EXP, marker, None)
    };
    // A query would end the capture of a stream that the event was recorded on.
    if let [only] = this.devices() {
        ensure(!raw.is_null(), UR_RESULT_ERROR_INVALID_VALUE)?;
        return adopt(&only.gpu()?);
    }
    // Older drivers accept an event in its own context only. The query fails if the handle is no event.
    for device in this.devices() {
        let gpu = device.gpu()?;
        match exec::Event::adopt(&gpu, raw, false).is_done() {
            Ok(_) => {
                home = Some(gpu);
                break;
            }
            Err(error) => failed = error,
        }
    }
    adopt(&home.ok_or(failed)?)
}

/// The driver's event of an event. A point that the host has not signalled has none.
pub fn event_handle(this: &Object<Event<Cuda>>) -> Result<ur_native_handle_t> {
    match this.marker()?.native()? {
        NativeMarker::Event(event) => Ok(event.raw().expose_provenance()),
        NativeMarker::Point(point) => {
            ensure(point.is_signalled(), UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
            let event = point.point.complete_event()?;
            Ok(event.raw().expose_provenance())
        }
    }
}

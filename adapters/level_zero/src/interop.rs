//! Native handles: immediate command lists and events of the driver, adopted and given out.

use std::ptr;
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Object, Result, chain, ensure};
use ur::stream::{Context, Event, NativeMarker, Queue};

use crate::LevelZero;
use crate::device::Device;
use crate::exec::{self, Lane, Marker};
use crate::lz::*;

/// A queue over a foreign immediate list. Where the loader can say whether a list keeps its order it is asked; else
/// every command gets a barrier behind it.
pub fn adopt_queue(
    this: &Object<Context<LevelZero>>,
    native: ur_native_handle_t,
    device: Option<&Object<Device>>,
    properties: Option<&ur_queue_native_properties_t>,
) -> Result<Arc<Object<Queue<LevelZero>>>> {
    ensure(native != 0, UR_RESULT_ERROR_INVALID_QUEUE)?;
    let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
    let list = ze_command_list_handle_t(ptr::with_exposed_provenance_mut(native));
    let context = &this.domain().state().native;
    let api = context.api;
    // SAFETY: the caller promises a live list.
    let is_immediate =
        asked(|answer| unsafe { api.zeCommandListIsImmediate?(list, answer).into() })?;
    ensure(is_immediate != Some(0), UR_RESULT_ERROR_INVALID_QUEUE)?;
    let device = match device {
        Some(device) => device.arc(),
        None => owner(this, api, list)?,
    };
    // SAFETY: the caller promises a live list.
    let flags =
        asked(|answer| unsafe { api.zeCommandListImmediateGetFlags?(list, answer).into() })?;
    let is_in_order = flags.unwrap_or(0) & ZE_COMMAND_QUEUE_FLAG_IN_ORDER != 0;
    let lane = Lane::adopt(context, &device, list, is_in_order, owned);
    // SAFETY: `urQueueCreateWithNativeHandle` promises live structs in the chain.
    let promise = properties.and_then(|properties| unsafe {
        chain::find::<ur_base_properties_t>(properties.pNext, chain::NEVER_CAPTURED)
    });
    let captured = promise.is_none() && lane.stream().list.graphs.is_some();
    Queue::adopt(this, &device, ur_queue_flags_t(0), lane, captured)
}

/// The device of a list: the context's first where the loader does not tell.
fn owner(
    this: &Object<Context<LevelZero>>,
    api: &Api,
    list: ze_command_list_handle_t,
) -> Result<Arc<Object<Device>>> {
    let devices = this.devices();
    // SAFETY: the caller promises a live list.
    let device = asked(|answer| unsafe { api.zeCommandListGetDeviceHandle?(list, answer).into() })?;
    let Some(device) = device else {
        return Ok(Arc::clone(&devices[0]));
    };
    let found = devices.iter().find(|own| own.raw() == device).cloned();
    found.ok_or(Error::new(UR_RESULT_ERROR_INVALID_CONTEXT))
}

/// What an optional function answers of a list. None where the loader or its driver lacks the function.
fn asked<T: Default>(ask: impl FnOnce(&mut T) -> Option<ze_result_t>) -> Result<Option<T>> {
    let mut answer = T::default();
    match ask(&mut answer) {
        None | Some(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE) => Ok(None),
        Some(code) => check(code, "a query of a list").map(|()| Some(answer)),
    }
}

/// The immediate list of a queue. The description's data becomes 1, as Intel's adapters say of such a list.
pub fn queue_handle(
    this: &Object<Queue<LevelZero>>,
    desc: Option<&ur_queue_native_desc_t>,
) -> Result<ur_native_handle_t> {
    let data = desc.map_or(ptr::null_mut(), |desc| desc.pNativeData);
    let handle = this.with_native(|lane| lane.stream().list.raw.0.expose_provenance())?;
    if !data.is_null() {
        // SAFETY: `urQueueGetNativeHandle` requires room for what the backend says of a queue: an `int32_t`.
        unsafe { data.cast::<i32>().write(1) };
    }
    Ok(handle)
}

/// An event over a foreign event.
pub fn adopt_event(
    this: &Object<Context<LevelZero>>,
    native: ur_native_handle_t,
    properties: Option<&ur_event_native_properties_t>,
) -> Result<Arc<Object<Event<LevelZero>>>> {
    ensure(native != 0, UR_RESULT_ERROR_INVALID_EVENT)?;
    let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
    let raw = ze_event_handle_t(ptr::with_exposed_provenance_mut(native));
    let context = &this.domain().state().native;
    let event = exec::Event::adopt(context, &this.devices()[0], raw, owned);
    let marker = Marker::Event(Arc::new(event));
    Event::adopt(this, UR_COMMAND_ENQUEUE_NATIVE_EXP, marker, None)
}

/// The driver's event of an event: for a point of the host's, one that is signalled with it.
pub fn event_handle(this: &Object<Event<LevelZero>>) -> Result<ur_native_handle_t> {
    let event = match this.marker()?.native()? {
        NativeMarker::Event(event) => Arc::clone(event),
        NativeMarker::Point(point) => point.point.native()?,
    };
    Ok(event.raw()?.0.expose_provenance())
}

//! Events that other processes wait for.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use ur::abi::*;
use ur::ipc::blob::{self, Subject};
use ur::object::{Error, Object, Result, ensure};
use ur::stream::{Event, NativeMarker, Work};

use super::{OfContext, kind};
use crate::Cuda;
use crate::cu::sys::CUipcEventHandle;
use crate::device::Device;
use crate::exec::{self, Gpu, Marker, Native};

/// Bytes of the driver's handle.
const HANDLE_BYTES: usize = size_of::<CUipcEventHandle>();

/// A native event that other processes can open.
pub fn new(device: &Object<Device>) -> Result<Marker> {
    ensure(device.shares_events(), UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    let event = device.gpu()?.shared_event()?;
    Ok(Marker::Event(Arc::new(event)))
}

/// The driver's event of a marker that [`new`] made.
fn native(marker: &Marker) -> Result<Arc<exec::Event>> {
    match marker.native()? {
        NativeMarker::Event(event) => Ok(Arc::clone(event)),
        NativeMarker::Point(_) => Err(Error::new(UR_RESULT_ERROR_INVALID_EVENT)),
    }
}

/// The work that records a native event.
pub fn record(marker: &Marker) -> Result<Work<Cuda>> {
    let event = native(marker)?;
    let record = Native::call(move |_: &Arc<Gpu>, stream| event.record(stream));
    Ok(Work::Native(record))
}

/// `urIPCGetEventHandleExp`
pub fn get(this: &Object<Event<Cuda>>) -> Result<(*mut c_void, usize)> {
    let marker = this.shared_marker()?;
    let event = native(marker)?;
    let gpu = event.gpu();
    let calls = gpu.api.shared_events().ok_or(Error::unsupported())?;
    let _current = gpu.enter()?;
    let mut handle = CUipcEventHandle {
        reserved: [0; HANDLE_BYTES],
    };
    // SAFETY: `handle` is writable, and `event` keeps the event alive.
    let code = unsafe { (calls.get)(&mut handle, event.raw()) };
    gpu.check(code, "cuIpcGetEventHandle")?;
    let contents = handle.reserved.map(|byte| byte as u8);
    let kind = kind(Subject::Event);
    let given = &this.context().domain().state().shared.given;
    // An event must not be destroyed while others use it.
    Ok(given.give(kind, blob::write(kind, &contents), marker.clone()))
}

/// `urIPCOpenEventHandleExp`. The blob does not tell its device: each one of the context is tried.
pub fn open(this: &OfContext, data: &[u8]) -> Result<Arc<Object<Event<Cuda>>>> {
    let contents = blob::read::<HANDLE_BYTES>(kind(Subject::Event), data)?;
    let mut refused = Error::unsupported();
    for device in this.devices() {
        ensure(device.shares_events(), UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        let gpu = device.gpu()?;
        match open_on(&gpu, &contents) {
            Ok(event) => return Event::open_shared(this, Marker::Event(Arc::new(event))),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

fn open_on(gpu: &Arc<Gpu>, contents: &[u8; HANDLE_BYTES]) -> Result<exec::Event> {
    let calls = gpu.api.shared_events().ok_or(Error::unsupported())?;
    let _current = gpu.enter()?;
    let handle = CUipcEventHandle {
        reserved: contents.map(|byte| byte as _),
    };
    let mut raw = null_mut();
    // SAFETY: `raw` is writable.
    let code = unsafe { (calls.open)(&mut raw, handle) };
    gpu.check(code, "cuIpcOpenEventHandle")?;
    Ok(exec::Event::adopt(gpu, raw, true))
}

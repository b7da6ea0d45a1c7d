//! Events that other processes wait for.

use std::ffi::c_void;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;

use ur::abi::*;
use ur::ipc::blob::{ExportName, Subject};
use ur::ipc::broker::{self, Export};
use ur::ipc::duplicate;
use ur::object::{Error, Object, Result, ensure};
use ur::stream::{Devices, Event, NativeMarker, Work};

use super::{OfContext, check_able, kind, shared};
use crate::LevelZero;
use crate::context::native;
use crate::device::Device;
use crate::exec::{self, Marker, Native, Ring};
use crate::lz::*;

/// An event that other processes can open.
pub fn new(devices: &Devices<LevelZero>, device: &Object<Device>) -> Result<Marker> {
    let able = device.shares(ZE_IPC_PROPERTY_FLAG_EVENT_POOL);
    ensure(able, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    let ring = Ring::new(native(devices))?;
    Ok(marker(device, ring))
}

fn marker(device: &Object<Device>, ring: Ring) -> Marker {
    Marker::Event(Arc::new(exec::Event::of_ring(device, Arc::new(ring))))
}

/// The events behind a marker that [`new`] made.
fn ring(marker: &Marker) -> Result<&Arc<Ring>> {
    let none = Error::new(UR_RESULT_ERROR_INVALID_EVENT);
    match marker.native()? {
        NativeMarker::Event(event) => event.ring().ok_or(none),
        NativeMarker::Point(_) => Err(none),
    }
}

/// The work that signals the event.
pub fn record(marker: &Marker) -> Result<Work<LevelZero>> {
    let ring = Arc::clone(ring(marker)?);
    let next = ring.advance()?;
    let signal = Native::call(move |list| {
        let _ = &ring;
        // SAFETY: a live list, and a live event of the same context.
        unsafe { call!(list.api, zeCommandListAppendSignalEvent(list.raw, next)) }
    });
    Ok(Work::Native(signal))
}

/// `urIPCGetEventHandleExp`
pub fn get(this: &Object<Event<LevelZero>>) -> Result<(*mut c_void, usize)> {
    check_able(this.context(), Subject::Event)?;
    let marker = this.shared_marker()?.clone();
    let ring = Arc::clone(ring(&marker)?);
    let pages = Vec::from(Ring::PARTS);
    let export = Export {
        bytes: pages.iter().sum(),
        pages,
        descriptor: Box::new(move |part| ring.descriptor(part)),
        offset: 0,
        keeps: Box::new(marker),
    };
    let given = &shared(this.context()).given;
    given.publish(kind(Subject::Event), export)
}

/// `urIPCOpenEventHandleExp`
pub fn open(this: &OfContext, data: &[u8]) -> Result<Arc<Object<Event<LevelZero>>>> {
    check_able(this, Subject::Event)?;
    let device = &this.devices()[0];
    let name = ExportName::read(kind(Subject::Event), data)?;
    let opened = broker::open(&name, |file: &OwnedFd| duplicate(file.as_raw_fd()))?;
    let files: Vec<_> = opened.pages.into_iter().map(|(file, _)| file).collect();
    let ring = Ring::open(&this.domain().state().native, &files)?;
    Event::open_shared(this, marker(device, ring))
}

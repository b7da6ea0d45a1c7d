//! Mapping of buffers to the host.

use crate::abi::*;
use crate::object::{Handles, Object, OutHandle, Result};
use crate::stream::{Driver, Event, Queue};
use std::ffi::c_void;

/// `urEnqueueMemBufferMap` of a `range`: offset and length in bytes.
pub(crate) fn map<D: Driver>(
    this: &Object<Queue<D>>,
    buffer: &Object<D::Mem>,
    blocking: bool,
    flags: ur_map_flags_t,
    (offset, bytes): (usize, usize),
    waits: Handles<'_, Event<D>>,
    event: OutHandle<'_, Event<D>>,
) -> Result<*mut c_void> {
    this.live(waits)?;
    this.target().buffer_range(buffer, offset, bytes)?;
    let (pointer, work) = D::map(buffer, this.device(), flags, offset, bytes)?;
    let command = UR_COMMAND_MEM_BUFFER_MAP;
    Queue::enqueue(this, command, waits, work, event, blocking)?;
    Ok(std::ptr::with_exposed_provenance_mut(pointer.get()))
}

/// `urEnqueueMemUnmap`
pub(crate) fn unmap<D: Driver>(
    this: &Object<Queue<D>>,
    mem: &Object<D::Mem>,
    mapped: *mut c_void,
    waits: Handles<'_, Event<D>>,
    event: OutHandle<'_, Event<D>>,
) -> Result<()> {
    this.live(waits)?;
    let work = D::unmap(mem, this.device(), mapped.addr())?;
    Queue::enqueue(this, UR_COMMAND_MEM_UNMAP, waits, work, event, false)
}

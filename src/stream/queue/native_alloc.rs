//! Asynchronous allocation from a backend's own pools: commands of the queue's lanes.

use crate::abi::*;
use crate::object::{Error, Handles, Object, OutHandle, Result};
use crate::stream::driver::Progress;
use crate::stream::engine::dependencies::Dependencies;
use crate::stream::event::Event;
use crate::stream::queue::Shape;
use crate::stream::usm::native_pool::NativeRequest;
use crate::stream::usm::pool_core::PoolCore;
use crate::stream::{Driver, Queue};
use std::ffi::c_void;
use std::sync::Arc;

/// [`alloc`](super::alloc::alloc) from a part that the backend serves. Without an event, no command
/// could follow the allocation on an out-of-order queue, so the memory is ready on return there.
pub(crate) fn alloc<D: Driver>(
    this: &Object<Queue<D>>,
    (core, part): (&Arc<PoolCore<D>>, usize),
    command: ur_command_t,
    size: usize,
    waits: &Dependencies,
    event: OutHandle<'_, Event<D>>,
) -> Result<*mut c_void> {
    let request = NativeRequest::new(core, part, size)?;
    let native = request.native;
    let wanted = event.wanted();
    let serve = || {
        let mut base = 0;
        let submit = |lane: &D::Lane, epoch| {
            base = native.serve(|| native.pool.alloc(lane, epoch, size))?;
            Ok(Progress::Pending)
        };
        let deps = match &this.shape {
            Shape::InOrder(lane) => lane.submit_with(&[waits], wanted, submit)?,
            Shape::OutOfOrder(lanes) if wanted => {
                lanes.lock().submit_with(waits, wanted, submit)?
            }
            Shape::OutOfOrder(_) => {
                base = native.serve(|| native.pool.alloc_now(size))?;
                None
            }
        };
        Ok((base as u64, deps))
    };
    let served = request.serve(serve);
    let (base, deps) = match served {
        Err(error) if core.waits_for_native(&error)? => request.serve(serve)?,
        served => served?,
    };
    let memory = request.served(base, base);
    if let Some(deps) = deps.filter(|_| wanted) {
        let done = deps.done.clone();
        let (deps, times) = this.timed(deps).inspect_err(|_| {
            // Nobody gets to know the memory.
            let found = (Arc::clone(core), part);
            this.context().domain().free_native(found, base, done);
        })?;
        Queue::deliver(this, command, Some(deps), times, event, false)?;
    }
    Ok(memory)
}

/// [`free`](super::alloc::free) of what a native pool gave.
pub(crate) fn free<D: Driver>(
    this: &Object<Queue<D>>,
    (core, part): (Arc<PoolCore<D>>, usize),
    addr: u64,
    waits: Handles<'_, Event<D>>,
    event: OutHandle<'_, Event<D>>,
) -> Result<()> {
    let unknown = Error::new(UR_RESULT_ERROR_INVALID_MEM_OBJECT);
    let waits = Event::join_list(this.context(), waits)?;
    let native = core.native(part).ok_or(unknown)?;
    let live = core.take_live(part, addr).ok_or(unknown)?;
    let (base, wanted) = (live.base as usize, event.wanted());
    let submit = |lane: &D::Lane, epoch| {
        native.pool.free(lane, epoch, base)?;
        Ok(Progress::Pending)
    };
    let submitted = match &this.shape {
        Shape::InOrder(lane) => lane.submit_with(&[waits], wanted, submit),
        Shape::OutOfOrder(lanes) => lanes.lock().submit_with(&waits, wanted, submit),
    };
    let deps = submitted.inspect_err(|_| core.restore_live(part, addr, live))?;
    let Some(deps) = deps.filter(|_| wanted) else {
        return Ok(());
    };
    // The memory is free, whatever becomes of the event's times.
    let (deps, times) = this.timed(deps.clone()).unwrap_or((deps, None));
    let command = UR_COMMAND_ENQUEUE_USM_FREE_EXP;
    Queue::deliver(this, command, Some(deps), times, event, false)
}

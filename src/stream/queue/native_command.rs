//! Native commands: work that the user gives to the stream beneath, as one command of the queue.
//!
//! The lane is open while the user's function runs, so that what others do with it meanwhile counts on
//! nothing; a command of ours behind the work then stands for it, and the lane is as before.

use crate::abi::{UR_COMMAND_ENQUEUE_NATIVE_EXP, ur_exp_enqueue_native_command_function_t};
use crate::hal::Unwrapped;
use crate::object::{Handles, Object, OutHandle, Result};
use crate::stream::engine::dependencies::Dependencies;
use crate::stream::engine::leases::Lease;
use crate::stream::event::{Event, Times};
use crate::stream::lane::LaneCore;
use crate::stream::queue::Shape;
use crate::stream::{Driver, Queue, Timestamps, Work};
use std::ffi::c_void;
use std::sync::Arc;

/// A lane that a native command has, until dropped.
struct Borrowed<'a, D: Driver>(Lease<'a, LaneCore<D>>);

impl<D: Driver> Drop for Borrowed<'_, D> {
    fn drop(&mut self) {
        if let Err(error) = self.0.what.end_lease() {
            log::error!("a lane stays open: {:?}", error.code());
        }
    }
}

/// The user's function of a native command, and what it is to be called with.
pub struct NativeCall {
    pub run: <ur_exp_enqueue_native_command_function_t as Unwrapped>::Fn,
    pub data: *mut c_void,
}

impl NativeCall {
    /// Enqueues the function as one command: see [`enqueue`].
    pub fn enqueue<D: Driver>(
        self,
        queue: &Object<Queue<D>>,
        bring: Option<Work<D>>,
        waits: Handles<'_, Event<D>>,
        event: OutHandle<'_, Event<D>>,
    ) -> Result<()> {
        enqueue(queue, bring, waits, event, || self.on(queue))
    }

    fn on<D: Driver>(&self, queue: &Object<Queue<D>>) {
        // SAFETY: the user's function with the user's data and a live queue, called once.
        unsafe { (self.run)(queue.handle().cast(), self.data) }
    }
}

/// Calls `run`, which may give work to the stream that [`Queue::expose`] shows there: between what
/// the queue's order and the wait list demand before, `bring` included, and what comes after.
pub(crate) fn enqueue<D: Driver>(
    this: &Object<Queue<D>>,
    bring: Option<Work<D>>,
    waits: Handles<'_, Event<D>>,
    event: OutHandle<'_, Event<D>>,
    run: impl FnOnce(),
) -> Result<()> {
    this.engine().check()?;
    this.live(waits)?;
    let waits = Event::join_list(this.context(), waits)?;
    let queued = match event.wanted() {
        true => this.times(false)?,
        false => None,
    };
    let lease = lease(this, &waits, bring, queued.as_ref())?;
    // The user's work cannot be dropped once it is on the stream: a failure that is known only later
    // reaches the command's event and what comes after it.
    if !lease.0.what.drops(&waits) {
        D::call_user(this.device(), run)?;
    }
    let end = queued.as_ref().map(|_| Arc::new(Timestamps::default()));
    let lane = Arc::clone(&lease.0.what);
    let behind = lane.submit(&waits, Work::Marker, end.clone(), event.wanted());
    let deps = behind.inspect_err(|_| {
        // Nothing of ours covers the work: the lane stays open.
        if let Err(error) = lane.share_native() {
            log::error!("native work is lost sight of: {:?}", error.code());
        }
    })?;
    drop(lease);
    let times = queued
        .zip(end)
        .map(|(Times { queued, timestamps }, end)| Times {
            queued,
            timestamps: Timestamps::between(timestamps, end),
        });
    Queue::deliver(
        this,
        UR_COMMAND_ENQUEUE_NATIVE_EXP,
        deps,
        times,
        event,
        false,
    )
}

/// A lane with everything on it that comes before the command. With `times`, that is when the
/// command starts.
fn lease<'a, D: Driver>(
    this: &'a Queue<D>,
    waits: &Dependencies,
    bring: Option<Work<D>>,
    times: Option<&Times>,
) -> Result<Borrowed<'a, D>> {
    let (lane, waits) = match &this.shape {
        Shape::InOrder(lane) => {
            lane.lease()?;
            (Arc::clone(lane), waits.clone())
        }
        Shape::OutOfOrder(lanes) => lanes.lock().lease(waits)?,
    };
    let lease = Borrowed(this.leased.lease(&lane));
    let timestamps = times.map(|times| Arc::clone(&times.timestamps));
    match bring.or(timestamps.is_some().then_some(Work::Marker)) {
        Some(work) => drop(lease.0.what.submit(&waits, work, timestamps, false)?),
        None => drop(lease.0.what.after(&waits)?),
    }
    Ok(lease)
}

//! Native commands: a user function submits to the native stream, as one command of the queue. On a
//! capturing queue its work is recorded: see `capture` and `stream_capture`.
//!
//! The lane is open to foreign submitters while the function runs. A marker of the lane behind the
//! work then stands for it.

use crate::abi::{UR_COMMAND_ENQUEUE_NATIVE_EXP, ur_exp_enqueue_native_command_function_t};
use crate::hal::Unwrapped;
use crate::object::{Handles, Object, OutHandle, Result};
use crate::stream::driver::call_user;
use crate::stream::engine::dependencies::Dependencies;
use crate::stream::engine::leases::Lease;
use crate::stream::event::{Event, Times};
use crate::stream::lane::LaneCore;
use crate::stream::queue::{Recorder, Shape, capture, stream_capture};
use crate::stream::{Driver, Queue, Timestamps, Work};
use std::ffi::c_void;
use std::sync::Arc;

/// The lease of a lane, until dropped.
struct Borrowed<'a, D: Driver>(Lease<'a, LaneCore<D>>);

impl<D: Driver> Drop for Borrowed<'_, D> {
    fn drop(&mut self) {
        if let Err(error) = self.0.what.end_lease() {
            log::error!("a lane stays open: {:?}", error.code());
        }
    }
}

/// The user function of a native command, and its data.
pub(crate) struct NativeCall {
    pub run: <ur_exp_enqueue_native_command_function_t as Unwrapped>::Fn,
    pub data: *mut c_void,
}

impl NativeCall {
    /// Enqueues the function as one command, which comes after `bring`.
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

/// Calls `run`, which may submit to the stream of [`Queue::with_native`]. Its work comes after the
/// queue's order, the wait list and `bring`, and before later commands.
pub(crate) fn enqueue<D: Driver>(
    this: &Object<Queue<D>>,
    bring: Option<Work<D>>,
    waits: Handles<'_, Event<D>>,
    event: OutHandle<'_, Event<D>>,
    run: impl FnOnce(),
) -> Result<()> {
    this.engine().check()?;
    match this.recorder(waits)? {
        None => {}
        Some(Recorder::Graph) => {
            return capture::native_command(this, bring, waits, event, run);
        }
        Some(Recorder::Stream) => {
            return stream_capture::native_command(this, bring, waits, event, run);
        }
    }
    let waits = Event::join_list(this.context(), waits)?;
    let queued = match event.wanted() {
        true => this.times(false)?,
        false => None,
    };
    let lease = lease(this, &waits, bring, queued.as_ref())?;
    // Submitted user work cannot be dropped: a failure that is known only later propagates to the
    // command's event and its dependents.
    if !lease.0.what.drops(&waits) {
        call_user::<D>(this.device(), run)?;
    }
    let end = queued.as_ref().map(|_| Arc::new(Timestamps::default()));
    let lane = Arc::clone(&lease.0.what);
    let behind = lane.submit(&waits, Work::Marker, end.clone(), event.wanted());
    let deps = behind.inspect_err(|_| {
        // No marker covers the work: the lane stays open.
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

/// Submits work that foreign code sees: the stream itself waits for all that it comes after, the host
/// included.
pub(crate) fn submit_open<D: Driver>(
    this: &Object<Queue<D>>,
    waits: &Dependencies,
    work: Work<D>,
) -> Result<()> {
    let lease = lease(this, waits, Some(work), None)?;
    drop(lease);
    Ok(())
}

/// Leases a lane with all dependencies of the command submitted to it. `times` records the start of
/// the command.
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

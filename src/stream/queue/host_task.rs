//! Host tasks: user functions as commands of a queue, run on the engine's threads.

use crate::abi::*;
use crate::object::{Handles, Object, OutHandle, Result};
use crate::stream::driver::call_user_anyway;
use crate::stream::engine::HostPoint;
use crate::stream::engine::dependencies::Dependencies;
use crate::stream::event::{Event, Times};
use crate::stream::queue::capture::{self, CaptureOrder};
use crate::stream::queue::{Recorder, stream_capture};
use crate::stream::recording::command::Command;
use crate::stream::work::call::{Call, HostFunction};
use crate::stream::{Driver, Queue, Work};
use crate::timeline::Failure;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A pending task. Dropping it completes it.
struct Task<D: Driver> {
    call: Call,
    timestamps: Option<Arc<crate::stream::Timestamps>>,
    point: HostPoint<D>,
    /// Keeps the queue, its device and its context.
    queue: Arc<Object<Queue<D>>>,
}

impl<D: Driver> Task<D> {
    fn call(self) {
        self.record_time(|timestamps| &timestamps.start);
        // SAFETY: the user's function, called once with the user's data.
        let call = || unsafe { (self.call.run)(self.call.data) };
        call_user_anyway::<D>(self.queue.device(), call);
        self.record_time(|timestamps| &timestamps.end);
        self.point.signal();
    }

    /// A dependency failed: the task does not run and fails too.
    fn fail(self) {
        let why = Failure::new();
        self.queue.add_failure(&why);
        self.point.fail(&why);
    }

    fn record_time(&self, which: impl Fn(&crate::stream::Timestamps) -> &AtomicU64) {
        if let Some(timestamps) = &self.timestamps
            && let Ok(now) = D::now(self.queue.device())
        {
            which(timestamps).store(now, Ordering::Release);
        }
    }
}

pub(crate) fn enqueue<D: Driver>(
    this: &Object<Queue<D>>,
    run: HostFunction,
    data: *mut c_void,
    waits: Handles<'_, Event<D>>,
    event: OutHandle<'_, Event<D>>,
) -> Result<()> {
    let engine = this.engine();
    engine.check()?;
    let call = Call { run, data };
    if let Some(recorder) = this.recorder(waits)? {
        let made = Command {
            host: Some(call),
            ..Command::new(UR_COMMAND_HOST_TASK_EXP, Work::Marker)
        };
        return match recorder {
            Recorder::Graph => capture::record(this, made, waits, event, CaptureOrder::Command),
            Recorder::Stream => stream_capture::submit(this, made, waits, event),
        };
    }
    let waits = Event::join_list(this.context(), waits)?;
    let times = if event.wanted() {
        this.times(false)?
    } else {
        None
    };
    let signal = engine.host_signal(this.context().domain())?;
    let (point, before) = this.hold(&waits, signal)?;
    let deps = before.after_host_point(&point.point);
    let timestamps = times
        .as_ref()
        .map(|times: &Times| Arc::clone(&times.timestamps));
    start(this, call, point, timestamps, before)?;
    let deps = event.wanted().then(|| deps.into());
    Queue::deliver(this, UR_COMMAND_HOST_TASK_EXP, deps, times, event, false)
}

/// Runs a task after `before`. The queue waits for its point already.
pub(crate) fn start<D: Driver>(
    this: &Object<Queue<D>>,
    call: Call,
    point: HostPoint<D>,
    timestamps: Option<Arc<crate::stream::Timestamps>>,
    before: Dependencies,
) -> Result<()> {
    let task = Task {
        call,
        timestamps,
        point,
        queue: this.arc(),
    };
    this.engine().when(before, move |failure| match failure {
        None => task.call(),
        Some(_) => task.fail(),
    })
}

//! Host tasks: the user's functions as commands of a queue, run on the engine's threads.

use super::engine::HostPoint;
use super::event::{Event, Times};
use super::reach::Reach;
use super::{Driver, Queue};
use crate::abi::*;
use crate::hal::Unwrapped;
use crate::object::{Handles, Object, OutHandle, Result};
use crate::timeline::Frontier;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Function = <ur_exp_host_task_function_t as Unwrapped>::Fn;

/// A task that waits for its turn. Dropped without having run, it completes all the same.
struct Task<D: Driver> {
    run: Function,
    data: *mut c_void,
    stamps: Option<Arc<super::Stamps>>,
    point: HostPoint<D>,
    /// Keeps the queue, its device and its context.
    queue: Arc<Object<Queue<D>>>,
}

// SAFETY: whoever enqueues a host task promises that it may run on another thread.
unsafe impl<D: Driver> Send for Task<D> {}

impl<D: Driver> Task<D> {
    fn call(self) {
        self.stamp(|stamps| &stamps.start);
        // SAFETY: the user's function, called once with the user's data.
        unsafe { (self.run)(self.data) };
        self.stamp(|stamps| &stamps.end);
        self.point.signal();
    }

    fn stamp(&self, which: impl Fn(&super::Stamps) -> &AtomicU64) {
        if let Some(stamps) = &self.stamps
            && let Ok(now) = D::now(self.queue.device())
        {
            which(stamps).store(now, Ordering::Release);
        }
    }
}

impl<D: Driver> Queue<D> {
    pub(crate) fn host_task(
        this: &Object<Self>,
        run: Function,
        data: *mut c_void,
        waits: Handles<'_, Event<D>>,
        event: OutHandle<'_, Event<D>>,
    ) -> Result<()> {
        let engine = this.engine();
        engine.check()?;
        let waits = Event::join(this.context(), waits.iter())?;
        let times = if event.wanted() {
            this.times(false)?
        } else {
            None
        };
        let point = engine.host_point(this.context().domain())?;
        let before = this.hold(&waits, &point)?;
        let mut reach = Reach {
            done: Frontier::from(point.point.clone()),
            own: true,
            ..before.clone()
        };
        reach.order.join_point(&point.point);
        let stamps = times
            .as_ref()
            .map(|times: &Times| Arc::clone(&times.stamps));
        let task = Task {
            run,
            data,
            stamps,
            point,
            queue: this.arc(),
        };
        engine.when(before, Box::new(move || task.call()))?;
        let reach = event.wanted().then_some(reach);
        Self::deliver(this, UR_COMMAND_HOST_TASK_EXP, reach, times, event, false)
    }
}

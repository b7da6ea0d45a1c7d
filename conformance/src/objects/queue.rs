//! Queues and the commands that most tests enqueue. Each command returns its event.

use super::event::WaitList;
use super::{Arg, Context, Event, Kernel, info, owned};
use crate::fixture::Fixture;
use crate::outcome::{Done, Stop};
use crate::status::Status;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use ur::abi::*;

owned!(
    /// A queue.
    Queue, ur_queue_handle_t, urQueueRetain, urQueueRelease
);

impl Queue {
    #[track_caller]
    pub fn new(
        context: &Context,
        device: ur_device_handle_t,
        flags: ur_queue_flags_t,
    ) -> Result<Self, Stop> {
        let properties = ur_queue_properties_t {
            flags,
            ..Default::default()
        };
        let mut raw = null_mut();
        context
            .ur
            .urQueueCreate(context.raw, device, &properties, &mut raw)
            .ok()?;
        Ok(Self::adopt(context.ur, raw))
    }

    #[track_caller]
    pub fn finish(&self) -> Done {
        self.ur.urQueueFinish(self.raw).ok()
    }

    #[track_caller]
    pub fn get<T: Copy>(&self, property: ur_queue_info_t) -> Result<T, Stop> {
        info::value(|size, value, ret| self.ur.urQueueGetInfo(self.raw, property, size, value, ret))
    }

    /// The event that an enqueue function wrote, if it succeeded.
    #[track_caller]
    pub fn event(
        &self,
        enqueue: impl FnOnce(*mut ur_event_handle_t) -> Status,
    ) -> Result<Event, Stop> {
        let mut raw = null_mut();
        let status = enqueue(&mut raw);
        status.ok()?;
        if raw.is_null() {
            return Err(Stop::failed(format!("{}: no event", status.function)));
        }
        Ok(Event::adopt(self.ur, raw))
    }

    #[track_caller]
    pub fn copy(
        &self,
        dst: *mut c_void,
        src: *const c_void,
        size: usize,
        wait: &[&Event],
    ) -> Result<Event, Stop> {
        let wait = WaitList::new(wait);
        self.event(|event| {
            self.ur.urEnqueueUSMMemcpy(
                self.raw,
                0,
                dst,
                src,
                size,
                wait.count(),
                wait.pointer(),
                event,
            )
        })
    }

    #[track_caller]
    pub fn fill<T: Copy>(
        &self,
        dst: *mut c_void,
        pattern: T,
        size: usize,
        wait: &[&Event],
    ) -> Result<Event, Stop> {
        let wait = WaitList::new(wait);
        let pattern_size = size_of::<T>();
        self.event(|event| {
            let pattern = (&raw const pattern).cast();
            self.ur.urEnqueueUSMFill(
                self.raw,
                dst,
                pattern_size,
                pattern,
                size,
                wait.count(),
                wait.pointer(),
                event,
            )
        })
    }

    /// A marker, after the wait list or, without one, after everything before it.
    #[track_caller]
    pub fn marker(&self, wait: &[&Event]) -> Result<Event, Stop> {
        let wait = WaitList::new(wait);
        self.event(|event| {
            self.ur
                .urEnqueueEventsWait(self.raw, wait.count(), wait.pointer(), event)
        })
    }

    #[track_caller]
    pub fn barrier(&self, wait: &[&Event]) -> Result<Event, Stop> {
        let wait = WaitList::new(wait);
        self.event(|event| {
            self.ur
                .urEnqueueEventsWaitWithBarrier(self.raw, wait.count(), wait.pointer(), event)
        })
    }

    /// A launch over one dimension. The adapter chooses the work-group size.
    #[track_caller]
    pub fn launch(
        &self,
        kernel: &Kernel,
        items: usize,
        args: &[Arg],
        wait: &[&Event],
    ) -> Result<Event, Stop> {
        let wait = WaitList::new(wait);
        let args = Arg::properties(args);
        self.event(|event| {
            self.ur.urEnqueueKernelLaunchWithArgsExp(
                self.raw,
                kernel.raw,
                1,
                null(),
                &items,
                null(),
                args.len() as u32,
                args.as_ptr(),
                null(),
                wait.count(),
                wait.pointer(),
                event,
            )
        })
    }

    /// Reads memory of any kind, after the wait list or the earlier commands of an in-order queue.
    #[track_caller]
    pub fn read<T: Copy + Default>(
        &self,
        src: *const c_void,
        count: usize,
        wait: &[&Event],
    ) -> Result<Vec<T>, Stop> {
        let mut data = vec![T::default(); count];
        let wait = WaitList::new(wait);
        let size = count * size_of::<T>();
        let dst = data.as_mut_ptr().cast();
        self.ur
            .urEnqueueUSMMemcpy(
                self.raw,
                1,
                dst,
                src,
                size,
                wait.count(),
                wait.pointer(),
                null_mut(),
            )
            .ok()?;
        Ok(data)
    }

    /// Writes memory of any kind and waits for it.
    #[track_caller]
    pub fn write<T: Copy>(&self, dst: *mut c_void, data: &[T]) -> Done {
        let src = data.as_ptr().cast();
        self.ur
            .urEnqueueUSMMemcpy(
                self.raw,
                1,
                dst,
                src,
                size_of_val(data),
                0,
                null(),
                null_mut(),
            )
            .ok()
    }

    /// Runs a closure as a host task of the queue.
    #[track_caller]
    pub fn host_task(
        &self,
        task: impl FnOnce() + Send + 'static,
        wait: &[&Event],
    ) -> Result<Event, Stop> {
        let wait = WaitList::new(wait);
        let task: Box<Box<dyn FnOnce() + Send>> = Box::new(Box::new(task));
        let data = Box::into_raw(task);
        let queued = self.event(|event| {
            let call = Some(run_task as unsafe extern "C" fn(*mut c_void));
            self.ur.urEnqueueHostTaskExp(
                self.raw,
                call,
                data.cast(),
                null(),
                wait.count(),
                wait.pointer(),
                event,
            )
        });
        if queued.is_err() {
            // SAFETY: no task was enqueued, so the box has no other owner.
            drop(unsafe { Box::from_raw(data) });
        }
        queued
    }
}

unsafe extern "C" fn run_task(data: *mut c_void) {
    // SAFETY: `host_task` passed this box, and a host task runs exactly once.
    let task = unsafe { Box::from_raw(data.cast::<Box<dyn FnOnce() + Send>>()) };
    task();
}

/// A host task that blocks a queue until the gate is opened.
///
/// The gate opens by itself when it is dropped or after a time limit, so that a failed test does not hang.
pub struct Gate {
    state: Arc<(Mutex<bool>, Condvar)>,
    /// Completes once the gate is open.
    pub event: Event,
}

/// Longest time that a gate stays closed.
const GATE_TIMEOUT: Duration = Duration::from_secs(20);

impl Gate {
    /// Enqueues a gate.
    ///
    /// On an in-order queue it blocks all later commands, on an out-of-order queue those that wait for its
    /// event.
    #[track_caller]
    pub fn close(fixture: &Fixture, queue: &Queue) -> Result<Self, Stop> {
        if !fixture.supports(UR_DEVICE_INFO_ENQUEUE_HOST_TASK_SUPPORT_EXP)? {
            return Err(Stop::skipped(
                "without host tasks no queue can be held back",
            ));
        }
        let state = Arc::new((Mutex::new(false), Condvar::new()));
        let seen = Arc::clone(&state);
        let task = move || {
            let (open, changed) = &*seen;
            let open = open.lock().unwrap_or_else(PoisonError::into_inner);
            drop(changed.wait_timeout_while(open, GATE_TIMEOUT, |open| !*open));
        };
        let event = queue.host_task(task, &[])?;
        Ok(Self { state, event })
    }

    pub fn open(&self) {
        let (open, changed) = &*self.state;
        *open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }

    /// Opens the gate after a time, from another thread.
    pub fn open_after(&self, time: Duration) {
        let state = Arc::clone(&self.state);
        std::thread::spawn(move || {
            std::thread::sleep(time);
            *state.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
            state.1.notify_all();
        });
    }

    pub fn is_open(&self) -> bool {
        *self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

//! Positions in a lane, and points that the host signals: OpenCL's events.
//!
//! Drivers report a failed command differently. Intel's CPU driver reports `CL_COMPLETE`, fails only the
//! wait, and runs the commands behind it. PoCL never calls back. So a foreign event, which may fail, is
//! queried twice, and a thread of the host waits for it.

use std::ffi::c_void;
use std::sync::Arc;

use opencl_sys::*;
use ur::dl::guarded_callback;
use ur::object::{Error, Result, ensure};
use ur::stream::{CompletionCallback, FAILED, HostPoint, NativeMarker};

use super::{Lane, Submissions};
use crate::cl::{self, ContextRef, EventRef, QueueRef, check};

pub type Marker = ur::stream::Marker<Lane>;

pub type Signal = ur::stream::Signal<Lane>;

/// A position in a lane, or a point that foreign code completes.
#[derive(Clone)]
pub struct Position(Arc<Event>);

struct Event {
    event: EventRef,
    from: Source,
}

/// The origin of an event.
enum Source {
    /// A command of this adapter: its queue's submissions and its number there.
    Ours(Arc<Submissions>, u64),
    /// A foreign event, with its queue if the driver reports one. The driver may not retain the queue.
    Foreign(Option<QueueRef>),
    Host(Arc<HostPoint<Lane>>),
}

impl Position {
    /// A point that no lane of this adapter completes.
    pub fn new(event: EventRef) -> Self {
        Self::adopted(event, None)
    }

    /// A foreign command's event, with the queue of the command.
    pub fn adopted(event: EventRef, queue: Option<QueueRef>) -> Self {
        let from = Source::Foreign(queue);
        Self(Arc::new(Event { event, from }))
    }

    pub(super) fn host(point: &Arc<HostPoint<Lane>>) -> Self {
        let (event, from) = (point.point.clone(), Source::Host(Arc::clone(point)));
        Self(Arc::new(Event { event, from }))
    }

    pub fn queue(&self) -> Option<&QueueRef> {
        match &self.0.from {
            Source::Foreign(queue) => queue.as_ref(),
            _ => None,
        }
    }

    pub(super) fn is_running(&self) -> Result<bool> {
        match &self.0.from {
            Source::Host(point) => Ok(!point.is_signalled()),
            _ => is_running(&self.0.event),
        }
    }

    /// The result, if the event's status shows that it ended.
    pub(super) fn outcome(&self) -> Option<Result<()>> {
        match &self.0.from {
            Source::Host(point) => point.is_signalled().then(|| point.outcome()),
            _ => outcome(&self.0.event),
        }
    }

    pub(super) fn on(event: EventRef, submissions: &Arc<Submissions>, at: u64) -> Self {
        let from = Source::Ours(Arc::clone(submissions), at);
        Self(Arc::new(Event { event, from }))
    }

    pub fn event(&self) -> &EventRef {
        &self.0.event
    }

    /// Whether it is complete; an error if the command failed.
    pub fn is_done(&self) -> Result<bool> {
        match event_property(&self.0.event, CL_EVENT_COMMAND_EXECUTION_STATUS)? {
            CL_COMPLETE if self.is_foreign() => self.block().map(|()| true),
            CL_COMPLETE => self.ended().map(|()| true),
            failed if failed < 0 => Err(command_failed(failed)),
            _ => {
                // The caller may poll until the command is complete.
                self.flush()?;
                Ok(false)
            }
        }
    }

    pub fn block(&self) -> Result<()> {
        let raw = self.0.event.raw();
        // SAFETY: `self` holds a reference to the event, and the list has one.
        let code = unsafe { (self.0.event.api().core.clWaitForEvents)(1, &raw) };
        if code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST {
            return Err(command_failed(code));
        }
        check(code, "clWaitForEvents")?;
        self.ended()
    }

    /// Records that the command is complete. An error if it depends on a failed command.
    fn ended(&self) -> Result<()> {
        let Source::Ours(submissions, at) = &self.0.from else {
            return Ok(());
        };
        ensure(!submissions.outcomes.has_failed(*at), FAILED.code())?;
        submissions.record_end(*at);
        Ok(())
    }

    pub(super) fn is_foreign(&self) -> bool {
        !matches!(self.0.from, Source::Ours(..))
    }

    /// Calls `then` when the command has ended. Returns it if the driver cannot.
    pub fn notify(&self, then: CompletionCallback) -> Option<CompletionCallback> {
        if self.is_foreign() || self.flush().is_err() {
            return Some(then);
        }
        let data = Box::into_raw(Box::new(then));
        let set = self.0.event.api().core.clSetEventCallback;
        // SAFETY: `self` holds a reference to the event, and the callback takes the box.
        let code = unsafe { set(self.0.event.raw(), CL_COMPLETE, Some(notice), data.cast()) };
        if code == CL_SUCCESS {
            return None;
        }
        // SAFETY: the call failed, so that no callback takes the box.
        Some(*unsafe { Box::from_raw(data) })
    }

    /// Flushes the queue of the command, so that it starts without a blocking wait.
    pub fn flush(&self) -> Result<()> {
        match &self.0.from {
            Source::Ours(submissions, at) => submissions.flush(*at),
            _ => Ok(()),
        }
    }
}

/// The driver's callback at the end of a command.
extern "C" fn notice(_: cl_event, _: cl_int, data: *mut c_void) {
    guarded_callback((), || {
        // SAFETY: `notify` passed the box, and the driver calls back once.
        let then = unsafe { Box::from_raw(data.cast::<CompletionCallback>()) };
        then();
    });
}

/// The error of a failed command. The driver's code is stored for `urAdapterGetLastError`.
fn command_failed(code: cl_int) -> Error {
    Error::native(FAILED.code(), code, "a command failed")
}

/// The result of an event's command, by the event's status. None while it runs.
pub(super) fn outcome(event: &EventRef) -> Option<Result<()>> {
    match event_property(event, CL_EVENT_COMMAND_EXECUTION_STATUS) {
        Ok(CL_COMPLETE) => Some(Ok(())),
        Ok(failed) if failed < 0 => Some(Err(FAILED)),
        _ => None,
    }
}

pub(super) fn is_running(event: &EventRef) -> Result<bool> {
    let status: cl_int = event_property(event, CL_EVENT_COMMAND_EXECUTION_STATUS)?;
    Ok(status > CL_COMPLETE)
}

/// The native event of a marker, whose queue is flushed.
pub fn shown(marker: &Marker) -> Result<&EventRef> {
    match marker.native()? {
        NativeMarker::Event(position) => {
            position.flush()?;
            Ok(position.event())
        }
        NativeMarker::Point(point) => Ok(&point.point),
    }
}

/// A point that the host signals, and its signal.
pub fn host_point(context: &ContextRef) -> Result<(Marker, Signal)> {
    Ok(Marker::host(user_event(context)?))
}

/// Completes a user event, for native commands that wait for it. A failure is reported by
/// [`Position::outcome`] alone: Intel's CPU driver crashes on a user event that fails.
pub(super) fn signal(event: &EventRef) {
    let set = event.api().core.clSetUserEventStatus;
    // SAFETY: `EventRef` holds a reference to the user event, which is completed once.
    let code = unsafe { set(event.raw(), CL_COMPLETE) };
    if code != CL_SUCCESS {
        log::error!("clSetUserEventStatus failed with {code}");
    }
}

fn user_event(context: &ContextRef) -> Result<EventRef> {
    let mut code = 0;
    // SAFETY: `ContextRef` holds a reference to the context.
    unsafe {
        let raw = (context.api().core.clCreateUserEvent)(context.raw(), &mut code);
        EventRef::created(context.api(), raw, code, "clCreateUserEvent")
    }
}

pub fn event_property<T: Copy>(event: &EventRef, what: cl_event_info) -> Result<T> {
    // SAFETY: `EventRef` holds a reference to the event, and `cl` passes a buffer of that size.
    let query = |size, value, ret| unsafe {
        (event.api().core.clGetEventInfo)(event.raw(), what, size, value, ret)
    };
    cl::value(query, "clGetEventInfo")
}

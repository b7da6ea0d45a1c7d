//! Positions in a lane, and points that the host signals: OpenCL's events.

use std::ffi::c_void;
use std::sync::Arc;

use opencl_sys::*;
use ur::dl::guarded_callback;
use ur::object::Result;
use ur::stream::Notice;

use super::Outlet;
use crate::cl::{self, ContextRef, EventRef, QueueRef, check, failure};

/// A position in a lane, or a point that something outside completes.
#[derive(Clone)]
pub struct Marker(Arc<Position>);

struct Position {
    event: EventRef,
    /// Where the command went, and as which of those that went there.
    from: Option<(Arc<Outlet>, u64)>,
    /// Of an adopted event what the driver said: its queue, which the driver may not keep for it.
    queue: Option<QueueRef>,
}

impl Marker {
    /// A point that no lane of ours leads to.
    pub fn new(event: EventRef) -> Self {
        Self::adopted(event, None)
    }

    /// The same, of a command that went to this queue.
    pub fn adopted(event: EventRef, queue: Option<QueueRef>) -> Self {
        Self(Arc::new(Position {
            event,
            from: None,
            queue,
        }))
    }

    pub fn queue(&self) -> Option<&QueueRef> {
        self.0.queue.as_ref()
    }

    pub(super) fn on(event: EventRef, outlet: &Arc<Outlet>, at: u64) -> Self {
        Self(Arc::new(Position {
            event,
            from: Some((Arc::clone(outlet), at)),
            queue: None,
        }))
    }

    pub fn event(&self) -> &EventRef {
        &self.0.event
    }

    /// Whether it is complete; an error if the command failed.
    pub fn is_done(&self) -> Result<bool> {
        match event_property(&self.0.event, CL_EVENT_COMMAND_EXECUTION_STATUS)? {
            CL_COMPLETE => {
                self.note_end();
                Ok(true)
            }
            failed if failed < 0 => Err(failure(failed, "a command")),
            _ => {
                // Whoever asks may go on asking until it is.
                self.flush()?;
                Ok(false)
            }
        }
    }

    pub fn block(&self) -> Result<()> {
        let raw = self.0.event.raw();
        check(
            // SAFETY: one live event.
            unsafe { (self.0.event.api().core.clWaitForEvents)(1, &raw) },
            "clWaitForEvents",
        )?;
        self.note_end();
        Ok(())
    }

    /// Has `then` run when the command has ended; gives it back where that cannot be.
    pub fn notify(&self, then: Notice) -> Option<Notice> {
        if self.flush().is_err() {
            return Some(then);
        }
        let data = Box::into_raw(Box::new(then));
        let set = self.0.event.api().core.clSetEventCallback;
        // SAFETY: a live event; the callback takes the box over.
        let code = unsafe { set(self.0.event.raw(), CL_COMPLETE, Some(notice), data.cast()) };
        if code == CL_SUCCESS {
            return None;
        }
        // SAFETY: the callback was not set, so the box is still ours.
        Some(*unsafe { Box::from_raw(data) })
    }

    /// Sees to it that the command is on its way, without anybody having to wait for it.
    pub fn flush(&self) -> Result<()> {
        match &self.0.from {
            Some((outlet, at)) => outlet.flush(*at),
            None => Ok(()),
        }
    }

    fn note_end(&self) {
        if let Some((outlet, at)) = &self.0.from {
            outlet.note_end(*at);
        }
    }
}

/// The driver's call back at the end of a command.
extern "C" fn notice(_: cl_event, _: cl_int, data: *mut c_void) {
    guarded_callback((), || {
        // SAFETY: the box that `notify` gave, called once.
        let then = unsafe { Box::from_raw(data.cast::<Notice>()) };
        then();
    });
}

/// A point that the host signals. Dropping it signals too.
pub struct Signal(pub EventRef);

impl Drop for Signal {
    fn drop(&mut self) {
        let set = self.0.api().core.clSetUserEventStatus;
        // SAFETY: a live user event, completed once.
        let code = unsafe { set(self.0.raw(), CL_COMPLETE) };
        if code != CL_SUCCESS {
            log::error!("clSetUserEventStatus failed with {code}");
        }
    }
}

pub fn user_event(context: &ContextRef) -> Result<EventRef> {
    let mut code = 0;
    // SAFETY: a live context.
    unsafe {
        let raw = (context.api().core.clCreateUserEvent)(context.raw(), &mut code);
        EventRef::created(context.api(), raw, code, "clCreateUserEvent")
    }
}

pub fn event_property<T: Copy>(event: &EventRef, what: cl_event_info) -> Result<T> {
    // SAFETY: a live event.
    let ask = |size, value, ret| unsafe {
        (event.api().core.clGetEventInfo)(event.raw(), what, size, value, ret)
    };
    cl::value(ask, "clGetEventInfo")
}

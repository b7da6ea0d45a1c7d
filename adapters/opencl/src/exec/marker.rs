//! Positions in a lane, and points that the host signals: OpenCL's events.

use std::ffi::c_void;

use opencl_sys::*;
use ur::dl::guarded_callback;
use ur::object::Result;
use ur::stream::Notice;

use crate::cl::{self, ContextRef, EventRef, check, failure};

/// A position in a lane.
#[derive(Clone)]
pub struct Marker {
    pub event: EventRef,
}

impl Marker {
    pub fn new(event: EventRef) -> Self {
        Self { event }
    }

    fn status(&self) -> Result<cl_int> {
        event_property(&self.event, CL_EVENT_COMMAND_EXECUTION_STATUS)
    }

    /// Whether it is complete; an error if the command failed.
    pub fn is_done(&self) -> Result<bool> {
        match self.status()? {
            CL_COMPLETE => Ok(true),
            failed if failed < 0 => Err(failure(failed, "a command")),
            _ => Ok(false),
        }
    }

    pub fn block(&self) -> Result<()> {
        let raw = self.event.raw();
        check(
            // SAFETY: one live event.
            unsafe { (self.event.api().core.clWaitForEvents)(1, &raw) },
            "clWaitForEvents",
        )
    }

    /// Has `then` run when the command has ended; gives it back where that cannot be.
    pub fn notify(&self, then: Notice) -> Option<Notice> {
        let data = Box::into_raw(Box::new(then));
        let set = self.event.api().core.clSetEventCallback;
        // SAFETY: a live event; the callback takes the box over.
        let code = unsafe { set(self.event.raw(), CL_COMPLETE, Some(notice), data.cast()) };
        if code == CL_SUCCESS {
            return None;
        }
        // SAFETY: the callback was not set, so the box is still ours.
        Some(*unsafe { Box::from_raw(data) })
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

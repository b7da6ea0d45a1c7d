//! Events: their status as a caller sees it, and user events.

use std::ffi::c_void;

use opencl_sys::*;

use crate::driver::{Kind, code, enter, hold, made, write_property};
use crate::queue::list;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clWaitForEvents(count: cl_uint, events: *const cl_event) -> cl_int {
    let result = enter("clWaitForEvents", |driver| {
        // SAFETY: the list has the given number of events.
        unsafe { list(driver, count, events) }
    });
    let events = match result {
        Ok(events) => events,
        Err(code) => return code,
    };
    let mut driver = hold();
    loop {
        let each = events.iter().map(|event| driver.peek(*event));
        let status: Vec<cl_int> = each
            .map(|event| event.map_or(0, |event| event.status))
            .collect();
        if status.iter().all(|status| *status <= CL_COMPLETE) {
            return match status.iter().any(|status| *status < 0) {
                true => CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
                false => CL_SUCCESS,
            };
        }
        driver = driver.wait();
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetEventInfo(
    event: cl_event,
    what: cl_event_info,
    size: usize,
    value: *mut c_void,
    ret: *mut usize,
) -> cl_int {
    code(enter("clGetEventInfo", |driver| {
        let event = driver.get(Kind::Event, event.addr())?;
        match what {
            CL_EVENT_COMMAND_EXECUTION_STATUS => {
                write_property(&event.status.to_ne_bytes(), size, value, ret)
            }
            CL_EVENT_CONTEXT => write_property(&event.context.to_ne_bytes(), size, value, ret),
            CL_EVENT_COMMAND_QUEUE => write_property(&event.queue.to_ne_bytes(), size, value, ret),
            CL_EVENT_COMMAND_TYPE => {
                write_property(&(event.bits as u32).to_ne_bytes(), size, value, ret)
            }
            _ => Err(CL_INVALID_VALUE),
        }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetEventProfilingInfo(
    event: cl_event,
    what: cl_profiling_info,
    size: usize,
    value: *mut c_void,
    ret: *mut usize,
) -> cl_int {
    code(enter("clGetEventProfilingInfo", |driver| {
        let event = driver.get(Kind::Event, event.addr())?;
        let at = what.wrapping_sub(CL_PROFILING_COMMAND_QUEUED) as usize;
        let time = *event.times.get(at).ok_or(CL_INVALID_VALUE)?;
        match event.status == CL_COMPLETE && event.queue != 0 {
            true => write_property(&time.to_ne_bytes(), size, value, ret),
            false => Err(CL_PROFILING_INFO_NOT_AVAILABLE),
        }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clCreateUserEvent(context: cl_context, ret: *mut cl_int) -> cl_event {
    let context = context.addr();
    let answer = enter("clCreateUserEvent", |driver| {
        driver.get(Kind::Context, context)?;
        Ok(driver.make(Kind::Event, |event| {
            (event.context, event.status) = (context, CL_SUBMITTED);
            event.bits = u64::from(CL_COMMAND_USER);
        }))
    });
    made(answer, ret)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clSetUserEventStatus(event: cl_event, status: cl_int) -> cl_int {
    code(enter("clSetUserEventStatus", |driver| {
        let event = event.addr();
        let user = driver.get(Kind::Event, event)?;
        if user.queue != 0 || user.status <= CL_COMPLETE || status > CL_COMPLETE {
            driver.script.broken("a user event is set twice".to_owned());
            return Err(CL_INVALID_OPERATION);
        }
        driver.complete(event, status);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clSetEventCallback(
    event: cl_event,
    _: cl_int,
    run: Option<unsafe extern "C" fn(cl_event, cl_int, *mut c_void)>,
    data: *mut c_void,
) -> cl_int {
    code(enter("clSetEventCallback", |driver| {
        let event = event.addr();
        driver.get(Kind::Event, event)?;
        let run = run.ok_or(CL_INVALID_VALUE)?;
        driver.call_back(event, run, data.expose_provenance());
        Ok(())
    }))
}

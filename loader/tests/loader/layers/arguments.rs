//! Parameter validation: invalid arguments do not reach the adapter, which would crash.

use std::ptr::null;

use ur::abi::*;

use crate::application::{Application, call, strict};
use crate::common::null as null_mut;

#[test]
fn wrong_arguments_are_refused_before_the_adapter() {
    let log = strict(
        "layers::arguments::scenario",
        "UR_LAYER_PARAMETER_VALIDATION",
        &[("UR_LOG_VALIDATION", "level:info")],
    );
    let found: Vec<&str> = log
        .lines()
        .filter_map(|line| line.strip_prefix("<VALIDATION>[INFO]: "))
        .collect();
    let expected = [
        "urQueueGetInfo: argument 1 (hQueue) is null: UR_RESULT_ERROR_INVALID_NULL_HANDLE",
        "urQueueCreate: argument 2 (hDevice) is null: UR_RESULT_ERROR_INVALID_NULL_HANDLE",
        "urQueueCreate: argument 4 (phQueue) is null: UR_RESULT_ERROR_INVALID_NULL_POINTER",
        "urQueueCreate: argument 4 (phQueue) is null: UR_RESULT_ERROR_INVALID_NULL_POINTER",
        "urQueueCreate: argument 3 (pProperties), member flags, has an undefined value: 0x40000000: \
         UR_RESULT_ERROR_INVALID_ENUMERATION",
        "urQueueCreate: the flags ask for both high and low priority: \
         UR_RESULT_ERROR_INVALID_QUEUE_PROPERTIES",
        "urQueueGetInfo: argument 2 (propName) has an undefined value: 0x3e7: \
         UR_RESULT_ERROR_INVALID_ENUMERATION",
        "urQueueGetInfo: propSize is 0 while pPropValue is given: UR_RESULT_ERROR_INVALID_SIZE",
        "urEnqueueEventsWait: argument 3 (phEventWaitList) is null, but its count is 1: \
         UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST",
        "urEnqueueEventsWait: argument 3 (phEventWaitList) is given, but its count is 0: \
         UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST",
        "urEnqueueEventsWait: element 0 of argument 3 (phEventWaitList) is null: \
         UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST",
        "urContextCreate: element 0 of argument 2 (phDevices) is null: \
         UR_RESULT_ERROR_INVALID_NULL_HANDLE",
        "urEventWait: element 0 of argument 2 (phEventWaitList) is null: \
         UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST",
    ];
    assert_eq!(found, expected, "{log}");
}

#[test]
#[ignore = "runs in a child process"]
fn scenario() {
    let app = Application::init();
    let all = app.all;
    let (context, device, queue) = (app.context, app.device, app.queue);
    let mut made = null_mut();
    let mut event = null_mut();
    let mut size = 0;
    let mut value = 0u64;
    let value = (&raw mut value).cast();
    let no_queue: ur_queue_handle_t = null_mut();
    let flags = |flags| ur_queue_properties_t {
        flags: ur_queue_flags_t(flags),
        ..ur_queue_properties_t::default()
    };
    let no_event: ur_event_handle_t = null_mut();
    let no_device: ur_device_handle_t = null_mut();
    let mut made_context = null_mut();
    let info = UR_QUEUE_INFO_CONTEXT;
    let unknown = ur_queue_info_t(999);
    let refused = [
        (
            "a null handle",
            call!(all, Queue.pfnGetInfo(no_queue, info, 8, value, &mut size)),
            UR_RESULT_ERROR_INVALID_NULL_HANDLE,
        ),
        (
            "a second null handle",
            call!(all, Queue.pfnCreate(context, null_mut(), null(), &mut made)),
            UR_RESULT_ERROR_INVALID_NULL_HANDLE,
        ),
        (
            "an output that is null",
            call!(all, Queue.pfnCreate(context, device, null(), null_mut())),
            UR_RESULT_ERROR_INVALID_NULL_POINTER,
        ),
        (
            "a pointer before a handle",
            call!(
                all,
                Queue.pfnCreate(context, null_mut(), null(), null_mut())
            ),
            UR_RESULT_ERROR_INVALID_NULL_POINTER,
        ),
        (
            "an undefined bit in a struct",
            call!(
                all,
                Queue.pfnCreate(context, device, &flags(1 << 30), &mut made)
            ),
            UR_RESULT_ERROR_INVALID_ENUMERATION,
        ),
        (
            "a condition over a struct",
            call!(
                all,
                Queue.pfnCreate(context, device, &flags(0x60), &mut made)
            ),
            UR_RESULT_ERROR_INVALID_QUEUE_PROPERTIES,
        ),
        (
            "an unknown property",
            call!(all, Queue.pfnGetInfo(queue, unknown, 8, value, &mut size)),
            UR_RESULT_ERROR_INVALID_ENUMERATION,
        ),
        (
            "a buffer without a size",
            call!(all, Queue.pfnGetInfo(queue, info, 0, value, &mut size)),
            UR_RESULT_ERROR_INVALID_SIZE,
        ),
        (
            "a count without its list",
            call!(all, Enqueue.pfnEventsWait(queue, 1, null(), &mut event)),
            UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST,
        ),
        (
            "a list without its count",
            call!(all, Enqueue.pfnEventsWait(queue, 0, &no_event, &mut event)),
            UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST,
        ),
        (
            "a null in a list",
            call!(all, Enqueue.pfnEventsWait(queue, 1, &no_event, &mut event)),
            UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST,
        ),
        (
            "a null in a list that must be there",
            call!(
                all,
                Context.pfnCreate(1, &no_device, null(), &mut made_context)
            ),
            UR_RESULT_ERROR_INVALID_NULL_HANDLE,
        ),
        (
            "a null in the wait list of the host",
            call!(all, Event.pfnWait(1, &no_event)),
            UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST,
        ),
    ];
    for (what, result, expected) in refused {
        assert_eq!(result, expected, "{what}");
    }
    assert!(
        made.is_null() && event.is_null() && size == 0,
        "nothing was written"
    );
    // Valid arguments are forwarded.
    let result = call!(all, Queue.pfnGetInfo(queue, info, 8, value, &mut size));
    assert_eq!((result, size), (UR_RESULT_SUCCESS, 8));
    app.end();
}

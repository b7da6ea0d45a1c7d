//! Deferred commands that the driver refuses at their submission: later commands do not run, and one wait
//! reports the failure.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::mpsc::{Receiver, channel};

use ur::abi::*;

use super::fake_driver::{FakeDriver, alone, ur};
use super::launching::{launch, number, pointer};
use super::test_context::TestContext;

const COUNT: usize = 5;
const BYTES: usize = 64;
const FAILED: ur_result_t = UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS;

/// `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`, after which the device still works.
const REFUSED: u32 = 701;

#[derive(Clone, Copy, PartialEq, Debug)]
enum What {
    Copy,
    Fill,
    Launch,
    Recorded,
}

/// The commands, and the driver's call that submits each.
const KINDS: [(What, &str); 4] = [
    (What::Copy, "cuMemcpyAsync"),
    (What::Fill, "cuMemsetD8Async"),
    (What::Launch, "cuLaunchKernelEx"),
    (What::Recorded, "cuGraphLaunch"),
];

/// A command buffer of two copies, which form one graph.
fn recorded(
    test_context: &TestContext,
    to: *mut c_void,
    from: *mut c_void,
) -> ur_exp_command_buffer_handle_t {
    let (desc, mut buffer) = (ur_exp_command_buffer_desc_t::default(), null_mut());
    let (context, device) = (test_context.context, test_context.device);
    let code = ur!(CommandBufferExp.pfnCreateExp(context, device, &desc, &mut buffer));
    assert_eq!(code, UR_RESULT_SUCCESS);
    for half in [0, BYTES / 2] {
        let code = ur!(CommandBufferExp.pfnAppendUSMMemcpyExp(
            buffer,
            to.wrapping_byte_add(half),
            from.wrapping_byte_add(half),
            BYTES / 2,
            0,
            null(),
            0,
            null(),
            null_mut(),
            null_mut(),
            null_mut()
        ));
        assert_eq!(code, UR_RESULT_SUCCESS);
    }
    assert_eq!(
        ur!(CommandBufferExp.pfnFinalizeExp(buffer)),
        UR_RESULT_SUCCESS
    );
    buffer
}

unsafe extern "C" fn until_signalled(reported: *mut c_void) {
    // SAFETY: the test waits for the task, so the receiver outlives it.
    let reported = unsafe { &*reported.cast::<Receiver<()>>() };
    // A sender that is gone has opened the gate.
    let _ = reported.recv();
}

unsafe extern "C" fn count(ran: *mut c_void) {
    // SAFETY: the test's counter outlives the task.
    unsafe { *ran.cast::<usize>() += 1 };
}

unsafe extern "C" fn count_native(_: ur_queue_handle_t, ran: *mut c_void) {
    // SAFETY: the caller's promises are passed on.
    unsafe { count(ran) }
}

#[test]
fn a_deferred_command_that_the_driver_refuses_is_reported_once() {
    alone(
        "tests::failures::a_deferred_command_that_the_driver_refuses_is_reported_once",
        || {
            let driver = FakeDriver::open();
            for (what, call) in KINDS {
                for in_order in [true, false] {
                    for place in 0..COUNT {
                        for by_device in [false, true] {
                            one(&driver, (what, call), in_order, place, by_device);
                        }
                    }
                }
            }
        },
    );
}

fn one(
    driver: &FakeDriver,
    (kind, call): (What, &str),
    in_order: bool,
    place: usize,
    by_device: bool,
) {
    let what = format!("{kind:?}, in order {in_order}, {place}, device {by_device}");
    let test_context = TestContext::new((COUNT + 2) * BYTES);
    // SAFETY: host memory of that size.
    unsafe {
        test_context
            .memory
            .cast::<u8>()
            .write_bytes(0, (COUNT + 2) * BYTES);
    }
    // SAFETY: host memory of that size.
    unsafe {
        test_context
            .at(COUNT * BYTES)
            .cast::<u8>()
            .write_bytes(7, BYTES)
    };
    let gate = test_context.queue(ur_queue_flags_t(0));
    let queue = test_context.queue(match in_order {
        true => ur_queue_flags_t(0),
        false => UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE,
    });
    let (report, reported) = channel::<()>();
    let mut open = null_mut();
    let code = ur!(EnqueueExp.pfnHostTaskExp(
        gate,
        Some(until_signalled),
        (&raw const reported).cast_mut().cast(),
        null(),
        0,
        null(),
        &mut open
    ));
    assert_eq!(code, UR_RESULT_SUCCESS);
    let (program, kernel) = test_context.kernel(c"iota");
    let places = 0..if kind == What::Recorded { COUNT } else { 0 };
    let source = test_context.at(COUNT * BYTES);
    let buffers: Vec<_> = places
        .map(|at| recorded(&test_context, test_context.at(at * BYTES), source))
        .collect();
    driver.fail_nth(call, place as u64 + 1, REFUSED);
    // Each command waits for the one before, and the first for the gate.
    let mut waits = vec![open];
    for at in 0..COUNT {
        let (to, from) = (test_context.at(at * BYTES), test_context.at(COUNT * BYTES));
        let (mut event, wait) = (null_mut(), waits[at]);
        let pattern = [7_u8; 4];
        let code = match kind {
            What::Copy => {
                ur!(Enqueue.pfnUSMMemcpy(queue, 0, to, from, BYTES, 1, &wait, &mut event))
            }
            What::Fill => {
                let pattern = pattern.as_ptr().cast();
                ur!(Enqueue.pfnUSMFill(queue, to, 4, pattern, BYTES, 1, &wait, &mut event))
            }
            What::Launch => {
                let first = 7_u32;
                let args = [pointer(0, to), number(1, &first)];
                launch(queue, kernel, BYTES / 4, &args, &[wait], &mut event)
            }
            What::Recorded => {
                ur!(EnqueueExp.pfnCommandBufferExp(queue, buffers[at], 1, &wait, &mut event))
            }
        };
        assert_eq!(code, UR_RESULT_SUCCESS, "{what}");
        waits.push(event);
    }
    let (mut ran, last, mut behind) = (0_usize, waits[COUNT], null_mut());
    let code = ur!(EnqueueExp.pfnHostTaskExp(
        queue,
        Some(count),
        (&raw mut ran).cast(),
        null(),
        1,
        &last,
        &mut behind
    ));
    assert_eq!(code, UR_RESULT_SUCCESS, "{what}");
    // A native command comes last. Its function is called at once, and its event reports the failure.
    let (mut called, mut native, mut last) = (0_usize, null_mut(), null_mut());
    let code = ur!(EnqueueExp.pfnNativeCommandExp(
        queue,
        Some(count_native),
        (&raw mut called).cast(),
        0,
        null(),
        null(),
        1,
        &behind,
        &mut native
    ));
    assert_eq!(code, UR_RESULT_SUCCESS, "{what}");
    let (to, from) = (
        test_context.at((COUNT + 1) * BYTES),
        test_context.at(COUNT * BYTES),
    );
    let code = ur!(Enqueue.pfnUSMMemcpy(queue, 0, to, from, BYTES, 1, &native, &mut last));
    assert_eq!(code, UR_RESULT_SUCCESS, "{what}");
    drop(report);
    let wait = || match by_device {
        true => ur!(DeviceExp.pfnWaitExp(test_context.device)),
        false => ur!(Queue.pfnFinish(queue)),
    };
    assert_eq!(wait(), FAILED, "{what}");
    assert_eq!(wait(), UR_RESULT_SUCCESS, "{what}");
    assert_eq!(ran, 0, "{what}");
    driver.reset();
    for at in 0..COUNT {
        // SAFETY: host memory of that size, which no command uses now.
        let byte = unsafe { test_context.at(at * BYTES).cast::<u8>().read() };
        assert_eq!(byte == 7, at < place, "{at}: {what}");
        let code = ur!(Event.pfnWait(1, &waits[at + 1]));
        assert_eq!(code == UR_RESULT_SUCCESS, at < place, "{at}: {what}");
    }
    for event in [behind, native, last] {
        assert_eq!(ur!(Event.pfnWait(1, &event)), FAILED, "{what}");
    }
    assert_eq!(called, 1, "{what}");
    // SAFETY: host memory of that size, which no command uses now.
    let byte = unsafe { test_context.at((COUNT + 1) * BYTES).cast::<u8>().read() };
    assert_ne!(byte, 7, "the copy behind ran: {what}");
    // The queue works.
    let (to, from) = (
        test_context.at((COUNT + 1) * BYTES),
        test_context.at(COUNT * BYTES),
    );
    let code = ur!(Enqueue.pfnUSMMemcpy(queue, 1, to, from, BYTES, 0, null(), null_mut()));
    assert_eq!(code, UR_RESULT_SUCCESS, "{what}");
    for event in waits.into_iter().chain([behind, native, last]) {
        assert_eq!(ur!(Event.pfnRelease(event)), UR_RESULT_SUCCESS);
    }
    assert_eq!(ur!(Kernel.pfnRelease(kernel)), UR_RESULT_SUCCESS);
    assert_eq!(ur!(Program.pfnRelease(program)), UR_RESULT_SUCCESS);
    for buffer in buffers {
        let code = ur!(CommandBufferExp.pfnReleaseExp(buffer));
        assert_eq!(code, UR_RESULT_SUCCESS);
    }
    for queue in [gate, queue] {
        assert_eq!(ur!(Queue.pfnFinish(queue)), UR_RESULT_SUCCESS, "{what}");
        assert_eq!(ur!(Queue.pfnRelease(queue)), UR_RESULT_SUCCESS);
    }
    test_context.end(driver);
}

//! Lost devices: from any call on, and one device of several.
//!
//! Every wait and every query ends with `DEVICE_LOST`, and everything can be released.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, alone_with, case, devices, ur};
use super::faults::{LOST, UNKNOWN};
use super::workload::{self, SIZE, host};

/// Calls at which the device is lost, of all that the workload makes.
const PLACES: u64 = 60;

/// Whether a step's result tells that the device is lost, or that it waited for a command that failed by that.
fn tells(call: &str, code: ur_result_t) -> bool {
    match code {
        UR_RESULT_ERROR_DEVICE_LOST => true,
        UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS => {
            call.contains("Wait") || call.contains("Finish")
        }
        // A command that did not end has no times.
        UR_RESULT_ERROR_PROFILING_INFO_NOT_AVAILABLE => call.contains("Profiling"),
        _ => false,
    }
}

/// From a call on, every call answers that the device is lost, but for those that free.
fn from_each_call(name: &str, variables: &[(&str, &str)]) {
    alone_with(name, variables, || {
        let driver = FakeDriver::open();
        workload::play();
        driver.reset();
        let known = workload::play().check_whole();
        let calls = driver.query().calls;
        let (mut problems, mut stays, mut met) = (Vec::new(), 0, 0);
        for place in 0..PLACES {
            let nth = 1 + (calls - 1) * place / (PLACES - 1);
            let when = format!("lost from call {nth} of {calls} on");
            case(&when);
            driver.fail_from(nth, LOST.0);
            let steps = workload::play();
            let failed = steps.failed_beside(&known);
            let strange = failed.iter().find(|(_, call, code)| !tells(call, *code));
            // Waits and queries come as often as they have to.
            met += u64::from(driver.query().met);
            let end = driver.end_with(stays);
            stays = driver.query().live;
            if strange.is_some() || end.is_some() || !steps.wrong.is_empty() {
                let wrong = &steps.wrong;
                eprintln!("{when}: {strange:?}, {end:?}, {wrong:?}: {failed:?}");
                problems.push(when);
            }
        }
        assert!(
            problems.is_empty(),
            "{} problems: {problems:?}",
            problems.len()
        );
        assert!(met * 2 > PLACES, "{met} of {PLACES} calls came");
        // The process goes on with a device that is there again.
        driver.reset();
        assert_eq!(workload::play().check_whole(), known);
        driver.check_end("the device found again");
    });
}

#[test]
fn every_call_fails_from_any_on() {
    from_each_call("tests::lost::every_call_fails_from_any_on", &[]);
}

/// A driver without counter-based events, in-order lists and the other newer functions.
#[test]
fn every_call_fails_from_any_on_with_an_old_driver() {
    let name = "tests::lost::every_call_fails_from_any_on_with_an_old_driver";
    let old = [
        ("SCRIPTED_LEVEL_ZERO_VERSION", "1.3"),
        (
            "SCRIPTED_LEVEL_ZERO_WITHOUT",
            "zeEventCounterBasedCreate,zeCommandListHostSynchronize",
        ),
    ];
    from_each_call(name, &old);
}

/// Buffers over host memory import it.
#[test]
fn every_call_fails_from_any_on_with_imports() {
    let name = "tests::lost::every_call_fails_from_any_on_with_imports";
    from_each_call(name, &[("SYCL_USM_HOSTPTR_IMPORT", "1")]);
}

unsafe extern "C" fn until_opened(gate: *mut c_void) {
    // SAFETY: the test waits for the task, so the receiver outlives it.
    let gate = unsafe { &*gate.cast::<Receiver<()>>() };
    // A sender that is gone has opened the gate.
    let _ = gate.recv();
}

fn ok(code: ur_result_t) {
    assert_eq!(code, UR_RESULT_SUCCESS);
}

/// A queue of a context on one device.
struct Own {
    context: ur_context_handle_t,
    queue: ur_queue_handle_t,
}

impl Own {
    fn new(context: ur_context_handle_t, device: ur_device_handle_t, is_open: bool) -> Self {
        let (mut queue, mut native) = (null_mut(), 0);
        ok(ur!(Queue.pfnCreate(context, device, null(), &mut queue)));
        if is_open {
            // The list itself waits for the host then.
            ok(ur!(Queue.pfnGetNativeHandle(
                queue,
                null_mut(),
                &mut native
            )));
        }
        Self { context, queue }
    }

    /// Fills host memory after an event, or at once.
    fn fill(&self, slot: usize, byte: u8, after: Option<ur_event_handle_t>) -> ur_event_handle_t {
        let (from, mut event) = (host(30), null_mut());
        // SAFETY: memory of the test's.
        unsafe { from.write(byte) };
        let waits: Vec<_> = after.into_iter().collect();
        let first = if waits.is_empty() {
            null()
        } else {
            waits.as_ptr()
        };
        ok(ur!(Enqueue.pfnUSMFill(
            self.queue,
            host(slot).cast(),
            1,
            from.cast(),
            SIZE,
            waits.len() as u32,
            first,
            &mut event
        )));
        event
    }

    fn release(self) {
        ok(ur!(Queue.pfnRelease(self.queue)));
        ok(ur!(Context.pfnRelease(self.context)));
    }
}

fn context(devices: &[ur_device_handle_t]) -> ur_context_handle_t {
    let (mut context, count) = (null_mut(), devices.len() as u32);
    ok(ur!(Context.pfnCreate(
        count,
        devices.as_ptr(),
        null(),
        &mut context
    )));
    context
}

fn status(event: ur_event_handle_t) -> (ur_result_t, ur_event_status_t) {
    let (what, mut status) = (
        UR_EVENT_INFO_COMMAND_EXECUTION_STATUS,
        ur_event_status_t::default(),
    );
    let (bytes, to) = (size_of_val(&status), (&raw mut status).cast());
    let code = ur!(Event.pfnGetInfo(event, what, bytes, to, null_mut()));
    (code, status)
}

/// How a program learns that a command ended.
#[derive(Clone, Copy, Debug)]
enum By {
    Event,
    Queue,
    Device,
    Query,
    Free,
}

/// Commands are submitted to a device and not executed, since it is lost. The driver says so only when it is asked for
/// the device's status. Waits of every kind end, and the other device goes on.
#[test]
fn one_of_two_devices() {
    alone("tests::lost::one_of_two_devices", || {
        let driver = FakeDriver::open();
        for is_open in [true, false] {
            for by in [By::Event, By::Queue, By::Device, By::Query, By::Free] {
                case(&format!("{by:?}, open {is_open}"));
                one_lost(&driver, by, is_open);
            }
        }
    });
}

fn one_lost(driver: &FakeDriver, by: By, is_open: bool) {
    driver.reset();
    let adapter = adapter();
    let [first, second] = devices(adapter)[..] else {
        panic!("two devices");
    };
    let what = format!("{by:?}, open {is_open}");
    let lost = Own::new(context(&[first]), first, is_open);
    let lasting = Own::new(context(&[second]), second, is_open);
    let beside = Own::new(context(&[first, second]), second, is_open);
    let (open, gate) = channel::<()>();
    let mut opened = null_mut();
    ok(ur!(EnqueueExp.pfnHostTaskExp(
        lost.queue,
        Some(until_opened),
        (&raw const gate).cast_mut().cast(),
        null(),
        0,
        null(),
        &mut opened
    )));
    let mut memory = null_mut();
    let pool = null_mut();
    ok(ur!(USM.pfnDeviceAlloc(
        lost.context,
        first,
        null(),
        pool,
        SIZE,
        &mut memory
    )));
    let pending = lost.fill(22, 1, Some(opened));
    let mut copied = null_mut();
    ok(ur!(Enqueue.pfnUSMMemcpy(
        lost.queue,
        false as _,
        memory,
        host(22).cast(),
        SIZE,
        1,
        &pending,
        &mut copied
    )));
    driver.lose_device(0);
    drop(open);
    let expected = |code| {
        let lost = [
            UR_RESULT_ERROR_DEVICE_LOST,
            UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS,
        ];
        assert!(lost.contains(&code), "{what}: {code:?}");
    };
    match by {
        By::Event => expected(ur!(Event.pfnWait(1, &copied))),
        By::Queue => expected(ur!(Queue.pfnFinish(lost.queue))),
        By::Device => expected(ur!(DeviceExp.pfnWaitExp(first))),
        By::Query => {
            let end = Instant::now() + Duration::from_secs(5);
            loop {
                let (code, status) = status(copied);
                if code != UR_RESULT_SUCCESS {
                    expected(code);
                    break;
                }
                if status == UR_EVENT_STATUS_ERROR {
                    break;
                }
                assert!(status != UR_EVENT_STATUS_COMPLETE, "{what}");
                assert!(Instant::now() < end, "{what}: polled for ever");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        By::Free => {}
    }
    // The other device works, in a context of its own and in one of both.
    for (own, slot) in [(&lasting, 23), (&beside, 24)] {
        let done = own.fill(slot, 5, None);
        ok(ur!(Event.pfnWait(1, &done)));
        assert_eq!(workload::read(host(slot).cast(), SIZE), [5; SIZE], "{what}");
        ok(ur!(Event.pfnRelease(done)));
        ok(ur!(Queue.pfnFinish(own.queue)));
        let again = own.fill(slot, 6, None);
        ok(ur!(Queue.pfnFinish(own.queue)));
        ok(ur!(Event.pfnRelease(again)));
    }
    for event in [opened, pending, copied] {
        ok(ur!(Event.pfnRelease(event)));
    }
    ok(ur!(USM.pfnFree(lost.context, memory)));
    for own in [lost, lasting, beside] {
        own.release();
    }
    ok(ur!(Adapter.pfnRelease(adapter)));
    driver.check_end(&what);
}

/// A list that waits for the host for ever, since the driver refuses to signal its event, is an error of its waits.
#[test]
fn a_list_that_the_host_cannot_release() {
    alone("tests::lost::a_list_that_the_host_cannot_release", || {
        let driver = FakeDriver::open();
        let adapter = adapter();
        let device = devices(adapter)[0];
        let own = Own::new(context(&[device]), device, true);
        let (open, gate) = channel::<()>();
        let mut opened = null_mut();
        ok(ur!(EnqueueExp.pfnHostTaskExp(
            own.queue,
            Some(until_opened),
            (&raw const gate).cast_mut().cast(),
            null(),
            0,
            null(),
            &mut opened
        )));
        let late = own.fill(25, 1, Some(opened));
        driver.fail_each("zeEventHostSignal", UNKNOWN.0);
        drop(open);
        for _ in 0..2 {
            let code = ur!(Event.pfnWait(1, &late));
            assert_eq!(code, UR_RESULT_ERROR_DEVICE_LOST);
        }
        assert_eq!(ur!(Queue.pfnFinish(own.queue)), UR_RESULT_ERROR_DEVICE_LOST);
        [opened, late]
            .iter()
            .for_each(|event| ok(ur!(Event.pfnRelease(*event))));
        own.release();
        ok(ur!(Adapter.pfnRelease(adapter)));
    });
}

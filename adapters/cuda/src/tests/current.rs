//! Every call preserves the caller's current context.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, device, ur};
use super::workload;

/// Checks the current context after every call of the workload, for each context that is current before.
#[test]
fn no_call_changes_the_context() {
    alone("tests::current::no_call_changes_the_context", || {
        let driver = FakeDriver::open();
        driver.reset();
        let cases = [
            (0, false),
            (0, true),
            (0xabc0, false),
            (0xabc0, true),
            (0x1000, false),
        ];
        for (own, anywhere) in cases {
            if own != 0 {
                driver.make_current(own);
            }
            driver.anywhere(anywhere);
            let query = |name| assert_eq!(driver.current(), own, "after {name}");
            let steps = workload::play(&query);
            assert_eq!(steps.failed(), []);
            assert!(steps.right, "what was read back");
            driver.check_end("a workload");
        }
    });
}

/// A call that fails preserves the context, too.
#[test]
fn no_failed_call_changes_the_context() {
    alone("tests::current::no_failed_call_changes_the_context", || {
        let driver = FakeDriver::open();
        driver.make_current(0xabc0);
        for call in [
            "cuEventRecord",
            "cuMemcpyAsync",
            "cuEventCreate",
            "cuMemCreate",
        ] {
            driver.fail_each(call, 1);
            let query = |name| assert_eq!(driver.current(), 0xabc0, "{name} without {call}");
            let steps = workload::play(&query);
            assert_ne!(steps.failed(), [], "{call}");
            driver.check_end(call);
        }
    });
}

/// With drivers that accept a stream under any current context, most commands set no context.
#[test]
fn most_commands_need_no_current_context() {
    alone(
        "tests::current::most_commands_need_no_current_context",
        || {
            let driver = FakeDriver::open();
            let pushed = |anywhere| {
                driver.anywhere(anywhere);
                driver.count("cuCtxPushCurrent");
                let steps = workload::play(&|_| ());
                assert_eq!(steps.failed(), []);
                assert!(steps.right, "what was read back");
                let calls = driver.query().calls;
                driver.check_end("a workload");
                calls
            };
            let (newer, older) = (pushed(true), pushed(false));
            assert!(newer + 10 < older, "{newer} {older}");
        },
    );
}

/// The calls concern two devices and contexts of both.
///
/// They come from threads with different current contexts or none. One of the contexts is the right one for
/// some of the calls.
#[test]
fn no_call_changes_the_context_of_any_thread() {
    let name = "tests::current::no_call_changes_the_context_of_any_thread";
    alone(name, || {
        let driver = FakeDriver::open();
        driver.devices(2);
        driver.reset();
        let driver = &driver;
        std::thread::scope(|scope| {
            for own in [0, 0xabc0, 0x1000, 0x1010] {
                scope.spawn(move || {
                    if own != 0 {
                        driver.make_current(own);
                    }
                    let query = |name| assert_eq!(driver.current(), own, "after {name}");
                    for places in [&[0][..], &[1], &[0, 1], &[1, 0]] {
                        let steps = workload::play_on(&query, places);
                        assert_eq!(steps.failed(), [], "on {places:?}");
                        assert!(steps.right, "what was read back on {places:?}");
                    }
                });
            }
        });
        driver.check_end("the scenes");
    });
}

/// In debug builds every entry point checks the context.
///
/// A native command that leaves another context current makes its call fail, and no other call.
#[test]
fn a_call_that_changes_the_context_is_detected() {
    unsafe extern "C" fn push(_: ur_queue_handle_t, driver: *mut c_void) {
        // SAFETY: the test owns it and waits for the call.
        unsafe { &*driver.cast::<FakeDriver>() }.make_current(0xabc0);
    }
    alone(
        "tests::current::a_call_that_changes_the_context_is_detected",
        || {
            let driver = FakeDriver::open();
            let (adapter, mut context, mut queue) = (adapter(), null_mut(), null_mut());
            let device = device(adapter);
            let code = ur!(Context.pfnCreate(1, &device, null(), &mut context));
            assert_eq!(code, UR_RESULT_SUCCESS);
            let code = ur!(Queue.pfnCreate(context, device, null(), &mut queue));
            assert_eq!(code, UR_RESULT_SUCCESS);
            let (data, none) = ((&raw const driver).cast_mut().cast(), null());
            let run = Some(push as _);
            let code = ur!(EnqueueExp.pfnNativeCommandExp(
                queue,
                run,
                data,
                0,
                none,
                null(),
                0,
                null(),
                null_mut()
            ));
            assert_eq!(code, UR_RESULT_ERROR_UNKNOWN);
            assert_eq!(ur!(Queue.pfnFinish(queue)), UR_RESULT_SUCCESS);
            for code in [
                ur!(Queue.pfnRelease(queue)),
                ur!(Context.pfnRelease(context)),
                ur!(Adapter.pfnRelease(adapter)),
            ] {
                assert_eq!(code, UR_RESULT_SUCCESS);
            }
            driver.check_end("the end");
        },
    );
}

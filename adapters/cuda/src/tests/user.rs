//! A function of the user runs with the context of its object current, and may use the driver.
//!
//! The thread has its previous context afterwards.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, devices, ur};

/// The primary contexts of the scripted driver's first two devices.
const FIRST: usize = 0x1000;
const SECOND: usize = 0x1010;

/// The current context that a function saw, and the number of its calls.
struct Seen<'a> {
    driver: &'a FakeDriver,
    context: AtomicUsize,
    calls: AtomicUsize,
}

impl Seen<'_> {
    fn query(&self) {
        self.context.store(self.driver.current(), Ordering::SeqCst);
        // Switches the device, as a runtime may.
        self.driver.set_current(0xdef0);
        self.calls.fetch_add(1, Ordering::SeqCst);
    }

    fn data(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Checks that there was one more call, with this context.
    fn check(&self, what: &str, context: usize) {
        assert_eq!(self.calls.swap(0, Ordering::SeqCst), 1, "calls of {what}");
        let seen = self.context.swap(0, Ordering::SeqCst);
        assert_eq!(seen, context, "current in {what}");
    }
}

unsafe extern "C" fn alone_with_data(data: *mut c_void) {
    // SAFETY: the test owns it and waits for the call.
    unsafe { &*data.cast::<Seen<'_>>() }.query();
}

unsafe extern "C" fn native(_: ur_queue_handle_t, data: *mut c_void) {
    // SAFETY: the test owns it and waits for the call.
    unsafe { alone_with_data(data) }
}

unsafe extern "C" fn called_back(_: ur_event_handle_t, _: ur_execution_info_t, data: *mut c_void) {
    // SAFETY: the test owns it and waits for the call.
    unsafe { alone_with_data(data) }
}

fn ok(code: ur_result_t) {
    assert_eq!(code, UR_RESULT_SUCCESS);
}

#[test]
fn functions_run_in_their_context() {
    let name = "tests::user::functions_run_in_their_context";
    alone(name, || {
        let driver = FakeDriver::open();
        driver.devices(2);
        for own in [0, 0xabc0, FIRST, SECOND] {
            if own != 0 {
                driver.make_current(own);
            }
            for (at, inside) in [(0, FIRST), (1, SECOND)] {
                each(&driver, at, inside, &|what| {
                    assert_eq!(driver.current(), own, "after {what}");
                });
            }
            driver.check_end("the functions");
        }
    });
}

/// Calls a function for each reason there is, about a device whose context is `inside`.
fn each(driver: &FakeDriver, at: usize, inside: usize, after: &dyn Fn(&str)) {
    let seen = Seen {
        driver,
        context: AtomicUsize::new(0),
        calls: AtomicUsize::new(0),
    };
    let (data, none) = (seen.data(), null_mut());
    let (adapter, mut context, mut queue) = (adapter(), null_mut(), null_mut());
    let all = devices(adapter);
    ok(ur!(Context.pfnCreate(
        2,
        all.as_ptr(),
        null(),
        &mut context
    )));
    ok(ur!(Context.pfnSetExtendedDeleter(
        context,
        Some(alone_with_data),
        data
    )));
    ok(ur!(Queue.pfnCreate(context, all[at], null(), &mut queue)));

    let run = Some(native as _);
    ok(ur!(EnqueueExp.pfnNativeCommandExp(
        queue,
        run,
        data,
        0,
        null(),
        null(),
        0,
        null(),
        none
    )));
    after("a native command");
    seen.check("a native command", inside);

    let (mut buffer, mut point) = (null_mut(), 0);
    let what = ur_exp_command_buffer_desc_t::default();
    ok(ur!(CommandBufferExp.pfnCreateExp(
        context,
        all[at],
        &what,
        &mut buffer
    )));
    let (run, child) = (Some(alone_with_data as _), null_mut());
    ok(ur!(CommandBufferExp.pfnAppendNativeCommandExp(
        buffer,
        run,
        data,
        child,
        0,
        null(),
        &mut point
    )));
    after("a recorded native command");
    seen.check("a recorded native command", inside);
    ok(ur!(CommandBufferExp.pfnReleaseExp(buffer)));

    let mut event = null_mut();
    let run = Some(alone_with_data as _);
    ok(ur!(EnqueueExp.pfnHostTaskExp(
        queue,
        run,
        data,
        null(),
        0,
        null(),
        &mut event
    )));
    ok(ur!(Event.pfnWait(1, &event)));
    after("a host task");
    seen.check("a host task", inside);

    let (complete, run) = (UR_EXECUTION_INFO_COMPLETE, Some(called_back as _));
    ok(ur!(Event.pfnSetCallback(event, complete, run, data)));
    while seen.calls.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    after("a callback");
    seen.check("a callback", inside);
    ok(ur!(Event.pfnRelease(event)));

    let mut graph = null_mut();
    ok(ur!(GraphExp.pfnCreateExp(context, &mut graph)));
    ok(ur!(GraphExp.pfnSetDestructionCallbackExp(
        graph,
        Some(alone_with_data),
        data
    )));
    ok(ur!(GraphExp.pfnDestroyExp(graph)));
    after("the end of a graph");
    seen.check("the end of a graph", FIRST);

    ok(ur!(Queue.pfnFinish(queue)));
    ok(ur!(Queue.pfnRelease(queue)));
    ok(ur!(Context.pfnRelease(context)));
    // A thread of the adapter may keep the context for a short time.
    while seen.calls.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    after("the end of a context");
    seen.check("the end of a context", FIRST);
    ok(ur!(Adapter.pfnRelease(adapter)));
}

/// Where the context cannot be made current, a native command's function is not called and the command fails.
///
/// No object is leaked.
#[test]
fn no_native_command_runs_without_its_context() {
    let name = "tests::user::no_native_command_runs_without_its_context";
    alone(name, || {
        let driver = FakeDriver::open();
        let seen = Seen {
            driver: &driver,
            context: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
        };
        let (adapter, mut context, mut queue) = (adapter(), null_mut(), null_mut());
        let device = devices(adapter)[0];
        ok(ur!(Context.pfnCreate(1, &device, null(), &mut context)));
        ok(ur!(Queue.pfnCreate(context, device, null(), &mut queue)));
        let enqueue = || {
            let (run, data, none) = (Some(native as _), seen.data(), null_mut());
            ur!(EnqueueExp.pfnNativeCommandExp(
                queue,
                run,
                data,
                0,
                null(),
                null(),
                0,
                null(),
                none
            ))
        };
        driver.fail_each("cuCtxPushCurrent", 999);
        assert_ne!(enqueue(), UR_RESULT_SUCCESS);
        driver.reset();
        assert_eq!(seen.calls.load(Ordering::SeqCst), 0);
        ok(enqueue());
        seen.check("a native command", FIRST);
        ok(ur!(Queue.pfnFinish(queue)));
        ok(ur!(Queue.pfnRelease(queue)));
        ok(ur!(Context.pfnRelease(context)));
        ok(ur!(Adapter.pfnRelease(adapter)));
        driver.check_end("the end");
    });
}

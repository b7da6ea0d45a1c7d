//! Events and waits over the driver of `scripted/`: how many events there are, and what a wait costs.
//!
//! Each test runs in a process of its own, since an adapter looks for its driver once.

use std::ffi::{c_char, c_void};
use std::ops::Deref;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use scripted::{Answer, EACH, Scripted, beside};
use scripted_level_zero::Fault;
use ur::abi::*;
use ur::dl::{Binding, Library};

use crate::lz::*;

/// Calls a function of the adapter's table: `ur!(Queue.pfnFinish(queue))`.
macro_rules! ur {
    ($($call:tt)*) => {
        scripted::call!(crate::LevelZero, $($call)*)
    };
}

/// Expects success.
macro_rules! good {
    ($($call:tt)*) => {
        assert_eq!(ur!($($call)*), UR_RESULT_SUCCESS)
    };
}

ur::dl::symbols! {
    struct Control {
        required {
            scripted_fail: unsafe extern "C" fn(Fault, *const c_char),
            scripted_lose: extern "C" fn(bool),
            scripted_query: extern "C" fn() -> Answer,
            scripted_report: unsafe extern "C" fn(*mut c_char, usize),
            zeEventPoolCreate: pfn::zeEventPoolCreate,
            zeEventPoolDestroy: pfn::zeEventPoolDestroy,
            zeEventCreate: pfn::zeEventCreate,
            zeEventDestroy: pfn::zeEventDestroy,
            zeEventHostSignal: pfn::zeEventHostSignal,
        }
        optional {}
    }
}

/// The driver, which the adapter then finds.
struct Driver(Control, Scripted<u32>);

impl Deref for Driver {
    type Target = Scripted<u32>;

    fn deref(&self) -> &Self::Target {
        &self.1
    }
}

impl Driver {
    fn open() -> Self {
        let library = beside("libscripted_level_zero.so");
        let library = Library::open(library, Binding::Usual).expect("the scripted library");
        let control = Control::from_library(library).expect("its functions");
        let scripted = Scripted {
            fail: control.scripted_fail,
            query: control.scripted_query,
            report: control.scripted_report,
        };
        Self(control, scripted)
    }

    /// Checks that few objects are alive.
    fn check_few(&self) {
        assert!(self.query().live < FEW, "{}", self.report());
    }
}

/// Variables of a process.
type Variables = &'static [(&'static str, &'static str)];

const USUAL: Variables = &[];
/// Without counter-based events markers are events of pools.
const POOLS: Variables = &[("UR_L0_USE_DRIVER_COUNTER_BASED_EVENTS", "0")];

/// Runs a test of this module in processes of their own, one for each set of variables.
fn alone(name: &str, processes: &[Variables], test: impl FnOnce()) {
    let name = format!("exec::tests::{name}");
    if scripted::is_alone(&name) {
        return test();
    }
    for variables in processes {
        let prepare = |command: &mut Command| {
            command.envs(variables.iter().copied());
        };
        scripted::alone(&name, prepare, || ());
    }
}

/// A context on the first device, with host memory.
struct Fixture {
    adapter: ur_adapter_handle_t,
    device: ur_device_handle_t,
    context: ur_context_handle_t,
    memory: *mut c_void,
}

impl Fixture {
    fn new() -> Self {
        let (mut adapter, mut platform, mut device) = (null_mut(), null_mut(), null_mut());
        let (mut context, mut memory) = (null_mut(), null_mut());
        good!(Adapter.pfnGet(1, &mut adapter, null_mut()));
        good!(Platform.pfnGet(adapter, 1, &mut platform, null_mut()));
        good!(Device.pfnGet(platform, UR_DEVICE_TYPE_ALL, 1, &mut device, null_mut()));
        good!(Context.pfnCreate(1, &device, null(), &mut context));
        good!(USM.pfnHostAlloc(context, null(), null_mut(), 64, &mut memory));
        Self {
            adapter,
            device,
            context,
            memory,
        }
    }

    fn queue(&self, flags: ur_queue_flags_t) -> ur_queue_handle_t {
        let what = ur_queue_properties_t {
            flags,
            ..Default::default()
        };
        let mut queue = null_mut();
        good!(Queue.pfnCreate(self.context, self.device, &what, &mut queue));
        queue
    }

    /// Enqueues a fill after events; its event.
    fn fill(&self, queue: ur_queue_handle_t, after: &[ur_event_handle_t]) -> ur_event_handle_t {
        let mut event = null_mut();
        let word = 7_u32;
        let from = (&raw const word).cast();
        let count = after.len() as u32;
        let waits = if after.is_empty() {
            null()
        } else {
            after.as_ptr()
        };
        good!(Enqueue.pfnUSMFill(queue, self.memory, 4, from, 4, count, waits, &mut event));
        event
    }

    fn end(self, driver: &Driver, queues: &[ur_queue_handle_t]) {
        for queue in queues {
            good!(Queue.pfnFinish(*queue));
            good!(Queue.pfnRelease(*queue));
        }
        good!(USM.pfnFree(self.context, self.memory));
        good!(Context.pfnRelease(self.context));
        good!(Adapter.pfnRelease(self.adapter));
        driver.check_end("at the end");
    }
}

/// An event of foreign code, which is signalled later.
struct Gate<'a> {
    driver: &'a Driver,
    pool: ze_event_pool_handle_t,
    raw: ze_event_handle_t,
    event: ur_event_handle_t,
}

impl<'a> Gate<'a> {
    fn new(driver: &'a Driver, fixture: &Fixture) -> Self {
        let mut native = 0;
        good!(Context.pfnGetNativeHandle(fixture.context, &mut native));
        let context = ze_context_handle_t(std::ptr::with_exposed_provenance_mut(native));
        let (mut pool, mut raw) = (ze_event_pool_handle_t::NULL, ze_event_handle_t::NULL);
        let desc = ze_event_pool_desc_t {
            flags: ZE_EVENT_POOL_FLAG_HOST_VISIBLE,
            count: 1,
            ..Default::default()
        };
        let one = ze_event_desc_t::default();
        // SAFETY: descriptions with their tags, and room for the handles.
        unsafe {
            (driver.0.zeEventPoolCreate)(context, &desc, 0, null_mut(), &mut pool);
            (driver.0.zeEventCreate)(pool, &one, &mut raw);
        }
        assert!(!raw.is_null());
        let mut event = null_mut();
        let native = raw.0.expose_provenance();
        good!(Event.pfnCreateWithNativeHandle(native, fixture.context, null(), &mut event));
        Self {
            driver,
            pool,
            raw,
            event,
        }
    }

    /// Opens the gate, in any thread.
    fn opener(&self) -> impl FnOnce() + Send + use<> {
        let (signal, raw) = (
            self.driver.0.zeEventHostSignal,
            self.raw.0.expose_provenance(),
        );
        move || {
            let raw = std::ptr::with_exposed_provenance_mut(raw);
            // SAFETY: a live event.
            unsafe { signal(ze_event_handle_t(raw)) };
        }
    }

    fn end(self) {
        good!(Event.pfnRelease(self.event));
        // SAFETY: live handles, which nobody uses any more.
        unsafe {
            (self.driver.0.zeEventDestroy)(self.raw);
            (self.driver.0.zeEventPoolDestroy)(self.pool);
        }
    }
}

fn release(event: ur_event_handle_t) {
    good!(Event.pfnRelease(event));
}

const IN_ORDER: ur_queue_flags_t = ur_queue_flags_t(0);
const OUT_OF_ORDER: ur_queue_flags_t = UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE;
const PROFILED: ur_queue_flags_t = UR_QUEUE_FLAG_PROFILING_ENABLE;

const ROUNDS: usize = 2000;
/// Objects of the driver that a program of so many commands may need, which waits every 64 of them.
const FEW: usize = 300;

/// Commands of three queues wait for each other. The third queue only waits, so that nobody asks for its markers.
#[test]
fn queues_that_follow_each_other_need_few_events() {
    let name = "queues_that_follow_each_other_need_few_events";
    alone(name, &[USUAL, POOLS], || {
        let driver = Driver::open();
        let fixture = Fixture::new();
        let queues = [OUT_OF_ORDER, OUT_OF_ORDER, IN_ORDER].map(|flags| fixture.queue(flags));
        let mut last: Option<ur_event_handle_t> = None;
        for round in 0..ROUNDS {
            let waits: Vec<_> = last.into_iter().collect();
            let first = fixture.fill(queues[0], &waits);
            let second = fixture.fill(queues[1], &[first]);
            if round % 16 == 0 {
                good!(Enqueue.pfnEventsWait(queues[2], 1, &second, null_mut()));
            }
            if round % 64 == 0 {
                good!(Event.pfnWait(1, &second));
            }
            waits.into_iter().for_each(release);
            release(first);
            last = Some(second);
        }
        last.into_iter().for_each(release);
        driver.check_few();
        fixture.end(&driver, &queues);
    });
}

/// Each profiled command has an event with times.
#[test]
fn profiled_commands_need_few_events() {
    alone("profiled_commands_need_few_events", &[USUAL, POOLS], || {
        let driver = Driver::open();
        let fixture = Fixture::new();
        let queue = fixture.queue(PROFILED);
        for round in 0..ROUNDS {
            let event = fixture.fill(queue, &[]);
            if round % 64 == 0 {
                good!(Event.pfnWait(1, &event));
            }
            release(event);
        }
        driver.check_few();
        fixture.end(&driver, &[queue]);
    });
}

/// A queue whose native handle is given out waits for the host itself, by an event that the host signals.
#[test]
fn waits_for_the_host_need_few_events() {
    alone(
        "waits_for_the_host_need_few_events",
        &[USUAL, POOLS],
        || {
            unsafe extern "C" fn nothing(_: *mut c_void) {}
            let driver = Driver::open();
            let fixture = Fixture::new();
            let [task, open] = [(); 2].map(|()| fixture.queue(IN_ORDER));
            let mut native = 0;
            good!(Queue.pfnGetNativeHandle(open, null_mut(), &mut native));
            for _ in 0..ROUNDS {
                let mut done = null_mut();
                good!(EnqueueExp.pfnHostTaskExp(
                    task,
                    Some(nothing),
                    null_mut(),
                    null(),
                    0,
                    null(),
                    &mut done
                ));
                let event = fixture.fill(open, &[done]);
                good!(Event.pfnWait(1, &event));
                release(done);
                release(event);
            }
            driver.check_few();
            fixture.end(&driver, &[task, open]);
        },
    );
}

/// A profiled command that the driver refuses has an event that nobody signals.
#[test]
fn refused_commands_leave_their_events() {
    alone("refused_commands_leave_their_events", &[USUAL], || {
        let driver = Driver::open();
        let fixture = Fixture::new();
        let queue = fixture.queue(PROFILED);
        let refused = ZE_RESULT_ERROR_INVALID_ARGUMENT.0;
        driver.fail_nth("zeCommandListAppendMemoryFill", EACH, refused);
        let word = 7_u32;
        let from: *const c_void = (&raw const word).cast();
        for _ in 0..ROUNDS {
            let mut event = null_mut();
            let code =
                ur!(Enqueue.pfnUSMFill(queue, fixture.memory, 4, from, 4, 0, null(), &mut event));
            assert_eq!(code, UR_RESULT_ERROR_INVALID_ARGUMENT);
        }
        driver.check_few();
        fixture.end(&driver, &[queue]);
    });
}

/// An event that is never signalled does not keep others from being used again.
#[test]
fn a_pending_event_hides_no_other() {
    alone("a_pending_event_hides_no_other", &[POOLS], || {
        let driver = Driver::open();
        let fixture = Fixture::new();
        let gate = Gate::new(&driver, &fixture);
        let [blocked, free] = [(); 2].map(|()| fixture.queue(IN_ORDER));
        let first = fixture.fill(blocked, &[gate.event]);
        // Asks for the marker, which stays pending.
        let mut native = 0;
        good!(Event.pfnGetNativeHandle(first, &mut native));
        release(first);
        for _ in 0..ROUNDS {
            let event = fixture.fill(free, &[]);
            good!(Event.pfnWait(1, &event));
            release(event);
        }
        driver.check_few();
        gate.opener()();
        good!(Queue.pfnFinish(blocked));
        gate.end();
        fixture.end(&driver, &[blocked, free]);
    });
}

/// The driver's own wait polls on a whole core: a long wait leaves it, and queries now and then.
#[test]
fn a_long_wait_sleeps() {
    alone("a_long_wait_sleeps", &[USUAL, POOLS], || {
        let driver = Driver::open();
        let fixture = Fixture::new();
        let gate = Gate::new(&driver, &fixture);
        let queue = fixture.queue(IN_ORDER);
        let event = fixture.fill(queue, &[gate.event]);
        let begin = Instant::now();
        let calls = driver.calls("zeEventHostSynchronize", || {
            std::thread::scope(|scope| {
                let open = gate.opener();
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(300));
                    open();
                });
                good!(Event.pfnWait(1, &event));
            });
        });
        assert!(begin.elapsed() >= Duration::from_millis(300));
        assert!((20..=2000).contains(&calls), "{calls} queries");
        release(event);
        gate.end();
        fixture.end(&driver, &[queue]);
    });
}

/// Waits and queries end with `DEVICE_LOST` once the device is lost, also those that began before.
#[test]
fn a_lost_device_ends_waits_and_queries() {
    alone(
        "a_lost_device_ends_waits_and_queries",
        &[USUAL, POOLS],
        || {
            let driver = Driver::open();
            let fixture = Fixture::new();
            let gate = Gate::new(&driver, &fixture);
            let queues = [IN_ORDER, OUT_OF_ORDER].map(|flags| fixture.queue(flags));
            let events = queues.map(|queue| fixture.fill(queue, &[gate.event]));
            let lost = |what: &str, code: ur_result_t| {
                assert_eq!(code, UR_RESULT_ERROR_DEVICE_LOST, "{what}");
            };
            std::thread::scope(|scope| {
                let lose = driver.0.scripted_lose;
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(100));
                    lose(true);
                });
                lost(
                    "a wait that began before",
                    ur!(Event.pfnWait(1, &events[0])),
                );
            });
            let begin = Instant::now();
            for (queue, event) in queues.into_iter().zip(events) {
                lost("a wait", ur!(Event.pfnWait(1, &event)));
                lost("finish", ur!(Queue.pfnFinish(queue)));
                let status = UR_EVENT_INFO_COMMAND_EXECUTION_STATUS;
                let mut value = 0_u32;
                let polled = loop {
                    let to = (&raw mut value).cast();
                    let code = ur!(Event.pfnGetInfo(event, status, 4, to, null_mut()));
                    if code != UR_RESULT_SUCCESS || begin.elapsed() > Duration::from_secs(5) {
                        break code;
                    }
                };
                lost("a query", polled);
            }
            lost("a device's wait", ur!(DeviceExp.pfnWaitExp(fixture.device)));
            assert!(
                begin.elapsed() < Duration::from_secs(5),
                "{:?}",
                begin.elapsed()
            );
        },
    );
}

/// Each variable in a process of its own, and none of them.
#[test]
fn variables_of_users_have_their_effect() {
    const UNPOOLED: Variables = &[("UR_L0_DISABLE_USM_ALLOCATOR", "1")];
    const SERIAL: Variables = &[("UR_L0_SERIALIZE", "2")];
    const BARRIERS: Variables = &[("SYCL_PI_LEVEL_ZERO_USE_DRIVER_INORDER_LISTS", "0")];
    let name = "variables_of_users_have_their_effect";
    alone(name, &[USUAL, UNPOOLED, SERIAL, BARRIERS], || {
        let is = |variables: Variables| std::env::var_os(variables[0].0).is_some();
        let driver = Driver::open();
        let fixture = Fixture::new();
        let queue = fixture.queue(IN_ORDER);
        let barriers = driver.calls("zeCommandListAppendBarrier", || {
            release(fixture.fill(queue, &[]));
            if is(SERIAL) {
                // SAFETY: host memory with room for the word, which no command uses any more.
                let word = unsafe { fixture.memory.cast::<u32>().read_volatile() };
                assert_eq!(word, 7, "the fill is complete");
            }
        });
        assert_eq!(barriers > 0, is(BARRIERS));
        let freed = driver.calls("zeMemFree", || {
            let mut memory = null_mut();
            let (context, device) = (fixture.context, fixture.device);
            good!(USM.pfnDeviceAlloc(context, device, null(), null_mut(), 4096, &mut memory));
            good!(USM.pfnFree(context, memory));
            good!(Queue.pfnFinish(queue));
        });
        assert_eq!(freed > 0, is(UNPOOLED));
        fixture.end(&driver, &[queue]);
    });
}

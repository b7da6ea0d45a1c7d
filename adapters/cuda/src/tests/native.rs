//! Asynchronous allocation from the driver's own pools, where the user asks for it.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, alone_with, device, ur};
use super::workload::{SIZE, Steps, enqueue, make, release, task};

const NATIVE_POOLS: &[(&str, &str)] = &[("UR_CUDA_NATIVE_POOLS", "1")];

/// The granularity of the scripted driver's memory.
const PIECE: usize = 2 << 20;

const KINDS: [ur_usm_type_t; 3] = [UR_USM_TYPE_DEVICE, UR_USM_TYPE_HOST, UR_USM_TYPE_SHARED];

type Fixture = (ur_context_handle_t, ur_device_handle_t);

/// A context on the one device, released together with the adapter.
struct TestContext {
    adapter: ur_adapter_handle_t,
    at: Fixture,
}

impl TestContext {
    fn new() -> Self {
        let adapter = adapter();
        let (device, mut context) = (device(adapter), null_mut());
        let code = ur!(Context.pfnCreate(1, &device, null(), &mut context));
        assert_eq!(code, UR_RESULT_SUCCESS);
        Self {
            adapter,
            at: (context, device),
        }
    }

    fn queue(&self, flags: ur_queue_flags_t) -> ur_queue_handle_t {
        let what = ur_queue_properties_t {
            flags,
            ..Default::default()
        };
        let mut queue = null_mut();
        let code = ur!(Queue.pfnCreate(self.at.0, self.at.1, &what, &mut queue));
        assert_eq!(code, UR_RESULT_SUCCESS);
        queue
    }

    fn pool(&self, limits: Option<(usize, usize)>) -> ur_usm_pool_handle_t {
        let mut pool = null_mut();
        let code = make_pool(self.at, limits, &mut pool);
        assert_eq!(code, UR_RESULT_SUCCESS);
        pool
    }

    fn end(self, driver: &FakeDriver) {
        assert_eq!(ur!(Context.pfnRelease(self.at.0)), UR_RESULT_SUCCESS);
        assert_eq!(ur!(Adapter.pfnRelease(self.adapter)), UR_RESULT_SUCCESS);
        driver.check_end("the end");
    }
}

/// A pool that the driver may serve, with a maximum size and a threshold in bytes.
fn make_pool(
    (context, device): Fixture,
    limits: Option<(usize, usize)>,
    pool: &mut ur_usm_pool_handle_t,
) -> ur_result_t {
    let (most, keep) = limits.unwrap_or_default();
    let limit = ur_usm_pool_limits_desc_t {
        stype: UR_STRUCTURE_TYPE_USM_POOL_LIMITS_DESC,
        maxPoolableSize: most,
        minDriverAllocSize: keep,
        ..Default::default()
    };
    let mut desc = ur_usm_pool_desc_t {
        flags: UR_USM_POOL_FLAG_USE_NATIVE_MEMORY_POOL_EXP,
        pNext: match limits {
            Some(_) => (&raw const limit).cast(),
            None => null(),
        },
        ..Default::default()
    };
    ur!(USMExp.pfnPoolCreateExp(context, device, &mut desc, pool))
}

fn pool_info(pool: ur_usm_pool_handle_t, what: ur_usm_pool_info_t) -> usize {
    let mut value = 0_usize;
    let to = (&raw mut value).cast();
    let code = ur!(USMExp.pfnPoolGetInfoExp(pool, what, to, null_mut()));
    assert_eq!(code, UR_RESULT_SUCCESS);
    value
}

fn reserved(pool: ur_usm_pool_handle_t) -> [usize; 2] {
    [
        UR_USM_POOL_INFO_RESERVED_CURRENT_EXP,
        UR_USM_POOL_INFO_RESERVED_HIGH_EXP,
    ]
    .map(|what| pool_info(pool, what))
}

fn used(pool: ur_usm_pool_handle_t) -> [usize; 2] {
    [
        UR_USM_POOL_INFO_USED_CURRENT_EXP,
        UR_USM_POOL_INFO_USED_HIGH_EXP,
    ]
    .map(|what| pool_info(pool, what))
}

/// An allocation of a kind, with its event if it is wanted.
fn alloc(
    queue: ur_queue_handle_t,
    pool: ur_usm_pool_handle_t,
    kind: ur_usm_type_t,
    size: usize,
    event: *mut ur_event_handle_t,
) -> Result<*mut c_void, ur_result_t> {
    let mut memory = null_mut();
    let to = &mut memory;
    let code = match kind {
        UR_USM_TYPE_DEVICE => {
            ur!(EnqueueExp.pfnUSMDeviceAllocExp(queue, pool, size, null(), 0, null(), to, event))
        }
        UR_USM_TYPE_HOST => {
            ur!(EnqueueExp.pfnUSMHostAllocExp(queue, pool, size, null(), 0, null(), to, event))
        }
        _ => ur!(EnqueueExp.pfnUSMSharedAllocExp(queue, pool, size, null(), 0, null(), to, event)),
    };
    match code {
        UR_RESULT_SUCCESS => Ok(memory),
        code => Err(code),
    }
}

fn free(queue: ur_queue_handle_t, memory: *mut c_void) -> ur_result_t {
    ur!(EnqueueExp.pfnUSMFreeExp(queue, null_mut(), memory, 0, null(), null_mut()))
}

fn finish(queue: ur_queue_handle_t) {
    assert_eq!(ur!(Queue.pfnFinish(queue)), UR_RESULT_SUCCESS);
}

fn fill(queue: ur_queue_handle_t, memory: *mut c_void, byte: u8) {
    let from = (&raw const byte).cast();
    let code = ur!(Enqueue.pfnUSMFill(queue, memory, 1, from, SIZE, 0, null(), null_mut()));
    assert_eq!(code, UR_RESULT_SUCCESS);
}

const IN_ORDER: ur_queue_flags_t = ur_queue_flags_t(0);
const LOOSE: ur_queue_flags_t = UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE;

/// Each kind on both types of queues, ordered by events. The data is read back.
fn play(after: &dyn Fn(&'static str)) -> Steps<'_> {
    let mut steps = Steps::new(after);
    let adapter = adapter();
    let device = device(adapter);
    let context = make!(
        steps,
        "urContextCreate",
        Context.pfnCreate(1, &device, null())
    );
    if !context.is_null() {
        on_pool(&mut steps, (context, device));
        steps.record("urContextRelease", ur!(Context.pfnRelease(context)));
    }
    steps.record("urAdapterRelease", ur!(Adapter.pfnRelease(adapter)));
    steps
}

fn on_pool(steps: &mut Steps<'_>, at: Fixture) {
    let mut pool = null_mut();
    let code = make_pool(at, Some((64 << 20, PIECE)), &mut pool);
    steps.record("urUSMPoolCreateExp", code);
    let queues = [IN_ORDER, LOOSE].map(|flags| {
        let what = ur_queue_properties_t {
            flags,
            ..Default::default()
        };
        make!(steps, "urQueueCreate", Queue.pfnCreate(at.0, at.1, &what))
    });
    if !pool.is_null() && queues.iter().all(|queue| !queue.is_null()) {
        steps.right = true;
        for kind in KINDS {
            on_queues(steps, queues, pool, kind);
            at_once(steps, at, queues[0], pool, kind);
        }
    }
    for queue in queues {
        if !queue.is_null() {
            steps.record("urQueueFinish", ur!(Queue.pfnFinish(queue)));
            steps.record("urQueueRelease", ur!(Queue.pfnRelease(queue)));
        }
    }
    if !pool.is_null() {
        let code = ur!(USMExp.pfnPoolDestroyExp(at.0, at.1, pool));
        steps.record("urUSMPoolDestroyExp", code);
    }
}

fn on_queues(
    steps: &mut Steps<'_>,
    [one, two]: [ur_queue_handle_t; 2],
    pool: ur_usm_pool_handle_t,
    kind: ur_usm_type_t,
) {
    for (from, to) in [(one, two), (two, one), (one, one)] {
        let mut made = null_mut();
        let memory = alloc(from, pool, kind, SIZE, &mut made);
        let code = memory.err().unwrap_or(UR_RESULT_SUCCESS);
        if !steps.record("urEnqueueUSMAllocExp", code) {
            continue;
        }
        let (memory, byte, mut read) = (memory.unwrap_or(null_mut()), 0x5a_u8, [0_u8; SIZE]);
        let filled = enqueue!(
            steps,
            "urEnqueueUSMFill",
            vec![made],
            Enqueue.pfnUSMFill(to, memory, 1, (&raw const byte).cast(), SIZE)
        );
        let copied = enqueue!(
            steps,
            "urEnqueueUSMMemcpy",
            vec![filled, made],
            Enqueue.pfnUSMMemcpy(from, 0, read.as_mut_ptr().cast(), memory, SIZE)
        );
        let freed = enqueue!(
            steps,
            "urEnqueueUSMFreeExp",
            vec![copied, filled, made],
            EnqueueExp.pfnUSMFreeExp(to, pool, memory)
        );
        for queue in [from, to] {
            steps.record("urQueueFinish", ur!(Queue.pfnFinish(queue)));
        }
        let there = !filled.is_null() && !copied.is_null();
        steps.right &= !there || read.iter().all(|own| *own == byte);
        release(steps, &[made, filled, copied, freed]);
    }
}

fn at_once(
    steps: &mut Steps<'_>,
    (context, device): Fixture,
    queue: ur_queue_handle_t,
    pool: ur_usm_pool_handle_t,
    kind: ur_usm_type_t,
) {
    let memory = match kind {
        UR_USM_TYPE_DEVICE => make!(
            steps,
            "urUSMDeviceAlloc",
            USM.pfnDeviceAlloc(context, device, null(), pool, SIZE)
        ),
        UR_USM_TYPE_HOST => make!(
            steps,
            "urUSMHostAlloc",
            USM.pfnHostAlloc(context, null(), pool, SIZE)
        ),
        _ => make!(
            steps,
            "urUSMSharedAlloc",
            USM.pfnSharedAlloc(context, device, null(), pool, SIZE)
        ),
    };
    if !memory.is_null() {
        let byte = 3_u8;
        let filled = enqueue!(
            steps,
            "urEnqueueUSMFill",
            vec![],
            Enqueue.pfnUSMFill(queue, memory, 1, (&raw const byte).cast(), SIZE)
        );
        steps.record("urUSMFree", ur!(USM.pfnFree(context, memory)));
        release(steps, &[filled]);
    }
}

#[test]
fn the_drivers_pools_serve_on_request() {
    let name = "tests::native::the_drivers_pools_serve_on_request";
    alone_with(name, NATIVE_POOLS, || {
        let driver = FakeDriver::open();
        driver.count("cuMemAllocFromPoolAsync");
        driver.make_current(0xabc0);
        let query = |name| assert_eq!(driver.current(), 0xabc0, "after {name}");
        let steps = play(&query);
        assert_eq!(steps.failed(), []);
        assert!(steps.right, "what was read back");
        assert_eq!(driver.query().calls, 12, "allocations of the driver's");
        driver.check_end("a workload");
    });
}

/// The flag alone, which DPC++ always sets, does not ask for the driver's pool.
#[test]
fn the_flag_alone_is_a_hint() {
    alone("tests::native::the_flag_alone_is_a_hint", || {
        let driver = FakeDriver::open();
        driver.count("cuMemPoolCreate");
        let steps = play(&|_| {});
        assert_eq!(steps.failed(), []);
        assert_eq!(driver.query().calls, 0);
        driver.check_end("a workload");
    });
}

/// With a driver whose pools have device memory alone, the adapter's pool serves the other kinds.
#[test]
fn kinds_without_a_driver_pool_use_the_adapters_pool() {
    let name = "tests::native::kinds_without_a_driver_pool_use_the_adapters_pool";
    alone_with(name, NATIVE_POOLS, || {
        let driver = FakeDriver::open();
        for (failing, from_driver) in [(1, 12), (2, 12), (u64::MAX, 0)] {
            driver.fail_nth("cuMemPoolCreate", failing, 801);
            let test_context = TestContext::new();
            let pool = test_context.pool(Some((64 << 20, 0)));
            driver.count("cuMemAllocFromPoolAsync");
            let queue = test_context.queue(IN_ORDER);
            let memory = KINDS.map(|kind| alloc(queue, pool, kind, SIZE, null_mut()));
            assert_eq!(used(pool)[0], 3 * SIZE);
            for memory in memory {
                let memory = memory.expect("memory of each kind");
                fill(queue, memory, 1);
                assert_eq!(free(queue, memory), UR_RESULT_SUCCESS);
            }
            assert_eq!(used(pool), [0, 3 * SIZE]);
            finish(queue);
            assert_eq!(reserved(pool), [0, 3 * PIECE], "{failing}");
            assert_eq!(driver.query().calls, from_driver / 4, "{failing}");
            assert_eq!(ur!(Queue.pfnRelease(queue)), UR_RESULT_SUCCESS);
            let (context, device) = test_context.at;
            ur!(USMExp.pfnPoolDestroyExp(context, device, pool));
            test_context.end(&driver);
        }
    });
}

/// Pages are any multiple of the least page, and the driver aligns addresses to powers of two only.
#[test]
fn zeroed_pages_have_any_size() {
    alone("tests::native::zeroed_pages_have_any_size", || {
        let driver = FakeDriver::open();
        let test_context = TestContext::new();
        let (context, device) = test_context.at;
        let mut desc = ur_usm_pool_desc_t {
            flags: UR_USM_POOL_FLAG_ZERO_INITIALIZE_BLOCK,
            ..Default::default()
        };
        let mut pool = null_mut();
        let code = ur!(USMExp.pfnPoolCreateExp(context, device, &mut desc, &mut pool));
        assert_eq!(code, UR_RESULT_SUCCESS);
        let queue = test_context.queue(IN_ORDER);
        for pieces in [1, 3, 5, 11] {
            let memory = alloc(queue, pool, UR_USM_TYPE_DEVICE, pieces * PIECE, null_mut());
            let memory = memory.expect("memory of any size");
            assert_eq!(free(queue, memory), UR_RESULT_SUCCESS);
        }
        finish(queue);
        assert_eq!(ur!(Queue.pfnRelease(queue)), UR_RESULT_SUCCESS);
        ur!(USMExp.pfnPoolDestroyExp(context, device, pool));
        test_context.end(&driver);
    });
}

#[test]
fn statistics_and_limits_are_the_same() {
    let name = "tests::native::statistics_and_limits_are_the_same";
    alone_with(name, NATIVE_POOLS, || {
        let driver = FakeDriver::open();
        let test_context = TestContext::new();
        let (context, device) = test_context.at;
        let queue = test_context.queue(IN_ORDER);
        let pool = test_context.pool(Some((3 * PIECE, PIECE)));
        assert_eq!(
            pool_info(pool, UR_USM_POOL_INFO_RELEASE_THRESHOLD_EXP),
            PIECE
        );
        assert_eq!(
            pool_info(pool, UR_USM_POOL_INFO_MAXIMUM_SIZE_EXP),
            3 * PIECE
        );
        assert_eq!((reserved(pool), used(pool)), ([0, 0], [0, 0]));
        let get = |kind, size| alloc(queue, pool, kind, size, null_mut());
        let one = get(UR_USM_TYPE_DEVICE, SIZE).expect("memory");
        let two = get(UR_USM_TYPE_HOST, PIECE + 1).expect("memory");
        assert_eq!(reserved(pool), [3 * PIECE; 2]);
        assert_eq!(used(pool), [SIZE + PIECE + 1; 2]);
        // All kinds together stay within the maximum.
        let dry = UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
        assert_eq!(get(UR_USM_TYPE_DEVICE, 2 * PIECE), Err(dry));
        let dry = UR_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        assert_eq!(get(UR_USM_TYPE_HOST, 3 * PIECE), Err(dry));
        assert_eq!(used(pool), [SIZE + PIECE + 1; 2]);
        assert_eq!(free(queue, two), UR_RESULT_SUCCESS);
        assert_eq!(free(queue, two), UR_RESULT_ERROR_INVALID_MEM_OBJECT);
        assert_eq!(used(pool)[0], SIZE);
        // Idle memory of other kinds is released.
        let three = get(UR_USM_TYPE_SHARED, 2 * PIECE).expect("memory");
        assert_eq!(reserved(pool), [3 * PIECE, 5 * PIECE]);
        let (what, zero) = (UR_USM_POOL_INFO_RESERVED_HIGH_EXP, 0_usize);
        let from = (&raw const zero).cast_mut().cast();
        let code = ur!(USMExp.pfnPoolSetInfoExp(pool, what, from, size_of::<usize>()));
        assert_eq!(code, UR_RESULT_SUCCESS);
        assert_eq!(reserved(pool), [3 * PIECE; 2]);
        for memory in [one, three] {
            assert_eq!(free(queue, memory), UR_RESULT_SUCCESS);
        }
        finish(queue);
        assert_eq!(reserved(pool)[0], PIECE, "the threshold");
        let code = ur!(USMExp.pfnPoolTrimToExp(context, device, pool, 0));
        assert_eq!((code, reserved(pool)[0]), (UR_RESULT_SUCCESS, 0));
        ur!(Queue.pfnRelease(queue));
        ur!(USMExp.pfnPoolDestroyExp(context, device, pool));
        test_context.end(&driver);
    });
}

/// On a queue that waits for the host, memory is given at once, and its fill and free come later.
#[test]
fn a_queue_blocked_by_the_host_gets_memory() {
    let name = "tests::native::a_queue_blocked_by_the_host_gets_memory";
    alone_with(name, NATIVE_POOLS, || {
        let driver = FakeDriver::open();
        let test_context = TestContext::new();
        let pool = test_context.pool(None);
        let count = AtomicU32::new(0);
        let data = (&raw const count).cast_mut().cast();
        for flags in [IN_ORDER, LOOSE] {
            let queue = test_context.queue(flags);
            let mut event = null_mut();
            let (to, none) = (&raw mut event, null());
            let code = ur!(EnqueueExp.pfnHostTaskExp(queue, Some(task), data, null(), 0, none, to));
            assert_eq!(code, UR_RESULT_SUCCESS);
            let (mut memory, mut made, mut freed) = (null_mut(), null_mut(), null_mut());
            let (at, out, kind) = (&raw mut memory, &raw mut made, &raw const event);
            let code =
                ur!(EnqueueExp.pfnUSMDeviceAllocExp(queue, pool, SIZE, null(), 1, kind, at, out));
            assert_eq!(code, UR_RESULT_SUCCESS);
            let (byte, mut filled) = (9_u8, null_mut());
            let from = (&raw const byte).cast();
            let code = ur!(Enqueue.pfnUSMFill(queue, memory, 1, from, SIZE, 1, &made, &mut filled));
            assert_eq!(code, UR_RESULT_SUCCESS);
            let code = ur!(EnqueueExp.pfnUSMFreeExp(queue, pool, memory, 1, &filled, &mut freed));
            assert_eq!(code, UR_RESULT_SUCCESS);
            assert_eq!(ur!(Event.pfnWait(1, &freed)), UR_RESULT_SUCCESS);
            finish(queue);
            for event in [event, made, filled, freed] {
                ur!(Event.pfnRelease(event));
            }
            ur!(Queue.pfnRelease(queue));
        }
        let (context, device) = test_context.at;
        ur!(USMExp.pfnPoolDestroyExp(context, device, pool));
        test_context.end(&driver);
    });
}

/// The driver's pool has no memory while work is pending. The host waits for the work and tries again.
#[test]
fn pending_work_is_waited_for_before_an_allocation_fails() {
    let name = "tests::native::pending_work_is_waited_for_before_an_allocation_fails";
    alone_with(name, NATIVE_POOLS, || {
        let driver = FakeDriver::open();
        let test_context = TestContext::new();
        let pool = test_context.pool(None);
        let held = test_context.queue(IN_ORDER);
        let memory = alloc(held, pool, UR_USM_TYPE_DEVICE, SIZE, null_mut()).expect("memory");
        for flags in [IN_ORDER, LOOSE] {
            let queue = test_context.queue(flags);
            let count = AtomicU32::new(0);
            let data = (&raw const count).cast_mut().cast();
            let (none, to) = (null(), null_mut());
            let code = ur!(EnqueueExp.pfnHostTaskExp(held, Some(task), data, null(), 0, none, to));
            assert_eq!(code, UR_RESULT_SUCCESS);
            fill(held, memory, 1);
            driver.fail_nth("cuMemAllocFromPoolAsync", 1, 2);
            let again = alloc(queue, pool, UR_USM_TYPE_DEVICE, SIZE, null_mut());
            assert!(driver.query().met);
            let again = again.expect("memory after a wait");
            assert_eq!(count.load(Ordering::Relaxed), 1, "the host has waited");
            assert_eq!(free(queue, again), UR_RESULT_SUCCESS);
            finish(queue);
            // No work is pending, so the allocation fails.
            driver.fail_each("cuMemAllocFromPoolAsync", 2);
            let last = alloc(queue, pool, UR_USM_TYPE_DEVICE, SIZE, null_mut());
            assert_eq!(last, Err(UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY));
            driver.reset();
            ur!(Queue.pfnRelease(queue));
        }
        assert_eq!(free(held, memory), UR_RESULT_SUCCESS);
        finish(held);
        ur!(Queue.pfnRelease(held));
        let (context, device) = test_context.at;
        ur!(USMExp.pfnPoolDestroyExp(context, device, pool));
        test_context.end(&driver);
    });
}

/// Live blocks outlive their pool, and end with their context.
#[test]
fn memory_outlives_its_pool() {
    let name = "tests::native::memory_outlives_its_pool";
    alone_with(name, NATIVE_POOLS, || {
        let driver = FakeDriver::open();
        let test_context = TestContext::new();
        let (context, device) = test_context.at;
        let pool = test_context.pool(None);
        let queue = test_context.queue(LOOSE);
        let get = || alloc(queue, pool, UR_USM_TYPE_DEVICE, SIZE, null_mut()).expect("memory");
        let (one, two) = (get(), get());
        ur!(USMExp.pfnPoolDestroyExp(context, device, pool));
        fill(queue, one, 1);
        finish(queue);
        let what = UR_USM_ALLOC_INFO_SIZE;
        let mut size = 0_usize;
        let to = (&raw mut size).cast();
        let inside = one.wrapping_byte_add(5);
        let code = ur!(USM.pfnGetMemAllocInfo(context, inside, what, 8, to, null_mut()));
        assert_eq!((code, size), (UR_RESULT_SUCCESS, SIZE));
        assert_eq!(free(queue, one), UR_RESULT_SUCCESS);
        assert_ne!(one, two);
        ur!(Queue.pfnRelease(queue));
        test_context.end(&driver);
    });
}

/// Threads with queues of their own share a pool.
#[test]
fn threads_share_a_pool() {
    let name = "tests::native::threads_share_a_pool";
    alone_with(name, NATIVE_POOLS, || {
        let driver = FakeDriver::open();
        let test_context = TestContext::new();
        let pool = test_context.pool(Some((64 << 20, 0)));
        let (shared, at) = (pool.addr(), test_context.queue(IN_ORDER).addr());
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let queue = test_context
                    .queue(if thread % 2 == 0 { IN_ORDER } else { LOOSE })
                    .addr();
                scope.spawn(move || {
                    let pool = std::ptr::with_exposed_provenance_mut(shared);
                    let own = std::ptr::with_exposed_provenance_mut(queue);
                    let other = std::ptr::with_exposed_provenance_mut(at);
                    for round in 0..50_usize {
                        let mut made = null_mut();
                        let kind = KINDS[round % 3];
                        let memory = alloc(own, pool, kind, SIZE, &mut made).expect("memory");
                        assert_eq!(ur!(Event.pfnWait(1, &made)), UR_RESULT_SUCCESS);
                        ur!(Event.pfnRelease(made));
                        assert_eq!(free(other, memory), UR_RESULT_SUCCESS);
                    }
                    finish(own);
                    ur!(Queue.pfnRelease(own));
                });
            }
        });
        let queue = std::ptr::with_exposed_provenance_mut(at);
        finish(queue);
        assert_eq!((used(pool)[0], reserved(pool)[0]), (0, 0));
        assert!(used(pool)[1] <= 4 * SIZE, "{:?}", used(pool));
        ur!(Queue.pfnRelease(queue));
        let (context, device) = test_context.at;
        ur!(USMExp.pfnPoolDestroyExp(context, device, pool));
        test_context.end(&driver);
    });
}

fn each_call_fails_with(name: &str, code: u32) {
    alone_with(name, NATIVE_POOLS, || {
        let driver = FakeDriver::open();
        driver.reset();
        let whole = play(&|_| {});
        assert_eq!(whole.failed(), []);
        driver.check_end("a workload");
        let calls = driver.query().calls;
        for nth in 1..=calls {
            driver.fail(nth, code);
            let steps = play(&|_| {});
            let when = format!("call {nth} failed with {code}: {:?}", steps.failed());
            driver.check_end(&when);
            let silent = steps.failed().is_empty();
            assert!(!silent || steps.right, "{when}: {}", driver.report());
        }
        for call in [
            "cuMemAllocFromPoolAsync",
            "cuMemPoolTrimTo",
            "cuMemFreeAsync",
        ] {
            driver.fail_each(call, code);
            let steps = play(&|_| {});
            assert!(driver.query().met, "{call}");
            assert_eq!(
                steps.failed().is_empty(),
                call == "cuMemPoolTrimTo",
                "{call}"
            );
            assert_eq!(driver.query().broken, 0, "{call}: {}", driver.report());
            if call != "cuMemFreeAsync" {
                driver.check_end(call);
            }
        }
    });
}

#[test]
fn each_call_runs_out_of_memory() {
    each_call_fails_with("tests::native::each_call_runs_out_of_memory", 2);
}

#[test]
fn each_call_loses_the_device() {
    each_call_fails_with("tests::native::each_call_loses_the_device", 700);
}

#[test]
fn an_invalid_setting_is_reported_once() {
    let name = "tests::native::an_invalid_setting_is_reported_once";
    let said = alone_with(name, &[("UR_CUDA_NATIVE_POOLS", "native")], || {
        let driver = FakeDriver::open();
        let test_context = TestContext::new();
        for _ in 0..2 {
            let pool = test_context.pool(None);
            assert_eq!(ur!(USM.pfnPoolRelease(pool)), UR_RESULT_SUCCESS);
        }
        test_context.end(&driver);
    });
    if let Some(said) = said {
        let line = "UR_CUDA_NATIVE_POOLS: `native` is not understood; accepted: 1, true, yes, 0, false, no; \
                    used instead: 0\n";
        assert_eq!(said.matches("UR_CUDA_NATIVE_POOLS").count(), 1, "{said}");
        assert!(said.contains(line), "{said}");
    }
}
